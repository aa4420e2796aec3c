//! Renews every lease of a client, in batches, and ends each belief at its deadline.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use crate::backend::{Backend, Lease, LeaseId, Notice, Renewal};
use crate::chance::Chance;
use crate::clock::{Alarm, Clock, Moment, Timer};
use crate::error::{Error, ErrorKind};
use crate::lease::agenda::Agenda;
use crate::lease::deadline;
use crate::lease::hold::{Hold, Loss};
use crate::sync::{Mutex, locked};

/// The most leases in one call to the store, so that one call's commands fit a socket buffer and one slow call does not
/// hold up everything.
const BATCH_MAX: usize = 1000;

/// How far wall time may move against boot time before all leases are doubted, however long they have left.
const WALL_SHIFT_MAX: Duration = Duration::from_millis(250);

/// The client's end: hands leases to the keeper and takes them back.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    agenda: Mutex<Agenda>,
    wake: Notify,
}

impl Keeper {
    pub(crate) fn new() -> Self {
        Self { shared: Arc::new(Shared { agenda: Mutex::new(Agenda::new()), wake: Notify::new() }) }
    }

    /// Renews the lease from now on, first at `due`.
    pub(crate) fn keep(&self, hold: &Arc<Hold>, due: Moment) {
        let must_wake = locked(&self.shared.agenda).seat(hold.clone(), due);
        if must_wake {
            self.shared.wake.notify_one();
        }
    }

    /// Lets the lease be held by that of the entry before it, which is believed in until then.
    pub(crate) fn borrow(&self, now: Moment, hold: &Hold, until: Moment) {
        let must_wake = locked(&self.shared.agenda).borrow(now, hold, until);
        if must_wake {
            self.shared.wake.notify_one();
        }
    }

    /// Stops renewing the lease. A renewal that is under way may still arrive, and finds nothing to renew.
    pub(crate) fn forget(&self, hold: &Hold) {
        locked(&self.shared.agenda).unseat(hold);
    }

    /// Takes note of what the store says of an entry by itself.
    pub(crate) fn hear(&self, now: Moment, notice: Notice) {
        tracing::debug!(target: "leasehold::keeper", ?notice, "the store says");
        locked(&self.shared.agenda).hear(now, notice);
    }

    /// How many leases are being kept.
    pub(crate) fn kept(&self) -> usize {
        locked(&self.shared.agenda).len()
    }

    /// The keeper's work, until `stop` resolves. If it ends in any other way, what it kept is lost, not forgotten.
    pub(crate) async fn run(
        self,
        backend: Arc<dyn Backend>,
        notices: BoxStream<'static, Notice>,
        clock: Clock,
        chance: Arc<Chance>,
        stop: impl Future<Output = ()>,
    ) {
        let _abandon = AbandonOnDrop(&self.shared);
        let alarm = Alarm::new(clock.clone());
        let timer = Timer::on_callers_runtime(clock.clone());
        let mut batches = Batches::default();
        let mut notices = notices.fuse();
        let mut wall_lead = clock.wall_lead();
        let mut stop = pin!(stop);
        loop {
            let now = clock.now();
            let (due, next) = {
                let mut agenda = locked(&self.shared.agenda);
                let lead = clock.wall_lead();
                if wall_moved(wall_lead, lead, &agenda, now) {
                    tracing::warn!(target: "leasehold::keeper", "wall time moved against boot time: asking the store about every lease");
                    agenda.doubt_all(now);
                }
                wall_lead = lead;
                let due = agenda.take_due(now);
                (due, agenda.fall_asleep(now))
            };
            for hold in &due.expired {
                tracing::warn!(target: "leasehold::keeper", key = %hold.place.key, "lost: {}", Loss::Expired);
            }
            for batch in due.renew.chunks(BATCH_MAX) {
                batches.send(batch, &backend, &timer, &chance);
            }
            let event = {
                let mut alarm = pin!(alarm.at(next));
                let mut wake = pin!(self.shared.wake.notified());
                poll_fn(|cx| {
                    if stop.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Event::Stop);
                    }
                    if let Poll::Ready(Some(answer)) = batches.0.poll_join_next(cx) {
                        return Poll::Ready(Event::Answer(answer));
                    }
                    if let Poll::Ready(Some(notice)) = notices.poll_next_unpin(cx) {
                        return Poll::Ready(Event::Notice(notice));
                    }
                    if wake.as_mut().poll(cx).is_ready() || alarm.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Event::Look);
                    }
                    Poll::Pending
                })
                .await
            };
            match event {
                Event::Stop => return,
                Event::Look => {}
                Event::Notice(notice) => self.hear(clock.now(), notice),
                Event::Answer(answer) => self.settle(clock.now(), answer),
            }
        }
    }

    fn settle(&self, now: Moment, answer: Result<Answered, JoinError>) {
        let Ok(Answered { batch, sent_at, jitter, renewals }) = answer else {
            return; // cannot happen: `answer` below catches a store's panic and answers for it
        };
        let mut agenda = locked(&self.shared.agenda);
        for (hold, renewal) in batch.iter().zip(&renewals) {
            match renewal {
                Renewal::Renewed { .. } => {}
                Renewal::Lost => {
                    tracing::warn!(target: "leasehold::keeper", key = %hold.place.key, "lost: {}", Loss::Gone);
                }
                Renewal::Unknown(error) => {
                    tracing::debug!(target: "leasehold::keeper", key = %hold.place.key, %error, "a renewal failed");
                }
            }
            agenda.settle(now, hold, sent_at, jitter, renewal);
        }
    }
}

