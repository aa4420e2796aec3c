//! The suite on real Redis: one server, a cluster of three masters, and a master behind sentinels. Tests share them, and
//! tell themselves apart by their namespaces.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::redis::Redis;
use leasehold::clock::Clock;
use leasehold_conformance::{Fixture, Time, conformance};
use leasehold_testbed::redis::{Cluster, Sentinel, Server};

struct At(fn() -> String);

impl Fixture for At {
    fn time(&self) -> Time {
        Time::Real
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(Redis::connect(&self.0()).await.unwrap()) as Arc<dyn Backend> })
    }
}

conformance!(single, |_: &Clock| At(|| Server::shared().url()));

conformance!(cluster, |_: &Clock| At(|| {
    let nodes: Vec<String> =
        Cluster::shared().nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redis+cluster://{}", nodes.join(","))
}));

conformance!(sentinel, |_: &Clock| At(|| {
    let sentinel = Sentinel::shared();
    format!("redis+sentinel://{}/{}", sentinel.sentinel_addresses().join(","), sentinel.master_name())
}));

conformance!(redisson, |_: &Clock| At(|| format!("{}?layout=redisson", Server::shared().url())));
