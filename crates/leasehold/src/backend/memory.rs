//! The store within one process: fair, exact, and the reference that every other store is compared with.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::broadcast;

use crate::backend::notices::NoticeBoard;
use crate::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, EntryId, EntryView, Finding, KeyView, Lease, LeaseId, Note,
    Notice, Page, Patience, Place, Query, Renewal, Request, Standing, Turn, Version,
};
use crate::claim::{Capacity, Claim};
use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{FencingToken, Ticket};
use crate::key::Key;
use crate::queue;
use crate::sync::{AtomicU64, Mutex, locked};

/// The most entries in one line, so that a caller gone wild fills its own line and not the memory.
const LINE_MAX: usize = 100_000;

/// How many changes of a watched key a slow watcher may fall behind before it has to look anew.
const WATCH_BACKLOG: usize = 1024;

/// Lines kept in this process's memory. Copies share them, and count as clients of their own.
pub struct Memory {
    shared: Arc<Shared>,
    /// Tells whose entry an entry is.
    client: u64,
}

struct Shared {
    /// Empty for a store that only its copies can reach.
    name: String,
    clock: Clock,
    last_ticket: Arc<AtomicU64>,
    notices: NoticeBoard,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lines: HashMap<Key, Line>,
    watched: HashMap<Key, broadcast::Sender<KeyView>>,
}

/// The entries of one key in ticket order. Never empty: a key without entries has no line.
struct Line {
    capacity: Capacity,
    entries: Vec<Entry>,
    /// How many of the first entries hold, by the rule.
    holders: usize,
    /// No entry expires before this, so that most calls need not look.
    expiry_floor: Moment,
}

struct Entry {
    id: EntryId,
    client: u64,
    ticket: Ticket,
    claim: Claim,
    note: Note,
    entered_at: Moment,
    expires_at: Moment,
    yield_asked: bool,
    /// Grows with every change of this entry's standing.
    version: u64,
    /// Whoever waits for the next such change.
    waker: Option<Waker>,
}

/// The last ticket of all stores that have a name. Such a store goes when nobody has it and comes back under its name;
/// its tokens must not begin anew with it, since a gate may have outlived it.
static LAST_NAMED_TICKET: LazyLock<Arc<AtomicU64>> = LazyLock::new(Default::default);

static CLIENTS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

static NAMED: LazyLock<std::sync::Mutex<HashMap<String, Weak<Shared>>>> = LazyLock::new(Default::default);

impl Memory {
    /// An empty store that nobody else can reach.
    pub fn new() -> Self {
        Self::with_clock(Clock::boot())
    }

    /// An empty store whose leases run on that clock.
    pub fn with_clock(clock: Clock) -> Self {
        Self::made(String::new(), clock, Arc::default())
    }

    /// The store of that name in this process, made if it is not there. It lasts as long as somebody has it.
    pub fn named(name: &str) -> Self {
        let mut named = NAMED.lock().expect("no panic under this lock");
        named.retain(|_, store| store.strong_count() > 0);
        if let Some(shared) = named.get(name).and_then(Weak::upgrade) {
            return Self::client_of(shared);
        }
        let made = Self::made(name.into(), Clock::boot(), LAST_NAMED_TICKET.clone());
        named.insert(name.into(), Arc::downgrade(&made.shared));
        made
    }

    fn made(name: String, clock: Clock, last_ticket: Arc<AtomicU64>) -> Self {
        let notices = NoticeBoard::new();
        Self::client_of(Arc::new(Shared { name, clock, last_ticket, notices, state: Mutex::default() }))
    }

    fn client_of(shared: Arc<Shared>) -> Self {
        let client = CLIENTS.fetch_add(1, Relaxed);
        Self { shared, client }
    }

    /// Runs `work` on the state as it is now, with the expired entries of that key gone.
    fn at<T>(&self, key: &Key, work: impl FnOnce(&mut State, Moment) -> T) -> T {
        let mut state = locked(&self.shared.state);
        let now = self.shared.clock.now();
        state.change(key, now, |line| line.leave_expired(now));
        work(&mut state, now)
    }

