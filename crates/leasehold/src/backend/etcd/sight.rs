//! What others see of lines: listing them, and following one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc;

use crate::backend::etcd::core::Core;
use crate::backend::etcd::hub::{Heard, Range as Watched, Watching};
use crate::backend::etcd::line::{Line, Member, Sight};
use crate::backend::etcd::message::{Act, Came, KeyValue, LeaseLives, LeaseTimeToLive, Range, Ranged, Txn, TxnDone};
use crate::backend::etcd::names;
use crate::backend::etcd::verbs::{RANGE, TXN, whole};
use crate::backend::{EntryId, KeyView, Page, Query};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;

const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";

/// How many entries are read at a time, so that no answer keeps the server from everybody else.
const ENTRIES_AT_ONCE: i64 = 5_000;

/// How many lines are read at a time. A server takes no more than 128 acts in a transaction, unless it is told otherwise.
const LINES_AT_ONCE: usize = 64;

/// The lines of keys as they were read, and which of their entries are wanted by others.
#[derive(Default)]
struct Lines {
    entries: BTreeMap<Key, Vec<KeyValue>>,
    wished: Vec<EntryId>,
}

impl Core {
    /// A page of lines. One trip for every few thousand entries of the namespace, and one more for how long they have.
    pub(super) async fn inspect(&self, query: &Query) -> Result<Page<KeyView>> {
        if let Some(key) = &query.key {
            return Ok(Page { items: self.views(self.line(key).await?).await, next: None });
        }
        let mut lines = self.lines(query).await?;
        let is_whole = lines.entries.len() <= query.keys_max;
        while lines.entries.len() > query.keys_max.max(1) {
            lines.entries.pop_last();
        }
        let next = if is_whole { None } else { lines.entries.last_key_value().map(|(key, _)| key.clone()) };
        if query.keys_max == 0 {
            lines.entries.clear();
        }
        lines.entries = self.lines_of(lines.entries.into_keys().collect()).await?;
        Ok(Page { items: self.views(lines).await, next })
    }

    /// These lines with their values, but for those in which nobody is any more. Others may keep anything at all under the same
    /// beginning, so that only what is shown is read. One trip for every few lines, all at once.
    async fn lines_of(&self, keys: Vec<Key>) -> Result<BTreeMap<Key, Vec<KeyValue>>> {
        let reads = keys.chunks(LINES_AT_ONCE).map(|keys| {
            let success = keys.iter().map(|key| Act::Range(whole(&names::line(key))).into()).collect();
            self.wire.read::<_, TxnDone>(TXN, Txn { compare: Vec::new(), success, failure: Vec::new() })
        });
        let mut lines = BTreeMap::new();
        for (keys, read) in keys.chunks(LINES_AT_ONCE).zip(join_all(reads).await) {
            let mut answers = read?.outcomes.into_iter().map(|outcome| outcome.came);
            for key in keys {
                match answers.next() {
                    Some(Some(Came::Ranged(found))) if found.kvs.is_empty() => {}
                    Some(Some(Came::Ranged(found))) => drop(lines.insert(key.clone(), found.kvs)),
                    _ => return Err(unreadable()),
                }
            }
        }
        Ok(lines)
    }

    /// The first lines of a namespace behind that key, by name, and one more than are wanted if there are more.
    ///
    /// All of them are read, because the server has them in the order of their encoded names.
    async fn lines(&self, query: &Query) -> Result<Lines> {
        let Query { namespace, after, keys_max, .. } = query;
        let root = names::root(namespace);
        let (mut from, mut revision) = (root.clone(), 0);
        if from.is_empty() {
            from.push(0); // the first key there can be
        }
        let mut lines = Lines::default();
        loop {
            let (key, range_end) = (from.clone(), names::behind(&root));
            let answer =
                Range { key, range_end, limit: ENTRIES_AT_ONCE, revision, keys_only: true, ..Range::default() };
            let answer: Ranged = self.wire.read(RANGE, answer).await?;
            revision = answer.header.map_or(0, |header| header.revision);
            match answer.kvs.last() {
                Some(last) if answer.more => from = [&last.key[..], &[0]].concat(),
                _ => from.clear(),
            }
            for kv in answer.kvs {
                if let Some(entry) = names::wished(namespace, &kv.key) {
                    lines.wished.push(entry);
                } else if let Some(key) = names::entry_of(namespace, &kv.key)
                    && after.as_ref().is_none_or(|after| *after < key)
                {
                    lines.entries.entry(key).or_default().push(kv);
                }
            }
            while lines.entries.len() > keys_max.saturating_add(1) {
                lines.entries.pop_last();
            }
            if from.is_empty() {
                return Ok(lines);
            }
        }
    }

