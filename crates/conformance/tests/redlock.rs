//! The suite on a majority of independent Redis servers: three of them, and five. Tests share them, and tell themselves
//! apart by their namespaces.

use std::sync::{Arc, OnceLock};

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::redlock::Redlock;
use leasehold::clock::Clock;
use leasehold_conformance::{Fixture, Time, conformance};
use leasehold_testbed::redis::Server;

static THREE: OnceLock<Vec<Server>> = OnceLock::new();
static FIVE: OnceLock<Vec<Server>> = OnceLock::new();

struct On(&'static OnceLock<Vec<Server>>, usize);

impl Fixture for On {
    fn time(&self) -> Time {
        Time::Real
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async {
            let servers = self.0.get_or_init(|| (0..self.1).map(|_| Server::start().unwrap()).collect());
            let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
            let url = format!("redlock://{}?blank=accept&longest=86400", hosts.join(","));
            Arc::new(Redlock::connect(&url).await.unwrap()) as Arc<dyn Backend>
        })
    }
}

conformance!(three, |_: &Clock| On(&THREE, 3));
conformance!(five, |_: &Clock| On(&FIVE, 5));
