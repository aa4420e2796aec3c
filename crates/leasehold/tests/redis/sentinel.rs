//! A master that dies behind its sentinels.

use leasehold::{ErrorKind, Locks};
use leasehold_testbed::redis::{Sentinel, Server};
use leasehold_testbed::until;

use crate::{connect, soon, until_waiting};

fn url(sentinel: &Sentinel) -> String {
    format!("redis+sentinel://{}/{}", sentinel.sentinel_addresses().join(","), sentinel.master_name())
}

/// Everything that was written is on the replicas too.
fn until_replicated(sentinel: &Sentinel) {
    let keys = |node: &Server| {
        let mut keys: Vec<String> = node.cli(&["KEYS", "*"]).lines().map(ToOwned::to_owned).collect();
        keys.sort();
        keys
    };
    until("the replicas are in step", || {
        let master = keys(&sentinel.nodes()[0]);
        sentinel.nodes()[1..].iter().all(|node| keys(node) == master)
    })
    .unwrap();
}

/// Asks until it is answered: in a failover requests fail for a while, and say that it is passing.
async fn answered<T>(what: &str, ask: impl AsyncFn() -> leasehold::Result<T>) -> T {
    soon(what, async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_replicas_knew_outlives_the_master() {
    let sentinel = Sentinel::start().unwrap();
    let (one, other) = (connect(&url(&sentinel)).await, connect(&url(&sentinel)).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    until_replicated(&sentinel);

    let old = sentinel.kill_master();
    sentinel.wait_for_failover(old).unwrap();
    let view = answered("the new master is found", async || one.inspect("k").await).await.unwrap();
    assert_eq!((view.holders[0].token, view.waiters.unwrap().len()), (Some(guard.token()), 1));
    guard.check().unwrap();
    let before = guard.token();
    soon("leaving", guard.release()).await.unwrap();
    let next = soon("the waiter's turn on the new master", waiter).await.unwrap();
    assert!(next.token() > before);
    let new = one.mutex("new").unwrap();
    soon("a new lock", new.lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_the_replicas_did_not_know_is_told_and_the_waiter_is_served() {
    let sentinel = Sentinel::start().unwrap();
    let (one, other) = (connect(&url(&sentinel)).await, connect(&url(&sentinel)).await);
    // They stand still, and what is written from here on is not even on its way to them.
    for replica in &sentinel.nodes()[1..] {
        replica.stop();
    }
    sentinel.nodes()[0].cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();

    let old = sentinel.kill_master();
    for replica in &sentinel.nodes()[1..] {
        replica.cont();
    }
    sentinel.wait_for_failover(old).unwrap();
    soon("the holder is told", guard.lost()).await;
    let next = soon("the waiter's turn on the new master", waiter).await.unwrap();
    assert!(next.token() > guard.token(), "{:?} after {:?}", next.token(), guard.token());
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_refused() {
    let sentinel = Sentinel::shared();
    let url = format!("redis+sentinel://{}/nobody", sentinel.sentinel_addresses().join(","));
    let refused = Locks::builder(&url).connect().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable, "{refused}");
    assert!(refused.to_string().contains("nobody"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_down_are_passed_over() {
    let sentinel = Sentinel::start().unwrap();
    sentinel.sentinels()[0].kill();
    sentinel.sentinels()[1].kill();
    let locks = connect(&url(&sentinel)).await;
    soon("a lock", locks.mutex("k").unwrap().lock()).await.unwrap();
}
