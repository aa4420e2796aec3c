//! Randomness: entry ids that nobody can guess, and jitter. Seeded, it repeats itself, so that a run can be replayed.

use std::sync::Mutex;
use std::time::Duration;

use crate::backend::EntryId;

#[derive(Debug)]
pub(crate) struct Chance {
    seeded: Option<Mutex<fastrand::Rng>>,
}

impl Chance {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self { seeded: seed.map(|seed| Mutex::new(fastrand::Rng::with_seed(seed))) }
    }

    /// A new entry's id. From the operating system, not from a generator of our own: a forked child would go on with a
    /// copy of the generator and make the parent's ids again.
    pub(crate) fn entry(&self) -> EntryId {
        match &self.seeded {
            Some(rng) => EntryId(rng.lock().expect("no panic under this lock").u128(..)),
            None => {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes).expect("the operating system hands out random bytes");
                EntryId(u128::from_ne_bytes(bytes))
            }
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
