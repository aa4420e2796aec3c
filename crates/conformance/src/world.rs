//! What a case lives in: a store, clients of it, and time.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::{BoxFuture, LocalBoxFuture};
use leasehold::backend::memory::Memory;
use leasehold::backend::{Backend, Capabilities, EntryId, KeyView};
use leasehold::clock::{Clock, Hand, Moment, Timer};
use leasehold::{Builder, Locks, Result};

use crate::faults::{Faults, Faulty, Verb};

/// How a store is reached. Made anew for every test.
pub trait Fixture: Send + Sync + 'static {
    /// Whether the store's leases run on the test's own clock.
    fn time(&self) -> Time;

    /// Connects one more client. All clients of one fixture see the same store; tests tell themselves apart on it by
    /// their namespaces.
    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>>;

    /// How long a lease lives on it in real time: the shortest that leaves room for a slow machine. An answer may take a sixth
    /// of that.
    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// What moves the store's clock, if anything can.
    fn store_clock(&self) -> Option<Arc<Hand>> {
        None
    }
}

/// Which time a test runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The machine's. Waiting for a lease to expire takes as long as it takes.
    Real,
    /// A clock that moves to the next timer as soon as nothing else is left to do. An hour takes microseconds, and the
    /// same test always takes the same course.
    Virtual,
}

/// No case takes longer than this, in its own time.
const CASE_MAX: Duration = Duration::from_secs(600);

/// How soon the first in line looks again by itself at the latest: every second, give or take a tenth.
pub const RECHECK_MAX: Duration = Duration::from_millis(1_100);

/// Runs one case on the fixture that `fixture` makes.
pub fn run<F: Fixture>(fixture: impl FnOnce(&Clock) -> F, case: impl FnOnce(World) -> LocalBoxFuture<'static, ()>) {
    // The fixture decides which time it is, but needs the clock to be made: so make it on the virtual one first.
    let paused = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let paused = paused.expect("a runtime");
    let (clock, fixture) = paused.block_on(async {
        let clock = Clock::runtime();
        let fixture = fixture(&clock);
        (clock, fixture)
    });
    let (runtime, clock) = match fixture.time() {
        Time::Virtual => (paused, clock),
        Time::Real => {
            let real = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            (real.expect("a runtime"), Clock::boot())
        }
    };
    let timer = Timer::on_callers_runtime(clock.clone());
    let world = World::new(fixture, clock);
    let over = runtime.block_on(timer.within(CASE_MAX, case(world)));
    assert!(over.is_some(), "the case was not over after {CASE_MAX:?}: somebody waits for ever");
    runtime.shutdown_background();
}

/// A store with clients, and time.
pub struct World {
    fixture: Box<dyn Fixture>,
    clock: Clock,
    timer: Timer,
    namespace: String,
}

impl World {
    fn new(fixture: impl Fixture, clock: Clock) -> Self {
        // Random, because a real store outlives the test's process and is shared with others.
        let namespace = format!("conformance-{:016x}", fastrand::u64(..));
        let timer = Timer::on_callers_runtime(clock.clone());
        Self { fixture: Box::new(fixture), clock, timer, namespace }
    }

    /// How long a lease lives in these tests.
    pub fn ttl(&self) -> Duration {
        match self.fixture.time() {
            Time::Virtual => Duration::from_secs(10),
            Time::Real => self.fixture.ttl(),
        }
    }

    /// How late a promise may be kept because the machine is busy. Nothing is late in virtual time, except that timers
    /// are set to whole milliseconds.
    pub fn slack(&self) -> Duration {
        match self.fixture.time() {
            Time::Virtual => Duration::from_millis(5),
            Time::Real => Duration::from_millis(750),
        }
    }

    /// How many tasks contend where many should.
    pub fn crowd(&self) -> usize {
        16
    }

    /// Which time this is.
    pub fn time(&self) -> Time {
        self.fixture.time()
    }

    /// The clock of this test's clients.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// The namespace of this test's clients, which nobody else uses.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// One more client of the store, with the world's TTL.
    pub async fn client(&self) -> Client {
        self.client_with(|builder| builder).await
    }

    /// One more client of the store, with settings of its own.
    pub async fn client_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Client {
        self.try_client_with(settings).await.expect("the store can be reached")
    }

    /// One more client of the store, if its settings are right.
    pub async fn try_client_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Result<Client> {
        let (faulty, faults) = Faulty::new(self.fixture.connect().await, self.timer.clone());
        let builder = Locks::on(faulty).clock(self.clock.clone()).namespace(&self.namespace).ttl(self.ttl());
        let locks = settings(builder).connect().await?;
        Ok(Client { locks, faults })
    }

