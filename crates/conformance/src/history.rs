//! Who believed to hold what, when, and whether that could have been right.

use std::sync::{Arc, Mutex};

use leasehold::FencingToken;
use leasehold::clock::Moment;

/// The belief intervals of one key, recorded by all who hold it.
#[derive(Clone, Debug, Default)]
pub struct History {
    beliefs: Arc<Mutex<Vec<Belief>>>,
}

/// From the moment that the lock was returned to the moment before it was given up.
#[derive(Clone, Copy, Debug)]
struct Belief {
    from: Moment,
    until: Moment,
    weight: u32,
    token: Option<FencingToken>,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Somebody believed to hold `weight` of the key for that time.
    pub fn believed(&self, from: Moment, until: Moment, weight: u32, token: Option<FencingToken>) {
        assert!(from <= until, "a belief cannot end before it begins");
        self.beliefs.lock().expect("no panic under this lock").push(Belief { from, until, weight, token });
    }

    /// How many beliefs there were.
    pub fn len(&self) -> usize {
        self.beliefs.lock().expect("no panic under this lock").len()
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fails if at any moment more than `capacity` was believed to be held, or if tokens did not grow from each belief
    /// to every one that began after it had begun.
    pub fn check(&self, capacity: u32) {
        let mut beliefs = self.beliefs.lock().expect("no panic under this lock").clone();
        beliefs.sort_by_key(|belief| (belief.from, belief.until));
        let mut open: Vec<Belief> = Vec::new();
        for belief in &beliefs {
            open.retain(|earlier| earlier.until > belief.from);
            open.push(*belief);
            let held: u32 = open.iter().map(|belief| belief.weight).sum();
            assert!(held <= capacity, "{held} of {capacity} were believed to be held at once: {open:#?}");
        }
        let tokens: Vec<FencingToken> = beliefs.iter().filter_map(|belief| belief.token).collect();
        for pair in tokens.windows(2) {
            assert!(pair[0] < pair[1], "token {} was followed by {}", pair[0], pair[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::clock::Clock;

    use super::*;

    fn record(beliefs: &[(u64, u64, u64)]) -> History {
        let (history, start) = (History::new(), Clock::boot().now());
        for (from, until, token) in beliefs {
            let at = |millis: &u64| start.after(Duration::from_millis(*millis));
            history.believed(at(from), at(until), 1, FencingToken::new(*token));
        }
        history
    }

    #[test]
    fn beliefs_that_touch_are_fine() {
        record(&[(0, 5, 1), (5, 9, 2), (9, 9, 3)]).check(1);
    }

    #[test]
    #[should_panic(expected = "believed to be held at once")]
    fn an_overlap_is_found() {
        record(&[(0, 5, 1), (6, 9, 2), (4, 5, 3)]).check(1);
    }

    #[test]
    #[should_panic(expected = "token 3 was followed by 2")]
    fn a_token_that_went_back_is_found() {
        record(&[(0, 5, 3), (5, 9, 2)]).check(1);
    }
}
