//! The suite on the embedded store, each client with a connection of its own to one file.

use std::path::PathBuf;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold::backend::Backend;
use leasehold::backend::sqlite::Sqlite;
use leasehold::clock::Clock;
use leasehold_conformance::{Fixture, Time, conformance};

struct SqliteFixture {
    folder: PathBuf,
}

impl SqliteFixture {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("leasehold-{:016x}", fastrand::u64(..)));
        Self { folder }
    }
}

impl Drop for SqliteFixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Fixture for SqliteFixture {
    fn time(&self) -> Time {
        Time::Real
    }

    fn connect(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        Box::pin(async { Arc::new(Sqlite::open(self.folder.join("locks.db")).unwrap()) as Arc<dyn Backend> })
    }
}

conformance!(sqlite, |_: &Clock| SqliteFixture::new());
