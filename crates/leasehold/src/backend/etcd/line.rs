//! A key's line as the server has it, and what the rule makes of it.

use std::time::Duration;

use crate::backend::etcd::message::{KeyValue, Ranged};
use crate::backend::etcd::names::{self, Label};
use crate::backend::{EntryId, EntryView, KeyView, Place};
use crate::claim::{Capacity, Claim};
use crate::fence::{FencingToken, Ticket};
use crate::key::Key;
use crate::queue;

/// The entries of a key, in the order in which they were made.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) members: Vec<Member>,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) key: Vec<u8>,
    pub(super) entry: EntryId,
    pub(super) claim: Claim,
    /// What it says of itself; `None` if another program made it.
    label: Option<Label>,
    value: Vec<u8>,
    pub(super) lease: i64,
    /// Its create revision.
    pub(super) ticket: i64,
}

impl Member {
    /// An entry in the line that begins so. It has to be read with its value.
    pub(super) fn of(line: &[u8], kv: KeyValue) -> Self {
        let rest = kv.key.strip_prefix(line).unwrap_or_default();
        let label = Label::of(line, &kv.key, &kv.value);
        let (entry, claim) = match &label {
            Some(label) => (label.entry, label.claim),
            // The Go client knows no other claim.
            None => (names::foreign_id(rest), Claim::Exclusive),
        };
        Self { key: kv.key, entry, claim, label, value: kv.value, lease: kv.lease, ticket: kv.create_revision }
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.label.is_none()
    }

    fn token(&self) -> Option<FencingToken> {
        if self.claim.is_exclusive() { FencingToken::new(self.ticket.cast_unsigned()) } else { None }
    }

    /// How it is shown. Without a better source, its lease has as much left as it can have.
    fn view(&self, key: &Key, line: &[u8], holds: bool, sight: &Sight<'_>) -> EntryView {
        let note = match &self.label {
            Some(label) => label.note.clone(),
            None => names::foreign_note(self.key.strip_prefix(line).unwrap_or_default(), &self.value),
        };
        let entered_ms = self.label.as_ref().map_or(sight.wall_ms, |label| label.entered_ms);
        let longest = self.label.as_ref().map_or(Duration::ZERO, |label| Duration::from_secs(label.ttl_s));
        EntryView {
            place: Place { key: key.clone(), entry: self.entry },
            claim: self.claim,
            ticket: Ticket(self.ticket.cast_unsigned()),
            token: if holds { self.token() } else { None },
            note,
            age: Duration::from_millis(sight.wall_ms.saturating_sub(entered_ms)),
            lease_left: (sight.lease_left)(self.lease).unwrap_or(longest),
            yield_asked: sight.wished.contains(&self.entry),
            foreign: self.is_foreign(),
            spread: None,
        }
    }
}

/// What is known besides the line when it is shown.
pub(super) struct Sight<'a> {
    /// What our wall clock shows, in ms since 1970: entries say when they were made by the clocks of their own machines.
    pub(super) wall_ms: u64,
    pub(super) lease_left: &'a dyn Fn(i64) -> Option<Duration>,
    /// Entries whose holders were asked to let go.
    pub(super) wished: &'a [EntryId],
}

impl Line {
    /// From an answer that is sorted by create revision and has values.
    pub(super) fn of(line: &[u8], ranged: Ranged) -> Self {
        Self { members: ranged.kvs.into_iter().map(|kv| Member::of(line, kv)).collect() }
    }

    pub(super) fn capacity(&self) -> Option<Capacity> {
        self.members.first().map(|first| first.claim.capacity())
    }

    pub(super) fn holders(&self) -> usize {
        let weights = self.members.iter().map(|member| member.claim.weight());
        self.capacity().map_or(0, |capacity| queue::holders(capacity, weights))
    }

    /// Whether somebody who came now with that claim would hold at once.
    pub(super) fn has_room_for(&self, claim: Claim) -> bool {
        let weights = self.members.iter().map(|member| member.claim.weight()).chain([claim.weight()]);
        queue::holders(claim.capacity(), weights) > self.members.len()
    }

    pub(super) fn position(&self, entry: EntryId) -> Option<usize> {
        self.members.iter().position(|member| member.entry == entry)
    }

    /// Whether anybody is at that key.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.members.iter().any(|member| member.key == key)
    }

    pub(super) fn view(&self, key: &Key, line: &[u8], sight: &Sight<'_>) -> KeyView {
        let holders = self.holders();
        let views: Vec<EntryView> =
            (self.members.iter().enumerate()).map(|(at, member)| member.view(key, line, at < holders, sight)).collect();
        let (holding, waiting) = views.split_at(holders);
        KeyView {
            key: key.clone(),
            capacity: self.capacity(),
            holders: holding.to_vec(),
            waiters: Some(waiting.to_vec()),
        }
    }

    /// Where the entry at that position stands.
    pub(super) fn stand(&self, at: usize) -> Stand {
        let (own, ahead) = (&self.members[at], &self.members[..at]);
        match Blocker::of(own.claim, ahead) {
            None => Stand::Holding { ticket: own.ticket },
            Some(blocker) => Stand::Waiting { ticket: own.ticket, ahead: Some(count(at)), blocker },
        }
    }
}

