//! Connections that break, answers that are lost, sessions that end: each on a server behind a proxy of its own.

use std::time::Duration;

use leasehold::{ErrorKind, Fate, Locks, Loss, State};
use leasehold_testbed::Proxy;
use leasehold_testbed::zookeeper::Server;

use crate::{TTL, connect, soon, timer, until, until_waiting};

fn behind_a_proxy() -> (&'static Server, Proxy, String) {
    let server = Server::shared();
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let url = format!("zookeeper://{}", proxy.address());
    (server, proxy, url)
}

/// Nobody else can have the lock meanwhile: the session goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_makes_a_lock_suspect_at_once_and_the_next_one_makes_it_held_again() {
    let (server, proxy, url) = behind_a_proxy();
    let (locks, other) = (connect(&url).await, connect(&server.url()).await);
    let guard = locks.mutex("suspect").unwrap().lock().await.unwrap();
    proxy.refuse();
    proxy.cut();
    until("it is suspect", async || guard.state() == State::Suspect).await;
    guard.check().unwrap();
    assert!(other.mutex("suspect").unwrap().try_lock().await.unwrap().is_none());
    proxy.heal();
    until("it is held again", async || guard.state() == State::Held).await;
    guard.release().await.unwrap();
    assert!(other.inspect("suspect").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_connection_broke_keeps_its_place_and_has_its_turn() {
    let (server, proxy, url) = behind_a_proxy();
    let (locks, other) = (connect(&url).await, connect(&server.url()).await);
    let guard = other.mutex("waiter").unwrap().lock().await.unwrap();
    let mutex = locks.mutex("waiter").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&other, "waiter", 1).await.unwrap();
    let place = other.inspect("waiter").await.unwrap().unwrap().waiters.unwrap()[0].place.entry;
    for _ in 0..3 {
        proxy.cut();
        timer().sleep(Duration::from_millis(50)).await;
    }
    guard.release().await.unwrap();
    assert_eq!(soon("its turn", waiter).await.unwrap().entry(), place);
}

/// Cut off for longer than the session: it is lost at its deadline, and somebody else has it only after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_stops_believing_before_its_session_ends_and_takes_its_next_lock_in_another() {
    const SHORT: Duration = Duration::from_secs(2);
    let (server, proxy, url) = behind_a_proxy();
    let locks = Locks::builder(&url).ttl(SHORT).connect().await.unwrap();
    let other = connect(&server.url()).await;
    let guard = locks.mutex("ended").unwrap().lock().await.unwrap();
    let mutex = other.mutex("ended").unwrap();
    let heir = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&other, "ended", 1).await.unwrap();
    proxy.refuse();
    proxy.cut();
    let heir = soon("the session ends", heir).await.unwrap();
    assert_eq!(guard.state(), State::Lost(Loss::Expired), "two believe to hold it");
    assert!(heir.token() > guard.token());
    proxy.heal();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    heir.check().unwrap();
    heir.release().await.unwrap();
    let again = soon("a lock in a new session", locks.mutex("ended").unwrap().lock()).await.unwrap();
    again.check().unwrap();
    again.release().await.unwrap();
}

/// The node is made and nobody is told. It is found again by its id, and nobody waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_making_was_not_answered_is_found_again_and_taken_out() {
    let (server, proxy, url) = behind_a_proxy();
    let (locks, other) = (connect(&url).await, connect(&server.url()).await);
    locks.mutex("unanswered").unwrap().lock().await.unwrap().release().await.unwrap();
    proxy.drop_replies(1);
    let guard = soon("the lock", locks.mutex("unanswered").unwrap().lock()).await.unwrap();
    let alone = async || {
        let view = other.inspect("unanswered").await.unwrap().unwrap();
        view.holders.len() == 1 && view.holders[0].place.entry == guard.entry() && view.waiters.unwrap().is_empty()
    };
    until("it is alone in line", alone).await;
    guard.release().await.unwrap();
    assert!(other.inspect("unanswered").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_was_not_answered_says_so_and_frees_the_key() {
    let (server, proxy, url) = behind_a_proxy();
    let (locks, other) = (connect(&url).await, connect(&server.url()).await);
    let guard = locks.mutex("released").unwrap().lock().await.unwrap();
    // Its node is watched from a moment on, and that request must not be the one whose answer is lost.
    timer().sleep(Duration::from_millis(300)).await;
    proxy.drop_replies(1);
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Unreachable, Fate::Unknown), "{error}");
    until("it is free", async || other.inspect("released").await.unwrap().is_none()).await;
}

/// The departure cannot be sent, and the session is kept by another lock: it would keep the node for as long as it lives.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_dropped_while_there_was_no_connection_is_taken_out_on_the_next() {
    let (server, proxy, url) = behind_a_proxy();
    let (locks, other) = (connect(&url).await, connect(&server.url()).await);
    let kept = locks.mutex("kept").unwrap().lock().await.unwrap();
    let dropped = locks.mutex("dropped").unwrap().lock().await.unwrap();
    proxy.refuse();
    proxy.cut();
    until("it is suspect", async || kept.state() == State::Suspect).await;
    drop(dropped);
    proxy.heal();
    let next = soon("its turn", other.mutex("dropped").unwrap().lock()).await.unwrap();
    until("the other one is held again", async || kept.state() == State::Held).await;
    next.release().await.unwrap();
    kept.release().await.unwrap();
}

/// A server that accepts connections and says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_an_error_and_not_busy() {
    let (_, proxy, url) = behind_a_proxy();
    let locks = Locks::builder(&url).ttl(Duration::from_secs(3)).connect().await.unwrap();
    proxy.blackhole();
    let error = soon("a try", locks.mutex("silent").unwrap().try_lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    proxy.heal();
    let guard = soon("the lock", locks.mutex("silent").unwrap().lock()).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_comes_back_keeps_sessions_and_locks() {
    let server = Server::start().unwrap();
    let (locks, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&locks, "k", 1).await.unwrap();
    server.kill();
    until("it is suspect", async || guard.state() == State::Suspect).await;
    server.restart().unwrap();
    until("it is held again", async || guard.state() == State::Held).await;
    assert!(guard.remaining() <= TTL);
    let token = guard.token();
    drop(guard);
    assert!(soon("the waiter's turn", waiter).await.unwrap().token() > token);
}
