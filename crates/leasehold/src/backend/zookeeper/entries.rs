//! The entries that this client has made, as far as it knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::zookeeper::jute::Stat;
use crate::backend::{EntryId, Note, Request};
use crate::claim::Claim;
use crate::clock::Moment;
use crate::fence::{FencingToken, Ticket};
use crate::key::Key;
use crate::sync::locked;

/// An entry of ours, in the session that there is.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) claim: Claim,
    pub(super) note: Note,
    /// How long it asked to live.
    pub(super) ttl: Duration,
    /// Until when it has been asked for. What nobody renews is taken out by us: the server only knows the session.
    pub(super) until: Moment,
    /// When it was asked for.
    pub(super) since: Moment,
    pub(super) node: Node,
    /// Whether it is to go, whatever becomes of the request for that.
    pub(super) leaving: bool,
    /// How many are at it. Nobody else need see to it meanwhile, and whoever did would find it gone, or leave it gone for them.
    pub(super) departures: u32,
    pub(super) yield_asked: bool,
    /// How often its data has been changed.
    pub(super) version: i32,
    /// Whether we are told when it goes.
    pub(super) watched: bool,
}

/// What is known of an entry's node.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// It has been asked for.
    Unknown,
    /// It is there.
    Made { path: Arc<str>, ticket: Ticket, standing: Place },
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Holds,
    /// It waits for one of these to go. `next` if there is but one entry ahead, and that holds.
    Waits {
        blockers: Vec<String>,
        next: bool,
    },
}

impl Entry {
    /// One that is about to be asked for.
    pub(super) fn asked_for(request: &Request, asked_at: Moment) -> Self {
        let Request { place, claim, terms, note, .. } = request;
        Self {
            key: place.key.clone(),
            claim: *claim,
            note: note.clone(),
            ttl: terms.holding,
            until: asked_at.after(terms.holding.min(terms.waiting)),
            since: asked_at,
            node: Node::Unknown,
            leaving: false,
            departures: 0,
            yield_asked: false,
            version: 0,
            watched: false,
        }
    }

    pub(super) fn path(&self) -> Option<Arc<str>> {
        match &self.node {
            Node::Unknown => None,
            Node::Made { path, .. } => Some(path.clone()),
        }
    }

    pub(super) fn holds(&self) -> bool {
        matches!(self.node, Node::Made { standing: Place::Holds, .. })
    }

    pub(super) fn token(&self) -> Option<FencingToken> {
        match &self.node {
            Node::Made { ticket, .. } if self.claim.is_exclusive() => FencingToken::new(ticket.0),
            _ => None,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Entries {
    state: Mutex<State>,
    /// Somebody has to be looked after.
    pub(super) news: Notify,
}

#[derive(Debug, Default)]
struct State {
    all: HashMap<EntryId, Entry>,
    by_path: HashMap<Arc<str>, EntryId>,
    /// Those that nobody watches yet.
    unwatched: Vec<EntryId>,
}

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.state).all.is_empty()
    }

    pub(super) fn find(&self, id: EntryId) -> Option<Entry> {
        locked(&self.state).all.get(&id).cloned()
    }

    pub(super) fn at(&self, path: &str) -> Option<EntryId> {
        locked(&self.state).by_path.get(path).copied()
    }

    /// An entry is about to be asked for.
    pub(super) fn begin(&self, id: EntryId, entry: Entry) {
        locked(&self.state).all.insert(id, entry);
    }

    /// It is there. False if its session has ended meanwhile, and it with it.
    pub(super) fn made(&self, id: EntryId, path: &str, stat: Stat) -> bool {
        let mut state = locked(&self.state);
        let path: Arc<str> = path.into();
        let Some(entry) = state.all.get_mut(&id) else { return false };
        let ticket = Ticket(stat.czxid.unsigned_abs());
        let standing = Place::Waits { blockers: Vec::new(), next: false };
        entry.node = Node::Made { path: path.clone(), ticket, standing };
        entry.version = stat.version;
        state.by_path.insert(path, id);
        if state.unwatched.is_empty() {
            self.news.notify_one();
        }
        state.unwatched.push(id);
        true
    }

