//! What every lock promises that one holder has at a time: a mutex, a write lock, a semaphore of one.

use std::sync::Arc;
use std::time::Duration;

use leasehold::backend::Departure;
use leasehold::{Attempt, Busy, ErrorKind};
use tokio::task::JoinHandle;

use crate::{AnyGuard, AnyLock, Client, Fault, History, Kind, RECHECK_MAX, Verb, World};

const NAME: &str = "billing/close";

fn start_waiting(lock: &AnyLock) -> JoinHandle<AnyGuard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// Many tasks of two clients take one lock over and over; no two beliefs overlap, and none is lost.
pub async fn two_holders_never_overlap_under_contention(world: World, kind: Kind) {
    const ROUNDS: usize = 8;
    let clients = [world.client().await, world.client().await];
    let history = History::new();
    let mut tasks = tokio::task::JoinSet::new();
    let world = Arc::new(world);
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

pub async fn second_contender_waits_until_the_first_leaves(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let waiting = start_waiting(&kind.lock(&two, NAME));
    world.until_contending(&two, NAME).await;
    world.pass(world.ttl() / 4).await;
    assert!(!waiting.is_finished(), "two hold at once");
    let token = first.token();
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    second.check().unwrap();
    assert!(token.is_none() || token < second.token(), "{token:?} was followed by {:?}", second.token());
    world.until_alone(&two, NAME, second.entry()).await;
}

pub async fn try_refuses_while_held_and_takes_when_free(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).try_lock().await.unwrap().expect("nobody holds it");
    for client in [&one, &two] {
        assert!(kind.lock(client, NAME).try_lock().await.unwrap().is_none());
    }
    world.until_alone(&two, NAME, first.entry()).await;
    first.release().await.unwrap();
    let second = kind.lock(&two, NAME).try_lock().await.unwrap().expect("it is free again");
    second.release().await.unwrap();
    world.until_deserted(&two, NAME).await;
}

/// The waiter has not heard yet that its turn has come. It is its turn all the same.
pub async fn try_does_not_overtake_a_waiter(world: World, kind: Kind) {
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    if !two.capabilities().queueing {
        return;
    }
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    two.faults.always(Verb::Changed, Fault::Swallowed);
    let waiting = start_waiting(&kind.lock(&two, NAME));
    world.until_waiting(&one, NAME, 1).await;
    let late = kind.lock(&three, NAME);
    assert!(late.try_lock().await.unwrap().is_none());
    first.release().await.unwrap();
    assert!(late.try_lock().await.unwrap().is_none(), "the late one overtook the waiter");
    let second = waiting.await.unwrap();
    world.until_alone(&one, NAME, second.entry()).await;
}

pub async fn lock_within_gives_up_in_time_and_leaves_no_entry(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let (limit, started) = (world.ttl() / 4, world.now());
    let given_up = kind.lock(&two, NAME).lock_within(limit).await.unwrap();
    let waited = started.until(world.now());
    assert!(given_up.is_none());
    assert!(waited >= limit, "gave up after {waited:?} of {limit:?}");
    assert!(waited <= limit + world.slack(), "gave up only after {waited:?} of {limit:?}");
    world.until_alone(&one, NAME, first.entry()).await;
    first.check().unwrap();
}

/// The limit ends while the waiter looks again. That the store is slow to answer does not make the lock less busy.
pub async fn lock_within_that_ends_during_a_look_is_busy_and_no_error(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let slow = world.ttl() / 8;
    two.faults.always(Verb::Enter, Fault::Slow(slow));
    let limit = slow + RECHECK_MAX + slow / 4;
    assert!(kind.lock(&two, NAME).lock_within(limit).await.unwrap().is_none());
    let looks = two.faults.calls(Verb::Enter);
    // Without a line it may be told to look in between.
    assert!(looks == 2 || looks > 2 && !two.capabilities().queueing, "it looked {looks} times");
    world.until_alone(&one, NAME, first.entry()).await;
}

pub async fn lock_within_no_time_only_tries(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).lock_within(Duration::ZERO).await.unwrap().expect("nobody holds it");
    let started = world.now();
    assert!(kind.lock(&two, NAME).lock_within(Duration::ZERO).await.unwrap().is_none());
    assert!(started.until(world.now()) <= world.slack());
    assert_eq!((two.faults.calls(Verb::Enter), two.faults.calls(Verb::Leave)), (1, 0), "it joined the line");
    first.release().await.unwrap();
    let second = kind.lock(&two, NAME).lock_within(Duration::ZERO).await.unwrap();
    second.expect("it is free again").check().unwrap();
}

pub async fn a_waiter_is_granted_within_its_limit(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let (lock, limit, started) = (kind.lock(&two, NAME), world.ttl(), world.now());
    let waiting = tokio::spawn(async move { lock.lock_within(limit).await.unwrap() });
    world.until_contending(&two, NAME).await;
    world.pass(limit / 4).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap().expect("there was time enough");
    assert!(started.until(world.now()) <= limit + world.slack());
    second.release().await.unwrap();
}

