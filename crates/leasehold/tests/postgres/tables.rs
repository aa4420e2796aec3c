//! The tables: how they come to be, and that they stay small.

use std::time::Duration;

use leasehold::backend::postgres::{Layout, Postgres};
use leasehold::{ErrorKind, Locks};
use leasehold_testbed::postgres::Server;

use crate::{TTL, connect, hand_over, held_and_awaited, soon, timer};

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_many_clients_make_at_once_are_made_once() {
    let server = Server::start().unwrap();
    let url = format!("{}?schema=locks_2", server.url());
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let url = url.clone();
        clients.spawn(async move { connect(&url).await });
    }
    let clients = soon("they connect", clients.join_all()).await;
    let guard = clients[0].mutex("k").unwrap().lock().await.unwrap();
    assert!(clients[9].mutex("k").unwrap().try_lock().await.unwrap().is_none());
    assert_eq!(server.sql("SELECT version FROM locks_2.store"), "2");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_another_program_are_refused_and_left_alone() {
    let server = Server::start().unwrap();
    drop(connect(&server.url()).await);
    for (version, said) in [(3, "newer program"), (1, "never released")] {
        server.sql(&format!("UPDATE leasehold.store SET version = {version}"));
        let refused = Locks::builder(&server.url()).connect().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable);
        assert!(refused.to_string().contains(&format!("layout {version}")), "{refused}");
        assert!(refused.to_string().contains(said), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_for_a_dba_is_all_that_is_needed() {
    let server = Server::start().unwrap();
    server.sql(&Postgres::schema(None, Layout::Canonical).unwrap());
    let (_locks, guard, waiter) = held_and_awaited(&server.url(), TTL).await;
    assert_eq!(server.sql("SELECT name, holds FROM leasehold.line"), "k|t\nk|f");
    hand_over(guard, waiter).await;
    assert_eq!(server.sql("SELECT count(*) FROM leasehold.entry"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_comes_back_for_is_swept_out() {
    let server = Server::start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(Duration::from_secs(2)).connect().await.unwrap();
    std::mem::forget(locks.mutex("k").unwrap().lock().await.unwrap());
    server.sql("UPDATE leasehold.entry SET expires_at = clock_timestamp()");
    server.sql("INSERT INTO leasehold.watcher VALUES ('lock', 'k', 'gone', clock_timestamp())");
    server.sql("UPDATE leasehold.store SET swept_at = '-infinity'");
    soon("it is swept out", async {
        while server.sql("SELECT (SELECT count(*) FROM leasehold.entry) + (SELECT count(*) FROM leasehold.watcher)")
            != "0"
        {
            timer().sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_among_a_hundred_thousand_others_is_found_by_an_index() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    server.sql(
        "INSERT INTO leasehold.entry SELECT 'lock', ('key-' || n)::bytea, 0, nextval('leasehold.ticket'), \
         decode(lpad(to_hex(n), 32, '0'), 'hex'), 'x', false, 4294967296, 4294967296, true, false, 'o', 'h', 1, NULL, \
         clock_timestamp(), clock_timestamp() + interval '1 hour' FROM generate_series(1, 100000) AS n; ANALYZE leasehold.entry",
    );
    server.sql("SELECT pg_stat_reset()");
    for _ in 0..100 {
        locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
        assert!(locks.mutex("key-777").unwrap().try_lock().await.unwrap().is_none());
    }
    timer().sleep(Duration::from_secs(2)).await; // statistics lag by a second
    let read =
        server.sql("SELECT seq_tup_read FROM pg_stat_all_tables WHERE schemaname = 'leasehold' AND relname = 'entry'");
    assert_eq!(read, "0", "rows were read one by one");
    assert_eq!(soon("all are listed", locks.inspect_all()).await.unwrap().len(), 100_000);
}
