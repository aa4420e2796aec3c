//! The kinds of lock that one holder has at a time, so that each runs the same cases.

use std::ops::Deref;
use std::time::Duration;

use leasehold::{Attempt, ErrorKind, FencingToken, Guard, Held, Locks, Mutex, Result, RwLock, Semaphore, SharedGuard};

use crate::World;

/// A kind of lock that one holder has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A mutex.
    Mutex,
    /// The writing side of a read/write lock.
    WriteLock,
    /// A semaphore of one permit.
    SemaphoreOfOne,
}

impl Kind {
    /// Whether the store has this kind of lock. One that has not must refuse it, which is checked here.
    pub async fn is_offered(self, world: &World) -> bool {
        let client = world.client().await;
        let (offered, refused) = match self {
            Self::Mutex => return true,
            Self::WriteLock => (client.capabilities().shared, client.rw_lock("refused").err()),
            Self::SemaphoreOfOne => (client.capabilities().counted, client.semaphore("refused", 1).err()),
        };
        let refused = refused.map(|error| error.kind());
        assert_eq!(refused, if offered { None } else { Some(ErrorKind::Unsupported) });
        offered
    }

    /// The lock of that name.
    pub fn lock(self, locks: &Locks, name: impl AsRef<[u8]>) -> AnyLock {
        match self {
            Self::Mutex => AnyLock::Mutex(locks.mutex(name).expect("the name is valid")),
            Self::WriteLock => AnyLock::WriteLock(locks.rw_lock(name).expect("the name is valid")),
            Self::SemaphoreOfOne => AnyLock::SemaphoreOfOne(locks.semaphore(name, 1).expect("the name is valid")),
        }
    }
}

/// A lock that one holder has at a time.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "they are the variants of `Kind`")]
pub enum AnyLock {
    Mutex(Mutex),
    WriteLock(RwLock),
    SemaphoreOfOne(Semaphore),
}

impl AnyLock {
    /// Waits for it.
    pub async fn lock(&self) -> Result<AnyGuard> {
        match self {
            Self::Mutex(mutex) => mutex.lock().await.map(AnyGuard::Fenced),
            Self::WriteLock(lock) => lock.write().await.map(AnyGuard::Fenced),
            Self::SemaphoreOfOne(semaphore) => semaphore.acquire(1).await.map(AnyGuard::Counted),
        }
    }

    /// Tries it.
    pub async fn try_lock(&self) -> Result<Option<AnyGuard>> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.try_lock().await?.map(AnyGuard::Fenced),
            Self::WriteLock(lock) => lock.try_write().await?.map(AnyGuard::Fenced),
            Self::SemaphoreOfOne(semaphore) => semaphore.try_acquire(1).await?.map(AnyGuard::Counted),
        })
    }

    /// Waits for it for a time.
    pub async fn lock_within(&self, limit: Duration) -> Result<Option<AnyGuard>> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.lock_within(limit).await?.map(AnyGuard::Fenced),
            Self::WriteLock(lock) => lock.write_within(limit).await?.map(AnyGuard::Fenced),
            Self::SemaphoreOfOne(semaphore) => semaphore.acquire_within(1, limit).await?.map(AnyGuard::Counted),
        })
    }

    /// Waits for it for a time, and says why not.
    pub async fn attempt_within(&self, limit: Duration) -> Result<Attempt<AnyGuard>> {
        Ok(match self {
            Self::Mutex(mutex) => fenced(mutex.attempt_within(limit).await?),
            Self::WriteLock(lock) => fenced(lock.attempt_write_within(limit).await?),
            Self::SemaphoreOfOne(semaphore) => match semaphore.attempt_within(1, limit).await? {
                Attempt::Held(guard) => Attempt::Held(AnyGuard::Counted(guard)),
                Attempt::Busy(busy) => Attempt::Busy(busy),
            },
        })
    }
}

fn fenced(attempt: Attempt<Guard>) -> Attempt<AnyGuard> {
    match attempt {
        Attempt::Held(guard) => Attempt::Held(AnyGuard::Fenced(guard)),
        Attempt::Busy(busy) => Attempt::Busy(busy),
    }
}

/// What holds such a lock.
#[derive(Debug)]
pub enum AnyGuard {
    /// With a token.
    Fenced(Guard),
    /// Without.
    Counted(SharedGuard),
}

impl AnyGuard {
    /// The fencing token, if this kind has one.
    pub fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Fenced(guard) => Some(guard.token()),
            Self::Counted(_) => None,
        }
    }

    /// Gives it up.
    pub async fn release(self) -> Result<()> {
        match self {
            Self::Fenced(guard) => guard.release().await,
            Self::Counted(guard) => guard.release().await,
        }
    }
}

impl Deref for AnyGuard {
    type Target = Held;

    fn deref(&self) -> &Held {
        match self {
            Self::Fenced(guard) => guard,
            Self::Counted(guard) => guard,
        }
    }
}
