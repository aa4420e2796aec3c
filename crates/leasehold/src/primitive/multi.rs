//! Many keys at once, or none.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select, select_all};

use crate::acquire::Attempt;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::FencingToken;
use crate::guard::{Guard, run_unless_lost};
use crate::key::Key;
use crate::primitive::{Access, with_guard};

/// Several mutexes that are taken together or not at all.
///
/// They are taken in the order of their keys, whatever order they were named in, so that two callers who want the same
/// keys cannot wait for each other. A key named twice counts once.
///
/// ```
/// # leasehold::doc_test(async |locks| {
/// let both = locks.all_of(["account/7", "account/3"])?;
/// let guard = both.lock().await?;
/// let tokens: Vec<_> = guard.tokens().map(|(key, token)| format!("{key}: {token}")).collect();
/// guard.release().await?;
/// # assert_eq!(tokens, ["account/3: 1", "account/7: 2"]);
/// # Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct AllOf {
    /// In the order of their keys, each once. Never empty.
    accesses: Vec<Access>,
}

impl AllOf {
    pub(crate) fn new(mut accesses: Vec<Access>) -> Result<Self> {
        if accesses.is_empty() {
            return Err(Error::new(ErrorKind::InvalidOption, "all_of needs at least one key"));
        }
        accesses.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        accesses.dedup_by(|a, b| a.key() == b.key());
        Ok(Self { accesses })
    }

    /// Waits until all keys are held.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if a key that was held already is lost while waiting for the others.
    ///
    /// # Cancel safety
    /// Dropping the future gives up every place; no entry outlives its lease.
    pub async fn lock(&self) -> Result<AllGuard> {
        let taken = self.take(None, Reason::Unasked).await?;
        Ok(taken.ok().expect("waits without a limit end with guards"))
    }

    /// Takes all keys if every one of them is free.
    pub async fn try_lock(&self) -> Result<Option<AllGuard>> {
        self.lock_within(Duration::ZERO).await
    }

    /// Waits for all keys, but no longer than `limit` in all.
    pub async fn lock_within(&self, limit: Duration) -> Result<Option<AllGuard>> {
        self.take(Some(limit), Reason::Unasked).await.map(Attempt::ok)
    }

    /// As [`lock_within`](Self::lock_within), and says who is in the way of which key. A limit of zero only tries.
    pub async fn attempt_within(&self, limit: Duration) -> Result<Attempt<AllGuard>> {
        self.take(Some(limit), Reason::Asked).await
    }

    /// Waits for all keys, runs `work` under them, and gives them up. Work that outlives any of them is dropped unfinished.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&AllGuard) -> T) -> Result<T> {
        with_guard!(self.lock().await?, work)
    }

    async fn take(&self, limit: Option<Duration>, reason: Reason) -> Result<Attempt<AllGuard>> {
        let timer = self.accesses[0].timer();
        let give_up_at = limit.map(|limit| timer.now().after(limit));
        let mut all = AllGuard { guards: Vec::with_capacity(self.accesses.len()) };
        for access in &self.accesses {
            let left = give_up_at.map(|at| timer.now().until(at));
            let taken = if all.guards.is_empty() {
                take_one(access, left, reason).await?
            } else {
                match select(pin!(all.lost()), pin!(take_one(access, left, reason))).await {
                    Either::Left((lost, _)) => return Err(lost),
                    Either::Right((taken, _)) => taken?,
                }
            };
            match taken {
                Attempt::Held(guard) => all.guards.push(guard),
                Attempt::Busy(busy) => return Ok(Attempt::Busy(busy)),
            }
        }
        all.check()?;
        Ok(Attempt::Held(all))
    }
}

/// Whether it shall be found out who is in the way, which costs a request.
#[derive(Clone, Copy)]
enum Reason {
    Asked,
    Unasked,
}

async fn take_one(access: &Access, limit: Option<Duration>, reason: Reason) -> Result<Attempt<Guard>> {
    match (limit, reason) {
        (None, _) => access.take().await.map(Attempt::Held),
        (Some(limit), Reason::Asked) => access.attempt_within(limit).await,
        (Some(limit), Reason::Unasked) => Ok(access.attempt(limit).await?.map(Guard::from)),
    }
}

/// Holds several keys. Dropping it gives all of them up in the background, the last one taken first.
#[derive(Debug)]
pub struct AllGuard {
    /// In the order in which they were taken.
    guards: Vec<Guard>,
}

impl AllGuard {
    /// The tokens of the grants, in the order of their keys.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, FencingToken)> {
        self.guards.iter().map(|guard| (guard.key(), guard.token()))
    }

    /// `Ok` if all of them are still ours.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(|guard| guard.check())
    }

    /// How long we may go on believing in all of them without another renewal.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(|guard| guard.remaining()).min().unwrap_or_default()
    }

    /// Resolves when the first of them is lost, with an error that names it.
    pub async fn lost(&self) -> Error {
        let each = self.guards.iter().map(|guard| Box::pin(async { guard.lost_error(guard.lost().await) }));
        select_all(each).await.0
    }

    /// Runs `work` while all of them are held, and drops `work` unfinished if one is lost first.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        run_unless_lost(self.lost(), || self.check(), work).await
    }

    /// Gives all of them up, the last one taken first, and waits until the store has confirmed. All are given up even if
    /// one fails; the first failure is returned.
    ///
    /// # Cancel safety
    /// Dropping the future still gives all of them up, in the background.
    pub async fn release(mut self) -> Result<()> {
        let mut result = Ok(());
        while let Some(guard) = self.guards.pop() {
            result = result.and(guard.release().await);
        }
        result
    }
}

impl Drop for AllGuard {
    fn drop(&mut self) {
        while self.guards.pop().is_some() {}
    }
}
