//! A wrapper that any store can wear, by which a case makes single requests fail in a chosen way.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{pending, ready};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use leasehold::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, Finding, KeyView, Lease, Note, Notice, Page, Place, Query,
    Renewal, Request, Standing, Version,
};
use leasehold::clock::Timer;
use leasehold::{Error, ErrorKind, Key, Result};
use tokio::sync::Notify;

/// A request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the methods of `Backend`")]
pub enum Verb {
    Enter,
    Changed,
    Leave,
    Renew,
    Yield,
    Annotate,
    Inspect,
    Watch,
    Notices,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not reach the store, and the client knows: [`Fate::NotApplied`](leasehold::Fate::NotApplied).
    Unsent,
    /// The store acts on it, and the reply is lost: [`Fate::Unknown`](leasehold::Fate::Unknown).
    ReplyLost,
    /// It takes this long to reach the store.
    Slow(Duration),
    /// The store acts on it at once, and the reply takes this long.
    SlowReply(Duration),
    /// It neither reaches the store nor gets an answer.
    Swallowed,
    /// The store acts on it, and no answer comes.
    Unanswered,
    /// The store answers nonsense.
    Garbled,
    /// It takes this long to reach the store, and reaches it even if nobody waits for it any more. Only [`Verb::Enter`]
    /// can be so late; with any other it is [`Fault::Slow`].
    Late(Duration),
}

/// The faults of one client, and a count of what it asked for.
#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
    watches_break: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    next: HashMap<Verb, VecDeque<Fault>>,
    always: HashMap<Verb, Fault>,
    calls: HashMap<Verb, usize>,
    batches: Vec<usize>,
}

impl Faults {
    /// The next request of that sort goes wrong so; after it, those queued before and `always` count again.
    pub fn next(&self, verb: Verb, fault: Fault) {
        self.with(|state| state.next.entry(verb).or_default().push_back(fault));
    }

    /// Every request of that sort goes wrong so, until healed.
    pub fn always(&self, verb: Verb, fault: Fault) {
        self.with(|state| state.always.insert(verb, fault));
    }

    /// Every request of every sort goes wrong so, until healed.
    pub fn always_all(&self, fault: Fault) {
        use Verb::{Annotate, Changed, Enter, Inspect, Leave, Notices, Renew, Watch, Yield};
        for verb in [Enter, Changed, Leave, Renew, Yield, Annotate, Inspect, Watch, Notices] {
            self.always(verb, fault);
        }
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.with(|state| {
            state.next.clear();
            state.always.clear();
        });
    }

    /// Every watch that is under way breaks off. New ones work.
    pub fn break_watches(&self) {
        self.watches_break.notify_waiters();
    }

    /// How many requests of that sort were made so far.
    pub fn calls(&self, verb: Verb) -> usize {
        self.with(|state| state.calls.get(&verb).copied().unwrap_or_default())
    }

    /// How many leases each renewal so far was for.
    pub fn batches(&self) -> Vec<usize> {
        self.with(|state| state.batches.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().expect("no panic under this lock"))
    }

    fn take(&self, verb: Verb) -> Option<Fault> {
        self.with(|state| {
            *state.calls.entry(verb).or_default() += 1;
            let next = state.next.get_mut(&verb).and_then(VecDeque::pop_front);
            next.or_else(|| state.always.get(&verb).copied())
        })
    }
}

/// A store as one client reaches it, faults included.
pub(crate) struct Faulty {
    store: Arc<dyn Backend>,
    faults: Arc<Faults>,
    timer: Timer,
}

impl Faulty {
    pub(crate) fn new(store: Arc<dyn Backend>, timer: Timer) -> (Self, Arc<Faults>) {
        let faults = Arc::new(Faults::default());
        (Self { store, faults: faults.clone(), timer }, faults)
    }

    async fn through<T>(&self, verb: Verb, request: BoxFuture<'_, Result<T>>) -> Result<T> {
        self.suffer(self.faults.take(verb), request).await
    }

    async fn suffer<T>(&self, fault: Option<Fault>, request: BoxFuture<'_, Result<T>>) -> Result<T> {
        let lost = || Error::new(ErrorKind::Unreachable, "the reply was lost").with_unknown_fate();
        match fault {
            None => request.await,
            Some(Fault::Unsent) => Err(Error::new(ErrorKind::Unreachable, "no connection")),
            Some(Fault::ReplyLost) => request.await.and_then(|_| Err(lost())),
            Some(Fault::Slow(span) | Fault::Late(span)) => {
                self.timer.sleep(span).await;
                request.await
            }
            Some(Fault::SlowReply(span)) => {
                let reply = request.await;
                self.timer.sleep(span).await;
                reply
            }
            Some(Fault::Swallowed) => pending().await,
            Some(Fault::Unanswered) => {
                let _ = request.await;
                pending().await
            }
            Some(Fault::Garbled) => Err(Error::new(ErrorKind::Protocol, "not a reply").with_unknown_fate()),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Backend for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        Box::pin(async move {
            match self.faults.take(Verb::Enter) {
                Some(Fault::Late(span)) => {
                    let (store, timer, request) = (self.store.clone(), self.timer.clone(), request.clone());
                    let arriving = tokio::spawn(async move {
                        timer.sleep(span).await;
                        store.enter(&request).await
                    });
                    arriving.await.expect("the store does not panic")
                }
                fault => self.suffer(fault, self.store.enter(request)).await,
            }
        })
    }

    fn changed<'a>(&'a self, place: &'a Place, seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(self.through(Verb::Changed, self.store.changed(place, seen)))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        Box::pin(self.through(Verb::Leave, self.store.leave(place)))
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        self.faults.with(|state| state.batches.push(leases.len()));
        Box::pin(self.through(Verb::Renew, self.store.renew(leases)))
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        Box::pin(self.through(Verb::Yield, self.store.ask_to_yield(place)))
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        let faults = self.faults.clone();
        // Whatever the fault, a notice that does not arrive is not there.
        let arrives = move |_: &Notice| ready(!faults.with(|state| state.always.contains_key(&Verb::Notices)));
        Box::pin(self.store.notices().filter(arrives))
    }

    fn liveness(&self) -> Option<OwnedFd> {
        self.store.liveness()
    }

    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        Box::pin(self.through(Verb::Annotate, self.store.annotate(place, note)))
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        Box::pin(self.through(Verb::Inspect, self.store.inspect(query)))
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let broken = stream::iter([Err(Error::new(ErrorKind::Unreachable, "the watch broke off"))]);
        match self.faults.take(Verb::Watch) {
            None => {
                let breaks = self.faults.watches_break.clone().notified_owned();
                Box::pin(self.store.watch(key).take_until(breaks).chain(broken))
            }
            Some(Fault::Swallowed | Fault::Unanswered) => Box::pin(stream::pending()),
            Some(_) => Box::pin(broken),
        }
    }

    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.store.checkup()
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.store)
    }
}
