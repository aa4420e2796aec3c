//! Lines as they are shown: looked at once, or followed.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join;

use crate::backend::zookeeper::core::{Core, children, ticket};
use crate::backend::zookeeper::fault::Trouble;
use crate::backend::zookeeper::jute::Stat;
use crate::backend::zookeeper::line::Line;
use crate::backend::zookeeper::link::Answer;
use crate::backend::zookeeper::names::{self, Named};
use crate::backend::zookeeper::note::Written;
use crate::backend::zookeeper::request::{self, Ask, Change, code};
use crate::backend::zookeeper::session::Seat;
use crate::backend::zookeeper::watches::{Follower, News};
use crate::backend::{EntryView, KeyView, Page, Place, Query};
use crate::error::{Error, ErrorKind, Result};
use crate::fence::FencingToken;
use crate::key::Key;

impl Core {
    /// Those entries, of which the first so many hold; `None` for one that has gone meanwhile. One trip.
    pub(super) async fn views(
        &self,
        seat: &Seat,
        key: &Key,
        entries: &[Named],
        holders: usize,
    ) -> Result<Vec<Option<EntryView>>> {
        let asks: Vec<Ask> = self.reads(key, entries).collect();
        let answers = self.session.read(seat, &asks).await;
        self.read(key, entries, holders, answers)
    }

    fn reads(&self, key: &Key, entries: &[Named]) -> impl Iterator<Item = Ask> {
        let folder = self.paths.key(key);
        entries.iter().map(move |entry| Ask::data(&format!("{folder}/{}", entry.name), false))
    }

    fn read(
        &self,
        key: &Key,
        entries: &[Named],
        holders: usize,
        answers: Vec<Answer>,
    ) -> Result<Vec<Option<EntryView>>> {
        let read = entries.iter().zip(answers).enumerate().map(|(at, (entry, answer))| {
            let found = found(answer)?;
            Ok(found.map(|(written, stat)| self.entry_view(key, entry, at < holders, written, &stat)))
        });
        read.collect()
    }

    fn entry_view(&self, key: &Key, entry: &Named, holds: bool, written: Written, stat: &Stat) -> EntryView {
        let (ticket, foreign) = (ticket(stat), written.is_foreign());
        let token = if holds && entry.claim.is_exclusive() { FencingToken::new(ticket.0) } else { None };
        EntryView {
            place: Place { key: key.clone(), entry: entry.id },
            claim: entry.claim,
            ticket,
            token,
            note: written.note,
            age: self.time.age(stat.ctime),
            // The server alone knows when it last heard of the session. It is not more than what ours say of themselves;
            // of others, nobody can say more than what a session of our own would have.
            lease_left: written.ttl.filter(|ttl| !ttl.is_zero()).unwrap_or_else(|| self.session.wish()),
            yield_asked: written.yield_asked,
            foreign,
            spread: None,
        }
    }

    /// Holders and waiters. Two trips, and one more for a whole namespace.
    pub(super) async fn inspect(&self, query: &Query) -> Result<Page<KeyView>> {
        let seat = self.session.seat(true).await?;
        if let Some(key) = &query.key {
            let items = self.lines(&seat, std::slice::from_ref(key), false).await?;
            return Ok(Page { items, next: None });
        }
        let folder = self.paths.namespace(&query.namespace);
        let mut answers = self.session.ask(&seat, &[Ask::sync(&folder), Ask::children(&folder)]).await;
        let names = children(answers.remove(1)).map_err(Error::with_no_effect)?.unwrap_or_default();
        let keys = names.iter().filter_map(|name| names::key_of(&query.namespace, name));
        let mut keys: Vec<Key> = keys.filter(|key| query.after.as_ref().is_none_or(|after| after < key)).collect();
        keys.sort_unstable();
        let next = if keys.len() > query.keys_max { keys.get(query.keys_max.max(1) - 1).cloned() } else { None };
        keys.truncate(query.keys_max);
        Ok(Page { items: self.lines(&seat, &keys, true).await?, next })
    }

    /// The lines of those keys that anybody is in. A folder that was `found` may be one of anything; one that was asked for
    /// is an error then.
    async fn lines(&self, seat: &Seat, keys: &[Key], found: bool) -> Result<Vec<KeyView>> {
        let lists: Vec<Ask> = keys.iter().map(|key| Ask::children(&self.paths.key(key))).collect();
        // Sent one after the other without waiting, so it is one trip.
        let (synced, answers) = join(self.session.ask(seat, &[Ask::sync("/")]), self.session.read(seat, &lists)).await;
        for answer in synced {
            answer.map_err(|trouble| Error::from(trouble).with_no_effect())?;
        }
        let mut lines = Vec::new();
        for (key, names) in keys.iter().zip(answers) {
            let names = children(names).map_err(Error::with_no_effect)?.unwrap_or_default();
            match Line::of(&names, key) {
                Ok(line) => lines.extend((!line.entries.is_empty()).then_some((key, line))),
                Err(_) if found => {}
                Err(error) => return Err(error),
            }
        }
        let asks = lines.iter().flat_map(|(key, line)| self.reads(key, &line.entries));
        let asks: Vec<Ask> = asks.collect();
        let mut answers = self.session.read(seat, &asks).await.into_iter();
        let mut views = Vec::new();
        for (key, line) in lines {
            let answers: Vec<Answer> = answers.by_ref().take(line.entries.len()).collect();
            views.extend(self.line_view(key, line, answers).map_err(Error::with_no_effect)?);
        }
        Ok(views)
    }

