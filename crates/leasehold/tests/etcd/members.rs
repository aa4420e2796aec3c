//! Members of a cluster that die, stop, or lead one after the other.

use std::time::Duration;

use leasehold::State;
use leasehold_testbed::etcd::Cluster;

use crate::{connect_for, soon, timer, until_waiting};

const TTL: Duration = Duration::from_secs(10);

fn three() -> Cluster {
    Cluster::builder().members(3).start().unwrap()
}

/// A member's own address first, and then the others'.
fn url_from(cluster: &Cluster, first: usize) -> String {
    let servers = cluster.servers();
    let addresses: Vec<String> =
        (0..servers.len()).map(|nth| servers[(first + nth) % servers.len()].address()).collect();
    format!("etcd://{}", addresses.join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_kept_while_its_client_was_connected_to_a_leader_that_is_killed() {
    let cluster = three();
    let leader = cluster.leader();
    let locks = connect_for(&url_from(&cluster, leader), TTL).await;
    let other = connect_for(&url_from(&cluster, leader + 1), TTL).await;
    let guard = locks.mutex("kept").unwrap().lock().await.unwrap();
    let mutex = other.mutex("kept").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&other, "kept", 1).await.unwrap();
    cluster.servers()[leader].kill();
    // As long as three leases would last, had nobody renewed them.
    for _ in 0..30 {
        timer().sleep(Duration::from_millis(500)).await;
        guard.check().unwrap();
    }
    assert_eq!(guard.state(), State::Held);
    assert!(!waiter.is_finished());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = soon("the waiter's turn", waiter).await.unwrap().unwrap();
    assert!(next.token() > token);
}

/// Each new leader counts the leases from the beginning; they end later for it, and never sooner.
#[tokio::test(flavor = "multi_thread")]
async fn three_changes_of_the_leader_in_a_row_cost_neither_the_lock_nor_the_order_of_tokens() {
    let cluster = three();
    let locks = connect_for(&cluster.url(), TTL).await;
    let guard = locks.mutex("kept").unwrap().lock().await.unwrap();
    let mut token = guard.token();
    for round in 0..3 {
        let leader = cluster.leader();
        cluster.servers()[leader].kill();
        let between = soon("another lock", locks.mutex("between").unwrap().lock()).await;
        let between = between.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(between.token() > token);
        token = between.token();
        between.release().await.unwrap();
        cluster.restart(leader).unwrap();
        guard.check().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    guard.release().await.unwrap();
}

/// It keeps its connections and says nothing, as a member does that is cut off from the others.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_connected_to_a_member_that_stops_goes_on_with_another() {
    let cluster = three();
    let (stopped, rest) = ((cluster.leader() + 1) % 3, (cluster.leader() + 2) % 3);
    let (here, there) =
        (connect_for(&url_from(&cluster, stopped), TTL).await, connect_for(&url_from(&cluster, rest), TTL).await);
    let kept = here.mutex("kept").unwrap().lock().await.unwrap();
    let held = there.mutex("awaited").unwrap().lock().await.unwrap();
    let mutex = here.mutex("awaited").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&there, "awaited", 1).await.unwrap();
    cluster.servers()[stopped].stop();
    held.release().await.unwrap();
    let awaited = soon("the waiter's turn", waiter).await.unwrap().unwrap();
    timer().sleep(TTL).await;
    kept.check().unwrap();
    awaited.check().unwrap();
    cluster.servers()[stopped].cont();
    awaited.release().await.unwrap();
    kept.release().await.unwrap();
}
