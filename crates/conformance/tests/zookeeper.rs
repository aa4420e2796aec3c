//! The suite on real ZooKeeper: one server, an ensemble of three, and one server in kazoo's layout. Tests share them, and tell
//! themselves apart by their namespaces.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::zookeeper::Zookeeper;
use leasehold::clock::Clock;
use leasehold_conformance::{Fixture, Time, conformance};
use leasehold_testbed::zookeeper::{Ensemble, Server};

struct At(fn() -> String);

impl Fixture for At {
    fn time(&self) -> Time {
        Time::Real
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(Zookeeper::connect(&self.0()).await.unwrap()) as Arc<dyn Backend> })
    }
}

conformance!(single, |_: &Clock| At(|| Server::shared().url()));

conformance!(ensemble, |_: &Clock| At(|| Ensemble::shared().url()));

conformance!(kazoo, |_: &Clock| At(|| format!("{}?layout=kazoo", Server::shared().url())));
