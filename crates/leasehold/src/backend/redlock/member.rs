//! One server as this client knows it: reached through its node, watched by its breaker, owed departures that it could not
//! be told of.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;

use crate::backend::Place;
use crate::backend::redlock::breaker::Breaker;
use crate::backend::redlock::node::{Ask, Node, Reply};
use crate::clock::{Moment, Timer};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::locked;

/// How many departures a server may be owed. Beyond that leases end them.
const OWED_MAX: usize = 10_000;

/// One server.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) node: Arc<dyn Node>,
    timer: Timer,
    /// How long any answer is waited for.
    patience: Duration,
    breaker: Arc<Mutex<Breaker>>,
    owed: Mutex<Owed>,
}

#[derive(Debug, Default)]
struct Owed {
    departures: VecDeque<Departure>,
    /// Whether somebody is at it.
    being_paid: bool,
}

/// A departure that a server has not confirmed.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    pub(super) place: Place,
    /// Whether the lock may be asked for after it was given up, and for how long that is to be refused.
    pub(super) bar: Option<Duration>,
    /// Whether it was held, and not only asked for.
    pub(super) held: bool,
    /// When its lease is over at the latest.
    pub(super) dead_after: Moment,
}

impl Member {
    pub(super) fn new(node: Arc<dyn Node>, timer: Timer, patience: Duration) -> Self {
        Self { node, timer, patience, breaker: Arc::default(), owed: Mutex::default() }
    }

    /// Whether it is worth asking now. One that has just failed is left alone.
    pub(super) fn is_worth_asking(&self) -> bool {
        locked(&self.breaker).admits(self.timer.now())
    }

    /// One request. Its answer, or the lack of one, tells how the server fares.
    pub(super) fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<Reply>> {
        let (breaker, timer, patience) = (self.breaker.clone(), self.timer.clone(), self.patience);
        let (limit, answer) = (self.limit(patience), self.node.ask(ask));
        let sent_at = timer.now();
        locked(&breaker).sent();
        let under_way = UnderWay(breaker);
        Box::pin(async move {
            let mut answer = answer;
            let mut answered = timer.within(limit, &mut answer).await;
            if answered.is_none() {
                // From here on the server counts as failing, whether anybody still needs its answer or not.
                locked(&under_way.0).failed(timer.now());
                answered = timer.within(patience.saturating_sub(limit), answer).await;
            }
            let answer = answered.unwrap_or_else(|| Err(no_answer()));
            let now = timer.now();
            match &answer {
                Err(error) if error.kind() == ErrorKind::Unreachable => locked(&under_way.0).failed(now),
                // Whatever it says, it says something.
                _ => locked(&under_way.0).answered(sent_at.until(now)),
            }
            answer
        })
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

struct UnderWay(Arc<Mutex<Breaker>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        locked(&self.0).ended();
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Unreachable, "no answer in time").with_unknown_fate()
}
