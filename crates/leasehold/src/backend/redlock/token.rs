//! Guesses of tokens: one that is above all that the servers have seen makes a lock cost one trip.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::Clock;

/// Lua counts in doubles, which are exact up to 2^53. The time in µs gets there in the year 2255.
pub(super) const TOKEN_MAX: u64 = (1 << 53) - 1;

/// Wall time beyond this, in the year 2200, is no time but a mistake, and would use tokens up.
const WALL_MAX: u64 = 7_258_118_400_000_000;

/// What is guessed from: wall time, and every fence and token that was seen. Time makes a guess likely to be right, and
/// has no say in whether it is: the servers' fences decide that.
#[derive(Debug)]
pub(super) struct Guess {
    clock: Clock,
    seen: AtomicU64,
    /// How far others' clocks are ahead of ours, as far as their tokens show it: without it a client whose clock is behind
    /// would need two trips each time.
    lead: AtomicU64,
}

impl Guess {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, seen: AtomicU64::new(0), lead: AtomicU64::new(0) }
    }

    /// Another one each time.
    pub(super) fn next(&self) -> u64 {
        let now = self.wall().saturating_add(self.lead.load(Relaxed));
        let now = if now > WALL_MAX { 0 } else { now };
        let update = self.seen.fetch_update(Relaxed, Relaxed, |seen| Some(now.max(seen + 1).min(TOKEN_MAX)));
        let (Ok(seen) | Err(seen)) = update;
        now.max(seen + 1).min(TOKEN_MAX)
    }

    /// A server's fence is or was there.
    pub(super) fn learn(&self, fence: u64) {
        self.seen.fetch_max(fence.min(TOKEN_MAX), Relaxed);
        self.lead.fetch_max(fence.saturating_sub(self.wall()), Relaxed);
    }

    fn wall(&self) -> u64 {
        self.clock.wall_micros()
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
        assert!(guess.next() > second + 1_000_000_000);
    }

    #[test]
    fn a_clock_that_is_behind_is_made_good_for_by_what_others_have_shown() {
        let guess = Guess::new(Clock::boot());
        let ahead = guess.next() + 3_600_000_000;
        guess.learn(ahead);
        let (first, second) = (guess.next(), guess.next());
        assert!(ahead < first && first < second && second < ahead + 60_000_000, "{ahead} {first} {second}");
    }

    #[test]
    fn a_fence_that_is_out_of_this_world_does_not_use_all_tokens_up() {
        let guess = Guess::new(Clock::boot());
        guess.learn(TOKEN_MAX - 10);
        assert_eq!([guess.next(), guess.next()], [TOKEN_MAX - 9, TOKEN_MAX - 8]);
    }
}
