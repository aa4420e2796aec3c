//! The store on MySQL and MariaDB, on real servers with real faults.

mod alone;
#[path = "../database/mod.rs"]
mod database;
mod spring;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use database::*;
use leasehold::clock::Clock;
use leasehold::{ErrorKind, Locks, Loss};
use leasehold_testbed::Tls;
use leasehold_testbed::mysql::Server;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_comes_back_forgets_neither_holder_nor_waiter_nor_token() {
    let server = Server::start().unwrap();
    let (_locks, guard, waiter) = held_and_awaited(&server.url(), Duration::from_secs(20)).await;
    server.restart().unwrap();
    guard.check().unwrap();
    assert_eq!(server.sql("SELECT SUM(holds), COUNT(*) FROM leasehold_entry"), "1\t2");
    hand_over(guard, waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn futures_dropped_at_random_leave_no_row_and_no_open_transaction() {
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
    assert_eq!(server.sql("SELECT COUNT(*) FROM leasehold_entry"), "0");
    assert_eq!(server.sql("SELECT COUNT(*) FROM information_schema.INNODB_TRX"), "0");
}

/// Reading the line would take the longer, the longer it is, and nobody else could join meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_joins_a_long_line_reads_little_of_it() {
    const IN_LINE: u64 = 5000;
    const JOINS: u64 = 100;
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    server.sql(&format!(
        "INSERT INTO leasehold_entry (namespace, name, slot, entry, weight, capacity, holds, owner, host, pid, entered_at, expires_at) \
         SELECT 'lock', 'k', seq, UNHEX(LPAD(HEX(seq), 32, '0')), 4294967296, 4294967296, seq = 0, 'o', 'h', 1, UTC_TIMESTAMP(6), \
         UTC_TIMESTAMP(6) + INTERVAL 1 HOUR FROM seq_0_to_{}",
        IN_LINE - 1
    ));
    let rows_read = || -> u64 {
        let read =
            "SELECT SUM(VARIABLE_VALUE) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME LIKE 'HANDLER_READ%'";
        server.sql(read).parse().unwrap()
    };
    let before = rows_read();
    let mut waiters = JoinSet::new();
    for _ in 0..JOINS {
        let mutex = locks.mutex("k").unwrap();
        waiters.spawn(async move { mutex.lock().await });
    }
    let everybody = (IN_LINE + JOINS).to_string();
    soon("all are in line", async {
        while server.sql("SELECT MAX(slot) + 1 FROM leasehold_entry WHERE namespace = 'lock' AND name = 'k'")
            != everybody
        {}
    })
    .await;
    let read = rows_read() - before;
    assert!(read < JOINS * 1000, "{read} rows were read for {JOINS} entries");
}

/// The first of them has been there since long before all others came.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_among_many_holders_is_noticed_by_the_next() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    server.sql(
        "INSERT INTO leasehold_entry (namespace, name, slot, entry, weight, capacity, holds, owner, host, pid, entered_at, expires_at) \
         SELECT 'lock', 'k', IF(seq < 2, seq, 50000 + seq), UNHEX(LPAD(HEX(seq), 32, '0')), 1, 150, TRUE, 'o', 'h', 1, \
         UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL IF(seq = 75, 1, 3600) SECOND FROM seq_0_to_149",
    );
    let permit = locks.semaphore("k", 150).unwrap().acquire_within(1, Duration::from_secs(4)).await.unwrap();
    assert!(permit.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_connections_serve_two_hundred_tasks() {
    let server = Server::start().unwrap();
    let locks = connect(&format!("{}?connections=2", server.url())).await;
    let mut tasks = JoinSet::new();
    for nth in 0..200 {
        let mutex = locks.mutex(format!("k{}", nth % 10)).unwrap();
        tasks.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }
    soon("all have had their turns", tasks.join_all()).await;
    let sessions: usize =
        server.sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'locks'").parse().unwrap();
    assert!(sessions <= 2, "{sessions} connections");
    assert_eq!(server.sql("SELECT COUNT(*) FROM leasehold_entry"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_many_clients_make_at_once_are_made_once_under_the_prefix_of_the_url() {
    let server = Server::start().unwrap();
    let url = format!("{}?prefix=locks_2_", server.url());
    let mut clients = JoinSet::new();
    for _ in 0..10 {
        let url = url.clone();
        clients.spawn(async move { connect(&url).await });
    }
    let clients = soon("they connect", clients.join_all()).await;
    let guard = clients[0].mutex("k").unwrap().lock().await.unwrap();
    assert!(clients[9].mutex("k").unwrap().try_lock().await.unwrap().is_none());
    assert_eq!(server.sql("SELECT version FROM locks_2_store"), "2");
    guard.release().await.unwrap();
    server.sql("UPDATE locks_2_store SET version = 3");
    let refused = Locks::builder(&url).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    assert!(refused.to_string().contains("layout 3"), "{refused}");
    server.sql("UPDATE locks_2_store SET version = 1");
    let refused = Locks::builder(&url).connect().await.unwrap_err();
    assert!(refused.to_string().contains("never released"), "{refused}");
}

/// The statements of the page, for a user by the name of `app`.
fn documented_rights() -> String {
    let page = include_str!("../../../../docs/backends/mysql.md");
    let rights: Vec<&str> = page.lines().filter(|line| line.starts_with("GRANT ")).collect();
    assert!(!rights.is_empty());
    rights.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_rights_of_the_page_may_lock_and_make_no_tables() {
    let server = Server::start().unwrap();
    drop(connect(&server.url()).await);
    server.sql("CREATE USER app@'127.0.0.1'");
    server.sql(&documented_rights());
    let url = server.url_of("app");
    let (locks, guard, waiter) = held_and_awaited(&url, TTL).await;
    assert_eq!(locks.inspect_all().await.unwrap().len(), 1);
    hand_over(guard, waiter).await;
    let refused = Locks::builder(&format!("{url}?prefix=other_")).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    assert!(refused.to_string().contains("leasehold schema mysql"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_connection_locks_and_one_that_cannot_be_verified_is_refused() {
    let tls = Tls::new().unwrap();
    let server = Server::builder().tls(&tls).start().unwrap();
    let (_locks, guard, waiter) = held_and_awaited(&server.url(), TTL).await;
    hand_over(guard, waiter).await;
    let stranger = Tls::new().unwrap();
    let elsewhere = server.url().replace(&*tls.ca().to_string_lossy(), &stranger.ca().to_string_lossy());
    let refused = Locks::builder(&elsewhere).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_zone_of_the_server_plays_no_part() {
    let server = Server::builder().setting("default-time-zone", "+05:30").start().unwrap();
    let (_locks, guard, waiter) = held_and_awaited(&server.url(), Duration::from_secs(3)).await;
    let started = Clock::boot().now();
    while started.until(Clock::boot().now()) < Duration::from_secs(6) {
        guard.check().unwrap();
        timer().sleep(Duration::from_millis(50)).await;
    }
    hand_over(guard, waiter).await;
}

/// Somebody keeps the line locked until a lease in it has run out: whoever comes next goes by the time at which it had the line.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_goes_by_the_time_at_which_the_line_was_locked() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let holding = std::thread::spawn({
        let client = format!("mariadb --no-defaults -h127.0.0.1 -P{} -ulocks shop", server.port());
        let script = "START TRANSACTION; SELECT COUNT(*) FROM leasehold_shard FOR UPDATE; \
                      UPDATE leasehold_entry SET expires_at = DATE_ADD(UTC_TIMESTAMP(6), INTERVAL 1 SECOND); \
                      DO SLEEP(2); COMMIT";
        move || Command::new("sh").args(["-c", &format!("{client} -e '{script}'")]).status().unwrap()
    });
    let asleep = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'";
    soon("the lines are locked", async {
        while server.sql(asleep) == "0" {
            timer().sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let next = locks.mutex("k").unwrap().try_lock().await.unwrap().expect("the lease was over when the line was free");
    assert!(next.token() > guard.token());
    assert!(holding.join().unwrap().success());
}

/// Settings under which what is not a procedure would not be committed.
#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed_on_a_server_that_commits_nothing_by_itself() {
    let server = Server::builder().setting("autocommit", "0").setting("completion-type", "CHAIN").start().unwrap();
    let ttl = Duration::from_secs(2);
    let locks = Locks::builder(&server.url()).ttl(ttl).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let started = Clock::boot().now();
    while started.until(Clock::boot().now()) < ttl * 2 {
        let left = server.sql("SELECT COUNT(*) FROM leasehold_entry WHERE expires_at > UTC_TIMESTAMP(6)");
        assert_eq!(left, "1", "others see the lease");
        guard.check().unwrap();
        timer().sleep(ttl / 8).await;
    }
    guard.release().await.unwrap();
    assert_eq!(server.sql("SELECT COUNT(*) FROM leasehold_entry"), "0");
}

/// One that has a long pause until it is asked about again, and one that joins meanwhile: it is the first of another line.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_joins_is_asked_about_although_another_one_is_far_from_its_turn() {
    let server = Server::start().unwrap();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let _held = one.mutex("slow").unwrap().lock().await.unwrap();
    let mut crowd = JoinSet::new();
    for nth in 0..20 {
        let mutex = if nth < 19 { &one } else { &other }.mutex("slow").unwrap();
        crowd.spawn(async move { mutex.lock().await });
        until_waiting(&one, "slow", nth + 1).await.unwrap();
    }
    timer().sleep(Duration::from_secs(3)).await; // it is asked about ever less often
    let guard = one.mutex("quick").unwrap().lock().await.unwrap();
    let mutex = other.mutex("quick").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "quick", 1).await.unwrap();
    let before = Clock::boot().now();
    guard.release().await.unwrap();
    soon("its turn", waiter).await.unwrap().release().await.unwrap();
    let took = before.until(Clock::boot().now());
    assert!(took < Duration::from_millis(300 + 750), "{took:?}");
}

fn end_sessions(server: &Server) {
    server.sql("KILL USER locks");
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
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for nth in 0..8 {
        let (mutex, inside) = (clients[nth % 2].mutex("k").unwrap(), inside.clone());
        tasks.spawn(async move {
            let mut turns = 0;
            while turns < 20 {
                let Ok(guard) = mutex.lock().await else { continue };
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two hold it");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, SeqCst);
                drop(guard);
                turns += 1;
            }
        });
    }
    let ending = async {
        loop {
            tokio::task::block_in_place(|| end_sessions(&server));
            timer().sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        _ = soon("all have had their turns", tasks.join_all()) => {}
        () = ending => {}
    }
    for locks in &clients {
        soon("everything has left", locks.close()).await;
    }
    assert_eq!(server.sql("SELECT COUNT(*) FROM leasehold_entry"), "0");
}

/// What clients have asked so far, this question included.
fn questions(server: &Server) -> usize {
    let shown = server.sql("SHOW GLOBAL STATUS LIKE 'Questions'");
    shown.rsplit('\t').next().unwrap().parse().unwrap()
}

/// What a look at the counter adds to it.
fn own_questions(server: &Server) -> usize {
    let before = questions(server);
    questions(server) - before
}

/// Takes locks until that client has the connections that it will have, and they have nothing more to say.
async fn warm_up(server: &Server, locks: &Locks, others: usize) {
    let mutex = locks.mutex("warm").unwrap();
    for _ in 0..3 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    until_idle(server, others + 2).await;
}

/// Resolves when there are so many connections, and none has said anything for a while.
async fn until_idle(server: &Server, count: usize) {
    let idle = "SELECT COUNT(*), SUM(COMMAND = 'Sleep' AND TIME_MS > 100) FROM information_schema.PROCESSLIST \
                WHERE USER = 'locks'";
    soon("connections are idle", async {
        while server.sql(idle) != format!("{count}\t{count}") {
            timer().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_takes_locks_one_after_the_other_has_a_connection_for_that_unless_it_may_have_but_one() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    until_idle(&server, 1).await;
    warm_up(&server, &locks, 0).await;
    let single = connect(&format!("{}?connections=1", server.url())).await;
    for _ in 0..3 {
        single.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    }
    until_idle(&server, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn taking_a_lock_and_giving_it_back_are_two_calls() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let mutex = locks.mutex("k").unwrap();
    warm_up(&server, &locks, 0).await;
    let before = questions(&server);
    for _ in 0..50 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let asked = questions(&server) - before - own_questions(&server);
    assert_eq!(asked, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_waiters_cost_less_than_ten_statements_a_second_while_nothing_moves() {
    const SECONDS: usize = 8;
    let server = Server::start().unwrap();
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
    timer().sleep(Duration::from_secs(4)).await; // they ask ever less often since the last one came
    let before = questions(&server);
    timer().sleep(Duration::from_secs(SECONDS as u64)).await;
    let asked = questions(&server) - before;
    assert!(asked <= 10 * SECONDS, "{asked} statements in {SECONDS} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_among_a_hundred_thousand_others_is_found_by_an_index() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    server.sql(
        "INSERT INTO leasehold_entry (namespace, name, slot, entry, weight, capacity, holds, owner, host, pid, entered_at, \
         expires_at) SELECT 'lock', CONCAT('key-', seq), 0, UNHEX(LPAD(HEX(seq), 32, '0')), 4294967296, 4294967296, TRUE, 'o', \
         'h', 1, UTC_TIMESTAMP(6), DATE_ADD(UTC_TIMESTAMP(6), INTERVAL 1 HOUR) FROM seq_1_to_100000",
    );
    let rows_read = || -> u64 {
        let read = "SELECT CAST(SUM(variable_value) AS INTEGER) FROM information_schema.global_status \
                    WHERE variable_name IN ('HANDLER_READ_NEXT', 'HANDLER_READ_RND_NEXT')";
        server.sql(read).parse().unwrap()
    };
    let before = rows_read();
    for _ in 0..100 {
        locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
        assert!(locks.mutex("key-777").unwrap().try_lock().await.unwrap().is_none());
    }
    let read = rows_read() - before;
    assert!(read < 100 * 50, "{read} rows were read");
    assert_eq!(soon("all are listed", locks.inspect_all()).await.unwrap().len(), 100_000);
}

/// Nobody has looked at the line since, so that the renewal itself must see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_bring_back_a_lease_that_is_over() {
    let server = Server::start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(Duration::from_secs(3)).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    server.sql("UPDATE leasehold_entry SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND");
    assert_eq!(soon("the next renewal", guard.lost()).await, Loss::Gone);
}
