//! Many readers or one writer.

use std::time::Duration;

use crate::acquire::Attempt;
use crate::error::Result;
use crate::guard::{Guard, SharedGuard};
use crate::key::Key;
use crate::primitive::{Access, with_guard};

/// A lock that many readers share or one writer has alone. Readers that arrive later do not overtake a waiting writer.
///
/// A write lock and a [`Mutex`](crate::Mutex) of the same name exclude each other: both claim the whole key.
///
/// ```
/// # leasehold::doc_test(async |locks| {
/// let prices = locks.rw_lock("prices")?;
/// let (one, two) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none());
/// drop((one, two));
/// let guard = prices.write().await?;
/// println!("writing under token {}", guard.token());
/// # Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    pub(crate) shared: Access,
    pub(crate) exclusive: Access,
}

impl RwLock {
    /// Waits until no writer holds the key or waits ahead of us, and shares it.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place; no entry outlives its lease.
    pub async fn read(&self) -> Result<SharedGuard> {
        self.shared.take().await
    }

    /// Shares the key if no writer holds it or waits for it.
    pub async fn try_read(&self) -> Result<Option<SharedGuard>> {
        self.shared.try_take().await
    }

    /// Waits to share the key, but no longer than `limit`.
    pub async fn read_within(&self, limit: Duration) -> Result<Option<SharedGuard>> {
        self.shared.take_within(limit).await
    }

    /// As [`read_within`](Self::read_within), and says who is in the way. A limit of zero only tries.
    pub async fn attempt_read_within(&self, limit: Duration) -> Result<Attempt<SharedGuard>> {
        self.shared.attempt_within(limit).await
    }

    /// Waits for a share, runs `work` under it, and gives it up. Work that outlives the share is dropped unfinished.
    pub async fn with_read<T>(&self, work: impl AsyncFnOnce(&SharedGuard) -> T) -> Result<T> {
        with_guard!(self.read().await?, work)
    }

    /// Waits until everybody ahead has left, and holds the key alone.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place; no entry outlives its lease.
    pub async fn write(&self) -> Result<Guard> {
        self.exclusive.take().await
    }

    /// Takes the key alone if it is free and nobody waits for it.
    pub async fn try_write(&self) -> Result<Option<Guard>> {
        self.exclusive.try_take().await
    }

    /// Waits to have the key alone, but no longer than `limit`.
    pub async fn write_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.exclusive.take_within(limit).await
    }

    /// As [`write_within`](Self::write_within), and says who is in the way. A limit of zero only tries.
    pub async fn attempt_write_within(&self, limit: Duration) -> Result<Attempt<Guard>> {
        self.exclusive.attempt_within(limit).await
    }

    /// Waits for the key, runs `work` alone, and gives it up. Work that outlives the lock is dropped unfinished.
    pub async fn with_write<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        with_guard!(self.write().await?, work)
    }

    /// The key that it locks.
    pub fn key(&self) -> &Key {
        self.shared.key()
    }
}
