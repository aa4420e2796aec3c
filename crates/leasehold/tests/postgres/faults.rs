//! What goes wrong with a server, each on a server of its own.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::postgres::Postgres;
use leasehold::backend::{Backend, EntryId, Note, Patience, Place, Request, Standing, Terms};
use leasehold::clock::Clock;
use leasehold::{Claim, ErrorKind, Key, Locks, Loss, Namespace};
use leasehold_testbed::postgres::Server;
use tokio::task::JoinSet;

use crate::{TTL, connect, hand_over, held_and_awaited, soon, timer};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_and_comes_back_forgets_neither_holder_nor_waiter_nor_token() {
    let server = Server::start().unwrap();
    let (_locks, guard, waiter) = held_and_awaited(&server.url(), Duration::from_secs(20)).await;
    server.restart().unwrap();
    guard.check().unwrap();
    assert_eq!(server.sql("SELECT count(*) FILTER (WHERE holds), count(*) FROM leasehold.entry"), "1|2");
    hand_over(guard, waiter).await;
}

/// Sessions are ended while somebody holds and somebody waits, and the connections they leave are replaced.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_the_server_ends_cost_nobody_a_lock_or_a_place() {
    let server = Server::start().unwrap();
    let (locks, guard, waiter) = held_and_awaited(&server.url(), TTL).await;
    for _ in 0..3 {
        end_sessions(&server);
        let view = soon("looking again", locks.inspect("k")).await.unwrap().unwrap();
        assert_eq!((view.holders[0].token, view.waiters.unwrap().len()), (Some(guard.token()), 1));
        guard.check().unwrap();
    }
    hand_over(guard, waiter).await;
}

/// Whatever the tasks are doing at that moment: connecting, entering, waiting, leaving.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_ended_at_any_moment_leave_no_two_holders_and_no_entry() {
    let server = Server::start().unwrap();
    // What becomes of an entry whose answer was lost is certain once its lease is over, and not before.
    let client = async || Locks::builder(&server.url()).ttl(Duration::from_secs(5)).connect().await.unwrap();
    let clients = [client().await, client().await];
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for nth in 0..8 {
        let (mutex, inside) = (clients[nth % 2].mutex("k").unwrap(), inside.clone());
        tasks.spawn(async move {
            let mut turns = 0;
            while turns < 20 {
                let Ok(guard) = mutex.lock().await else { continue };
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two hold it");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                drop(guard);
                turns += 1;
            }
        });
    }
    let ending = async {
        loop {
            end_sessions(&server);
            timer().sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        _ = soon("all have had their turns", tasks.join_all()) => {}
        () = ending => {}
    }
    for locks in &clients {
        soon("everything has left", locks.close()).await;
    }
    assert_eq!(server.sql("SELECT count(*) FROM leasehold.entry"), "0");
}

fn end_sessions(server: &Server) {
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'");
}

#[tokio::test(flavor = "multi_thread")]
async fn futures_dropped_at_random_leave_no_row_and_no_broken_connection() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let mut tasks = JoinSet::new();
    for nth in 0..200u64 {
        let mutex = locks.mutex(format!("k{}", nth % 5)).unwrap();
        tasks.spawn(async move {
            let patience = Duration::from_micros(nth * 97 % 9_000);
            drop(timer().within(patience, mutex.lock()).await);
        });
    }
    soon("all have given up", tasks.join_all()).await;
    let mutex = locks.mutex("k1").unwrap();
    soon("it can be had", mutex.lock()).await.unwrap().release().await.unwrap();
    soon("everything has left", locks.close()).await;
    assert_eq!(server.sql("SELECT count(*) FROM leasehold.entry"), "0");
    assert_eq!(server.sql("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'"), "0");
}

/// The server needs three seconds for all of them, and is believed to be there for one without a word.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_goes_on_answering_is_not_cut_for_those_who_stand_far_back() {
    let server = Server::start().unwrap();
    let store = Postgres::builder(&server.url()).unwrap().connections(1).unwrap().patience(Duration::from_secs(1));
    let store = Arc::new(store.connect().await.unwrap());
    server.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.03); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE INSERT ON leasehold.entry FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let mut entering = JoinSet::new();
    for nth in 0..100 {
        let store = store.clone();
        let key = Key::new(&Namespace::default(), format!("k{nth}")).unwrap();
        let (place, terms) = (Place { key, entry: EntryId(nth) }, Terms { holding: TTL, waiting: TTL });
        let (claim, patience, note) = (Claim::Exclusive, Patience::Queue, Note::default());
        let request = Request { place, claim, patience, terms, note, returns: false };
        entering.spawn(async move { store.enter(&request).await });
    }
    for entered in entering.join_all().await {
        assert!(matches!(entered, Ok(Standing::Holding { .. })), "{entered:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_the_server_gives_up_is_an_error_of_the_store_and_never_busy() {
    let server = Server::builder().setting("statement_timeout", "300ms").start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(Duration::from_secs(2)).connect().await.unwrap();
    let lock = "SELECT pg_advisory_lock(hashtextextended('lock/' || encode('k', 'hex'), 1281583153))";
    let holding = std::thread::spawn({
        let statement = format!("SET statement_timeout = 0; {lock}; SELECT pg_sleep(6)");
        let (url, psql) = (server.url(), "psql");
        move || std::process::Command::new(psql).args([&url, "-X", "-q", "-c", &statement]).output().unwrap()
    });
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    soon("somebody keeps the line locked", async {
        while server.sql(held) == "0" {
            timer().sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused:?}");
    locks.mutex("other").unwrap().try_lock().await.unwrap().expect("it is nobody's").release().await.unwrap();
    holding.join().unwrap();
    locks.mutex("k").unwrap().try_lock().await.unwrap().expect("it is free").release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clock_is_hours_away_serves_as_any_other_and_one_that_leaps_ends_leases_early() {
    let server = Server::builder().own_clock().start().unwrap();
    server.set_clock_ahead(-7_200);
    let ttl = Duration::from_secs(3);
    let (_locks, guard, waiter) = held_and_awaited(&server.url(), ttl).await;
    let started = Clock::boot().now();
    while started.until(Clock::boot().now()) < ttl * 2 {
        guard.check().unwrap();
        timer().sleep(Duration::from_millis(50)).await;
    }
    assert!(!waiter.is_finished());
    let token = guard.token();
    server.set_clock_ahead(7_200);
    soon("the loss", guard.lost()).await;
    // Whose own place was forgotten too.
    assert!(soon("the next", waiter).await.unwrap().token() > token);
}

/// Nobody has looked at the line since, so that the renewal itself must see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_bring_back_a_lease_that_is_over() {
    let server = Server::start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(Duration::from_secs(3)).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    server.sql("UPDATE leasehold.entry SET expires_at = clock_timestamp() - interval '1 second'");
    assert_eq!(soon("the next renewal", guard.lost()).await, Loss::Gone);
}

/// The server writes what it would write by itself only every ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_holder_was_told_is_on_disk_though_the_server_does_not_wait_for_that_by_itself() {
    let server =
        Server::builder().setting("synchronous_commit", "off").setting("wal_writer_delay", "10s").start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(Duration::from_secs(2)).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let ends = || server.sql("SELECT expires_at FROM leasehold.entry");
    let unwritten = || server.sql("SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()");
    assert_eq!(unwritten(), "0", "the grant");
    for _ in 0..3 {
        let before = ends();
        soon("it is renewed", async { while ends() == before {} }).await;
        assert_eq!(unwritten(), "0", "a renewal");
    }
    guard.release().await.unwrap();
}
