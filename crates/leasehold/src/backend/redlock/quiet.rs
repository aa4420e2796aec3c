//! Where nobody else was met of late, so that few words are likely to be enough.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use crate::key::Key;

/// Keys that share a count take each other for crowded now and then.
const COUNTS: usize = 1024;

/// How many locks in a row were had without meeting anybody before few words are tried again. Whoever wins against others does
/// not see them, and would be in few words just when they are there.
const CALM: u8 = 16;

/// For each key, or for several, how many locks have yet to be had in peace. Nothing but a trip rests on it.
#[derive(Debug)]
pub(super) struct Quiet(Box<[AtomicU8]>);

impl Default for Quiet {
    fn default() -> Self {
        Self((0..COUNTS).map(|_| AtomicU8::new(0)).collect())
    }
}

impl Quiet {
    /// Whether nobody was met there of late.
    pub(super) fn is_at(&self, key: &Key) -> bool {
        self.count(key).load(Relaxed) == 0
    }

    /// A lock was asked for, and others were met or not.
    pub(super) fn note(&self, key: &Key, met_others: bool) {
        let (count, left) = (self.count(key), self.count(key).load(Relaxed));
        if met_others {
            count.store(CALM, Relaxed);
        } else if left > 0 {
            count.store(left - 1, Relaxed);
        }
    }

    fn count(&self, key: &Key) -> &AtomicU8 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.0[hasher.finish() as usize % COUNTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Namespace;

    #[test]
    fn where_others_were_met_it_is_quiet_after_a_while_without_them() {
        let (quiet, key) = (Quiet::default(), Key::new(&Namespace::new("").unwrap(), "k").unwrap());
        assert!(quiet.is_at(&key));
        for _ in 0..2 {
            quiet.note(&key, true);
            for _ in 0..CALM {
                assert!(!quiet.is_at(&key));
                quiet.note(&key, false);
            }
            assert!(quiet.is_at(&key));
            quiet.note(&key, false);
            assert!(quiet.is_at(&key));
        }
    }
}
