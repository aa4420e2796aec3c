//! Turns follow arrival, and nobody who died, left or slept stands in the way of those behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Guard;
use tokio::task::JoinHandle;

use crate::{Client, Fault, Verb, World};

const NAME: &str = "ticket office";

/// Who was served, in order.
#[derive(Clone, Default)]
struct Served(Arc<Mutex<Vec<usize>>>);

impl Served {
    /// Starts to wait as number `nth`, and writes that down once it is its turn.
    fn start_waiting(&self, client: &Client, nth: usize) -> JoinHandle<Guard> {
        let (mutex, served) = (client.mutex(NAME).unwrap(), self.clone());
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            served.0.lock().unwrap().push(nth);
            guard
        })
    }

    fn so_far(&self) -> Vec<usize> {
        self.0.lock().unwrap().clone()
    }
}

/// A store without lines promises no order; that it serves everybody is checked in `exclusive`.
async fn has_no_order(world: &World) -> bool {
    !world.capabilities().await.queueing
}

pub async fn waiters_are_served_in_order(world: World) {
    if has_no_order(&world).await {
        return;
    }
    let clients = [world.client().await, world.client().await, world.client().await];
    let (served, first) = (Served::default(), clients[0].mutex(NAME).unwrap().lock().await.unwrap());
    let mut waiting = Vec::new();
    for nth in 0..world.crowd() {
        waiting.push(served.start_waiting(&clients[nth % clients.len()], nth));
        world.until_waiting(&clients[0], NAME, nth + 1).await;
    }
    let mut token = first.token();
    first.release().await.unwrap();
    for waiter in waiting {
        let guard = waiter.await.unwrap();
        assert!(guard.token() > token);
        token = guard.token();
        guard.release().await.unwrap();
    }
    assert_eq!(served.so_far(), (0..world.crowd()).collect::<Vec<_>>());
}

pub async fn later_arrivals_never_overtake(world: World) {
    if has_no_order(&world).await {
        return;
    }
    let (one, two, late) = (world.client().await, world.client().await, world.client().await);
    let (served, mut guard) = (Served::default(), one.mutex(NAME).unwrap().lock().await.unwrap());
    for round in 0..4 {
        let waiter = served.start_waiting(&two, 2 * round);
        world.until_waiting(&one, NAME, 1).await;
        let behind = served.start_waiting(&late, 2 * round + 1);
        world.until_waiting(&one, NAME, 2).await;
        assert!(late.mutex(NAME).unwrap().try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
        assert!(late.mutex(NAME).unwrap().try_lock().await.unwrap().is_none(), "a try overtook two waiters");
        waiter.await.unwrap().release().await.unwrap();
        guard = behind.await.unwrap();
    }
    assert_eq!(served.so_far(), (0..8).collect::<Vec<_>>());
}

pub async fn a_dead_waiter_does_not_block_the_line(world: World) {
    if has_no_order(&world).await {
        return;
    }
    let (one, dead, two) = (world.client().await, world.client().await, world.client().await);
    let (served, first) = (Served::default(), one.mutex(NAME).unwrap().lock().await.unwrap());
    let died = served.start_waiting(&dead, 0);
    world.until_waiting(&one, NAME, 1).await;
    let waiter = served.start_waiting(&two, 1);
    world.until_waiting(&one, NAME, 2).await;
    dead.faults.always_all(Fault::Swallowed);
    died.abort();
    let died_at = world.now();
    first.release().await.unwrap();
    waiter.await.unwrap().check().unwrap();
    let stalled = died_at.until(world.now());
    assert!(stalled <= world.ttl() + world.slack(), "the dead waiter stalled the line for {stalled:?}");
    assert_eq!(served.so_far(), [1]);
}

pub async fn order_survives_a_waiter_in_the_middle_giving_up(world: World) {
    if has_no_order(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    let (served, first) = (Served::default(), one.mutex(NAME).unwrap().lock().await.unwrap());
    let mut waiting = Vec::new();
    for nth in 0..5 {
        waiting.push(served.start_waiting(&two, nth));
        world.until_waiting(&one, NAME, nth + 1).await;
    }
    for nth in [2, 1] {
        waiting.remove(nth).abort();
    }
    world.until_waiting(&one, NAME, 3).await;
    first.release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap().release().await.unwrap();
    }
    assert_eq!(served.so_far(), [0, 3, 4]);
}

/// It wakes to find its place given up for lost, and takes another at the end of the line.
pub async fn a_waiter_paused_past_its_places_lease_lines_up_again_and_is_served_at_last(world: World) {
    if has_no_order(&world).await {
        return;
    }
    let (one, two) = (world.client().await, world.client().await);
    let (paused, hand) = world.client_on_moved_clock().await;
    let (served, first) = (Served::default(), one.mutex(NAME).unwrap().lock().await.unwrap());
    let sleeper = served.start_waiting(&paused, 0);
    world.until_waiting(&one, NAME, 1).await;
    let waiter = served.start_waiting(&two, 1);
    world.until_waiting(&one, NAME, 2).await;
    let place = world.line(&one, NAME).await.waiters.unwrap()[0].place.entry;
    hand.jump(world.ttl());
    let moved_back = async || {
        let waiters = world.line(&one, NAME).await.waiters.unwrap();
        waiters.len() == 2 && waiters.iter().all(|waiter| waiter.place.entry != place)
    };
    world.until("the sleeper has another place", world.ttl(), moved_back).await;
    first.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    sleeper.await.unwrap().release().await.unwrap();
    assert_eq!(served.so_far(), [1, 0]);
}

/// The lease of a place is at most ten seconds, while a client with a long TTL keeps asking for longer than that: so
/// the store forgets the place before the waiter despairs of the store.
pub async fn a_waiter_whose_place_the_store_forgot_lines_up_again_and_is_served_at_last(world: World) {
    const PLACE: Duration = Duration::from_secs(10);
    if has_no_order(&world).await || world.capabilities().await.sessions {
        return; // with a session, a place is forgotten with everything else that its client has
    }
    let (one, two) = (world.client().await, world.client().await);
    let cut_off = world.client_with(|builder| builder.ttl(PLACE * 6)).await;
    let (served, first) = (Served::default(), one.mutex(NAME).unwrap().lock().await.unwrap());
    let forgotten = served.start_waiting(&cut_off, 0);
    world.until_waiting(&one, NAME, 1).await;
    let waiter = served.start_waiting(&two, 1);
    world.until_waiting(&one, NAME, 2).await;
    for verb in [Verb::Enter, Verb::Changed, Verb::Renew] {
        cut_off.faults.always(verb, Fault::Swallowed);
    }
    world.pass(PLACE).await;
    world.until_waiting(&one, NAME, 1).await;
    cut_off.faults.heal();
    let again = async || world.line(&one, NAME).await.waiters.unwrap().len() == 2;
    world.until("the forgotten one is in line again", PLACE, again).await;
    first.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    forgotten.await.unwrap().release().await.unwrap();
    assert_eq!(served.so_far(), [1, 0]);
}