    fn enter_now(&self, request: &Request) -> Result<Standing> {
        let Request { place, claim, patience, terms, note, returns } = request;
        self.at(&place.key, |state, now| {
            let line = state.lines.get_mut(&place.key);
            let at = match line {
                Some(line) => match line.position(place.entry) {
                    Some(at) => Some(at),
                    None => {
                        line.capacity.admits(*claim, &place.key)?;
                        if *patience == Patience::Refuse && !line.has_room_for(*claim) {
                            let held_by = line.views(&place.key, 0..line.holders, now);
                            return Ok(Standing::Refused { held_by, recheck_in: line.recheck_in(line.holders, now) });
                        }
                        if line.entries.len() >= LINE_MAX {
                            let full = format!("{LINE_MAX} entries are in line already");
                            return Err(Error::new(ErrorKind::Full, full).at(&place.key));
                        }
                        None
                    }
                },
                None => None,
            };
            if at.is_none() {
                if *returns {
                    return Ok(gone());
                }
                // Under the state's lock, so that tickets join their lines in order.
                let ticket = Ticket(self.shared.last_ticket.fetch_add(1, Relaxed) + 1);
                let expires_at = now; // until the terms are applied below
                let (id, note) = (place.entry, note.clone());
                let (claim, entered_at) = (*claim, now);
                let entry = Entry {
                    id,
                    client: self.client,
                    ticket,
                    claim,
                    note,
                    entered_at,
                    expires_at,
                    yield_asked: false,
                    version: 0,
                    waker: None,
                };
                state.join(&place.key, entry);
            }
            let line = state.lines.get_mut(&place.key).expect("it was joined just now if it was not there");
            let at = line.position(place.entry).expect("it joined just now if it was not there");
            let ttl = if at < line.holders { terms.holding } else { terms.waiting };
            line.extend(at, now.after(ttl));
            Ok(line.standing(place, at, ttl, now))
        })
    }

    fn poll_changed(&self, place: &Place, seen: Version, waker: &Waker) -> Poll<Option<Standing>> {
        self.at(&place.key, |state, now| {
            let Some((line, at)) = state.find(place) else { return Poll::Ready(Some(gone())) };
            let entry = &mut line.entries[at];
            if entry.version == seen.0 {
                entry.waker = Some(waker.clone());
                return Poll::Pending;
            }
            let ttl = now.until(entry.expires_at);
            Poll::Ready(Some(line.standing(place, at, ttl, now)))
        })
    }

    fn leave_now(&self, place: &Place) -> Departure {
        self.at(&place.key, |state, now| {
            let Some((line, at)) = state.find(place) else { return Departure::WasGone };
            if line.entries[at].client != self.client {
                self.shared.notices.post(Notice::Gone(place.entry));
            }
            let departure = if at < line.holders { Departure::WasHolding } else { Departure::WasWaiting };
            state.change(&place.key, now, |line| {
                line.entries.remove(at).wake();
                true
            });
            departure
        })
    }

    fn renew_now(&self, lease: &Lease) -> Renewal {
        let LeaseId::Entry(place) = &lease.id;
        self.at(&place.key, |state, now| match state.find(place) {
            Some((line, at)) => {
                line.extend(at, now.after(lease.ttl));
                let (yield_asked, waits) = (line.entries[at].yield_asked, at >= line.holders);
                Renewal::Renewed { ttl: lease.ttl, yield_asked, waits }
            }
            None => Renewal::Lost,
        })
    }

    fn ask_to_yield_now(&self, place: &Place) -> Asked {
        self.at(&place.key, |state, _| match state.find(place) {
            Some((line, at)) => {
                line.entries[at].yield_asked = true;
                self.shared.notices.post(Notice::YieldAsked(place.entry));
                Asked::Told
            }
            None => Asked::NotThere,
        })
    }

    fn annotate_now(&self, place: &Place, note: &Note) -> Annotation {
        self.at(&place.key, |state, now| match state.find(place) {
            Some((line, at)) if at < line.holders => {
                line.entries[at].note = note.clone();
                state.publish(&place.key, now);
                Annotation::Written
            }
            _ => Annotation::NotHolding,
        })
    }

