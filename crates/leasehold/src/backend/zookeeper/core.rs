//! What is done with lines: entering, waiting, leaving, renewing. One instance for each client.
//!
//! Trips: one to enter a line, one to leave it, one in which all entries of a client are renewed, and for a waiter one to have
//! itself told when its turn may have come. Two more to make the folder of a new key.

use std::pin::pin;
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, join, poll_immediate};
use tokio::sync::mpsc;

use crate::backend::notices::NoticeBoard;
use crate::backend::zookeeper::entries::{Entries, Entry, Node, Place as Stands};
use crate::backend::zookeeper::fault::Trouble;
use crate::backend::zookeeper::jute::Stat;
use crate::backend::zookeeper::line::Line;
use crate::backend::zookeeper::link::{Answer, Link};
use crate::backend::zookeeper::looks::Looks;
use crate::backend::zookeeper::names::Paths;
use crate::backend::zookeeper::note::{REVOKE, Written};
use crate::backend::zookeeper::request::{self, Ask, Change, Event, Mode, Rights, code};
use crate::backend::zookeeper::session::{Listener, Seat, Session, Unattached};
use crate::backend::zookeeper::time::ServerTime;
use crate::backend::zookeeper::watches::Watches;
use crate::backend::{
    Annotation, Asked, Departure, EntryId, Lease, LeaseId, Note, Notice, Patience, Place, Renewal, Request, Standing,
    Version,
};
use crate::claim::Claim;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Fate, Result};
use crate::fence::Ticket;
use crate::key::Key;
use crate::queue;
use crate::sync::locked;

/// How long a candidate's node is there at least. The servers tell observers that there is one, but not what it says: they
/// have to read it, and would find nothing of a leader that resigns as soon as it is elected.
const TERM_MIN: Duration = Duration::from_millis(100);

/// How often a folder is made that the server removes again because it is empty.
const FOLDER_TRIES: usize = 3;

/// How often data is written that somebody else changes at the same time.
const WRITE_TRIES: usize = 8;

/// Until when the session is kept, once that is known.
pub(super) type Keeping = Shared<BoxFuture<'static, std::result::Result<Moment, Unattached>>>;

/// Everything that a client knows.
pub(super) struct Core {
    pub(super) session: Arc<Session>,
    pub(super) entries: Entries,
    pub(super) watches: Arc<Watches>,
    pub(super) notices: NoticeBoard,
    pub(super) paths: Paths,
    pub(super) rights: Rights,
    pub(super) time: ServerTime,
    pub(super) looks: Looks,
    /// The request that keeps the session, while one is under way.
    pub(super) keeping: Mutex<Option<Keeping>>,
    /// What is told of our own entries, for the caretaker.
    pub(super) own_events: mpsc::UnboundedSender<Event>,
}

impl Listener for Core {
    fn event(&self, link: &Link, event: Event) {
        if let Some(id) = self.entries.at(&event.path) {
            if event.change == Change::Deleted {
                // At once: whoever hears the next thing that is told must not take it for there.
                self.entries.change(id, |entry| entry.watched = false);
            }
            let _ = self.own_events.send(event.clone()); // the caretaker ends with the store
        }
        self.watches.tell(link, &event);
    }

    fn silenced(&self) {
        self.watches.tell_all();
    }

    fn detached(&self) {
        self.watches.tell_all();
        self.entries.unwatch_all();
        self.notices.post(Notice::Shaken);
    }

    fn attached(&self, _seat: &Seat) {
        self.watches.tell_all();
        self.entries.unwatch_all();
        self.entries.news.notify_one();
    }

    fn ended(&self) {
        for id in self.entries.clear() {
            self.notices.post(Notice::Gone(id));
        }
        self.watches.tell_all();
    }
}

