//! Who holds and who waits, as the store sees it, and how to take an entry out of its line.

use crate::backend::{Asked, Departure, EntryView, Finding, KeyView, Notice, Page, Query};
use crate::error::Result;
use crate::key::Key;
use crate::locks::Locks;

/// How many keys are asked for at once.
const PAGE_KEYS: usize = 500;

impl Locks {
    /// Every key of this namespace that somebody holds or awaits, in the order of their names.
    pub async fn inspect_all(&self) -> Result<Vec<KeyView>> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = self.inspect_page(after, PAGE_KEYS).await?;
            all.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// At most `keys_max` keys of this namespace that somebody holds or awaits, from behind `after` on. One request.
    pub async fn inspect_page(&self, after: Option<Key>, keys_max: usize) -> Result<Page<KeyView>> {
        let namespace = self.client.namespace.clone();
        let query = Query { namespace, key: None, after, keys_max: keys_max.max(1) };
        let asked = self.client.timer.within(self.client.attempt_limit(), self.client.backend.inspect(&query)).await;
        asked
            .unwrap_or_else(|| Err(self.client.no_answer()))
            .map_err(|error| error.on(&self.client.store).while_doing("inspecting"))
    }

    /// Who holds the key and who waits for it, in order; `None` if nobody does. One request.
    ///
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// let _guard = locks.mutex("billing/close")?.lock().await?;
    /// let view = locks.inspect("billing/close").await?.expect("we hold it");
    /// println!("{} for {:?}", view.holders[0].note, view.holders[0].age);
    /// # assert!(locks.inspect("another").await?.is_none());
    /// # Ok(()) });
    /// ```
    pub async fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Option<KeyView>> {
        self.client.look_at(&self.client.key(name)?).await
    }

    /// Looks at the store itself: whether it is set up so that locks on it can be trusted, and what to do if not.
    ///
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// for finding in locks.checkup().await? {
    ///     println!("{finding}");
    /// }
    /// # Ok(()) });
    /// ```
    pub async fn checkup(&self) -> Result<Vec<Finding>> {
        let asked = self.client.timer.within(self.client.attempt_limit(), self.client.backend.checkup()).await;
        asked
            .unwrap_or_else(|| Err(self.client.no_answer()))
            .map_err(|error| error.on(&self.client.store).while_doing("examining"))
    }

    /// Takes somebody else's entry out of its line. A holder learns of it at once where the store can tell it, at
    /// its next renewal at the latest; a waiter that is alive lines up again at the end.
    ///
    /// It names an entry, never just a key, so that it cannot hit whoever came after the one you meant.
    pub async fn evict(&self, entry: &EntryView) -> Result<Departure> {
        tracing::info!(target: "leasehold", key = %entry.place.key, entry = %entry.place.entry, "evicting");
        let departure = self.client.ask("evicting", &entry.place.key, self.client.backend.leave(&entry.place)).await?;
        // Stores tell other clients; if it was one of our own, nobody has to.
        self.client.hear(Notice::Gone(entry.place.entry));
        Ok(departure)
    }

    /// Asks whoever has that entry to let go of it. It is told at once where the store can, with its next renewal at the
    /// latest, and decides for itself: see [`yield_requested`](crate::Held::yield_requested).
    pub async fn ask_to_yield(&self, entry: &EntryView) -> Result<Asked> {
        let asking = self.client.backend.ask_to_yield(&entry.place);
        let asked = self.client.ask("asking for", &entry.place.key, asking).await?;
        self.client.hear(Notice::YieldAsked(entry.place.entry));
        Ok(asked)
    }
}
