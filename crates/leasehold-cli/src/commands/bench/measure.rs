//! How long locking takes: alone, beside others, and behind others.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold::clock::{Moment, Timer};
use leasehold::{Locks, Result};

use super::ground::name;

/// How long each of many things took, and all of them together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timings {
    /// In order.
    spans: Vec<Duration>,
    whole: Duration,
}

impl Timings {
    pub(crate) fn new(mut spans: Vec<Duration>, whole: Duration) -> Self {
        spans.sort_unstable();
        Self { spans, whole }
    }

    pub(crate) fn count(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        if self.whole.is_zero() { 0.0 } else { self.count() as f64 / self.whole.as_secs_f64() }
    }

    /// The least span that so many percent of all do not exceed; `None` if there is none at all.
    pub(crate) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.spans.len() * percent).div_ceil(100);
        self.spans.get(rank.saturating_sub(1)).copied()
    }
}

/// So many tasks lock and release until then, each its own key.
pub(crate) async fn pairs(timer: &Timer, client: &Locks, tasks: usize, until: Moment) -> Result<Timings> {
    let spans = RefCell::new(Vec::new());
    let task = async |nth| {
        let mutex = client.mutex(name(nth))?;
        loop {
            let began = timer.now();
            mutex.lock().await?.release().await?;
            spans.borrow_mut().push(began.until(timer.now()));
            let_others_run().await;
        }
    };
    let whole = all_until(timer, until, (0..tasks).map(task)).await?;
    Ok(Timings::new(spans.take(), whole))
}

/// So many tasks, spread over the clients, hand one key on until then. A span is that from a release to the next grant.
pub(crate) async fn hand_overs(timer: &Timer, clients: &[Locks], tasks: usize, until: Moment) -> Result<Timings> {
    let (spans, released) = (RefCell::new(Vec::new()), Cell::new(None::<Moment>));
    let task = async |nth: usize| {
        let mutex = clients[nth % clients.len()].mutex(name(0))?;
        loop {
            let guard = mutex.lock().await?;
            let granted = timer.now();
            spans.borrow_mut().extend(released.take().map(|released| released.until(granted)));
            released.set(Some(timer.now()));
            guard.release().await?;
            let_others_run().await;
        }
    };
    let whole = all_until(timer, until, (0..tasks).map(task)).await?;
    Ok(Timings::new(spans.take(), whole))
}

/// A store on this machine may answer without ever making us wait; signals and other tasks have their turn nevertheless.
pub(super) async fn let_others_run() {
    tokio::task::yield_now().await;
}

/// Runs tasks that have no end of their own, and returns how long they ran. What they were at is dropped.
async fn all_until<T>(timer: &Timer, until: Moment, tasks: impl Iterator<Item = T>) -> Result<Duration>
where
    T: Future<Output = Result<Infallible>>,
{
    let began = timer.now();
    let mut tasks: FuturesUnordered<T> = tasks.collect();
    match timer.within(began.until(until), tasks.next()).await {
        Some(Some(Err(error))) => Err(error),
        Some(None) | None => Ok(began.until(timer.now())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_spans() {
        let millis = |count: u64| Timings::new((1..=count).rev().map(Duration::from_millis).collect(), Duration::ZERO);
        assert_eq!(millis(0).percentile(50), None);
        assert_eq!(millis(1).percentile(99), Some(Duration::from_millis(1)));
        assert_eq!(millis(200).percentile(50), Some(Duration::from_millis(100)));
        assert_eq!(millis(200).percentile(99), Some(Duration::from_millis(198)));
        assert_eq!(millis(0).per_second(), 0.0);
    }
}
