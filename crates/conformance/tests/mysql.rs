//! The suite on a real MariaDB server. Tests share it, and tell themselves apart by their namespaces.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::mysql::MySql;
use leasehold::clock::Clock;
use leasehold_conformance::{Fixture, Time, conformance};
use leasehold_testbed::mysql::Server;

struct At(fn() -> String);

impl Fixture for At {
    fn time(&self) -> Time {
        Time::Real
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(MySql::connect(&self.0()).await.unwrap()) as Arc<dyn Backend> })
    }
}

conformance!(mysql, |_: &Clock| At(|| Server::shared().url()));

conformance!(spring, |_: &Clock| At(|| format!("{}?layout=spring", Server::shared().url())));
