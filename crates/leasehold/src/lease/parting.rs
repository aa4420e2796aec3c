//! Leaves lines on behalf of those who cannot wait for it: dropped guards, cancelled attempts, unknown outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::backend::{Backend, Departure, Place, Standing};
use crate::clock::{Clock, Moment, Timer};
use crate::error::{Error, Fate, Result};

/// How many departures are sent at once. More would only queue up in front of the store.
const AT_ONCE_MAX: usize = 64;
/// The first pause before a departure is tried again; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A request to enter that owns all it needs, so that it can be seen to its end by somebody else.
pub(crate) type Entering = BoxFuture<'static, Result<Standing>>;

/// An entry to be taken out of its line.
pub(crate) struct Departing {
    pub(crate) place: Place,
    /// The request to enter that is still under way. It is seen to its end first: were we to leave before it arrives, it
    /// would arrive later and make an entry that nobody knows of.
    pub(crate) entering: Option<Entering>,
    /// Whether the entry may still come into being after the store has said that it is gone.
    pub(crate) may_yet_appear: bool,
    /// When the entry's lease is over at the latest, and with it every reason to go on trying.
    pub(crate) dead_after: Moment,
}

/// The client's end: takes departures and never blocks.
#[derive(Clone, Debug)]
pub(crate) struct Parting {
    jobs: mpsc::UnboundedSender<Departing>,
    pending: Arc<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    count: AtomicUsize,
    none_left: Notify,
}

/// Where departures arrive.
pub(crate) struct Departures {
    jobs: mpsc::UnboundedReceiver<Departing>,
    pending: Arc<Pending>,
}

impl Parting {
    pub(crate) fn new() -> (Self, Departures) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let pending = Arc::new(Pending::default());
        (Self { jobs: sender, pending: pending.clone() }, Departures { jobs: receiver, pending })
    }

    /// Takes the entry out of its line in the background.
    pub(crate) fn leave(&self, departing: Departing) {
        self.pending.count.fetch_add(1, Ordering::AcqRel);
        if self.jobs.send(departing).is_err() {
            self.pending.done(1); // its runtime is gone; the lease ends the entry
        }
    }

    /// Resolves when nothing is left to be done.
    pub(crate) async fn idle(&self) {
        loop {
            let none_left = self.pending.none_left.notified();
            if self.pending.count.load(Ordering::Acquire) == 0 {
                return;
            }
            none_left.await;
        }
    }
}

impl Pending {
    fn done(&self, jobs: usize) {
        if self.count.fetch_sub(jobs, Ordering::AcqRel) == jobs {
            self.none_left.notify_waiters();
        }
    }
}

impl Departures {
    /// Sees every departure through, until nobody can send another.
    pub(crate) async fn run(mut self, backend: Arc<dyn Backend>, clock: Clock, attempt_limit: Duration) {
        let timer = Timer::on_callers_runtime(clock);
        let mut under_way = JoinSet::new();
        while let Some(departing) = self.jobs.recv().await {
            while under_way.len() >= AT_ONCE_MAX {
                under_way.join_next().await;
            }
            while under_way.try_join_next().is_some() {}
            let (backend, timer, pending) = (backend.clone(), timer.clone(), self.pending.clone());
            under_way.spawn(async move {
                let _done = DoneOnDrop(&pending);
                see_off(departing, &*backend, &timer, attempt_limit).await;
            });
        }
        while under_way.join_next().await.is_some() {}
    }
}

impl Drop for Departures {
    fn drop(&mut self) {
        self.jobs.close();
        let mut unsent = 0;
        while self.jobs.try_recv().is_ok() {
            unsent += 1;
        }
        if unsent > 0 {
            self.pending.done(unsent);
        }
    }
}

struct DoneOnDrop<'a>(&'a Pending);

impl Drop for DoneOnDrop<'_> {
    fn drop(&mut self) {
        self.0.done(1);
    }
}

/// Asks the store until it confirms the departure, or until the lease is dead anyway.
async fn see_off(departing: Departing, backend: &dyn Backend, timer: &Timer, attempt_limit: Duration) {
    let Departing { place, entering, mut may_yet_appear, dead_after } = departing;
    if let Some(entering) = entering {
        match timer.within(attempt_limit, entering).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => may_yet_appear |= error.fate() == Fate::Unknown,
            None => may_yet_appear = true,
        }
    }
    let mut pause = PAUSE;
    let mut last_error: Option<Error> = None;
    loop {
        match timer.within(attempt_limit, backend.leave(&place)).await {
            Some(Ok(Departure::WasGone)) if may_yet_appear => {}
            Some(Ok(_)) => return,
            Some(Err(error)) => last_error = Some(error),
            None => {}
        }
        if timer.now().after(pause) >= dead_after {
            if let Some(error) = last_error {
                tracing::warn!(target: "leasehold::parting", key = %place.key, %error, "could not leave; the lease has run out");
            }
            return;
        }
        timer.sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
