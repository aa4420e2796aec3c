//! A pooler in between.

use std::time::Duration;

use leasehold::backend::Verdict;
use leasehold_testbed::postgres::{Pooler, Server};

use crate::{TTL, connect, hand_over, held_and_awaited, timer};

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_swallows_notifications_is_noticed_and_told_of() {
    let server = Server::start().unwrap();
    let pooler = Pooler::start(&server).unwrap();
    let (direct, pooled) = (connect(&server.url()).await, connect(&pooler.url()).await);
    assert!(direct.capabilities().pushes && !pooled.capabilities().pushes);
    let verdict = async |locks: &leasehold::Locks| {
        let findings = locks.checkup().await.unwrap();
        findings.into_iter().find(|finding| finding.check == "notifications").unwrap().verdict
    };
    assert_eq!((verdict(&direct).await, verdict(&pooled).await), (Verdict::Fine, Verdict::Warning));
    let (_locks, guard, waiter) = held_and_awaited(&pooler.url(), TTL).await;
    hand_over(guard, waiter).await;
}

/// The next statement may be done in another session, which would not know the name.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_no_statement_has_a_name() {
    let server = Server::builder().setting("log_statement", "all").start().unwrap();
    let pooler = Pooler::start(&server).unwrap();
    let locks = connect(&pooler.url()).await;
    let (mutex, before) = (locks.mutex("k").unwrap(), server.statements());
    for _ in 0..10 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    assert!(server.statements() >= before + 20);
    assert_eq!(server.statements_by_name(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_behind_a_pooler_are_asked_about_together_and_seldom_while_nothing_moves() {
    let server = Server::builder().setting("log_statement", "all").start().unwrap();
    let pooler = Pooler::start(&server).unwrap();
    let (holder, waiting) = (connect(&server.url()).await, connect(&pooler.url()).await);
    let _guard = holder.mutex("k").unwrap().lock().await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let mutex = waiting.mutex("k").unwrap();
        waiters.spawn(async move { mutex.lock().await });
    }
    crate::until_waiting(&holder, "k", 100).await.unwrap();
    timer().sleep(Duration::from_secs(3)).await; // until it has slowed down
    const SECONDS: usize = 5;
    let before = server.statements();
    timer().sleep(Duration::from_secs(SECONDS as u64)).await;
    let asked = server.statements() - before;
    assert!(asked < 10 * SECONDS, "{asked} statements in {SECONDS} s");
}
