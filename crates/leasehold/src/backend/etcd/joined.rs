//! Work that is under way at most once: whoever wants it meanwhile joins it.

use std::fmt;
use std::sync::Mutex;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::Shared;

use crate::sync::locked;

/// The work that is under way, if any is.
pub(super) struct Joined<T: Clone>(Mutex<Option<Shared<BoxFuture<'static, T>>>>);

impl<T: Clone + Send + Sync + 'static> Joined<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// What is under way, or else what is started now.
    pub(super) fn join<F: Future<Output = T> + Send + 'static>(
        &self,
        start: impl FnOnce() -> F,
    ) -> Shared<BoxFuture<'static, T>> {
        let mut slot = locked(&self.0);
        match &*slot {
            Some(work) if work.peek().is_none() => work.clone(),
            _ => slot.insert(start().boxed().shared()).clone(),
        }
    }
}

impl<T: Clone> fmt::Debug for Joined<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Joined")
    }
}
