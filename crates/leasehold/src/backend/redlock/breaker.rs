//! How long a server is waited for, and when it is left alone: so that one that is slow or dead costs neither time nor
//! storms of requests.

use std::time::Duration;

use crate::clock::Moment;

/// A server is waited for at least this long, however quick it was so far: a busy machine is not a dead one.
const LIMIT_MIN: Duration = Duration::from_millis(50);
/// And at most this long: whoever is further away than that is too far for a lock.
const LIMIT_MAX: Duration = Duration::from_secs(1);
/// How many round trips a server is waited for.
const TRIPS: u32 = 4;
/// And at most for this part of a lease, which is what the wait is taken from.
const SHARE_OF_LEASE: u32 = 20;

/// How long a server is left alone after it failed; it doubles with each failure in a row.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How many requests may be on their way to one server.
const UNDER_WAY_MAX: usize = 4096;

/// What is known of one server's health, from its answers alone.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// A running mean of its round trips.
    trip: Option<Duration>,
    failures: u32,
    /// Until when it is left alone, if it has failed.
    alone_until: Option<Moment>,
    under_way: usize,
    /// Since when it has said nothing, though it was asked something.
    silent_since: Option<Moment>,
}

impl Breaker {
    /// Whether to send a request now. After a pause one request goes, to see whether the server is back.
    pub(super) fn admits(&mut self, now: Moment) -> bool {
        if self.under_way >= UNDER_WAY_MAX {
            return false;
        }
        match self.alone_until {
            None if self.is_silent(now) => {
                self.failed(now);
                false
            }
            None => true,
            Some(until) if now < until => false,
            Some(_) if self.is_silent(now) => {
                self.failed(now);
                true
            }
            Some(_) => {
                self.alone_until = Some(now.after(self.pause()));
                true
            }
        }
    }

    /// Whether it was waited for in vain, for longer than is its due. No timer says so: it matters when it is next to be asked.
    fn is_silent(&self, now: Moment) -> bool {
        self.silent_since.is_some_and(|since| since.until(now) > self.limit(Duration::MAX))
    }

    pub(super) fn sent(&mut self, now: Moment) {
        self.under_way += 1;
        self.silent_since.get_or_insert(now);
    }

    /// Nobody waits for that request any more, or it has come to its end.
    pub(super) fn ended(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            self.silent_since = None;
        }
    }

    /// It answered, after so long.
    pub(super) fn answered(&mut self, took: Duration, now: Moment) {
        self.silent_since = Some(now);
        self.trip = Some(match self.trip {
            None => took,
            Some(trip) => trip - trip / 8 + took / 8,
        });
        self.failures = 0;
        self.alone_until = None;
    }

    /// It did not answer in time, or could not be reached.
    pub(super) fn failed(&mut self, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        self.alone_until = Some(now.after(self.pause()));
    }

    fn pause(&self) -> Duration {
        PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(10)).min(PAUSE_MAX)
    }

    /// How long its answer is waited for, where one about a lease of `ttl` is needed.
    pub(super) fn limit(&self, ttl: Duration) -> Duration {
        let trips = self.trip.map_or(LIMIT_MAX, |trip| trip.saturating_mul(TRIPS));
        trips.clamp(LIMIT_MIN, LIMIT_MAX).min(ttl / SHARE_OF_LEASE)
    }

    /// Its round trip, if one was measured.
    pub(super) fn trip(&self) -> Option<Duration> {
        self.trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_nanos(0);
    const TTL: Duration = Duration::from_secs(30);

    #[test]
    fn a_server_is_waited_for_four_round_trips_within_bounds() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.limit(TTL), LIMIT_MAX, "nothing is known of it");
        breaker.answered(Duration::from_millis(1), START);
        assert_eq!(breaker.limit(TTL), LIMIT_MIN);
        for _ in 0..100 {
            breaker.answered(Duration::from_millis(40), START);
        }
        let limit = breaker.limit(TTL);
        assert!(limit > Duration::from_millis(150) && limit <= Duration::from_millis(160), "{limit:?}");
        breaker.answered(Duration::from_secs(60), START);
        assert_eq!(breaker.limit(TTL), LIMIT_MAX);
        assert_eq!(breaker.limit(Duration::from_secs(1)), Duration::from_millis(50), "a twentieth of the lease");
    }

    #[test]
    fn a_server_that_fails_is_asked_ever_less_and_one_that_answers_at_once() {
        let mut breaker = Breaker::default();
        let mut asked = 0;
        for ms in 0..60_000 {
            let now = START.after(Duration::from_millis(ms));
            if breaker.admits(now) {
                asked += 1;
                breaker.failed(now);
            }
        }
        assert!((25..45).contains(&asked), "asked {asked} times in a minute");
        breaker.answered(Duration::from_millis(1), START);
        assert!(breaker.admits(START) && breaker.admits(START));
    }

    #[test]
    fn a_server_that_says_nothing_for_longer_than_it_is_waited_for_is_left_alone_until_it_speaks() {
        let mut breaker = Breaker::default();
        breaker.answered(Duration::from_millis(1), START);
        breaker.sent(START);
        breaker.sent(START.after(LIMIT_MIN));
        assert!(breaker.admits(START.after(LIMIT_MIN)));
        let late = START.after(LIMIT_MIN * 2);
        assert!(!breaker.admits(late));
        assert!(!breaker.admits(late.after(PAUSE / 2)));
        assert!(breaker.admits(late.after(PAUSE)), "one request goes, to see whether it is back");
        assert!(!breaker.admits(late.after(PAUSE * 2)), "the next pause is longer");
        breaker.answered(Duration::from_millis(200), late.after(PAUSE * 2));
        breaker.ended();
        assert!(breaker.admits(late.after(PAUSE * 2)), "another request is under way, and it has just spoken");
        breaker.ended();
        assert!(breaker.admits(late.after(Duration::from_secs(60))), "nobody asks it anything");
    }

    #[test]
    fn one_request_at_a_time_tells_whether_a_server_is_back() {
        let mut breaker = Breaker::default();
        breaker.failed(START);
        assert!(!breaker.admits(START.after(PAUSE / 2)));
        assert!(breaker.admits(START.after(PAUSE)));
        assert!(!breaker.admits(START.after(PAUSE)), "it has not answered");
    }
}
