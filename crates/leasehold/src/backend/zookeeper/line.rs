//! A key's line, as the names in its folder tell it: who holds, who waits, and for whom. No clock, no I/O.

use crate::backend::EntryId;
use crate::backend::zookeeper::names::Named;
use crate::claim::Capacity;
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Escaped, Key};
use crate::queue;

/// The entries of a key in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) entries: Vec<Named>,
    /// How many of the first entries hold.
    pub(super) holders: usize,
}

impl Line {
    /// Refuses a folder that is used for something else than locks.
    pub(super) fn of(names: &[String], key: &Key) -> Result<Self> {
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let Some(named) = Named::parse(name) else {
                let why = format!(
                    "the key's folder has a node that belongs to no lock, \"{}\": it is used for something else",
                    Escaped(name.as_bytes())
                );
                return Err(Error::new(ErrorKind::KindMismatch, why).at(key));
            };
            entries.push(named);
        }
        Ok(Self::sorted(entries))
    }

    pub(super) fn sorted(mut entries: Vec<Named>) -> Self {
        entries.sort_by(Named::cmp_in_line);
        let mut line = Self { entries, holders: 0 };
        line.holders = line
            .capacity()
            .map_or(0, |capacity| queue::holders(capacity, line.entries.iter().map(|entry| line.weight(entry))));
        line
    }

    /// Everybody agrees on it: whoever does not leaves again.
    pub(super) fn capacity(&self) -> Option<Capacity> {
        self.entries.first().map(|first| first.claim.capacity())
    }

    /// How much an entry takes. One that takes the key for something else fits nowhere.
    fn weight(&self, entry: &Named) -> u32 {
        if Some(entry.claim.capacity()) == self.capacity() { entry.claim.weight() } else { u32::MAX }
    }

    pub(super) fn position(&self, id: EntryId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id)
    }

    /// Names of entries ahead of the one at `at`, as few as possible: while all of them are there, it cannot hold. So
    /// whoever waits for one of them to go misses nothing, and is not woken for others.
    pub(super) fn blockers(&self, at: usize) -> Vec<&str> {
        let Some(capacity) = self.capacity() else { return Vec::new() };
        let own = u64::from(self.weight(&self.entries[at]));
        let mut needed = (u64::from(capacity.size()) + 1).saturating_sub(own);
        let mut blockers = Vec::new();
        let mut total = 0;
        // Those next ahead first: they go last.
        for entry in self.entries[..at].iter().rev() {
            let weight = u64::from(self.weight(entry));
            total += weight;
            blockers.push((weight, &*entry.name));
            if total >= needed.max(1) {
                break;
            }
        }
        needed = needed.max(1);
        // The lightest first: what is left without them is enough.
        blockers.sort_by_key(|(weight, _)| *weight);
        blockers.retain(|(weight, _)| {
            let spared = total - weight >= needed;
            if spared {
                total -= weight;
            }
            !spared
        });
        blockers.into_iter().map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::claim::Claim;

    fn named(nth: usize, claim: Claim) -> Named {
        let (sequence, id) = (i32::try_from(nth).unwrap(), EntryId(nth as u128));
        Named { name: nth.to_string(), id, claim, sequence }
    }

    fn line(claims: &[Claim]) -> Line {
        Line::sorted(claims.iter().enumerate().map(|(nth, claim)| named(nth, *claim)).collect())
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let locks = prop::collection::vec(prop_oneof![Just(Claim::Exclusive), Just(Claim::Shared)], 1..20);
        let permits = (1..9u32).prop_flat_map(|of| {
            let permit = (1..=of).prop_map(move |count| Claim::Permits {
                count: NonZeroU32::new(count).unwrap(),
                of: NonZeroU32::new(of).unwrap(),
            });
            prop::collection::vec(permit, 1..20)
        });
        prop_oneof![locks, permits]
    }

    proptest! {
        /// Whoever else leaves: a waiter sleeps only while it cannot hold.
        #[test]
        fn a_waiter_cannot_hold_while_all_of_its_blockers_are_there(
            claims in claims(),
            leaving in prop::collection::vec(any::<bool>(), 20),
        ) {
            let whole = line(&claims);
            for at in whole.holders..whole.entries.len() {
                let blockers = whole.blockers(at);
                prop_assert!(!blockers.is_empty());
                let own = whole.entries[at].id;
                let stays = |(nth, entry): &(usize, &Named)| {
                    !leaving[*nth] || entry.id == own || blockers.contains(&&*entry.name)
                };
                let rest: Vec<Named> =
                    whole.entries.iter().enumerate().filter(stays).map(|(_, entry)| entry.clone()).collect();
                let rest = Line::sorted(rest);
                prop_assert!(rest.position(own).unwrap() >= rest.holders, "{at} sleeps beside its turn");
            }
        }

        /// None of them is watched for nothing.
        #[test]
        fn no_blocker_could_be_left_out(claims in claims()) {
            let whole = line(&claims);
            for at in whole.holders..whole.entries.len() {
                for spared in whole.blockers(at) {
                    let blockers: Vec<&str> = whole.blockers(at).into_iter().filter(|name| *name != spared).collect();
                    let kept = whole.entries[..at].iter().filter(|entry| blockers.contains(&&*entry.name));
                    let alone: Vec<Named> = kept.chain([&whole.entries[at]]).cloned().collect();
                    let alone = Line::sorted(alone);
                    prop_assert_eq!(alone.holders, alone.entries.len(), "{} could be left out", spared);
                }
            }
        }
    }

    #[test]
    fn a_writer_waits_for_whoever_is_next_ahead_and_a_reader_for_the_nearest_writer() {
        use Claim::{Exclusive, Shared};
        let line = line(&[Shared, Exclusive, Shared, Shared, Exclusive, Shared]);
        assert_eq!(line.holders, 1);
        assert_eq!(line.blockers(1), ["0"]);
        assert_eq!(line.blockers(3), ["1"]);
        assert_eq!(line.blockers(4), ["3"]);
        assert_eq!(line.blockers(5), ["4"]);
    }

    #[test]
    fn a_folder_that_is_no_line_is_refused() {
        let key = Key::new(&crate::key::Namespace::default(), "k").unwrap();
        let error = Line::of(&["leases".into(), "locks".into()], &key).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KindMismatch);
        assert!(error.to_string().contains("\"leases\""), "{error}");
    }
}
