//! Servers that are slow or cannot be reached, behind a network that fails on demand.

use std::time::Duration;

use leasehold::{ErrorKind, Fate, Locks};
use leasehold_testbed::redis::Server;

use crate::{LONG, Quorum, soon, timer, until};

/// How many scripts a server has run so far.
pub(super) fn scripts_run(server: &Server) -> u64 {
    times_done(server, "evalsha")
}

/// How often a server has done that so far, by itself or in a script.
pub(super) fn times_done(server: &Server, command: &str) -> u64 {
    let (stats, wanted) = (server.cli(&["INFO", "commandstats"]), format!("cmdstat_{command}:calls="));
    let line = stats.lines().find_map(|line| line.strip_prefix(&wanted));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or_default()
}

pub(super) async fn lock_and_release(locks: &Locks, times: usize) {
    let mutex = locks.mutex("k").unwrap();
    for _ in 0..times {
        let guard = soon("taking it", mutex.lock()).await.unwrap();
        soon("giving it back", guard.release()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_late_is_not_waited_for_and_not_stormed() {
    const TIMES: usize = 300;
    for silent in [false, true] {
        let quorum = Quorum::of(5, LONG);
        let locks = quorum.connect(LONG).await;
        lock_and_release(&locks, 20).await;
        match silent {
            true => quorum.proxies[0].blackhole(),
            false => quorum.proxies[0].delay(Duration::from_secs(1)),
        }
        let (began, asked) = (timer().now(), scripts_run(&quorum.servers[0]));
        lock_and_release(&locks, TIMES).await;
        let took = began.until(timer().now());
        assert!(took < Duration::from_millis(50) * u32::try_from(TIMES).unwrap(), "each pair waited for it: {took:?}");
        // What was sent to it arrives after all.
        timer().sleep(Duration::from_secs(3)).await;
        let asked = scripts_run(&quorum.servers[0]) - asked;
        assert!(asked < u64::try_from(TIMES).unwrap(), "it was asked {asked} times, silent: {silent}");
        quorum.proxies[0].heal();
        until("it is back", async || {
            lock_and_release(&locks, 1).await;
            let guard = locks.mutex("k").unwrap().lock().await.unwrap();
            timer().sleep(Duration::from_millis(20)).await;
            let everywhere = quorum.holding("k") == [true; 5];
            guard.release().await.unwrap();
            everywhere
        })
        .await;
    }
}

/// The server acts and the reply is lost, on so many servers that nobody can know: then it is cleaned up everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn grants_whose_replies_are_lost_are_given_back() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    lock_and_release(&locks, 3).await;
    quorum.proxies[..2].iter().for_each(|proxy| proxy.drop_replies(1));
    match locks.mutex("k").unwrap().try_lock().await {
        // The connection may have carried something else first.
        Ok(guard) => drop(guard),
        Err(error) => assert_eq!((error.kind(), error.fate()), (ErrorKind::Unreachable, Fate::Unknown), "{error}"),
    }
    until("nothing is left of it", async || quorum.holding("k") == [false; 3]).await;
    lock_and_release(&locks, 3).await;
}

/// Then our own thread finds out what became of it, and gives it back.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_whose_runtime_ends_in_the_middle_leaves_nothing_behind() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    let short_lived = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let warm = locks.clone();
    short_lived.spawn(async move { lock_and_release(&warm, 3).await }).await.unwrap();
    quorum.proxies.iter().for_each(|proxy| proxy.delay(Duration::from_millis(300)));
    let mutex = locks.mutex("k").unwrap();
    short_lived.spawn(async move { mutex.lock().await });
    until("it was granted, and the answers are on their way", async || quorum.holding("k") == [true; 3]).await;
    short_lived.shutdown_background();
    quorum.proxies.iter().for_each(|proxy| proxy.delay(Duration::ZERO));
    until("nothing is left of it", async || quorum.holding("k") == [false; 3]).await;
    lock_and_release(&locks, 3).await;
}

/// How many connections each server has, beside the one that asks.
fn connections(quorum: &Quorum) -> Vec<usize> {
    quorum.servers.iter().map(|server| server.cli(&["CLIENT", "LIST"]).lines().count() - 1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_takes_locks_again_and_again_has_one_more_connection_to_each_server() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    lock_and_release(&locks, 1).await;
    assert_eq!(connections(&quorum), [1; 3]);
    for _ in 0..2 {
        lock_and_release(&locks, 20).await;
        assert_eq!(connections(&quorum), [2; 3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_cost_nobody_a_lock() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    let guard = locks.mutex("held").unwrap().lock().await.unwrap();
    for _ in 0..3 {
        quorum.proxies.iter().for_each(leasehold_testbed::Proxy::cut);
        soon("another lock", locks.mutex("k").unwrap().lock()).await.unwrap();
        guard.check().unwrap();
    }
    soon("giving it back", guard.release()).await.unwrap();
}
