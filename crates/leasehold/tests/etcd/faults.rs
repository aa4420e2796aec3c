//! What happens to entries and sessions behind their owners' backs.

use std::time::Duration;

use leasehold::{ErrorKind, Loss, State};
use leasehold_testbed::etcd::Cluster;

use crate::{connect, connect_for, keys, soon, timer, until_waiting};

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_key_is_deleted_is_told_at_once_and_the_next_one_holds() {
    let server = &Cluster::shared().servers()[0];
    let (locks, other) = (connect(&Cluster::shared().url()).await, connect(&Cluster::shared().url()).await);
    let guard = locks.mutex("deleted").unwrap().lock().await.unwrap();
    let bystander = locks.mutex("not-deleted").unwrap().lock().await.unwrap();
    let mutex = other.mutex("deleted").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&other, "deleted", 1).await.unwrap();
    let [held, _] = &keys(server, "lock/deleted/")[..] else { panic!("two are in line") };
    server.cli(&["del", held]);
    assert_eq!(soon("it is told", guard.lost()).await, Loss::Gone);
    let next = soon("the next one's turn", waiter).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    bystander.release().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_on_a_session_that_is_revoked_is_lost_at_once_and_the_next_lock_has_a_new_one() {
    let server = &Cluster::shared().servers()[0];
    let (locks, other) = (connect(&Cluster::shared().url()).await, connect(&Cluster::shared().url()).await);
    let blocking = other.mutex("revoked-waiter").unwrap().lock().await.unwrap();
    let guards = [
        locks.mutex("revoked-1").unwrap().lock().await.unwrap(),
        locks.mutex("revoked-2").unwrap().lock().await.unwrap(),
    ];
    let mutex = locks.mutex("revoked-waiter").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&other, "revoked-waiter", 1).await.unwrap();
    let place = other.inspect("revoked-waiter").await.unwrap().unwrap().waiters.unwrap()[0].place.entry;
    let key = keys(server, "lock/revoked-1/").remove(0);
    let lease = key.trim_start_matches("lock/revoked-1/").split_once('-').unwrap().0.to_owned();
    server.cli(&["lease", "revoke", &lease]);
    for guard in &guards {
        assert_eq!(soon("it is told", guard.lost()).await, Loss::Gone);
    }
    let again = soon("the waiter lines up again", async {
        loop {
            let waiters = other.inspect("revoked-waiter").await.unwrap().unwrap().waiters.unwrap();
            if let Some(waiter) = waiters.first() {
                break waiter.place.entry;
            }
            timer().sleep(Duration::from_millis(5)).await;
        }
    });
    assert_ne!(again.await, place);
    blocking.release().await.unwrap();
    soon("its turn", waiter).await.unwrap().unwrap().release().await.unwrap();
    locks.mutex("revoked-1").unwrap().lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_still_held_and_watched_after_its_server_was_restarted() {
    let cluster = Cluster::start().unwrap();
    let locks = connect_for(&cluster.url(), Duration::from_secs(20)).await;
    let guard = locks.mutex("restarted").unwrap().lock().await.unwrap();
    cluster.servers()[0].kill();
    let other = locks.mutex("another").unwrap().lock_within(Duration::from_millis(200)).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Unreachable);
    cluster.restart(0).unwrap();
    soon("it is confirmed", async {
        while guard.remaining() < Duration::from_secs(17) || guard.state() != State::Held {
            timer().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let other = soon("the store is back", locks.mutex("another").unwrap().lock()).await.unwrap();
    other.release().await.unwrap();
    let server = &cluster.servers()[0];
    server.cli(&["del", &keys(server, "lock/restarted/")[0]]);
    assert_eq!(soon("it is told", guard.lost()).await, Loss::Gone);
}

/// The watch cannot be taken up where it was: the server has forgotten what happened since.
#[tokio::test(flavor = "multi_thread")]
async fn neither_a_waiter_nor_a_holder_misses_what_was_compacted_while_they_were_cut_off() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let proxy = leasehold_testbed::Proxy::start(("127.0.0.1", server.port())).unwrap();
    let (near, far) = (connect(&cluster.url()).await, connect(&format!("etcd://{}", proxy.address())).await);
    let held = near.mutex("compacted").unwrap().lock().await.unwrap();
    let evicted = far.mutex("evicted").unwrap().lock().await.unwrap();
    let mutex = far.mutex("compacted").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&near, "compacted", 1).await.unwrap();
    timer().sleep(Duration::from_millis(200)).await; // so that both are watched
    proxy.refuse();
    proxy.cut();
    held.release().await.unwrap();
    server.cli(&["del", &keys(server, "lock/evicted/")[0]]);
    let status = server.cli(&["put", "x", "y", "--write-out", "json"]);
    let revision: String =
        status.split("\"revision\":").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    server.cli(&["compact", &revision]);
    proxy.heal();
    assert_eq!(soon("the holder is told", evicted.lost()).await, Loss::Gone);
    soon("the waiter's turn", waiter).await.unwrap().unwrap().release().await.unwrap();
}
