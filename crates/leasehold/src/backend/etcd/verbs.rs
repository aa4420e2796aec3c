//! Entering, looking, leaving: each one transaction where nobody is in the way.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;

use crate::backend::etcd::core::Core;
use crate::backend::etcd::line::{Blocker, Line, Member, Sight, Stand, count};
use crate::backend::etcd::message::{
    Act, Came, Compare, Delete, KeyValue, Op, Operand, Put, Range, Ranged, Relation, SortOrder, SortTarget, Target,
    Txn, TxnDone,
};
use crate::backend::etcd::names::{self, Label};
use crate::backend::etcd::roster::{Own, Written};
use crate::backend::etcd::wire::Wire;
use crate::backend::{Annotation, Asked, Departure, Lease, LeaseId, Note, Patience, Place, Request, Standing, Version};
use crate::claim::Claim;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Fate, Result};
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

/// That there is such an entry of ours, and not one that came to its key later.
fn is_there(own: &Own) -> Compare {
    let Written { key, value, slot, .. } = &*own.written;
    match (own.ticket, slot) {
        (Some(ticket), _) => created_at(&**key, ticket),
        // Whether it was ever made is unknown. What it was to be made with is no other entry's.
        (None, Some(_)) => {
            let operand = Some(Operand::Value(value.clone()));
            Compare { target: Target::Value.into(), operand, ..created_at(&**key, 0) }
        }
        (None, None) => Compare { relation: Relation::NotEqual.into(), ..created_at(&**key, 0) },
    }
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

/// An entry and the one right before it, the later one first. Their keys are all that an exclusive claim has to know.
fn last_two(line: &[u8], ticket: Option<i64>) -> Range {
    let (limit, max_create_revision) = (2, ticket.unwrap_or_default());
    Range { sort_order: SortOrder::Descending.into(), limit, max_create_revision, keys_only: true, ..whole(line) }
}

fn came(done: TxnDone, at: usize) -> Result<Came> {
    done.outcomes.into_iter().nth(at).and_then(|outcome| outcome.came).ok_or_else(unreadable)
}

fn ranged(done: TxnDone, at: usize) -> Result<Ranged> {
    match came(done, at)? {
        Came::Ranged(ranged) => Ok(ranged),
        _ => Err(unreadable()),
    }
}

fn revision(done: &TxnDone) -> i64 {
    done.header.as_ref().map_or(0, |header| header.revision)
}

fn unreadable() -> Error {
    Error::new(ErrorKind::Protocol, "an answer that does not fit what was asked").with_unknown_fate()
}

/// The standing of an entry that was in line and is no longer.
pub(super) fn gone() -> Standing {
    Standing::Refused { held_by: Vec::new(), recheck_in: Duration::ZERO }
}

impl Core {
    /// Joins a line by that connection, or looks up our place in it. One trip where nobody is in the way, and one more for a
    /// new session.
    pub(super) async fn enter(
        self: &Arc<Self>,
        wire: &Arc<Wire>,
        request: &Request,
        asked_at: Moment,
    ) -> Result<Standing> {
        let entry = request.place.entry;
        if request.returns {
            let Some(own) = self.roster.get(entry) else { return Ok(gone()) };
            let (kept, looked) = join(self.keep(&own.session), self.look(wire, &own, true)).await;
            let (stand, revision) = looked?;
            if let Err(error) = kept {
                tracing::debug!(target: "leasehold::etcd", %error, "a session was not kept alive");
            }
            return Ok(self.standing(&own, &stand, revision, asked_at));
        }
        let mut tries = 0;
        loop {
            let before = self.roster.get(entry);
            let own = match &before {
                Some(own) => own.clone(),
                None => self.new_entry(request).await?,
            };
            let (_, joined) = join(self.keep(&own.session), self.join_line(wire, request, &own)).await;
            match joined {
                // The server has forgotten the session, and hence done nothing.
                Err(error) if error.kind() == ErrorKind::Lost && tries == 0 => {
                    tries += 1;
                    own.session.end();
                    self.roster.is_over(&own.session);
                    self.roster.remove(entry);
                }
                Err(error) => {
                    // What an earlier request has made, or may yet make, is what it was.
                    if error.fate() == Fate::NotApplied && before.is_none() {
                        self.roster.remove(entry);
                    }
                    let lost = error.kind() == ErrorKind::Lost;
                    return Err(if lost { Error::new(ErrorKind::Unreachable, "the session has ended") } else { error });
                }
                Ok(Joined::Refused(standing)) => {
                    if before.is_some_and(|before| before.ticket.is_none()) {
                        self.roster.remove_and_retire_its_slot(entry);
                    } else {
                        self.roster.remove(entry);
                    }
                    return Ok(standing);
                }
                Ok(Joined::Occupied) => self.roster.remove_and_retire_its_slot(entry),
                Ok(Joined::Stands(stand, revision)) => return Ok(self.standing(&own, &stand, revision, asked_at)),
            }
        }
    }

    async fn new_entry(self: &Arc<Self>, request: &Request) -> Result<Own> {
        let session = self.session(request.terms.holding).await?;
        let Request { place, claim, note, .. } = request;
        Ok(self.roster.add(place.entry, || {
            let (entry, entered_ms, ttl_s) = (place.entry, self.wall_ms(), session.ttl.as_secs());
            let label = Label { entry, claim: *claim, note: note.clone(), entered_ms, ttl_s };
            let written = Written::new(label, &names::line(&place.key), &session);
            Own::new(place.clone(), session, written, self.wire.timer.now())
        }))
    }

    /// Believes in an entry no further than its session reaches.
    pub(super) fn standing(self: &Arc<Self>, own: &Own, stand: &Stand, revision: i64, asked_at: Moment) -> Standing {
        let entry = own.place.entry;
        if !self.roster.stands(entry, stand, revision) {
            return gone(); // it was taken out while we asked
        }
        let ttl = own.session.left(asked_at);
        self.roster.is_believed_until(entry, asked_at.after(ttl));
        let lease = Lease { id: LeaseId::Entry(own.place.clone()), ttl };
        match stand {
            // What was seen may have gone since.
            _ if own.fate.is_gone() => {
                self.roster.remove(entry);
                gone()
            }
            Stand::Gone => {
                self.forget(own);
                gone()
            }
            Stand::Holding { ticket } => {
                self.watch_soon(own);
                held(own.claim, *ticket, lease)
            }
            Stand::Waiting { ahead, .. } => {
                let recheck_in = queue::recheck_in(ahead.unwrap_or(1), Duration::MAX);
                let seen = Version(revision.cast_unsigned());
                Standing::Waiting { ahead: *ahead, turn: None, lease: Some(lease), seen, recheck_in }
            }
        }
    }

    async fn join_line(&self, wire: &Arc<Wire>, request: &Request, own: &Own) -> Result<Joined> {
        let line = names::line(&own.place.key);
        match request.patience {
            Patience::Queue => self.queue_up(wire, own, &line).await,
            Patience::Refuse => self.join_if_free(wire, own, &line).await,
        }
    }

    /// Forgets an entry that was looked for and is not there.
    fn forget(&self, own: &Own) {
        match own.ticket {
            // It was there, and nobody comes back.
            Some(_) => self.roster.remove(own.place.entry),
            // The request to make it may still be on its way.
            None => self.roster.remove_and_retire_its_slot(own.place.entry),
        }
    }

    fn put(own: &Own) -> Act {
        let Written { key, value, .. } = &*own.written;
        Act::Put(Put { key: key.clone(), value: value.clone(), lease: own.session.lease, ignore_lease: false })
    }

    /// Takes a place in line. One trip, and one more if somebody is in it whom we did not expect, or who claims something else.
    async fn queue_up(&self, wire: &Arc<Wire>, own: &Own, line: &[u8]) -> Result<Joined> {
        let (place, claim) = (&own.place, own.claim);
        let new = created_at(&*own.written.key, 0);
        let of_one_kind = names::of_another_kind(line, claim).into_iter().map(|(from, to)| nothing_in(from, to));
        let mut compare: Vec<Compare> = [new.clone()].into_iter().chain(of_one_kind).collect();
        // An exclusive claim need know nobody but who comes right before.
        let ahead = if claim.is_exclusive() { last_two(line, None) } else { whole(line) };
        let mut crowded = self.crowds.is_one_at(&place.key);
        loop {
            let strict = compare.len() > 1;
            let among_others = crowded.then(|| {
                let success = vec![Self::put(own).into(), Act::Range(ahead.clone()).into()];
                let failure = vec![Act::Range(whole(line)).into()];
                Act::Txn(Txn { compare: compare.clone(), success, failure }).into()
            });
            // Whoever is alone needs nothing but to be there. That is most locks, so that it comes first; and what else could be
            // done takes the server time even if it is not.
            let nobody = vec![nothing_in(line.to_vec(), names::behind(line))];
            let (success, failure) = (vec![Self::put(own).into()], Vec::from_iter(among_others));
            let alone: TxnDone = wire.call(TXN, Txn { compare: nobody, success, failure }).await?;
            let revision = revision(&alone);
            self.crowds.note(&place.key, !alone.succeeded);
            if alone.succeeded {
                return Ok(Joined::Stands(Stand::Holding { ticket: revision }, revision));
            }
            if !crowded {
                crowded = true;
                continue;
            }
            let Came::Txn(done) = came(alone, 0)? else { return Err(unreadable()) };
            if done.succeeded {
                let found = ranged(done, 1)?;
                let stand =
                    if claim.is_exclusive() { stand_behind(found, own)? } else { stand_of_last(line, found, own)? };
                return Ok(Joined::Stands(stand, revision));
            }
            let found = Line::of(line, ranged(done, 0)?);
            if let Some(at) = found.position(place.entry) {
                return Ok(Joined::Stands(found.stand(at), revision)); // it was made before, and we did not hear of it
            }
            found.capacity().map_or(Ok(()), |capacity| capacity.admits(claim, &place.key))?;
            if found.has(&own.written.key) {
                return Ok(Joined::Occupied);
            }
            if !strict {
                return Err(unreadable());
            }
            // A stranger's entry is within a line of permits. It is waited for like any other.
            compare = vec![new.clone()];
        }
    }

    /// Joins a line only if it can hold at once. One trip if nobody is there, and one more where it can share; a few more in a
    /// crowd of others who can.
    async fn join_if_free(&self, wire: &Arc<Wire>, own: &Own, line: &[u8]) -> Result<Joined> {
        let (place, claim) = (&own.place, own.claim);
        let mut compare = nothing_in(line.to_vec(), names::behind(line));
        for _ in 0..OVERTAKEN_MAX {
            let success = vec![Self::put(own).into()];
            let failure = vec![Act::Range(whole(line)).into()];
            let done: TxnDone = wire.call(TXN, Txn { compare: vec![compare], success, failure }).await?;
            let revision = revision(&done);
            if done.succeeded {
                return Ok(Joined::Stands(Stand::Holding { ticket: revision }, revision));
            }
            let found = Line::of(line, ranged(done, 0)?);
            if let Some(at) = found.position(place.entry) {
                return Ok(Joined::Stands(found.stand(at), revision));
            }
            if let Some(capacity) = found.capacity() {
                capacity.admits(claim, &place.key)?;
            }
            if !found.has_room_for(claim) {
                return Ok(Joined::Refused(self.refusal(&found, &place.key, line)));
            }
            if found.has(&own.written.key) {
                return Ok(Joined::Occupied);
            }
            // Whoever leaves meanwhile makes more room, and whoever comes meanwhile is counted anew. Nobody was at our own key,
            // and nobody has come to it: this too makes an entry, and writes over none.
            compare = nobody_new_in(line.to_vec(), names::behind(line), revision);
        }
        // In the crowd, whoever wants to be sure of its place has to take one.
        let joined = self.queue_up(wire, own, line).await?;
        if let Joined::Stands(Stand::Waiting { .. }, _) = joined {
            // Whatever keeps it from leaving, there is something to leave.
            self.leave(wire, place).await.map_err(Error::with_unknown_fate)?;
            let found = Line::of(line, wire.read(RANGE, whole(line)).await?);
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
    /// view from a server that lags behind can make us wait too long, but never hold too soon. It must be no older than when it was
    /// asked for all the same, or who looks because its watch was late would miss a departure.
    pub(super) async fn look(&self, wire: &Arc<Wire>, own: &Own, counted: bool) -> Result<(Stand, i64)> {
        let line = names::line(&own.place.key);
        let limited = !counted && own.claim.is_exclusive() && own.ticket.is_some();
        let query = match own.ticket {
            ticket if limited => last_two(&line, ticket),
            ticket => Range { max_create_revision: ticket.unwrap_or_default(), ..whole(&line) },
        };
        let answer: Ranged = wire.read(RANGE, query).await?;
        let revision = answer.header.as_ref().map_or(0, |header| header.revision);
        if limited {
            // Whoever is at our key with another create revision came after us.
            let is_own = |kv: &KeyValue| kv.key == own.written.key && Some(kv.create_revision) == own.ticket;
            let stand = if answer.kvs.first().is_some_and(is_own) { stand_behind(answer, own)? } else { Stand::Gone };
            let uncounted = |stand| match stand {
                Stand::Waiting { ticket, blocker, .. } => Stand::Waiting { ticket, ahead: None, blocker },
                stand => stand,
            };
            return Ok((uncounted(stand), revision));
        }
        let found = Line::of(&line, answer);
        Ok((found.position(own.place.entry).map_or(Stand::Gone, |at| found.stand(at)), revision))
    }

    /// Leaves a line by that connection, or takes somebody else out of it. One trip for an entry of ours, two for another.
    pub(super) async fn leave(&self, wire: &Arc<Wire>, place: &Place) -> Result<Departure> {
        let Some(own) = self.roster.get(place.entry) else { return self.evict(wire, place).await };
        let wish = Op::from(remove(names::wish(&place.key, place.entry)));
        let mut success = vec![remove(own.written.key.clone()).into(), wish.clone()];
        let line = names::line(&place.key);
        if !own.holds {
            // Its turn may have come without our knowing.
            success.insert(0, Act::Range(whole(&line)).into());
        }
        let txn = Txn { compare: vec![is_there(&own)], success, failure: vec![wish] };
        let done: TxnDone = wire.call(TXN, txn).await?;
        if !done.succeeded {
            self.forget(&own);
            return Ok(Departure::WasGone);
        }
        let departure = if own.holds {
            Departure::WasHolding
        } else {
            let found = Line::of(&line, ranged(done, 0)?);
            departure_of(found.position(place.entry), &found)
        };
        self.roster.remove(place.entry);
        Ok(departure)
    }

    async fn evict(&self, wire: &Arc<Wire>, place: &Place) -> Result<Departure> {
        let (found, member) = self.find(wire, place).await?;
        let Some(member) = member else { return Ok(Departure::WasGone) };
        let compare = vec![created_at(&*member.key, member.ticket)];
        let success = vec![remove(member.key).into(), remove(names::wish(&place.key, place.entry)).into()];
        let done: TxnDone = wire.call(TXN, Txn { compare, success, failure: Vec::new() }).await?;
        Ok(if done.succeeded { departure_of(found.position(place.entry), &found) } else { Departure::WasGone })
    }

    /// The line of a place, and the entry in it.
    async fn find(&self, wire: &Arc<Wire>, place: &Place) -> Result<(Line, Option<Member>)> {
        let line = names::line(&place.key);
        let found = Line::of(&line, wire.read(RANGE, whole(&line)).await?);
        let member = found.position(place.entry).map(|at| found.members[at].clone());
        Ok((found, member))
    }

    /// Leaves a wish beside an entry, on the entry's own lease. Two trips.
    pub(super) async fn ask_to_yield(&self, place: &Place) -> Result<Asked> {
        // Whoever made it with another program does not look for wishes.
        let (_, Some(member)) = self.find(&self.wire, place).await? else { return Ok(Asked::NotThere) };
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
            _ => match self.look(&self.wire, &own, false).await? {
                (stand @ Stand::Holding { ticket }, revision) => {
                    self.roster.stands(place.entry, &stand, revision);
                    ticket
                }
                _ => return Ok(Annotation::NotHolding),
            },
        };
        let Written { key, label, slot, .. } = &*own.written;
        let value = match slot {
            Some(_) => Label { note: note.clone(), ..label.clone() }.value(),
            None => note.value.as_deref().unwrap_or_default().to_vec(),
        };
        let put = Put { key: key.clone(), value, lease: 0, ignore_lease: true };
        let (compare, success) = (vec![created_at(&**key, ticket)], vec![Act::Put(put).into()]);
        let done: TxnDone = self.wire.call(TXN, Txn { compare, success, failure: Vec::new() }).await?;
        Ok(if done.succeeded { Annotation::Written } else { Annotation::NotHolding })
    }
}

/// What came of joining a line.
enum Joined {
    Stands(Stand, i64),
    Refused(Standing),
    /// Somebody else has written where our entry was to be, who is waited for like any other. Only by hand can that be done.
    Occupied,
}

fn held(claim: Claim, ticket: i64, lease: Lease) -> Standing {
    let ticket = Ticket(ticket.cast_unsigned());
    let token = if claim.is_exclusive() { FencingToken::new(ticket.0) } else { None };
    Standing::Holding { ticket, token, lease }
}

/// Where our exclusive entry stands, which is the last one, and of which only the one before it was read besides.
fn stand_behind(ranged: Ranged, own: &Own) -> Result<Stand> {
    let all = usize::try_from(ranged.count).unwrap_or_default();
    let mut kvs = ranged.kvs.into_iter();
    let ticket = match kvs.next() {
        Some(last) if last.key == own.written.key => last.create_revision,
        _ => return Err(unreadable()),
    };
    Ok(match kvs.next() {
        None => Stand::Holding { ticket },
        Some(before) => {
            let ahead = Some(count(all.saturating_sub(1)));
            Stand::Waiting { ticket, ahead, blocker: Blocker::Entry(before.key) }
        }
    })
}

/// Where our entry stands, which is the last one of the line.
fn stand_of_last(line: &[u8], ranged: Ranged, own: &Own) -> Result<Stand> {
    let found = Line::of(line, ranged);
    found.position(own.place.entry).map(|at| found.stand(at)).ok_or_else(unreadable)
}

fn remove(key: Vec<u8>) -> Act {
    Act::Delete(Delete { key, range_end: Vec::new() })
}

fn departure_of(at: Option<usize>, line: &Line) -> Departure {
    match at {
        Some(at) if at < line.holders() => Departure::WasHolding,
        Some(_) => Departure::WasWaiting,
        None => Departure::WasGone,
    }
}
