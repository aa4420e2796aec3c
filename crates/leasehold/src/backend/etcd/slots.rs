//! Which of its keys in a line a session may use: as many as it has entries there at a time, used again and again.
//!
//! etcd keeps a deleted key in its index until it is compacted, and every look at a line steps over it. A key for each entry
//! made a lock the slower the more often it had been taken.
//!
//! What must stay true, so that nobody ever acts on the entry that came to a key after its own:
//!
//! - A slot belongs to one entry at a time, from before its key is asked for until its key is known to be gone: we deleted it and
//!   were told so, or it was seen to be there once and is not any more, or no request to make it was ever carried out.
//! - A slot whose entry may yet appear, because a request to make it was never answered, is not used again on this lease.
//! - A key is only ever made, never written over, and whoever deletes it or adds to it compares the create revision of the entry
//!   that is meant; as long as that is unknown, the whole value, in which there is the entry's id.
//! - Whoever watches a key either does so from where its entry was seen, and the first departure from then on is that entry's; or
//!   looks once it watches for an entry that came before its own, which none that comes to that key later does.

use std::collections::{BTreeSet, HashMap};

/// The slots of a session, by what their keys begin with.
#[derive(Debug, Default)]
pub(super) struct Slots(HashMap<Vec<u8>, Used>);

#[derive(Debug, Default)]
struct Used {
    /// All from here on have never been used.
    next: u32,
    /// Those below that can be used again.
    free: BTreeSet<u32>,
}

impl Slots {
    /// The lowest slot that nobody has.
    pub(super) fn take(&mut self, beginning: &[u8]) -> u32 {
        if !self.0.contains_key(beginning) {
            self.0.insert(beginning.to_vec(), Used::default());
        }
        let used = self.0.get_mut(beginning).expect("it is there or was put there");
        used.free.pop_first().unwrap_or_else(|| {
            used.next += 1;
            used.next - 1
        })
    }

    /// Nothing is at that slot's key, and nothing will be that we have asked for.
    pub(super) fn give_back(&mut self, beginning: &[u8], slot: u32) {
        let Some(used) = self.0.get_mut(beginning) else { return };
        used.free.insert(slot);
        if used.free.len() == used.next as usize {
            self.0.remove(beginning);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Some are given back, some never.
        #[test]
        fn nobody_is_given_a_slot_that_another_has_and_no_more_are_used_than_were_taken_at_a_time(
            acts in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 0..20u32), 1..200)
        ) {
            let (mut slots, mut taken, mut retired, mut most) = (Slots::default(), Vec::new(), 0, 0);
            for (takes, at, luck) in acts {
                if takes || taken.is_empty() {
                    let slot = slots.take(b"a");
                    prop_assert!(!taken.contains(&slot));
                    taken.push(slot);
                    most = most.max(taken.len() + retired);
                    prop_assert!((slot as usize) < most, "{} of {}", slot, most);
                } else {
                    let slot = taken.swap_remove(at.index(taken.len()));
                    if luck == 0 {
                        retired += 1;
                    } else {
                        slots.give_back(b"a", slot);
                    }
                }
            }
            taken.into_iter().for_each(|slot| slots.give_back(b"a", slot));
            prop_assert_eq!(slots.0.is_empty(), retired == 0);
        }
    }

    #[test]
    fn lines_do_not_share_their_slots() {
        let mut slots = Slots::default();
        assert_eq!((slots.take(b"a"), slots.take(b"b"), slots.take(b"a")), (0, 0, 1));
        slots.give_back(b"a", 0);
        assert_eq!((slots.take(b"b"), slots.take(b"a")), (1, 0));
    }
}