impl Core {
    /// Joins the line, or looks up our place in it.
    pub(super) async fn enter(&self, request: &Request) -> Result<Standing> {
        let id = request.place.entry;
        match self.entries.find(id) {
            Some(entry) if !entry.leaving => return self.look_up(request).await,
            Some(_) => return Ok(gone()),
            None if request.returns => return Ok(gone()),
            None => {}
        }
        let asked_at = self.session.now();
        let is_first = self.entries.is_empty();
        // From here on the session is in use: nobody who enters meanwhile exchanges it for one of another length.
        self.entries.begin(id, Entry::asked_for(request, asked_at));
        let entered = self.enter_anew(request, asked_at, is_first).await;
        match &entered {
            Err(error) if error.fate() == Fate::NotApplied => drop(self.entries.remove(id)),
            Ok(Standing::Refused { .. }) => drop(self.entries.remove(id)),
            _ => {}
        }
        entered
    }

    async fn enter_anew(&self, request: &Request, asked_at: Moment, is_first: bool) -> Result<Standing> {
        let seat = self.session.seat_for(request.terms.holding, is_first).await?;
        // If the session had ended and this is another one, everything of the old one was forgotten, and this with it.
        self.entries.begin(request.place.entry, Entry::asked_for(request, asked_at));
        if request.patience == Patience::Refuse
            && let Some(refused) = self.peek(&seat, request).await?
        {
            return Ok(refused);
        }
        let line = self.create(&seat, request).await?;
        self.joined(&seat, request, asked_at, line).await
    }

    /// Makes the entry's node, and looks who is in line as it is after that. One trip, and one more for a new key; another
    /// if somebody of this client is looking there already, which is then shared by all who come meanwhile.
    async fn create(&self, seat: &Seat, request: &Request) -> Result<Result<Arc<Line>>> {
        let Request { place, claim, note, terms, .. } = request;
        let folder = self.paths.key(&place.key);
        let path = format!("{folder}/{}", self.paths.entry(place.entry, *claim, note.value.is_some()));
        let written = Written { note: note.clone(), ttl: Some(terms.holding.min(seat.timeout)), yield_asked: false };
        let entering = Ask::create(&path, &written.bytes(), Mode::EphemeralSequential, self.rights);
        for _ in 0..FOLDER_TRIES {
            let asked_at = self.time.wall();
            let (made, line) = self.make_and_look(seat, &place.key, &folder, entering.clone()).await;
            match made {
                Ok(body) => {
                    let (path, stat) = request::created(&body).map_err(Trouble::from)?;
                    self.time.learn(stat.ctime, asked_at);
                    // Whoever we are, the session is what the server frees it with.
                    if stat.ephemeral_owner != seat.session {
                        let why = "the server made an entry that belongs to another session";
                        return Err(Error::new(ErrorKind::Protocol, why).with_unknown_fate());
                    }
                    if !self.entries.made(place.entry, &path, stat) {
                        return Err(Trouble::Ended.into());
                    }
                    // It is there, whatever became of the look.
                    return line.map_err(Error::with_unknown_fate);
                }
                Err(trouble) if trouble.is(code::NO_NODE) => self.make_folders(seat, &place.key).await?,
                Err(trouble) => return Err(trouble.into()),
            }
        }
        Err(Trouble::Refused(code::NO_NODE).into())
    }

    /// Makes a node, and looks at its line with it in it.
    async fn make_and_look(
        &self,
        seat: &Seat,
        key: &Key,
        folder: &str,
        making: Ask,
    ) -> (Answer, Result<Result<Arc<Line>>>) {
        let by = Arc::as_ptr(&seat.link).addr();
        if let Some(_under_way) = self.looks.begin(folder, by) {
            let mut answers = self.session.ask(seat, &[making, Ask::children(folder)]).await;
            let (names, made) = (answers.pop().expect("it was asked"), answers.pop().expect("it was asked"));
            return (made, listed(names, key));
        }
        let mut making = pin!(self.session.ask(seat, slice::from_ref(&making)));
        // It has left when this is pending, and whatever is sent from now on is carried out after it.
        let made = poll_immediate(&mut making).await;
        let (session, seat, key, name) = (self.session.clone(), seat.clone(), key.clone(), folder.to_owned());
        let look = self
            .looks
            .next(folder, by, async move { listed(session.ask(&seat, &[Ask::children(&name)]).await.remove(0), &key) });
        match made {
            Some(mut made) => (made.remove(0), look.await),
            None => {
                let (mut made, line) = join(making, look).await;
                (made.remove(0), line)
            }
        }
    }

