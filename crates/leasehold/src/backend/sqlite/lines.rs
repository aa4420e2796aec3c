//! Lines as rows: what one write transaction does to them, by the rule.

use std::time::Duration;

use rusqlite::{OptionalExtension, Params, Row, Transaction, params};

use crate::backend::{
    Annotation, Asked, Departure, EntryId, EntryView, KeyView, Lease, LeaseId, Note, Page, Patience, Place, Query,
    Renewal, Request, Standing, Version,
};
use crate::claim::{Capacity, Claim};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{FencingToken, Ticket};
use crate::key::{Key, Namespace};
use crate::queue;

use super::pulse::News;
use super::{fault, protocol, schema};

/// How many states of a watched key are kept for those who follow it.
const SIGHTINGS_KEPT: i64 = 1024;

/// The most entries in one line, so that a caller gone wild fills its own line and not the disk.
const LINE_MAX: u32 = 100_000;

/// What an entry is read as.
const COLUMNS: &str = "ticket, entry, weight, capacity, owner, host, pid, value, entered_at, expires_at, yield_asked";

/// One transaction on the lines, with what has to follow once it is committed.
pub(super) struct Lines<'a> {
    tx: &'a Transaction<'a>,
    now: Moment,
    /// Asks the kernel whether a client is still there.
    is_alive: &'a dyn Fn(&str) -> bool,
    pub(super) effects: Effects,
}

/// What must happen after the commit.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Which client to tell what.
    pub(super) told: Vec<(String, News)>,
    /// Whether the file must reach the disk before anybody is told anything.
    pub(super) sync: bool,
}

/// A line as far as it matters to one who joins or leaves it.
struct Line {
    /// `None` if nobody is in it.
    capacity: Option<Capacity>,
    holders: Vec<Seat>,
    has_room: bool,
}

/// An entry as far as the rule and its consequences need it.
#[derive(Clone, Debug)]
struct Seat {
    ticket: Ticket,
    entry: EntryId,
    client: String,
    expires_at: Moment,
}

impl<'a> Lines<'a> {
    /// Begins by taking out what has expired anywhere, so that everything after it sees only the living.
    pub(super) fn begin(tx: &'a Transaction<'a>, now: Moment, is_alive: &'a dyn Fn(&str) -> bool) -> Result<Self> {
        let mut lines = Self { tx, now, is_alive, effects: Effects::default() };
        let quiet_until = lines.one("SELECT quiet_until FROM store", [], |row| row.get(0))?;
        if quiet_until.is_none_or(|quiet_until| nanos(now) >= quiet_until) {
            lines.leave_expired()?;
        }
        Ok(lines)
    }

    fn leave_expired(&mut self) -> Result<()> {
        let now = nanos(self.now);
        for key in self.keys("SELECT DISTINCT namespace, name FROM entry WHERE expires_at <= ?1", [now])? {
            self.change(&key, |lines| {
                lines.execute(
                    "DELETE FROM entry WHERE namespace = ?1 AND name = ?2 AND expires_at <= ?3",
                    params![key.namespace().as_str(), key.name(), now],
                )
            })?;
        }
        // Renewals only move an expiry away, so nothing runs out before what runs out first now.
        self.execute("UPDATE store SET quiet_until = (SELECT coalesce(min(expires_at), ?1) FROM entry)", [i64::MAX])
    }