enum Event {
    Stop,
    Look,
    Notice(Notice),
    Answer(Result<Answered, JoinError>),
}

/// The renewals that are under way. Each is a task: a slow one must not delay the next, nor a deadline.
#[derive(Default)]
struct Batches(JoinSet<Answered>);

struct Answered {
    batch: Vec<Arc<Hold>>,
    sent_at: Moment,
    /// One for the whole batch, so that it stays together.
    jitter: f64,
    renewals: Vec<Renewal>,
}

impl Batches {
    /// One trip for the whole batch.
    fn send(&mut self, batch: &[Arc<Hold>], backend: &Arc<dyn Backend>, timer: &Timer, chance: &Chance) {
        let batch = batch.to_vec();
        let leases: Vec<Lease> =
            batch.iter().map(|hold| Lease { id: LeaseId::Entry(hold.place.clone()), ttl: hold.ttl() }).collect();
        let shortest = leases.iter().map(|lease| lease.ttl).min().unwrap_or_default();
        let limit = deadline::attempt_limit(shortest);
        let jitter = chance.jitter();
        let (backend, timer) = (backend.clone(), timer.clone());
        self.0.spawn(async move {
            let sent_at = timer.now();
            // A task of its own, so that a panic in a store's code is an unknown outcome and not the keeper's end.
            let asked = tokio::spawn(async move { backend.renew(&leases).await });
            let abort = asked.abort_handle();
            let answer = timer.within(limit, asked).await;
            abort.abort();
            let fault = match answer {
                Some(Ok(Ok(renewals))) if renewals.len() == batch.len() => {
                    return Answered { batch, sent_at, jitter, renewals };
                }
                Some(Ok(Ok(renewals))) => Error::new(
                    ErrorKind::Protocol,
                    format!("the store answered for {} of {} leases", renewals.len(), batch.len()),
                ),
                Some(Ok(Err(error))) => error,
                Some(Err(_)) => Error::new(ErrorKind::Protocol, "the store's code panicked").with_unknown_fate(),
                None => Error::new(ErrorKind::Unreachable, "no answer in time").with_unknown_fate(),
            };
            let fault = fault.while_doing("renewing");
            let renewals = vec![Renewal::Unknown(fault); batch.len()];
            Answered { batch, sent_at, jitter, renewals }
        });
    }
}

fn wall_moved(before: i64, after: i64, agenda: &Agenda, now: Moment) -> bool {
    let moved = Duration::from_nanos(after.abs_diff(before));
    // The cheap test first: a look at every lease only when the clock did something odd.
    moved > Duration::from_millis(10)
        && agenda.shortest_left(now).is_some_and(|left| moved > WALL_SHIFT_MAX.min(left / 4))
}

struct AbandonOnDrop<'a>(&'a Shared);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if let Ok(mut agenda) = self.0.agenda.lock() {
            agenda.abandon_all();
        }
    }
}
