//! Randomness: entry ids that nobody can guess, and jitter. Seeded, it repeats itself, so that a run can be replayed.

use std::sync::Mutex;
use std::time::Duration;

use crate::backend::EntryId;

/// How many ids are asked for at once.
const IDS_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Chance {
    seeded: Option<Mutex<fastrand::Rng>>,
    ids: Mutex<Ids>,
}

/// Ids of the operating system's making that nobody has yet.
#[derive(Clone, Debug)]
struct Ids {
    /// Whose they are: a forked child has a copy, and must not use what its parent will.
    pid: u32,
    /// Each is random bytes, of which the first so many are still to be had.
    bytes: [[u8; 16]; IDS_MAX],
    left: usize,
}

impl Ids {
    fn none() -> Self {
        Self { pid: 0, bytes: [[0; 16]; IDS_MAX], left: 0 }
    }

    fn next(&mut self, pid: u32) -> EntryId {
        if self.pid != pid || self.left == 0 {
            getrandom::fill(self.bytes.as_flattened_mut()).expect("the operating system hands out random bytes");
            (self.pid, self.left) = (pid, IDS_MAX);
        }
        self.left -= 1;
        EntryId(u128::from_ne_bytes(self.bytes[self.left]))
    }
}

impl Chance {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self { seeded: seed.map(|seed| Mutex::new(fastrand::Rng::with_seed(seed))), ids: Mutex::new(Ids::none()) }
    }

    /// A new entry's id. From the operating system, not from a generator of our own, whose next one could be guessed.
    pub(crate) fn entry(&self) -> EntryId {
        self.entry_of(std::process::id())
    }

    /// The same for whoever knows which process this is, and need not ask again.
    pub(crate) fn entry_of(&self, pid: u32) -> EntryId {
        match &self.seeded {
            Some(rng) => EntryId(rng.lock().expect("no panic under this lock").u128(..)),
            None => self.ids.lock().expect("no panic under this lock").next(pid),
        }
    }

    /// A number that nobody else has.
    #[cfg(feature = "redis")]
    pub(crate) fn number(&self) -> u64 {
        self.entry().0 as u64
    }

    /// Anything from nothing to `span`.
    #[cfg(feature = "redis")]
    pub(crate) fn up_to(&self, span: Duration) -> Duration {
        span.mul_f64(self.share())
    }

    /// A factor of one, give or take a tenth, so that clients which started together drift apart.
    pub(crate) fn jitter(&self) -> f64 {
        0.9 + 0.2 * self.share()
    }

    /// Anything from nothing to one.
    fn share(&self) -> f64 {
        match &self.seeded {
            Some(rng) => rng.lock().expect("no panic under this lock").f64(),
            None => fastrand::f64(),
        }
    }

    /// `span`, give or take a tenth.
    pub(crate) fn about(&self, span: Duration) -> Duration {
        span.mul_f64(self.jitter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_makes_none_of_its_parents_ids() {
        let mut parent = Ids::none();
        parent.next(1);
        let mut child = parent.clone();
        let of_child: Vec<EntryId> = (0..IDS_MAX).map(|_| child.next(2)).collect();
        assert!((0..2 * IDS_MAX).all(|_| !of_child.contains(&parent.next(1))));
    }
}