    /// The standing, and the clients whose end would change it.
    ///
    /// Statements of an uncontended one: 6, of which 2 write.
    pub(super) fn enter(&mut self, request: &Request, client: &str) -> Result<(Standing, Vec<String>)> {
        let Request { place, claim, patience, terms, note, returns } = request;
        let key = &place.key;
        let known = self.ticket_of(place.entry)?;
        if known.is_none() && *returns {
            return Ok((gone(), Vec::new()));
        }
        let more = known.is_none().then_some(*claim);
        let mut line = self.line(key, more)?;
        if !line.has_room && self.reap_dead_holders(&line.holders)? {
            line = self.line(key, more)?;
        }
        let (ticket, holds) = match known {
            Some(ticket) => (ticket, line.holders.iter().any(|seat| seat.ticket == ticket)),
            None => {
                if let Some(capacity) = line.capacity {
                    capacity.admits(*claim, key)?;
                }
                if !line.has_room && *patience == Patience::Refuse {
                    let recheck_in = queue::recheck_in(1, self.shortest_left(&line.holders));
                    let standing = Standing::Refused { held_by: self.view(key)?.holders, recheck_in };
                    return Ok((standing, Vec::new()));
                }
                let ttl = if line.has_room { terms.holding } else { terms.waiting };
                (self.join(place, *claim, note, client, self.now.after(ttl))?, line.has_room)
            }
        };
        let ttl = if holds { terms.holding } else { terms.waiting };
        if known.is_some() {
            self.extend(place.entry, ttl)?;
        } else if holds {
            self.publish(key)?;
        }
        let lease = Lease { id: LeaseId::Entry(place.clone()), ttl };
        if holds {
            return Ok((Standing::Holding { ticket, token: token(*claim, ticket), lease }, Vec::new()));
        }
        let ahead = self.ahead_of(key, ticket)?;
        if ahead >= LINE_MAX {
            let full = format!("{LINE_MAX} entries are in line already");
            return Err(Error::new(ErrorKind::Full, full).at(key)); // which undoes the transaction
        }
        let recheck_in = queue::recheck_in(ahead, self.shortest_left(&line.holders));
        let standing =
            Standing::Waiting { ahead: Some(ahead), turn: None, lease: Some(lease), seen: Version(0), recheck_in };
        // Whoever holds it now, and whoever will hold it before us: should one of them die, nobody else might notice.
        let before: Option<String> = self.one(
            "SELECT client FROM entry WHERE namespace = ?1 AND name = ?2 AND ticket < ?3 ORDER BY ticket DESC LIMIT 1",
            params![key.namespace().as_str(), key.name(), i64::try_from(ticket.0).unwrap_or(i64::MAX)],
            |row| row.get(0),
        )?;
        Ok((standing, line.holders.drain(..).map(|seat| seat.client).chain(before).collect()))
    }

    /// Statements of an uncontended one: 6, of which 1 writes.
    pub(super) fn leave(&mut self, place: &Place, by: &str) -> Result<Departure> {
        let owner =
            self.one("SELECT ticket, client FROM entry WHERE entry = ?1", [place.entry.0.to_be_bytes()], |row| {
                Ok((row.get(0)?, row.get::<_, String>(1)?))
            })?;
        let Some((number, owner)) = owner else { return Ok(Departure::WasGone) };
        let ticket = ticket(number)?;
        if owner != by {
            self.effects.told.push((owner, News::Gone(place.entry)));
        }
        let before = self.change(&place.key, |lines| lines.delete(place.entry))?;
        let held = before.iter().any(|seat| seat.ticket == ticket);
        Ok(if held { Departure::WasHolding } else { Departure::WasWaiting })
    }

    pub(super) fn renew(&mut self, leases: &[Lease]) -> Result<Vec<Renewal>> {
        let renew = |lease: &Lease| {
            let LeaseId::Entry(place) = &lease.id;
            let renewed = self.extend(place.entry, lease.ttl)?;
            Ok(renewed.map_or(Renewal::Lost, |yield_asked| Renewal::Renewed {
                ttl: lease.ttl,
                yield_asked,
                waits: false,
            }))
        };
        leases.iter().map(renew).collect()
    }

    pub(super) fn ask_to_yield(&mut self, place: &Place) -> Result<Asked> {
        let client: Option<String> = self.one(
            "UPDATE entry SET yield_asked = 1 WHERE entry = ?1 RETURNING client",
            [place.entry.0.to_be_bytes()],
            |row| row.get(0),
        )?;
        let asked = if client.is_some() { Asked::Told } else { Asked::NotThere };
        self.effects.told.extend(client.map(|client| (client, News::YieldAsked(place.entry))));
        Ok(asked)
    }

    pub(super) fn annotate(&mut self, place: &Place, note: &Note) -> Result<Annotation> {
        if !self.line(&place.key, None)?.holders.iter().any(|seat| seat.entry == place.entry) {
            return Ok(Annotation::NotHolding);
        }
        self.execute(
            "UPDATE entry SET value = ?2 WHERE entry = ?1",
            params![place.entry.0.to_be_bytes(), note.value.as_deref()],
        )?;
        self.publish(&place.key)?;
        Ok(Annotation::Written)
    }

