//! Fencing tokens: each exclusive grant has one, and a later grant of the key a larger one, whatever came between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::fence::Gate;
use leasehold::{ErrorKind, FencingToken, Guard};

use crate::{Client, Fault, World};

async fn lock(client: &Client) -> Guard {
    client.mutex("fenced").unwrap().lock().await.unwrap()
}

pub async fn token_grows_across_release(world: World) {
    let clients = [world.client().await, world.client().await];
    let mut last = None;
    for nth in 0..10 {
        let guard = lock(&clients[nth % 2]).await;
        assert!(Some(guard.token()) > last, "{last:?} was followed by {}", guard.token());
        last = Some(guard.token());
        guard.release().await.unwrap();
    }
    // A write lock is another view of the same key.
    if world.capabilities().await.shared {
        let guard = clients[0].rw_lock("fenced").unwrap().write().await.unwrap();
        assert!(Some(guard.token()) > last);
        guard.release().await.unwrap();
    }
}

pub async fn token_grows_across_expiry(world: World) {
    let (crashed, next) = (world.client().await, world.client().await);
    let first = lock(&crashed).await;
    crashed.faults.always_all(Fault::Swallowed);
    let second = lock(&next).await;
    assert!(second.token() > first.token());
    assert!(first.check().is_err(), "two held it at once");
}

pub async fn token_grows_across_eviction(world: World) {
    let (evicted, next) = (world.client().await, world.client().await);
    let first = lock(&evicted).await;
    let view = world.line(&next, "fenced").await;
    next.evict(&view.holders[0]).await.unwrap();
    let second = lock(&next).await;
    assert!(second.token() > first.token());
}

/// Nobody is left who could remember the last token but the store.
pub async fn token_grows_across_a_new_client(world: World) {
    let first = world.client().await;
    let guard = lock(&first).await;
    let last = guard.token();
    guard.release().await.unwrap();
    first.close().await;
    drop(first);
    let second = world.client().await;
    let guard = lock(&second).await;
    assert!(guard.token() > last);
    assert_eq!(world.line(&second, "fenced").await.holders[0].token, Some(guard.token()));
}

/// Holders write their tokens down one after the other; the list they leave is sorted.
pub async fn tokens_grow_in_the_order_of_grants_under_contention(world: World) {
    const ROUNDS: usize = 6;
    let clients = [world.client().await, world.client().await, world.client().await];
    let world = Arc::new(world);
    let tokens: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..world.crowd() {
        let mutex = clients[nth % 3].mutex("fenced").unwrap();
        let (tokens, world) = (tokens.clone(), world.clone());
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                let guard = mutex.lock().await.unwrap();
                tokens.lock().unwrap().push(guard.token());
                if round % 2 == 0 {
                    world.pass(Duration::from_micros(200)).await;
                    guard.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), world.crowd() * ROUNDS);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

/// Shared grants overlap, so that a token would promise an order that there is not.
pub async fn shares_and_permits_have_no_token(world: World) {
    let (client, able) = (world.client().await, world.capabilities().await);
    if able.shared {
        let readers = client.rw_lock("read").unwrap();
        let (_one, _two) = (readers.read().await.unwrap(), readers.read().await.unwrap());
        let line = world.line(&client, "read").await;
        assert_eq!(line.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [None, None]);
    } else {
        assert_eq!(client.rw_lock("read").unwrap_err().kind(), ErrorKind::Unsupported);
    }
    if able.counted {
        let permits = client.semaphore("counted", 3).unwrap();
        let (_one, _two) = (permits.acquire(1).await.unwrap(), permits.acquire(2).await.unwrap());
        let line = world.line(&client, "counted").await;
        assert_eq!(line.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [None, None]);
    } else {
        assert_eq!(client.semaphore("counted", 3).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let guard = lock(&client).await;
    assert_eq!(world.line(&client, "fenced").await.holders[0].token, Some(guard.token()));
}

/// What the tokens are for: a holder sleeps past its lease, and its write arrives after that of the next one.
pub async fn a_gate_refuses_the_write_of_a_holder_that_woke_up_too_late(world: World) {
    let (sleeper, next) = (world.client().await, world.client().await);
    let gate = Gate::new();
    let late = lock(&sleeper).await;
    gate.admit(late.token()).unwrap();
    sleeper.faults.always_all(Fault::Swallowed);
    let current = lock(&next).await;
    gate.admit(current.token()).unwrap();
    let refused = gate.admit(late.token()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stale);
    gate.admit(current.token()).unwrap();
    assert_eq!(gate.highest(), Some(current.token()));
}
