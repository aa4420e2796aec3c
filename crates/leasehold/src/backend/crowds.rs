//! Where somebody else was in line when we last looked.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::key::Key;

/// Keys that share a mark cost each other a trip now and then.
const MARKS: usize = 1024;

/// A mark for each key, or for several. Whoever would find others in line saves the trip of finding out; nothing but that rests
/// on it.
#[derive(Debug)]
pub(super) struct Crowds(Box<[AtomicBool]>);

impl Default for Crowds {
    fn default() -> Self {
        Self((0..MARKS).map(|_| AtomicBool::new(false)).collect())
    }
}

impl Crowds {
    pub(super) fn is_one_at(&self, key: &Key) -> bool {
        self.mark(key).load(Relaxed)
    }

    pub(super) fn note(&self, key: &Key, is_one: bool) {
        self.mark(key).store(is_one, Relaxed);
    }

    fn mark(&self, key: &Key) -> &AtomicBool {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.0[hasher.finish() as usize % MARKS]
    }
}
