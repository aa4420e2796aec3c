//! The trait that a store implements, and the words it speaks.
//!
//! A backend tries once. It does not retry, sleep, time out, or judge a lease by the client's clock: all of that is
//! written once, above it, in [`acquire`](crate) and in the lease keeper. It answers what its server says, or an
//! [`Error`] whose fate is honest.

#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres"))]
mod crowds;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "_network")]
mod io;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "redis"))]
mod near;
mod notices;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod socket;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "_network")]
mod tls;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis"))]
mod to_its_end;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;

use crate::claim::{Capacity, Claim};
use crate::error::{Error, Result};
use crate::fence::{FencingToken, Ticket};
use crate::key::{Escaped, Key, Namespace};

/// A store that keeps lines of entries. Object-safe: a call is a trip to a server, beside which a box is free.
///
/// Futures may be dropped at any point, and must then have had either no effect or the whole effect. Displaying a
/// backend names the store without its secrets.
pub trait Backend: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// Joins the line, or looks up our place in it and renews its lease. Repeatable until it is
    /// answered with a grant, because the caller chose the entry's id; one whose grant was never heard of may begin anew. An
    /// entry that `returns` and is gone is refused, never made anew: a look must not undo a departure.
    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>>;

    /// Resolves when our standing may differ from the one `seen`, at once if it already does. May resolve for nothing
    /// (`None`: look again). A push that says "you hold" returns that standing, so that a hand-over needs no second trip;
    /// its lease counts from our own last renewal. What it misses is bounded by `recheck_in`.
    ///
    /// A store without lines is asked by those whom it has refused, and resolves with `None` when the key may be free. One
    /// that cannot tell never resolves. Whoever is refused tries again as another entry.
    fn changed<'a>(&'a self, place: &'a Place, seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>>;

    /// Gives the place up, whether held or awaited: release, cancel and evict are the same act. Repeatable.
    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>>;

    /// Extends many leases in one trip; one answer for each, in order. Never brings a lease back that had ended.
    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>>;

    /// Asks whoever has that entry to let go of it. The store keeps the wish beside the entry and tells the client that
    /// has it, by [`notices`](Self::notices) at once where it can, with the next renewal at the latest.
    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>>;

    /// What the store has to say of entries of this client that nobody asked about. A stream that says nothing is fine:
    /// renewals tell the same, later. It is followed from when the client starts until it ends.
    fn notices(&self) -> BoxStream<'static, Notice>;

    /// What a child process has to inherit for this client to count as alive for as long as the child lives, even if we
    /// die; `None` where only the lease counts. It is inheritable, so whoever starts a child meanwhile passes it on too.
    fn liveness(&self) -> Option<OwnedFd>;

    /// Replaces the value beside our entry if we still hold it. Elections proclaim through this.
    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>>;

    /// Holders and waiters as the server sees them, page by page, in the order of their keys.
    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>>;

    /// The holders of one key: first as they are, then every time they or their notes change. Where the server tells of
    /// every change, so does the stream; it may repeat a state, and it ends with an error when it can no longer follow.
    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>>;

    /// Looks at the store itself: whether it is set up so that locks on it can be trusted.
    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>>;
}

/// What a store can do. A claim that it cannot honour is refused before anything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Turns follow arrival, and a waiter keeps a place in line.
    pub queueing: bool,
    /// Shared claims: read locks.
    pub shared: bool,
    /// Counted claims: semaphores.
    pub counted: bool,
    /// Notes beside entries that can be changed while held: elections.
    pub notes: bool,
    /// All entries of a client live and die with one session, which is as long as the client asked for first. Where this is
    /// false each entry has a lease of its own, of the length that was asked for it.
    pub sessions: bool,
    /// Whoever waits, holds or follows is told what concerns it at once, and of every change. Otherwise it finds out by
    /// looking: the first in line soon, the others later, and a state that did not last may be missed.
    pub pushes: bool,
    /// Whoever joins a line is told its [`Turn`], and a renewal tells whether its entry holds or waits. Then tasks of one client
    /// pass a key on among themselves while they stand in line one behind the other.
    pub relays: bool,
}

