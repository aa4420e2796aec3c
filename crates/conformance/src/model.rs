//! What a store must answer: a key's line as the rule of `queue.rs` has it, without any store.

use std::time::Duration;

use leasehold::backend::{Annotation, Asked, Departure, EntryId, KeyView, Note, Patience, Request, Standing, Turn};
use leasehold::clock::Moment;
use leasehold::fence::Ticket;
use leasehold::{Capacity, Claim, ErrorKind, FencingToken, queue};

/// How far a store's clock may be off ours within a test.
const CLOCKS_APART_MAX: Duration = Duration::from_millis(100);

/// When a lease ends: not before the one and not after the other, since nobody knows when the store was asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) at_the_earliest: Moment,
    pub(crate) at_the_latest: Moment,
}

impl Ends {
    /// Of a lease that was asked for and given between these two.
    pub(crate) fn of(ttl: Duration, sent_at: Moment, answered_at: Moment) -> Self {
        // Stores count in whole milliseconds.
        let rounding = Duration::from_millis(5);
        Self { at_the_earliest: sent_at.after(ttl - rounding), at_the_latest: answered_at.after(ttl + rounding) }
    }

    /// A lease is never shortened.
    fn or_later(self, other: Self) -> Self {
        Self {
            at_the_earliest: self.at_the_earliest.max(other.at_the_earliest),
            at_the_latest: self.at_the_latest.max(other.at_the_latest),
        }
    }
}

/// What a request to enter comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    Holding,
    Waiting { ahead: u32 },
    Refused { held_by: Vec<EntryId> },
    Mismatch(ErrorKind),
}

impl Entered {
    /// What the store said.
    pub(crate) fn from_store(answer: &leasehold::Result<Standing>) -> Result<Self, String> {
        match answer {
            Ok(Standing::Holding { .. }) => Ok(Self::Holding),
            Ok(Standing::Waiting { ahead: Some(ahead), .. }) => Ok(Self::Waiting { ahead: *ahead }),
            Ok(Standing::Waiting { ahead: None, .. }) => Err("it does not say how many are ahead".into()),
            Ok(Standing::Refused { held_by, .. }) => {
                let mut held_by: Vec<EntryId> = held_by.iter().map(|holder| holder.place.entry).collect();
                held_by.sort_unstable();
                Ok(Self::Refused { held_by })
            }
            Err(error) if matches!(error.kind(), ErrorKind::KindMismatch | ErrorKind::CapacityMismatch) => {
                Ok(Self::Mismatch(error.kind()))
            }
            Err(error) => Err(format!("it failed: {error}")),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: EntryId,
    claim: Claim,
    /// Known once the store has said it.
    ticket: Option<Ticket>,
    note: Note,
    yield_asked: bool,
    pub(crate) ends: Ends,
}

/// A key's line, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Line {
    members: Vec<Member>,
    /// The highest ticket that was ever seen in it.
    last_ticket: Option<Ticket>,
    /// Whether leases have ended since the store was last looked at.
    unseen: bool,
}

impl Line {
    fn capacity(&self) -> Option<Capacity> {
        self.members.first().map(|first| first.claim.capacity())
    }

    fn holders(&self) -> usize {
        let weights = self.members.iter().map(|member| member.claim.weight());
        self.capacity().map_or(0, |capacity| queue::holders(capacity, weights))
    }

    fn position(&self, id: EntryId) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// Those who hold.
    pub(crate) fn holding(&self) -> Vec<EntryId> {
        self.members[..self.holders()].iter().map(|member| member.id).collect()
    }

    /// What entering comes to, which it does.
    pub(crate) fn enter(&mut self, request: &Request, ends: Ends) -> Entered {
        let Request { place, claim, patience, note, returns, .. } = request;
        if let Some(at) = self.position(place.entry) {
            self.members[at].ends = self.members[at].ends.or_later(ends);
            return self.standing(at);
        }
        if *returns {
            return Entered::Refused { held_by: Vec::new() };
        }
        if let Some(Err(error)) = self.capacity().map(|capacity| capacity.admits(*claim, &place.key)) {
            return Entered::Mismatch(error.kind());
        }
        let (id, note) = (place.entry, note.clone());
        self.members.push(Member { id, claim: *claim, ticket: None, note, yield_asked: false, ends });
        let last = self.members.len() - 1;
        if *patience == Patience::Refuse && last >= self.holders() {
            self.members.pop();
            let mut held_by = self.holding();
            held_by.sort_unstable();
            return Entered::Refused { held_by };
        }
        self.standing(last)
    }

    fn standing(&self, at: usize) -> Entered {
        if at < self.holders() {
            return Entered::Holding;
        }
        Entered::Waiting { ahead: u32::try_from(at).expect("a short line") }
    }

    pub(crate) fn leave(&mut self, id: EntryId) -> Departure {
        let Some(at) = self.position(id) else { return Departure::WasGone };
        let held = at < self.holders();
        self.members.remove(at);
        if held { Departure::WasHolding } else { Departure::WasWaiting }
    }

