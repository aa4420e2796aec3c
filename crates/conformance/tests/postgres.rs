//! The suite on a real PostgreSQL server, and through a pooler that shares sessions out by the transaction. Tests share it, and tell themselves apart by their namespaces.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::postgres::Postgres;
use leasehold::clock::Clock;
use leasehold_conformance::{Fixture, Time, conformance};
use leasehold_testbed::postgres::{Pooler, Server};

struct At(fn() -> String);

/// Each of its connections has twice as much to read before its first lock, and here they are made while a machine is busy.
struct Beside(At);

impl Fixture for At {
    fn time(&self) -> Time {
        Time::Real
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(Postgres::connect(&self.0()).await.unwrap()) as Arc<dyn Backend> })
    }
}

impl Fixture for Beside {
    fn time(&self) -> Time {
        self.0.time()
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        self.0.connect()
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(4)
    }
}

conformance!(direct, |_: &Clock| At(|| Server::shared().url()));

conformance!(spring, |_: &Clock| Beside(At(|| format!("{}?layout=spring", Server::shared().url()))));

conformance!(pooled, |_: &Clock| At(|| Pooler::shared().url()));
