//! What the server tells us by itself, on one channel of this client's and those of the keys that it observes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, broadcast};

use crate::backend::notices::NoticeBoard;
use crate::backend::redis::names::Names;
use crate::backend::redis::reply;
use crate::backend::{EntryId, Lease, LeaseId, Notice, Place, Standing};
use crate::claim::Claim;
use crate::clock::{Clock, Moment};
use crate::entry_map::EntryMap;
use crate::fence::Ticket;
use crate::sync::locked;

/// How many changes of an observed key a slow observer may fall behind before it has to look anew.
const BACKLOG: usize = 1024;

/// How far ahead of the server's time a ticket may be for ours to follow it.
const FOLLOWED_US: u64 = 60_000_000;

/// How many slots keys fall into.
const SLOTS: usize = 16384;

/// Where news arrive and whoever waits for them is woken.
pub(super) struct Hub {
    /// What the channels begin with on which this client's entries are granted, evicted and wished for.
    pub(super) client: String,
    pub(super) notices: NoticeBoard,
    /// Whether a pushed grant may be believed by itself.
    push_suffices: bool,
    waiters: Mutex<EntryMap<Waiter>>,
    topics: Mutex<HashMap<String, Topic>>,
    /// A topic came or went.
    pub(super) stirred: Arc<Notify>,
    pub(super) clock: Clock,
    /// How many µs the server's time is ahead of our clock. For telling how old an entry is, and for guessing tickets.
    server_lead_us: AtomicU64,
    /// The highest ticket that was guessed or seen.
    highest: AtomicU64,
    /// The slots in which a key was last found to have a line.
    lined: Box<[AtomicBool]>,
    /// Of each slot, which key's last ticket was last made to be remembered, and when.
    kept: Box<[AtomicU64]>,
}

/// How long it goes without saying that a key's last ticket is to be remembered, in µs.
pub(super) const KEPT_FOR_US: u64 = 600_000_000;

/// A ticket that will do if its key has no line.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    pub(super) ticket: u64,
    /// Whether it goes without saying that the key's last ticket is to be remembered.
    pub(super) is_kept: bool,
    keeps: u64,
}

/// A place in line of ours.
struct Waiter {
    claim: Claim,
    /// A channel on which others say that the key is free.
    freed: Option<String>,
    told: Option<News>,
    waker: Option<Waker>,
}

#[derive(Clone, Copy)]
enum News {
    Granted(Ticket),
    Gone,
    LookAgain,
}

/// A channel that somebody here listens on.
struct Topic {
    listeners: usize,
    /// Whether the server has said that it will tell us.
    confirmed: bool,
    news: broadcast::Sender<Heard>,
}

/// What is heard on a topic.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    Message(Vec<u8>),
    /// Something may have been missed.
    Gap,
}

