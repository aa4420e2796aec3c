//! The connection of the runtime that takes locks. Requests that are ready together go together, in one call.
//!
//! It lives on the caller's runtime and not on our own thread, so that a lock which nobody else wants costs no change of
//! threads: on an idle machine waking another thread takes as long as the trip to the server.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use redis::Value;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};

use crate::backend::redis::call::{Call, Verb};
use crate::backend::redis::hub::Hub;
use crate::backend::redis::listening;
use crate::backend::redis::wire::Wire;
use crate::clock::{Clock, Timer};
use crate::error::{Error, ErrorKind, Result};

/// The most requests in one call, so that one does not keep the server from everybody else.
const TOGETHER_MAX: usize = 64;

/// One request, and where its answer goes.
struct Job {
    call: Call,
    answer: oneshot::Sender<Result<Value>>,
}

/// The connection of one runtime.
#[derive(Clone)]
pub(super) struct Local {
    pub(super) runtime: runtime::Id,
    wire: Arc<Wire>,
    /// Whether a request has been sent by itself and not been answered.
    alone: Arc<AtomicBool>,
    jobs: mpsc::UnboundedSender<Job>,
    /// Whether news of what is entered will be heard.
    listens: watch::Receiver<bool>,
}

impl Local {
    /// Must be called on a runtime. What it spawns lives as long as that, or as this.
    pub(super) fn start(wire: Arc<Wire>, hub: Arc<Hub>) -> Self {
        let (jobs, ready) = mpsc::unbounded_channel();
        let (subscribed, listens) = watch::channel(false);
        let working = run(wire.clone(), ready);
        let listening = listening::follow(wire.clone(), hub, subscribed);
        tokio::spawn(async {
            select(pin!(working), pin!(listening)).await;
        });
        Self { runtime: runtime::Handle::current().id(), wire, alone: Arc::default(), jobs, listens }
    }

    /// The answer, or the call back if that runtime is no more.
    ///
    /// The first of several goes at once, by itself: it need not pass through another task. Whoever comes while it is
    /// under way is gathered.
    pub(super) async fn ask(&self, call: Call) -> Result<Result<Value>, Call> {
        if !*self.listens.borrow() {
            // It says so or ends; in both cases there is nothing to wait for any more.
            let _ = self.listens.clone().wait_for(|listens| *listens).await;
        }
        if self.is_open() && !self.alone.swap(true, Ordering::AcqRel) {
            let _answered = Answered(&self.alone);
            return Ok(self.wire.call_one(&call).await);
        }
        let (answer, answered) = oneshot::channel();
        if let Err(refused) = self.jobs.send(Job { call, answer }) {
            return Err(refused.0.call);
        }
        Ok(answered.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unreachable, "the runtime of the connection has ended").with_unknown_fate())
        }))
    }

    pub(super) fn is_open(&self) -> bool {
        !self.jobs.is_closed()
    }
}

struct Answered<'a>(&'a AtomicBool);

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Whether the runtime that this is called on has what a connection needs. There is no other way to ask than to try, and
/// one that has not panics.
pub(super) fn can_connect() -> bool {
    std::panic::catch_unwind(|| {
        let timer = Timer::on_callers_runtime(Clock::boot());
        timer.sleep(Duration::from_secs(1)).now_or_never();
        tokio::net::UnixStream::pair().is_ok()
    })
    .unwrap_or(false)
}

async fn run(wire: Arc<Wire>, mut ready: mpsc::UnboundedReceiver<Job>) {
    let mut under_way = FuturesUnordered::new();
    let mut jobs = Vec::new();
    loop {
        let first = {
            let mut receiving = std::pin::pin!(ready.recv());
            loop {
                if under_way.is_empty() {
                    break receiving.await;
                }
                match select(receiving.as_mut(), under_way.next()).await {
                    Either::Left((first, _)) => break first,
                    Either::Right(_) => {}
                }
            }
        };
        let Some(first) = first else { break };
        jobs.push(first);
        // Whoever is about to ask gets the chance to: an answer to many wakes them all at once.
        tokio::task::yield_now().await;
        while jobs.len() < TOGETHER_MAX
            && let Ok(job) = ready.try_recv()
        {
            jobs.push(job);
        }
        for (verb, slot, group) in grouped(&mut jobs, &wire) {
            under_way.push(answer(wire.clone(), verb, slot, group));
        }
    }
    while under_way.next().await.is_some() {}
}

/// Jobs that one call can do: of one verb, and of one slot where there are slots. Departures first, because they make room.
fn grouped(jobs: &mut Vec<Job>, wire: &Wire) -> Vec<(Verb, u16, Vec<Job>)> {
    let mut groups: Vec<(Verb, u16, Vec<Job>)> = Vec::with_capacity(2);
    for job in jobs.drain(..) {
        let (verb, slot) = (job.call.verb, if wire.has_slots() { job.call.names.slot() } else { 0 });
        match groups.iter_mut().find(|(known, of, _)| (*known, *of) == (verb, slot)) {
            Some((_, _, group)) => group.push(job),
            None => groups.push((verb, slot, vec![job])),
        }
    }
    groups.sort_by_key(|(verb, _, _)| *verb != Verb::Leave);
    groups
}

async fn answer(wire: Arc<Wire>, verb: Verb, slot: u16, group: Vec<Job>) {
    let answers = wire.call(verb, slot, group.iter().map(|job| &job.call)).await;
    match answers {
        Ok(answers) => {
            for (job, answer) in group.into_iter().zip(answers) {
                let _ = job.answer.send(answer); // nobody may wait for it any more
            }
        }
        Err(error) => {
            for job in group {
                let _ = job.answer.send(Err(error.clone()));
            }
        }
    }
}