    /// Where it stands now.
    pub(super) fn stands(&self, id: EntryId, place: Place) {
        self.change(id, |entry| {
            if let Node::Made { standing, .. } = &mut entry.node {
                *standing = place;
            }
        });
    }

    /// It has been asked for until then.
    pub(super) fn extend(&self, id: EntryId, until: Moment) {
        self.change(id, |entry| entry.until = entry.until.max(until));
    }

    pub(super) fn change<T>(&self, id: EntryId, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        locked(&self.state).all.get_mut(&id).map(change)
    }

    /// It is to go, and that is seen to until what this returns is dropped. With the entry as it is now, if it is one of ours.
    pub(super) fn depart(&self, id: EntryId) -> (Option<Entry>, Departing<'_>) {
        let entry = self.change(id, |entry| {
            entry.leaving = true;
            entry.departures += 1;
            entry.clone()
        });
        (entry, Departing { entries: self, id })
    }

    pub(super) fn remove(&self, id: EntryId) -> Option<Entry> {
        let mut state = locked(&self.state);
        let entry = state.all.remove(&id)?;
        if let Some(path) = entry.path() {
            state.by_path.remove(&path);
        }
        Some(entry)
    }

    /// The session is over: none is there any more.
    pub(super) fn clear(&self) -> Vec<EntryId> {
        let state = std::mem::take(&mut *locked(&self.state));
        state.all.into_keys().collect()
    }

    /// Those that nobody watches yet, and which are someone else's to watch from now on.
    pub(super) fn take_unwatched(&self) -> Vec<(EntryId, Arc<str>)> {
        let mut state = locked(&self.state);
        let ids = std::mem::take(&mut state.unwatched);
        let there = |id: EntryId| Some((id, state.all.get(&id).filter(|entry| !entry.leaving)?.path()?));
        ids.into_iter().filter_map(there).collect()
    }

    /// What was watched is not any more.
    pub(super) fn unwatch_all(&self) {
        let mut state = locked(&self.state);
        let State { all, unwatched, .. } = &mut *state;
        unwatched.clear();
        for (id, entry) in all.iter_mut() {
            entry.watched = false;
            unwatched.push(*id);
        }
    }

    /// Those that have to be taken out: to go, or not asked for any more.
    pub(super) fn overdue(&self, now: Moment) -> Vec<EntryId> {
        let state = locked(&self.state);
        let overdue = |entry: &Entry| entry.until <= now && entry.departures == 0;
        state.all.iter().filter(|(_, entry)| overdue(entry)).map(|(id, _)| *id).collect()
    }

    /// Those whose departure has not been confirmed, and which nobody is at.
    pub(super) fn leaving(&self) -> Vec<EntryId> {
        let state = locked(&self.state);
        let stuck = |entry: &Entry| entry.leaving && entry.departures == 0;
        state.all.iter().filter(|(_, entry)| stuck(entry)).map(|(id, _)| *id).collect()
    }
}

/// Somebody is at it.
pub(super) struct Departing<'a> {
    entries: &'a Entries,
    id: EntryId,
}

impl Drop for Departing<'_> {
    fn drop(&mut self) {
        self.entries.change(self.id, |entry| entry.departures = entry.departures.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Patience, Terms};
    use crate::key::Namespace;

    #[test]
    fn a_departure_that_somebody_is_at_is_nobody_elses_to_see_to() {
        let (entries, id, start) = (Entries::default(), EntryId(7), Moment::from_nanos(0));
        let request = Request {
            place: crate::backend::Place { key: Key::new(&Namespace::default(), "k").unwrap(), entry: id },
            claim: Claim::Exclusive,
            patience: Patience::Queue,
            terms: Terms { holding: Duration::ZERO, waiting: Duration::ZERO },
            note: Note { owner: "".into(), host: "".into(), pid: 1, value: None },
            returns: false,
        };
        entries.begin(id, Entry::asked_for(&request, start));
        assert_eq!((entries.leaving(), entries.overdue(start)), (vec![], vec![id]));
        let (_, departing) = entries.depart(id);
        assert_eq!((entries.leaving(), entries.overdue(start)), (vec![], vec![]));
        drop(departing);
        assert_eq!((entries.leaving(), entries.overdue(start)), (vec![id], vec![id]), "it was not confirmed");
    }
}