impl Hub {
    pub(super) fn new(push_suffices: bool) -> Self {
        let mut name = [0; 16];
        getrandom::fill(&mut name).expect("the operating system has random bytes");
        Self {
            client: format!("leasehold:{:032x}", u128::from_ne_bytes(name)),
            notices: NoticeBoard::new(),
            push_suffices,
            waiters: Mutex::default(),
            topics: Mutex::default(),
            stirred: Arc::default(),
            clock: Clock::boot(),
            server_lead_us: AtomicU64::new(0),
            highest: AtomicU64::new(0),
            lined: (0..SLOTS).map(|_| AtomicBool::new(false)).collect(),
            kept: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// About what time it is on the server.
    pub(super) fn server_ms(&self) -> u64 {
        self.server_us() / 1000
    }

    /// The same in µs.
    pub(super) fn server_us(&self) -> u64 {
        self.clock.now().as_nanos() / 1000 + self.server_lead_us.load(Relaxed)
    }

    /// A ticket that is most likely higher than any before it, as tickets follow the server's time. None for a key of a slot
    /// in which there was a line: it would not be asked for.
    pub(super) fn guess_ticket(&self, names: &Names, now: u64) -> Option<Guess> {
        if self.has_line(names.slot()) {
            return None;
        }
        let next = |highest: u64| now.max(highest + 1);
        let before = self.highest.fetch_update(Relaxed, Relaxed, |highest| Some(next(highest))).ok()?;
        // Which key, and in which span of time: a use of it in the same span need not say again what was said then.
        let keeps = names.hash() << 16 | (now / KEPT_FOR_US) & 0xffff;
        let is_kept = self.kept[usize::from(names.slot())].load(Relaxed) == keeps;
        Some(Guess { ticket: next(before), is_kept, keeps })
    }

    /// Whether a key of that slot was last found to have a line.
    pub(super) fn has_line(&self, slot: u16) -> bool {
        self.lined[usize::from(slot)].load(Relaxed)
    }

    /// What has become of a claim on a key of that slot: the ticket, if it was granted at once. One far ahead of the time is
    /// not followed: whoever chose it would drag all keys along.
    pub(super) fn learn_ticket(&self, slot: u16, guess: Option<Guess>, ticket: Option<Ticket>) {
        let slot = usize::from(slot);
        self.lined[slot].store(ticket.is_none(), Relaxed);
        let Some(Ticket(ticket)) = ticket else { return };
        if let Some(guess) = guess {
            self.kept[slot].store(guess.keeps, Relaxed);
        }
        if ticket < self.server_us() + FOLLOWED_US {
            self.highest.fetch_max(ticket, Relaxed);
        }
    }

    /// A server may have forgotten what it was to remember.
    pub(super) fn doubt_kept(&self) {
        self.kept.iter().for_each(|kept| kept.store(0, Relaxed));
    }

    /// It was that time on the server at that moment of ours.
    pub(super) fn learn_server_us(&self, at: Moment, server_us: u64) {
        self.server_lead_us.store(server_us.saturating_sub(at.as_nanos() / 1000), Relaxed);
    }

    /// News of this entry count from now on. Called before anybody else can know of it, so that none are missed.
    pub(super) fn expect(&self, entry: EntryId, claim: Claim) {
        let new = Waiter { claim, freed: None, told: None, waker: None };
        locked(&self.waiters).entry(entry).or_insert(new);
    }

    /// Whoever holds the key is of another kind, and will say on that channel that it is free.
    pub(super) fn expect_freedom(&self, entry: EntryId, channel: String) {
        if let Some(waiter) = locked(&self.waiters).get_mut(&entry)
            && waiter.freed.is_none()
        {
            self.join(&channel);
            waiter.freed = Some(channel);
        }
    }

    pub(super) fn forget(&self, entry: EntryId) {
        let forgotten = locked(&self.waiters).remove(&entry);
        if let Some(channel) = forgotten.and_then(|waiter| waiter.freed) {
            self.part(&channel);
        }
    }

    /// Resolves when there is news of a place.
    pub(super) async fn changed(&self, place: &Place) -> Option<Standing> {
        poll_fn(|cx| self.poll_changed(place, cx.waker())).await
    }

    fn poll_changed(&self, place: &Place, waker: &Waker) -> Poll<Option<Standing>> {
        let mut waiters = locked(&self.waiters);
        let Some(waiter) = waiters.get_mut(&place.entry) else { return Poll::Ready(None) };
        match waiter.told.take() {
            Some(News::Granted(ticket)) if self.push_suffices => {
                // Its lease counts from our own last renewal, which the caller knows better than the server.
                let lease = Lease { id: LeaseId::Entry(place.clone()), ttl: Duration::ZERO };
                let token = reply::token(waiter.claim, ticket);
                Poll::Ready(Some(Standing::Holding { ticket, token, lease }))
            }
            Some(News::Gone) => Poll::Ready(Some(reply::gone())),
            Some(News::LookAgain | News::Granted(_)) => Poll::Ready(None),
            None => {
                waiter.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Called by a connection with whatever the server pushes. Does not block.
    pub(super) fn hear(&self, push: PushInfo) {
        let mut parts = push.data.into_iter();
        if push.kind == PushKind::Message
            && let (Some(Value::BulkString(channel)), Some(Value::BulkString(message))) = (parts.next(), parts.next())
        {
            let own = channel.starts_with(self.client.as_bytes());
            if own { self.hear_own(&message) } else { self.spread(&channel, message) }
        }
    }

    /// `g id ticket`: granted; `x id`: gone; `y id`: asked to yield. What is none of these is not from us.
    fn hear_own(&self, message: &[u8]) {
        let Ok(text) = std::str::from_utf8(message) else { return };
        let mut words = text.split(' ');
        let (Some(news), Some(Ok(entry))) = (words.next(), words.next().map(str::parse::<EntryId>)) else { return };
        match (news, words.next().map(str::parse)) {
            ("g", Some(Ok(ticket))) => self.tell(entry, News::Granted(Ticket(ticket))),
            ("x", None) => {
                self.notices.post(Notice::Gone(entry));
                self.tell(entry, News::Gone);
            }
            ("y", None) => self.notices.post(Notice::YieldAsked(entry)),
            _ => {}
        }
    }

    fn tell(&self, entry: EntryId, news: News) {
        if let Some(waiter) = locked(&self.waiters).get_mut(&entry) {
            waiter.told = Some(news);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    fn spread(&self, channel: &[u8], message: Vec<u8>) {
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        self.let_look(|waiter| waiter.freed.as_deref() == Some(channel));
        if let Some(topic) = locked(&self.topics).get(channel) {
            let _ = topic.news.send(Heard::Message(message)); // the last listener may just have gone
        }
    }

    /// Messages may have been missed: everybody looks for themselves.
    pub(super) fn let_all_look(&self) {
        self.let_look(|_| true);
        for topic in locked(&self.topics).values() {
            let _ = topic.news.send(Heard::Gap);
        }
    }

    fn let_look(&self, whom: impl Fn(&Waiter) -> bool) {
        for waiter in locked(&self.waiters).values_mut().filter(|waiter| whom(waiter)) {
            waiter.told.get_or_insert(News::LookAgain);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    /// Listens on a channel. The first thing heard is a gap, when the server has confirmed it.
    pub(super) fn listen(self: &Arc<Self>, channel: &str) -> Listener {
        let (news, confirmed) = self.join(channel);
        Listener { hub: self.clone(), channel: channel.into(), news, confirmed }
    }

    /// One more wants to hear that channel. Tells whether it is heard already.
    fn join(&self, channel: &str) -> (broadcast::Receiver<Heard>, bool) {
        let mut topics = locked(&self.topics);
        let new = || Topic { listeners: 0, confirmed: false, news: broadcast::channel(BACKLOG).0 };
        let topic = topics.entry(channel.into()).or_insert_with(new);
        topic.listeners += 1;
        if topic.listeners == 1 {
            self.stirred.notify_one();
        }
        (topic.news.subscribe(), topic.confirmed)
    }

    fn part(&self, channel: &str) {
        let mut topics = locked(&self.topics);
        if let Some(topic) = topics.get_mut(channel) {
            topic.listeners -= 1;
            if topic.listeners == 0 {
                topics.remove(channel);
                self.stirred.notify_one();
            }
        }
    }

    /// The channels that somebody listens on now.
    pub(super) fn topics(&self) -> Vec<String> {
        locked(&self.topics).keys().cloned().collect()
    }

    /// That channel is listened on now, as the server says.
    pub(super) fn confirm(&self, channel: &str) {
        if let Some(topic) = locked(&self.topics).get_mut(channel) {
            topic.confirmed = true;
            let _ = topic.news.send(Heard::Gap);
        }
        self.let_look(|waiter| waiter.freed.as_deref() == Some(channel));
    }
}

/// Hears what is published on one channel. Dropping it stops listening.
pub(super) struct Listener {
    hub: Arc<Hub>,
    channel: String,
    news: broadcast::Receiver<Heard>,
    /// Whether it was heard before we came, and nobody will say so again.
    confirmed: bool,
}

impl Listener {
    pub(super) async fn next(&mut self) -> Heard {
        if std::mem::take(&mut self.confirmed) {
            return Heard::Gap;
        }
        // One that fell behind has missed something.
        self.news.recv().await.unwrap_or(Heard::Gap)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.hub.part(&self.channel);
    }
}
