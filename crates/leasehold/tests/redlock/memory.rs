//! Servers that forget, and how they are let in again.

use std::time::Duration;

use leasehold::{ErrorKind, Locks, Loss};
use leasehold_testbed::redis::Server;

use crate::{LONG, Quorum, SHORT, raise_fences, soon, timer, until};

fn takes_part(server: &Server) -> bool {
    !server.cli(&["ZSCORE", "leasehold:redlock", "epoch"]).is_empty()
}

fn fence(server: &Server) -> u64 {
    let members = server.cli(&["ZRANGE", "leasehold:redlock", "0", "-1", "WITHSCORES"]);
    let lines: Vec<&str> = members.lines().collect();
    let fences = lines.chunks(2).filter(|pair| pair[0].starts_with('f'));
    fences.map(|pair| pair[1].parse().unwrap()).max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_grants_nothing_until_every_lease_of_before_is_over() {
    let quorum = Quorum::of(3, SHORT);
    let locks = quorum.connect(SHORT).await;
    let token = locks.mutex("k").unwrap().lock().await.unwrap().token();
    until("it is given back", async || quorum.holding("k") == [false; 3]).await;
    let forgetful = &quorum.servers[0];
    let forgot_at = timer().now();
    forgetful.restart_empty().unwrap();
    let guard = soon("the others suffice", locks.mutex("k").unwrap().lock()).await.unwrap();
    assert!(guard.token() > token);
    until("it takes part again", async || takes_part(forgetful)).await;
    let out_for = forgot_at.until(timer().now());
    assert!(out_for >= SHORT, "it was let in after {out_for:?}");
    assert!(fence(forgetful) >= guard.token().get(), "its fences are behind those of the others");
    until("it has the lock that is held", async || quorum.holding("k") == [true; 3]).await;
    guard.release().await.unwrap();
}

/// Each server loses everything once, one after the other: in the end none has seen the first token, and yet they grow.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_though_every_server_forgets_in_its_turn() {
    let quorum = Quorum::of(3, Duration::from_secs(1));
    let locks = quorum.connect(Duration::from_secs(1)).await;
    let mutex = locks.mutex("k").unwrap();
    // The time of this machine must have no part in it: the fences are far ahead of that.
    quorum.servers.iter().for_each(|server| raise_fences(server, "7000000000000000"));
    let before = mutex.lock().await.unwrap().token();
    assert!(before.get() > 7_000_000_000_000_000);
    for server in &quorum.servers {
        server.restart_empty().unwrap();
        until("it takes part again", async || takes_part(server)).await;
    }
    // A client that has seen nothing of it.
    let fresh = quorum.connect(Duration::from_secs(1)).await;
    let after = soon("the lock", fresh.mutex("k").unwrap().lock()).await.unwrap().token();
    assert!(after > before, "{after} after {before}");
}

/// An old copy of what a server knew is worse than nothing: it would say that a lock is free that is held.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_with_an_old_copy_has_forgotten() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    let stale = &quorum.servers[0];
    assert_eq!(stale.cli(&["SAVE"]), "OK");
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    stale.restart().unwrap();
    assert!(takes_part(stale), "it came back with its copy");
    let late = quorum.connect(LONG).await;
    assert!(!takes_part(stale), "whoever connects sees that it was restarted");
    assert!(late.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// What is on disk before it is answered is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_nothing_takes_part_at_once() {
    let persistent = || Server::builder().persistent(true).start().unwrap();
    let mut quorum = Quorum::of(3, LONG);
    quorum.servers = (0..3).map(|_| persistent()).collect();
    let proxies =
        quorum.servers.iter().map(|server| leasehold_testbed::Proxy::start(("127.0.0.1", server.port())).unwrap());
    quorum.proxies = proxies.collect();
    let locks = quorum.connect(LONG).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    until("all have it", async || quorum.holding("k") == [true; 3]).await;
    quorum.servers.iter().for_each(|server| server.restart().unwrap());
    let late = soon("connecting", quorum.connect(LONG)).await;
    assert!(quorum.servers.iter().all(takes_part));
    assert!(soon("a try", late.mutex("k").unwrap().try_lock()).await.unwrap().is_none());
    soon("giving it back", guard.release()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_most_forget_nobody_gets_in_while_somebody_may_still_believe() {
    let longest = Duration::from_secs(3);
    let quorum = Quorum::of(3, longest);
    let locks = quorum.connect(longest).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    quorum.servers[..2].iter().for_each(|server| server.restart_empty().unwrap());
    let late = quorum.connect(longest).await;
    let error = late.mutex("k").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("has forgotten what it knew"), "{error}: {cause}");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    until("they take part again", async || quorum.servers.iter().all(takes_part)).await;
    let next = soon("the lock", late.mutex("k").unwrap().lock()).await.unwrap();
    assert!(next.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_were_never_used_begin_after_one_longest_lease_unless_told_otherwise() {
    let quorum = Quorum::of(3, SHORT);
    let began = timer().now();
    let locks = Locks::builder(&quorum.url("")).ttl(SHORT).connect().await.unwrap();
    assert!(!quorum.servers.iter().any(takes_part));
    until("they take part", async || quorum.servers.iter().all(takes_part)).await;
    assert!(began.until(timer().now()) >= SHORT);
    soon("the lock", locks.mutex("k").unwrap().lock()).await.unwrap();
}