    fn line_view(&self, key: &Key, line: Line, answers: Vec<Answer>) -> Result<Option<KeyView>> {
        let entries = self.read(key, &line.entries, line.holders, answers)?;
        let missing = entries.iter().any(Option::is_none);
        let holders = if missing {
            // Some have gone since it was listed, so others may hold.
            let there = line.entries.into_iter().zip(&entries).filter(|(_, view)| view.is_some());
            Line::sorted(there.map(|(entry, _)| entry).collect()).holders
        } else {
            line.holders
        };
        let entries: Vec<EntryView> = entries.into_iter().flatten().collect();
        Ok((!entries.is_empty()).then(|| view_of(key, entries, holders)))
    }

    /// Follows a key from now on. Two trips.
    pub(super) async fn follow(self: Arc<Self>, key: Key) -> Result<Sights> {
        let seat = self.session.seat(true).await?;
        let folder = self.paths.key(&key);
        let follower = self.watches.follow(&folder);
        let asks = [Ask::add_watch(&folder), Ask::sync(&folder), Ask::children(&folder)];
        let mut answers = self.session.ask(&seat, &asks).await;
        let names = children(answers.pop().expect("it was asked")).map_err(Error::with_no_effect)?;
        for answer in answers {
            answer.map_err(|trouble| Error::from(trouble).with_no_effect())?;
        }
        let mut sights =
            Sights { core: self, seat, key, folder, follower, known: HashMap::new(), line: Line::default() };
        let named: Vec<Named> = names.iter().flatten().filter_map(|name| Named::parse(name)).collect();
        let reads: Vec<Ask> = sights.core.reads(&sights.key, &named).collect();
        for (named, answer) in named.into_iter().zip(sights.core.session.read(&sights.seat, &reads).await) {
            sights.learn(named, answer)?;
        }
        sights.settle();
        Ok(sights)
    }
}

fn found(answer: Answer) -> Result<Option<(Written, Stat)>> {
    match answer {
        Ok(body) => {
            let (data, stat) = request::data(&body).map_err(Trouble::from)?;
            Ok(Some((Written::parse(&data), stat)))
        }
        Err(trouble) if trouble.is(code::NO_NODE) => Ok(None),
        Err(trouble) => Err(trouble.into()),
    }
}

/// The entries hold as far as `holders` goes, whatever they were taken for before.
fn view_of(key: &Key, mut entries: Vec<EntryView>, holders: usize) -> KeyView {
    let waiters = entries.split_off(holders.min(entries.len()));
    for holder in &mut entries {
        holder.token = if holder.claim.is_exclusive() { FencingToken::new(holder.ticket.0) } else { None };
    }
    let capacity = entries.first().or(waiters.first()).map(|first| first.claim.capacity());
    KeyView { key: key.clone(), capacity, holders: entries, waiters: Some(waiters) }
}

/// The states of one key, one after the other, as its server tells of every change.
pub(super) struct Sights {
    core: Arc<Core>,
    seat: Seat,
    key: Key,
    folder: String,
    follower: Follower,
    /// What was read of those in line.
    known: HashMap<String, (Named, Written, Stat)>,
    line: Line,
}

impl Sights {
    /// As it is now.
    pub(super) fn view(&self) -> KeyView {
        let entries = self.line.entries.iter().enumerate().filter_map(|(at, entry)| {
            let (named, written, stat) = self.known.get(&entry.name)?;
            Some(self.core.entry_view(&self.key, named, at < self.line.holders, written.clone(), stat))
        });
        view_of(&self.key, entries.collect(), self.line.holders)
    }

    /// The next state in which somebody else holds, or a holder says something else. Ends where changes were missed.
    pub(super) async fn next(&mut self) -> Result<KeyView> {
        loop {
            let Some(news) = self.follower.news.recv().await else {
                return Err(Error::new(ErrorKind::Unreachable, "the connection broke, and with it the watch"));
            };
            if self.take_in(news).await? {
                return Ok(self.view());
            }
        }
    }

    /// Whether that changed anything for those who hold.
    async fn take_in(&mut self, News { event, read }: News) -> Result<bool> {
        let Some(name) = event.path.strip_prefix(&self.folder).and_then(|rest| rest.strip_prefix('/')) else {
            return Ok(false);
        };
        match (read, Named::parse(name)) {
            (Some(read), Some(named)) => self.learn(named, read.await.unwrap_or(Err(Trouble::Closed)))?,
            _ if event.change == Change::Deleted => drop(self.known.remove(name)),
            _ => return Ok(false),
        }
        Ok(self.settle() || event.change == Change::Data && self.holds(name))
    }

    /// Takes over what was read of an entry. What has gone again is told of next.
    fn learn(&mut self, named: Named, answer: Answer) -> Result<()> {
        if let Some((written, stat)) = found(answer).map_err(Error::with_no_effect)? {
            self.known.insert(named.name.clone(), (named, written, stat));
        }
        Ok(())
    }

    fn holds(&self, name: &str) -> bool {
        self.line.entries[..self.line.holders].iter().any(|entry| entry.name == name)
    }

    /// Lines up those who are known. Whether others hold than before.
    fn settle(&mut self) -> bool {
        let holding = |line: &Line| -> Vec<String> {
            line.entries[..line.holders].iter().map(|entry| entry.name.clone()).collect()
        };
        let before = holding(&self.line);
        self.line = Line::sorted(self.known.values().map(|(named, ..)| named.clone()).collect());
        before != holding(&self.line)
    }
}

impl Drop for Sights {
    fn drop(&mut self) {
        if self.follower.is_last() && !self.seat.link.is_broken() {
            drop(self.seat.link.send(&[Ask::remove_watches(&self.folder)]));
        }
    }
}
