//! Tasks of one client that stand in line one behind the other pass the lock on before the store knows, where it can be
//! ([`Capabilities::relays`](leasehold::backend::Capabilities::relays)); and never for longer than the store would agree to.

use std::sync::{Arc, Mutex};

use leasehold::{ErrorKind, Guard, Loss};
use tokio::task::{JoinHandle, JoinSet};

use crate::{Client, Fault, Verb, World};

const NAME: &str = "baton";

async fn lock(client: &Client) -> Guard {
    client.mutex(NAME).unwrap().lock().await.unwrap()
}

/// One more that waits, and so many wait then.
async fn waiting(world: &World, client: &Client, nth: usize) -> JoinHandle<Guard> {
    let mutex = client.mutex(NAME).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    world.until_waiting(client, NAME, nth).await;
    waiting
}

/// Gives it back, while nothing that leaves reaches the store.
fn release_unheard(client: &Client, guard: Guard) -> JoinHandle<leasehold::Result<()>> {
    client.faults.always(Verb::Leave, Fault::Swallowed);
    tokio::spawn(guard.release())
}

pub async fn a_lock_is_passed_on_to_the_next_task_before_the_store_knows(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    if !client.capabilities().queueing {
        return;
    }
    let first = lock(&client).await;
    // So that the lease of the first ends before that of the second.
    world.pass(world.ttl() / 5).await;
    let mut second = waiting(&world, &client, 1).await;
    let (entry, token, left, asked_at) = (first.entry(), first.token(), first.remaining(), world.now());
    let releasing = release_unheard(&client, first);
    let passed = world.within(world.slack(), &mut second).await;
    assert_eq!(passed.is_some(), client.capabilities().relays, "{passed:?}");
    if let Some(second) = passed {
        let second = second.unwrap();
        assert!(second.token() > token);
        assert_eq!(world.line(&other, NAME).await.holders[0].place.entry, entry, "the store does not know");
        let believed = asked_at.until(world.now()) + second.remaining();
        assert!(believed <= left, "it believes for {:?} longer than the one before it", believed - left);
        assert!(other.mutex(NAME).unwrap().try_lock().await.unwrap().is_none());
        client.faults.heal();
        world.until_alone(&other, NAME, second.entry()).await;
        // Longer than any lease of before.
        world.pass(world.ttl() * 2).await;
        second.release().await.unwrap();
    } else {
        client.faults.heal();
        second.await.unwrap().release().await.unwrap();
    }
    assert_eq!(releasing.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable, "it was not answered");
    world.until_deserted(&other, NAME).await;
}

/// The store never hears that the first has left, and goes on renewing the place of the second.
pub async fn what_was_passed_on_is_lost_with_the_lease_that_it_was_passed_on_by(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    if !client.capabilities().relays {
        return;
    }
    let first = lock(&client).await;
    world.pass(world.ttl() / 5).await;
    let second = waiting(&world, &client, 1).await;
    let third = waiting(&world, &other, 2).await;
    let (left, asked_at) = (first.remaining(), world.now());
    let _releasing = release_unheard(&client, first);
    let second = second.await.unwrap();
    assert_eq!(world.within(world.ttl() * 2, second.lost()).await, Some(Loss::Expired));
    let took = asked_at.until(world.now());
    assert!(took <= left + world.slack(), "told {:?} late", took - left);
    assert!(!third.is_finished(), "two held it at once");
    client.faults.heal();
    assert_eq!(second.release().await.unwrap_err().kind(), ErrorKind::Lost);
    third.await.unwrap().release().await.unwrap();
}

pub async fn what_was_passed_on_can_be_given_back_before_the_store_knows(world: World) {
    let client = world.client().await;
    if !client.capabilities().relays {
        return;
    }
    let first = lock(&client).await;
    let second = waiting(&world, &client, 1).await;
    let third = waiting(&world, &client, 2).await;
    client.faults.next(Verb::Leave, Fault::Slow(world.ttl() / 10));
    let releasing = tokio::spawn(first.release());
    second.await.unwrap().release().await.unwrap();
    third.await.unwrap().release().await.unwrap();
    releasing.await.unwrap().unwrap();
    world.until_deserted(&client, NAME).await;
}

pub async fn a_lock_is_not_passed_on_past_another_client(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    if !client.capabilities().relays {
        return;
    }
    let first = lock(&client).await;
    let between = waiting(&world, &other, 1).await;
    let last = waiting(&world, &client, 2).await;
    let releasing = release_unheard(&client, first);
    world.pass(world.ttl() / 10).await;
    assert!(!last.is_finished(), "it passed somebody by");
    assert!(!between.is_finished(), "two held it at once");
    client.faults.heal();
    let between = between.await.unwrap();
    assert!(!last.is_finished());
    between.release().await.unwrap();
    last.await.unwrap().release().await.unwrap();
    let _ = releasing.await.unwrap();
}

/// It is told, and not listening any more.
pub async fn a_turn_that_is_passed_on_to_somebody_who_gives_up_goes_to_the_next(world: World) {
    let client = world.client().await;
    if !client.capabilities().relays {
        return;
    }
    let first = lock(&client).await;
    let mutex = client.mutex(NAME).unwrap();
    let mut second = Box::pin(mutex.lock());
    let line = world.until_waiting(&client, NAME, 1);
    tokio::select! {
        biased;
        _ = &mut second => panic!("two held it at once"),
        () = line => {}
    }
    let third = waiting(&world, &client, 2).await;
    first.release().await.unwrap();
    drop(second);
    let third = world.within(world.notice().await, third).await.expect("the next is told").unwrap();
    third.release().await.unwrap();
    world.until_deserted(&client, NAME).await;
}

/// Observers look at the store, and see every leader.
pub async fn leadership_is_not_passed_on_before_the_store_knows(world: World) {
    let client = world.client().await;
    if !client.capabilities().relays {
        return;
    }
    let election = client.election(NAME).unwrap();
    let first = election.campaign("first").await.unwrap();
    let second = tokio::spawn(async move { election.campaign("second").await.unwrap() });
    world.until_waiting(&client, NAME, 1).await;
    client.faults.always(Verb::Leave, Fault::Swallowed);
    let resigning = tokio::spawn(first.resign());
    world.pass(world.ttl() / 10).await;
    assert!(!second.is_finished());
    client.faults.heal();
    second.await.unwrap().resign().await.unwrap();
    let _ = resigning.await.unwrap();
}

/// Tasks of two clients in any order, so that some are neighbours and some are not, and all come back again and again.
pub async fn a_crowd_of_two_clients_takes_turns_without_a_loss(world: World) {
    const TASKS: usize = 100;
    const TURNS: usize = 5;
    let clients = [world.client().await, world.client().await];
    if !clients[0].capabilities().relays {
        return;
    }
    let last = Arc::new(Mutex::new(None));
    let mut tasks = JoinSet::new();
    for nth in 0..TASKS {
        let (mutex, last) = (clients[nth % 2].mutex(NAME).unwrap(), last.clone());
        tasks.spawn(async move {
            for turn in 0..TURNS {
                let guard = mutex.lock().await.unwrap();
                let before = last.lock().unwrap().replace(guard.token());
                assert!(before < Some(guard.token()), "{before:?} was followed by {}", guard.token());
                let entry = guard.entry();
                guard.release().await.unwrap_or_else(|error| panic!("task {nth}, turn {turn}, {entry}: {error}"));
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    world.until_deserted(&clients[0], NAME).await;
}