    /// Makes the folders of a key, of the sort that the server removes once they are empty.
    async fn make_folders(&self, seat: &Seat, key: &Key) -> Result<()> {
        let folders = self.paths.folders(key);
        let asks: Vec<Ask> =
            folders.iter().map(|folder| Ask::create(folder, b"", Mode::Container, self.rights)).collect();
        for (folder, answer) in folders.iter().zip(self.session.ask(seat, &asks).await) {
            match answer {
                Ok(_) => {}
                Err(trouble) if trouble.is(code::NODE_EXISTS) || trouble.is(code::NO_NODE) => {}
                // Where we may not make it, it may be there.
                Err(trouble) if trouble.is(code::NO_AUTH) => {}
                Err(trouble) if trouble.is(code::UNIMPLEMENTED) => {
                    let ask = Ask::create(folder, b"", Mode::Persistent, self.rights);
                    match self.session.ask(seat, &[ask]).await.remove(0) {
                        Err(trouble) if !trouble.is(code::NODE_EXISTS) => {
                            return Err(Error::from(trouble).with_no_effect());
                        }
                        _ => {}
                    }
                }
                // A folder without an entry is nothing that anybody would miss or mind.
                Err(trouble) => return Err(Error::from(trouble).with_no_effect()),
            }
        }
        Ok(())
    }

    /// Our entry is in its line: it holds, it waits, or it has to leave again.
    async fn joined(
        &self,
        seat: &Seat,
        request: &Request,
        asked_at: Moment,
        line: Result<Arc<Line>>,
    ) -> Result<Standing> {
        let Place { key, entry: id } = &request.place;
        let line = match line {
            Ok(line) => line,
            Err(error) => return self.withdraw(seat, *id, Err(error)).await,
        };
        let Some(at) = line.position(*id) else {
            // Somebody took it out at once.
            self.entries.remove(*id);
            return Ok(gone());
        };
        if let Some(Err(mismatch)) = line.capacity().map(|capacity| capacity.admits(request.claim, key)) {
            return self.withdraw(seat, *id, Err(mismatch)).await;
        }
        if request.patience == Patience::Refuse && at >= line.holders {
            let refused = self.refused(seat, key, &line).await;
            return self.withdraw(seat, *id, refused).await;
        }
        self.standing(seat, request, asked_at, &line, at)
    }

    /// Takes our entry out again, and says why.
    async fn withdraw(&self, seat: &Seat, id: EntryId, why: Result<Standing>) -> Result<Standing> {
        let path = self.entries.change(id, |entry| {
            entry.leaving = true;
            entry.path()
        });
        let Some(path) = path.flatten() else { return why };
        match self.session.ask(seat, &[Ask::delete(&path)]).await.remove(0) {
            Err(trouble) if !trouble.is(code::NO_NODE) => Err(Error::from(trouble).with_unknown_fate()),
            _ => {
                self.entries.remove(id);
                why
            }
        }
    }

