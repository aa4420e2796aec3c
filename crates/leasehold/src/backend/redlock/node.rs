//! What one server of a quorum is asked, and what it answers. A real one is a Redis server behind a connection; a simulated
//! one restates the scripts.
//!
//! Public for the crates that test this one, and hidden: it is no promise.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;

use crate::backend::redis::command::Command;
use crate::backend::redlock::wording::{Brief, Giving};
use crate::backend::{EntryId, Finding, Note, Place};
use crate::error::Result;
use crate::key::{Key, Namespace};

/// One server of a quorum. A request is carried out entirely or not at all, and at most once; but a lock that is asked for in few
/// words may be set without being granted, until that is answered, and a fence raised by somebody who does not get the lock.
///
/// Every request comes to an answer or an error in bounded time, which is for the node to see to.
///
/// Dropping the future of a request does not take the request back. An error of known fate says that it was not carried
/// out; any other error leaves that open.
pub trait Node: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// One request, one answer.
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<Reply>>;

    /// Hears that channel from soon on; [`Push::Listening`] says from when.
    fn listen(&self, channel: &str);

    /// Stops hearing it.
    fn unlisten(&self, channel: &str);

    /// What the server tells by itself. Followed once, for as long as the store lives.
    fn pushes(&self) -> BoxStream<'static, Push>;
}

/// A life of a server's memory. One that has none has forgotten what it knew, and grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// What a server is asked.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Lock the key for an owner if it is free: [`Reply::Granted`], [`Reply::Busy`], [`Reply::NotReady`],
    /// [`Reply::TooLong`], [`Reply::Barred`], [`Reply::InTheWay`]. One that has it already is granted it again, and its
    /// lease stays as it is.
    Grant(Arc<Grant>),
    /// Raise the fence to a token, if it is lower, the epoch is still that one and the lock is still this owner's:
    /// [`Reply::Done`] or [`Reply::NotDone`].
    Commit {
        /// Whose lock.
        place: Place,
        /// The token.
        token: u64,
        /// The epoch in which the lock was granted.
        epoch: Epoch,
    },
    /// Extend leases that have not ended, and never bring one back: [`Reply::Extended`], one answer for each.
    Extend(Arc<[Extension]>),
    /// Give a lock up: [`Reply::Done`], or [`Reply::NotDone`] if it was not there.
    Release(Arc<Release>),
    /// Ask an owner to let go, which is told `y` and its id on its channel: [`Reply::Done`], or [`Reply::NotDone`] if it is not there.
    Wish(Place),
    /// What the server remembers: [`Reply::Memory`]. One that remembers nothing notes `mark`, unless it has a mark already.
    Survey {
        /// Any number that nobody else uses.
        mark: u64,
    },
    /// Let a server that remembers nothing take part: [`Reply::Done`], or [`Reply::NotDone`] if it remembers something, or
    /// has another mark by now.
    Admit {
        /// The mark that it had when the wait began.
        mark: u64,
        /// No fence on it is lower from now on.
        floor: u64,
        /// The longest lease that it grants.
        longest: Duration,
        /// Its new epoch.
        epoch: Epoch,
    },
    /// Every key of a namespace that may be locked: [`Reply::Keys`].
    Keys(Namespace),
    /// Who holds these keys: [`Reply::Seen`], one answer for each.
    Inspect(Arc<[Key]>),
    /// Whether the server is set up so that locks can be trusted: [`Reply::Health`].
    Health,
}

/// A lock that is asked for.
#[derive(Debug)]
pub struct Grant {
    /// For whom.
    pub place: Place,
    /// Beside others, or alone.
    pub shared: bool,
    /// For how long.
    pub ttl: Duration,
    /// What the fence is raised to if it is lower. 0 for a shared lock, which has no token.
    pub guess: u64,
    /// Where its owner is told of evictions and wishes.
    pub channel: Arc<str>,
    /// Who asks.
    pub note: Note,
    /// Whether the server is asked in few words first. In these it refuses nobody whom it should bar, raises the fence even if
    /// the lock is somebody else's, and says of the fence before only that it was lower than the guess.
    pub briefly: bool,
    /// How servers are told.
    pub spelled: Spelled,
}