    /// One line. One trip.
    async fn line(&self, key: &Key) -> Result<Lines> {
        let (line, wishes) = (names::line(key), names::wishes(key));
        let wished =
            Range { key: wishes.clone(), range_end: names::behind(&wishes), keys_only: true, ..Range::default() };
        let success = vec![Act::Range(whole(&line)).into(), Act::Range(wished).into()];
        let both = Txn { compare: Vec::new(), success, failure: Vec::new() };
        let done: TxnDone = self.wire.read(TXN, both).await?;
        let mut answers = done.outcomes.into_iter().map(|outcome| outcome.came);
        let (Some(Some(Came::Ranged(found))), Some(Some(Came::Ranged(wished)))) = (answers.next(), answers.next())
        else {
            return Err(unreadable());
        };
        let namespace = key.namespace();
        let wished = wished.kvs.iter().filter_map(|kv| names::wished(namespace, &kv.key)).collect();
        let entries = if found.kvs.is_empty() { BTreeMap::new() } else { BTreeMap::from([(key.clone(), found.kvs)]) };
        Ok(Lines { entries, wished })
    }

    async fn views(&self, lines: Lines) -> Vec<KeyView> {
        let leases: BTreeSet<i64> = lines.entries.values().flatten().map(|kv| kv.lease).filter(|id| *id != 0).collect();
        let left = join_all(leases.into_iter().map(|lease| self.lease_left(lease))).await;
        let left: HashMap<i64, Duration> = left.into_iter().flatten().collect();
        let lease_left = |lease| left.get(&lease).copied();
        let sight = Sight { wall_ms: self.wall_ms(), lease_left: &lease_left, wished: &lines.wished };
        let view = |(key, mut kvs): (Key, Vec<KeyValue>)| {
            let line = names::line(&key);
            kvs.sort_by_key(|kv| kv.create_revision);
            Line::of(&line, Ranged { kvs, ..Ranged::default() }).view(&key, &line, &sight)
        };
        lines.entries.into_iter().map(view).collect()
    }

    /// How much a lease has left at most: the server says it in whole seconds.
    async fn lease_left(&self, lease: i64) -> Option<(i64, Duration)> {
        let answer: LeaseLives = self.wire.read(TIME_TO_LIVE, LeaseTimeToLive { id: lease }).await.ok()?;
        let left = u64::try_from(answer.ttl.saturating_add(1).min(answer.granted)).ok()?;
        Some((lease, Duration::from_secs(left)))
    }
}

fn unreadable() -> Error {
    Error::new(ErrorKind::Protocol, "an answer that does not fit what was asked")
}

/// Follows one key through every change of its line.
pub(super) struct Follower {
    core: Arc<Core>,
    key: Key,
    line: Vec<u8>,
    state: State,
}

enum State {
    Start,
    Following {
        members: BTreeMap<i64, Member>,
        news: mpsc::UnboundedReceiver<Heard>,
        _watching: Watching,
        pending: Option<Heard>,
    },
}

impl Follower {
    pub(super) fn new(core: Arc<Core>, key: &Key) -> Self {
        Self { core, key: key.clone(), line: names::line(key), state: State::Start }
    }

    /// The line as it is, and then after each change.
    pub(super) async fn next(&mut self) -> Result<KeyView> {
        if let State::Start = &self.state {
            let (core, query) = (self.core.clone(), whole(&self.line));
            let read = async move { core.wire.read(RANGE, query).await };
            let answer: Ranged = self.core.io.run(read).await?;
            let revision = answer.header.as_ref().map_or(0, |header| header.revision);
            let range = Watched { key: self.line.clone(), end: names::behind(&self.line), departures_only: false };
            let (watching, news) = self.core.hub.listen(range, revision + 1);
            let members =
                Line::of(&self.line, answer).members.into_iter().map(|member| (member.ticket, member)).collect();
            self.state = State::Following { members, news, _watching: watching, pending: None };
            return Ok(self.view());
        }
        let State::Following { members, news, pending, .. } = &mut self.state else {
            unreachable!("it was made above")
        };
        let mut at = None;
        loop {
            let heard = match pending.take() {
                Some(heard) => heard,
                None if at.is_none() => match news.recv().await {
                    Some(heard) => heard,
                    None => return Err(Error::new(ErrorKind::Closed, "the store was closed")),
                },
                // What happened in one transaction was sent in one message.
                None => match news.try_recv() {
                    Ok(heard) => heard,
                    Err(_) => return Ok(self.view()),
                },
            };
            let revision = match &heard {
                Heard::Put(kv) => kv.mod_revision,
                Heard::Gone(_, revision) => *revision,
                Heard::Late | Heard::Gap => {
                    return Err(Error::new(ErrorKind::Unreachable, "the watch has missed what happened"));
                }
                Heard::Broken(error) => return Err(error.clone()),
            };
            if at.is_some_and(|at| at != revision) {
                *pending = Some(heard);
                return Ok(self.view());
            }
            at = Some(revision);
            match heard {
                Heard::Put(kv) => {
                    members.insert(kv.create_revision, Member::of(&self.line, kv));
                }
                Heard::Gone(key, _) => members.retain(|_, member| member.key != key),
                Heard::Late | Heard::Gap | Heard::Broken(_) => {}
            }
        }
    }

    fn view(&self) -> KeyView {
        let members = match &self.state {
            State::Start => Vec::new(),
            State::Following { members, .. } => members.values().cloned().collect(),
        };
        let sight = Sight { wall_ms: self.core.wall_ms(), lease_left: &|_| None, wished: &[] };
        Line { members }.view(&self.key, &self.line, &sight)
    }
}
