//! The suite on a store that can do the least a store may: exclusive claims, in no order. What it lacks must be refused,
//! and what it has must work all the same.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use leasehold::backend::memory::Memory;
use leasehold::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, Finding, KeyView, Lease, Note, Notice, Page, Patience, Place,
    Query, Renewal, Request, Standing, Version,
};
use leasehold::clock::{Clock, Hand};
use leasehold::{Claim, Key, Result};
use leasehold_conformance::{Fixture, Time, conformance, run};

/// The store in memory without its lines, shares, permits and notes.
#[derive(Clone, Debug)]
struct Limited(Memory);

#[deny(clippy::missing_trait_methods)]
impl Backend for Limited {
    fn capabilities(&self) -> Capabilities {
        Capabilities::exclusive_only()
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        assert_eq!(request.patience, Patience::Refuse, "a store without lines is asked for a place in line");
        assert_eq!(request.claim, Claim::Exclusive, "a claim is sent to a store that cannot honour it");
        self.0.enter(request)
    }

    fn changed<'a>(&'a self, place: &'a Place, _seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(async {
            let mut views = self.0.watch(&place.key);
            while views.next().await.transpose()?.is_some_and(|view| !view.holders.is_empty()) {}
            Ok(None)
        })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        self.0.leave(place)
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        self.0.renew(leases)
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        self.0.ask_to_yield(place)
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.0.notices()
    }

    fn liveness(&self) -> Option<OwnedFd> {
        self.0.liveness()
    }

    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        self.0.annotate(place, note)
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        self.0.inspect(query)
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        self.0.watch(key)
    }

    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.0.checkup()
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("limited")
    }
}

struct LimitedFixture {
    store: Limited,
    clock: Arc<Hand>,
}

impl LimitedFixture {
    fn new(clock: Clock) -> Self {
        let (clock, hand) = Clock::moved_by_hand(clock);
        Self { store: Limited(Memory::with_clock(clock)), clock: hand }
    }
}

impl Fixture for LimitedFixture {
    fn time(&self) -> Time {
        Time::Virtual
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(self.store.clone()) as Arc<dyn Backend> })
    }

    fn store_clock(&self) -> Option<Arc<Hand>> {
        Some(self.clock.clone())
    }
}

conformance!(limited, |clock: &Clock| LimitedFixture::new(clock.clone()));

#[test]
fn a_release_wakes_whoever_was_refused() {
    run(
        |clock: &Clock| LimitedFixture::new(clock.clone()),
        |world| {
            Box::pin(async move {
                let (one, two) = (world.client().await, world.client().await);
                let first = one.mutex("told").unwrap().lock().await.unwrap();
                let mutex = two.mutex("told").unwrap();
                let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
                world.until_contending(&two, "told").await;
                first.release().await.unwrap();
                world.within(world.slack(), waiting).await.expect("it is told").unwrap();
            })
        },
    );
}
