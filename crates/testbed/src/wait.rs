//! Waiting for what other processes do. Nothing else here reads a clock or sleeps.

use std::time::{Duration, Instant};

use crate::{Failure, Result};

/// How long anything may take on a busy machine. Nobody waits that long unless something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks again until the condition holds; fails, naming it, after [`PATIENCE`].
pub fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result {
    let deadline = Deadline::after(PATIENCE);
    while !condition() {
        if deadline.is_over() {
            return Err(Failure::new(format!("waited {} s in vain: {what}", PATIENCE.as_secs())));
        }
        sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A moment of this process.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    #[expect(clippy::disallowed_methods, reason = "servers of other processes live in real time; no lease hangs on it")]
    pub(crate) fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    pub(crate) fn left(self) -> Duration {
        let now = Self::after(Duration::ZERO);
        self.0.saturating_duration_since(now.0)
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks at a condition, or the delay that a test asked for")]
pub(crate) fn sleep(time: Duration) {
    std::thread::sleep(time);
}