    /// Whether it is renewed, and then whether somebody has asked for it.
    pub(crate) fn renew(&mut self, id: EntryId, ends: Ends) -> Option<bool> {
        let at = self.position(id)?;
        let member = &mut self.members[at];
        member.ends = member.ends.or_later(ends);
        Some(member.yield_asked)
    }

    pub(crate) fn ask_to_yield(&mut self, id: EntryId) -> Asked {
        let Some(at) = self.position(id) else { return Asked::NotThere };
        self.members[at].yield_asked = true;
        Asked::Told
    }

    pub(crate) fn annotate(&mut self, id: EntryId, note: &Note) -> Annotation {
        match self.position(id) {
            Some(at) if at < self.holders() => {
                self.members[at].note = note.clone();
                Annotation::Written
            }
            _ => Annotation::NotHolding,
        }
    }

    /// Those whose lease is over for certain are gone.
    pub(crate) fn leave_expired(&mut self, now: Moment) {
        let before = self.members.len();
        self.members.retain(|member| now <= member.ends.at_the_latest);
        self.unseen |= self.members.len() < before;
    }

    pub(crate) fn is_unseen(&self) -> bool {
        self.unseen
    }

    /// The store says that this member has this ticket: a new one is higher than all before, an old one is the same.
    pub(crate) fn learn_ticket(&mut self, id: EntryId, ticket: Ticket) -> Result<(), String> {
        let Some(at) = self.position(id) else { return Err(format!("{id} has a ticket and is not in line")) };
        let member = &mut self.members[at];
        match &mut member.ticket {
            Some(known) if *known == ticket => Ok(()),
            Some(known) => Err(format!("the ticket of {id} was {known:?} and is {ticket:?}")),
            None if self.last_ticket.is_some_and(|last| ticket <= last) => {
                Err(format!("{id} has {ticket:?}, and there was {:?} before", self.last_ticket))
            }
            unknown => {
                *unknown = Some(ticket);
                self.last_ticket = Some(ticket);
                Ok(())
            }
        }
    }

    /// The store says whom this member is behind: nobody may be in between.
    pub(crate) fn learn_turn(&mut self, id: EntryId, turn: Turn) -> Result<(), String> {
        self.learn_ticket(id, turn.ticket)?;
        let between = |ticket: Ticket| ticket > turn.behind && ticket < turn.ticket;
        match self.members.iter().find(|member| member.ticket.is_some_and(between)) {
            Some(member) => Err(format!("{id} is said to have {turn:?}, and {member:?} is in between")),
            None if turn.behind >= turn.ticket => Err(format!("{id} is said to be behind itself: {turn:?}")),
            None => Ok(()),
        }
    }

    /// Compares the line with what the store showed of it between these two moments, leases included if they are the
    /// entries' own.
    pub(crate) fn compare(
        &mut self,
        seen: Option<&KeyView>,
        asked_at: Moment,
        seen_at: Moment,
        own_leases: bool,
    ) -> Result<(), String> {
        self.unseen = false;
        let Some(view) = seen else {
            let there: Vec<EntryId> = self.members().map(|member| member.id).collect();
            return same("those in line", &[] as &[EntryId], &there);
        };
        let Some(waiters) = &view.waiters else { return Err("it does not show who waits".into()) };
        same("the capacity", &view.capacity, &self.capacity())?;
        let shown = |entries: &[leasehold::backend::EntryView]| -> Vec<EntryId> {
            entries.iter().map(|entry| entry.place.entry).collect()
        };
        same("those who hold", &shown(&view.holders), &self.holding())?;
        let waiting: Vec<EntryId> = self.members[self.holders()..].iter().map(|member| member.id).collect();
        same("those who wait", &shown(waiters), &waiting)?;
        for (at, entry) in view.holders.iter().chain(waiters).enumerate() {
            let id = entry.place.entry;
            self.learn_ticket(id, entry.ticket)?;
            let (member, holds) = (&self.members[at], at < view.holders.len());
            let token = (holds && member.claim.is_exclusive()).then(|| FencingToken::new(entry.ticket.0)).flatten();
            same("the claim", &entry.claim, &member.claim)?;
            same("the token", &entry.token, &token)?;
            same("the note", &entry.note, &member.note)?;
            same("whether somebody asked for it", &entry.yield_asked, &member.yield_asked)?;
            let at_least = seen_at.until(member.ends.at_the_earliest);
            let at_most = asked_at.until(member.ends.at_the_latest);
            let agrees =
                entry.lease_left + CLOCKS_APART_MAX >= at_least && entry.lease_left <= at_most + CLOCKS_APART_MAX;
            if own_leases && !agrees {
                let left = entry.lease_left;
                return Err(format!(
                    "the lease of {id} has {left:?} left and not between {at_least:?} and {at_most:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Says what differs, if it does.
pub(crate) fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, said: &T, expected: &T) -> Result<(), String> {
    if said == expected { Ok(()) } else { Err(format!("{what}: the store says {said:?}, the rule {expected:?}")) }
}
