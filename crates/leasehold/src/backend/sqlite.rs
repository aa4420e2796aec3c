//! The store for all processes of one machine: a file, and nothing to install.

mod file;
mod lines;
mod pulse;
mod schema;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use rusqlite::Transaction;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::backend::notices::NoticeBoard;
use crate::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, EntryId, Finding, KeyView, Lease, LeaseId, Note, Notice, Page,
    Patience, Place, Query, Renewal, Request, Standing, Version,
};
use crate::claim::Claim;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Escaped, Key};
use crate::sync::{Mutex, locked};

use file::LockFile;
use lines::{Effects, Lines};
use pulse::{News, Presence, Room};

/// Lines kept in an SQLite file that the processes of one machine share.
///
/// Leases are counted on the machine's boot clock, by whoever looks. A holder whose process died is noticed at once,
/// because the kernel closes a pipe that it held open; one that was stopped, when its lease ends.
pub struct Sqlite {
    shared: Arc<Shared>,
    /// Reads what others tell us.
    listening: AbortHandle,
}

struct Shared {
    path: PathBuf,
    client: String,
    clock: Clock,
    file: LockFile,
    room: Room,
    /// Entries of ours that are or may be in line.
    waiters: Mutex<HashMap<EntryId, Waiter>>,
    /// Other clients whose end we want to hear of, because they hold what somebody here waits for or follows.
    peers: Mutex<HashSet<String>>,
    /// Keys that we follow, and how often.
    followed: Mutex<HashMap<Key, usize>>,
    /// Rings whenever a followed key has changed.
    changed: Notify,
    notices: NoticeBoard,
    runtime: Handle,
    presence: Presence,
}

struct Waiter {
    claim: Claim,
    told: Option<News>,
    waker: Option<Waker>,
}

impl Sqlite {
    /// Opens the file, and makes it if it is not there, private to its owner. Must be called on a tokio runtime, which
    /// then listens for the other processes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = std::path::absolute(path.as_ref())
            .map_err(|cause| Error::option("path", "cannot be made absolute").caused_by(cause))?;
        let store: Arc<str> = shown(&path).into();
        Self::open_at(path).map_err(|error| error.on(&store))
    }

    fn open_at(path: PathBuf) -> Result<Self> {
        let file = LockFile::open(&path)?;
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the operating system hands out random bytes");
        let client = format!("{:032x}", u128::from_ne_bytes(id));
        let no_pipes = |cause: io::Error| {
            let why = format!("cannot make pipes beside {}", named(&path));
            Error::new(ErrorKind::Unusable, why).caused_by(cause)
        };
        let room = Room::beside(&path).map_err(no_pipes)?;
        let presence = file.inside(|| room.join(&client)).map_err(no_pipes)?;
        let news = presence.news().and_then(pipe::Receiver::from_file_unchecked).map_err(no_pipes)?;
        let shared = Arc::new(Shared {
            path,
            client,
            clock: Clock::boot(),
            file,
            room,
            waiters: Mutex::default(),
            peers: Mutex::default(),
            followed: Mutex::default(),
            changed: Notify::new(),
            notices: NoticeBoard::new(),
            runtime: Handle::current(),
            presence,
        });
        let listening = tokio::spawn(listen(shared.clone(), news)).abort_handle();
        Ok(Self { shared, listening })
    }
}

impl Sqlite {
    /// Opens the file that a URL names behind `sqlite:`; the user's own if it names none.
    pub(crate) fn open_named(path: &str) -> Result<Self> {
        match path.strip_prefix("//").unwrap_or(path) {
            "" => Self::open(own_file()?),
            path => Self::open(path),
        }
    }
}

/// `$XDG_STATE_HOME/leasehold/leasehold.db`, by the rules for such files.
fn own_file() -> Result<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        Error::option("url", "names no file, and neither XDG_STATE_HOME nor HOME says where one could be")
    })?;
    Ok(state.join("leasehold/leasehold.db"))
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(shared: Arc<Shared>, news: pipe::Receiver) {
    while news.readable().await.is_ok() {
        for news in News::read_all(|records| news.try_read(records)) {
            shared.hear(news);
        }
    }
}

