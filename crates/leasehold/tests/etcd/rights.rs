//! Users, passwords, encrypted connections, and the gate.

use leasehold::ErrorKind;
use leasehold::Locks;
use leasehold::backend::etcd::Etcd;
use leasehold::fence::{FenceGate as _, FencingToken};
use leasehold_testbed::Tls;
use leasehold_testbed::etcd::Cluster;

use crate::{connect, until_waiting};

/// A server that knows a user who may do nothing but lock, and a root.
fn guarded() -> Cluster {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    server.cli(&["user", "add", "root:toor"]);
    server.cli(&["user", "grant-role", "root", "root"]);
    server.cli(&["role", "add", "locker"]);
    server.cli(&["role", "grant-permission", "--prefix=true", "locker", "readwrite", "lock/"]);
    server.cli(&["user", "add", "worker:hunter2"]);
    server.cli(&["user", "grant-role", "worker", "locker"]);
    server.cli(&["auth", "enable"]);
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_write_under_the_namespace_alone_can_do_everything_there_and_nothing_elsewhere() {
    let cluster = guarded();
    let address = cluster.servers()[0].address();
    let url = format!("etcd://worker:hunter2@{address}");
    let (locks, other) = (connect(&url).await, connect(&url).await);
    let guard = locks.mutex("allowed").unwrap().lock().await.unwrap();
    let mutex = other.mutex("allowed").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&other, "allowed", 1).await.unwrap();
    let view = other.inspect("allowed").await.unwrap().unwrap();
    other.ask_to_yield(&view.holders[0]).await.unwrap();
    guard.yield_requested().await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    let mut leadership = locks.election("office").unwrap().campaign("me").await.unwrap();
    leadership.proclaim("still me").await.unwrap();
    let permits = locks.semaphore("pool", 2).unwrap();
    drop((permits.acquire(1).await.unwrap(), permits.acquire(1).await.unwrap()));
    assert!(!locks.inspect_all().await.unwrap().is_empty());

    let elsewhere = Locks::builder(&url).namespace("other").connect().await.unwrap();
    let refused = elsewhere.mutex("k").unwrap().lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable, "{refused}");
    assert!(refused.to_string().contains("permission denied") && !refused.to_string().contains("hunter2"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_and_not_shown() {
    let cluster = guarded();
    let address = cluster.servers()[0].address();
    for login in ["worker:hunter3", "nobody:hunter3"] {
        let refused = leasehold::connect(&format!("etcd://{login}@{address}")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable, "{refused:?}");
        assert!(!format!("{refused} {refused:?}").contains("hunter3"), "{refused:?}");
    }
    let nobody = connect(&format!("etcd://{address}")).await;
    assert!(nobody.mutex("k").unwrap().lock().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_connection_is_made_only_to_whom_the_authority_knows() {
    let (tls, stranger) = (Tls::new().unwrap(), Tls::new().unwrap());
    let cluster = Cluster::builder().tls(&tls).start().unwrap();
    let url = |tls: &Tls| format!("{}?ca={}", cluster.url(), tls.ca().display());
    let locks = connect(&url(&tls)).await;
    let guard = locks.mutex("encrypted").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    for refused in [url(&stranger), cluster.url(), cluster.url().replace("etcds", "etcd")] {
        let error = leasehold::connect(&refused).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{refused}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_on_the_cluster_refuses_a_token_that_is_older_than_one_it_has_seen() {
    let store = Etcd::connect(&Cluster::shared().url()).await.unwrap();
    let token = |number| FencingToken::new(number).unwrap();
    let gate = store.gate("fence/account-7");
    for number in [9, 10, 10, 99, 100] {
        gate.admit(token(number)).await.unwrap();
    }
    let stale = gate.admit(token(99)).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Stale);
    // It is the cluster that remembers.
    let again = Etcd::connect(&Cluster::shared().url()).await.unwrap().gate("fence/account-7");
    assert_eq!(again.admit(token(9)).await.unwrap_err().kind(), ErrorKind::Stale);
    again.admit(token(101)).await.unwrap();
    store.gate("fence/account-8").admit(token(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_the_store_tells_what_of_it_should_worry() {
    let cluster = Cluster::builder().members(3).start().unwrap();
    let locks = connect(&cluster.url()).await;
    let findings = locks.checkup().await.unwrap();
    assert!(findings.iter().all(|finding| finding.verdict == leasehold::backend::Verdict::Fine), "{findings:?}");
    cluster.servers()[2].kill();
    let findings = locks.checkup().await.unwrap();
    let worries: Vec<_> = findings.iter().filter(|f| f.verdict > leasehold::backend::Verdict::Fine).collect();
    assert_eq!(worries.len(), 1, "{findings:?}");
    assert_eq!(worries[0].check, "reach");
}