    fn inspect_now(&self, query: &Query) -> Page<KeyView> {
        let mut state = locked(&self.shared.state);
        let now = self.shared.clock.now();
        let wanted = |key: &&Key| {
            *key.namespace() == query.namespace
                && query.key.as_ref().is_none_or(|only| only == *key)
                && query.after.as_ref().is_none_or(|after| after < *key)
        };
        let mut keys: Vec<Key> = state.lines.keys().filter(wanted).cloned().collect();
        keys.sort_unstable();
        let next = if keys.len() > query.keys_max { keys.get(query.keys_max.max(1) - 1).cloned() } else { None };
        keys.truncate(query.keys_max);
        let mut items = Vec::new();
        for key in keys {
            state.change(&key, now, |line| line.leave_expired(now));
            items.extend(state.lines.get(&key).map(|line| line.view(&key, now)));
        }
        Page { items, next }
    }
}

impl State {
    fn find(&mut self, place: &Place) -> Option<(&mut Line, usize)> {
        let line = self.lines.get_mut(&place.key)?;
        let at = line.position(place.entry)?;
        Some((line, at))
    }

    fn join(&mut self, key: &Key, entry: Entry) {
        let now = entry.entered_at;
        let line = self.lines.entry(key.clone()).or_insert_with(|| Line {
            capacity: entry.claim.capacity(),
            entries: Vec::with_capacity(1),
            holders: 0,
            expiry_floor: Moment::FAR,
        });
        line.entries.push(entry);
        if line.apply_rule() {
            self.publish(key, now);
        }
    }

    /// Changes a line, if there is one, and everything that follows from it: who holds, who is woken, who is told.
    fn change(&mut self, key: &Key, now: Moment, change: impl FnOnce(&mut Line) -> bool) {
        let Some(line) = self.lines.get_mut(key) else { return };
        if !change(line) {
            return;
        }
        line.apply_rule();
        if line.entries.is_empty() {
            self.lines.remove(key);
        }
        self.publish(key, now);
    }

    fn publish(&mut self, key: &Key, now: Moment) {
        let Some(watchers) = self.watched.get(key) else { return };
        if watchers.send(self.view(key, now)).is_err() {
            self.watched.remove(key); // nobody listens any more
        }
    }

    fn view(&self, key: &Key, now: Moment) -> KeyView {
        match self.lines.get(key) {
            Some(line) => line.view(key, now),
            None => KeyView { key: key.clone(), capacity: None, holders: Vec::new(), waiters: Some(Vec::new()) },
        }
    }
}

impl Line {
    fn position(&self, id: EntryId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id)
    }

    fn weights(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.claim.weight())
    }

    fn has_room_for(&self, claim: Claim) -> bool {
        queue::holders(self.capacity, self.weights().chain([claim.weight()])) > self.entries.len()
    }

    fn extend(&mut self, at: usize, until: Moment) {
        let expires_at = &mut self.entries[at].expires_at;
        *expires_at = until.max(*expires_at);
        self.expiry_floor = self.expiry_floor.min(*expires_at);
    }

    /// True if anybody had expired.
    fn leave_expired(&mut self, now: Moment) -> bool {
        if now < self.expiry_floor {
            return false;
        }
        let before = self.entries.len();
        self.entries.extract_if(.., |entry| entry.expires_at <= now).for_each(|mut entry| entry.wake());
        self.expiry_floor = self.entries.iter().map(|entry| entry.expires_at).min().unwrap_or(Moment::FAR);
        self.entries.len() < before
    }

    /// Asks the rule who holds now, and wakes exactly those who did not before. True if there are any.
    fn apply_rule(&mut self) -> bool {
        self.holders = queue::holders(self.capacity, self.weights());
        let mut granted = false;
        for entry in self.entries[..self.holders].iter_mut().filter(|entry| entry.version == 0) {
            granted = true;
            entry.version = 1;
            entry.wake();
        }
        granted
    }

    fn standing(&self, place: &Place, at: usize, ttl: Duration, now: Moment) -> Standing {
        let entry = &self.entries[at];
        let lease = Lease { id: LeaseId::Entry(place.clone()), ttl };
        if at < self.holders {
            return Standing::Holding { ticket: entry.ticket, token: entry.token(), lease };
        }
        Standing::Waiting {
            ahead: Some(u32::try_from(at).unwrap_or(u32::MAX)),
            turn: Some(Turn { ticket: entry.ticket, behind: self.entries[at - 1].ticket }),
            lease: Some(lease),
            seen: Version(entry.version),
            recheck_in: self.recheck_in(at, now),
        }
    }

    fn recheck_in(&self, at: usize, now: Moment) -> Duration {
        let shortest = self.entries[..at].iter().map(|entry| now.until(entry.expires_at)).min();
        queue::recheck_in(u32::try_from(at).unwrap_or(u32::MAX), shortest.unwrap_or(Duration::MAX))
    }

    fn view(&self, key: &Key, now: Moment) -> KeyView {
        KeyView {
            key: key.clone(),
            capacity: Some(self.capacity),
            holders: self.views(key, 0..self.holders, now),
            waiters: Some(self.views(key, self.holders..self.entries.len(), now)),
        }
    }

    fn views(&self, key: &Key, range: std::ops::Range<usize>, now: Moment) -> Vec<EntryView> {
        let holders = self.holders;
        let view = |(at, entry): (usize, &Entry)| EntryView {
            place: Place { key: key.clone(), entry: entry.id },
            claim: entry.claim,
            ticket: entry.ticket,
            token: if at < holders { entry.token() } else { None },
            note: entry.note.clone(),
            age: entry.entered_at.until(now),
            lease_left: now.until(entry.expires_at),
            yield_asked: entry.yield_asked,
            foreign: false,
            spread: None,
        };
        self.entries.iter().enumerate().skip(range.start).take(range.len()).map(view).collect()
    }
}

