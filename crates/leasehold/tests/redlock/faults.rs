//! Servers that stop, die and come back, while a majority goes on.

use std::time::Duration;

use leasehold::backend::{Spread, Verdict};
use leasehold::{ErrorKind, Loss};

use leasehold_testbed::Proxy;

use crate::{LONG, Quorum, SHORT, soon, timer, until};

/// Takes the lock, keeps it past its lease, and gives it back.
async fn lock_keep_and_release(quorum: &Quorum) -> leasehold::FencingToken {
    let locks = quorum.connect(SHORT).await;
    let guard = soon("taking it", locks.mutex("k").unwrap().lock()).await.unwrap();
    timer().sleep(SHORT * 2).await;
    guard.check().unwrap();
    let token = guard.token();
    soon("giving it back", guard.release()).await.unwrap();
    token
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_that_is_stopped_or_dead_costs_nobody_a_lock() {
    for (servers, failing) in [(3, 1), (5, 2)] {
        let quorum = Quorum::of(servers, SHORT);
        let before = lock_keep_and_release(&quorum).await;
        quorum.servers[..failing].iter().for_each(|server| server.stop());
        let stopped = lock_keep_and_release(&quorum).await;
        quorum.servers[..failing].iter().for_each(|server| server.kill());
        let dead = lock_keep_and_release(&quorum).await;
        assert!(before < stopped && stopped < dead, "{before} {stopped} {dead}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_locked_and_a_holder_is_told_at_its_deadline() {
    let quorum = Quorum::of(3, SHORT);
    let locks = quorum.connect(SHORT).await;
    let guard = locks.mutex("held").unwrap().lock().await.unwrap();
    quorum.servers[..2].iter().for_each(|server| server.stop());
    let error = soon("the error", locks.mutex("k").unwrap().try_lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    quorum.servers[..2].iter().for_each(|server| server.cont());
    soon("it works again", locks.mutex("k").unwrap().lock()).await.unwrap();
}

/// Unknown is not lost: whoever cannot reach a majority for a while keeps what it has, and takes nothing back that a server
/// still has for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_finds_no_majority_takes_nothing_away() {
    let quorum = Quorum::of(3, Duration::from_secs(6));
    let locks = quorum.connect(Duration::from_secs(6)).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    until("all have it", async || quorum.holding("k") == [true; 3]).await;
    for proxy in &quorum.proxies[..2] {
        proxy.refuse();
        proxy.cut();
    }
    until("a renewal failed", async || guard.state() == leasehold::State::Suspect).await;
    assert_eq!(quorum.servers[2].cli(&["EXISTS", "lock:k"]), "1", "it was deleted where it still was");
    quorum.proxies[..2].iter().for_each(leasehold_testbed::Proxy::heal);
    until("a renewal is confirmed", async || guard.state() == leasehold::State::Held).await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_missing_on_a_server_is_put_back_with_the_next_renewal() {
    let quorum = Quorum::of(3, SHORT);
    let locks = quorum.connect(SHORT).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let shared = locks.rw_lock("shared").unwrap().read().await.unwrap();
    until("all have them", async || (quorum.holding("k"), quorum.holding("shared")) == (vec![true; 3], vec![true; 3]))
        .await;
    assert_eq!(quorum.servers[1].cli(&["DEL", "lock:k", "lock:shared"]), "2");
    until("all have them", async || (quorum.holding("k"), quorum.holding("shared")) == (vec![true; 3], vec![true; 3]))
        .await;
    guard.release().await.unwrap();
    shared.release().await.unwrap();
    until("none has them", async || {
        (quorum.holding("k"), quorum.holding("shared")) == (vec![false; 3], vec![false; 3])
    })
    .await;
}

/// What was deleted on a majority is lost, and not put back anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_missing_on_a_majority_is_lost() {
    let quorum = Quorum::of(5, SHORT);
    let locks = quorum.connect(SHORT).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    until("all have it", async || quorum.holding("k") == [true; 5]).await;
    // At once, as far as we can see: a renewal in between would find a majority, and plant what is missing again.
    quorum.proxies.iter().for_each(Proxy::blackhole);
    quorum.servers[..3].iter().for_each(|server| assert_eq!(server.cli(&["DEL", "lock:k"]), "1"));
    quorum.proxies.iter().for_each(Proxy::heal);
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    let next = soon("the next", locks.mutex("k").unwrap().lock()).await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.check().unwrap();
}

/// A server that comes back is told of departures that it missed, long before the lease would end.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_away_learns_what_was_given_up_meanwhile() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    until("all have it", async || quorum.holding("k") == [true; 3]).await;
    quorum.proxies[0].refuse();
    quorum.proxies[0].cut();
    guard.release().await.unwrap();
    quorum.proxies[0].heal();
    until("none has it", async || quorum.holding("k") == [false; 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_leaves_nothing_behind() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    for server in &quorum.servers[..2] {
        assert_eq!(server.cli(&["SET", "lock:k", "somebody", "NX", "PX", "600000"]), "OK");
    }
    assert!(locks.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    until("it is given back", async || quorum.holding("k") == [true, true, false]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_many_servers_have_a_lock_can_be_seen() {
    let quorum = Quorum::of(5, LONG);
    let locks = quorum.connect(LONG).await;
    quorum.servers[0].kill();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    until("all that are there have it", async || {
        let view = locks.inspect("k").await.unwrap().unwrap();
        assert_eq!(view.holders.len(), 1);
        let holder = &view.holders[0];
        assert_eq!((holder.token, holder.place.entry), (Some(guard.token()), guard.entry()));
        holder.spread == Some(Spread { on: 4, of: 5 })
    })
    .await;
    let findings = locks.checkup().await.unwrap();
    let quorum = findings.iter().find(|finding| finding.check == "quorum").unwrap();
    assert_eq!(quorum.verdict, Verdict::Warning);
    assert!(quorum.finding.starts_with("4 of 5 servers take part"), "{quorum}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_even_number_and_one_server_under_two_names_are_refused() {
    let quorum = Quorum::of(3, SHORT);
    let port = |nth: usize| quorum.servers[nth].port();
    let even = format!("redlock://127.0.0.1:{},127.0.0.1:{}", port(0), port(1));
    let error = leasehold::connect(&format!("{even},127.0.0.1:{},127.0.0.1:1", port(2))).await.unwrap_err();
    assert!(error.to_string().contains("names 4 servers"), "{error}");
    let error = leasehold::connect(&even).await.unwrap_err();
    assert!(error.to_string().contains("fewer than three"), "{error}");
    let error = leasehold::connect(&format!("{even},localhost:{}", port(0))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("names one server twice"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_the_servers_do_not_grant_is_refused_by_name() {
    let quorum = Quorum::of(3, SHORT);
    quorum.connect(SHORT).await;
    let error = leasehold::Locks::builder(&quorum.url("")).ttl(SHORT * 2).connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    let others = quorum.url("").replace("longest=2", "longest=600");
    let locks = leasehold::Locks::builder(&others).ttl(SHORT * 2).connect().await.unwrap();
    let error = locks.mutex("k").unwrap().lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("set up for leases of at most 2s"), "{error}");
    until("nothing is left of it", async || quorum.holding("k") == [false; 3]).await;
}