impl Capabilities {
    /// Everything.
    pub const fn all() -> Self {
        Self { queueing: true, shared: true, counted: true, notes: true, sessions: false, pushes: true, relays: true }
    }

    /// Nothing but exclusive claims without an order.
    pub const fn exclusive_only() -> Self {
        Self {
            queueing: false,
            shared: false,
            counted: false,
            notes: false,
            sessions: false,
            pushes: true,
            relays: false,
        }
    }
}

/// Which line, and which entry in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The key whose line it is.
    pub key: Key,
    /// The entry in it.
    pub entry: EntryId,
}

/// The name of one entry: 128 random bits, new for every attempt. Who knows it can take the entry out of its line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u128);

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for EntryId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

/// What a store's server frees by itself when it is not renewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseId {
    /// The lease of a single entry.
    Entry(Place),
}

/// A lease and its length: in a [`Standing`] what the server vouches for, counted from when the request was sent; in
/// [`Backend::renew`] what is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which lease.
    pub id: LeaseId,
    /// How long it lives unless renewed.
    pub ttl: Duration,
}

/// How long an entry's lease lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// While it holds.
    pub holding: Duration,
    /// While it waits. Shorter, so that a crashed waiter does not stall the line for long.
    pub waiting: Duration,
}

/// A wish to hold a key.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where.
    pub place: Place,
    /// How much of the key.
    pub claim: Claim,
    /// What to do if it is not free.
    pub patience: Patience,
    /// For how long.
    pub terms: Terms,
    /// Who asks.
    pub note: Note,
    /// Whether it has been in line before. Then it is looked up, and not made if it is gone.
    pub returns: bool,
}

/// What to do when a key is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Leave nothing behind and say who holds it.
    Refuse,
    /// Take a place in line.
    Queue,
}

/// Where a request stands.
#[derive(Clone, Debug)]
pub enum Standing {
    /// It is its turn.
    Holding {
        /// The entry's number in line.
        ticket: Ticket,
        /// The fencing token; always there if the claim is exclusive.
        token: Option<FencingToken>,
        /// What must be renewed to keep it.
        lease: Lease,
    },
    /// It is in line.
    Waiting {
        /// How many entries are ahead, if the store can say so. Of more than a hundred it may count some that have left.
        ahead: Option<u32>,
        /// Whom it is behind, if the store says so to whoever joins ([`Capabilities::relays`]).
        turn: Option<Turn>,
        /// What must be renewed to keep the place, if the place has a lease.
        lease: Option<Lease>,
        /// What [`Backend::changed`] compares with.
        seen: Version,
        /// How soon to look again even if nothing is heard.
        recheck_in: Duration,
    },
    /// It is not in line: it asked not to be, this store has no lines, or it was taken out of it.
    Refused {
        /// Who holds the key now.
        held_by: Vec<EntryView>,
        /// How soon another try may fare better.
        recheck_in: Duration,
    },
}

/// An entry's place in the order of its line. Tickets only grow, so nobody comes in between any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The entry's number in line, which is its token if its claim is exclusive.
    pub ticket: Ticket,
    /// A number that is lower than that. No entry of the line has one in between.
    pub behind: Ticket,
}

/// A state of a line, told apart from later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

/// What an entry was when it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It held the key.
    WasHolding,
    /// It was in line.
    WasWaiting,
    /// It was not there any more, or never.
    WasGone,
}

/// What became of one lease in [`Backend::renew`].
#[derive(Clone, Debug)]
pub enum Renewal {
    /// It lives for `ttl`, counted from when the renewal was sent.
    Renewed {
        /// The new length.
        ttl: Duration,
        /// Whether its holder has been asked to let go.
        yield_asked: bool,
        /// Whether it is still in line. Only a store that [relays](Capabilities::relays) has to know.
        waits: bool,
    },
    /// The server says that there is no such lease any more.
    Lost,
    /// Nobody can say. Unknown is not lost.
    Unknown(Error),
}

/// What became of a wish that somebody let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The entry is there, and whoever has it will learn of the wish.
    Told,
    /// There is no such entry.
    NotThere,
}

