//! The layout of Spring Integration, beside a client that sends what Spring sends.

#[macro_use]
#[path = "../database/spring.rs"]
mod cases;

use std::time::Duration;

use leasehold::backend::postgres::{Layout, Postgres, Spring};
use leasehold_testbed::postgres::Server;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::{TTL, connect, hand_over, held_and_awaited, timer, until_waiting};

use cases::{Database, Session, Version};

struct Shop(Server);

impl Database for Shop {
    type Session = Client;

    const ENTRY: &'static str = "leasehold_spring.entry";

    const LEASE_END: &'static str = "expires_at AT TIME ZONE 'UTC'";
    const OVER: &'static str = "expires_at = clock_timestamp()";
    const LONGER: &'static str = "expires_at = expires_at + interval '20 seconds'";
    const DYING: &'static str = "INSERT INTO leasehold_spring.entry (namespace, name, ticket, slot, entry, client, hears, weight, \
        capacity, holds, owner, host, pid, entered_at, expires_at) VALUES ('lock', 'k', 1, 0, \
        '\\x0123456789abcdef0123456789abcdef', 'nobody', true, 4294967296, 4294967296, false, '', '', 0, clock_timestamp(), \
        clock_timestamp() + interval '1 second')";
    const RENEW: &'static str =
        "SELECT leasehold_spring.renew_rows(ARRAY(SELECT entry FROM leasehold_spring.entry), ARRAY[90000000])";
    const SWEEP: &'static str = "SELECT leasehold_spring.sweep()";
    const ALTER: &'static str = "ALTER TABLE INT_LOCK ADD EXPIRED_AFTER TIMESTAMP NOT NULL DEFAULT '2000-01-01'";
    const COLUMNS: &'static str = "SELECT column_name, data_type, character_maximum_length, is_nullable \
        FROM information_schema.columns WHERE table_name = 'int_lock' ORDER BY ordinal_position";

    fn named(name: &str) -> String {
        format!("schema={name}")
    }

    /// Hours from UTC, so that nobody can mistake local time for it.
    fn start() -> Self {
        Self(Server::builder().setting("timezone", "Asia/Tokyo").start().unwrap())
    }

    fn url(&self) -> String {
        format!("{}?layout=spring", self.0.url())
    }

    fn sql(&self, statement: &str) -> String {
        self.0.sql(statement)
    }

    fn make_table(&self, version: Version) {
        let ends = if version == Version::Seven { "EXPIRED_AFTER TIMESTAMP NOT NULL," } else { "" };
        self.0.sql(&format!(
            "CREATE TABLE INT_LOCK (LOCK_KEY CHAR(36) NOT NULL, REGION VARCHAR(100) NOT NULL, CLIENT_ID CHAR(36), \
             CREATED_DATE TIMESTAMP NOT NULL, {ends} CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY, REGION))"
        ));
    }

    async fn session(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.0.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    fn time(ms: i64) -> String {
        format!("(clock_timestamp() AT TIME ZONE 'UTC' + {ms} * interval '1 millisecond')")
    }

    fn span_ms(from: &str, to: &str) -> String {
        format!("round(extract(epoch FROM {to} - {from}) * 1000)")
    }
}

impl Session for Client {
    async fn begin(&mut self) {
        self.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await.unwrap();
    }

    async fn commit(&mut self) {
        self.batch_execute("COMMIT").await.unwrap();
    }

    async fn update(&mut self, statement: &str) -> Option<u64> {
        match self.execute(statement, &[]).await {
            Ok(rows) => Some(rows),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => None,
            Err(error) => panic!("{error:?}"),
        }
    }
}

tests_on!(Shop);

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_waiters_behind_one_of_springs_only_the_first_looks_often() {
    let shop = Shop(Server::builder().setting("log_statement", "all").start().unwrap());
    let locks = connect(&shop.url()).await;
    shop.sql(&format!(
        "INSERT INTO INT_LOCK VALUES ('{}', 'DEFAULT', 'somebody', {}, {})",
        cases::KEY,
        Shop::time(0),
        Shop::time(600_000)
    ));
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mutex = locks.mutex("k").unwrap();
        waiters.spawn(async move { mutex.lock().await });
    }
    until_waiting(&locks, "k", 20).await.unwrap();
    const SECONDS: usize = 3;
    let before = shop.0.statements();
    timer().sleep(Duration::from_secs(SECONDS as u64)).await;
    let asked = shop.0.statements() - before;
    assert!((5 * SECONDS..18 * SECONDS).contains(&asked), "{asked} statements in {SECONDS} s");
}

/// What the page grants a user by the name of `locks`.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_for_a_dba_and_the_rights_of_the_page_are_all_that_is_needed() {
    let shop = Shop::start();
    shop.sql(&Postgres::schema(None, Layout::Spring(Spring::default())).unwrap());
    shop.sql("CREATE ROLE locks LOGIN");
    let page = include_str!("../../../../docs/wire/sql-spring.md");
    let rights: Vec<&str> =
        page.lines().filter(|line| line.starts_with("GRANT ") && line.contains("TO locks")).collect();
    assert!(!rights.is_empty());
    shop.sql(&rights.join("\n"));
    let url = format!("{}?layout=spring", shop.0.url_of("locks"));
    let (locks, guard, waiter) = held_and_awaited(&url, TTL).await;
    hand_over(guard, waiter).await;
    let findings = locks.checkup().await.unwrap();
    assert!(findings.iter().all(|finding| !finding.to_string().contains("may not")), "{findings:?}");
}
