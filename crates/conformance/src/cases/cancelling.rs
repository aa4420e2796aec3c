//! Whatever is dropped leaves nothing behind, whenever it is dropped.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use leasehold::ErrorKind;

use crate::{Fault, RECHECK_MAX, Verb, World};

const NAME: &str = "cancelled";

/// Between two polls, and a fifth of how slow the store is: so that some polls fall on every side of every request.
const STEP: Duration = Duration::from_millis(1);
const SLOW: Duration = Duration::from_millis(5);

async fn poll_once<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub async fn cancelling_after_any_number_of_polls_leaves_no_entry(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let mutex = one.mutex(NAME).unwrap();
    for fault in [Fault::Slow(SLOW), Fault::SlowReply(SLOW), Fault::Late(SLOW)] {
        one.faults.always(Verb::Enter, fault);
        for polls in 0.. {
            let mut locking = Box::pin(mutex.lock());
            let mut done = None;
            for _ in 0..polls {
                done = poll_once(&mut locking).await;
                if done.is_some() {
                    break;
                }
                world.pass(STEP).await;
            }
            let done = done.map(Result::unwrap).is_some();
            drop(locking);
            world.pass(SLOW * 2).await;
            world.until_deserted(&two, NAME).await;
            if done {
                break;
            }
            assert!(polls < 1000, "{fault:?}: never done");
        }
    }
    assert_eq!(one.leases_kept(), 0);
}

/// Among the moments at which it is dropped is the one at which it has been granted the lock and does not know yet.
pub async fn cancelling_a_waiter_after_any_number_of_polls_leaves_no_entry(world: World) {
    const LEAVES_AT: usize = 10;
    const POLLS_MAX: usize = 20;
    let (one, two, watcher) = (world.client().await, world.client().await, world.client().await);
    two.faults.always(Verb::Enter, Fault::SlowReply(SLOW));
    let (held, awaited) = (one.mutex(NAME).unwrap(), two.mutex(NAME).unwrap());
    for polls in 0..POLLS_MAX {
        let mut holder = Some(held.lock().await.unwrap());
        let mut waiting = Box::pin(awaited.lock());
        let mut done = None;
        for nth in 0..polls {
            if nth == LEAVES_AT
                && let Some(holder) = holder.take()
            {
                holder.release().await.unwrap();
            }
            done = poll_once(&mut waiting).await;
            if done.is_some() {
                break;
            }
            world.pass(STEP).await;
        }
        drop((done, waiting));
        if let Some(holder) = holder {
            world.pass(SLOW * 2).await;
            world.until_alone(&watcher, NAME, holder.entry()).await;
            holder.release().await.unwrap();
        }
        world.until_deserted(&watcher, NAME).await;
    }
    assert_eq!(two.leases_kept(), 0);
}

/// The request was sent and cannot be called back. It arrives when its sender has long given up.
pub async fn a_request_that_arrives_after_its_sender_gave_up_leaves_no_entry(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    for arrives_in in [world.ttl() / 20, world.ttl() / 4] {
        one.faults.next(Verb::Enter, Fault::Late(arrives_in));
        let mutex = one.mutex(NAME).unwrap();
        let locking = tokio::spawn(async move { mutex.lock().await });
        let sent = async || one.faults.calls(Verb::Enter) > 0;
        world.until("the request is sent", world.ttl() / 20, sent).await;
        locking.abort();
        world.pass(arrives_in).await;
        world.until_deserted(&two, NAME).await;
        world.pass(world.ttl() / 4).await;
        world.until_deserted(&two, NAME).await;
    }
}

