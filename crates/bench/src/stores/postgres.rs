//! PostgreSQL, which waits for its disk as it does in earnest, beside bare commits of a row, and beside somebody who looks
//! every 100 ms, as Spring's lock registry does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use leasehold::clock::{Clock, Timer};
use leasehold_testbed::postgres::Server;
use tokio_postgres::{Client, NoTls, Statement};

use super::Store;
use crate::contender::{Contender, Lock, POLL, Rival};
use crate::sample::BARE;

/// As many as we use ourselves unless told otherwise.
const CONNECTIONS: usize = 10;

const SPRINGS_POLL: Duration = Duration::from_millis(100);

pub(super) struct Postgres(Server);

impl Postgres {
    pub(super) fn start() -> Self {
        let server = Server::builder().durable(true).setting("max_connections", "1000");
        let server = server.setting("shared_preload_libraries", "pg_stat_statements").start();
        let server = server.expect("a server of our own");
        server.sql("CREATE EXTENSION pg_stat_statements");
        server.sql("CREATE TABLE bare (id text PRIMARY KEY, at timestamptz NOT NULL)");
        Self(server)
    }

    fn polling(&self, name: &'static str, poll: Duration) -> BoxFuture<'_, Rival> {
        let url = self.0.url();
        Box::pin(Rival::here(name, move || {
            let url = url.clone();
            Box::pin(async move { Bare::connect(&url, name, poll).await })
        }))
    }
}

impl Store for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn server(&self) -> String {
        format!("PostgreSQL {}, on disk", self.0.sql("SHOW server_version"))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn bare(&self) -> BoxFuture<'_, Rival> {
        self.polling(BARE, POLL)
    }

    fn peers(&self) -> BoxFuture<'_, Vec<Rival>> {
        Box::pin(async { vec![self.polling("100 ms poller", SPRINGS_POLL).await] })
    }

    fn rest(&self) {
        self.0.sql("VACUUM ANALYZE");
        self.0.sql("CHECKPOINT");
    }

    /// Statements that clients have sent, without those within a function. The server's own statistics lag by seconds.
    fn requests(&self) -> Option<u64> {
        self.0.sql("SELECT sum(calls)::bigint FROM pg_stat_statements").parse().ok()
    }
}

struct Bare {
    connections: Vec<Arc<Prepared>>,
    name: &'static str,
    poll: Duration,
    next: AtomicUsize,
}

struct Prepared {
    client: Client,
    take: Statement,
    give: Statement,
}

struct BareLock {
    connection: Arc<Prepared>,
    key: String,
    poll: Duration,
}

impl Bare {
    async fn connect(url: &str, name: &'static str, poll: Duration) -> Self {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("bare connects");
            tokio::spawn(connection);
            let take = "INSERT INTO bare VALUES ($1, now()) ON CONFLICT DO NOTHING";
            let take = client.prepare(take).await.expect("prepared");
            let give = client.prepare("DELETE FROM bare WHERE id = $1").await.expect("prepared");
            connections.push(Arc::new(Prepared { client, take, give }));
        }
        Self { connections, name, poll, next: AtomicUsize::new(0) }
    }
}

impl Contender for Bare {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        let nth = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let connection = self.connections[nth].clone();
        Box::new(BareLock { connection, key: format!("{}:{key}", self.name), poll: self.poll })
    }
}

impl Lock for BareLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Prepared { client, take, .. } = &*self.connection;
            while client.execute(take, &[&self.key]).await.expect("committed") == 0 {
                Timer::on_callers_runtime(Clock::boot()).sleep(self.poll).await;
            }
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Prepared { client, give, .. } = &*self.connection;
            assert_eq!(client.execute(give, &[&self.key]).await.expect("committed"), 1, "it was held");
        })
    }
}