/// Waits for a client's end, and takes out what it has left in the lines. Does not keep us alive meanwhile.
async fn outlive(room: Room, shared: Weak<Shared>, peer: String) {
    let ended = async || -> io::Result<()> {
        let alive = pipe::Receiver::from_file_unchecked(room.open_alive(&peer)?)?;
        // Nobody writes into it, so the only thing that can ever be read is its end. A client that ended before we
        // opened its pipe is never heard of there: its lock tells.
        while room.is_alive(&peer) {
            alive.ready(Interest::READABLE).await?;
        }
        Ok(())
    };
    let _ = ended().await;
    let Some(shared) = shared.upgrade() else { return };
    locked(&shared.peers).remove(&peer);
    if !room.is_alive(&peer) {
        let gone = peer.clone();
        if shared.write(move |lines| lines.reap(&gone)).await.is_ok() {
            room.sweep(&peer);
        }
    }
    // Somebody else is ahead of them now.
    shared.let_all_look();
}

impl Shared {
    /// One write transaction on the lines, and then whatever follows from it. Done to its end once begun.
    async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Lines<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (working, following) = (self.clone(), self.clone());
        let work = move |tx: &Transaction<'_>| {
            let is_alive = |client: &str| client == working.client || working.room.is_alive(client);
            let mut lines = Lines::begin(tx, working.clock.now(), &is_alive)?;
            let output = work(&mut lines)?;
            let sync = lines.effects.sync;
            Ok(((output, lines.effects), sync))
        };
        let (output, _) = self.file.write(work, move |(_, effects)| following.follow_up(effects)).await?;
        Ok(output)
    }

    fn follow_up(&self, effects: &Effects) {
        for (client, news) in &effects.told {
            if *client == self.client { self.hear(*news) } else { self.room.tell(client, *news) }
        }
    }

    fn hear(&self, news: News) {
        let entry = match news {
            News::Changed => return self.changed.notify_waiters(),
            News::Granted(entry, _) => entry,
            News::Gone(entry) => {
                self.notices.post(Notice::Gone(entry));
                entry
            }
            News::YieldAsked(entry) => {
                self.notices.post(Notice::YieldAsked(entry));
                return;
            }
        };
        if let Some(waiter) = locked(&self.waiters).get_mut(&entry) {
            waiter.told = Some(news);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    fn outlive(self: &Arc<Self>, peers: Vec<String>) {
        for peer in peers {
            if peer != self.client && locked(&self.peers).insert(peer.clone()) {
                self.runtime.spawn(outlive(self.room.clone(), Arc::downgrade(self), peer));
            }
        }
    }

    /// Has every waiter of ours look at its line again.
    fn let_all_look(&self) {
        for waiter in locked(&self.waiters).values_mut() {
            waiter.told.get_or_insert(News::Changed);
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    fn poll_changed(&self, place: &Place, waker: &Waker) -> Poll<Option<Standing>> {
        let mut waiters = locked(&self.waiters);
        let Some(waiter) = waiters.get_mut(&place.entry) else { return Poll::Ready(None) };
        match waiter.told.take() {
            Some(News::Granted(_, ticket)) => {
                // Its lease counts from our own last renewal, which the caller knows better than the file.
                let lease = Lease { id: LeaseId::Entry(place.clone()), ttl: Duration::ZERO };
                let token = lines::token(waiter.claim, ticket);
                Poll::Ready(Some(Standing::Holding { ticket, token, lease }))
            }
            Some(News::Gone(_)) => Poll::Ready(Some(lines::gone())),
            Some(News::Changed | News::YieldAsked(_)) => Poll::Ready(None),
            None => {
                waiter.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

impl Backend for Sqlite {
    fn capabilities(&self) -> Capabilities {
        Capabilities { relays: false, ..Capabilities::all() }
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        Box::pin(async {
            let (shared, entry) = (&self.shared, request.place.entry);
            if request.patience == Patience::Queue {
                // Before anybody can know of the entry, so that no news of it is missed.
                let fresh = || Waiter { claim: request.claim, told: None, waker: None };
                locked(&shared.waiters).entry(entry).or_insert_with(fresh);
            }
            let (request, client) = (request.clone(), shared.client.clone());
            let entered = shared.write(move |lines| lines.enter(&request, &client)).await;
            if !matches!(entered, Ok((Standing::Waiting { .. }, _))) {
                locked(&shared.waiters).remove(&entry);
            }
            let (standing, holders) = entered?;
            shared.outlive(holders);
            Ok(standing)
        })
    }

    fn changed<'a>(&'a self, place: &'a Place, _seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(poll_fn(|cx| self.shared.poll_changed(place, cx.waker()).map(Ok)))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        Box::pin(async {
            locked(&self.shared.waiters).remove(&place.entry);
            let (place, client) = (place.clone(), self.shared.client.clone());
            self.shared.write(move |lines| lines.leave(&place, &client)).await
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(async {
            let leases = leases.to_vec();
            self.shared.write(move |lines| lines.renew(&leases)).await
        })
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        Box::pin(async {
            let place = place.clone();
            self.shared.write(move |lines| lines.ask_to_yield(&place)).await
        })
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.shared.notices.follow()
    }

    fn liveness(&self) -> Option<OwnedFd> {
        self.shared.presence.lend()
    }

    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        Box::pin(async {
            let (place, note) = (place.clone(), note.clone());
            self.shared.write(move |lines| lines.annotate(&place, &note)).await
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        Box::pin(async {
            let query = query.clone();
            self.shared.write(move |lines| lines.inspect(&query)).await
        })
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let follower = Follower { shared: self.shared.clone(), key: key.clone(), seen: None, ready: VecDeque::new() };
        *locked(&self.shared.followed).entry(key.clone()).or_default() += 1;
        Box::pin(stream::unfold(Some(follower), async |follower| {
            let mut follower = follower?;
            match follower.next().await {
                Ok(view) => Some((Ok(view), Some(follower))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    /// A file that is open has passed every check that the store itself can make.
    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Reads the states of one key, one after the other. Dropping it stops following.
struct Follower {
    shared: Arc<Shared>,
    key: Key,
    /// The last version that was read.
    seen: Option<i64>,
    ready: VecDeque<KeyView>,
}

impl Follower {
    async fn next(&mut self) -> Result<KeyView> {
        loop {
            if let Some(view) = self.ready.pop_front() {
                return Ok(view);
            }
            let shared = self.shared.clone();
            let (key, client) = (self.key.clone(), shared.client.clone());
            let Some(seen) = self.seen else {
                let follow = move |lines: &mut Lines<'_>| Ok((lines.follow(&key, &client)?, lines.holding(&key)?));
                let ((view, seen), holders) = shared.write(follow).await?;
                self.seen = Some(seen);
                shared.outlive(holders);
                return Ok(view);
            };
            let changed = shared.changed.notified();
            let look = move |lines: &mut Lines<'_>| Ok((lines.sightings(&key, seen)?, lines.holding(&key)?));
            let ((views, seen), holders) = shared.write(look).await?;
            self.seen = Some(seen);
            // If nobody waits for the key, nobody else would notice that its holder died.
            shared.outlive(holders);
            self.ready.extend(views);
            if self.ready.is_empty() {
                changed.await;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut followed = locked(&self.shared.followed);
        let Some(count) = followed.get_mut(&self.key) else { return };
        *count -= 1;
        if *count == 0 {
            followed.remove(&self.key);
            let (shared, key, client) = (self.shared.clone(), self.key.clone(), self.shared.client.clone());
            let still = self.shared.clone();
            self.shared.runtime.spawn(async move {
                // Somebody here may have begun to follow it again meanwhile.
                let unfollow = move |lines: &mut Lines<'_>| match locked(&still.followed).contains_key(&key) {
                    true => Ok(()),
                    false => lines.unfollow(&key, &client),
                };
                let _ = shared.write(unfollow).await;
            });
        }
    }
}

impl fmt::Display for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.shared.path))
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.shared.path).field("client", &self.shared.client).finish()
    }
}

fn shown(path: &Path) -> String {
    format!("sqlite:{}", named(path))
}

/// A path in a message: it may hold whatever could fool a terminal.
fn named(path: &Path) -> Escaped<'_> {
    Escaped(path.as_os_str().as_encoded_bytes())
}

fn protocol(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, why)
}

/// What went wrong with the file, in words that say what to do.
#[expect(clippy::needless_pass_by_value, reason = "it is handed to `map_err` everywhere")]
fn fault(error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let (kind, why) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unreachable, "another process keeps the file busy")
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::Unusable, "the disk is full: make room on it"),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            (ErrorKind::Unusable, "the file or its folder cannot be written: mind its owner, its mode and its disk")
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            (ErrorKind::Unusable, "the file is damaged or no SQLite file: move it away, and a new one is made")
        }
        Some(ErrorCode::SystemIoFailure) => (ErrorKind::Unusable, "the disk failed to read or write the file"),
        _ => (ErrorKind::Protocol, "the file answered something unexpected"),
    };
    // Its text alone: as a chain it would say the same twice. It may name the file.
    Error::new(kind, why).caused_by(io::Error::other(Escaped(error.to_string().as_bytes()).to_string()))
}
