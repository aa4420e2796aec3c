//! Entering, looking, leaving: each one transaction where nobody is in the way.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;

use crate::backend::etcd::core::Core;
use crate::backend::etcd::line::{Line, Member, Sight, Stand, count};
use crate::backend::etcd::message::{
    Act, Came, Compare, Delete, Operand, Put, Range, Ranged, Relation, SortOrder, SortTarget, Target, Txn, TxnDone,
};
use crate::backend::etcd::names::{self, Label};
use crate::backend::etcd::roster::Own;
use crate::backend::{Annotation, Asked, Departure, Lease, LeaseId, Note, Patience, Place, Request, Standing, Version};
use crate::claim::Claim;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{FencingToken, Ticket};
use crate::key::Key;
use crate::queue;

pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";

/// How often others may come in between whoever looks whether there is room and whoever takes it.
const OVERTAKEN_MAX: usize = 3;

/// That there is no key at all from `from` up to `to`.
fn nothing_in(from: Vec<u8>, to: Vec<u8>) -> Compare {
    Compare { range_end: to, ..created_at(from, 0) }
}

/// That the key is the one that was made at that revision; 0: that there is none.
fn created_at(key: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare {
        relation: Relation::Equal.into(),
        target: Target::CreateRevision.into(),
        key: key.into(),
        operand: Some(Operand::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

/// That nobody has come into the range since that revision.
fn nobody_new_in(from: Vec<u8>, to: Vec<u8>, revision: i64) -> Compare {
    let operand = Some(Operand::CreateRevision(revision + 1));
    Compare { relation: Relation::Less.into(), operand, ..nothing_in(from, to) }
}

/// A whole line, in order.
pub(super) fn whole(line: &[u8]) -> Range {
    Range {
        key: line.to_vec(),
        range_end: names::behind(line),
        sort_order: SortOrder::Ascending.into(),
        sort_target: SortTarget::CreateRevision.into(),
        ..Range::default()
    }
}

fn keys_of(line: &[u8]) -> Range {
    Range { keys_only: true, ..whole(line) }
}

/// An entry and the one right before it, the later one first.
fn last_two(line: &[u8], ticket: Option<i64>) -> Range {
    let max_create_revision = ticket.unwrap_or_default();
    Range { sort_order: SortOrder::Descending.into(), limit: 2, max_create_revision, ..keys_of(line) }
}

fn ranged(done: TxnDone, at: usize) -> Result<(Ranged, i64)> {
    let revision = done.header.map_or(0, |header| header.revision);
    match done.outcomes.into_iter().nth(at).and_then(|outcome| outcome.came) {
        Some(Came::Ranged(ranged)) => Ok((ranged, revision)),
        _ => Err(unreadable()),
    }
}

fn deleted(done: &TxnDone, at: usize) -> Result<bool> {
    match done.outcomes.get(at).and_then(|outcome| outcome.came.as_ref()) {
        Some(Came::Deleted(deleted)) => Ok(deleted.deleted > 0),
        _ => Err(unreadable()),
    }
}

fn unreadable() -> Error {
    Error::new(ErrorKind::Protocol, "an answer that does not fit what was asked").with_unknown_fate()
}

/// The standing of an entry that was in line and is no longer.
pub(super) fn gone() -> Standing {
    Standing::Refused { held_by: Vec::new(), recheck_in: Duration::ZERO }
}

impl Core {
    /// Joins a line, or looks up our place in it. One trip where nobody is in the way, and one more for a new session.
    pub(super) async fn enter(self: &Arc<Self>, request: &Request, asked_at: Moment) -> Result<Standing> {
        let entry = request.place.entry;
        if request.returns {
            let Some(own) = self.roster.get(entry) else { return Ok(gone()) };
            let (kept, looked) = join(self.keep(&own.session), self.look(&own, true)).await;
            let (stand, revision) = looked?;
            if let Err(error) = kept {
                tracing::debug!(target: "leasehold::etcd", %error, "a session was not kept alive");
            }
            return Ok(self.standing(&own, &stand, revision, asked_at));
        }
        let mut tries = 0;
        loop {
            let own = match self.roster.get(entry) {
                Some(own) => own,
                None => self.new_entry(request).await?,
            };
            let (_, joined) = join(self.keep(&own.session), self.join_line(request, &own)).await;
            match joined {
                // The server has forgotten the session, and hence done nothing.
                Err(error) if error.kind() == ErrorKind::Lost && tries == 0 => {
                    tries += 1;
                    own.session.end();
                    self.roster.is_over(&own.session);
                    self.roster.remove(entry);
                }
                Err(error) => {
                    if error.fate() == crate::error::Fate::NotApplied {
                        self.roster.remove(entry);
                    }
                    let lost = error.kind() == ErrorKind::Lost;
                    return Err(if lost { Error::new(ErrorKind::Unreachable, "the session has ended") } else { error });
                }
                Ok(Joined::Refused(standing)) => {
                    self.roster.remove(entry);
                    return Ok(standing);
                }
                Ok(Joined::Stands(stand, revision)) => return Ok(self.standing(&own, &stand, revision, asked_at)),
            }
        }
    }

    async fn new_entry(self: &Arc<Self>, request: &Request) -> Result<Own> {
        let session = self.sessions.get(&self.wire, request.terms.holding).await?;
        let Request { place, claim, note, .. } = request;
        let label = Label::new(place.entry, *claim, note, self.wall_ms(), session.ttl.as_secs());
        let key = label.key(&names::line(&place.key), session.lease);
        Ok(self.roster.add(Own::new(place.clone(), *claim, session, key, self.wire.timer.now())))
    }

    /// Believes in an entry no further than its session reaches.
    pub(super) fn standing(self: &Arc<Self>, own: &Own, stand: &Stand, revision: i64, asked_at: Moment) -> Standing {
        let entry = own.place.entry;
        self.roster.stands(entry, stand, revision);
        let ttl = own.session.left(asked_at);
        self.roster.is_believed_until(entry, asked_at.after(ttl));
        let lease = Lease { id: LeaseId::Entry(own.place.clone()), ttl };
        match stand {
            Stand::Gone => {
                self.roster.remove(entry);
                gone()
            }
            Stand::Holding { ticket } => {
                self.watch_soon(own);
                held(own.claim, *ticket, lease)
            }
            Stand::Waiting { ahead, .. } => {
                let recheck_in = queue::recheck_in(ahead.unwrap_or(1), Duration::MAX);
                let seen = Version(revision.cast_unsigned());
                Standing::Waiting { ahead: *ahead, lease: Some(lease), seen, recheck_in }
            }
        }
    }

    async fn join_line(&self, request: &Request, own: &Own) -> Result<Joined> {
        let line = names::line(&own.place.key);
        match request.patience {
            Patience::Queue => self.queue_up(request, own, &line).await,
            Patience::Refuse => self.join_if_free(request, own, &line).await,
        }
    }

    fn put(request: &Request, own: &Own) -> Act {
        let value = request.note.value.as_deref().unwrap_or_default().to_vec();
        Act::Put(Put { key: own.key.to_vec(), value, lease: own.session.lease, ignore_lease: false })
    }

    /// Takes a place in line. One trip, unless somebody is in it who claims something else.
    async fn queue_up(&self, request: &Request, own: &Own, line: &[u8]) -> Result<Joined> {
        let place = &own.place;
        let new = created_at(&*own.key, 0);
        let of_one_kind =
            names::of_another_kind(line, request.claim).into_iter().map(|(from, to)| nothing_in(from, to));
        let mut compare: Vec<Compare> = [new.clone()].into_iter().chain(of_one_kind).collect();
        // Alone, nobody else need be read; otherwise only who comes right before.
        let ahead = if request.claim.is_exclusive() { last_two(line, None) } else { keys_of(line) };
        loop {
            let success = vec![Self::put(request, own).into(), Act::Range(ahead.clone()).into()];
            let failure = vec![Act::Range(keys_of(line)).into()];
            let strict = compare.len() > 1;
            let done: TxnDone = self.wire.call(TXN, Txn { compare, success, failure }).await?;
            if done.succeeded {
                let (ranged, revision) = ranged(done, 1)?;
                return Ok(Joined::Stands(stand_of_last(line, ranged, own)?, revision));
            }
            let (found, revision) = ranged(done, 0)?;
            let found = Line::of(line, found);
            if let Some(at) = found.position(place.entry) {
                return Ok(Joined::Stands(found.stand(at), revision)); // it was made before, and we did not hear of it
            }
            found.capacity().map_or(Ok(()), |capacity| capacity.admits(request.claim, &place.key))?;
            if !strict {
                return Err(unreadable());
            }
            // A stranger's entry is within a line of permits. It is waited for like any other.
            compare = vec![new.clone()];
        }
    }

    /// Joins a line only if it can hold at once. One trip if nobody is there, and one more where it can share; a few more in a
    /// crowd of others who can.
    async fn join_if_free(&self, request: &Request, own: &Own, line: &[u8]) -> Result<Joined> {
        let place = &own.place;
        let mut compare = nothing_in(line.to_vec(), names::behind(line));
        for _ in 0..OVERTAKEN_MAX {
            let success = vec![Self::put(request, own).into()];
            let failure = vec![Act::Range(whole(line)).into()];
            let done: TxnDone = self.wire.call(TXN, Txn { compare: vec![compare], success, failure }).await?;
            if done.succeeded {
                let ticket = done.header.map_or(0, |header| header.revision);
                return Ok(Joined::Stands(Stand::Holding { ticket }, ticket));
            }
            let (found, revision) = ranged(done, 0)?;
            let found = Line::of(line, found);
            if let Some(at) = found.position(place.entry) {
                return Ok(Joined::Stands(found.stand(at), revision));
            }
            if let Some(capacity) = found.capacity() {
                capacity.admits(request.claim, &place.key)?;
            }
            if !found.has_room_for(request.claim) {
                return Ok(Joined::Refused(self.refusal(&found, &place.key, line)));
            }
            // Whoever leaves meanwhile makes more room, and whoever comes meanwhile is counted anew.
            compare = nobody_new_in(line.to_vec(), names::behind(line), revision);
        }
        // In the crowd, whoever wants to be sure of its place has to take one.
        let joined = self.queue_up(request, own, line).await?;
        if let Joined::Stands(Stand::Waiting { .. }, _) = joined {
            // Whatever keeps it from leaving, there is something to leave.
            self.leave(place).await.map_err(Error::with_unknown_fate)?;
            let found = Line::of(line, self.wire.read(RANGE, whole(line)).await?);
            return Ok(Joined::Refused(self.refusal(&found, &place.key, line)));
        }
        Ok(joined)
    }

    fn refusal(&self, found: &Line, key: &Key, line: &[u8]) -> Standing {
        let sight = Sight { wall_ms: self.wall_ms(), lease_left: &|_| None, wished: &[] };
        let held_by = found.view(key, line, &sight).holders;
        Standing::Refused { held_by, recheck_in: queue::recheck_in(1, Duration::MAX) }
    }

    /// Where an entry of ours stands. One trip.
    ///
    /// A view that contains our entry contains every earlier one that was not gone by then: the server had them first. So a
    /// view from a server that lags behind can make us wait too long, but never hold too soon.
    pub(super) async fn look(&self, own: &Own, counted: bool) -> Result<(Stand, i64)> {
        let line = names::line(&own.place.key);
        let limited = !counted && own.claim.is_exclusive() && own.ticket.is_some();
        let query = match own.ticket {
            ticket if limited => last_two(&line, ticket),
            ticket => Range { max_create_revision: ticket.unwrap_or_default(), ..keys_of(&line) },
        };
        let answer: Ranged = self.wire.read(RANGE, query).await?;
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        if limited {
            let stand = match answer.kvs.first() {
                Some(first) if first.key == *own.key => stand_of_last(&line, answer, own)?,
                _ => Stand::Gone,
            };
            let uncounted = |stand| match stand {
                Stand::Waiting { ticket, blocker, .. } => Stand::Waiting { ticket, ahead: None, blocker },
                stand => stand,
            };
            return Ok((uncounted(stand), revision));
        }
        let found = Line::of(&line, answer);
        let at = found.members.iter().position(|member| member.key == *own.key);
        Ok((at.map_or(Stand::Gone, |at| found.stand(at)), revision))
    }

    /// Leaves a line, or takes somebody else out of it. One trip for an entry of ours, two for another.
    pub(super) async fn leave(&self, place: &Place) -> Result<Departure> {
        let Some(own) = self.roster.get(place.entry) else { return self.evict(place).await };
        let remove = |key: Vec<u8>| Act::Delete(Delete { key, range_end: Vec::new() });
        let mut acts = vec![remove(own.key.to_vec()).into(), remove(names::wish(&place.key, place.entry)).into()];
        let line = names::line(&place.key);
        if !own.holds {
            // Its turn may have come without our knowing.
            acts.insert(0, Act::Range(keys_of(&line)).into());
        }
        let done: TxnDone =
            self.wire.call(TXN, Txn { compare: Vec::new(), success: acts, failure: Vec::new() }).await?;
        let departure = match (deleted(&done, usize::from(!own.holds))?, own.holds) {
            (false, _) => Departure::WasGone,
            (true, true) => Departure::WasHolding,
            (true, false) => {
                let found = Line::of(&line, ranged(done, 0)?.0);
                departure_of(found.position(place.entry), &found)
            }
        };
        self.roster.remove(place.entry);
        Ok(departure)
    }

    async fn evict(&self, place: &Place) -> Result<Departure> {
        let (found, member) = self.find(place).await?;
        let Some(member) = member else { return Ok(Departure::WasGone) };
        let remove = |key: Vec<u8>| Act::Delete(Delete { key, range_end: Vec::new() }).into();
        let compare = vec![created_at(&*member.key, member.ticket)];
        let success = vec![remove(member.key), remove(names::wish(&place.key, place.entry))];
        let done: TxnDone = self.wire.call(TXN, Txn { compare, success, failure: Vec::new() }).await?;
        Ok(if done.succeeded { departure_of(found.position(place.entry), &found) } else { Departure::WasGone })
    }

    /// The line of a place, and the entry in it.
    async fn find(&self, place: &Place) -> Result<(Line, Option<Member>)> {
        let line = names::line(&place.key);
        let found = Line::of(&line, self.wire.read(RANGE, keys_of(&line)).await?);
        let member = found.position(place.entry).map(|at| found.members[at].clone());
        Ok((found, member))
    }

    /// Leaves a wish beside an entry, on the entry's own lease. Two trips.
    pub(super) async fn ask_to_yield(&self, place: &Place) -> Result<Asked> {
        // Whoever made it with another program does not look for wishes.
        let (_, Some(member)) = self.find(place).await? else { return Ok(Asked::NotThere) };
        if member.is_foreign() {
            let foreign = "another program made this entry, and it cannot be told";
            return Err(Error::new(ErrorKind::Unsupported, foreign).at(&place.key));
        }
        let wish = Put { key: names::wish(&place.key, place.entry), lease: member.lease, ..Put::default() };
        let (compare, success) = (vec![created_at(member.key, member.ticket)], vec![Act::Put(wish).into()]);
        let done: TxnDone = self.wire.call(TXN, Txn { compare, success, failure: Vec::new() }).await?;
        Ok(if done.succeeded { Asked::Told } else { Asked::NotThere })
    }

    /// Replaces the value of an entry that holds. One trip, or two if we have not heard yet that it does.
    pub(super) async fn annotate(&self, place: &Place, note: &Note) -> Result<Annotation> {
        let Some(own) = self.roster.get(place.entry) else { return Ok(Annotation::NotHolding) };
        let ticket = match own.ticket {
            Some(ticket) if own.holds => ticket,
            _ => match self.look(&own, false).await? {
                (stand @ Stand::Holding { ticket }, revision) => {
                    self.roster.stands(place.entry, &stand, revision);
                    ticket
                }
                _ => return Ok(Annotation::NotHolding),
            },
        };
        let value = note.value.as_deref().unwrap_or_default().to_vec();
        let put = Put { key: own.key.to_vec(), value, lease: 0, ignore_lease: true };
        let (compare, success) = (vec![created_at(&*own.key, ticket)], vec![Act::Put(put).into()]);
        let done: TxnDone = self.wire.call(TXN, Txn { compare, success, failure: Vec::new() }).await?;
        Ok(if done.succeeded { Annotation::Written } else { Annotation::NotHolding })
    }
}

/// What came of joining a line.
enum Joined {
    Stands(Stand, i64),
    Refused(Standing),
}

fn held(claim: Claim, ticket: i64, lease: Lease) -> Standing {
    let ticket = Ticket(ticket.cast_unsigned());
    let token = if claim.is_exclusive() { FencingToken::new(ticket.0) } else { None };
    Standing::Holding { ticket, token, lease }
}

/// Where our entry stands, which is the last one that was read: in full, or with only the one before it.
fn stand_of_last(line: &[u8], ranged: Ranged, own: &Own) -> Result<Stand> {
    let all = usize::try_from(ranged.count).unwrap_or_default();
    let mut found = Line::of(line, ranged);
    found.members.sort_by_key(|member| member.ticket);
    let at = found.members.iter().position(|member| member.key == *own.key).ok_or_else(unreadable)?;
    Ok(match found.stand(at) {
        Stand::Waiting { ticket, blocker, .. } => {
            Stand::Waiting { ticket, ahead: Some(count(all.saturating_sub(1))), blocker }
        }
        stand => stand,
    })
}

fn departure_of(at: Option<usize>, line: &Line) -> Departure {
    match at {
        Some(at) if at < line.holders() => Departure::WasHolding,
        Some(_) => Departure::WasWaiting,
        None => Departure::WasGone,
    }
}
