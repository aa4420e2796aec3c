//! Members of an ensemble that die, stop, or lose each other.

use std::time::Duration;

use leasehold::{Locks, Loss, State};
use leasehold_testbed::zookeeper::Ensemble;

use crate::{soon, until, until_waiting};

/// Long enough for an ensemble to find a leader on a busy machine.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_three_leaders_in_a_row() {
    let ensemble = Ensemble::start(3).unwrap();
    let client = async || Locks::builder(&ensemble.url()).ttl(LONG).connect().await.unwrap();
    let (locks, other) = (client().await, client().await);
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&locks, "k", 1).await.unwrap();
    for _ in 0..3 {
        let leader = ensemble.leader();
        ensemble.members()[leader].kill();
        let answers = async || locks.inspect("k").await.is_ok();
        until("the others decide without it", answers).await;
        until("it is held", async || guard.state() == State::Held).await;
        ensemble.members()[leader].restart().unwrap();
    }
    assert!(!waiter.is_finished());
    let token = guard.token();
    drop(guard);
    assert!(soon("the waiter's turn", waiter).await.unwrap().token() > token);
}

/// Whichever member a client is at.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_stops_answering_is_left_for_another() {
    let ensemble = Ensemble::start(3).unwrap();
    let locks = Locks::builder(&ensemble.url()).ttl(LONG).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    for member in ensemble.members() {
        member.stop();
        let answers = async || locks.inspect("k").await.is_ok();
        until("another member answers", answers).await;
        until("it is held", async || guard.state() == State::Held).await;
        member.cont();
        // At first it takes itself for what it was. A write through it is done only when it takes part, and without it and the next one
        // there is no majority.
        let takes_part = async || match leasehold::connect(&member.url()).await {
            Ok(locks) => locks.mutex("another").unwrap().try_lock().await.is_ok(),
            Err(_) => false,
        };
        until("it takes part again", takes_part).await;
    }
    guard.release().await.unwrap();
}

/// It answers pings for seconds after it has lost its leader, who ends the session meanwhile. A client that took them for a
/// confirmation would believe for too long.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_at_an_isolated_member_stops_believing_before_somebody_else_holds() {
    const SHORT: Duration = Duration::from_secs(3);
    let ensemble = Ensemble::start_isolable(3).unwrap();
    let follower = (ensemble.leader() + 1) % 3;
    let at = |member: usize| ensemble.members()[member].url();
    let locks = Locks::builder(&at(follower)).ttl(SHORT).connect().await.unwrap();
    let other = Locks::builder(&at(ensemble.leader())).ttl(LONG).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let heir = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&other, "k", 1).await.unwrap();
    ensemble.isolate(follower);
    let heir = soon("the session ends", heir).await.unwrap();
    assert_eq!(guard.state(), State::Lost(Loss::Expired), "two believe to hold it");
    assert!(heir.token() > guard.token());
    ensemble.heal(follower);
    heir.release().await.unwrap();
}
