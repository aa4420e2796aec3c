//! Following a key by looking at it, where the server does not tell.

use std::time::Duration;

use crate::backend::{EntryId, KeyView, Note};

/// How often a key is looked at that somebody follows.
pub(in crate::backend) const FOLLOW_EVERY: Duration = Duration::from_millis(250);

/// Who held a key at the last look.
#[derive(Debug, Default)]
pub(in crate::backend) struct Sight(Option<Vec<(EntryId, Note)>>);

impl Sight {
    /// Whether this state differs from the last, which it replaces.
    pub(in crate::backend) fn is_news(&mut self, view: &KeyView) -> bool {
        let seen = view.holders.iter().map(|holder| (holder.place.entry, holder.note.clone())).collect();
        let is_news = self.0.as_ref() != Some(&seen);
        self.0 = Some(seen);
        is_news
    }
}
