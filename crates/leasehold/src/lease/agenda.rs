//! What the keeper has to do and when: which leases to renew next, which deadlines end a belief. No clock, no I/O.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::backend::{Notice, Renewal};
use crate::clock::Moment;
use crate::entry_map::EntryMap;
use crate::lease::deadline;
use crate::lease::hold::{Hold, Loss, State};

/// Every lease that is being kept, in the order in which something falls due for it.
///
/// A lease has one seat: at its next renewal while it rests, at its deadline while a renewal is under way. So nothing
/// that an answer could do, or fail to do, moves the end of a belief further away than its deadline.
#[derive(Debug)]
pub(crate) struct Agenda {
    seats: BTreeMap<(Moment, u64), Kept>,
    /// The same, by what the store calls them: when a session ends, it says something of each of them.
    by_entry: EntryMap<Arc<Hold>>,
    last_number: u64,
    /// Until when the keeper sleeps. Whoever takes an earlier seat has to wake it.
    asleep_until: Moment,
}

#[derive(Debug)]
struct Kept {
    hold: Arc<Hold>,
    under_way: bool,
    failures: u32,
}

/// What has fallen due.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Leases to renew.
    pub(crate) renew: Vec<Arc<Hold>>,
    /// Beliefs that ended just now.
    pub(crate) expired: Vec<Arc<Hold>>,
}

impl Agenda {
    pub(crate) fn new() -> Self {
        Self { seats: BTreeMap::new(), by_entry: EntryMap::default(), last_number: 0, asleep_until: Moment::FAR }
    }

    pub(crate) fn len(&self) -> usize {
        self.seats.len()
    }

    /// Starts keeping a lease. True if the keeper sleeps past its first renewal and must be woken.
    pub(crate) fn seat(&mut self, hold: Arc<Hold>, due: Moment) -> bool {
        self.last_number += 1;
        hold.seat.number.store(self.last_number, Relaxed);
        self.by_entry.insert(hold.place.entry, hold.clone());
        self.place(Kept { hold, under_way: false, failures: 0 }, due);
        self.sleeps_past(due)
    }

    /// Whether the keeper has to be woken for what falls due then. It is told once.
    fn sleeps_past(&mut self, due: Moment) -> bool {
        let must_wake = due < self.asleep_until;
        self.asleep_until = due.min(self.asleep_until);
        must_wake
    }

    /// The keeper has done what was due, and asks until when it may sleep.
    ///
    /// It does not put off what it was last woken for, even if that has left meanwhile. It looks once too often in a third
    /// of a lease; otherwise a lock that is taken and given back over and over would wake it every time.
    pub(crate) fn fall_asleep(&mut self, now: Moment) -> Moment {
        let promised = if self.asleep_until > now { self.asleep_until } else { Moment::FAR };
        self.asleep_until = self.next().min(promised);
        self.asleep_until
    }

    /// From now on it is held by the lease of the entry before it, which is believed in until then. True if the keeper sleeps
    /// past what is due for it now and must be woken.
    pub(crate) fn borrow(&mut self, now: Moment, hold: &Hold, until: Moment) -> bool {
        hold.borrow(until);
        let Some(kept) = self.take(hold) else {
            return false; // it is over
        };
        let left = now.until(until);
        let due = if kept.under_way { until } else { now.after(deadline::renew_every(left)) };
        let due = due.min(Moment::from_nanos(hold.seat.due.load(Relaxed)));
        self.place(kept, due);
        self.sleeps_past(due)
    }

    /// Stops keeping a lease, if it was kept.
    pub(crate) fn unseat(&mut self, hold: &Hold) -> bool {
        let taken = self.take(hold).is_some();
        self.dismiss(hold);
        taken
    }

    /// When something falls due next.
    fn next(&self) -> Moment {
        self.seats.first_key_value().map_or(Moment::FAR, |((due, _), _)| *due)
    }

