//! Losing a lock: noticed in time, told with its reason, and final.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::{ErrorKind, Loss, State};

use crate::{Client, Fault, Verb, World};

/// The longest that a client takes to ask about a lease again: a third of its life and a tenth of that.
fn renewal_latest(world: &World) -> std::time::Duration {
    world.ttl() * 11 / 30 + world.slack()
}

/// Sets a flag when the future that owns it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Work that never ends, and whether it was dropped.
fn endless_work() -> (impl Future<Output = ()>, Arc<AtomicBool>) {
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Dropped(dropped.clone());
    let work = async move {
        let _flag = flag;
        pending::<()>().await;
    };
    (work, dropped)
}

pub async fn a_lost_lock_is_never_held_again(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let guard = client.mutex("final").unwrap().lock().await.unwrap();
    client.faults.always(Verb::Renew, Fault::ReplyLost);
    assert_eq!(world.within(world.ttl(), guard.lost()).await, Some(Loss::Expired));
    // The store still has the entry, renewed by a request whose reply was lost; and now everything works again.
    client.faults.heal();
    for _ in 0..4 {
        world.pass(world.ttl() / 2).await;
        assert_eq!(guard.state(), State::Lost(Loss::Expired));
        assert!(guard.remaining().is_zero());
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(guard.lost().await, Loss::Expired);
    }
    let next = other.mutex("final").unwrap().try_lock().await.unwrap().expect("nobody renewed it any more");
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.check().unwrap();
    next.release().await.unwrap();
}

/// A renewal is sent before the deadline and confirmed after it.
pub async fn a_late_confirmation_does_not_revive_a_lost_lock(world: World) {
    let client = world.client().await;
    let guard = client.mutex("late").unwrap().lock().await.unwrap();
    client.faults.always(Verb::Renew, Fault::Unsent);
    let nearly_over = async || guard.remaining() < world.ttl() / 8;
    world.until("the lease is nearly over", world.ttl(), nearly_over).await;
    // Longer than what is left, and shorter than the limit of a single request.
    client.faults.always(Verb::Renew, Fault::SlowReply(world.ttl() / 7));
    assert_eq!(world.within(world.ttl(), guard.lost()).await, Some(Loss::Expired));
    for _ in 0..8 {
        world.pass(world.ttl() / 40).await;
        assert_eq!(guard.state(), State::Lost(Loss::Expired));
    }
    assert_eq!(client.leases_kept(), 0);
    drop(guard);
    world.until_deserted(&client, "late").await;
}

/// Even if what the store says of it by itself is not heard.
pub async fn an_eviction_is_noticed_no_later_than_the_next_renewal(world: World) {
    let (client, operator) = (world.client().await, world.client().await);
    client.faults.always(Verb::Notices, Fault::Unsent);
    let guard = client.mutex("evicted").unwrap().lock().await.unwrap();
    let view = world.line(&operator, "evicted").await;
    operator.evict(&view.holders[0]).await.unwrap();
    let evicted_at = world.now();
    assert_eq!(world.within(world.ttl(), guard.lost()).await, Some(Loss::Gone));
    let noticed_after = evicted_at.until(world.now());
    assert!(noticed_after <= renewal_latest(&world), "{noticed_after:?}");
    assert_eq!(guard.state(), State::Lost(Loss::Gone));
    assert!(guard.remaining().is_zero());
    assert_eq!(client.leases_kept(), 0);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// Released before the next renewal, it still tells that somebody else may have held the key meanwhile.
pub async fn a_release_after_an_eviction_is_an_error(world: World) {
    let (client, operator) = (world.client().await, world.client().await);
    let guard = client.mutex("evicted").unwrap().lock().await.unwrap();
    let view = world.line(&operator, "evicted").await;
    operator.evict(&view.holders[0]).await.unwrap();
    let next = operator.mutex("evicted").unwrap().try_lock().await.unwrap().expect("it is free");
    let lost = guard.release().await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert_eq!(lost.key().map(leasehold::Key::name), Some(&b"evicted"[..]));
    next.check().unwrap();
    assert_eq!(world.line(&operator, "evicted").await.holders[0].place.entry, next.entry());
    next.release().await.unwrap();
}

/// The reason tells an operator where to look: at the network, or at who took the entry out.
pub async fn a_loss_names_its_key_and_its_reason(world: World) {
    let (client, operator) = (world.client().await, world.client().await);
    let (gone, expired) = (client.mutex("gone").unwrap(), client.mutex("expired").unwrap());
    let (gone, expired) = (gone.lock().await.unwrap(), expired.lock().await.unwrap());
    let view = world.line(&operator, "gone").await;
    operator.evict(&view.holders[0]).await.unwrap();
    assert_eq!(world.within(renewal_latest(&world), gone.lost()).await, Some(Loss::Gone));
    client.faults.always(Verb::Renew, Fault::Unsent);
    assert_eq!(world.within(world.ttl() + world.slack(), expired.lost()).await, Some(Loss::Expired));
    for (guard, reason) in [(gone, Loss::Gone), (expired, Loss::Expired)] {
        let error = guard.check().unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Lost, Some(guard.key())));
        assert!(error.to_string().contains(&reason.to_string()), "{error}");
        assert!(error.to_string().contains(&format!("\"{}\"", guard.key())), "{error}");
    }
}

