//! Waiting for a lock on a store that loses messages, answers late, or does not answer.

use std::time::Duration;

use leasehold::{ErrorKind, Fate, Guard};
use tokio::task::JoinHandle;

use crate::{Client, Fault, RECHECK_MAX, Verb, World};

const NAME: &str = "waiting room";

fn start_waiting(client: &Client) -> JoinHandle<Guard> {
    let mutex = client.mutex(NAME).unwrap();
    tokio::spawn(async move { mutex.lock().await.unwrap() })
}

pub async fn a_missed_wake_up_costs_at_most_one_recheck(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let first = one.mutex(NAME).unwrap().lock().await.unwrap();
    two.faults.always(Verb::Changed, Fault::Swallowed);
    let waiting = start_waiting(&two);
    world.until_contending(&two, NAME).await;
    world.pass(world.ttl() / 10).await;
    first.release().await.unwrap();
    let second = world.within(RECHECK_MAX + world.slack(), waiting).await.expect("it looks again by itself").unwrap();
    second.release().await.unwrap();
}

/// Nor does it make the waiter ask without pause: as many wake-ups fail here as would fit into a moment.
pub async fn an_erroring_wake_up_costs_time_and_never_the_lock(world: World) {
    const FAILING: usize = 500;
    let (one, two) = (world.client().await, world.client().await);
    let first = one.mutex(NAME).unwrap().lock().await.unwrap();
    for _ in 0..FAILING {
        two.faults.next(Verb::Changed, Fault::Unsent);
    }
    let waiting = start_waiting(&two);
    world.until_contending(&two, NAME).await;
    world.pass(world.ttl() / 4).await;
    let looks = two.faults.calls(Verb::Enter);
    assert!(looks < FAILING / 4, "it looked {looks} times in {:?}", world.ttl() / 4);
    first.release().await.unwrap();
    let second = world.within(RECHECK_MAX + world.slack(), waiting).await.expect("it looks again by itself").unwrap();
    second.release().await.unwrap();
    world.until_deserted(&one, NAME).await;
}

/// A store without lines may still tell that a key has come free.
pub async fn whoever_is_refused_listens_until_the_key_is_free(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    if two.capabilities().queueing {
        return;
    }
    let first = one.mutex(NAME).unwrap().lock().await.unwrap();
    let waiting = start_waiting(&two);
    world.until("it listens", world.ttl() / 2, async || two.faults.calls(Verb::Changed) > 0).await;
    first.release().await.unwrap();
    let second = world.within(world.notice().await, waiting).await.expect("it learns that the key is free").unwrap();
    second.release().await.unwrap();
}

pub async fn a_place_is_kept_if_the_store_comes_back_before_its_lease_ends(world: World) {
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    if !one.capabilities().queueing {
        return;
    }
    let first = one.mutex(NAME).unwrap().lock().await.unwrap();
    let cut_off = start_waiting(&two);
    world.until_waiting(&one, NAME, 1).await;
    let behind = start_waiting(&three);
    world.until_waiting(&one, NAME, 2).await;
    let places = async || {
        let waiters = world.line(&one, NAME).await.waiters.unwrap();
        waiters.into_iter().map(|waiter| waiter.place.entry).collect::<Vec<_>>()
    };
    let before = places().await;
    for fault in [Fault::Unsent, Fault::Swallowed, Fault::ReplyLost] {
        two.faults.always_all(fault);
        world.pass(world.ttl() / 8).await;
        two.faults.heal();
        world.pass(world.ttl() / 2).await;
        assert_eq!(places().await, before, "after {fault:?}");
    }
    first.release().await.unwrap();
    let second = cut_off.await.unwrap();
    assert!(!behind.is_finished());
    second.release().await.unwrap();
    behind.await.unwrap().release().await.unwrap();
}

/// The fate says whether the store may have acted, and what it may have done is undone.
pub async fn an_unreachable_store_is_an_error_after_a_bounded_time(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    for (fault, fate) in [
        (Fault::Unsent, Fate::NotApplied),
        (Fault::Swallowed, Fate::Unknown),
        (Fault::ReplyLost, Fate::Unknown),
        (Fault::Unanswered, Fate::Unknown),
    ] {
        let (mutex, started) = (one.mutex(NAME).unwrap(), world.now());
        one.faults.always(Verb::Enter, fault);
        let error = mutex.lock().await.unwrap_err();
        let took = started.until(world.now());
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Unreachable, fate), "{fault:?}: {error}");
        assert_eq!(error.key(), Some(mutex.key()));
        assert!(took >= world.ttl() / 3, "{fault:?}: gave up after {took:?}");
        assert!(took <= world.ttl() * 2 / 3 + world.slack(), "{fault:?}: gave up only after {took:?}");
        one.faults.heal();
        world.pass(world.ttl() / 4).await;
        world.until_deserted(&two, NAME).await;
        mutex.lock().await.unwrap().release().await.unwrap();
    }
}