    /// Takes out whatever a client has left behind that is gone.
    pub(super) fn reap(&mut self, client: &str) -> Result<()> {
        self.execute("DELETE FROM watcher WHERE client = ?1", [client])?;
        for key in self.keys("SELECT DISTINCT namespace, name FROM entry WHERE client = ?1", [client])? {
            self.change(&key, |lines| {
                lines.execute(
                    "DELETE FROM entry WHERE namespace = ?1 AND name = ?2 AND client = ?3",
                    params![key.namespace().as_str(), key.name(), client],
                )
            })?;
        }
        Ok(())
    }

    /// Takes out whatever the dead have left in the lines from one key to another of its namespace. Each client is asked
    /// after once, however many entries it has, and if all are there nothing is written.
    fn reap_dead_between(&mut self, first: &Key, last: &Key) -> Result<()> {
        let clients: Vec<String> = self.rows(
            "SELECT DISTINCT client FROM entry WHERE namespace = ?1 AND name BETWEEN ?2 AND ?3",
            params![first.namespace().as_str(), first.name(), last.name()],
            |row| row.get(0).map_err(fault),
        )?;
        clients.iter().filter(|client| !(self.is_alive)(client)).try_for_each(|client| self.reap(client))
    }

    /// Whether any of them was dead: whoever finds a key taken asks the kernel whether its holder is still there.
    fn reap_dead_holders(&mut self, holders: &[Seat]) -> Result<bool> {
        let dead: Vec<&Seat> = holders.iter().filter(|seat| !(self.is_alive)(&seat.client)).collect();
        for seat in &dead {
            self.reap(&seat.client)?;
        }
        Ok(!dead.is_empty())
    }

