//! Guesses of tokens: one that is above all that the servers have seen makes a lock cost one trip.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::Clock;

/// Lua counts in doubles, which are exact up to 2^53. The time in µs gets there in the year 2255.
pub(super) const TOKEN_MAX: u64 = (1 << 53) - 1;

/// What is guessed from: wall time, and every fence and token that was seen. Time makes a guess likely to be right, and
/// has no say in whether it is: the servers' fences decide that.
#[derive(Debug)]
pub(super) struct Guess {
    clock: Clock,
    seen: AtomicU64,
}

impl Guess {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, seen: AtomicU64::new(0) }
    }

    /// Another one each time.
    pub(super) fn next(&self) -> u64 {
        let now = self.clock.wall_micros();
        let update = self.seen.fetch_update(Relaxed, Relaxed, |seen| Some(now.max(seen + 1).min(TOKEN_MAX)));
        let (Ok(seen) | Err(seen)) = update;
        now.max(seen + 1).min(TOKEN_MAX)
    }

    /// A server's fence is or was there.
    pub(super) fn learn(&self, fence: u64) {
        self.seen.fetch_max(fence.min(TOKEN_MAX), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_grow_and_go_beyond_what_was_seen() {
        let guess = Guess::new(Clock::boot());
        let (first, second) = (guess.next(), guess.next());
        assert!(first < second);
        assert!(first > 1_600_000_000_000_000, "microseconds of our days: {first}");
        guess.learn(second + 1_000_000_000);
        assert_eq!(guess.next(), second + 1_000_000_001);
    }
}
