//! What is believed of one entry: held, suspect, or over. Over is final.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::Place;
use crate::clock::Moment;
use crate::sync::AtomicU64;

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Our deadline passed before a renewal was confirmed.
    Expired,
    /// The store says that the entry is gone: evicted, or expired there.
    Gone,
    /// The keeper that renewed it has ended, so that nobody renews it any more.
    Abandoned,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "no renewal was confirmed before its deadline",
            Self::Gone => "the store says it is gone: evicted, or expired there",
            Self::Abandoned => "its keeper has ended, so nobody renews it any more",
        })
    }
}

/// What a guard is at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Held, and the last renewal went well.
    Held,
    /// Held as far as we know, but the last renewal did not come through, or the clock jumped.
    Suspect,
    /// Lost, for good.
    Lost(Loss),
}

/// An entry's state, shared between its guard and the keeper.
///
/// One word holds everything that decides: `deadline << 2 | borrowed << 1 | suspect`, or one of the final values at the very
/// top. Each change is a compare-and-swap from a value that is not final, so whichever of release, loss and renewal comes first
/// wins, and nothing leads back from the end.
pub(crate) struct Hold {
    pub(crate) place: Place,
    word: AtomicU64,
    /// In nanoseconds: what the next renewal asks for.
    ttl: AtomicU64,
    yield_asked: AtomicBool,
    /// Where it stands in the agenda; changed only under the agenda's lock.
    pub(crate) seat: Seat,
    changed: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Seat {
    pub(crate) due: AtomicU64,
    /// 0: not in the agenda.
    pub(crate) number: AtomicU64,
}

const SUSPECT: u64 = 1;
/// It is held by the lease of the entry before it, until the store says that this one holds.
const BORROWED: u64 = 2;
const FLAGS: u32 = 2;
const FINAL: u64 = u64::MAX - 3;
const RELEASED: u64 = FINAL;
const EXPIRED: u64 = FINAL + 1;
const GONE: u64 = FINAL + 2;
const ABANDONED: u64 = FINAL + 3;

fn word_of(loss: Loss) -> u64 {
    match loss {
        Loss::Expired => EXPIRED,
        Loss::Gone => GONE,
        Loss::Abandoned => ABANDONED,
    }
}

/// `None` for a word that is not final, and for a released one.
fn loss_of(word: u64) -> Option<Loss> {
    match word {
        EXPIRED => Some(Loss::Expired),
        GONE => Some(Loss::Gone),
        ABANDONED => Some(Loss::Abandoned),
        _ => None,
    }
}

/// What a hold was that its owner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// Until when it would have been believed in, unless that was in doubt.
    pub(crate) until: Option<Moment>,
    /// Whether the store had yet to say that it holds.
    pub(crate) borrowed: bool,
}

fn deadline_of(word: u64) -> Moment {
    Moment::from_nanos(word >> FLAGS)
}

fn word_until(deadline: Moment) -> u64 {
    // A lease that would end in a hundred years ends a little sooner.
    deadline.as_nanos().min((FINAL >> FLAGS) - 1) << FLAGS
}

impl Hold {
    pub(crate) fn new(place: Place, ttl: Duration, deadline: Moment) -> Self {
        Self {
            place,
            word: AtomicU64::new(word_until(deadline)),
            ttl: AtomicU64::new(nanos(ttl)),
            yield_asked: AtomicBool::new(false),
            seat: Seat::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl.load(Acquire))
    }

    /// From its next renewal on, it asks for another length: a waiter that was granted asks for a holder's.
    pub(crate) fn ask_for(&self, ttl: Duration) {
        self.ttl.store(nanos(ttl), Release);
    }

