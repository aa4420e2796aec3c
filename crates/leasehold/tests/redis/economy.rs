//! What locks cost a server: connections, calls, and what is left behind.

use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold::clock::{Clock, Timer};
use leasehold::{ErrorKind, Locks};
use leasehold_testbed::redis::Server;

use crate::{connect, soon, until_waiting};

/// An hour, for ten minutes of which it goes without saying, and twice the lease.
const LEFT_MS_MAX: i64 = 3_600_000 + 600_000 + 2 * 600_000;

/// How often the server has obeyed a command, in scripts or outside.
fn calls(server: &Server, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_two_connections_however_much_it_holds() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let mut guards = Vec::new();
    for nth in 0..200 {
        guards.push(locks.mutex(format!("k{nth}")).unwrap().lock().await.unwrap());
    }
    let waiters: Vec<_> = (0..50)
        .map(|nth| {
            let mutex = locks.mutex(format!("k{nth}")).unwrap();
            tokio::spawn(async move { mutex.lock().await.unwrap() })
        })
        .collect();
    until_waiting(&locks, "k49", 1).await.unwrap();
    let list = server.cli(&["CLIENT", "LIST"]);
    assert!(list.lines().count() <= 2 + 1, "two, and the one that asks: {list}");
    drop(waiters);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_locks_are_renewed_in_a_handful_of_calls() {
    const LOCKS: u64 = 1000;
    const RENEWED_PER_CALL_MIN: u64 = 20;
    let server = Server::start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(Duration::from_secs(6)).connect().await.unwrap();
    let mut guards = Vec::new();
    for nth in 0..LOCKS {
        guards.push(locks.mutex(format!("k{nth}")).unwrap().lock().await.unwrap());
    }
    server.cli(&["CONFIG", "RESETSTAT"]);
    // A renewal lengthens the lock and its ticket.
    soon("each is renewed once", async {
        let timer = Timer::on_callers_runtime(Clock::boot());
        while calls(&server, "pexpire") < 2 * LOCKS {
            timer.sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let (renewed, sent) = (calls(&server, "pexpire") / 2, calls(&server, "evalsha"));
    assert!(sent * RENEWED_PER_CALL_MIN <= renewed, "{sent} calls renewed {renewed} locks");
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
}

/// A lock that is held, and who waits for it, alone.
async fn held_and_awaited(server: &Server) -> (Locks, leasehold::Guard, tokio::task::JoinHandle<leasehold::Guard>) {
    let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    (one, held, waiter)
}

#[tokio::test]
async fn handing_over_to_the_only_one_who_waits_ends_the_line_at_once() {
    let server = Server::start().unwrap();
    let (locks, held, waiter) = held_and_awaited(&server).await;
    let before = held.token();
    server.cli(&["CONFIG", "RESETSTAT"]);
    held.release().await.unwrap();
    let next = soon("the waiter's turn", waiter).await.unwrap();
    assert!(next.token() > before);
    for piecemeal in ["zrem", "hdel"] {
        assert_eq!(calls(&server, piecemeal), 0, "{piecemeal}: the line is deleted whole");
    }
    assert_eq!(server.cli(&["EXISTS", "{lock:k}:queue", "{lock:k}:leases", "{lock:k}:entries"]), "0");
    assert_eq!(server.cli(&["ZSCORE", "{lock:k}:tickets", "t"]), next.token().to_string(), "others come after it");
    next.release().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "lock:k"]), "0");
    let after = locks.mutex("k").unwrap().lock().await.unwrap();
    assert!(locks.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    after.release().await.unwrap();
}

#[tokio::test]
async fn a_wish_for_the_only_one_who_waits_outlives_its_wait() {
    let server = Server::start().unwrap();
    let (locks, held, waiter) = held_and_awaited(&server).await;
    let waits = locks.inspect("k").await.unwrap().unwrap().waiters.unwrap().remove(0);
    locks.ask_to_yield(&waits).await.unwrap();
    held.release().await.unwrap();
    let next = soon("the waiter's turn", waiter).await.unwrap();
    assert_eq!(server.cli(&["HEXISTS", "{lock:k}:entries", &format!("y{}", waits.place.entry)]), "1");
    next.release().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "{lock:k}:entries"]), "0");
}

#[tokio::test]
async fn tokens_that_run_out_are_refused_and_nothing_is_held() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    server.cli(&["ZADD", "{lock:k}:tickets", "9007199254740989", "t"]);
    let last = locks.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(last.token().get(), (1 << 53) - 2);
    last.release().await.unwrap();
    for _ in 0..3 {
        let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable);
        assert!(refused.to_string().contains("tokens have run out"), "{refused}");
        assert_eq!(server.cli(&["EXISTS", "lock:k", "{lock:k}:entries", "{lock:k}:leases"]), "0");
    }
    locks.mutex("another").unwrap().lock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deserted_key_leaves_its_last_ticket_for_a_while_and_whether_it_was_observed() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    locks.mutex("mutex").unwrap().lock().await.unwrap().release().await.unwrap();
    drop(locks.mutex("dropped").unwrap().lock().await.unwrap());

    let rw = locks.rw_lock("rw").unwrap();
    let readers = [rw.read().await.unwrap(), rw.read().await.unwrap()];
    let writer = tokio::spawn(async move { rw.write().await.unwrap() });
    until_waiting(&locks, "rw", 1).await.unwrap();
    for reader in readers {
        reader.release().await.unwrap();
    }
    soon("the writer's turn", writer).await.unwrap().release().await.unwrap();

    let semaphore = locks.semaphore("semaphore", 3).unwrap();
    let permits = [semaphore.acquire(2).await.unwrap(), semaphore.acquire(1).await.unwrap()];
    assert!(semaphore.acquire_within(1, Duration::from_millis(20)).await.unwrap().is_none());
    for permit in permits {
        permit.release().await.unwrap();
    }

    let election = locks.election("election").unwrap();
    let mut leaders = Box::pin(election.observe());
    leaders.next().await.unwrap().unwrap();
    election.campaign("me").await.unwrap().resign().await.unwrap();
    drop(leaders);

    let guard = locks.mutex("cancelled").unwrap().lock().await.unwrap();
    let mutex = locks.mutex("cancelled").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&locks, "cancelled", 1).await.unwrap();
    waiter.abort();
    until_waiting(&locks, "cancelled", 0).await.unwrap();
    guard.release().await.unwrap();

    let wanted = locks.mutex("wanted").unwrap().lock().await.unwrap();
    let holder = locks.inspect("wanted").await.unwrap().unwrap().holders.remove(0);
    locks.ask_to_yield(&holder).await.unwrap();
    wanted.release().await.unwrap();

    locks.close().await;
    let left = server.cli(&["KEYS", "*"]);
    for key in left.lines() {
        let ms: i64 = server.cli(&["PTTL", key]).parse().unwrap();
        assert!((1..=LEFT_MS_MAX).contains(&ms), "{key} is left for {ms} ms");
    }
    let (tickets, others): (Vec<&str>, Vec<&str>) = left.lines().partition(|key| key.ends_with("}:tickets"));
    assert_eq!(tickets.len(), 7, "{left}");
    // Nobody knows whether somebody observes it still: the last ticket is beside that, and it is closed to whoever does not look.
    assert_eq!(server.cli(&["ZSCORE", "{lock:election}:tickets", "t"]), "9007199254740991");
    assert_eq!(others, ["{lock:election}:entries"]);
    assert_eq!(server.cli(&["HKEYS", others[0]]), "u\nc\nt\nn\ne\no");
}
