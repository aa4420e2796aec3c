//! The same locks for threads without a runtime.
//!
//! A call waits by parking its thread. Timers, renewals and the store's connections run on the client's own thread, so
//! this works anywhere, also on a thread of an async runtime: there it blocks that thread like any other blocking call,
//! but cannot deadlock on it, because nothing it waits for runs there.
//!
//! ```
//! use leasehold::blocking;
//!
//! let locks = blocking::connect("memory:")?;
//! let guard = locks.mutex("billing/close")?.lock()?;
//! println!("closing under token {}", guard.token());
//! guard.release()?;
//! # Ok::<(), leasehold::Error>(())
//! ```

use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use pollster::block_on;

use crate::backend::{Departure, EntryView, KeyView};
use crate::error::Result;
use crate::{Attempt, Leader, Owner};

/// Opens the locks on the store that `url` names. See [`crate::connect`] for the URLs.
pub fn connect(url: &str) -> Result<Locks> {
    block_on(crate::connect(url)).map(Locks)
}

/// Locks on one store. Made by [`connect`], or from async [`Locks`](crate::Locks).
#[derive(Clone, Debug)]
pub struct Locks(crate::Locks);

impl From<crate::Locks> for Locks {
    fn from(locks: crate::Locks) -> Self {
        Self(locks)
    }
}

impl Locks {
    /// A lock that one holder has at a time.
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Result<Mutex> {
        self.0.mutex(name).map(Mutex)
    }

    /// A lock that many readers share or one writer has alone.
    pub fn rw_lock(&self, name: impl AsRef<[u8]>) -> Result<RwLock> {
        self.0.rw_lock(name).map(RwLock)
    }

    /// So many permits.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Result<Semaphore> {
        self.0.semaphore(name, permits).map(Semaphore)
    }

    /// An office that one candidate holds at a time.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Result<Election> {
        self.0.election(name).map(Election)
    }

    /// A mutex that its owner may take again while holding it.
    pub fn reentrant(&self, name: impl AsRef<[u8]>) -> Result<Reentrant> {
        self.0.reentrant(name).map(Reentrant)
    }

    /// Several mutexes that are taken together or not at all.
    pub fn all_of<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Result<AllOf> {
        self.0.all_of(names).map(AllOf)
    }

    /// Who holds the key and who waits for it; `None` if nobody does.
    pub fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Option<KeyView>> {
        block_on(self.0.inspect(name))
    }

    /// Every key of this namespace that somebody holds or awaits.
    pub fn inspect_all(&self) -> Result<Vec<KeyView>> {
        block_on(self.0.inspect_all())
    }

    /// Takes somebody else's entry out of its line.
    pub fn evict(&self, entry: &EntryView) -> Result<Departure> {
        block_on(self.0.evict(entry))
    }

    /// Takes no more locks, and waits until everything that was dropped so far has left the store.
    pub fn close(&self) {
        block_on(self.0.close());
    }
}

/// A guard whose [`release`](Self::release) blocks. It can do whatever the async guard can; dropping it releases in the
/// background.
#[derive(Debug)]
pub struct Guard<G: Release = crate::Guard>(G);

impl<G: Release> Guard<G> {
    /// Gives it up and waits until the store has confirmed. [`Lost`](crate::ErrorKind::Lost) if it was no longer ours.
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

impl Guard<crate::Leadership> {
    /// Stands for another value from now on.
    pub fn proclaim(&mut self, value: impl AsRef<[u8]>) -> Result<()> {
        block_on(self.0.proclaim(value))
    }
}

impl<G: Release> Deref for Guard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.0
    }
}

impl<G: Release> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G {
        &mut self.0
    }
}

/// The async guards that a [`Guard`] may hold.
pub trait Release: sealed::Sealed {
    #[doc(hidden)]
    fn release(self) -> BoxFuture<'static, Result<()>>;
    #[doc(hidden)]
    fn still_held(&self) -> Result<()>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! releases {
    ($($guard:ty),*) => {$(
        impl sealed::Sealed for $guard {}

        impl Release for $guard {
            fn release(self) -> BoxFuture<'static, Result<()>> {
                Box::pin(Self::release(self))
            }

            fn still_held(&self) -> Result<()> {
                self.check()
            }
        }
    )*};
}