    /// Nobody is shown who has died: whoever looks may be the first to notice, and then takes it out for good.
    pub(super) fn inspect(&mut self, query: &Query) -> Result<Page<KeyView>> {
        let keys = match &query.key {
            Some(key) => vec![key.clone()],
            None => self.keys(
                "SELECT DISTINCT namespace, name FROM entry WHERE namespace = ?1 AND name > ?2 ORDER BY name LIMIT ?3",
                params![
                    query.namespace.as_str(),
                    query.after.as_ref().map_or(&b""[..], Key::name),
                    i64::try_from(query.keys_max.saturating_add(1)).unwrap_or(i64::MAX)
                ],
            )?,
        };
        let next = if keys.len() > query.keys_max { keys.get(query.keys_max.max(1) - 1).cloned() } else { None };
        let keys = &keys[..keys.len().min(query.keys_max)];
        if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
            self.reap_dead_between(first, last)?;
        }
        let views = keys.iter().map(|key| self.view(key)).collect::<Result<Vec<_>>>()?;
        Ok(Page { items: views.into_iter().filter(|view| view.capacity.is_some()).collect(), next })
    }

    pub(super) fn view(&self, key: &Key) -> Result<KeyView> {
        let sql = format!("SELECT {COLUMNS} FROM entry WHERE namespace = ?1 AND name = ?2 ORDER BY ticket");
        let mut holders =
            self.rows(&sql, params![key.namespace().as_str(), key.name()], |row| entry_view(row, key, self.now))?;
        let capacity = holders.first().map(|view| view.claim.capacity());
        let weights = holders.iter().map(|view| view.claim.weight());
        let held = capacity.map_or(0, |capacity| queue::holders(capacity, weights));
        let mut waiters = holders.split_off(held);
        waiters.iter_mut().for_each(|view| view.token = None);
        Ok(KeyView { key: key.clone(), capacity, holders, waiters: Some(waiters) })
    }

    /// The clients whose end would change who holds the key.
    pub(super) fn holding(&self, key: &Key) -> Result<Vec<String>> {
        Ok(self.line(key, None)?.holders.into_iter().map(|seat| seat.client).collect())
    }

    /// Follows a key from now on: its present state, and the version from which on changes are written down.
    pub(super) fn follow(&mut self, key: &Key, client: &str) -> Result<(KeyView, i64)> {
        self.reap_dead_between(key, key)?;
        self.execute(
            "INSERT OR IGNORE INTO watcher (namespace, name, client) VALUES (?1, ?2, ?3)",
            params![key.namespace().as_str(), key.name(), client],
        )?;
        Ok((self.view(key)?, self.last_sighting(key)?))
    }

    pub(super) fn unfollow(&mut self, key: &Key, client: &str) -> Result<()> {
        self.execute(
            "DELETE FROM watcher WHERE namespace = ?1 AND name = ?2 AND client = ?3",
            params![key.namespace().as_str(), key.name(), client],
        )
    }

    /// The states of a key that were written down after that version, oldest first.
    pub(super) fn sightings(&self, key: &Key, after: i64) -> Result<(Vec<KeyView>, i64)> {
        let sql = format!(
            "SELECT {COLUMNS}, version FROM sighting
             WHERE namespace = ?1 AND name = ?2 AND version > ?3 ORDER BY version, nth"
        );
        let mut last = after;
        let mut views: Vec<KeyView> = Vec::new();
        let rows = self.rows(&sql, params![key.namespace().as_str(), key.name(), after], |row| {
            let version: i64 = row.get(11).map_err(fault)?;
            let vacant = row.get::<_, Option<i64>>(0).map_err(fault)?.is_none();
            let view = if vacant { None } else { Some(entry_view(row, key, self.now)?) };
            Ok((version, view))
        })?;
        for (version, entry) in rows {
            if version != last {
                last = version;
                let capacity = entry.as_ref().map(|entry| entry.claim.capacity());
                views.push(KeyView { key: key.clone(), capacity, holders: Vec::new(), waiters: None });
            }
            if let (Some(view), Some(entry)) = (views.last_mut(), entry) {
                view.holders.push(entry);
            }
        }
        Ok((views, last))
    }

    fn join(&mut self, place: &Place, claim: Claim, note: &Note, client: &str, expires_at: Moment) -> Result<Ticket> {
        let (number, sync) = schema::next_ticket(self.tx, nanos(expires_at)).map_err(fault)?;
        self.effects.sync |= sync;
        let (weight, capacity) = columns(claim);
        self.execute(
            "INSERT INTO entry (namespace, name, ticket, entry, client, weight, capacity, owner, host, pid, value,
                entered_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            params![
                place.key.namespace().as_str(),
                place.key.name(),
                number,
                place.entry.0.to_be_bytes(),
                client,
                weight,
                capacity,
                &*note.owner,
                &*note.host,
                note.pid,
                note.value.as_deref(),
                nanos(self.now),
                nanos(expires_at)
            ],
        )?;
        ticket(number)
    }

    /// Changes a line, then lets the rule say who holds, and notes whom to tell. Returns who held before.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<Vec<Seat>> {
        let before = self.line(key, None)?.holders;
        change(self)?;
        loop {
            let mut granted = self.line(key, None)?.holders;
            granted.retain(|seat| before.iter().all(|held| held.ticket != seat.ticket));
            // Nobody is handed a key who is not there to take it: the line would stand still until its lease ends.
            if let Some(dead) = granted.iter().find(|seat| !(self.is_alive)(&seat.client)) {
                self.delete(dead.entry)?;
                continue;
            }
            let told = granted.into_iter().map(|seat| (seat.client, News::Granted(seat.entry, seat.ticket)));
            self.effects.told.extend(told);
            self.publish(key)?;
            return Ok(before);
        }
    }

    /// Writes down who holds a key now, for those who follow it.
    fn publish(&mut self, key: &Key) -> Result<()> {
        let place = params![key.namespace().as_str(), key.name()];
        let sql = "SELECT client FROM watcher WHERE namespace = ?1 AND name = ?2";
        let followers: Vec<String> = self.rows(sql, place, |row| row.get(0).map_err(fault))?;
        if followers.is_empty() {
            return Ok(());
        }
        let version = self.last_sighting(key)? + 1;
        let held = self.line(key, None)?.holders;
        if held.is_empty() {
            self.execute(
                "INSERT INTO sighting (namespace, name, version, nth) VALUES (?1, ?2, ?3, 0)",
                params![key.namespace().as_str(), key.name(), version],
            )?;
        }
        for (nth, seat) in held.iter().enumerate() {
            let sql = format!(
                "INSERT INTO sighting (namespace, name, version, nth, {COLUMNS})
                 SELECT namespace, name, ?2, ?3, {COLUMNS} FROM entry WHERE entry = ?1"
            );
            self.execute(&sql, params![seat.entry.0.to_be_bytes(), version, nth as i64])?;
        }
        self.execute(
            "DELETE FROM sighting WHERE namespace = ?1 AND name = ?2 AND version <= ?3",
            params![key.namespace().as_str(), key.name(), version - SIGHTINGS_KEPT],
        )?;
        self.effects.told.extend(followers.into_iter().map(|client| (client, News::Changed)));
        Ok(())
    }

    /// Who holds a key by the rule, and whether one more claim would hold it beside them. Reads one row more than there
    /// are holders.
    fn line(&self, key: &Key, more: Option<Claim>) -> Result<Line> {
        let mut statement = self
            .tx
            .prepare_cached(
                "SELECT ticket, entry, client, expires_at, weight, capacity FROM entry
                 WHERE namespace = ?1 AND name = ?2 ORDER BY ticket",
            )
            .map_err(fault)?;
        let mut rows = statement.query(params![key.namespace().as_str(), key.name()]).map_err(fault)?;
        let mut next = || rows.next().map_err(fault)?.map(seat).transpose();
        let Some((first, claim)) = next()? else {
            return Ok(Line { capacity: None, holders: Vec::new(), has_room: true });
        };
        let (capacity, mut seats, mut failed) = (claim.capacity(), vec![first], None);
        let rest = std::iter::from_fn(|| match next() {
            Ok(row) => row.map(|(seat, claim)| {
                seats.push(seat);
                claim.weight()
            }),
            Err(error) => {
                failed = Some(error);
                None
            }
        });
        let weights = std::iter::once(claim.weight()).chain(rest).chain(more.map(Claim::weight));
        let held = queue::holders(capacity, weights);
        if let Some(error) = failed {
            return Err(error);
        }
        let has_room = held > seats.len();
        seats.truncate(held);
        Ok(Line { capacity: Some(capacity), holders: seats, has_room })
    }

    fn ticket_of(&self, entry: EntryId) -> Result<Option<Ticket>> {
        let number =
            self.one("SELECT ticket FROM entry WHERE entry = ?1", [entry.0.to_be_bytes()], |row| row.get(0))?;
        number.map(ticket).transpose()
    }

    fn ahead_of(&self, key: &Key, ticket: Ticket) -> Result<u32> {
        let below = i64::try_from(ticket.0).unwrap_or(i64::MAX);
        let count = self.one(
            "SELECT count(*) FROM entry WHERE namespace = ?1 AND name = ?2 AND ticket < ?3",
            params![key.namespace().as_str(), key.name(), below],
            |row| row.get(0),
        )?;
        Ok(count.unwrap_or_default())
    }

    fn last_sighting(&self, key: &Key) -> Result<i64> {
        let last = self.one(
            "SELECT coalesce(max(version), 0) FROM sighting WHERE namespace = ?1 AND name = ?2",
            params![key.namespace().as_str(), key.name()],
            |row| row.get(0),
        )?;
        Ok(last.unwrap_or_default())
    }

    fn shortest_left(&self, seats: &[Seat]) -> Duration {
        seats.iter().map(|seat| self.now.until(seat.expires_at)).min().unwrap_or(Duration::MAX)
    }

    /// Whether its holder was asked to let go, or `None` if there is no such entry.
    fn extend(&mut self, entry: EntryId, ttl: Duration) -> Result<Option<bool>> {
        self.one(
            "UPDATE entry SET expires_at = max(expires_at, ?2) WHERE entry = ?1 RETURNING yield_asked",
            params![entry.0.to_be_bytes(), nanos(self.now.after(ttl))],
            |row| row.get(0),
        )
    }

    fn delete(&mut self, entry: EntryId) -> Result<()> {
        self.execute("DELETE FROM entry WHERE entry = ?1", [entry.0.to_be_bytes()])
    }

    fn execute(&self, sql: &str, params: impl Params) -> Result<()> {
        self.tx.prepare_cached(sql).and_then(|mut statement| statement.execute(params)).map_err(fault)?;
        Ok(())
    }

    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        self.tx
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read).optional())
            .map_err(fault)
    }

    fn rows<T>(&self, sql: &str, params: impl Params, read: impl Fn(&Row<'_>) -> Result<T>) -> Result<Vec<T>> {
        let mut statement = self.tx.prepare_cached(sql).map_err(fault)?;
        let mut rows = statement.query(params).map_err(fault)?;
        let mut all = Vec::new();
        while let Some(row) = rows.next().map_err(fault)? {
            all.push(read(row)?);
        }
        Ok(all)
    }

    fn keys(&self, sql: &str, params: impl Params) -> Result<Vec<Key>> {
        self.rows(sql, params, |row| {
            let (namespace, name): (String, Vec<u8>) = (row.get(0).map_err(fault)?, row.get(1).map_err(fault)?);
            Key::new(&Namespace::new(&namespace)?, name)
        })
    }
}

