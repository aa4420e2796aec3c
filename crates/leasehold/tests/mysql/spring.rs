//! The layout of Spring Integration, beside a client that sends what Spring sends.

#[path = "../database/spring.rs"]
mod cases;

use leasehold::backend::mysql::{Layout, MySql, Spring};
use leasehold_testbed::mysql::Server;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};

use crate::{TTL, connect, hand_over, held_and_awaited};

use cases::{Database, Session, Version};

struct Shop(Server);

impl Database for Shop {
    type Session = Conn;

    const ENTRY: &'static str = "leasehold_spring_entry";

    const LEASE_END: &'static str = "expires_at";

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

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_ours_has_the_row_that_spring_6_looks_for() {
    cases::a_holder_of_ours_has_the_row_that_spring_looks_for::<Shop>(Version::Six).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_ours_has_the_row_that_spring_7_looks_for() {
    cases::a_holder_of_ours_has_the_row_that_spring_looks_for::<Shop>(Version::Seven).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ours_and_those_of_spring_6_exclude_each_other_under_contention() {
    cases::ours_and_springs_exclude_each_other_under_contention::<Shop>(Version::Six).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ours_and_those_of_spring_7_exclude_each_other_under_contention() {
    cases::ours_and_springs_exclude_each_other_under_contention::<Shop>(Version::Seven).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_row_of_spring_6_is_shown_and_never_touched() {
    cases::a_live_row_of_theirs_is_shown_and_never_touched::<Shop>(Version::Six).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_row_of_spring_7_is_shown_and_never_touched() {
    cases::a_live_row_of_theirs_is_shown_and_never_touched::<Shop>(Version::Seven).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_of_ours_gets_in_soon_after_they_leave_without_a_word() {
    cases::a_waiter_of_ours_gets_in_soon_after_they_leave_without_a_word::<Shop>(Version::Six).await;
    cases::a_waiter_of_ours_gets_in_soon_after_they_leave_without_a_word::<Shop>(Version::Seven).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_becomes_the_first_of_ours_looks_as_often_as_the_first_did() {
    cases::whoever_becomes_the_first_of_ours_looks_as_often_as_the_first_did::<Shop>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_theirs_that_has_ended_is_taken_over() {
    cases::a_row_of_theirs_that_has_ended_is_taken_over::<Shop>(Version::Six).await;
    cases::a_row_of_theirs_that_has_ended_is_taken_over::<Shop>(Version::Seven).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_spring_6_took_over_is_a_loss_at_the_next_renewal_and_not_taken_back() {
    cases::a_row_that_they_took_over_is_a_loss_at_the_next_renewal_and_not_taken_back::<Shop>(Version::Six).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_spring_7_took_over_is_a_loss_at_the_next_renewal_and_not_taken_back() {
    cases::a_row_that_they_took_over_is_a_loss_at_the_next_renewal_and_not_taken_back::<Shop>(Version::Seven).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_deleted_is_a_loss_and_not_made_anew() {
    cases::a_row_that_somebody_deleted_is_a_loss_and_not_made_anew::<Shop>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_finds_no_row_leaves_the_lease_as_it_was() {
    let renew = "CALL leasehold_spring_renew_rows((SELECT CONCAT('x''', HEX(entry), '''') FROM leasehold_spring_entry), 90000000)";
    cases::a_renewal_that_finds_no_row_leaves_the_lease_as_it_was::<Shop>(renew).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_client_of_ours_held_is_swept_out_with_its_row() {
    let (expired, sweep) = ("expires_at = UTC_TIMESTAMP(6)", "CALL leasehold_spring_sweep()");
    cases::what_a_dead_client_of_ours_held_is_swept_out_with_its_row::<Shop>(expired, sweep).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_another_kind_can_be_evicted_whatever_it_calls_itself() {
    cases::a_holder_of_another_kind_can_be_evicted_whatever_it_calls_itself::<Shop>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_meets_a_hand_over_leaves_no_row_that_ends_before_its_lease() {
    let longer = "expires_at = DATE_ADD(expires_at, INTERVAL 20 SECOND)";
    for version in [Version::Six, Version::Seven] {
        cases::a_renewal_that_meets_a_hand_over_leaves_no_row_that_ends_before_its_lease::<Shop>(version, longer).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_of_ours_takes_the_place_of_a_holder_that_does_not_know_yet_that_its_row_is_gone() {
    cases::nobody_of_ours_takes_the_place_of_a_holder_that_does_not_know_yet_that_its_row_is_gone::<Shop>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_behind_one_that_died_while_spring_has_the_lock_do_not_wait_for_it() {
    let dead = "INSERT INTO leasehold_spring_entry (namespace, name, ticket, entry, weight, capacity, holds, owner, host, pid, \
         entered_at, expires_at, row_key, row_owner) VALUES ('lock', 'k', 1, x'0123456789abcdef0123456789abcdef', 4294967296, \
         4294967296, FALSE, '', '', 0, UTC_TIMESTAMP(6), DATE_ADD(UTC_TIMESTAMP(6), INTERVAL 1 SECOND), '', '')";
    cases::those_behind_one_that_died_while_spring_has_the_lock_do_not_wait_for_it::<Shop>(dead).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_altered_for_spring_7_is_written_as_such_from_then_on() {
    let alter = "ALTER TABLE INT_LOCK ADD EXPIRED_AFTER DATETIME(6) NOT NULL DEFAULT '2000-01-01'";
    cases::a_table_that_is_altered_for_spring_7_is_written_as_such_from_then_on::<Shop>(alter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_layout_or_region_are_refused_and_left_alone() {
    let name = |prefix: &str| format!("prefix={prefix}_");
    cases::tables_of_another_layout_or_region_are_refused_and_left_alone::<Shop>(name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_says_which_table_and_which_version() {
    cases::the_doctor_says_which_table_and_which_version::<Shop>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_that_we_make_is_that_of_spring_7() {
    let shop = Shop::start();
    drop(connect(&shop.url()).await);
    let columns = "SHOW COLUMNS FROM INT_LOCK";
    let made = shop.sql(columns);
    shop.sql("DROP TABLE INT_LOCK");
    shop.make_table(Version::Seven);
    assert_eq!(made, shop.sql(columns));
}

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
