//! What every lock promises that one holder has at a time: a mutex, a write lock, a semaphore of one.

use std::time::Duration;

use crate::{History, Kind, World};

/// Many tasks of two clients take one lock over and over; no two beliefs overlap, and none is lost.
pub async fn two_holders_never_overlap_under_contention(world: World, kind: Kind) {
    const ROUNDS: usize = 8;
    let clients = [world.client().await, world.client().await];
    let history = History::new();
    let mut tasks = tokio::task::JoinSet::new();
    let world = std::sync::Arc::new(world);
    for nth in 0..world.crowd() {
        let lock = kind.lock(&clients[nth % 2], "contended");
        let (history, world) = (history.clone(), world.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = lock.lock().await.unwrap();
                let from = world.now();
                world.pass(Duration::from_micros(300)).await;
                history.believed(from, world.now(), 1, guard.token());
                guard.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(history.len(), world.crowd() * ROUNDS);
    history.check(1);
}