/// The standing of an entry that was in line and is no longer.
pub(super) fn gone() -> Standing {
    Standing::Refused { held_by: Vec::new(), recheck_in: Duration::ZERO }
}

/// How a claim is written down: its weight and the capacity that it sees, both 0 for an exclusive one.
fn columns(claim: Claim) -> (i64, i64) {
    match claim {
        Claim::Exclusive => (0, 0),
        Claim::Shared => (1, 0),
        Claim::Permits { count, of } => (count.get().into(), of.get().into()),
    }
}

fn claim(weight: i64, capacity: i64) -> Result<Claim> {
    let number = |value: i64| u32::try_from(value).ok().and_then(std::num::NonZeroU32::new);
    match (weight, capacity, number(weight), number(capacity)) {
        (0, 0, ..) => Ok(Claim::Exclusive),
        (1, 0, ..) => Ok(Claim::Shared),
        (.., Some(count), Some(of)) if count <= of => Ok(Claim::Permits { count, of }),
        _ => Err(protocol(format!("an entry claims {weight} of {capacity}"))),
    }
}

pub(super) fn token(claim: Claim, ticket: Ticket) -> Option<FencingToken> {
    if claim.is_exclusive() { FencingToken::new(ticket.0) } else { None }
}

fn ticket(number: i64) -> Result<Ticket> {
    u64::try_from(number).map(Ticket).map_err(|_| protocol(format!("a ticket of {number}")))
}

