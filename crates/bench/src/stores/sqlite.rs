//! The embedded store, beside bare commits to a file of the same kind.

use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use leasehold::clock::{Clock, Timer};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

use super::Store;
use crate::contender::{Contender, Lock, POLL, Rival};
use crate::sample::BARE;

pub(super) struct Sqlite(TempDir);

impl Sqlite {
    pub(super) fn start() -> Self {
        Self(TempDir::new().expect("a folder"))
    }
}

impl Store for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn server(&self) -> String {
        format!("SQLite {}, embedded, a file on disk", rusqlite::version())
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.0.path().join("locks.db").display())
    }

    fn bare(&self) -> BoxFuture<'_, Rival> {
        let file = self.0.path().join("bare.db");
        Box::pin(Rival::here(BARE, move || {
            let connection = Connection::open(&file).expect("a file");
            connection.busy_timeout(crate::contender::TTL).expect("set");
            connection.pragma_update(None, "journal_mode", "WAL").expect("set");
            connection.pragma_update(None, "synchronous", "NORMAL").expect("set");
            let table = "CREATE TABLE IF NOT EXISTS entry (name TEXT PRIMARY KEY, since TEXT) WITHOUT ROWID";
            connection.execute_batch(table).expect("a table");
            Box::pin(async { Bare(Arc::new(Mutex::new(connection))) })
        }))
    }

    fn peers(&self) -> BoxFuture<'_, Vec<Rival>> {
        Box::pin(async { Vec::new() })
    }

    fn requests(&self) -> Option<u64> {
        None
    }
}

/// Two commits of one row each, without a wait for the disk.
struct Bare(Arc<Mutex<Connection>>);

struct BareLock(Arc<Mutex<Connection>>, String);

impl Contender for Bare {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(BareLock(self.0.clone(), key.to_owned()))
    }
}

impl BareLock {
    /// Whether a row was changed.
    fn commit(&self, statement: &str) -> bool {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
        let changed = transaction.prepare_cached(statement).expect("prepared").execute([&self.1]).expect("done");
        transaction.commit().expect("committed");
        changed == 1
    }
}

impl Lock for BareLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            while !self.commit("INSERT OR IGNORE INTO entry VALUES (?1, datetime())") {
                Timer::on_callers_runtime(Clock::boot()).sleep(POLL).await;
            }
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            assert!(self.commit("DELETE FROM entry WHERE name = ?1"));
            // It never waits for anything: others have their turn nevertheless.
            tokio::task::yield_now().await;
        })
    }
}
