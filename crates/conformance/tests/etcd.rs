//! The suite on real etcd: one server, and a cluster of three. Tests share them, and tell themselves apart by their
//! namespaces.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::etcd::Etcd;
use leasehold::clock::Clock;
use leasehold_conformance::{Fixture, Time, conformance};
use leasehold_testbed::etcd::Cluster;

struct At(fn() -> String);

impl Fixture for At {
    fn time(&self) -> Time {
        Time::Real
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(Etcd::connect(&self.0()).await.unwrap()) as Arc<dyn Backend> })
    }
}

conformance!(single, |_: &Clock| At(|| Cluster::shared().url()));

conformance!(cluster, |_: &Clock| At(|| Cluster::shared_three().url()));