pub(super) fn count(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Where an entry stands.
#[derive(Clone, Debug)]
pub(super) enum Stand {
    Holding { ticket: i64 },
    Waiting { ticket: i64, ahead: Option<u32>, blocker: Blocker },
    Gone,
}

/// What must go before an entry can hold, by the keys at which it was seen: whoever comes to such a key later is behind us.
///
/// Only that is watched: for an exclusive claim the entry right before it, for a shared one the nearest exclusive one. When
/// it is gone somebody further ahead may still be in the way, and is watched next. So nobody is woken but whoever may hold,
/// and one look is made for each departure, however long the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blocker {
    /// This entry.
    Entry(Vec<u8>),
    /// Any of these, until the rest weigh no more than there is room for. Departures ahead of a counted claim add up, so
    /// that no single one of them can be waited for.
    Weights { ahead: Vec<(Vec<u8>, u32)>, room: u32 },
}

impl Blocker {
    /// `None` if nothing is in the way of that claim.
    pub(super) fn of(claim: Claim, ahead: &[Member]) -> Option<Self> {
        match claim {
            Claim::Exclusive => ahead.last().map(|last| Self::Entry(last.key.clone())),
            Claim::Shared => {
                let nearest = ahead.iter().rfind(|member| member.claim != Claim::Shared);
                nearest.map(|nearest| Self::Entry(nearest.key.clone()))
            }
            Claim::Permits { count, of } => {
                let ahead = ahead.iter().map(|member| (member.key.clone(), member.claim.weight())).collect();
                let blocker = Self::Weights { ahead, room: of.get() - count.get() };
                blocker.is_in_the_way().then_some(blocker)
            }
        }
    }

    /// Takes note that an entry is gone. True if nothing that we know of is in the way any more.
    pub(super) fn leaves(&mut self, key: &[u8]) -> bool {
        match self {
            Self::Entry(blocker) => blocker == key,
            Self::Weights { ahead, .. } => {
                ahead.retain(|(member, _)| member != key);
                !self.is_in_the_way()
            }
        }
    }

    fn is_in_the_way(&self) -> bool {
        match self {
            Self::Entry(_) => true,
            Self::Weights { ahead, room } => {
                ahead.iter().map(|(_, weight)| u64::from(*weight)).sum::<u64>() > u64::from(*room)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::Note;
    use crate::key::Namespace;

    fn line_of(claims: &[Claim]) -> Line {
        let line = names::line(&Key::new(&Namespace::default(), "k").unwrap());
        let members = claims.iter().enumerate().map(|(nth, claim)| {
            let entry = EntryId(nth as u128);
            let label = Label { entry, claim: *claim, note: Note::default(), entered_ms: 0, ttl_s: 30 };
            let key = names::slot(&names::beginning(&line, *claim, 7), nth as u32);
            let (create_revision, value) = (nth as i64 + 1, label.value());
            Member::of(&line, KeyValue { key, create_revision, value, ..KeyValue::default() })
        });
        Line { members: members.collect() }
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let locks = prop::collection::vec(prop_oneof![Just(Claim::Exclusive), Just(Claim::Shared)], 1..12);
        let permits = (1..5u32).prop_flat_map(|of| {
            let claim =
                move |count: u32| Claim::Permits { count: count.try_into().unwrap(), of: of.try_into().unwrap() };
            prop::collection::vec((1..=of).prop_map(claim), 1..12)
        });
        prop_oneof![locks, permits]
    }

    proptest! {
        /// An entry stands as the rule says; and when all that it waits for has gone, it holds or waits for somebody else.
        #[test]
        fn whoever_waits_waits_for_somebody_ahead_without_whom_it_may_hold(claims in claims(), at in any::<prop::sample::Index>()) {
            let mut line = line_of(&claims);
            let own = EntryId(at.index(claims.len()) as u128);
            loop {
                let at = line.position(own).unwrap();
                match line.stand(at) {
                    Stand::Holding { .. } => {
                        prop_assert!(at < line.holders());
                        break;
                    }
                    Stand::Waiting { blocker, ahead, .. } => {
                        prop_assert!(at >= line.holders());
                        prop_assert_eq!(ahead, Some(count(at)));
                        let mut left = blocker.clone();
                        let gone = line.members[..at].iter().position(|member| left.leaves(&member.key));
                        let gone = gone.expect("it waits for somebody ahead");
                        // Whether it counts departures one by one or all together, it comes to the same.
                        match blocker {
                            Blocker::Entry(_) => drop(line.members.remove(gone)),
                            Blocker::Weights { .. } => drop(line.members.drain(..=gone)),
                        }
                    }
                    Stand::Gone => unreachable!("it is in line"),
                }
            }
        }
    }

    #[test]
    fn a_stranger_in_a_line_of_permits_is_in_the_way_of_all_behind_it() {
        let two = Claim::Permits { count: 1.try_into().unwrap(), of: 2.try_into().unwrap() };
        let mut line = line_of(&[two, Claim::Exclusive, two]);
        assert!(matches!(line.stand(2), Stand::Waiting { .. }));
        line.members.remove(1);
        assert!(matches!(line.stand(1), Stand::Holding { .. }));
    }
}
