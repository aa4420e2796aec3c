//! Waiting without a line: being told, and what happens if one is not.

use std::time::Duration;

use leasehold::Locks;
use leasehold::clock::Moment;

use crate::{LONG, Quorum, soon, timer, until};

/// Those who wait look again by themselves after a second; whoever is in sooner was told.
const TOLD: Duration = Duration::from_millis(600);

async fn handed_over_in(one: &Locks, other: &Locks) -> Duration {
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move {
        let guard = mutex.lock().await.unwrap();
        (timer().now(), guard)
    });
    // Long enough for it to have looked and listened.
    timer().sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished());
    let released_at: Moment = timer().now();
    guard.release().await.unwrap();
    let (held_at, guard) = soon("its turn", waiter).await.unwrap();
    guard.release().await.unwrap();
    released_at.until(held_at)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_told_to_whoever_waits_even_with_a_server_down() {
    let quorum = Quorum::of(3, LONG);
    let (one, other) = (quorum.connect(LONG).await, quorum.connect(LONG).await);
    let took = handed_over_in(&one, &other).await;
    assert!(took < TOLD, "{took:?}");
    quorum.servers[2].stop();
    let took = handed_over_in(&one, &other).await;
    assert!(took < TOLD, "{took:?}");
}

/// Many tasks of several clients want one lock, on servers where none of them has a place in line.
#[tokio::test(flavor = "multi_thread")]
async fn everybody_gets_in_though_all_want_in_at_once() {
    const TASKS: usize = 24;
    let quorum = Quorum::of(3, LONG);
    let (mut tasks, mut tokens) = (tokio::task::JoinSet::new(), Vec::new());
    for nth in 0..TASKS {
        let locks = quorum.connect(LONG).await;
        tasks.spawn(async move {
            let guard = locks.mutex("k").unwrap().lock().await.unwrap();
            let token = guard.token();
            guard.release().await.unwrap();
            (nth, token)
        });
    }
    soon("all of them", async {
        while let Some(done) = tasks.join_next().await {
            tokens.push(done.unwrap().1);
        }
    })
    .await;
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), TASKS, "a token was given twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_that_nobody_waits_on_are_no_longer_listened_on() {
    let quorum = Quorum::of(3, LONG);
    let (one, other) = (quorum.connect(LONG).await, quorum.connect(LONG).await);
    handed_over_in(&one, &other).await;
    let listening = || quorum.servers[0].cli(&["PUBSUB", "CHANNELS", "leasehold:freed:*"]);
    assert_ne!(listening(), "");
    until("nobody listens", async || listening().is_empty()).await;
}
