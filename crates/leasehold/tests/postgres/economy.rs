//! What locks cost the server.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Locks;
use leasehold_testbed::postgres::Server;
use leasehold_testbed::until;
use tokio::task::JoinSet;

use crate::{connect, soon, timer, until_waiting};

/// A server that writes down what it is asked.
fn server() -> Server {
    Server::builder().setting("log_statement", "all").start().unwrap()
}

/// Each statement commits by itself.
#[tokio::test(flavor = "multi_thread")]
async fn taking_a_lock_and_giving_it_back_are_two_statements() {
    const PAIRS: usize = 500;
    let server = server();
    let locks = connect(&server.url()).await;
    let mutex = locks.mutex("k").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let before = server.statements();
    for _ in 0..PAIRS {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let asked = server.statements() - before;
    // And whatever the client asks now and then.
    assert!((2 * PAIRS..2 * PAIRS + 20).contains(&asked), "{asked} statements for {PAIRS} pairs");
}

/// The first of each kind on each connection is read, and so is whatever comes once.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_reads_what_it_is_asked_again_and_again_once_for_each_connection() {
    const PAIRS: usize = 100;
    let server = server();
    let locks = connect(&server.url()).await;
    let mutex = locks.mutex("k").unwrap();
    for _ in 0..PAIRS {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let by_name = server.statements_by_name();
    assert!(by_name > 2 * PAIRS - 20, "{by_name} of {} statements", 2 * PAIRS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_waiters_cost_less_than_ten_statements_a_second_while_nothing_moves() {
    const SECONDS: usize = 8;
    let server = server();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Locks::builder(&server.url()).ttl(Duration::from_secs(120)).connect().await.unwrap());
    }
    let _guard = clients[0].mutex("k").unwrap().lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for nth in 0..1000 {
        let mutex = clients[nth % 4].mutex("k").unwrap();
        waiters.spawn(async move { mutex.lock().await });
    }
    until_waiting(&clients[0], "k", 1000).await.unwrap();
    let before = server.statements();
    timer().sleep(Duration::from_secs(SECONDS as u64)).await;
    let asked = server.statements() - before;
    assert!(asked <= 10 * SECONDS, "{asked} statements in {SECONDS} s");
}

/// Whether they come at once or one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_joins_one_line_is_in_nobody_elses_way() {
    for first in [0, 99] {
        crowd_behind(first).await;
    }
}

/// Whoever comes behind that one comes when it waits.
async fn crowd_behind(first: usize) {
    let server = Arc::new(Server::start().unwrap());
    let locks = connect(&server.url()).await;
    let held = locks.mutex("held").unwrap().lock().await.unwrap();
    // Nobody gets into that line while somebody sleeps in it.
    let sleeper = std::thread::spawn({
        let server = server.clone();
        move || server.try_sql("SELECT leasehold.lock_line('lock', 'closed'), pg_sleep(60)")
    });
    let waiting_for = |event: &str| {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event = '{event}'");
        server.sql(&count).parse::<usize>().unwrap()
    };
    until("somebody sleeps", || waiting_for("PgSleep") == 1).unwrap();
    let mut joining = JoinSet::new();
    for nth in 0..100 {
        let mutex = locks.mutex("closed").unwrap();
        joining.spawn(async move { mutex.lock().await });
        if nth == first {
            until("the first waits for the line", || waiting_for("advisory") > 0).unwrap();
        }
    }
    until("they wait for the line", || waiting_for("advisory") > 0).unwrap();
    soon("a release", held.release()).await.unwrap();
    for _ in 0..20 {
        let another = async { locks.mutex("another").unwrap().lock().await.unwrap().release().await.unwrap() };
        soon("another lock", another).await;
    }
    assert_eq!(waiting_for("advisory"), 1, "they keep one connection");
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    assert!(sleeper.join().unwrap().is_err());
    soon("the first of them", joining.join_next()).await.unwrap().unwrap().unwrap();
}