    /// The deadline, or `None` once it is over. Says nothing about whether the deadline has passed.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let word = self.word.load(Acquire);
        (word < FINAL).then(|| deadline_of(word))
    }

    /// What it is at `now`. Finding the deadline passed makes the loss final, so that a renewal still on its way cannot
    /// bring back what somebody has already been told is lost.
    pub(crate) fn state(&self, now: Moment) -> State {
        let word = self.expire(now);
        match loss_of(word) {
            Some(loss) => State::Lost(loss),
            // A released hold has no guard left to ask.
            None if word >= FINAL => State::Lost(Loss::Gone),
            None if word & SUSPECT != 0 => State::Suspect,
            None => State::Held,
        }
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        match self.expire(now) {
            word if word < FINAL => now.until(deadline_of(word)),
            _ => Duration::ZERO,
        }
    }

    /// A renewal was confirmed, by a store that says what it was asked for: of one that holds, that it holds. False if it
    /// is over: then the confirmation changes nothing.
    pub(crate) fn extend(&self, now: Moment, until: Moment) -> bool {
        self.expire(now);
        // A confirmation may arrive after that of a later renewal; it must not shorten what that one gave.
        self.change(|word| Some(word_until(until).max(word & !(SUSPECT | BORROWED))))
    }

    /// Holds by the lease of the entry before it, which is believed in until then. No renewal of its own place counts before
    /// the store says that this one holds: that other lease may be all that keeps strangers out.
    pub(crate) fn borrow(&self, until: Moment) {
        self.change(|word| Some(word_until(until).min(word & !BORROWED & !SUSPECT) | word & SUSPECT | BORROWED));
    }

    pub(crate) fn is_borrowed(&self) -> bool {
        let word = self.word.load(Acquire);
        word < FINAL && word & BORROWED != 0
    }

    /// A renewal did not come through, or the clock cannot be trusted.
    pub(crate) fn doubt(&self) {
        if self.change(|word| Some(word | SUSPECT)) {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn lose(&self, loss: Loss) {
        if self.change(|_| Some(word_of(loss))) {
            self.changed.notify_waiters();
        }
    }

    /// Ends it on the owner's wish. `Err` if it was lost before: then somebody else may have held the key meanwhile.
    pub(crate) fn release(&self, now: Moment) -> Result<Released, Loss> {
        self.expire(now);
        match self.word.fetch_update(AcqRel, Acquire, |word| (word < FINAL).then_some(RELEASED)) {
            Ok(word) => {
                Ok(Released { until: (word & SUSPECT == 0).then(|| deadline_of(word)), borrowed: word & BORROWED != 0 })
            }
            Err(word) => Err(loss_of(word).unwrap_or(Loss::Gone)),
        }
    }

    /// Resolves once it is lost. Released holds stay silent.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let changed = self.changed.notified();
            if let Some(loss) = loss_of(self.word.load(Acquire)) {
                return loss;
            }
            changed.await;
        }
    }

    /// Somebody wants it. It is up to the holder what to do about that.
    pub(crate) fn ask_to_yield(&self) {
        if !self.yield_asked.swap(true, AcqRel) {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn yield_asked(&self) -> bool {
        self.yield_asked.load(Acquire)
    }

    /// Resolves once its holder has been asked to let go.
    pub(crate) async fn yield_requested(&self) {
        loop {
            let changed = self.changed.notified();
            if self.yield_asked() {
                return;
            }
            changed.await;
        }
    }

    /// Makes a passed deadline final, and returns the word.
    fn expire(&self, now: Moment) -> u64 {
        let word = self.word.load(Acquire);
        if word >= FINAL || now < deadline_of(word) {
            return word;
        }
        if self.change(|word| (now >= deadline_of(word)).then_some(EXPIRED)) {
            self.changed.notify_waiters();
        }
        self.word.load(Acquire)
    }

    /// Changes the word unless it is final; false if it was, or if the change was declined.
    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        self.word.fetch_update(AcqRel, Acquire, |word| if word < FINAL { change(word) } else { None }).is_ok()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Relaxed);
        let mut hold = f.debug_struct("Hold");
        hold.field("place", &self.place);
        match loss_of(word) {
            Some(loss) => hold.field("lost", &loss),
            None if word == RELEASED => hold.field("released", &true),
            None => hold.field("until", &deadline_of(word)).field("suspect", &(word & SUSPECT != 0)),
        };
        hold.finish_non_exhaustive()
    }
}

/// A store may vouch for any length, so one that does not fit is cut rather than trusted to fit.
fn nanos(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::backend::EntryId;
    use crate::key::{Key, Namespace};

    #[test]
    fn a_store_that_vouches_for_an_absurd_lease_does_no_harm() {
        let place = Place { key: Key::new(&Namespace::default(), "k").unwrap(), entry: EntryId(1) };
        let now = Moment::from_nanos(7);
        let hold = Hold::new(place, Duration::MAX, crate::lease::deadline::believe_until(now, Duration::MAX));
        assert_eq!(hold.state(now), State::Held);
        assert!(hold.ttl() > Duration::from_secs(86_400));
    }
}
