//! Distributed locks that know when they are lost.
//!
//! Programs on many machines take one lock on a store that they share. Whoever holds it knows until when it may believe
//! so, and carries a number by which the protected resource can refuse whoever comes too late.
//!
//! ```
//! # pollster::block_on(async {
//! # struct Ledger(leasehold::fence::Gate);
//! # impl Ledger {
//! #     async fn close_month(&self, token: leasehold::FencingToken) -> leasehold::Result<()> { self.0.admit(token) }
//! # }
//! # let ledger = Ledger(leasehold::fence::Gate::new());
//! let locks = leasehold::connect("memory:").await?;
//! let mutex = locks.mutex("billing/close")?;              // the name is checked here, once
//! let guard = mutex.lock().await?;                        // waits its turn
//! guard.run(ledger.close_month(guard.token())).await??;   // stopped if the lock is lost on the way
//! guard.release().await?;                                 // an error if it was lost after all
//! # Ok::<(), leasehold::Error>(()) }).unwrap();
//! ```
//!
//! # Read this first
//!
//! **No lock can keep a paused process from acting.** Between asking "is it still mine?" and the write that follows, a
//! process may be stopped for any time and cannot notice. No two guards *believe* in one exclusive lock at the same
//! time as long as the *rates* of the holder's and the store's clocks differ by less than one percent, whatever the
//! clocks show, and as long as the store does not lose what it was told. Where a late write would do harm, hand the
//! [fencing token](FencingToken) to the resource and let it refuse a lower one than it has seen: that helps against any
//! pause and needs no clock.
//!
//! # A lock is a lease
//!
//! The store grants a lock for a time, the TTL. While its holder lives, the lease is renewed every third of that, by a
//! thread of the library's own that no busy or blocked runtime can starve. When the holder dies, the lease runs out and
//! the next in line gets its turn.
//!
//! A guard *believes* in its lock until a deadline: the moment before the last confirmed request was sent, plus the
//! TTL, less one percent and two milliseconds. So it stops believing before the store forgets. Every question is
//! answered from the clock at that moment, never from a flag set earlier:
//!
//! | ask | answer |
//! |---|---|
//! | [`check`](Held::check) | `Ok`, or an error of kind [`Lost`](ErrorKind::Lost) |
//! | [`remaining`](Held::remaining) | how long the belief lasts without another renewal |
//! | [`state`](Held::state) | a [`State`]: held, suspect (a renewal did not come through), or lost, which is final |
//! | [`lost`](Held::lost) | a future that resolves when it is lost, without any answer from the store |
//! | [`run`](Held::run) | what your work comes to, unless the lock is lost first: then the work is dropped |
//!
//! Time is counted on a clock that nobody can set: on Linux the one since boot, which goes on while a machine is
//! suspended.
//!
//! # The token and the gate
//!
//! Every exclusive grant has a [token](Guard::token), larger than that of every grant of the same key before it. The
//! resource keeps the highest one it has seen and refuses lower ones; [`fence::Gate`] does so in memory and
//! [`fence::FenceGate`] is the shape of any other. Shared and counted grants overlap, so they have no token.
//!
//! # One rule
//!
//! **Every key is a line of entries in ticket order; its holders are the longest prefix whose weights fit the
//! capacity.** A mutex entry weighs everything, a reader one, a semaphore's entry as many permits as it asks for. So
//! turns follow arrival, nobody who comes later takes a grant back or overtakes whoever waits, and neither a writer
//! behind readers nor a wide claim behind narrow ones starves. The rule itself is in [`queue`], without a clock and
//! without I/O.
//!
//! | wanted | primitive | guard |
//! |---|---|---|
//! | one at a time | [`Locks::mutex`] | [`Guard`] |
//! | many readers or one writer | [`Locks::rw_lock`] | [`SharedGuard`] or [`Guard`] |
//! | so many at a time | [`Locks::semaphore`] | [`SharedGuard`] |
//! | one leader, known to everybody | [`Locks::election`] | [`Leadership`] |
//! | one owner, who may take it again | [`Locks::reentrant`] | [`ReentrantGuard`] |
//! | several keys, all or none | [`Locks::all_of`] | [`AllGuard`] |
//!
//! Each can be waited for, tried, waited for within a limit, and used around a piece of work (`with`). Busy is an
//! answer, not an error; [`attempt_within`](Mutex::attempt_within) says who is in the way. A mutex, a re-entrant lock,
//! a write lock and an election of one name exclude each other, since all of them claim the whole key. For threads
//! without a runtime there is [`blocking`]; for operators [`Locks::inspect`] and [`Locks::evict`].
//!
//! # Stores
//!
//! | URL | store |
//! |---|---|
//! | `memory:` | this process's memory, for tests and for a single process |
//! | `memory:NAME` | the same, shared by all who use that name in this process |
//! | `sqlite:` | a file of this user's, shared by all processes of this machine (feature `sqlite`, or `sqlite-bundled`) |
//! | `sqlite:PATH` | that file, shared by all processes of this machine that may write it |
//! | `mysql://HOST/DATABASE` | tables of a MySQL or MariaDB database, shared likewise (feature `mysql`) |
//! | `postgres://HOST/DATABASE` | tables of a PostgreSQL database, shared likewise (feature `postgres`) |
//! | `redis://HOST` | a Redis server, shared by all machines that reach it (feature `redis`) |
//! | `redis+sentinel://HOST,HOST/NAME` | the master that these sentinels know by that name |
//! | `redis+cluster://HOST,HOST` | a Redis Cluster |
//! | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same, encrypted (feature `tls`) |
//! | `etcd://HOST,HOST,HOST` | an etcd cluster (feature `etcd`); `etcds://…` is the same, encrypted (feature `tls`) |
//! | `zookeeper://HOST,HOST,HOST` | a ZooKeeper ensemble (feature `zookeeper`); `zookeepers://…`: encrypted (feature `tls`) |
//!
//! A store of your own implements [`backend::Backend`] and is opened by [`Locks::on`].
//!
//! # When things go wrong
//!
//! - **Unknown**: the store did not answer, so nobody can say whether it acted ([`Fate::Unknown`]). It is assumed that
//!   it did: the entry is taken out of its line in the background and its id is not used again. An unanswered renewal
//!   makes a guard suspect, not lost; it is tried again until the deadline.
//! - **Lost**: the deadline passed, or the store says that the entry is gone. Nothing leads back from there, and the
//!   lock is not silently taken again. [`release`](Guard::release) says so too, because somebody else may have held the
//!   lock.
//! - **Cancelled**: every waiting call may be dropped at any await. The place in line is given up in the background, as
//!   is the lock of a dropped guard. A program that ends right away should wait for that with [`Locks::close`].
//! - **Refused**: a bad name, a capacity that disagrees with those in line, a claim that the store cannot honour: each
//!   is an [`Error`] whose [kind](Error::kind) tells which, and nothing was changed.
//!
//! # Names
//!
//! A name is any 1 to [`NAME_BYTES_MAX`] bytes: `a/b`, `../x`, emoji and NUL are fine. Bytes are its identity; nothing
//! is folded, trimmed or normalised. Each store encodes names so that none reaches into another, and whatever shows a
//! name escapes what could fool a terminal. A [`Namespace`] in front of all names, set by [`Builder::namespace`], lets
//! applications share a store.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod acquire;
pub mod backend;
pub mod blocking;
mod chance;
mod claim;
mod client;
pub mod clock;
mod entry_map;
mod error;
pub mod fence;
mod guard;
mod inspect;
#[cfg(all(test, shuttle))]
mod interleavings;
mod key;
mod lease;
mod locks;
mod primitive;
pub mod queue;
mod sync;
#[cfg(feature = "_network")]
mod url;

pub use crate::acquire::{Attempt, Busy};
pub use crate::claim::{Capacity, Claim};
pub use crate::error::{Error, ErrorKind, Fate, Result};
pub use crate::fence::FencingToken;
pub use crate::guard::{Guard, Held, SharedGuard};
pub use crate::key::{Key, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, Namespace};
pub use crate::lease::hold::{Loss, State};
pub use crate::locks::{Builder, Locks, connect};
pub use crate::primitive::election::{Election, Leader, Leadership};
pub use crate::primitive::multi::{AllGuard, AllOf};
pub use crate::primitive::mutex::Mutex;
pub use crate::primitive::reentrant::{Owner, Reentrant, ReentrantGuard};
pub use crate::primitive::rwlock::RwLock;
pub use crate::primitive::semaphore::Semaphore;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Runs an example of the documentation on a store in memory.
#[doc(hidden)]
pub fn doc_test(example: impl AsyncFnOnce(Locks) -> Result<()>) {
    pollster::block_on(async { example(connect("memory:").await?).await }).expect("the example works");
}
