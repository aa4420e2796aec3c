//! Grants that replicas must confirm.

use std::time::Duration;

use leasehold::clock::{Clock, Timer};
use leasehold::{ErrorKind, Fate, Guard, Locks};
use leasehold_testbed::redis::{Builder, Server};
use leasehold_testbed::until;
use tokio::task::JoinHandle;

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

/// How long something is looked at that must not happen.
const STANDSTILL: Duration = Duration::from_millis(300);

async fn assert_not_believed(task: &JoinHandle<Guard>) {
    Timer::on_callers_runtime(Clock::boot()).sleep(STANDSTILL).await;
    assert!(!task.is_finished(), "a grant is believed that no replica has");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_believed_when_a_replica_has_it_and_not_before() {
    let (master, replica) = pair();
    let url = format!("{}?replicas=1", master.url());
    let (one, other) = (connect(&url).await, connect(&url).await);
    let lock = |locks: &Locks| {
        let mutex = locks.mutex("k").unwrap();
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    };
    let held_on = |server: &Server| server.cli(&["GET", "lock:k"]);
    replica.stop();
    let holder = lock(&one);
    until("the master has granted it", || !held_on(&master).is_empty()).unwrap();
    assert_not_believed(&holder).await;
    replica.cont();
    let guard = soon("the replica's word", holder).await.unwrap();
    let before = held_on(&replica);
    assert_eq!(before, held_on(&master));

    let waiter = lock(&other);
    until_waiting(&one, "k", 1).await.unwrap();
    replica.stop();
    guard.release().await.unwrap();
    until("the master has handed it over", || held_on(&master) != before).unwrap();
    assert_not_believed(&waiter).await;
    replica.cont();
    let guard = soon("the replica's word", waiter).await.unwrap();
    assert_eq!(held_on(&replica), held_on(&master));
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
