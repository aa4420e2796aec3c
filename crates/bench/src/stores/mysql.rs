//! MariaDB, which waits for its disk as it does in earnest, beside bare commits of a row.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_core::future::BoxFuture;
use leasehold::clock::{Clock, Timer};
use leasehold_testbed::mysql::Server;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Statement};
use tokio::sync::Mutex;

use super::Store;
use crate::contender::{Contender, Lock, POLL, Rival};
use crate::progress;
use crate::sample::BARE;

/// As many as we use ourselves unless told otherwise.
const CONNECTIONS: usize = 10;

const DEADLOCK: u16 = 1213;

pub(super) struct Mysql(Server);

impl Mysql {
    pub(super) fn start() -> Self {
        let server = Server::builder().durable(true).setting("max_connections", "1000").start();
        let server = server.expect("a server of our own");
        server.sql("CREATE TABLE bare (id VARBINARY(600) PRIMARY KEY, at DATETIME(6) NOT NULL)");
        Self(server)
    }
}

impl Store for Mysql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn server(&self) -> String {
        format!("{}, on disk", self.0.sql("SELECT version()"))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn bare(&self) -> BoxFuture<'_, Rival> {
        let url = self.0.url();
        Box::pin(Rival::here(BARE, move || {
            let url = url.clone();
            Box::pin(async move { Bare::connect(&url).await })
        }))
    }

    fn peers(&self) -> BoxFuture<'_, Vec<Rival>> {
        Box::pin(async { Vec::new() })
    }

    /// What was deleted is taken out of the tables in the background.
    fn rest(&self) {
        const LEFT_MAX: u32 = 1000;
        let left = || self.0.sql("SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'");
        let is_done = || {
            left()
                .split_whitespace()
                .last()
                .and_then(|count| count.parse().ok())
                .is_none_or(|left: u32| left < LEFT_MAX)
        };
        if let Err(late) = leasehold_testbed::until("deleted rows are gone", is_done) {
            progress::say(&format!("mysql: {late}"));
        }
    }

    /// Statements that clients have sent, without those within a procedure.
    fn requests(&self) -> Option<u64> {
        self.0.sql("SHOW GLOBAL STATUS LIKE 'Questions'").split_whitespace().last()?.parse().ok()
    }
}

struct Bare {
    connections: Vec<Arc<Prepared>>,
    next: AtomicUsize,
}

struct Prepared {
    connection: Mutex<Conn>,
    take: Statement,
    give: Statement,
}

struct BareLock(Arc<Prepared>, String);

impl Bare {
    async fn connect(url: &str) -> Self {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = Conn::new(Opts::from_url(url).expect("a URL")).await.expect("bare connects");
            let take = "INSERT IGNORE INTO bare VALUES (?, UTC_TIMESTAMP(6))";
            let take = connection.prep(take).await.expect("prepared");
            let give = connection.prep("DELETE FROM bare WHERE id = ?").await.expect("prepared");
            connections.push(Arc::new(Prepared { connection: Mutex::new(connection), take, give }));
        }
        Self { connections, next: AtomicUsize::new(0) }
    }
}

impl Contender for Bare {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        let nth = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        Box::new(BareLock(self.connections[nth].clone(), key.to_owned()))
    }
}

impl BareLock {
    /// Whether a row was changed. The server undoes one of two statements that wait for each other.
    async fn commit(&self, statement: &Statement) -> bool {
        let mut connection = self.0.connection.lock().await;
        loop {
            match connection.exec_drop(statement, (&self.1,)).await {
                Err(mysql_async::Error::Server(complaint)) if complaint.code == DEADLOCK => {}
                committed => {
                    committed.expect("committed");
                    return connection.affected_rows() == 1;
                }
            }
        }
    }
}

impl Lock for BareLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            while !self.commit(&self.0.take).await {
                Timer::on_callers_runtime(Clock::boot()).sleep(POLL).await;
            }
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async { assert!(self.commit(&self.0.give).await, "it was held") })
    }
}
