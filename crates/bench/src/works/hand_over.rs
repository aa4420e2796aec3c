//! How long it takes from a release to the next holder, and what that costs the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::clock::{Clock, Moment, Timer};
use tokio::task::JoinSet;

use super::Bench;
use super::pairs::STARVED_AFTER;
use crate::contender::{Connect, Contender, Place, Rival};
use crate::sample::{BARE, Work, percentile};

/// What a waiter needs until it waits, on a store that does not tell. A little more each time, so that nobody who polls is
/// met in step.
const UNTIL_IT_WAITS: Duration = Duration::from_millis(8);
const MORE_EACH_TIME: Duration = Duration::from_micros(370);

/// A client holds, another waits.
pub(super) async fn turns(bench: &mut Bench<'_>, rivals: &mut [Rival]) {
    let mut others = Vec::new();
    for rival in rivals.iter() {
        others.push(match rival.client() {
            Some((_, connect)) => Some(connect().await),
            None => None,
        });
    }
    for round in 0..bench.plan.rounds {
        for (rival, other) in rivals.iter_mut().zip(&mut others) {
            bench.progress(Work::HandOver, rival.name, 1);
            let spans = match (&mut rival.place, &*other) {
                (Place::Here(one, _), Some(next)) => turns_of(bench, &**one, &**next, round).await,
                (Place::Elsewhere(peer, prefix), _) => {
                    let key = format!("{prefix}turn-{round}");
                    Some(tokio::task::block_in_place(|| peer.turns(&key, bench.plan.turns)).expect("timed"))
                }
                (Place::Here(..), None) => continue,
            };
            let Some(spans) = spans else {
                bench.note(&format!("{}: whoever waits did not get the lock in {STARVED_AFTER:?}", rival.name));
                // Nor would it be quicker in the next round.
                *other = None;
                continue;
            };
            let micros = micros(spans);
            bench.add(Work::HandOver, rival.name, 1, percentile(&micros, 50));
            bench.add(Work::HandOverTail, rival.name, 1, percentile(&micros, 99));
        }
        if let Some((bare, _)) = rivals.iter().find(|rival| rival.name == BARE).and_then(Rival::client) {
            bench.progress(Work::Trip, BARE, 1);
            let mut spans = Vec::new();
            for nth in 0..bench.plan.turns {
                spans.push(trip(&**bare, &format!("trip-{round}-{nth}"), nth).await);
            }
            bench.add(Work::Trip, BARE, 1, percentile(&micros(spans), 50));
        }
    }
}

/// One bare request, as long after the one before it as a release is after whoever waits has come.
async fn trip(bare: &dyn Contender, key: &str, nth: usize) -> Duration {
    let clock = Clock::boot();
    let mut lock = bare.lock(key);
    pause(&clock, nth).await;
    let began = clock.now();
    lock.take().await;
    let took = began.until(clock.now());
    lock.give().await;
    took
}

/// Long enough for a waiter to wait.
async fn pause(clock: &Clock, nth: usize) {
    let pause = UNTIL_IT_WAITS + MORE_EACH_TIME * (nth % 27) as u32;
    Timer::on_callers_runtime(clock.clone()).sleep(pause).await;
}

/// Nothing if whoever waits is left waiting.
async fn turns_of(
    bench: &Bench<'_>,
    one: &dyn Contender,
    other: &dyn Contender,
    round: usize,
) -> Option<Vec<Duration>> {
    let timer = Timer::on_callers_runtime(Clock::boot());
    let mut spans = Vec::new();
    for nth in 0..bench.plan.turns {
        let key = format!("turn-{round}-{nth}");
        spans.push(timer.within(STARVED_AFTER, turn(one, other, &key, nth)).await?);
    }
    Some(spans)
}

async fn turn(one: &dyn Contender, other: &dyn Contender, key: &str, nth: usize) -> Duration {
    let clock = Clock::boot();
    let (mut held, mut awaited) = (one.lock(key), other.lock(key));
    held.take().await;
    let clock_of_next = clock.clone();
    let waiter = tokio::spawn(async move {
        awaited.take().await;
        let at = clock_of_next.now();
        awaited.give().await;
        at
    });
    pause(&clock, nth).await;
    let began = clock.now();
    held.give().await;
    began.until(waiter.await.expect("no panic"))
}

/// So many tasks of two clients that come back as soon as they were served: a line that stays as long as it is.
pub(super) async fn lines(bench: &mut Bench<'_>, ours: &Rival) {
    let Some((_, connect)) = ours.client() else { return };
    let mut each = Duration::ZERO;
    for waiters in bench.plan.waiters.iter().copied().filter(|waiters| *waiters <= bench.store.waiters_max()) {
        let hand_overs = (times(bench, waiters) * waiters) as u32;
        if each * hand_overs > bench.plan.step_max {
            return bench.note(&format!("fewer than {waiters} waiters: so many would take too long"));
        }
        let (clock, mut rounds) = (Clock::boot(), 0);
        let began = clock.now();
        while rounds < bench.plan.rounds && began.until(clock.now()) < bench.plan.step_max {
            rounds += 1;
            bench.progress(Work::HandOver, ours.name, waiters);
            let Some((spans, requests)) = line(bench, connect, waiters).await else {
                return bench.note(&format!("fewer than {waiters} waiters: with so many, requests failed"));
            };
            let micros = micros(spans);
            bench.add(Work::HandOver, ours.name, waiters, percentile(&micros, 50));
            bench.add(Work::HandOverTail, ours.name, waiters, percentile(&micros, 99));
            if let Some(requests) = requests {
                bench.add(Work::HandOverRequests, ours.name, waiters, requests);
            }
        }
        each = began.until(clock.now()) / rounds as u32 / hand_overs;
    }
}

/// How often each of so many in line has its turn.
fn times(bench: &Bench<'_>, waiters: usize) -> usize {
    bench.plan.hand_overs.div_ceil(waiters).max(2)
}

/// Spans, and requests for each. Nothing if any of them failed.
async fn line(bench: &Bench<'_>, connect: &Connect, waiters: usize) -> Option<(Vec<Duration>, Option<f64>)> {
    let clients = [connect().await, connect().await];
    let times = times(bench, waiters);
    let released: Arc<Mutex<Option<Moment>>> = Arc::default();
    let spans: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let counted = bench.requests();
    let mut tasks = JoinSet::new();
    for nth in 0..waiters {
        let mut lock = clients[nth % 2].lock(&format!("line-of-{waiters}"));
        let (released, spans, clock) = (released.clone(), spans.clone(), Clock::boot());
        tasks.spawn(async move {
            for _ in 0..times {
                lock.take().await;
                let now = clock.now();
                if let Some(at) = locked(&released).take() {
                    locked(&spans).push(at.until(now));
                }
                *locked(&released) = Some(clock.now());
                lock.give().await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.ok()?;
    }
    let requests = counted.since(bench).map(|requests| requests / (times * waiters) as f64);
    let spans = std::mem::take(&mut *locked(&spans));
    Some((spans, requests))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(spans: Vec<Duration>) -> Vec<f64> {
    spans.into_iter().map(|span| span.as_secs_f64() * 1e6).collect()
}