fn moment(nanos: i64) -> Moment {
    Moment::from_nanos(u64::try_from(nanos).unwrap_or_default())
}

fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

/// A row of `ticket, entry, client, expires_at, weight, capacity`.
fn seat(row: &Row<'_>) -> Result<(Seat, Claim)> {
    let entry = EntryId(u128::from_be_bytes(row.get(1).map_err(fault)?));
    let expires_at = moment(row.get(3).map_err(fault)?);
    let claim = claim(row.get(4).map_err(fault)?, row.get(5).map_err(fault)?)?;
    let (ticket, client) = (ticket(row.get(0).map_err(fault)?)?, row.get(2).map_err(fault)?);
    Ok((Seat { ticket, entry, client, expires_at }, claim))
}

/// A row of [`COLUMNS`].
fn entry_view(row: &Row<'_>, key: &Key, now: Moment) -> Result<EntryView> {
    let text = |at: usize| row.get::<_, String>(at).map_err(fault);
    let claim = claim(row.get(2).map_err(fault)?, row.get(3).map_err(fault)?)?;
    let ticket = ticket(row.get(0).map_err(fault)?)?;
    let value: Option<Vec<u8>> = row.get(7).map_err(fault)?;
    Ok(EntryView {
        place: Place { key: key.clone(), entry: EntryId(u128::from_be_bytes(row.get(1).map_err(fault)?)) },
        claim,
        ticket,
        token: token(claim, ticket),
        note: Note {
            owner: text(4)?.into(),
            host: text(5)?.into(),
            pid: row.get(6).map_err(fault)?,
            value: value.map(Into::into),
        },
        age: moment(row.get(8).map_err(fault)?).until(now),
        lease_left: now.until(moment(row.get(9).map_err(fault)?)),
        yield_asked: row.get(10).map_err(fault)?,
        foreign: false,
        spread: None,
    })
}
