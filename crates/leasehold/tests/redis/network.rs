//! What goes wrong on the way to a server.

use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold::{ErrorKind, Locks, Loss};
use leasehold_testbed::redis::Server;
use leasehold_testbed::{Proxy, until};

use crate::{TTL, connect, soon, until_waiting};

/// A server, a client beside it, and a client behind a proxy.
async fn near_and_far(ttl: Duration) -> (Server, Proxy, Locks, Locks) {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let near = connect(&server.url()).await;
    let far = Locks::builder(&format!("redis://{}", proxy.address())).ttl(ttl).connect().await.unwrap();
    (server, proxy, near, far)
}

fn is_free(server: &Server) -> bool {
    server.cli(&["EXISTS", "lock:k", "{lock:k}:entries", "{lock:k}:queue", "{lock:k}:leases"]) == "0"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_came_while_the_waiter_was_cut_off_is_taken_when_it_is_back() {
    let (_server, proxy, near, far) = near_and_far(TTL).await;
    let guard = near.mutex("k").unwrap().lock().await.unwrap();
    let mutex = far.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&near, "k", 1).await.unwrap();
    proxy.refuse();
    proxy.cut();
    let before = guard.token();
    guard.release().await.unwrap();
    let holder = near.inspect("k").await.unwrap().unwrap().holders.remove(0);
    assert!(holder.token > Some(before), "the waiter has it, and cannot know");
    proxy.heal();
    // It lines up anew if it was cut off in the middle of a question about its place.
    let guard = soon("the waiter's turn", waiter).await.unwrap();
    assert!(Some(guard.token()) >= holder.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_who_came_while_the_observer_was_cut_off_is_seen_when_it_is_back() {
    let (_server, proxy, near, far) = near_and_far(TTL).await;
    let mut leaders = Box::pin(far.election("k").unwrap().observe());
    assert!(soon("nobody leads", leaders.next()).await.unwrap().unwrap().is_none());
    proxy.refuse();
    proxy.cut();
    let _leadership = near.election("k").unwrap().campaign("new").await.unwrap();
    proxy.heal();
    soon("the leader is seen", async {
        while leaders.next().await.unwrap().unwrap().is_none_or(|leader| *leader.value != *b"new") {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_begun_when_the_server_became_read_only_is_not_left_behind() {
    let (server, proxy, _near, far) = near_and_far(Duration::from_secs(60)).await;
    far.mutex("other").unwrap().lock().await.unwrap().release().await.unwrap();
    // So high that the mark is set in vain, and the script has to follow.
    server.cli(&["ZADD", "{lock:k}:tickets", "9000000000000000", "t"]);
    proxy.delay(Duration::from_millis(200));
    let mutex = far.mutex("k").unwrap();
    let trying = tokio::spawn(async move { mutex.try_lock().await });
    until("the mark is set", || server.cli(&["EXISTS", "lock:k"]) == "1").unwrap();
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let refused = soon("a refusal", trying).await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("read-only"), "{refused}");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    proxy.heal();
    until("nothing is left held", || is_free(&server)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_reply_was_lost_is_had_or_given_back() {
    let (server, proxy, _near, far) = near_and_far(TTL).await;
    let mutex = far.mutex("k").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    for _ in 0..5 {
        proxy.drop_replies(1);
        match mutex.try_lock().await {
            Ok(guard) => drop(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
        }
        until("nothing is left held", || is_free(&server)).unwrap();
    }
    let guard = soon("waiting for it", mutex.lock()).await.unwrap();
    proxy.drop_replies(1);
    let _ = guard.release().await;
    until("it is left all the same", || is_free(&server)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whom_nobody_can_reach_stops_believing_before_anybody_else_gets_in() {
    let (_server, proxy, near, far) = near_and_far(Duration::from_secs(2)).await;
    let guard = far.mutex("k").unwrap().lock().await.unwrap();
    let mutex = near.mutex("k").unwrap();
    let next = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&near, "k", 1).await.unwrap();
    proxy.blackhole();
    let next = soon("the lease ends", next).await.unwrap();
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(soon("it knows", guard.lost()).await, Loss::Expired);
    assert!(next.token() > guard.token());
    proxy.heal();
    assert_eq!(soon("leaving late", guard.release()).await.unwrap_err().kind(), ErrorKind::Lost);
    next.check().unwrap();
    assert_eq!(near.inspect("k").await.unwrap().unwrap().holders[0].token, Some(next.token()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_way_is_taken_off_the_lease() {
    let (_server, proxy, _near, far) = near_and_far(Duration::from_secs(10)).await;
    proxy.delay(Duration::from_millis(200));
    let guard = soon("a lock", far.mutex("k").unwrap().lock()).await.unwrap();
    assert!(guard.remaining() <= Duration::from_millis(9_600), "{:?}: there and back", guard.remaining());
    soon("leaving", guard.release()).await.unwrap();
}

/// Such a runtime cannot have a connection, and its locks are taken over ours.
#[test]
fn a_runtime_without_sockets_or_without_timers_takes_locks_all_the_same() {
    let server = Server::start().unwrap();
    let mut with_sockets = tokio::runtime::Builder::new_current_thread();
    let mut with_timers = tokio::runtime::Builder::new_current_thread();
    for builder in
        [with_sockets.enable_io(), with_timers.enable_time(), &mut tokio::runtime::Builder::new_current_thread()]
    {
        builder.build().unwrap().block_on(async {
            let locks = connect(&server.url()).await;
            for _ in 0..2 {
                locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
            }
        });
    }
}