    /// One more client of the store, on a clock of its own.
    pub async fn client_on_moved_clock(&self) -> (Client, Arc<Hand>) {
        let (clock, hand) = Clock::moved_by_hand(self.clock.clone());
        (self.client_with(|builder| builder.clock(clock)).await, hand)
    }

    /// A client of another store, which has nothing to do with this one but the namespace.
    pub async fn client_of_another_store(&self) -> Locks {
        let builder = Locks::on(Memory::with_clock(self.clock.clone())).clock(self.clock.clone());
        let builder = builder.namespace(&self.namespace).ttl(self.ttl());
        builder.connect().await.expect("memory can be reached")
    }

    /// One more connection to the store as it is, for a case that asks it things itself.
    pub async fn store(&self) -> Arc<dyn Backend> {
        self.fixture.connect().await
    }

    /// What the store can do.
    pub async fn capabilities(&self) -> Capabilities {
        self.fixture.connect().await.capabilities()
    }

    /// What moves the store's clock, if anything can.
    pub fn store_clock(&self) -> Option<Arc<Hand>> {
        self.fixture.store_clock()
    }

    /// What time it is for the clients.
    pub fn now(&self) -> Moment {
        self.timer.now()
    }

    /// Lets time pass.
    pub async fn pass(&self, span: Duration) {
        self.timer.sleep(span).await;
    }

    /// What `work` comes to, or `None` if it takes longer than `limit`.
    pub async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.timer.within(limit, work).await
    }

    /// Waits until `condition` holds, and fails if it does not within `limit`.
    pub async fn until(&self, what: &str, limit: Duration, condition: impl AsyncFn() -> bool) {
        let started = self.now();
        while !condition().await {
            let waited = started.until(self.now());
            assert!(waited < limit, "after {waited:?} it still was not so that {what}");
            self.pass(Duration::from_millis(1)).await;
        }
    }

    /// Waits until nobody is in that line: what was dropped or cancelled has left, long before its lease would end.
    pub async fn until_deserted(&self, locks: &Locks, name: impl AsRef<[u8]>) {
        let name = name.as_ref();
        let deserted = async || locks.inspect(name).await.expect("inspect answers").is_none();
        self.until("the line is deserted", self.ttl() / 4, deserted).await;
    }

    /// Waits until so many wait in that line.
    pub async fn until_waiting(&self, locks: &Locks, name: impl AsRef<[u8]>, waiting: usize) {
        let name = name.as_ref();
        let enough = async || {
            let view = locks.inspect(name).await.expect("inspect answers");
            view.and_then(|view| view.waiters).is_some_and(|waiters| waiters.len() == waiting)
        };
        self.until(&format!("{waiting} wait in line"), self.ttl() / 2, enough).await;
    }

    /// Waits until that client's first contender waits: in line, or for its next try where the store has no lines.
    pub async fn until_contending(&self, client: &Client, name: impl AsRef<[u8]>) {
        if client.capabilities().queueing {
            self.until_waiting(client, name, 1).await;
        } else {
            let asked = async || client.faults.calls(Verb::Enter) > 0;
            self.until("the contender has asked", self.ttl() / 2, asked).await;
        }
    }

    /// Waits until that entry holds the key and nobody else is in line.
    pub async fn until_alone(&self, locks: &Locks, name: impl AsRef<[u8]>, entry: EntryId) {
        let name = name.as_ref();
        let alone = async || {
            let view = self.line(locks, name).await;
            let holds = view.holders.iter().map(|holder| holder.place.entry).eq([entry]);
            holds && view.waiters.is_none_or(|waiters| waiters.is_empty())
        };
        self.until("one holds and nobody waits", self.ttl() / 4, alone).await;
    }

    /// How late a waiter may learn that the key is free. It is told at once in a line; without one, or if the store does not
    /// tell, it learns it at its next try.
    pub async fn notice(&self) -> Duration {
        let able = self.capabilities().await;
        if able.queueing && able.pushes { self.slack() } else { self.slack() + RECHECK_MAX }
    }

    /// How late a holder may learn what others did to it: at once, or with its next renewal if the store does not tell.
    pub async fn hearsay(&self) -> Duration {
        if self.capabilities().await.pushes { self.slack() } else { self.slack() + self.ttl() / 2 }
    }

    /// The line of that name, which must not be empty.
    pub async fn line(&self, locks: &Locks, name: impl AsRef<[u8]>) -> KeyView {
        locks.inspect(name).await.expect("inspect answers").expect("somebody is in line")
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// A client of the store, and what goes wrong for it.
#[derive(Debug)]
pub struct Client {
    /// Its locks.
    pub locks: Locks,
    /// Its faults.
    pub faults: Arc<Faults>,
}

impl Deref for Client {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}
