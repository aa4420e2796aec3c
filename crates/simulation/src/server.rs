//! One server of the quorum, as its scripts have it: restated in Rust, without a connection and with a clock of its own.
//!
//! That both answer alike is a test on real servers. Not restated: locks of other programs, and names that share a fence
//! (a real server has a few hundred fences for all names, so its tokens grow sooner and no later).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Key;
use leasehold::backend::redlock::node::{
    Ask, Epoch, Extended, Extension, Grant, Memory, Release, Reply, SeenEntry, Sight, freed_channel,
};
use leasehold::backend::{EntryId, Finding, Note, Place};

use crate::scenario::Flaw;

/// What a server knows, and how it answers.
#[derive(Clone, Debug)]
pub struct Server {
    name: String,
    memory: BTreeMap<Key, u64>,
    epoch: Option<Epoch>,
    mark: Option<u64>,
    floor: u64,
    longest: Duration,
    locks: BTreeMap<Key, Lock>,
    /// Who has given a lock up before it arrived, until when.
    left: BTreeMap<(Key, EntryId), u64>,
    flaw: Option<Flaw>,
}

/// Who has a key.
#[derive(Clone, Debug)]
struct Lock {
    shared: bool,
    owners: BTreeMap<EntryId, Owner>,
}

/// One who has a key.
#[derive(Clone, Debug)]
struct Owner {
    channel: Arc<str>,
    token: u64,
    since_ms: u64,
    ends_ms: u64,
    note: Note,
    wished: bool,
}

/// What is told on a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which.
    pub channel: String,
    /// What.
    pub text: Vec<u8>,
}

impl Server {
    /// One that knows nothing.
    pub fn new(name: impl Into<String>, flaw: Option<Flaw>) -> Self {
        Self {
            name: name.into(),
            memory: BTreeMap::new(),
            epoch: None,
            mark: None,
            floor: 0,
            longest: Duration::ZERO,
            locks: BTreeMap::new(),
            left: BTreeMap::new(),
            flaw,
        }
    }

    /// Whether it takes part.
    pub fn is_ready(&self) -> bool {
        self.epoch.is_some()
    }

    /// How many have a key on it.
    pub fn held(&mut self, now_ms: u64) -> usize {
        self.locks.retain(|_, lock| {
            lock.owners.retain(|_, owner| owner.ends_ms > now_ms);
            !lock.owners.is_empty()
        });
        self.locks.values().map(|lock| lock.owners.len()).sum()
    }

    /// It loses everything.
    pub fn forget(&mut self) {
        let (epoch, longest) = (self.epoch, self.longest);
        *self = Self::new(std::mem::take(&mut self.name), self.flaw);
        if self.flaw == Some(Flaw::ForgetfulVotes) {
            (self.epoch, self.longest) = (epoch, longest);
        }
    }

    /// It comes back as it was when `snapshot` was taken. Whoever connects notices that it was restarted, and takes its
    /// epoch away before anything else.
    pub fn restore(&mut self, snapshot: &Self) {
        *self = snapshot.clone();
        if self.flaw != Some(Flaw::SnapshotVotes) {
            (self.epoch, self.mark) = (None, None);
        }
    }

    /// Carries a request out at that time, and says what is told to others.
    pub fn answer(&mut self, ask: &Ask, now_ms: u64) -> (Reply, Vec<Message>) {
        let mut told = Vec::new();
        let reply = match ask {
            Ask::Grant(grant) => self.grant(grant, now_ms),
            Ask::Commit { place, token, epoch } => done(self.commit(place, *token, *epoch, now_ms)),
            Ask::Extend(leases) => Reply::Extended(leases.iter().map(|lease| self.extend(lease, now_ms)).collect()),
            Ask::Release(release) => {
                let Release { place, bar, held, by, alone, .. } = &**release;
                if let Some(bar) = bar {
                    self.left.insert((place.key.clone(), place.entry), now_ms + millis(*bar));
                }
                let is_alone = self.owner(place, now_ms).is_some_and(|(shared, _)| !shared);
                let owner = self.owner(place, now_ms).map(|(_, owner)| owner.channel.clone());
                match (*alone && *held, owner) {
                    (true, Some(owner)) if is_alone => done(self.release(place, true, &owner, now_ms, &mut told)),
                    (true, _) => Reply::NotDone,
                    (false, _) => done(self.release(place, *held, by, now_ms, &mut told)),
                }
            }
            Ask::Wish(place) => done(self.wish(place, now_ms, &mut told)),
            Ask::Survey { mark } => Reply::Memory(self.survey(*mark)),
            Ask::Admit { mark, floor, longest, epoch } => done(self.admit(*mark, *floor, *longest, *epoch)),
            Ask::Keys(namespace) => {
                let keys = self.locks.keys().filter(|key| key.namespace() == namespace);
                Reply::Keys(keys.cloned().collect())
            }
            Ask::Inspect(keys) => Reply::Seen(keys.iter().map(|key| self.sight(key, now_ms)).collect()),
            Ask::Health => Reply::Health(vec![Finding::fine("role", "it is a simulation")]),
        };
        (reply, told)
    }

    /// Who has that key now.
    fn settled(&mut self, key: &Key, now_ms: u64) -> Option<&mut Lock> {
        let lock = self.locks.get_mut(key)?;
        lock.owners.retain(|_, owner| owner.ends_ms > now_ms);
        if lock.owners.is_empty() {
            self.locks.remove(key);
        }
        self.locks.get_mut(key)
    }