/// No request of this client is ever answered again, nor refused: nothing but its own clock can tell.
pub async fn a_loss_is_told_without_any_answer_from_the_store(world: World) {
    let client = world.client().await;
    let guard = client.mutex("cut off").unwrap().lock().await.unwrap();
    client.faults.always_all(Fault::Swallowed);
    let (asked_at, left) = (world.now(), guard.remaining());
    assert_eq!(world.within(world.ttl() * 2, guard.lost()).await, Some(Loss::Expired));
    let took = asked_at.until(world.now());
    assert!(took <= left + world.slack(), "told {:?} late", took - left);
}

pub async fn work_under_a_lock_is_dropped_when_the_lock_is_lost(world: World) {
    let client = world.client().await;
    let guard = client.mutex("work").unwrap().lock().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    let (work, dropped) = endless_work();
    client.faults.always_all(Fault::Swallowed);
    let (asked_at, left) = (world.now(), guard.remaining());
    let lost = world.within(world.ttl() * 2, guard.run(work)).await.expect("it does not wait for the work");
    let took = asked_at.until(world.now());
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    assert!(dropped.load(Ordering::SeqCst));
    assert!(took <= left + world.slack(), "dropped {:?} late", took - left);
    // Work that is begun under a lost lock does not get a single step done.
    let begun = AtomicBool::new(false);
    let late = guard.run(async { begun.store(true, Ordering::SeqCst) }).await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!begun.load(Ordering::SeqCst));
}

pub async fn work_given_to_with_is_dropped_when_the_lock_is_lost(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let mutex = client.mutex("with").unwrap();
    assert_eq!(mutex.with(async |guard| guard.token()).await.unwrap().get().min(1), 1);
    assert_eq!(other.inspect("with").await.unwrap(), None, "it was given up before `with` returned");

    let (work, dropped) = endless_work();
    let evicted = mutex.with(async |_guard| {
        let view = world.line(&other, "with").await;
        other.evict(&view.holders[0]).await.unwrap();
        work.await;
    });
    let lost = world.within(world.ttl() * 2, evicted).await.expect("it does not wait for the work");
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    assert!(dropped.load(Ordering::SeqCst));

    let (work, dropped) = endless_work();
    let cut_off = mutex.with(async |_guard| {
        client.faults.always_all(Fault::Swallowed);
        work.await;
    });
    let lost = world.within(world.ttl() * 2, cut_off).await.expect("it does not wait for the work, nor for the store");
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    assert!(dropped.load(Ordering::SeqCst));
}

/// A machine that was suspended past the deadline knows it at the first question, before any timer has run.
pub async fn a_clock_that_jumped_past_the_deadline_is_a_loss_at_once(world: World) {
    let (client, hand) = world.client_on_moved_clock().await;
    let guard = client.mutex("suspended").unwrap().lock().await.unwrap();
    guard.check().unwrap();
    hand.jump(world.ttl());
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.state(), State::Lost(Loss::Expired));
    assert!(guard.remaining().is_zero());
    assert_eq!(world.within(world.slack(), guard.lost()).await, Some(Loss::Expired));
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// A restored snapshot moves wall time and not the boot clock. So when wall time moves, every lease is asked about, not
/// only the one that was due.
pub async fn a_step_of_wall_time_is_a_doubt_until_the_store_confirms(world: World) {
    let (client, hand) = world.client_on_moved_clock().await;
    let take = async |client: &Client, name: &str| client.mutex(name).unwrap().lock().await.unwrap();
    let first = take(&client, "first").await;
    world.pass(world.ttl() / 6).await;
    let second = take(&client, "second").await;
    assert!(client.faults.batches().is_empty());
    hand.step_wall(std::time::Duration::from_secs(3600));
    client.faults.next(Verb::Renew, Fault::SlowReply(world.ttl() / 10));
    let doubted = async || first.state() == State::Suspect && second.state() == State::Suspect;
    world.until("both locks are suspect", renewal_latest(&world), doubted).await;
    let asked = async || !client.faults.batches().is_empty();
    world.until("the store is asked", world.slack(), asked).await;
    assert_eq!(client.faults.batches()[0], 2, "both are asked about at once");
    let confirmed = async || first.state() == State::Held && second.state() == State::Held;
    world.until("both locks are held again", world.ttl() / 2, confirmed).await;
    first.release().await.unwrap();
    second.release().await.unwrap();
}

/// It blocked its thread, so nothing could stop it; but what it came to was not come to under the lock.
pub async fn work_that_ends_after_the_deadline_is_not_work_under_the_lock(world: World) {
    let (client, clock) = world.client_on_moved_clock().await;
    let guard = client.mutex("blocking").unwrap().lock().await.unwrap();
    let outlived = guard.run(async { clock.jump(world.ttl()) }).await;
    assert_eq!(outlived.unwrap_err().kind(), ErrorKind::Lost);
}
