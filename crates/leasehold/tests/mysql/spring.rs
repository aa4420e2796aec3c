//! The layout of Spring Integration, beside a client that sends what Spring sends.

#[macro_use]
#[path = "../database/spring.rs"]
mod cases;

use leasehold::backend::mysql::{Layout, MySql, Spring};
use leasehold_testbed::mysql::Server;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};

use crate::{TTL, hand_over, held_and_awaited};

use cases::{Database, Session, Version};

struct Shop(Server);

impl Database for Shop {
    type Session = Conn;

    const ENTRY: &'static str = "leasehold_spring_entry";

    const LEASE_END: &'static str = "expires_at";
    const OVER: &'static str = "expires_at = UTC_TIMESTAMP(6)";
    const LONGER: &'static str = "expires_at = DATE_ADD(expires_at, INTERVAL 20 SECOND)";
    const DYING: &'static str = "INSERT INTO leasehold_spring_entry (namespace, name, slot, entry, weight, capacity, holds, \
        owner, host, pid, entered_at, expires_at, row_key, row_owner) VALUES ('lock', 'k', 0, \
        x'0123456789abcdef0123456789abcdef', 4294967296, 4294967296, FALSE, '', '', 0, UTC_TIMESTAMP(6), \
        DATE_ADD(UTC_TIMESTAMP(6), INTERVAL 1 SECOND), '', '')";
    const RENEW: &'static str = "CALL leasehold_spring_renew_rows((SELECT CONCAT('x', QUOTE(HEX(entry))) FROM leasehold_spring_entry), 90000000)";
    const SWEEP: &'static str = "CALL leasehold_spring_sweep()";
    const ALTER: &'static str = "ALTER TABLE INT_LOCK ADD EXPIRED_AFTER DATETIME(6) NOT NULL DEFAULT '2000-01-01'";
    const COLUMNS: &'static str = "SHOW COLUMNS FROM INT_LOCK";

    fn named(name: &str) -> String {
        format!("prefix={name}_")
    }

    /// Hours from UTC, so that nobody can mistake local time for it; and its texts compare in a way that is not the default.
    fn start() -> Self {
        let server =
            Server::builder().setting("default-time-zone", "+09:00").setting("character-set-server", "utf8mb4");
        Self(server.setting("collation-server", "utf8mb4_unicode_ci").start().unwrap())
    }

    fn url(&self) -> String {
        format!("{}?layout=spring", self.0.url())
    }

    fn sql(&self, statement: &str) -> String {
        self.0.sql(statement)
    }

    fn make_table(&self, version: Version) {
        let ends = if version == Version::Seven { "EXPIRED_AFTER DATETIME(6) NOT NULL," } else { "" };
        self.0.sql(&format!(
            "CREATE TABLE INT_LOCK (LOCK_KEY CHAR(36) NOT NULL, REGION VARCHAR(100) NOT NULL, CLIENT_ID CHAR(36), \
             CREATED_DATE DATETIME(6) NOT NULL, {ends} CONSTRAINT INT_LOCK_PK PRIMARY KEY (LOCK_KEY, REGION)) ENGINE=InnoDB"
        ));
    }

    async fn session(&self) -> Conn {
        Conn::from_url(self.0.url()).await.unwrap()
    }

    fn time(ms: i64) -> String {
        format!("DATE_ADD(UTC_TIMESTAMP(6), INTERVAL {} MICROSECOND)", ms * 1000)
    }

    fn span_ms(from: &str, to: &str) -> String {
        format!("ROUND(TIMESTAMPDIFF(MICROSECOND, {from}, {to}) / 1000)")
    }
}

impl Session for Conn {
    async fn begin(&mut self) {
        self.query_drop("SET TRANSACTION ISOLATION LEVEL READ COMMITTED").await.unwrap();
        self.query_drop("START TRANSACTION").await.unwrap();
    }

    async fn commit(&mut self) {
        self.query_drop("COMMIT").await.unwrap();
    }

    async fn update(&mut self, statement: &str) -> Option<u64> {
        // A row that is there, and a deadlock: Spring takes both for "not now".
        const REFUSALS: [u16; 2] = [1062, 1213];
        match self.query_drop(statement).await {
            Ok(()) => Some(self.affected_rows()),
            Err(Error::Server(complaint)) if REFUSALS.contains(&complaint.code) => None,
            Err(error) => panic!("{error:?}"),
        }
    }
}

tests_on!(Shop);

/// What the page grants a user by the name of `app`.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_for_a_dba_and_the_rights_of_the_page_are_all_that_is_needed() {
    let shop = Shop::start();
    shop.sql(&MySql::schema(None, Layout::Spring(Spring::default())).unwrap());
    shop.sql("CREATE USER app@'127.0.0.1'");
    let page = include_str!("../../../../docs/wire/sql-spring.md");
    let rights: Vec<&str> =
        page.lines().filter(|line| line.starts_with("GRANT ") && line.contains("TO app@")).collect();
    assert!(!rights.is_empty());
    shop.sql(&rights.join("\n"));
    let url = format!("{}?layout=spring", shop.0.url_of("app"));
    let (_locks, guard, waiter) = held_and_awaited(&url, TTL).await;
    hand_over(guard, waiter).await;
}
