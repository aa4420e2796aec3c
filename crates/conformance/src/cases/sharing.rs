//! Many readers or one writer.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Guard, SharedGuard};
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};

use crate::{Client, Fault, History, Kind, Verb, World};

const NAME: &str = "prices";

/// Whether there is nothing to share, which the store must then say.
async fn has_no_shares(world: &World) -> bool {
    !Kind::WriteLock.is_offered(world).await
}

fn start_reading(client: &Client) -> JoinHandle<SharedGuard> {
    let lock = client.rw_lock(NAME).unwrap();
    tokio::spawn(async move { lock.read().await.unwrap() })
}

fn start_writing(client: &Client) -> JoinHandle<Guard> {
    let lock = client.rw_lock(NAME).unwrap();
    tokio::spawn(async move { lock.write().await.unwrap() })
}

pub async fn readers_share(world: World) {
    if has_no_shares(&world).await {
        return;
    }
    let clients = [world.client().await, world.client().await];
    let mut readers = Vec::new();
    for nth in 0..world.crowd() {
        let lock = clients[nth % 2].rw_lock(NAME).unwrap();
        let reader = if nth % 3 == 0 { lock.try_read().await.unwrap() } else { Some(lock.read().await.unwrap()) };
        readers.push(reader.expect("readers share"));
    }
    assert_eq!(world.line(&clients[0], NAME).await.holders.len(), world.crowd());
    for reader in readers {
        reader.release().await.unwrap();
    }
    world.until_deserted(&clients[0], NAME).await;
}

pub async fn a_writer_excludes_readers_and_writers(world: World) {
    if has_no_shares(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    let writer = one.rw_lock(NAME).unwrap().write().await.unwrap();
    for client in [&one, &two] {
        let lock = client.rw_lock(NAME).unwrap();
        assert!(lock.try_read().await.unwrap().is_none());
        assert!(lock.try_write().await.unwrap().is_none());
    }
    writer.release().await.unwrap();
    let reader = two.rw_lock(NAME).unwrap().try_read().await.unwrap().expect("the writer has left");
    assert!(one.rw_lock(NAME).unwrap().try_write().await.unwrap().is_none(), "a writer beside a reader");
    reader.release().await.unwrap();
    one.rw_lock(NAME).unwrap().try_write().await.unwrap().expect("the reader has left");
}

pub async fn writer_is_not_overtaken_by_later_readers(world: World) {
    if has_no_shares(&world).await {
        return;
    }
    let (one, two, late) = (world.client().await, world.client().await, world.client().await);
    if !one.capabilities().queueing {
        return; // where there is no line, there is no order in it
    }
    let reader = one.rw_lock(NAME).unwrap().read().await.unwrap();
    let writer = start_writing(&two);
    world.until_waiting(&one, NAME, 1).await;
    assert!(late.rw_lock(NAME).unwrap().try_read().await.unwrap().is_none(), "a try overtook the writer");
    let behind = start_reading(&late);
    world.until_waiting(&one, NAME, 2).await;
    world.pass(world.ttl() / 4).await;
    assert!(!behind.is_finished(), "a later reader overtook the writer");
    reader.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(!behind.is_finished(), "a reader beside a writer");
    writer.release().await.unwrap();
    behind.await.unwrap().release().await.unwrap();
}

pub async fn readers_behind_a_writer_get_in_together_when_it_leaves(world: World) {
    if has_no_shares(&world).await {
        return;
    }
    let clients = [world.client().await, world.client().await];
    let writer = clients[0].rw_lock(NAME).unwrap().write().await.unwrap();
    let together = Arc::new(Barrier::new(world.crowd()));
    let mut readers = JoinSet::new();
    for nth in 0..world.crowd() {
        let (lock, together) = (clients[nth % 2].rw_lock(NAME).unwrap(), together.clone());
        readers.spawn(async move {
            let guard = lock.read().await.unwrap();
            together.wait().await;
            guard.release().await.unwrap();
        });
    }
    if clients[0].capabilities().queueing {
        world.until_waiting(&clients[0], NAME, world.crowd()).await;
    } else {
        let asked = || clients.iter().map(|client| client.faults.calls(Verb::Enter)).sum::<usize>();
        // The writer asked too.
        world.until("all have asked", world.ttl() / 2, async || asked() > world.crowd()).await;
    }
    writer.release().await.unwrap();
    world
        .within(world.notice().await, readers.join_all())
        .await
        .expect("all are told at once, and none waits for another");
}

pub async fn a_crashed_reader_does_not_block_the_writer_for_longer_than_its_lease(world: World) {
    if has_no_shares(&world).await {
        return;
    }
    let (dead, one, two) = (world.client().await, world.client().await, world.client().await);
    let crashed = dead.rw_lock(NAME).unwrap().read().await.unwrap();
    let alive = one.rw_lock(NAME).unwrap().read().await.unwrap();
    let writer = start_writing(&two);
    world.until_contending(&two, NAME).await;
    dead.faults.always_all(Fault::Swallowed);
    let died_at = world.now();
    alive.release().await.unwrap();
    let writer = writer.await.unwrap();
    let blocked = died_at.until(world.now());
    assert!(crashed.check().is_err(), "the writer has it while a reader believes in its share");
    assert!(blocked <= world.ttl() + world.notice().await, "blocked for {blocked:?}");
    writer.release().await.unwrap();
}

pub async fn a_write_lock_and_a_mutex_of_one_name_exclude_each_other(world: World) {
    if has_no_shares(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    let (lock, mutex) = (one.rw_lock(NAME).unwrap(), two.mutex(NAME).unwrap());
    let writer = lock.write().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    let token = writer.token();
    writer.release().await.unwrap();
    let guard = mutex.lock().await.unwrap();
    assert!(guard.token() > token);
    assert!(lock.try_write().await.unwrap().is_none());
    assert!(lock.try_read().await.unwrap().is_none());
    guard.release().await.unwrap();
    let reader = lock.read().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    reader.release().await.unwrap();
}

/// A writer weighs as much as all readers together.
pub async fn writers_are_alone_under_contention_with_readers(world: World) {
    const ROUNDS: usize = 8;
    if has_no_shares(&world).await {
        return;
    }
    let clients = [world.client().await, world.client().await];
    let history = History::new();
    let world = Arc::new(world);
    let everything = u32::try_from(world.crowd()).unwrap();
    let mut tasks = JoinSet::new();
    for nth in 0..world.crowd() {
        let lock = clients[nth % 2].rw_lock(NAME).unwrap();
        let (history, world) = (history.clone(), world.clone());
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let hold_for = Duration::from_micros(fastrand::u64(50..2_000));
                if (nth + round) % 4 == 0 {
                    let guard = lock.write().await.unwrap();
                    let from = world.now();
                    world.pass(hold_for).await;
                    history.believed(from, world.now(), everything, Some(guard.token()));
                    guard.release().await.unwrap();
                } else {
                    let guard = lock.read().await.unwrap();
                    let from = world.now();
                    world.pass(hold_for).await;
                    history.believed(from, world.now(), 1, None);
                    guard.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(history.len(), world.crowd() * ROUNDS);
    history.check(everything);
}