    /// Ends every belief whose deadline has come, and picks the leases to renew now: those due, and those that are due so
    /// soon that they may as well come along.
    pub(crate) fn take_due(&mut self, now: Moment) -> Due {
        let mut due = Due::default();
        let mut horizon = now;
        while let Some(first) = self.seats.first_entry() {
            let (when, kept) = (first.key().0, first.get());
            if when > horizon || (when > now && kept.under_way) {
                break;
            }
            let mut kept = first.remove();
            let Some(deadline) = kept.hold.deadline().filter(|deadline| now < *deadline) else {
                self.dismiss(&kept.hold);
                // Asking makes the loss final, and tells whoever waits for it.
                if let State::Lost(Loss::Expired) = kept.hold.state(now) {
                    due.expired.push(kept.hold);
                }
                continue;
            };
            if kept.under_way {
                // Extended past the seat it had taken for its deadline.
                self.place(kept, deadline);
                continue;
            }
            if due.renew.is_empty() {
                horizon = now.after(deadline::renew_early(kept.hold.ttl()));
            }
            kept.under_way = true;
            due.renew.push(kept.hold.clone());
            self.place(kept, deadline);
        }
        due
    }

    /// Takes note of one answer to a renewal that was sent at `sent_at`. `jitter` moves the next one a little.
    pub(crate) fn settle(&mut self, now: Moment, hold: &Hold, sent_at: Moment, jitter: f64, renewal: &Renewal) {
        let Some(mut kept) = self.take(hold) else {
            return; // it was released meanwhile
        };
        kept.under_way = false;
        let retry_at = |kept: &Kept| {
            hold.deadline().map(|deadline| now.after(deadline::retry_in(hold.ttl(), kept.failures)).min(deadline))
        };
        let due = match renewal {
            Renewal::Renewed { ttl, yield_asked, waits } => {
                if *yield_asked {
                    hold.ask_to_yield();
                }
                if *waits && hold.is_borrowed() {
                    // The store has yet to hear that the entry before it has left.
                    kept.failures += 1;
                    retry_at(&kept)
                } else {
                    kept.failures = 0;
                    let due = sent_at.after(deadline::renew_every(*ttl).mul_f64(jitter));
                    hold.extend(now, deadline::believe_until(sent_at, *ttl)).then_some(due)
                }
            }
            Renewal::Lost => {
                hold.lose(Loss::Gone);
                None
            }
            Renewal::Unknown(_) => {
                kept.failures += 1;
                hold.doubt();
                retry_at(&kept)
            }
        };
        match due {
            Some(due) => self.place(kept, due),
            None => self.dismiss(hold),
        }
    }

    /// The store says something of an entry that nobody asked about.
    pub(crate) fn hear(&mut self, now: Moment, notice: Notice) {
        let (Notice::Gone(entry) | Notice::YieldAsked(entry)) = notice else {
            return self.doubt_all(now);
        };
        let Some(hold) = self.by_entry.get(&entry).cloned() else {
            return; // not ours, or left meanwhile
        };
        match notice {
            Notice::YieldAsked(_) => hold.ask_to_yield(),
            Notice::Gone(_) => {
                hold.lose(Loss::Gone);
                self.unseat(&hold);
            }
            Notice::Shaken => {}
        }
    }

    /// The clock jumped: doubt everything, and renew all of it now.
    pub(crate) fn doubt_all(&mut self, now: Moment) {
        for ((due, _), kept) in std::mem::take(&mut self.seats) {
            kept.hold.doubt();
            let due = if kept.under_way { due } else { due.min(now) };
            self.place(kept, due);
        }
    }

    /// How little is left of the shortest belief.
    pub(crate) fn shortest_left(&self, now: Moment) -> Option<Duration> {
        self.seats.values().filter_map(|kept| kept.hold.deadline()).min().map(|deadline| now.until(deadline))
    }

    /// Nobody will renew any of it any more.
    pub(crate) fn abandon_all(&mut self) {
        self.by_entry.clear();
        for kept in std::mem::take(&mut self.seats).into_values() {
            kept.hold.lose(Loss::Abandoned);
        }
    }

    fn place(&mut self, kept: Kept, due: Moment) {
        let seat = &kept.hold.seat;
        seat.due.store(due.as_nanos(), Relaxed);
        self.seats.insert((due, seat.number.load(Relaxed)), kept);
    }

    /// It has no seat any more. Another may have come for the same entry meanwhile.
    fn dismiss(&mut self, hold: &Hold) {
        hold.seat.number.store(0, Relaxed);
        if let Entry::Occupied(kept) = self.by_entry.entry(hold.place.entry)
            && std::ptr::eq(&**kept.get(), hold)
        {
            kept.remove();
        }
    }

    fn take(&mut self, hold: &Hold) -> Option<Kept> {
        let (due, number) = (hold.seat.due.load(Relaxed), hold.seat.number.load(Relaxed));
        if number == 0 { None } else { self.seats.remove(&(Moment::from_nanos(due), number)) }
    }
}
