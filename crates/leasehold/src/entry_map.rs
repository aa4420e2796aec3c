//! A map by entry. Ids of entries are random, so that hashing them would only cost time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::backend::EntryId;

/// What a client knows of its own entries.
pub(crate) type EntryMap<T> = HashMap<EntryId, T, BuildHasherDefault<HalfOfId>>;

/// Half of an id, as it is.
#[derive(Default)]
pub(crate) struct HalfOfId(u64);

impl Hasher for HalfOfId {
    fn write_u128(&mut self, id: u128) {
        self.0 = id as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an id is one number");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_their_ids() {
        let ids = [0, 1, u128::from(u64::MAX) + 1, u128::MAX].map(EntryId);
        let map: EntryMap<usize> = ids.into_iter().enumerate().map(|(nth, id)| (id, nth)).collect();
        assert_eq!(ids.map(|id| map[&id]), [0, 1, 2, 3]);
    }
}
