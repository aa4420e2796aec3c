//! What time it is for the servers, as far as their answers tell. For showing how old entries are, and nothing else.

use std::sync::Mutex;
use std::time::Duration;

use crate::clock::unix_time_in;
use crate::sync::locked;

/// By how many milliseconds the leader's wall clock is ahead of ours: at least the one and at most the other.
#[derive(Debug)]
pub(super) struct ServerTime(Mutex<(i64, i64)>);

impl ServerTime {
    pub(super) fn new() -> Self {
        Self(Mutex::new((i64::MIN, i64::MAX)))
    }

    /// Our own wall clock, in ms since 1970.
    pub(super) fn wall(&self) -> i64 {
        i64::try_from(unix_time_in(Duration::ZERO).as_millis()).unwrap_or(i64::MAX)
    }

    /// The leader's clock showed this between `asked_at` and now.
    pub(super) fn learn(&self, shown: i64, asked_at: i64) {
        let (at_least, at_most) = (shown.saturating_sub(self.wall() + 1), shown.saturating_sub(asked_at - 1));
        let mut lead = locked(&self.0);
        *lead = (lead.0.max(at_least), lead.1.min(at_most));
        if lead.0 > lead.1 {
            // One of the clocks was set meanwhile.
            *lead = (at_least, at_most);
        }
    }

    /// How long ago that was. As our own clock has it, unless the leader's is known to differ.
    pub(super) fn age(&self, ctime: i64) -> Duration {
        let (at_least, at_most) = *locked(&self.0);
        let lead = 0.clamp(at_least, at_most);
        let age = self.wall().saturating_add(lead).saturating_sub(ctime);
        Duration::from_millis(u64::try_from(age).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_on_the_leaders_clock() {
        let time = ServerTime::new();
        let now = time.wall();
        assert!(time.age(now - 500).as_millis().abs_diff(500) < 100);
        time.learn(now + 60_000, now);
        assert!(time.age(now + 60_000 - 500).as_millis().abs_diff(500) < 100);
        time.learn(now - 60_000, now);
        assert!(time.age(now - 60_000 - 500).as_millis().abs_diff(500) < 100, "its clock was set");
        assert_eq!(time.age(i64::MAX), Duration::ZERO);
    }
}