/// Reading the line would take the longer, the longer it is, and nobody else could join meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_joins_a_long_line_reads_little_of_it() {
    const JOINS: u64 = 100;
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    server.sql(
        "INSERT INTO leasehold.entry SELECT 'lock', 'k', n, nextval('leasehold.ticket'), decode(lpad(to_hex(n), 32, '0'), 'hex'), \
         'x', false, 4294967296, 4294967296, n = 0, false, 'o', 'h', 1, NULL, clock_timestamp(), \
         clock_timestamp() + interval '1 hour' FROM generate_series(0, 5000) AS n; ANALYZE leasehold.entry",
    );
    server.sql("SELECT pg_stat_reset()");
    let mut waiters = JoinSet::new();
    for nth in 1..=JOINS {
        let mutex = locks.mutex("k").unwrap();
        waiters.spawn(async move { mutex.lock().await });
        let joined = "SELECT count(*) FROM leasehold.entry WHERE client <> 'x'";
        soon("it is in line", async { while server.sql(joined) != nth.to_string() {} }).await;
    }
    // A session says what it has done when it ends.
    server.sql(
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = 'leasehold'",
    );
    let read = "SELECT idx_tup_fetch FROM pg_stat_all_tables WHERE schemaname = 'leasehold' AND relname = 'entry'";
    let read: u64 = server.sql(read).parse().unwrap();
    assert!(read < JOINS * 1000, "{read} rows were read for {JOINS} entries");
}

/// The first of them has been there since long before all others came.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_among_many_holders_is_noticed_by_the_next() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    server.sql(
        "INSERT INTO leasehold.entry SELECT 'lock', 'k', CASE n WHEN 0 THEN 0 ELSE 50000 + n END, nextval('leasehold.ticket'), \
         decode(lpad(to_hex(n), 32, '0'), 'hex'), 'x', false, 1, 150, true, false, 'o', 'h', 1, NULL, clock_timestamp(), \
         clock_timestamp() + CASE n WHEN 75 THEN interval '1 s' ELSE interval '1 hour' END FROM generate_series(0, 149) AS n",
    );
    let permit = locks.semaphore("k", 150).unwrap().acquire_within(1, Duration::from_secs(4)).await.unwrap();
    assert!(permit.is_some());
}

/// Takes a lock so many times and disconnects. A session counts what it has read when it ends.
async fn take_turns(server: &Server, pairs: usize) {
    let locks = connect(&server.url()).await;
    let mutex = locks.mutex("k").unwrap();
    for _ in 0..pairs {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    soon("everything has left", locks.close()).await;
    drop((mutex, locks));
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    soon("its sessions have ended", async {
        while server.sql(sessions) != "0" {
            timer().sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_connections_serve_two_hundred_tasks() {
    let server = Server::start().unwrap();
    let locks = connect(&format!("{}?connections=2", server.url())).await;
    let mut tasks = JoinSet::new();
    for nth in 0..200 {
        let mutex = locks.mutex(format!("k{}", nth % 10)).unwrap();
        tasks.spawn(async move {
            for _ in 0..3 {
                mutex.lock().await.unwrap().release().await.unwrap();
            }
        });
    }
    soon("all have had their turns", tasks.join_all()).await;
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    assert_eq!(server.sql(sessions), "3", "two for requests, and one that listens");
    assert_eq!(server.sql("SELECT count(*) FROM leasehold.entry"), "0");
}

/// What is planned while the table is small is kept when it has grown, and it is emptied whenever nobody holds anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_reads_its_own_line_alone_though_it_was_planned_when_there_was_none() {
    const PAIRS: usize = 50;
    let server = Server::start().unwrap();
    take_turns(&server, 1000).await;
    server.sql("VACUUM ANALYZE leasehold.entry");
    let read_whole =
        || -> usize { server.sql("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'entry'").parse().unwrap() };
    let before = read_whole();
    take_turns(&server, PAIRS).await;
    // And whatever is looked for now and then among all.
    let times = read_whole() - before;
    assert!(times < PAIRS / 5, "the whole table was read {times} times for {PAIRS} locks");
}