    /// Whether somebody is in the way, without leaving a trace. One trip, and one more to see who it is.
    async fn peek(&self, seat: &Seat, request: &Request) -> Result<Option<Standing>> {
        let key = &request.place.key;
        let Some(names) = self.names(seat, key).await.map_err(Error::with_no_effect)? else { return Ok(None) };
        let line = Line::of(&names, key)?;
        let Some(capacity) = line.capacity() else { return Ok(None) };
        capacity.admits(request.claim, key)?;
        let weights = line.entries.iter().map(|entry| entry.claim.weight()).chain([request.claim.weight()]);
        if queue::holders(capacity, weights) > line.entries.len() {
            return Ok(None);
        }
        self.refused(seat, key, &line).await.map(Some)
    }

    async fn refused(&self, seat: &Seat, key: &Key, line: &Line) -> Result<Standing> {
        let held_by = self.views(seat, key, &line.entries[..line.holders], line.holders).await;
        let held_by = held_by.map_err(Error::with_no_effect)?.into_iter().flatten().collect();
        let ahead = u32::try_from(line.holders).unwrap_or(u32::MAX);
        Ok(Standing::Refused { held_by, recheck_in: queue::recheck_in(ahead, Duration::MAX) })
    }

    /// The names in a key's folder, as the leader knows them now; `None` if there is no folder. One trip.
    pub(super) async fn names(&self, seat: &Seat, key: &Key) -> Result<Option<Vec<String>>> {
        let folder = self.paths.key(key);
        let mut answers = self.session.ask(seat, &[Ask::sync(&folder), Ask::children(&folder)]).await;
        let (names, synced) = (answers.pop().expect("it was asked"), answers.pop().expect("it was asked"));
        synced?;
        children(names)
    }

    /// Looks our place in line up. One trip.
    async fn look_up(&self, request: &Request) -> Result<Standing> {
        let Place { key, entry: id } = &request.place;
        let asked_at = self.session.now();
        let seat = match self.session.seat(false).await {
            Ok(seat) => seat,
            Err(Unattached::Ended) => return Ok(gone()),
            Err(Unattached::Failed(error)) => return Err(error),
        };
        let names = self.names(&seat, key).await.map_err(Error::with_no_effect)?.unwrap_or_default();
        let line = Line::of(&names, key)?;
        let Some(at) = line.position(*id) else {
            self.entries.remove(*id);
            return Ok(gone());
        };
        if self.entries.find(*id).is_some_and(|entry| entry.path().is_none()) {
            self.adopt(&seat, key, *id, &line.entries[at].name).await?;
        }
        if self.entries.find(*id).is_none() {
            return Ok(gone());
        }
        self.standing(&seat, request, asked_at, &line, at)
    }

    /// The answer to our creating it was lost, and here it is; if it is of the session that there is.
    async fn adopt(&self, seat: &Seat, key: &Key, id: EntryId, name: &str) -> Result<()> {
        let path = format!("{}/{name}", self.paths.key(key));
        let answer = self.session.ask(seat, &[Ask::exists(&path)]).await.remove(0);
        let stat: Stat = request::stat(&answer.map_err(|trouble| Error::from(trouble).with_no_effect())?)
            .map_err(|garbled| Error::from(Trouble::from(garbled)).with_no_effect())?;
        if stat.ephemeral_owner == seat.session {
            self.entries.made(id, &path, stat);
        } else {
            self.entries.remove(id);
        }
        Ok(())
    }

    /// Where our entry stands in a line that was looked at after `asked_at`, with the leader's part in the answer.
    fn standing(&self, seat: &Seat, request: &Request, asked_at: Moment, line: &Line, at: usize) -> Result<Standing> {
        let Place { key, entry: id } = &request.place;
        let holds = at < line.holders;
        let ttl = if holds { request.terms.holding } else { request.terms.waiting }.min(seat.timeout);
        self.entries.extend(*id, asked_at.after(ttl));
        let lease = Lease { id: LeaseId::Entry(request.place.clone()), ttl };
        if holds {
            return self.holding(*id, lease);
        }
        self.waits(key, *id, line, at);
        let ahead = u32::try_from(at).unwrap_or(u32::MAX);
        let recheck_in = queue::recheck_in(ahead, Duration::MAX);
        Ok(Standing::Waiting { ahead: Some(ahead), turn: None, lease: Some(lease), seen: Version(0), recheck_in })
    }

