//! What can be held, however it is claimed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use leasehold::clock::Timer;
use leasehold::{
    Attempt, Election, ErrorKind, FencingToken, Guard, Held, Key, Leadership, Locks, Mutex, Result, RwLock, Semaphore,
    SharedGuard,
};

use crate::args;
use crate::exit;

/// How long the store is waited for to confirm that a place was given up. After it, the lease runs out by itself.
const PARTING_LIMIT: Duration = Duration::from_secs(5);

/// What is wanted.
pub(crate) enum Wanted {
    Alone(Mutex),
    Shared(RwLock),
    Permits(Semaphore, u32),
    Office(Election, OsString),
}

impl Wanted {
    pub(crate) fn new(locks: &Locks, args: &args::Run) -> Result<Self> {
        let name = args.key.as_bytes();
        Ok(match args.of {
            _ if args.shared => Self::Shared(locks.rw_lock(name)?),
            Some(of) => Self::Permits(locks.semaphore(name, of)?, args.permits.unwrap_or(1)),
            None => Self::Alone(locks.mutex(name)?),
        })
    }

    pub(crate) fn office(locks: &Locks, key: &OsStr, value: &OsStr) -> Result<Self> {
        Ok(Self::Office(locks.election(key.as_bytes())?, value.to_owned()))
    }

    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Alone(mutex) => mutex.key(),
            Self::Shared(lock) => lock.key(),
            Self::Permits(semaphore, _) => semaphore.key(),
            Self::Office(election, _) => election.key(),
        }
    }

    /// Takes it within `limit`; without one, as long as it takes.
    pub(crate) async fn take(&self, limit: Option<Duration>) -> Result<Attempt<Grant>> {
        Ok(match (self, limit) {
            (Self::Alone(mutex), None) => Attempt::Held(Grant::Alone(mutex.lock().await?)),
            (Self::Alone(mutex), Some(limit)) => granted(mutex.attempt_within(limit).await?, Grant::Alone),
            (Self::Shared(lock), None) => Attempt::Held(Grant::Shared(lock.read().await?)),
            (Self::Shared(lock), Some(limit)) => granted(lock.attempt_read_within(limit).await?, Grant::Shared),
            (Self::Permits(semaphore, count), None) => Attempt::Held(Grant::Shared(semaphore.acquire(*count).await?)),
            (Self::Permits(semaphore, count), Some(limit)) => {
                granted(semaphore.attempt_within(*count, limit).await?, Grant::Shared)
            }
            (Self::Office(election, value), None) => {
                Attempt::Held(Grant::Office(election.campaign(value.as_bytes()).await?))
            }
            (Self::Office(election, value), Some(limit)) => {
                granted(election.attempt_within(value.as_bytes(), limit).await?, Grant::Office)
            }
        })
    }
}

fn granted<G>(attempt: Attempt<G>, into: impl FnOnce(G) -> Grant) -> Attempt<Grant> {
    match attempt {
        Attempt::Held(guard) => Attempt::Held(into(guard)),
        Attempt::Busy(busy) => Attempt::Busy(busy),
    }
}

/// What is held.
pub(crate) enum Grant {
    Alone(Guard),
    Shared(SharedGuard),
    Office(Leadership),
}

impl Grant {
    pub(crate) fn held(&self) -> &Held {
        match self {
            Self::Alone(guard) => guard,
            Self::Shared(guard) => guard,
            Self::Office(leadership) => leadership,
        }
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Alone(guard) => Some(guard.token()),
            Self::Shared(_) => None,
            Self::Office(leadership) => Some(leadership.token()),
        }
    }

    async fn release(self) -> Result<()> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
            Self::Office(leadership) => leadership.resign().await,
        }
    }
}

/// `holding "billing/close" with token 7`
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if matches!(self, Self::Office(_)) { "leading" } else { "holding" };
        write!(f, "{what} \"{}\"", self.held().key())?;
        self.token().map_or(Ok(()), |token| write!(f, " with token {token}"))
    }
}

/// Whether something was still ours when it was given up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parted {
    WasOurs,
    WasLost,
}

impl Parted {
    pub(crate) fn code_or(self, code: u8) -> u8 {
        if self == Self::WasLost { exit::LOST } else { code }
    }
}

/// Gives it up, and waits for the store to confirm that, but not for ever.
pub(crate) async fn part(timer: &Timer, grant: Grant) -> Parted {
    let was_lost = grant.held().check().is_err();
    let key = grant.held().key().clone();
    match timer.within(PARTING_LIMIT, grant.release()).await {
        Some(Ok(())) => Parted::WasOurs,
        Some(Err(error)) if error.kind() == ErrorKind::Lost => {
            if !was_lost {
                exit::say(&error.to_string());
            }
            Parted::WasLost
        }
        Some(Err(error)) => {
            exit::say(&format!("{error}; the lock stays taken until its lease ends"));
            Parted::WasOurs
        }
        None => {
            exit::say(&format!(
                "the store does not confirm that \"{key}\" was given up: it stays taken until its lease ends"
            ));
            Parted::WasOurs
        }
    }
}

/// Waits until the store knows that we have left every line, but not for ever.
pub(crate) async fn leave(timer: &Timer, locks: &Locks) {
    let _ = timer.within(PARTING_LIMIT, locks.close()).await;
}
