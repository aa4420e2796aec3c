//! When to stop believing, when to renew, and how long to wait for an answer: the arithmetic of a lease.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, Result};

/// The shortest TTL: below it a garbage collection or a busy disk on either side looks like a death.
pub(crate) const TTL_MIN: Duration = Duration::from_secs(1);
/// TTLs below this get a warning: a third of it is all the time a renewal has before the next one is due.
pub(crate) const TTL_COMFORTABLE: Duration = Duration::from_secs(5);
/// The longest TTL: a crashed holder keeps everybody waiting this long.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest lease of a place in line: a crashed waiter stalls those behind it this long.
const WAITING_MAX: Duration = Duration::from_secs(10);
/// The longest wait for one answer of the store.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// What rounding to whole milliseconds may cost on either side.
const ROUNDING: Duration = Duration::from_millis(2);

pub(crate) fn checked_ttl(ttl: Duration) -> Result<Duration> {
    if ttl < TTL_MIN || ttl > TTL_MAX {
        return Err(Error::option("ttl", format!("is {ttl:?}; it must be from {TTL_MIN:?} to 24 hours")));
    }
    Ok(ttl)
}

/// Until when a lease may be believed in that was granted for `ttl` by a request sent at `sent_at`.
///
/// Not from the reply: if that took 800 ms, the server has been counting for 800 ms already. One percent less than the
/// server said, because its clock may run faster than ours: seen 0.035 %, disciplined clocks stay below 0.1 %.
pub(crate) fn believe_until(sent_at: Moment, ttl: Duration) -> Moment {
    sent_at.after((ttl - ttl / 100).saturating_sub(ROUNDING))
}

/// When a lease granted for `ttl` by a request sent at `sent_at` is dead on the server too, however slow its clock.
pub(crate) fn dead_after(sent_at: Moment, ttl: Duration) -> Moment {
    sent_at.after(ttl + ttl / 100 + ROUNDING)
}

/// The least that must be left of a lease for a grant to be worth returning.
pub(crate) fn least_useful(ttl: Duration) -> Duration {
    ttl / 10
}

/// How long after it was sent a renewal is followed by the next: two may fail and the third still comes in time.
pub(crate) fn renew_every(ttl: Duration) -> Duration {
    ttl / 3
}

/// How much earlier than planned a renewal may join a batch that is leaving anyway.
pub(crate) fn renew_early(ttl: Duration) -> Duration {
    renew_every(ttl) / 10
}

/// How long a renewal that failed `failures` times in a row waits for its next try.
pub(crate) fn retry_in(ttl: Duration, failures: u32) -> Duration {
    (ttl / 60).saturating_mul(1 << failures.min(10).saturating_sub(1)).min(ttl / 10)
}

/// How long to wait for one answer of the store.
pub(crate) fn attempt_limit(ttl: Duration) -> Duration {
    (ttl / 6).min(ATTEMPT_MAX)
}

/// How long to wait for one answer of the store at least, however little time there is for the lock.
pub(crate) fn answer_in(ttl: Duration) -> Duration {
    attempt_limit(ttl) / 10
}

/// How long an acquire goes on trying while the store cannot be reached.
pub(crate) fn patience_with_faults(ttl: Duration) -> Duration {
    attempt_limit(ttl) * 2
}

/// The lease of a place in line.
pub(crate) fn waiting_ttl(ttl: Duration) -> Duration {
    ttl.min(WAITING_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const START: Moment = Moment::from_nanos(0);

    #[test]
    fn belief_ends_one_percent_and_two_milliseconds_before_the_lease() {
        assert_eq!(START.until(believe_until(START, Duration::from_secs(10))), Duration::from_millis(9_898));
        assert!(believe_until(START, Duration::from_secs(10)) < dead_after(START, Duration::from_secs(10)));
    }

    #[test]
    fn two_renewals_may_time_out_before_a_third_comes_too_late() {
        for ttl in [TTL_MIN, Duration::from_secs(30), TTL_MAX] {
            let third =
                renew_every(ttl) + (attempt_limit(ttl) + retry_in(ttl, 1)) + (attempt_limit(ttl) + retry_in(ttl, 2));
            assert!(START.after(third) < believe_until(START, ttl), "{ttl:?}");
        }
    }

    #[test]
    fn a_ttl_out_of_range_is_refused_by_name() {
        for ttl in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(u64::MAX), Duration::MAX] {
            let error = checked_ttl(ttl).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOption);
            assert!(error.to_string().starts_with("ttl is "), "{error}");
        }
        assert!(checked_ttl(TTL_MIN).is_ok() && checked_ttl(TTL_MAX).is_ok());
    }
}