    fn waits(&self, key: &Key, id: EntryId, line: &Line, at: usize) {
        let folder = self.paths.key(key);
        let blockers = line.blockers(at).into_iter().map(|name| format!("{folder}/{name}")).collect();
        let alone_ahead = at == 1 && line.entries[at].claim == Claim::Exclusive;
        self.entries.stands(id, Stands::Waits { blockers, next: alone_ahead });
    }

    fn holding(&self, id: EntryId, lease: Lease) -> Result<Standing> {
        self.entries.stands(id, Stands::Holds);
        let Some(entry) = self.entries.find(id) else { return Ok(gone()) };
        let Node::Made { ticket, .. } = entry.node else { return Ok(gone()) };
        Ok(Standing::Holding { ticket, token: entry.token(), lease })
    }

    /// Resolves when our turn has come, or our entry is gone. Each time that one of those who keep us waiting goes costs two
    /// trips: a look, and to be told of the next; none if it is our turn and nobody else was ahead.
    pub(super) async fn changed(&self, place: &Place) -> Result<Standing> {
        loop {
            let seen = self.session.attachments();
            let Some(entry) = self.entries.find(place.entry).filter(|entry| !entry.leaving) else { return Ok(gone()) };
            let Node::Made { standing, .. } = &entry.node else { return Ok(gone()) };
            let lease = Lease { id: LeaseId::Entry(place.clone()), ttl: entry.ttl };
            let Stands::Waits { blockers, next } = standing else { return self.holding(place.entry, lease) };
            let seat = match self.session.seat(false).await {
                Ok(seat) => seat,
                Err(Unattached::Ended) => return Ok(gone()),
                // Renewals go on trying to get a connection.
                Err(Unattached::Failed(_)) => {
                    self.session.attached_since(seen).await;
                    continue;
                }
            };
            let ear = self.watches.listen(blockers.clone());
            let asks: Vec<Ask> = blockers.iter().map(|path| Ask::data(path, true)).collect();
            let answers = self.session.ask(&seat, &asks).await;
            let all_there = !answers.is_empty() && answers.iter().all(Answer::is_ok);
            let mut deleted = false;
            if all_there {
                deleted = ear.heard().await;
            } else if !answers.iter().any(|answer| answer.as_ref().is_err_and(|trouble| trouble.is(code::NO_NODE))) {
                // Not that one of them is gone, but that nobody can say.
                if !seat.link.is_broken() {
                    let trouble = answers.into_iter().find_map(Answer::err).unwrap_or(Trouble::Closed);
                    return Err(Error::from(trouble).with_no_effect());
                }
                continue;
            }
            drop(ear);
            if *next && deleted && self.is_next(&seat, place) {
                return self.holding(place.entry, lease);
            }
            // What this server says now it knew when it told us.
            let folder = self.paths.key(&place.key);
            let names = match children(self.session.ask(&seat, &[Ask::children(&folder)]).await.remove(0)) {
                Ok(names) => names.unwrap_or_default(),
                Err(_) if seat.link.is_broken() => continue,
                Err(error) => return Err(error.with_no_effect()),
            };
            let line = Line::of(&names, &place.key)?;
            match line.position(place.entry) {
                None => {
                    self.entries.remove(place.entry);
                    return Ok(gone());
                }
                Some(at) if at < line.holders => return self.holding(place.entry, lease),
                Some(at) => self.waits(&place.key, place.entry, &line, at),
            }
        }
    }

    /// Whether it is our turn for certain, now that the only one ahead of us is gone. A server tells of changes in their
    /// order: had our own node gone before, we would have been told already.
    fn is_next(&self, seat: &Seat, place: &Place) -> bool {
        let is_there = self.entries.find(place.entry).is_some_and(|entry| entry.watched && !entry.leaving);
        is_there && !seat.link.is_broken()
    }

