//! The suite on a real PostgreSQL server, and through a pooler that shares sessions out by the transaction. Tests share it, and tell themselves apart by their namespaces.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::postgres::Postgres;
use leasehold::clock::Clock;
use leasehold_conformance::{Fixture, Time, conformance};
use leasehold_testbed::postgres::{Pooler, Server};

struct At(fn() -> String);

impl Fixture for At {
    fn time(&self) -> Time {
        Time::Real
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(Postgres::connect(&self.0()).await.unwrap()) as Arc<dyn Backend> })
    }
}

conformance!(direct, |_: &Clock| At(|| Server::shared().url()));

conformance!(pooled, |_: &Clock| At(|| Pooler::shared().url()));