/// A lock that is given up.
#[derive(Debug)]
pub struct Release {
    /// Whose lock.
    pub place: Place,
    /// Refuse that owner for so long, because a request to grant it the lock may still be on its way.
    pub bar: Option<Duration>,
    /// Whether it was held, so that those who wait are told on [`freed_channel`]. What an attempt that failed gives back is no
    /// news.
    pub held: bool,
    /// The channel of whoever asks. An owner of another channel is told `x` and its id there.
    pub by: Arc<str>,
    /// Whether whoever asks has held it alone, and bars nothing.
    pub alone: bool,
    /// Whether nothing was changed of it since it was set.
    pub untouched: bool,
    /// How servers are told.
    pub spelled: Spelled,
}

/// The words of a request, which are the same for all servers and are put together once: at length, or in few.
#[derive(Default)]
pub struct Spelled {
    pub(super) at_length: OnceLock<Command>,
    pub(super) brief: OnceLock<Brief>,
    pub(super) giving: OnceLock<Giving>,
}

impl fmt::Debug for Spelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spelled")
    }
}

/// A lease to be extended.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Whose.
    pub place: Place,
    /// How long it is to live from now on.
    pub ttl: Duration,
}

/// What a server answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The lock is its owner's.
    Granted {
        /// The fence before it was raised to the guess was no higher.
        prior: u64,
        /// The epoch in which that was.
        epoch: Epoch,
    },
    /// Somebody else has it.
    Busy(Box<Sight>),
    /// The server has forgotten what it knew, and grants nothing until it is admitted.
    NotReady,
    /// The server does not grant leases of this length.
    TooLong {
        /// The longest that it grants.
        longest: Duration,
    },
    /// The owner has given the lock up before the request for it arrived.
    Barred,
    /// Something is stored at the key that is no lock: a value of that type.
    InTheWay(String),
    /// It is done.
    Done,
    /// It is not done, because it does not apply.
    NotDone,
    /// One for each lease.
    Extended(Vec<Extended>),
    /// What the server remembers.
    Memory(Memory),
    /// Keys in no particular order.
    Keys(Vec<Key>),
    /// One for each key; of those that are free, with nobody in it.
    Seen(Vec<Sight>),
    /// What was found.
    Health(Vec<Finding>),
}

/// What became of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// It lives for as long as was asked.
    Yes {
        /// Whether its owner has been asked to let go.
        yield_asked: bool,
    },
    /// It is not there.
    No,
}

/// What a server remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It takes part.
    Ready {
        /// Since this epoch.
        epoch: Epoch,
        /// No fence on it is higher.
        highest: u64,
        /// The longest lease that it grants.
        longest: Duration,
        /// Tells this server from others.
        server: String,
    },
    /// Nothing.
    Blank {
        /// The mark by which it is known whether it forgot once more.
        mark: u64,
        /// Tells this server from others.
        server: String,
    },
}

/// One key as one server sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Who has it there.
    pub entries: Vec<SeenEntry>,
    /// When the lock is free there at the latest, unless it is extended; `None` if it is free, or never.
    pub free_in: Option<Duration>,
}

/// One who has a key, as one server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEntry {
    /// Who. Of a foreign one, a number made of its mark.
    pub entry: EntryId,
    /// Beside others, or alone.
    pub shared: bool,
    /// Its token, as far as this server knows.
    pub token: u64,
    /// Who it says it is.
    pub note: Note,
    /// For how long it has had it.
    pub age: Duration,
    /// For how long it has it.
    pub lease_left: Duration,
    /// Whether it has been asked to let go.
    pub yield_asked: bool,
    /// Whether a program of another kind made it.
    pub foreign: bool,
}

/// What a server tells by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// A message on a channel.
    Message {
        /// Which.
        channel: String,
        /// What.
        text: Vec<u8>,
    },
    /// That channel is heard from now on.
    Listening(String),
    /// The server may have forgotten things: it was restarted.
    Shaken,
}

/// The channel on which a server tells that a key was given up. The message is who did.
pub fn freed_channel(key: &Key) -> String {
    format!("leasehold:freed:{}:{}", key.namespace().as_str(), key.encoded(b""))
}