    fn owner(&mut self, place: &Place, now_ms: u64) -> Option<(bool, &mut Owner)> {
        let lock = self.settled(&place.key, now_ms)?;
        let shared = lock.shared;
        lock.owners.get_mut(&place.entry).map(|owner| (shared, owner))
    }

    fn fence(&self, key: &Key) -> u64 {
        self.memory.get(key).copied().unwrap_or_default().max(self.floor)
    }

    fn grant(&mut self, grant: &Grant, now_ms: u64) -> Reply {
        let Some(epoch) = self.epoch else { return Reply::NotReady };
        if grant.ttl > self.longest {
            return Reply::TooLong { longest: self.longest };
        }
        let Place { key, entry } = &grant.place;
        let mut set = false;
        if grant.briefly {
            let raised = grant.guess > self.fence(key);
            if raised {
                self.memory.insert(key.clone(), grant.guess);
            }
            if self.settled(key, now_ms).is_none() {
                self.lock(grant, now_ms);
                set = true;
                if raised {
                    return Reply::Granted { prior: grant.guess - 1, epoch };
                }
            }
        }
        if self.left.get(&(key.clone(), *entry)).is_some_and(|until_ms| *until_ms > now_ms) {
            if set {
                self.locks.remove(key);
            }
            return Reply::Barred;
        }
        let taken = self.settled(key, now_ms);
        let busy = taken.is_some_and(|lock| match lock.shared {
            true => !grant.shared,
            false => grant.shared || !lock.owners.contains_key(entry),
        });
        if busy {
            return Reply::Busy(Box::new(self.sight(key, now_ms)));
        }
        self.lock(grant, now_ms);
        let prior = self.fence(key);
        if grant.guess > prior {
            self.memory.insert(key.clone(), grant.guess);
        }
        Reply::Granted { prior, epoch }
    }

    fn lock(&mut self, grant: &Grant, now_ms: u64) {
        let Place { key, entry } = grant.place.clone();
        let ends_ms = now_ms + millis(grant.ttl);
        let (channel, note) = (grant.channel.clone(), grant.note.clone());
        let owner = Owner { channel, token: grant.guess, since_ms: now_ms, ends_ms, note, wished: false };
        let lock = self.locks.entry(key).or_insert(Lock { shared: grant.shared, owners: BTreeMap::new() });
        lock.owners.entry(entry).or_insert(owner);
    }

    fn commit(&mut self, place: &Place, token: u64, epoch: Epoch, now_ms: u64) -> bool {
        if self.epoch != Some(epoch) || token <= self.fence(&place.key) {
            return false;
        }
        match self.owner(place, now_ms) {
            Some((false, owner)) => owner.token = token,
            _ => return false,
        }
        self.memory.insert(place.key.clone(), token);
        true
    }

    fn extend(&mut self, lease: &Extension, now_ms: u64) -> Extended {
        match self.owner(&lease.place, now_ms) {
            None => Extended::No,
            Some((_, owner)) => {
                owner.ends_ms = now_ms + millis(lease.ttl);
                Extended::Yes { yield_asked: owner.wished }
            }
        }
    }

    fn release(&mut self, place: &Place, held: bool, by: &str, now_ms: u64, told: &mut Vec<Message>) -> bool {
        let Some(lock) = self.settled(&place.key, now_ms) else { return false };
        let Some(owner) = lock.owners.remove(&place.entry) else { return false };
        if lock.owners.is_empty() {
            self.locks.remove(&place.key);
        }
        let id = place.entry.to_string();
        if *owner.channel != *by {
            told.push(Message { channel: owner.channel.to_string(), text: format!("x {id}").into_bytes() });
        }
        if held {
            told.push(Message { channel: freed_channel(&place.key), text: id.into_bytes() });
        }
        true
    }

    fn wish(&mut self, place: &Place, now_ms: u64, told: &mut Vec<Message>) -> bool {
        let Some((_, owner)) = self.owner(place, now_ms) else { return false };
        owner.wished = true;
        told.push(Message { channel: owner.channel.to_string(), text: format!("y {}", place.entry).into_bytes() });
        true
    }

    fn survey(&mut self, mark: u64) -> Memory {
        let server = self.name.clone();
        match self.epoch {
            None => Memory::Blank { mark: *self.mark.get_or_insert(mark), server },
            Some(epoch) => {
                let highest = self.memory.values().copied().fold(self.floor, u64::max);
                Memory::Ready { epoch, highest, longest: self.longest, server }
            }
        }
    }

    fn admit(&mut self, mark: u64, floor: u64, longest: Duration, epoch: Epoch) -> bool {
        if self.epoch.is_some() || self.mark != Some(mark) {
            return false;
        }
        (self.mark, self.floor, self.longest, self.epoch) = (None, floor, longest, Some(epoch));
        true
    }

    fn sight(&mut self, key: &Key, now_ms: u64) -> Sight {
        let Some(lock) = self.settled(key, now_ms) else { return Sight::default() };
        let seen = |(entry, owner): (&EntryId, &Owner)| SeenEntry {
            entry: *entry,
            shared: lock.shared,
            token: owner.token,
            note: owner.note.clone(),
            age: Duration::from_millis(now_ms.saturating_sub(owner.since_ms)),
            lease_left: Duration::from_millis(owner.ends_ms.saturating_sub(now_ms)),
            yield_asked: owner.wished,
            foreign: false,
        };
        let entries: Vec<SeenEntry> = lock.owners.iter().map(seen).collect();
        let free_in = entries.iter().map(|entry| entry.lease_left).max();
        Sight { entries, free_in }
    }
}

fn done(done: bool) -> Reply {
    if done { Reply::Done } else { Reply::NotDone }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