releases!(crate::Guard, crate::SharedGuard, crate::Leadership, crate::ReentrantGuard, crate::AllGuard);

fn blocking<G: Release>(attempt: Attempt<G>) -> Attempt<Guard<G>> {
    attempt.map(Guard)
}

/// Runs `work` under a guard and gives it up. The work cannot be stopped when the lock is lost; its result is then an
/// error, because it was not done under the lock.
fn with<G: Release, T>(guard: Guard<G>, work: impl FnOnce(&Guard<G>) -> T) -> Result<T> {
    let output = work(&guard);
    guard.0.still_held()?;
    if let Err(error) = guard.release() {
        tracing::debug!(target: "leasehold::guard", %error, "the release after the work failed");
    }
    Ok(output)
}

/// [`crate::Mutex`] for threads.
#[derive(Clone, Debug)]
pub struct Mutex(crate::Mutex);

impl Mutex {
    /// Waits for the lock.
    pub fn lock(&self) -> Result<Guard> {
        block_on(self.0.lock()).map(Guard)
    }

    /// Takes the lock if it is free and nobody waits for it.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_lock())?.map(Guard))
    }

    /// Waits for the lock, but no longer than `limit`.
    pub fn lock_within(&self, limit: Duration) -> Result<Option<Guard>> {
        Ok(block_on(self.0.lock_within(limit))?.map(Guard))
    }

    /// As [`lock_within`](Self::lock_within), and says who has the lock. A limit of zero only tries.
    pub fn attempt_within(&self, limit: Duration) -> Result<Attempt<Guard>> {
        block_on(self.0.attempt_within(limit)).map(blocking)
    }

    /// Waits for the lock, runs `work`, and gives it up. [`Lost`](crate::ErrorKind::Lost) if the work outlived the lock.
    pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        with(self.lock()?, work)
    }
}

/// [`crate::RwLock`] for threads.
#[derive(Clone, Debug)]
pub struct RwLock(crate::RwLock);

impl RwLock {
    /// Waits to share the key.
    pub fn read(&self) -> Result<Guard<crate::SharedGuard>> {
        block_on(self.0.read()).map(Guard)
    }

    /// Shares the key if no writer holds it or waits for it.
    pub fn try_read(&self) -> Result<Option<Guard<crate::SharedGuard>>> {
        Ok(block_on(self.0.try_read())?.map(Guard))
    }

    /// Waits to share the key, but no longer than `limit`.
    pub fn read_within(&self, limit: Duration) -> Result<Option<Guard<crate::SharedGuard>>> {
        Ok(block_on(self.0.read_within(limit))?.map(Guard))
    }

    /// Waits for a share, runs `work`, and gives it up.
    pub fn with_read<T>(&self, work: impl FnOnce(&Guard<crate::SharedGuard>) -> T) -> Result<T> {
        with(self.read()?, work)
    }

    /// Waits to have the key alone.
    pub fn write(&self) -> Result<Guard> {
        block_on(self.0.write()).map(Guard)
    }

    /// Takes the key alone if it is free and nobody waits for it.
    pub fn try_write(&self) -> Result<Option<Guard>> {
        Ok(block_on(self.0.try_write())?.map(Guard))
    }

    /// Waits to have the key alone, but no longer than `limit`.
    pub fn write_within(&self, limit: Duration) -> Result<Option<Guard>> {
        Ok(block_on(self.0.write_within(limit))?.map(Guard))
    }

    /// Waits for the key, runs `work` alone, and gives it up.
    pub fn with_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        with(self.write()?, work)
    }
}

/// [`crate::Semaphore`] for threads.
#[derive(Clone, Debug)]
pub struct Semaphore(crate::Semaphore);

impl Semaphore {
    /// Waits for `count` permits.
    pub fn acquire(&self, count: u32) -> Result<Guard<crate::SharedGuard>> {
        block_on(self.0.acquire(count)).map(Guard)
    }

    /// Takes `count` permits if they are free and nobody waits ahead.
    pub fn try_acquire(&self, count: u32) -> Result<Option<Guard<crate::SharedGuard>>> {
        Ok(block_on(self.0.try_acquire(count))?.map(Guard))
    }

    /// Waits for `count` permits, but no longer than `limit`.
    pub fn acquire_within(&self, count: u32, limit: Duration) -> Result<Option<Guard<crate::SharedGuard>>> {
        Ok(block_on(self.0.acquire_within(count, limit))?.map(Guard))
    }

