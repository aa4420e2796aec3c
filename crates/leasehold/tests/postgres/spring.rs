//! The layout of Spring Integration, beside a client that sends what Spring sends.

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
    let renew = "SELECT leasehold_spring.renew_rows(ARRAY(SELECT entry FROM leasehold_spring.entry), ARRAY[90000000])";
    cases::a_renewal_that_finds_no_row_leaves_the_lease_as_it_was::<Shop>(renew).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_client_of_ours_held_is_swept_out_with_its_row() {
    let (expired, sweep) = ("expires_at = clock_timestamp()", "SELECT leasehold_spring.sweep()");
    cases::what_a_dead_client_of_ours_held_is_swept_out_with_its_row::<Shop>(expired, sweep).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_of_another_kind_can_be_evicted_whatever_it_calls_itself() {
    cases::a_holder_of_another_kind_can_be_evicted_whatever_it_calls_itself::<Shop>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_meets_a_hand_over_leaves_no_row_that_ends_before_its_lease() {
    let longer = "expires_at = expires_at + interval '20 seconds'";
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
    let dead = "INSERT INTO leasehold_spring.entry (namespace, name, ticket, entry, client, hears, weight, capacity, holds, owner, \
         host, pid, entered_at, expires_at) VALUES ('lock', 'k', 1, '\\x0123456789abcdef0123456789abcdef', 'nobody', true, \
         4294967296, 4294967296, false, '', '', 0, clock_timestamp(), clock_timestamp() + interval '1 second')";
    cases::those_behind_one_that_died_while_spring_has_the_lock_do_not_wait_for_it::<Shop>(dead).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_altered_for_spring_7_is_written_as_such_from_then_on() {
    let alter = "ALTER TABLE INT_LOCK ADD EXPIRED_AFTER TIMESTAMP NOT NULL DEFAULT '2000-01-01'";
    cases::a_table_that_is_altered_for_spring_7_is_written_as_such_from_then_on::<Shop>(alter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_layout_or_region_are_refused_and_left_alone() {
    let name = |schema: &str| format!("schema={schema}");
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
    let columns = "SELECT column_name, data_type, character_maximum_length, is_nullable FROM information_schema.columns \
        WHERE table_name = 'int_lock' ORDER BY ordinal_position";
    let made = shop.sql(columns);
    shop.sql("DROP TABLE INT_LOCK");
    shop.make_table(Version::Seven);
    assert_eq!(made, shop.sql(columns));
}

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
