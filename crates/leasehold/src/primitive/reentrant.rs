//! A mutex that its owner may take again.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backend::NOTE_BYTES_MAX;
use crate::error::{Error, Result};
use crate::fence::FencingToken;
use crate::guard::{Guard, Held};
use crate::key::Key;
use crate::primitive::{Access, with_guard};
use crate::sync::{Mutex as SyncMutex, locked};

/// Who owns a [`Reentrant`] lock: an explicit value, passed to whatever should count as the same owner.
///
/// Not the thread and not the task: work moves between threads at every await, and two requests served by one thread are
/// not one owner. Copies are the same owner. What it holds, it may take again through the same [`Locks`](crate::Locks)
/// and their copies; through others it waits like anybody else.
#[derive(Clone)]
pub struct Owner {
    shared: Arc<OwnerShared>,
}

struct OwnerShared {
    name: Arc<str>,
    /// What it holds. A slot is locked while its lock is being taken, so that two callers of one owner take it once.
    /// A key alone does not say which store it is on, so a slot belongs to a client.
    slots: SyncMutex<HashMap<(u64, Key), Arc<Slot>>>,
}

type Slot = tokio::sync::Mutex<Weak<Guard>>;

impl Owner {
    /// A new owner, different from every other, even from one of the same name. The name is what others see.
    pub fn new(name: &str) -> Result<Self> {
        if name.len() > NOTE_BYTES_MAX {
            return Err(Error::option("owner", format!("has {} bytes, and {NOTE_BYTES_MAX} is the most", name.len())));
        }
        Ok(Self { shared: Arc::new(OwnerShared { name: name.into(), slots: SyncMutex::default() }) })
    }

    /// The name that others see.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    fn slot(&self, client: u64, key: &Key) -> Arc<Slot> {
        let place = (client, key.clone());
        let mut slots = locked(&self.shared.slots);
        // A slot that only this map knows, for a lock that is no longer held, serves nobody.
        slots.retain(|of, slot| {
            *of == place || Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|held| held.strong_count() > 0)
        });
        slots.entry(place).or_default().clone()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.shared.name).finish()
    }
}

/// A mutex that its [`Owner`] may take again while holding it. It is free once every guard is gone.
///
/// Others see an ordinary mutex: it excludes [`Mutex`](crate::Mutex) and write locks of the same name.
///
/// ```
/// # leasehold::doc_test(async |locks| {
/// use leasehold::Owner;
///
/// let account = locks.reentrant("account/7")?;
/// let owner = Owner::new("transfer")?;
/// let outer = account.lock(&owner).await?;
/// let inner = account.lock(&owner).await?;          // at once: the same owner
/// assert_eq!(outer.token(), inner.token());         // and the same grant
/// inner.release().await?;
/// assert!(account.try_lock(&Owner::new("other")?).await?.is_none());
/// outer.release().await?;                           // now it is free
/// # Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct Reentrant {
    pub(crate) access: Access,
}

impl Reentrant {
    /// Waits until `owner` has the lock: at once if it has it already.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place; no entry outlives its lease.
    pub async fn lock(&self, owner: &Owner) -> Result<ReentrantGuard> {
        let taken = self.take(owner, None).await?;
        Ok(taken.expect("a wait without a limit ends with a guard"))
    }

    /// Takes the lock if `owner` has it already, or if it is free and nobody waits for it.
    pub async fn try_lock(&self, owner: &Owner) -> Result<Option<ReentrantGuard>> {
        self.take(owner, Some(Duration::ZERO)).await
    }

    /// Waits for the lock, but no longer than `limit`.
    pub async fn lock_within(&self, owner: &Owner, limit: Duration) -> Result<Option<ReentrantGuard>> {
        self.take(owner, Some(limit)).await
    }

    /// Waits for the lock, runs `work` under it, and gives this hold up. Work that outlives the lock is dropped unfinished.
    pub async fn with<T>(&self, owner: &Owner, work: impl AsyncFnOnce(&ReentrantGuard) -> T) -> Result<T> {
        with_guard!(self.lock(owner).await?, work)
    }

    /// The key that it locks.
    pub fn key(&self) -> &Key {
        self.access.key()
    }

    async fn take(&self, owner: &Owner, limit: Option<Duration>) -> Result<Option<ReentrantGuard>> {
        let timer = self.access.timer();
        let give_up_at = limit.map(|limit| timer.now().after(limit));
        let slot = owner.slot(self.access.client_number(), self.key());
        let mut held = match limit {
            None => slot.lock().await,
            Some(limit) => match timer.within(limit, slot.lock()).await {
                Some(held) => held,
                None => return Ok(None), // another caller of the same owner is still waiting for it
            },
        };
        // A lost lock is not re-entered: its token is stale, and somebody else may have it by now.
        if let Some(guard) = held.upgrade().filter(|guard| guard.check().is_ok()) {
            return Ok(Some(ReentrantGuard { guard: Some(guard) }));
        }
        let access = self.access.clone().noted(|note| note.owner = owner.shared.name.clone());
        let guard: Guard = match give_up_at {
            None => access.take().await?,
            Some(at) => match access.take_within(timer.now().until(at)).await? {
                Some(guard) => guard,
                None => return Ok(None),
            },
        };
        let guard = Arc::new(guard);
        *held = Arc::downgrade(&guard);
        Ok(Some(ReentrantGuard { guard: Some(guard) }))
    }
}

/// One of its owner's holds on a [`Reentrant`] lock.
#[derive(Debug)]
pub struct ReentrantGuard {
    /// `None` only while it is being released.
    guard: Option<Arc<Guard>>,
}

impl ReentrantGuard {
    /// The number of the grant, the same for all holds of it.
    pub fn token(&self) -> FencingToken {
        self.guard().token()
    }

    /// How many holds its owner has.
    pub fn holds(&self) -> usize {
        Arc::strong_count(self.guard())
    }

    /// Gives this hold up. If it was the last one, gives the lock up and waits until the store has confirmed.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) if the lock was no longer ours.
    ///
    /// # Cancel safety
    /// Dropping the future still gives it up, in the background.
    pub async fn release(mut self) -> Result<()> {
        let guard = self.guard.take().expect("only a release takes it");
        let check = guard.check();
        match Arc::into_inner(guard) {
            Some(last) => last.release().await,
            None => check,
        }
    }

    fn guard(&self) -> &Arc<Guard> {
        self.guard.as_ref().expect("only a release takes it")
    }
}

impl Deref for ReentrantGuard {
    type Target = Held;

    fn deref(&self) -> &Held {
        self.guard()
    }
}