/// Shortly after the waiter looked, and shorter before its limit than it would look again.
pub async fn a_lock_that_comes_free_between_the_last_look_and_the_limit_is_not_missed(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let (lock, limit) = (kind.lock(&two, NAME), RECHECK_MAX * 3 / 4);
    let waiting = tokio::spawn(async move { lock.lock_within(limit).await.unwrap() });
    world.until_contending(&two, NAME).await;
    world.pass(limit / 10).await;
    first.release().await.unwrap();
    assert!(waiting.await.unwrap().is_some(), "it was free for most of the time");
}

pub async fn busy_says_who_holds_it_since_when_and_how_many_wait(world: World, kind: Kind) {
    let (one, two) = (world.client_with(|builder| builder.label("worker-7")).await, world.client().await);
    let three = world.client().await;
    let queueing = two.capabilities().queueing;
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let waiting = start_waiting(&kind.lock(&two, NAME));
    world.until_contending(&two, NAME).await;
    let age = world.ttl() / 10;
    world.pass(age).await;
    for limit in [Duration::ZERO, world.ttl() / 10] {
        let busy = busy(&three, kind, limit).await;
        let [holder] = &busy.held_by[..] else { panic!("one holds it, and not {:?}", busy.held_by) };
        assert_eq!((&busy.key, holder.place.entry), (first.key(), first.entry()));
        assert_eq!((&*holder.note.owner, holder.note.pid), ("worker-7", std::process::id()));
        assert!(!holder.note.host.is_empty());
        assert!(holder.age >= age.saturating_sub(Duration::from_millis(2)), "it is {:?} old", holder.age);
        assert!(holder.age <= age + limit + world.slack() * 2, "it is only {:?} old", holder.age);
        if queueing {
            assert_eq!(busy.waiting, Some(1), "after waiting {limit:?}");
        }
        assert!(busy.to_string().contains("worker-7"), "{busy}");
    }
    first.release().await.unwrap();
    waiting.await.unwrap();
}

async fn busy(client: &Client, kind: Kind, limit: Duration) -> Busy {
    match kind.lock(client, NAME).attempt_within(limit).await.unwrap() {
        Attempt::Busy(busy) => busy,
        Attempt::Held(guard) => panic!("two hold at once: {guard:?}"),
    }
}

pub async fn dropped_guard_releases(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let waiting = {
        let _guard = kind.lock(&one, NAME).lock().await.unwrap();
        let waiting = start_waiting(&kind.lock(&two, NAME));
        world.until_contending(&two, NAME).await;
        waiting
    };
    let second = world.within(world.notice().await, waiting).await.expect("the dropped guard has left").unwrap();
    drop(second);
    world.until_deserted(&two, NAME).await;
}

pub async fn release_hands_over_without_waiting_for_the_recheck(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    if !two.capabilities().queueing {
        return;
    }
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let waiting = start_waiting(&kind.lock(&two, NAME));
    world.until_contending(&two, NAME).await;
    first.release().await.unwrap();
    world.within(world.slack(), waiting).await.expect("it is told at once").unwrap();
}

pub async fn leaving_twice_is_harmless_to_the_next_holder(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let left = world.line(&one, NAME).await.holders.remove(0);
    assert_eq!(left.place.entry, first.entry());
    assert_eq!(one.evict(&left).await.unwrap(), Departure::WasHolding);
    let second = kind.lock(&two, NAME).lock().await.unwrap();
    assert_eq!(one.evict(&left).await.unwrap(), Departure::WasGone);
    assert_eq!(first.release().await.unwrap_err().kind(), ErrorKind::Lost);
    world.until_alone(&one, NAME, second.entry()).await;
    second.check().unwrap();
    second.release().await.unwrap();
}

/// Somebody else has it meanwhile, and keeps it.
pub async fn release_after_expiry_says_lost_and_frees_nobody_elses_lock(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    one.faults.always(Verb::Renew, Fault::Swallowed);
    world.pass(world.ttl()).await;
    let second = kind.lock(&two, NAME).lock().await.unwrap();
    let lost = first.release().await.unwrap_err();
    assert_eq!((lost.kind(), lost.key()), (ErrorKind::Lost, Some(second.key())));
    world.until_alone(&two, NAME, second.entry()).await;
    second.check().unwrap();
    second.release().await.unwrap();
}

pub async fn the_first_grant_costs_one_request_and_a_release_one(world: World, kind: Kind) {
    let client = world.client().await;
    let costs = || {
        use Verb::{Annotate, Changed, Enter, Inspect, Leave, Watch};
        [Enter, Leave, Changed, Annotate, Inspect, Watch].map(|verb| client.faults.calls(verb))
    };
    let guard = kind.lock(&client, NAME).lock().await.unwrap();
    assert_eq!(costs(), [1, 0, 0, 0, 0, 0]);
    guard.release().await.unwrap();
    assert_eq!(costs(), [1, 1, 0, 0, 0, 0]);
}

pub async fn a_hand_over_costs_the_waiter_no_further_request_to_enter(world: World, kind: Kind) {
    let (one, two) = (world.client().await, world.client().await);
    if !two.capabilities().queueing {
        return;
    }
    let first = kind.lock(&one, NAME).lock().await.unwrap();
    let waiting = start_waiting(&kind.lock(&two, NAME));
    world.until_waiting(&one, NAME, 1).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    assert_eq!(two.faults.calls(Verb::Enter), 1, "it had to look again");
    second.release().await.unwrap();
}