    /// Takes an entry out of its line, whosoever it is. One trip; one more for an entry of somebody else.
    pub(super) async fn leave(&self, place: &Place) -> Result<Departure> {
        let (own, _departing) = self.entries.depart(place.entry);
        let seat = match self.session.seat(own.is_none()).await {
            Ok(seat) => seat,
            Err(Unattached::Ended) => return Ok(Departure::WasGone),
            Err(Unattached::Failed(error)) => return Err(error),
        };
        match own.as_ref().map(|entry| (entry.path(), entry.holds())) {
            Some((Some(path), true)) => {
                if let Some(Entry { since, note: Note { value: Some(_), .. }, .. }) = own {
                    self.session.timer.sleep_until(since.after(TERM_MIN)).await;
                }
                self.delete(&seat, place, &path, Departure::WasHolding).await
            }
            Some((Some(path), false)) => {
                // Whether its turn had come by then, its folder tells.
                let folder = self.paths.key(&place.key);
                let asks = [Ask::sync(&folder), Ask::children(&folder), Ask::delete(&path)];
                let mut answers = self.session.ask(&seat, &asks).await;
                let (deleted, names) = (answers.pop().expect("it was asked"), answers.pop().expect("it was asked"));
                let names = children(names).unwrap_or_default().unwrap_or_default();
                let was = departure(&Line::of(&names, &place.key).unwrap_or_default(), place.entry);
                self.deleted(place, deleted, was)
            }
            Some((None, _)) | None => {
                let names = self.names(&seat, &place.key).await.map_err(Error::with_no_effect)?.unwrap_or_default();
                let line = Line::of(&names, &place.key)?;
                let Some(at) = line.position(place.entry) else {
                    self.entries.remove(place.entry);
                    return Ok(Departure::WasGone);
                };
                let path = format!("{}/{}", self.paths.key(&place.key), line.entries[at].name);
                self.delete(&seat, place, &path, departure(&line, place.entry)).await
            }
        }
    }

    async fn delete(&self, seat: &Seat, place: &Place, path: &str, was: Departure) -> Result<Departure> {
        let deleted = self.session.ask(seat, &[Ask::delete(path)]).await.remove(0);
        self.deleted(place, deleted, was)
    }

    fn deleted(&self, place: &Place, answer: Answer, was: Departure) -> Result<Departure> {
        let departure = match answer {
            Ok(_) => was,
            Err(trouble) if trouble.is(code::NO_NODE) || trouble.ends_session() => Departure::WasGone,
            Err(trouble) => return Err(trouble.into()),
        };
        self.entries.remove(place.entry);
        Ok(departure)
    }

    /// Renews every entry of the session at once: one trip, or none if there was one just now.
    pub(super) async fn renew(self: &Arc<Self>, leases: &[Lease]) -> Result<Vec<Renewal>> {
        let asked_at = self.session.now();
        let kept = match self.keep().await {
            Ok(kept) => kept,
            Err(Unattached::Ended) => return Ok(vec![Renewal::Lost; leases.len()]),
            Err(Unattached::Failed(error)) => return Err(error),
        };
        let renewal = |lease: &Lease| {
            let LeaseId::Entry(place) = &lease.id;
            let left = asked_at.until(kept);
            self.entries
                .change(place.entry, |entry| {
                    if entry.leaving || left.is_zero() {
                        return Renewal::Lost;
                    }
                    let ttl = lease.ttl.min(left);
                    entry.ttl = lease.ttl;
                    entry.until = entry.until.max(asked_at.after(ttl));
                    Renewal::Renewed { ttl, yield_asked: entry.yield_asked, waits: false }
                })
                .unwrap_or(Renewal::Lost)
        };
        Ok(leases.iter().map(renewal).collect())
    }

