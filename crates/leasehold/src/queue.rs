//! Who holds and who waits: the one rule under every primitive, as pure arithmetic. No clock, no I/O.
//!
//! **A key is a line of entries in ticket order. Its holders are the longest prefix whose weights fit the capacity.**
//!
//! From this one sentence follow the promises that the tests below check on random lines:
//! - nobody's arrival or departure takes a grant back;
//! - grants follow ticket order, so an exclusive grant's ticket grows with each grant and can serve as its token;
//! - the holders never weigh more than the capacity;
//! - whoever stays in line is granted once enough of those ahead have left, however many arrive behind: neither a writer
//!   behind readers nor a wide permit behind narrow ones starves.

use std::time::Duration;

use crate::claim::Capacity;

/// How soon the first in line looks again when nothing woke it.
const RECHECK: Duration = Duration::from_secs(1);

/// How many of a line's first entries hold the key, given the entries' weights in ticket order.
pub fn holders(capacity: Capacity, weights: impl IntoIterator<Item = u32>) -> usize {
    let mut room = capacity.size();
    weights
        .into_iter()
        .take_while(|weight| match room.checked_sub(*weight) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        })
        .count()
}

/// How long a waiter may sleep before it looks again by itself, in case the wake-up was lost.
///
/// At the latest when a lease ahead of it runs out, since nobody announces an expiry. Otherwise later the further back
/// it stands: a place in line cannot come up before those ahead of it, and a thousand waiters then cost the store
/// Σ 1/(n+1) ≈ 8 looks a second rather than a thousand.
pub fn recheck_in(ahead: u32, shortest_lease_ahead: Duration) -> Duration {
    RECHECK.saturating_mul(ahead.max(1)).min(shortest_lease_ahead).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::claim::Claim;

    /// A line whose claims agree on their capacity: either reads and writes, or permits of one semaphore.
    fn line() -> impl Strategy<Value = (Capacity, Vec<u32>)> {
        let locks = prop::collection::vec(prop_oneof![Just(Claim::Exclusive), Just(Claim::Shared)], 0..30)
            .prop_map(|claims| (Capacity::Whole, claims.into_iter().map(Claim::weight).collect()));
        let permits = (1..9u32).prop_flat_map(|of| {
            let capacity = Capacity::Permits(NonZeroU32::new(of).unwrap());
            prop::collection::vec(1..=of, 0..30).prop_map(move |weights| (capacity, weights))
        });
        prop_oneof![locks, permits]
    }

    proptest! {
        #[test]
        fn holders_never_weigh_more_than_the_capacity((capacity, line) in line()) {
            let held = holders(capacity, line.iter().copied());
            let weight: u64 = line[..held].iter().map(|w| u64::from(*w)).sum();
            prop_assert!(weight <= u64::from(capacity.size()));
        }

        #[test]
        fn no_permit_is_left_unused_that_the_next_in_line_could_take((capacity, line) in line()) {
            let held = holders(capacity, line.iter().copied());
            if let Some(next) = line.get(held) {
                let weight: u64 = line[..=held].iter().map(|w| u64::from(*w)).sum();
                prop_assert!(weight > u64::from(capacity.size()), "{next} would have fitted");
            }
        }

        #[test]
        fn an_arrival_takes_no_grant_back((capacity, line) in line(), arriving in 1..9u32) {
            let before = holders(capacity, line.iter().copied());
            let after = holders(capacity, line.iter().copied().chain([arriving]));
            prop_assert!(after >= before);
            prop_assert!(after <= before || before == line.len(), "an arrival overtook somebody");
        }

        #[test]
        fn a_departure_takes_no_grant_back((capacity, line) in line(), leaver in any::<prop::sample::Index>()) {
            prop_assume!(!line.is_empty());
            let leaver = leaver.index(line.len());
            let before = holders(capacity, line.iter().copied());
            let mut rest = line.clone();
            rest.remove(leaver);
            let still_there = before - usize::from(leaver < before);
            prop_assert!(holders(capacity, rest) >= still_there);
        }

        /// Whatever arrives behind, an entry is a holder once all ahead of it have left.
        #[test]
        fn whoever_stays_is_served((capacity, line) in line(), arrivals in prop::collection::vec(1..3u32, 0..60)) {
            let mut arrivals = arrivals.into_iter();
            let mut rest = line.clone();
            for served in &line {
                prop_assert!(holders(capacity, rest.iter().copied()) >= 1, "{served} is first and does not hold");
                rest.remove(0);
                rest.extend(arrivals.next());
            }
        }
    }

    #[test]
    fn readers_share_until_a_writer_stands_in_line() {
        let (read, write) = (Claim::Shared.weight(), Claim::Exclusive.weight());
        assert_eq!(holders(Capacity::Whole, [read, read, write, read]), 2);
        assert_eq!(holders(Capacity::Whole, [write, read, read]), 1);
        assert_eq!(holders(Capacity::Whole, [read, read, read]), 3);
    }

    #[test]
    fn narrow_permits_do_not_overtake_a_wide_one() {
        let capacity = Capacity::Permits(NonZeroU32::new(4).unwrap());
        assert_eq!(holders(capacity, [2, 3, 1, 1]), 1);
        assert_eq!(holders(capacity, [3, 1, 1]), 2);
    }

    #[test]
    fn a_thousand_waiters_look_again_less_than_ten_times_a_second() {
        let day = Duration::from_secs(86_400);
        let looks: f64 = (1..=1000).map(|ahead| 1.0 / recheck_in(ahead, day).as_secs_f64()).sum();
        assert!(looks < 10.0, "{looks}");
    }

    #[test]
    fn a_waiter_looks_again_when_a_lease_ahead_runs_out() {
        assert_eq!(recheck_in(500, Duration::from_millis(80)), Duration::from_millis(80));
    }
}