    /// Waits for `count` permits, runs `work`, and gives them up.
    pub fn with<T>(&self, count: u32, work: impl FnOnce(&Guard<crate::SharedGuard>) -> T) -> Result<T> {
        with(self.acquire(count)?, work)
    }
}

/// [`crate::Election`] for threads.
#[derive(Clone, Debug)]
pub struct Election(crate::Election);

impl Election {
    /// Waits to lead, standing for `value`.
    pub fn campaign(&self, value: impl AsRef<[u8]>) -> Result<Guard<crate::Leadership>> {
        block_on(self.0.campaign(value)).map(Guard)
    }

    /// Leads if nobody does and nobody is a candidate.
    pub fn try_campaign(&self, value: impl AsRef<[u8]>) -> Result<Option<Guard<crate::Leadership>>> {
        Ok(block_on(self.0.try_campaign(value))?.map(Guard))
    }

    /// Waits to lead, but no longer than `limit`.
    pub fn campaign_within(
        &self,
        value: impl AsRef<[u8]>,
        limit: Duration,
    ) -> Result<Option<Guard<crate::Leadership>>> {
        Ok(block_on(self.0.campaign_within(value, limit))?.map(Guard))
    }

    /// Waits to lead, runs `work` as the leader, and resigns.
    pub fn with<T>(&self, value: impl AsRef<[u8]>, work: impl FnOnce(&Guard<crate::Leadership>) -> T) -> Result<T> {
        with(self.campaign(value)?, work)
    }

    /// Who leads now.
    pub fn leader(&self) -> Result<Option<Leader>> {
        block_on(self.0.leader())
    }

    /// Who leads, now and after every change. The iterator waits for the next change and never ends.
    pub fn observe(&self) -> impl Iterator<Item = Result<Option<Leader>>> + use<> {
        let mut leaders: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(self.0.observe());
        std::iter::from_fn(move || block_on(leaders.next()))
    }
}

/// [`crate::Reentrant`] for threads.
#[derive(Clone, Debug)]
pub struct Reentrant(crate::Reentrant);

impl Reentrant {
    /// Waits until `owner` has the lock: at once if it has it already.
    pub fn lock(&self, owner: &Owner) -> Result<Guard<crate::ReentrantGuard>> {
        block_on(self.0.lock(owner)).map(Guard)
    }

    /// Takes the lock if `owner` has it already, or if it is free and nobody waits for it.
    pub fn try_lock(&self, owner: &Owner) -> Result<Option<Guard<crate::ReentrantGuard>>> {
        Ok(block_on(self.0.try_lock(owner))?.map(Guard))
    }

    /// Waits for the lock, but no longer than `limit`.
    pub fn lock_within(&self, owner: &Owner, limit: Duration) -> Result<Option<Guard<crate::ReentrantGuard>>> {
        Ok(block_on(self.0.lock_within(owner, limit))?.map(Guard))
    }

    /// Waits for the lock, runs `work`, and gives this hold up.
    pub fn with<T>(&self, owner: &Owner, work: impl FnOnce(&Guard<crate::ReentrantGuard>) -> T) -> Result<T> {
        with(self.lock(owner)?, work)
    }
}

/// [`crate::AllOf`] for threads.
#[derive(Clone, Debug)]
pub struct AllOf(crate::AllOf);

impl AllOf {
    /// Waits until all keys are held.
    pub fn lock(&self) -> Result<Guard<crate::AllGuard>> {
        block_on(self.0.lock()).map(Guard)
    }

    /// Takes all keys if every one of them is free.
    pub fn try_lock(&self) -> Result<Option<Guard<crate::AllGuard>>> {
        Ok(block_on(self.0.try_lock())?.map(Guard))
    }

    /// Waits for all keys, but no longer than `limit` in all.
    pub fn lock_within(&self, limit: Duration) -> Result<Option<Guard<crate::AllGuard>>> {
        Ok(block_on(self.0.lock_within(limit))?.map(Guard))
    }

    /// Waits for all keys, runs `work`, and gives them up.
    pub fn with<T>(&self, work: impl FnOnce(&Guard<crate::AllGuard>) -> T) -> Result<T> {
        with(self.lock()?, work)
    }
}