    /// Keeps the session, and says until when it is kept for certain. Whoever asks at the same time asks together.
    async fn keep(self: &Arc<Self>) -> std::result::Result<Moment, Unattached> {
        let keeping = {
            let mut keeping = locked(&self.keeping);
            let begun = || {
                let core = self.clone();
                let kept = async move {
                    let kept = core.keep_once().await;
                    locked(&core.keeping).take();
                    kept
                };
                kept.boxed().shared()
            };
            keeping.get_or_insert_with(begun).clone()
        };
        keeping.await
    }

    async fn keep_once(&self) -> std::result::Result<Moment, Unattached> {
        let seat = self.session.seat(false).await?;
        let confirmed = self.session.confirmed();
        // Much has been confirmed a moment ago: a client that takes locks all the time need not ask.
        if confirmed.until(self.session.now()) < seat.timeout / 4 {
            return Ok(confirmed.after(seat.timeout));
        }
        match self.session.ask(&seat, &[Ask::sync("/")]).await.remove(0) {
            Ok(_) => Ok(self.session.confirmed().after(seat.timeout)),
            Err(trouble) if trouble.ends_session() => Err(Unattached::Ended),
            Err(trouble) => Err(Unattached::Failed(trouble.into())),
        }
    }

    /// Asks whoever has that entry to let go of it. Three trips.
    pub(super) async fn ask_to_yield(&self, place: &Place) -> Result<Asked> {
        let seat = self.session.seat(true).await?;
        let names = self.names(&seat, &place.key).await.map_err(Error::with_no_effect)?.unwrap_or_default();
        let line = Line::of(&names, &place.key)?;
        let Some(at) = line.position(place.entry) else { return Ok(Asked::NotThere) };
        let path = format!("{}/{}", self.paths.key(&place.key), line.entries[at].name);
        for _ in 0..WRITE_TRIES {
            let found = self.session.ask(&seat, &[Ask::data(&path, false)]).await.remove(0);
            let (data, stat) = match found {
                Ok(body) => request::data(&body).map_err(Trouble::from)?,
                Err(trouble) if trouble.is(code::NO_NODE) => return Ok(Asked::NotThere),
                Err(trouble) => return Err(Error::from(trouble).with_no_effect()),
            };
            let written = Written::parse(&data);
            // Ours keep their note beside the wish; others only know Curator's way to put it.
            let wish =
                if written.is_foreign() { REVOKE.to_vec() } else { Written { yield_asked: true, ..written }.bytes() };
            if wish == data {
                return Ok(Asked::Told);
            }
            match self.session.ask(&seat, &[Ask::set_data(&path, &wish, stat.version)]).await.remove(0) {
                Ok(_) => return Ok(Asked::Told),
                Err(trouble) if trouble.is(code::NO_NODE) => return Ok(Asked::NotThere),
                Err(trouble) if trouble.is(code::BAD_VERSION) => {}
                Err(trouble) => return Err(trouble.into()),
            }
        }
        Err(contended())
    }