impl Entry {
    /// Its standing is another one now, or it has none any more.
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn token(&self) -> Option<FencingToken> {
        if self.claim.is_exclusive() { FencingToken::new(self.ticket.0) } else { None }
    }
}

impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        at_first_poll(|| self.enter_now(request))
    }

    fn changed<'a>(&'a self, place: &'a Place, seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(poll_fn(|cx| self.poll_changed(place, *seen, cx.waker()).map(Ok)))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        at_first_poll(|| Ok(self.leave_now(place)))
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        at_first_poll(|| Ok(leases.iter().map(|lease| self.renew_now(lease)).collect()))
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        at_first_poll(|| Ok(self.ask_to_yield_now(place)))
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.shared.notices.follow()
    }

    fn liveness(&self) -> Option<OwnedFd> {
        None
    }

    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        at_first_poll(|| Ok(self.annotate_now(place, note)))
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        at_first_poll(|| Ok(self.inspect_now(query)))
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let (first, changes) = self.at(key, |state, now| {
            state.watched.retain(|_, watchers| watchers.receiver_count() > 0);
            let sender = state.watched.entry(key.clone()).or_insert_with(|| broadcast::channel(WATCH_BACKLOG).0);
            let changes = sender.subscribe();
            (state.view(key, now), changes)
        });
        let follow = async |(first, changes): (Option<KeyView>, Option<broadcast::Receiver<KeyView>>)| {
            let mut changes = changes?;
            if let Some(first) = first {
                return Some((Ok(first), (None, Some(changes))));
            }
            match changes.recv().await {
                Ok(view) => Some((Ok(view), (None, Some(changes)))),
                Err(broadcast::error::RecvError::Closed) => None,
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    let lagged = format!("the watcher fell behind by {missed} changes");
                    Some((Err(Error::new(ErrorKind::Unreachable, lagged)), (None, None)))
                }
            }
        };
        Box::pin(stream::unfold((Some(first), Some(changes)), follow))
    }

    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let advice = "no other process sees its locks: name another store";
        let finding = Finding::warning("reach", "it is the memory of this process", advice);
        at_first_poll(|| Ok(vec![finding]))
    }
}

/// The standing of an entry that was in line and is no longer.
fn gone() -> Standing {
    Standing::Refused { held_by: Vec::new(), recheck_in: Duration::ZERO }
}

/// Nothing happens before the future is polled, so that one dropped unpolled had no effect.
fn at_first_poll<'a, T>(work: impl FnOnce() -> T + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(async { work() })
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self::client_of(self.shared.clone())
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shared.name.as_str() {
            "" => f.write_str("memory"),
            name => write!(f, "memory:{name}"),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Memory").field(&self.shared.name).finish()
    }
}
