//! What this client has in lines, and what has become of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use tokio::sync::Notify;

use crate::backend::etcd::hub::Watching;
use crate::backend::etcd::line::{Blocker, Stand};
use crate::backend::etcd::names::{self, Label};
use crate::backend::etcd::session::Session;
use crate::backend::notices::NoticeBoard;
use crate::backend::{EntryId, Notice, Place};
use crate::claim::Claim;
use crate::clock::Moment;
use crate::sync::locked;

/// The entries of this client, by their ids.
#[derive(Debug)]
pub(super) struct Roster {
    entries: Mutex<HashMap<EntryId, Own>>,
    pub(super) notices: NoticeBoard,
}

/// An entry that we have, or may have.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) place: Place,
    pub(super) claim: Claim,
    pub(super) session: Arc<Session>,
    pub(super) written: Arc<Written>,
    /// Its create revision, once we have heard that it is there.
    pub(super) ticket: Option<i64>,
    /// Whether it holds. A grant is never taken back.
    pub(super) holds: bool,
    /// What it waits for, and the revision at which that was seen.
    pub(super) waits: Option<(Blocker, i64)>,
    pub(super) fate: Arc<Fate>,
    /// Until when whoever asked for it was last told to believe in it.
    pub(super) believed_until: Moment,
    /// Its key and the wish for it, while they are being watched.
    watching: Option<Arc<[Watching; 2]>>,
}

/// How an entry is written on the server.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) key: Vec<u8>,
    /// With what it was made.
    pub(super) value: Vec<u8>,
    pub(super) label: Label,
    /// Whose key that is; `None` for a candidate, which has one of its own.
    pub(super) slot: Option<Slot>,
}

#[derive(Debug)]
pub(super) struct Slot {
    beginning: Vec<u8>,
    number: u32,
}

impl Written {
    /// Takes a slot of that session for it. A candidate's value must be its own, so that it has a key of its own as well.
    pub(super) fn new(label: Label, line: &[u8], session: &Session) -> Self {
        let beginning = names::beginning(line, label.claim, session.lease);
        if let Some(value) = &label.note.value {
            let (key, value) = (label.key(&beginning), value.to_vec());
            return Self { key, value, label, slot: None };
        }
        let number = locked(&session.slots).take(&beginning);
        let (key, value) = (names::slot(&beginning, number), label.value());
        Self { key, value, label, slot: Some(Slot { beginning, number }) }
    }
}

/// What the server said of an entry by itself.
#[derive(Debug, Default)]
pub(super) struct Fate {
    gone: AtomicBool,
    yield_asked: AtomicBool,
    /// Whether it was asked to be watched.
    pub(super) watched: AtomicBool,
    changed: Notify,
}

impl Fate {
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Acquire)
    }

    pub(super) fn yield_asked(&self) -> bool {
        self.yield_asked.load(Acquire)
    }

    /// Resolves once it is gone.
    pub(super) async fn gone(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_gone() {
                return;
            }
            changed.await;
        }
    }
}

impl Own {
    pub(super) fn new(place: Place, session: Arc<Session>, written: Written, now: Moment) -> Self {
        Self {
            place,
            claim: written.label.claim,
            session,
            written: Arc::new(written),
            ticket: None,
            holds: false,
            waits: None,
            fate: Arc::default(),
            believed_until: now,
            watching: None,
        }
    }
}

impl Roster {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), notices: NoticeBoard::new() }
    }

    pub(super) fn get(&self, entry: EntryId) -> Option<Own> {
        locked(&self.entries).get(&entry).cloned()
    }

    pub(super) fn has(&self, entry: EntryId) -> bool {
        locked(&self.entries).contains_key(&entry)
    }

    /// Adds an entry, unless it is there: then that one, which has a key already.
    pub(super) fn add(&self, entry: EntryId, make: impl FnOnce() -> Own) -> Own {
        locked(&self.entries).entry(entry).or_insert_with(make).clone()
    }

    /// Forgets an entry that is not in line and never will be, so that the next one can have its slot.
    pub(super) fn remove(&self, entry: EntryId) {
        // Only whoever takes it off the list gives its slot back: for anybody who comes later the slot is another's.
        if let Some(removed) = self.take(entry)
            && let Some(slot) = &removed.written.slot
        {
            locked(&removed.session.slots).give_back(&slot.beginning, slot.number);
        }
    }

    /// Forgets an entry that is not in line, but may come into it later. Nobody else is given its slot.
    pub(super) fn remove_and_retire_its_slot(&self, entry: EntryId) {
        self.take(entry);
    }

    /// Its watches end when the last copy is dropped. That takes a lock of its own, so not under ours.
    fn take(&self, entry: EntryId) -> Option<Own> {
        locked(&self.entries).remove(&entry)
    }

    /// Takes note of where an entry stands, as seen at that revision. False if it has been forgotten meanwhile.
    pub(super) fn stands(&self, entry: EntryId, stand: &Stand, revision: i64) -> bool {
        let mut entries = locked(&self.entries);
        let Some(own) = entries.get_mut(&entry) else { return false };
        match stand {
            Stand::Holding { ticket } => (own.ticket, own.holds, own.waits) = (Some(*ticket), true, None),
            Stand::Waiting { ticket, blocker, .. } if !own.holds => {
                (own.ticket, own.waits) = (Some(*ticket), Some((blocker.clone(), revision)));
            }
            Stand::Waiting { .. } | Stand::Gone => {}
        }
        true
    }

    /// Somebody was told to believe in it until then.
    pub(super) fn is_believed_until(&self, entry: EntryId, until: Moment) {
        if let Some(own) = locked(&self.entries).get_mut(&entry) {
            own.believed_until = until.max(own.believed_until);
        }
    }

    /// Keeps these watches for as long as the entry is there.
    pub(super) fn watch(&self, entry: EntryId, watching: [Watching; 2]) {
        if let Some(own) = locked(&self.entries).get_mut(&entry) {
            own.watching = Some(Arc::new(watching));
        }
    }

    /// The server says that it is not there any more.
    pub(super) fn is_gone(&self, entry: EntryId) {
        let Some(own) = self.get(entry) else { return };
        if !own.fate.gone.swap(true, AcqRel) {
            own.fate.changed.notify_waiters();
            self.notices.post(Notice::Gone(entry));
        }
    }

    /// Somebody wants it.
    pub(super) fn is_wanted(&self, entry: EntryId) {
        let Some(own) = self.get(entry) else { return };
        if !own.fate.yield_asked.swap(true, AcqRel) {
            self.notices.post(Notice::YieldAsked(entry));
        }
    }

    /// Everything on that session is gone.
    pub(super) fn is_over(&self, session: &Session) {
        for entry in self.on(session, |_| true) {
            self.is_gone(entry.place.entry);
        }
    }

    /// Entries that nobody has believed in for a whole session's length, though the session lives on.
    pub(super) fn abandoned(&self, session: &Session, now: Moment) -> Vec<Place> {
        let long_ago = |own: &Own| own.believed_until.after(session.ttl) < now;
        self.on(session, long_ago).into_iter().map(|own| own.place).collect()
    }

    fn on(&self, session: &Session, pick: impl Fn(&Own) -> bool) -> Vec<Own> {
        let entries = locked(&self.entries);
        entries.values().filter(|own| own.session.lease == session.lease && pick(own)).cloned().collect()
    }
}