    /// Replaces the note of our entry, if it holds. One trip, if nobody else has written there.
    pub(super) async fn annotate(&self, place: &Place, note: &Note) -> Result<Annotation> {
        let Some(entry) = self.entries.find(place.entry) else { return Ok(Annotation::NotHolding) };
        let seat = match self.session.seat(false).await {
            Ok(seat) => seat,
            Err(Unattached::Ended) => return Ok(Annotation::NotHolding),
            Err(Unattached::Failed(error)) => return Err(error),
        };
        if !entry.holds() {
            let names = self.names(&seat, &place.key).await.map_err(Error::with_no_effect)?.unwrap_or_default();
            let line = Line::of(&names, &place.key)?;
            match line.position(place.entry) {
                Some(at) if at < line.holders => self.entries.stands(place.entry, Stands::Holds),
                _ => return Ok(Annotation::NotHolding),
            }
        }
        let Some(path) = entry.path() else { return Ok(Annotation::NotHolding) };
        for _ in 0..WRITE_TRIES {
            let Some(entry) = self.entries.find(place.entry) else { return Ok(Annotation::NotHolding) };
            let ttl = Some(entry.ttl.min(seat.timeout));
            let written = Written { note: note.clone(), ttl, yield_asked: entry.yield_asked };
            let ask = Ask::set_data(&path, &written.bytes(), entry.version);
            match self.session.ask(&seat, &[ask]).await.remove(0) {
                Ok(body) => {
                    let stat = request::stat(&body).map_err(Trouble::from)?;
                    self.entries.change(place.entry, |entry| {
                        entry.version = stat.version;
                        entry.note = note.clone();
                    });
                    return Ok(Annotation::Written);
                }
                Err(trouble) if trouble.is(code::NO_NODE) || trouble.ends_session() => {
                    return Ok(Annotation::NotHolding);
                }
                Err(trouble) if trouble.is(code::BAD_VERSION) => self.read_own(&seat, place.entry, &path).await?,
                Err(trouble) => return Err(trouble.into()),
            }
        }
        Err(contended())
    }

    /// Takes over what others have written beside our entry.
    async fn read_own(&self, seat: &Seat, id: EntryId, path: &str) -> Result<()> {
        let answer = self.session.ask(seat, &[Ask::data(path, false)]).await.remove(0);
        match answer {
            Ok(body) => {
                self.heed(id, &body)?;
                Ok(())
            }
            Err(trouble) if trouble.is(code::NO_NODE) => Ok(()),
            Err(trouble) => Err(Error::from(trouble).with_no_effect()),
        }
    }

    /// What stands beside our entry, as a server said.
    pub(super) fn heed(&self, id: EntryId, body: &[u8]) -> Result<()> {
        let (data, stat) = request::data(body).map_err(Trouble::from)?;
        let written = Written::parse(&data);
        let is_new = self.entries.change(id, |entry| {
            entry.version = stat.version;
            written.yield_asked && !std::mem::replace(&mut entry.yield_asked, true)
        });
        if is_new == Some(true) {
            self.notices.post(Notice::YieldAsked(id));
        }
        Ok(())
    }

    /// Our entry is gone, and not because we took it out.
    pub(super) fn lost(&self, id: EntryId) {
        if self.entries.remove(id).is_some_and(|entry| !entry.leaving) {
            self.notices.post(Notice::Gone(id));
        }
    }
}

/// What an entry is when it leaves that line.
fn departure(line: &Line, id: EntryId) -> Departure {
    match line.position(id) {
        Some(at) if at < line.holders => Departure::WasHolding,
        _ => Departure::WasWaiting,
    }
}

/// The names in a folder, or `None` if there is none.
/// A line as its folder's list shows it: an error if nobody can say, and one in it if it is no line.
fn listed(names: Answer, key: &Key) -> Result<Result<Arc<Line>>> {
    let names = request::children(&names?).map_err(Trouble::from)?;
    Ok(Line::of(&names, key).map(Arc::new))
}

pub(super) fn children(answer: Answer) -> Result<Option<Vec<String>>> {
    match answer {
        Ok(body) => Ok(Some(request::children(&body).map_err(Trouble::from)?)),
        Err(trouble) if trouble.is(code::NO_NODE) => Ok(None),
        Err(trouble) => Err(trouble.into()),
    }
}

/// The standing of an entry that was in line and is no longer.
fn gone() -> Standing {
    Standing::Refused { held_by: Vec::new(), recheck_in: Duration::ZERO }
}

fn contended() -> Error {
    Error::new(ErrorKind::Unreachable, "others keep changing the entry")
}

/// A node's number among all changes, as a ticket.
pub(super) fn ticket(stat: &Stat) -> Ticket {
    Ticket(stat.czxid.unsigned_abs())
}
