//! What lines have in common on every SQL server: how a claim is written down, and whom of ours to wake.

pub(super) mod following;
pub(super) mod polling;
pub(super) mod spring;
pub(super) mod waiters;

use std::num::NonZeroU32;
use std::time::Duration;

use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{FencingToken, Ticket};
use crate::queue;

/// The most entries in one line, so that a caller gone wild fills its own line and not the disk.
pub(super) const LINE_MAX: i64 = 100_000;

/// What a lock weighs that somebody has alone, and what it has to give: more than any number of permits or of readers.
const WHOLE: i64 = 1 << 32;

/// How many waiters behind the holders look again when a holder's lease runs out. The first would do; the others are there
/// in case that it is dead too. Those behind them find out by their own recheck.
const HEIRS: u32 = 3;

/// How many times less often a waiter looks that is asked about anyway.
const POLLED_SLOWER: u32 = 16;

/// How a claim is written down: its weight, and the capacity that it sees. The rule can be counted with both.
pub(super) fn columns(claim: Claim) -> (i64, i64) {
    match claim {
        Claim::Exclusive => (WHOLE, WHOLE),
        Claim::Shared => (1, WHOLE),
        Claim::Permits { count, of } => (count.get().into(), of.get().into()),
    }
}

pub(super) fn claim(weight: i64, capacity: i64) -> Result<Claim> {
    let number = |value: i64| u32::try_from(value).ok().and_then(NonZeroU32::new);
    match (weight, capacity, number(weight), number(capacity)) {
        (WHOLE, WHOLE, ..) => Ok(Claim::Exclusive),
        (1, WHOLE, ..) => Ok(Claim::Shared),
        (.., Some(count), Some(of)) if count <= of => Ok(Claim::Permits { count, of }),
        _ => Err(protocol(format!("an entry claims {weight} of {capacity}"))),
    }
}

pub(super) fn token(claim: Claim, ticket: Ticket) -> Option<FencingToken> {
    if claim.is_exclusive() { FencingToken::new(ticket.0) } else { None }
}

pub(super) fn ticket(number: i64) -> Result<Ticket> {
    u64::try_from(number).map(Ticket).map_err(|_| protocol(format!("a ticket of {number}")))
}

/// How soon a waiter looks again: with that many ahead of it, of whom so many hold, and the first lease of theirs that ends.
/// One that is asked about with all others of its client looks less often by itself, unless it is the next.
pub(super) fn recheck_in(ahead: u32, holders: u32, soonest: Duration, polled: bool) -> Duration {
    let behind = ahead.saturating_sub(holders);
    let slower = if polled && behind > 0 { POLLED_SLOWER } else { 1 };
    queue::recheck_in(ahead.saturating_mul(slower), if behind < HEIRS { soonest } else { Duration::MAX })
}

pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// What is in the past is now.
pub(super) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

pub(super) fn protocol(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let number = |number| NonZeroU32::new(number).unwrap();
        for written in [
            Claim::Exclusive,
            Claim::Shared,
            Claim::Permits { count: number(1), of: number(1) },
            Claim::Permits { count: number(3), of: number(u32::MAX) },
        ] {
            let (weight, capacity) = columns(written);
            assert_eq!(claim(weight, capacity).unwrap(), written);
        }
        assert_eq!(claim(2, 1).unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(claim(0, WHOLE).unwrap_err().kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_thousand_waiters_look_less_than_ten_times_a_second_although_a_short_lease_is_ahead_of_them() {
        let lease = Duration::from_secs(30);
        let looks: f64 = (1..=1000).map(|ahead| 1.0 / recheck_in(ahead, 1, lease, false).as_secs_f64()).sum();
        assert!(looks < 10.0, "{looks}");
    }
}
