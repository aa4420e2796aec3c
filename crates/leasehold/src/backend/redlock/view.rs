//! One key as the servers see it together.

use std::collections::BTreeMap;

use crate::backend::redlock::node::{SeenEntry, Sight};
use crate::backend::redlock::quorum::majority;
use crate::backend::{EntryId, EntryView, Place, Spread};
use crate::claim::Claim;
use crate::fence::{FencingToken, Ticket};
use crate::key::Key;

/// Who holds a key, when these sights are what answered of so many servers and `silent` did not. Whoever has it on so few
/// that it cannot be a majority does not hold it: it is an attempt under way, or what is left of one.
pub(super) fn merged(key: &Key, sights: &[&Sight], servers: usize, silent: usize) -> Vec<EntryView> {
    let mut found: BTreeMap<EntryId, Vec<&SeenEntry>> = BTreeMap::new();
    for entry in sights.iter().flat_map(|sight| &sight.entries) {
        found.entry(entry.entry).or_default().push(entry);
    }
    let holding = found.into_values().filter(|seen| seen.len() + silent >= majority(servers));
    let mut holders: Vec<EntryView> = holding.map(|seen| entry_view(key, &seen, servers)).collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.age), holder.place.entry));
    holders
}

/// What is said of one entry in several places.
fn entry_view(key: &Key, seen: &[&SeenEntry], servers: usize) -> EntryView {
    let first = seen[0];
    let most = |what: fn(&SeenEntry) -> u64| seen.iter().map(|entry| what(entry)).max().unwrap_or_default();
    let token = if first.shared || first.foreign { 0 } else { most(|entry| entry.token) };
    EntryView {
        place: Place { key: key.clone(), entry: first.entry },
        claim: if first.shared { Claim::Shared } else { Claim::Exclusive },
        ticket: Ticket(token),
        token: FencingToken::new(token),
        note: first.note.clone(),
        age: seen.iter().map(|entry| entry.age).max().unwrap_or_default(),
        lease_left: seen.iter().map(|entry| entry.lease_left).max().unwrap_or_default(),
        yield_asked: seen.iter().any(|entry| entry.yield_asked),
        foreign: first.foreign,
        spread: Some(Spread { on: count(seen.len()), of: count(servers) }),
    }
}

fn count(servers: usize) -> u32 {
    u32::try_from(servers).unwrap_or(u32::MAX)
}
