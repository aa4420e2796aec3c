//! So many at a time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Attempt;
use crate::claim::Claim;
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::SharedGuard;
use crate::key::Key;
use crate::primitive::{Access, with_guard};

/// A number of permits that all processes on the store share. A claim for several is granted whole or not at all, and
/// is not overtaken by smaller ones that came later.
///
/// ```
/// # leasehold::doc_test(async |locks| {
/// let calls = locks.semaphore("payment-api", 3)?;
/// let two = calls.acquire(2).await?;
/// assert!(calls.try_acquire(2).await?.is_none());
/// let one = calls.acquire(1).await?;
/// # drop((one, two));
/// # Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Arc<Client>,
    key: Key,
    of: NonZeroU32,
}

impl Semaphore {
    pub(crate) fn new(client: &Arc<Client>, key: Key, permits: u32) -> Result<Self> {
        let of = NonZeroU32::new(permits).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOption, "a semaphore of 0 permits could never be acquired").at(&key)
        })?;
        client.supports(Claim::Permits { count: NonZeroU32::MIN, of }, &key)?;
        Ok(Self { client: client.clone(), key, of })
    }

    /// Waits for `count` permits.
    ///
    /// # Errors
    /// [`CapacityMismatch`](ErrorKind::CapacityMismatch) if the key is in use with another number of permits,
    /// [`InvalidOption`](ErrorKind::InvalidOption) for a count of zero or more than there are.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place; no entry outlives its lease.
    pub async fn acquire(&self, count: u32) -> Result<SharedGuard> {
        self.access(count)?.take().await
    }

    /// Takes `count` permits if they are free and nobody waits ahead.
    pub async fn try_acquire(&self, count: u32) -> Result<Option<SharedGuard>> {
        self.access(count)?.try_take().await
    }

    /// Waits for `count` permits, but no longer than `limit`.
    pub async fn acquire_within(&self, count: u32, limit: Duration) -> Result<Option<SharedGuard>> {
        self.access(count)?.take_within(limit).await
    }

    /// As [`acquire_within`](Self::acquire_within), and says who has the permits. A limit of zero only tries.
    pub async fn attempt_within(&self, count: u32, limit: Duration) -> Result<Attempt<SharedGuard>> {
        self.access(count)?.attempt_within(limit).await
    }

    /// Waits for `count` permits, runs `work` with them, and gives them up. Work that outlives them is dropped unfinished.
    pub async fn with<T>(&self, count: u32, work: impl AsyncFnOnce(&SharedGuard) -> T) -> Result<T> {
        with_guard!(self.acquire(count).await?, work)
    }

    /// The key that the permits belong to.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// How many permits there are in all.
    pub fn permits(&self) -> u32 {
        self.of.get()
    }

    fn access(&self, count: u32) -> Result<Access> {
        Access::new(&self.client, self.key.clone(), Claim::permits(&self.key, count, self.of)?)
    }
}