/// Two attempts' time is what `lock` gives a store that is silent, and it goes on trying for all of it.
pub async fn a_store_that_comes_back_within_two_attempts_time_is_not_given_up_on(world: World) {
    let client = world.client_with(|builder| builder.ttl(Duration::from_secs(4))).await;
    client.faults.always(Verb::Enter, Fault::Unsent);
    let waiting = start_waiting(&client);
    world.pass(Duration::from_millis(850)).await;
    client.faults.heal();
    waiting.await.unwrap().release().await.unwrap();
}

pub async fn a_try_on_an_unreachable_store_is_an_error_and_not_busy(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let mutex = one.mutex(NAME).unwrap();
    for fault in [Fault::Unsent, Fault::Swallowed, Fault::ReplyLost, Fault::Unanswered] {
        one.faults.next(Verb::Enter, fault);
        let started = world.now();
        let error = mutex.try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{fault:?}");
        assert!(started.until(world.now()) <= world.ttl() / 6 + world.slack());
        world.pass(world.ttl() / 4).await;
        world.until_deserted(&two, NAME).await;
    }
}

/// Whatever became of the failed request, its entry does not stay: not even if it arrives after the lock was taken by
/// another.
pub async fn one_failed_request_to_enter_is_repeated_and_leaves_no_ghost(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let mutex = one.mutex(NAME).unwrap();
    let late = Fault::Late(world.ttl() / 4);
    for fault in [Fault::Unsent, Fault::ReplyLost, Fault::Unanswered, Fault::Swallowed, late] {
        one.faults.next(Verb::Enter, fault);
        let guard = mutex.lock().await.unwrap();
        world.pass(world.ttl() / 4).await;
        world.until_alone(&two, NAME, guard.entry()).await;
        guard.release().await.unwrap();
        world.until_deserted(&two, NAME).await;
    }
}

/// The client's machine was suspended while the answer was on its way: most of the lease is over when it is read.
pub async fn a_grant_that_is_read_too_late_is_an_error_and_never_a_guard(world: World) {
    let (paused, hand) = world.client_on_moved_clock().await;
    let watcher = world.client().await;
    for slept in [world.ttl() * 95 / 100, world.ttl() * 2] {
        paused.faults.next(Verb::Enter, Fault::SlowReply(world.ttl() / 10));
        let mutex = paused.mutex(NAME).unwrap();
        let locking = tokio::spawn(async move { mutex.lock().await });
        world.until("it was granted", world.ttl() / 10, async || watcher.inspect(NAME).await.unwrap().is_some()).await;
        hand.jump(slept);
        let error = locking.await.unwrap().expect_err("most of the lease is over");
        assert_eq!(error.kind(), ErrorKind::TooLate, "{error}");
        world.until_deserted(&watcher, NAME).await;
    }
    assert_eq!(paused.leases_kept(), 0);
}

pub async fn a_grant_whose_answer_takes_too_long_is_given_up_and_leaves_no_entry(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let slow = Fault::SlowReply(world.ttl() * 95 / 100);
    one.faults.always(Verb::Enter, slow);
    let error = one.mutex(NAME).unwrap().lock().await.expect_err("no answer comes in time");
    assert_eq!((error.kind(), error.fate()), (ErrorKind::Unreachable, Fate::Unknown), "{error}");
    world.pass(world.ttl() / 4).await;
    world.until_deserted(&two, NAME).await;
}

pub async fn without_a_limit_a_waiter_waits_longer_than_any_lease(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let first = one.mutex(NAME).unwrap().lock().await.unwrap();
    let waiting = start_waiting(&two);
    world.until_contending(&two, NAME).await;
    world.pass(world.ttl() * 5 / 2).await;
    assert!(!waiting.is_finished());
    first.release().await.unwrap();
    let notice = world.notice().await;
    let second = world.within(notice, waiting).await.expect("it still waits").unwrap();
    assert!(second.remaining() > Duration::ZERO);
    second.release().await.unwrap();
}
