//! Grants that replicas must confirm.

use leasehold::{ErrorKind, Fate};
use leasehold_testbed::redis::{Builder, Server};
use leasehold_testbed::until;

use crate::{connect, soon, until_waiting};

fn pair() -> (Server, Server) {
    pair_of(Server::builder())
}

/// A master and its replica, in step.
pub(crate) fn pair_of(settings: Builder) -> (Server, Server) {
    let settings = settings.setting("repl-diskless-sync-delay", "0");
    let master = settings.start().unwrap();
    let replica = settings.setting("replicaof", &format!("127.0.0.1 {}", master.port())).start().unwrap();
    until("they are in step", || {
        let asked = ["INFO", "replication"];
        replica.cli(&asked).contains("master_link_status:up") && master.cli(&asked).contains("state=online")
    })
    .unwrap();
    (master, replica)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_believed_is_on_a_replica() {
    let (master, replica) = pair();
    let url = format!("{}?replicas=1", master.url());
    let (one, other) = (connect(&url).await, connect(&url).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let held = replica.cli(&["GET", "lock:k"]);
    assert_eq!(held, master.cli(&["GET", "lock:k"]));
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    guard.release().await.unwrap();
    let guard = soon("the waiter's turn", waiter).await.unwrap();
    let next = replica.cli(&["GET", "lock:k"]);
    assert!(!next.is_empty() && next != held, "{next}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_no_replica_confirms_is_not_believed_and_nothing_is_left_held() {
    let (master, replica) = pair();
    let locks = connect(&format!("{}?replicas=1", master.url())).await;
    replica.kill();
    let refused = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert_eq!((refused.kind(), refused.fate()), (ErrorKind::Unreachable, Fate::Unknown), "{refused}");
    assert!(refused.to_string().contains("0 of 1 replicas confirmed"), "{refused}");
    until("nothing is left", || master.cli(&["EXISTS", "lock:k", "{lock:k}:entries"]) == "0").unwrap();
    let findings = locks.checkup().await.unwrap();
    assert!(findings.iter().any(|finding| finding.to_string().contains("must confirm every grant")), "{findings:?}");

    replica.restart().unwrap();
    soon("a lock, with the replica back", locks.mutex("k").unwrap().lock()).await.unwrap().release().await.unwrap();
}
