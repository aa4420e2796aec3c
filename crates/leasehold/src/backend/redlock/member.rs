//! One server as this client knows it: reached through its node, watched by its breaker, owed departures that it could not
//! be told of.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::future::BoxFuture;

use crate::backend::Place;
use crate::backend::redlock::breaker::Breaker;
use crate::backend::redlock::node::{Ask, Node, Reply};
use crate::clock::{Clock, Moment, Timer};
use crate::error::{ErrorKind, Result};
use crate::sync::locked;

/// How many departures a server may be owed. Beyond that leases end them.
const OWED_MAX: usize = 10_000;

/// One server.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) node: Arc<dyn Node>,
    timer: Timer,
    breaker: Arc<Mutex<Breaker>>,
    owed: Mutex<Owed>,
}

#[derive(Debug, Default)]
struct Owed {
    departures: VecDeque<Departure>,
    /// Whether somebody is at it.
    being_paid: bool,
}

/// Whether nobody but its owner can have changed a lock.
pub(super) type Untouched = bool;

/// A departure that a server has not confirmed.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    pub(super) place: Place,
    /// Whether the lock may be asked for after it was given up, and for how long that is to be refused.
    pub(super) bar: Option<Duration>,
    /// Whether it was held, and not only asked for.
    pub(super) held: bool,
    /// Whether it was ours alone, and if so, whether nothing was changed of it since it was set.
    pub(super) alone: Option<Untouched>,
    /// Whether a request for it may arrive later still, though nobody will hear of it.
    pub(super) may_come: bool,
    /// When its lease is over at the latest.
    pub(super) dead_after: Moment,
}

impl Member {
    pub(super) fn new(node: Arc<dyn Node>, timer: Timer) -> Self {
        Self { node, timer, breaker: Arc::default(), owed: Mutex::default() }
    }

    /// Whether it is worth asking now. One that has just failed is left alone.
    pub(super) fn is_worth_asking(&self) -> bool {
        locked(&self.breaker).admits(self.timer.now())
    }

    /// One request. Its answer, or the lack of one, tells how the server fares.
    pub(super) fn ask(&self, ask: Ask) -> Asked {
        self.ask_through(&*self.node, ask)
    }

    /// The same on that way to it.
    pub(super) fn ask_through(&self, way: &dyn Node, ask: Ask) -> Asked {
        let (clock, breaker) = (self.timer.clock().clone(), self.breaker.clone());
        let sent_at = clock.now();
        locked(&breaker).sent(sent_at);
        Asked { answer: way.ask(ask), sent_at, clock, breaker }
    }

    /// How long it is waited for.
    pub(super) fn limit(&self, ttl: Duration) -> Duration {
        locked(&self.breaker).limit(ttl)
    }

    /// Its round trip, if one was measured.
    pub(super) fn trip(&self) -> Option<Duration> {
        locked(&self.breaker).trip()
    }

    /// It has to be told of that departure when it answers again. True if nobody is about to.
    pub(super) fn owe(&self, departure: Departure) -> bool {
        let mut owed = locked(&self.owed);
        let now = self.timer.now();
        while owed
            .departures
            .front()
            .is_some_and(|oldest| oldest.dead_after <= now || owed.departures.len() >= OWED_MAX)
        {
            owed.departures.pop_front();
        }
        owed.departures.push_back(departure);
        !std::mem::replace(&mut owed.being_paid, true)
    }

    /// The oldest departure that still matters. `None`: nothing is owed, and nobody is at it any more.
    pub(super) fn next_owed(&self) -> Option<Departure> {
        let mut owed = locked(&self.owed);
        let now = self.timer.now();
        while let Some(departure) = owed.departures.pop_front() {
            if departure.dead_after > now {
                return Some(departure);
            }
        }
        owed.being_paid = false;
        None
    }

    /// It was not told, and is still owed it.
    pub(super) fn still_owe(&self, departure: Departure) {
        locked(&self.owed).departures.push_front(departure);
    }
}

/// A request that is under way.
#[must_use = "the answer counts"]
pub(super) struct Asked {
    answer: BoxFuture<'static, Result<Reply>>,
    sent_at: Moment,
    clock: Clock,
    breaker: Arc<Mutex<Breaker>>,
}

impl Future for Asked {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Reply>> {
        let Poll::Ready(answer) = self.answer.as_mut().poll(cx) else { return Poll::Pending };
        let now = self.clock.now();
        let mut breaker = locked(&self.breaker);
        match &answer {
            Err(error) if error.kind() == ErrorKind::Unreachable => breaker.failed(now),
            // Whatever it says, it says something.
            _ => breaker.answered(self.sent_at.until(now), now),
        }
        drop(breaker);
        Poll::Ready(answer)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        locked(&self.breaker).ended();
    }
}