/// What a store says of an entry by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// It is no longer in its line.
    Gone(EntryId),
    /// Its holder has been asked to let go.
    YieldAsked(EntryId),
    /// The store may have forgotten things: it was restarted, or another server took over. Every lease is in doubt.
    Shaken,
}

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// It is the entry's note now.
    Written,
    /// The entry does not hold the key; nothing was written.
    NotHolding,
}

/// The longest label and the longest election value, in bytes: room for an address and a trace id, no room for data.
pub const NOTE_BYTES_MAX: usize = 1024;

/// What an entry says about whoever made it. Cheap to copy: its texts are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Who: the label given to the locks, or the name of an [`Owner`](crate::Owner).
    pub owner: Arc<str>,
    /// The machine.
    pub host: Arc<str>,
    /// The process on that machine.
    pub pid: u32,
    /// What a candidate stands for, in an election.
    pub value: Option<Arc<[u8]>>,
}

/// `worker-7 (pid 4711 on build-3)`, escaped for a reader.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.owner.is_empty() {
            write!(f, "{} ", Escaped(self.owner.as_bytes()))?;
        }
        write!(f, "(pid {} on {})", self.pid, Escaped(self.host.as_bytes()))
    }
}

/// Which keys to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Keys of this namespace only.
    pub namespace: Namespace,
    /// This key only, if given.
    pub key: Option<Key>,
    /// Only keys behind this one, where the page before ended.
    pub after: Option<Key>,
    /// How many keys at most.
    pub keys_max: usize,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next page begins, if there may be one.
    pub next: Option<Key>,
}

/// One key as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The key.
    pub key: Key,
    /// What it has to give; `None` if nobody is in its line.
    pub capacity: Option<Capacity>,
    /// Who holds it, in ticket order.
    pub holders: Vec<EntryView>,
    /// Who waits, in order; `None` if the store cannot tell.
    pub waiters: Option<Vec<EntryView>>,
}

/// One entry as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// Where it stands, which is also what evicting it names.
    pub place: Place,
    /// What it claims.
    pub claim: Claim,
    /// Its number in line.
    pub ticket: Ticket,
    /// Its fencing token, if it holds exclusively.
    pub token: Option<FencingToken>,
    /// Who made it.
    pub note: Note,
    /// How long it has been in line, holding or not.
    pub age: Duration,
    /// How long its lease lives unless renewed.
    pub lease_left: Duration,
    /// Whether it has been asked to let go.
    pub yield_asked: bool,
    /// Whether a program of another kind made it. Then only its owner, as the store has it, and its lease are known.
    pub foreign: bool,
    /// On how many servers it is, where a majority decides; `None` on other stores.
    pub spread: Option<Spread>,
}

/// How many of several servers have an entry. What is beyond a majority is slack: so many may fail or forget before the
/// entry is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// How many have it.
    pub on: u32,
    /// How many there are, whether they answered or not.
    pub of: u32,
}

/// `on 4 of 5 servers`
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on {} of {} servers", self.on, self.of)
    }
}

/// What a look at a store came to, in one respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a word or two: `eviction`, `role`.
    pub check: &'static str,
    /// Whether it is as it should be.
    pub verdict: Verdict,
    /// What was found.
    pub finding: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// How much a [`Finding`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Verdict {
    /// It is as it should be.
    Fine,
    /// Locks work, with a risk that their user should know of.
    Warning,
    /// Locks cannot be trusted, or not be had.
    Fault,
}

impl Finding {
    /// All is well.
    pub fn fine(check: &'static str, finding: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fine, finding: finding.into(), advice: None }
    }

    /// There is a risk.
    pub fn warning(check: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, finding: finding.into(), advice: Some(advice.into()) }
    }

    /// The same, of one server among several.
    #[must_use]
    pub fn of(mut self, server: impl fmt::Display) -> Self {
        self.finding = format!("{server}: {}", self.finding);
        self
    }

    /// It cannot stay so.
    pub fn fault(check: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fault, finding: finding.into(), advice: Some(advice.into()) }
    }
}

/// `role: it is a replica, which cannot be written to: name its master`
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.finding)?;
        match &self.advice {
            Some(advice) => write!(f, ": {advice}"),
            None => Ok(()),
        }
    }
}
