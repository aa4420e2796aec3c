//! The locks that users ask for. Each only says what it claims; how a claim is taken is written once, in the acquire loop.

pub(crate) mod election;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod reentrant;
pub(crate) mod rwlock;
pub(crate) mod semaphore;

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{self, Attempt, Limit, Wanted};
use crate::backend::Note;
use crate::claim::Claim;
use crate::client::Client;
use crate::clock::Timer;
use crate::error::Result;
use crate::guard::Held;
use crate::key::Key;

/// A claim on a key, ready to be taken any number of times.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    client: Arc<Client>,
    wanted: Wanted,
}

impl Access {
    pub(crate) fn new(client: &Arc<Client>, key: Key, claim: Claim) -> Result<Self> {
        client.supports(claim, &key)?;
        let note = client.note.clone();
        Ok(Self { client: client.clone(), wanted: Wanted { key, claim, note } })
    }

    pub(crate) fn noted(mut self, note: impl FnOnce(&mut Note)) -> Self {
        note(&mut self.wanted.note);
        self
    }

    pub(crate) fn key(&self) -> &Key {
        &self.wanted.key
    }

    pub(crate) fn client_number(&self) -> u64 {
        self.client.number
    }

    pub(crate) fn timer(&self) -> &Timer {
        &self.client.timer
    }

    pub(crate) async fn take<G: From<Held>>(&self) -> Result<G> {
        match acquire::acquire(&self.client, &self.wanted, Limit::Forever).await? {
            Attempt::Held(held) => Ok(held.into()),
            Attempt::Busy(busy) => unreachable!("a wait without a limit gave up: {busy}"),
        }
    }

    pub(crate) async fn try_take<G: From<Held>>(&self) -> Result<Option<G>> {
        Ok(acquire::acquire(&self.client, &self.wanted, Limit::Try).await?.ok().map(G::from))
    }

    pub(crate) async fn take_within<G: From<Held>>(&self, limit: Duration) -> Result<Option<G>> {
        Ok(self.attempt(limit).await?.ok().map(G::from))
    }

    /// As [`take_within`](Self::take_within), and looks who is in the way if it is busy: one request more, then.
    pub(crate) async fn attempt_within<G: From<Held>>(&self, limit: Duration) -> Result<Attempt<G>> {
        let mut attempt = self.attempt(limit).await?;
        if let Attempt::Busy(busy) = &mut attempt
            && let Some(view) = self.client.look_at(self.key()).await?
        {
            busy.seen(view);
        }
        Ok(attempt.map(G::from))
    }

    pub(crate) async fn attempt(&self, limit: Duration) -> Result<Attempt<Held>> {
        let limit = if limit.is_zero() { Limit::Try } else { Limit::Within(limit) };
        acquire::acquire(&self.client, &self.wanted, limit).await
    }
}

/// Runs `work` with a guard that was just taken, gives the guard up, and returns what the work came to.
///
/// If the lock is lost first, the work is dropped unfinished. The work's result outweighs a failed release: it was done
/// under the lock, and the release goes on in the background.
macro_rules! with_guard {
    ($guard:expr, $work:expr) => {{
        let guard = $guard;
        let output = guard.run($work(&guard)).await?;
        if let Err(error) = guard.release().await {
            tracing::debug!(target: "leasehold::guard", %error, "the release after the work failed");
        }
        Ok(output)
    }};
}
pub(crate) use with_guard;