/// A waiter looked again and got no answer; the next look was granted the lock. The first one was only slow.
pub async fn a_look_that_arrives_after_the_release_brings_no_entry_back(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    if !two.capabilities().queueing {
        return;
    }
    let first = one.mutex(NAME).unwrap().lock().await.unwrap();
    two.faults.always(Verb::Changed, Fault::Swallowed);
    let mutex = two.mutex(NAME).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    world.until_waiting(&one, NAME, 1).await;
    two.faults.next(Verb::Enter, Fault::Late(world.ttl() / 4));
    let looked = async || two.faults.calls(Verb::Enter) == 2;
    world.until("it looks again", RECHECK_MAX + world.slack(), looked).await;
    first.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    world.pass(world.ttl() / 4).await;
    world.until_deserted(&one, NAME).await;
}

pub async fn dropping_a_release_still_releases(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    for fault in [Fault::Slow(SLOW), Fault::SlowReply(SLOW), Fault::Swallowed] {
        for polls in 0..3 {
            let guard = one.mutex(NAME).unwrap().lock().await.unwrap();
            one.faults.next(Verb::Leave, fault);
            let mut releasing = Box::pin(guard.release());
            for _ in 0..polls {
                if poll_once(&mut releasing).await.is_some() {
                    break; // a slow answer is there already, on a machine that is slower
                }
            }
            drop(releasing);
            world.until_deserted(&two, NAME).await;
            one.faults.heal();
        }
    }
}

pub async fn a_departure_that_fails_is_repeated_until_it_succeeds(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    for fault in [Fault::Unsent, Fault::ReplyLost] {
        let guard = one.mutex(NAME).unwrap().lock().await.unwrap();
        let entry = guard.entry();
        one.faults.next(Verb::Leave, fault);
        one.faults.next(Verb::Leave, Fault::Unsent);
        let before = one.faults.calls(Verb::Leave);
        drop(guard);
        world.until_deserted(&two, NAME).await;
        let confirmed = async || one.faults.calls(Verb::Leave) >= before + 3;
        world.until("the departure is confirmed", world.ttl() / 4, confirmed).await;

        let guard = one.mutex(NAME).unwrap().lock().await.unwrap();
        assert_ne!(guard.entry(), entry, "an id is used once");
        one.faults.next(Verb::Leave, fault);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unreachable);
        world.until_deserted(&two, NAME).await;
    }
}

pub async fn close_waits_until_everything_dropped_has_left(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let guards = [one.mutex("a").unwrap().lock().await.unwrap(), one.mutex("b").unwrap().lock().await.unwrap()];
    one.faults.next(Verb::Leave, Fault::Unsent);
    one.faults.always(Verb::Leave, Fault::Slow(SLOW * 4));
    drop(guards);
    assert!(two.inspect("a").await.unwrap().is_some(), "the departure is slow");
    one.close().await;
    assert!(two.inspect_all().await.unwrap().is_empty(), "closed while something was still to leave");
}

pub async fn closed_locks_refuse_to_be_taken(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    one.close().await;
    let mutex = one.mutex(NAME).unwrap();
    let refused = [
        mutex.lock().await.unwrap_err(),
        mutex.try_lock().await.unwrap_err(),
        mutex.lock_within(world.ttl()).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    assert_eq!(one.faults.calls(Verb::Enter), 0);
    two.mutex(NAME).unwrap().lock().await.unwrap().release().await.unwrap();
}

pub async fn a_guard_stays_held_and_renewed_when_its_locks_are_closed(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let guard = one.mutex(NAME).unwrap().lock().await.unwrap();
    one.close().await;
    world.pass(world.ttl() * 3 / 2).await;
    guard.check().unwrap();
    world.until_alone(&two, NAME, guard.entry()).await;
    guard.release().await.unwrap();
    world.until_deserted(&two, NAME).await;
}

/// The keeper lives as long as the last guard, not as long as the value it was made from.
pub async fn a_guard_stays_held_when_its_locks_are_dropped(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let guard = one.mutex(NAME).unwrap().lock().await.unwrap();
    drop(one);
    world.pass(world.ttl() * 3 / 2).await;
    guard.check().unwrap();
    drop(guard);
    world.until_deserted(&two, NAME).await;
}
