//! So many at a time.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{ErrorKind, Fate, SharedGuard};
use tokio::task::{JoinHandle, JoinSet};

use crate::{Client, Fault, History, Kind, World};

const NAME: &str = "payment-api";

/// Whether there is nothing to count, which the store must then say.
async fn has_no_permits(world: &World) -> bool {
    !Kind::SemaphoreOfOne.is_offered(world).await
}

fn start_acquiring(client: &Client, count: u32, of: u32) -> JoinHandle<SharedGuard> {
    let semaphore = client.semaphore(NAME, of).unwrap();
    tokio::spawn(async move { semaphore.acquire(count).await.unwrap() })
}

async fn acquire(client: &Client, count: u32, of: u32) -> SharedGuard {
    client.semaphore(NAME, of).unwrap().acquire(count).await.unwrap()
}

pub async fn permits_are_never_over_committed_under_contention(world: World) {
    const ROUNDS: usize = 8;
    const PERMITS: u32 = 5;
    if has_no_permits(&world).await {
        return;
    }
    let clients = [world.client().await, world.client().await];
    let history = History::new();
    let world = Arc::new(world);
    let mut tasks = JoinSet::new();
    for nth in 0..world.crowd() {
        let semaphore = clients[nth % 2].semaphore(NAME, PERMITS).unwrap();
        let (history, world) = (history.clone(), world.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let count = fastrand::u32(1..=PERMITS);
                let guard = semaphore.acquire(count).await.unwrap();
                let from = world.now();
                world.pass(Duration::from_micros(fastrand::u64(50..2_000))).await;
                history.believed(from, world.now(), count, None);
                guard.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(history.len(), world.crowd() * ROUNDS);
    history.check(PERMITS);
}

pub async fn nobody_sleeps_beside_a_free_permit(world: World) {
    if has_no_permits(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    let wide = acquire(&one, 3, 4).await;
    acquire(&two, 1, 4).await.release().await.unwrap();
    let mut waiting = Vec::new();
    for nth in 0..3 {
        waiting.push(start_acquiring(&two, 2, 4));
        world.until_waiting(&one, NAME, nth + 1).await;
    }
    wide.release().await.unwrap();
    let last = waiting.pop().unwrap();
    let mut held = Vec::new();
    for waiter in waiting {
        held.push(world.within(world.slack(), waiter).await.expect("there is room for two").unwrap());
    }
    assert!(!last.is_finished(), "six of four permits are held");
    held.pop().unwrap().release().await.unwrap();
    world.within(world.slack(), last).await.expect("there is room for one more").unwrap();
}

pub async fn a_wide_claim_is_not_starved_by_narrow_ones(world: World) {
    if has_no_permits(&world).await {
        return;
    }
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    let mut narrow = Vec::new();
    for _ in 0..3 {
        narrow.push(acquire(&one, 1, 3).await);
    }
    let wide = start_acquiring(&two, 3, 3);
    world.until_waiting(&one, NAME, 1).await;
    let behind = [start_acquiring(&three, 1, 3), start_acquiring(&three, 1, 3)];
    world.until_waiting(&one, NAME, 3).await;
    for guard in narrow {
        assert!(!wide.is_finished());
        guard.release().await.unwrap();
        assert!(three.semaphore(NAME, 3).unwrap().try_acquire(1).await.unwrap().is_none(), "a try overtook");
        assert!(behind.iter().all(|waiter| !waiter.is_finished()), "a narrow claim overtook the wide one");
    }
    let wide = world.within(world.slack(), wide).await.expect("all are free").unwrap();
    assert!(behind.iter().all(|waiter| !waiter.is_finished()), "four of three permits are held");
    wide.release().await.unwrap();
    for waiter in behind {
        world.within(world.slack(), waiter).await.expect("there is room for both").unwrap();
    }
}

pub async fn permits_come_back_after_a_drop(world: World) {
    if has_no_permits(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    for _ in 0..5 {
        let held = [acquire(&one, 2, 3).await, acquire(&two, 1, 3).await];
        assert!(two.semaphore(NAME, 3).unwrap().try_acquire(1).await.unwrap().is_none());
        let waiting = start_acquiring(&two, 3, 3);
        world.until_waiting(&one, NAME, 1).await;
        drop(held);
        world.within(world.slack(), waiting).await.expect("all permits are back").unwrap();
        world.until_deserted(&one, NAME).await;
    }
}

pub async fn permits_come_back_after_a_crash(world: World) {
    if has_no_permits(&world).await {
        return;
    }
    let (dead, one, two) = (world.client().await, world.client().await, world.client().await);
    let crashed = acquire(&dead, 2, 3).await;
    let alive = acquire(&one, 1, 3).await;
    let waiting = start_acquiring(&two, 2, 3);
    world.until_waiting(&one, NAME, 1).await;
    dead.faults.always_all(Fault::Swallowed);
    let died_at = world.now();
    let guard = waiting.await.unwrap();
    let blocked = died_at.until(world.now());
    assert!(crashed.check().is_err(), "five of three permits are believed to be held");
    assert!(blocked <= world.ttl() + world.slack(), "blocked for {blocked:?}");
    alive.check().unwrap();
    guard.release().await.unwrap();
    acquire(&two, 2, 3).await.release().await.unwrap();
}

/// A request whose answer was lost is made again under another name, and still counts once.
pub async fn a_permit_is_counted_once_though_its_answer_was_lost(world: World) {
    if has_no_permits(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    for fault in [Fault::ReplyLost, Fault::Unanswered] {
        one.faults.next(crate::Verb::Enter, fault);
        let first = acquire(&one, 1, 2).await;
        world.until_alone(&two, NAME, first.entry()).await;
        let second = two.semaphore(NAME, 2).unwrap().try_acquire(1).await.unwrap().expect("one permit is free");
        first.release().await.unwrap();
        second.release().await.unwrap();
        world.until_deserted(&two, NAME).await;
    }
}

pub async fn a_capacity_that_disagrees_is_refused_and_changes_nothing(world: World) {
    if has_no_permits(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    let _held = acquire(&one, 2, 3).await;
    let waiting = start_acquiring(&one, 3, 3);
    world.until_waiting(&one, NAME, 1).await;
    let entries = async || {
        let view = world.line(&one, NAME).await;
        let waiters = view.waiters.unwrap();
        let of = |entries: Vec<leasehold::backend::EntryView>| {
            entries.into_iter().map(|entry| (entry.place, entry.ticket)).collect::<Vec<_>>()
        };
        (view.capacity, of(view.holders), of(waiters))
    };
    let before = entries().await;
    for permits in [1, 2, 4] {
        let other = two.semaphore(NAME, permits).unwrap();
        let refused = [
            other.acquire(1).await.unwrap_err(),
            other.try_acquire(1).await.unwrap_err(),
            other.acquire_within(1, world.ttl()).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!((error.kind(), error.fate()), (ErrorKind::CapacityMismatch, Fate::NotApplied), "{error}");
            assert_eq!(error.key(), Some(other.key()));
        }
    }
    assert_eq!(entries().await, before);
    waiting.abort();
}

pub async fn another_capacity_is_fine_once_the_line_is_empty(world: World) {
    if has_no_permits(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    for permits in [3, 1, 7] {
        let guard = acquire(&one, permits, permits).await;
        assert!(two.semaphore(NAME, permits).unwrap().try_acquire(1).await.unwrap().is_none());
        guard.release().await.unwrap();
        world.until_deserted(&one, NAME).await;
    }
}
