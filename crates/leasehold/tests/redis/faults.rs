//! What goes wrong with a server, each on a server of its own.

use std::time::Duration;

use leasehold::clock::{Clock, Timer};
use leasehold::{ErrorKind, Guard, Locks, Loss, State};
use leasehold_testbed::redis::Server;

use crate::{TTL, connect, soon, until_waiting};

/// A holder and a waiter of two clients.
async fn held_and_awaited(server: &Server, ttl: Duration) -> (Locks, Guard, tokio::task::JoinHandle<Guard>) {
    let client = async || Locks::builder(&server.url()).ttl(ttl).connect().await.unwrap();
    let (one, other) = (client().await, client().await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    (one, guard, waiter)
}

/// The holder leaves, and the waiter has its turn with a higher token.
async fn hand_over(guard: Guard, waiter: tokio::task::JoinHandle<Guard>) {
    let before = guard.token();
    assert!(!waiter.is_finished());
    soon("leaving", guard.release()).await.unwrap();
    let guard = soon("the waiter's turn", waiter).await.unwrap();
    assert!(guard.token() > before);
    guard.release().await.unwrap();
}

/// The same just after a connection broke: the request to leave may fail with it, and is then made again in the background.
async fn hand_over_in_trouble(guard: Guard, waiter: tokio::task::JoinHandle<Guard>) {
    let before = guard.token();
    assert!(!waiter.is_finished());
    drop(guard);
    assert!(soon("the waiter's turn", waiter).await.unwrap().token() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_closes_cost_nobody_a_lock_or_a_place() {
    let server = Server::start().unwrap();
    let (locks, guard, waiter) = held_and_awaited(&server, TTL).await;
    for _ in 0..3 {
        server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let view = soon("looking again", locks.inspect("k")).await;
        // A question under way when the connection is closed may fail; the next one is answered.
        let view = match view {
            Ok(view) => view,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
                locks.inspect("k").await.unwrap()
            }
        }
        .unwrap();
        assert_eq!((view.holders[0].token, view.waiters.unwrap().len()), (Some(guard.token()), 1));
        guard.check().unwrap();
    }
    hand_over_in_trouble(guard, waiter).await;
}

/// Whoever waits has not looked yet, and nobody has told it: the key is free for whoever comes first to see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_deleted_by_hand_goes_to_whoever_waits_and_not_to_whoever_comes() {
    let server = Server::start().unwrap();
    let (locks, guard, waiter) = held_and_awaited(&server, Duration::from_secs(3)).await;
    assert_eq!(server.cli(&["DEL", "lock:k"]), "1");
    assert!(locks.mutex("k").unwrap().try_lock().await.unwrap().is_none(), "it overtook whoever waits");
    let next = soon("the waiter's turn", waiter).await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_whose_mark_was_deleted_by_hand_keep_no_writer_out() {
    let server = Server::start().unwrap();
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let readers = one.rw_lock("k").unwrap();
    let _readers = [readers.read().await.unwrap(), readers.read().await.unwrap()];
    assert!(other.rw_lock("k").unwrap().try_write().await.unwrap().is_none());
    assert_eq!(server.cli(&["DEL", "lock:k"]), "1");
    let writer = other.rw_lock("k").unwrap().try_write().await.unwrap().expect("nobody marks the key as held");
    let view = one.inspect("k").await.unwrap().unwrap();
    assert_eq!(view.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [Some(writer.token())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_mark_somebody_else_has_replaced_is_told_and_leaves_theirs_alone() {
    let server = Server::start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(Duration::from_secs(2)).connect().await.unwrap();
    let reader = locks.rw_lock("k").unwrap().read().await.unwrap();
    let theirs = || (server.cli(&["GET", "lock:k"]), server.cli(&["PTTL", "lock:k"]));
    server.cli(&["SET", "lock:k", "somebody"]);
    let before = theirs();
    let timer = Timer::on_callers_runtime(Clock::boot());
    while reader.check().is_ok() {
        assert_eq!(theirs(), before);
        timer.sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((reader.lost().await, theirs()), (Loss::Gone, before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_the_server_refuses_is_a_doubt_and_not_a_loss() {
    let server = Server::start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(Duration::from_secs(6)).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let timer = Timer::on_callers_runtime(Clock::boot());
    let until_state = async |state: State| {
        while guard.state() != state {
            assert!(!matches!(guard.state(), State::Lost(_)), "{:?}", guard.state());
            timer.sleep(Duration::from_millis(5)).await;
        }
    };
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    soon("a doubt", until_state(State::Suspect)).await;
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    soon("a confirmation", until_state(State::Held)).await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_is_shorter_than_the_lease_is_waited_out() {
    let server = Server::start().unwrap();
    let (_locks, guard, waiter) = held_and_awaited(&server, Duration::from_secs(6)).await;
    let patient = connect(&server.url()).await;
    // A renewal falls into it, and is not answered in time.
    server.cli(&["CLIENT", "PAUSE", "3500", "ALL"]);
    let mutex = patient.mutex("another").unwrap();
    soon("a lock asked for in the pause", mutex.lock()).await.unwrap().release().await.unwrap();
    guard.check().unwrap();
    hand_over(guard, waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_the_scripts_is_told_again() {
    let server = Server::start().unwrap();
    let flush = || server.cli(&["SCRIPT", "FLUSH"]);
    let (locks, guard, waiter) = held_and_awaited(&server, Duration::from_secs(3)).await;
    for _ in 0..2 {
        flush();
        let before = guard.remaining();
        soon("a renewal", async {
            let timer = Timer::on_callers_runtime(Clock::boot());
            while guard.remaining() <= before {
                timer.sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    flush();
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().holders.len(), 1);
    flush();
    let mut leader = locks.election("leader").unwrap().campaign("me").await.unwrap();
    flush();
    leader.proclaim("still me").await.unwrap();
    flush();
    hand_over(guard, waiter).await;
    flush();
    leader.resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_forgets_everything_is_noticed_at_once_and_tokens_still_grow() {
    let server = Server::start().unwrap();
    let (locks, guard, waiter) = held_and_awaited(&server, TTL).await;
    let reader = locks.rw_lock("shared").unwrap().read().await.unwrap();
    server.restart().unwrap();
    assert_eq!(soon("the holder learns of it", guard.lost()).await, Loss::Gone);
    assert_eq!(soon("the reader learns of it", reader.lost()).await, Loss::Gone);
    let next = soon("the waiter lines up again", waiter).await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_remembers_costs_nobody_a_lock_or_a_place() {
    let server = Server::builder().persistent(true).start().unwrap();
    let (locks, guard, waiter) = held_and_awaited(&server, TTL).await;
    server.kill();
    server.restart().unwrap();
    let view = soon("the server is found again", async {
        loop {
            match locks.inspect("k").await {
                Ok(view) => return view.unwrap(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
            }
        }
    })
    .await;
    assert_eq!(view.holders[0].token, Some(guard.token()));
    guard.check().unwrap();
    hand_over_in_trouble(guard, waiter).await;
}

#[tokio::test]
async fn a_server_that_may_throw_locks_out_is_refused_unless_that_is_accepted() {
    let server = Server::builder().setting("maxmemory", "100mb").setting("maxmemory-policy", "volatile-lru").start();
    let server = server.unwrap();
    let refused = leasehold::connect(&server.url()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    assert!(refused.to_string().contains("?eviction=accept"), "{refused}");
    let locks = connect(&format!("{}?eviction=accept", server.url())).await;
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_says_so_and_loses_nothing() {
    let server = Server::start().unwrap();
    let (locks, guard, waiter) = held_and_awaited(&server, TTL).await;
    let alone = locks.mutex("alone").unwrap().lock().await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = locks.mutex("new").unwrap().try_lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable);
    assert!(refused.to_string().contains("out of memory"), "{refused}");
    alone.release().await.unwrap();
    guard.check().unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(server.cli(&["EXISTS", "lock:new"]), "0");
    hand_over(guard, waiter).await;
}

/// A server refuses the first command of a script that needs memory, and none after the script has changed something.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_left_while_there_is_no_memory_goes_to_the_next_in_line() {
    let server = Server::start().unwrap();
    let (_locks, guard, waiter) = held_and_awaited(&server, TTL).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    hand_over(guard, waiter).await;
}

#[tokio::test]
async fn what_somebody_else_stores_at_the_key_is_named_and_left_alone() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let stored: [(&str, &[&str], &[&str]); 4] = [
        ("list", &["RPUSH", "lock:k", "a"], &["LRANGE", "lock:k", "0", "-1"]),
        ("hash", &["HSET", "lock:k", "a", "b"], &["HGETALL", "lock:k"]),
        ("zset", &["ZADD", "lock:k", "1", "a"], &["ZRANGE", "lock:k", "0", "-1", "WITHSCORES"]),
        ("set", &["SADD", "lock:k", "a"], &["SMEMBERS", "lock:k"]),
    ];
    for (kind, write, read) in stored {
        server.cli(&["DEL", "lock:k"]);
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        server.cli(&["DEL", "lock:k"]);
        server.cli(write);
        let before = server.cli(read);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost, "{kind}");
        for refused in [
            locks.mutex("k").unwrap().lock().await.unwrap_err(),
            locks.rw_lock("k").unwrap().try_read().await.unwrap_err(),
            locks.semaphore("k", 2).unwrap().acquire(1).await.unwrap_err(),
            locks.inspect("k").await.unwrap_err(),
        ] {
            assert_eq!(refused.kind(), ErrorKind::KindMismatch, "{kind}");
            assert_eq!(refused.key().unwrap().name(), b"k");
            assert!(refused.to_string().contains(kind), "{refused}");
        }
        assert_eq!((server.cli(read), server.cli(&["PTTL", "lock:k"])), (before, "-1".into()), "{kind}");
        assert!(locks.inspect_all().await.unwrap().is_empty(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_becomes_a_replica_is_a_passing_trouble() {
    let server = Server::start().unwrap();
    let (locks, guard, waiter) = held_and_awaited(&server, TTL).await;
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = locks.mutex("new").unwrap().try_lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
    guard.check().unwrap();
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    soon("a new lock", locks.mutex("new").unwrap().lock()).await.unwrap();
    hand_over_in_trouble(guard, waiter).await;
}
