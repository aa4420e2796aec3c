//! One holder at a time.

use std::time::Duration;

use crate::acquire::Attempt;
use crate::error::Result;
use crate::guard::Guard;
use crate::key::Key;
use crate::primitive::{Access, with_guard};

/// A lock that one holder has at a time, across all processes that use the store.
///
/// ```
/// # leasehold::doc_test(async |locks| {
/// let mutex = locks.mutex("billing/close")?;
/// let guard = mutex.lock().await?;
/// assert!(mutex.try_lock().await?.is_none());    // it is not re-entrant: see `Locks::reentrant`
/// guard.release().await?;
/// # Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(crate) access: Access,
}

impl Mutex {
    /// Waits for this key's turn and holds it until the guard is released, dropped or lost.
    ///
    /// # Example
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// # let ledger = leasehold::fence::Gate::new();
    /// let mutex = locks.mutex("billing/close")?;
    /// let guard = mutex.lock().await?;
    /// ledger.admit(guard.token())?;               // the ledger refuses any older token
    /// guard.release().await?;                     // dropping works too, in the background
    /// # Ok(()) });
    /// ```
    ///
    /// # Order
    /// Turns follow arrival where [`Capabilities::queueing`](crate::backend::Capabilities::queueing) holds.
    ///
    /// # Losing it
    /// [`lost`](crate::Held::lost) resolves at our deadline, before the store's; a paused process may miss both, hence
    /// the token.
    ///
    /// # Errors
    /// [`Unreachable`](crate::ErrorKind::Unreachable) once the store has not answered for half a TTL, or fifteen seconds
    /// if that is less. A lock that is merely taken is waited for.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place; no entry outlives its lease.
    pub async fn lock(&self) -> Result<Guard> {
        self.access.take().await
    }

    /// Takes the lock if it is free and nobody waits for it. Busy is an answer, not an error.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.access.try_take().await
    }

    /// Waits for the lock, but no longer than `limit`.
    ///
    /// The limit is for the lock: the store's answer is waited for at least half a second, or a sixtieth of the TTL if
    /// that is less, and a store that does not give one is [`Unreachable`](crate::ErrorKind::Unreachable), not busy.
    pub async fn lock_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.access.take_within(limit).await
    }

    /// As [`lock_within`](Self::lock_within), and says who has the lock if it stays taken. A limit of zero only tries.
    ///
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// # use std::time::Duration;
    /// use leasehold::Attempt;
    ///
    /// let mutex = locks.mutex("billing/close")?;
    /// # let _taken = mutex.lock().await?;
    /// match mutex.attempt_within(Duration::ZERO).await? {
    ///     Attempt::Held(guard) => guard.release().await?,
    ///     Attempt::Busy(busy) => println!("{busy}"),    // "billing/close" is held by … for 3s
    /// }
    /// # Ok(()) });
    /// ```
    pub async fn attempt_within(&self, limit: Duration) -> Result<Attempt<Guard>> {
        self.access.attempt_within(limit).await
    }

    /// Waits for the lock, runs `work` under it, and gives it up. Work that outlives the lock is dropped unfinished.
    ///
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// let closed = locks.mutex("billing/close")?.with(async |guard| guard.token().get() > 0).await?;
    /// # assert!(closed);
    /// # Ok(()) });
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        with_guard!(self.lock().await?, work)
    }

    /// The key that it locks.
    pub fn key(&self) -> &Key {
        self.access.key()
    }
}
