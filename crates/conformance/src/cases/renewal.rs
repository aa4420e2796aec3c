//! A lock is renewed for as long as it is held: in batches, through faults, and not a moment longer.

use std::sync::{Arc, Barrier, mpsc};

use leasehold::{ErrorKind, Loss, Mutex, State};

use crate::{Fault, Time, Verb, World};

pub async fn a_held_lock_outlives_its_ttl_many_times_over(world: World) {
    const LIVES: u32 = 5;
    let (holder, other) = (world.client().await, world.client().await);
    let guard = holder.mutex("kept").unwrap().lock().await.unwrap();
    for _ in 0..LIVES {
        world.pass(world.ttl()).await;
        guard.check().unwrap();
        assert!(other.mutex("kept").unwrap().try_lock().await.unwrap().is_none());
    }
    let line = world.line(&other, "kept").await;
    assert_eq!(line.holders[0].place.entry, guard.entry());
    assert_eq!(line.holders[0].token, Some(guard.token()));
    guard.release().await.unwrap();
}

/// One trip to the store renews many leases; otherwise ten thousand locks would be ten thousand requests a few seconds.
pub async fn locks_of_one_client_are_renewed_in_few_large_batches(world: World) {
    const LOCKS: usize = 200;
    let client = world.client().await;
    let mutexes: Vec<_> = (0..LOCKS).map(|nth| client.mutex(format!("batched/{nth}")).unwrap()).collect();
    let guards = futures_util::future::try_join_all(mutexes.iter().map(Mutex::lock)).await.unwrap();
    assert_eq!(client.leases_kept(), LOCKS);
    world.pass(world.ttl() * 2).await;
    let (calls, batches) = (client.faults.calls(Verb::Renew), client.faults.batches());
    let renewed: usize = batches.iter().sum();
    assert!(renewed >= LOCKS * 4, "two lives need at least five renewals of each lease, and got {batches:?}");
    assert!(calls * 20 <= renewed, "{calls} trips to renew {renewed} leases: {batches:?}");
    for guard in guards {
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
}

/// In whatever way a single renewal fails, the next one comes in time.
pub async fn one_failed_renewal_is_a_doubt_and_not_a_loss(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    for fault in [Fault::Unsent, Fault::ReplyLost, Fault::Unanswered, Fault::Garbled] {
        let guard = client.mutex("shaken").unwrap().lock().await.unwrap();
        client.faults.next(Verb::Renew, fault);
        // The second one is slow, so that there is time to see the doubt.
        client.faults.next(Verb::Renew, Fault::Slow(world.ttl() / 10));
        let suspect = async || guard.state() == State::Suspect;
        world.until(&format!("the lock is suspect after {fault:?}"), world.ttl(), suspect).await;
        guard.check().unwrap();
        let held = async || guard.state() == State::Held;
        world.until(&format!("the lock is held again after {fault:?}"), world.ttl() / 2, held).await;
        world.pass(world.ttl()).await;
        assert_eq!(guard.state(), State::Held, "a life after {fault:?}");
        assert!(other.mutex("shaken").unwrap().try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
}

/// In whatever way all renewals fail, belief ends at the deadline that was known from the start.
pub async fn a_lock_that_cannot_be_renewed_is_lost_at_its_deadline_and_no_sooner(world: World) {
    let faults = [Fault::Unsent, Fault::ReplyLost, Fault::Garbled, Fault::Swallowed];
    for (nth, fault) in faults.into_iter().enumerate() {
        let client = world.client().await;
        let guard = client.mutex(format!("doomed/{nth}")).unwrap().lock().await.unwrap();
        client.faults.always(Verb::Renew, fault);
        let before = world.now();
        let left = guard.remaining();
        let after = world.now();
        assert!(left <= world.ttl(), "{left:?} is more than was asked for");

        world.pass(left.mul_f64(0.8)).await;
        guard.check().unwrap();
        assert_eq!(guard.state(), State::Suspect, "{fault:?}");
        let loss = world.within(world.ttl(), guard.lost()).await;
        let lost_at = world.now();
        assert_eq!(loss, Some(Loss::Expired), "{fault:?}");
        assert!(before.after(left) <= lost_at, "lost {:?} too soon", lost_at.until(before.after(left)));
        assert!(lost_at <= after.after(left + world.slack()), "lost {:?} late", after.after(left).until(lost_at));
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(guard.state(), State::Lost(Loss::Expired));
        assert!(guard.remaining().is_zero());
        if world.time() == Time::Virtual {
            let forgotten = client.inspect(format!("doomed/{nth}")).await.unwrap().is_none();
            assert!(!forgotten, "the store forgot the holder before the holder stopped believing");
        }
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

/// A waiter has a lease on its place, shorter lived than its wait, and renews it like a holder.
pub async fn the_place_of_a_waiter_is_renewed_too(world: World) {
    if !world.capabilities().await.queueing {
        return;
    }
    let (holder, waiter) = (world.client().await, world.client().await);
    let guard = holder.mutex("awaited").unwrap().lock().await.unwrap();
    let mutex = waiter.mutex("awaited").unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    world.until_waiting(&holder, "awaited", 1).await;
    let place = |view: leasehold::backend::KeyView| {
        let waiter = &view.waiters.unwrap()[0];
        (waiter.place.entry, waiter.ticket)
    };
    let first = place(world.line(&holder, "awaited").await);
    world.pass(world.ttl() * 3).await;
    assert_eq!(place(world.line(&holder, "awaited").await), first, "it had to line up again");
    assert_eq!(waiter.leases_kept(), 1);
    assert!(waiter.faults.calls(Verb::Renew) >= 5, "{} renewals", waiter.faults.calls(Verb::Renew));
    guard.release().await.unwrap();
    let granted = waiting.await.unwrap().unwrap();
    assert_eq!(granted.entry(), first.0);
    world.pass(world.ttl() * 2).await;
    granted.check().unwrap();
    granted.release().await.unwrap();
}

/// Work that blocks every thread of the caller's runtime does not keep the leases from being renewed. There is no
/// blocking in virtual time, which stands still while somebody works.
pub async fn a_blocked_runtime_does_not_starve_renewal(world: World) {
    if world.time() == Time::Virtual {
        return;
    }
    let (client, other) = (world.client().await, world.client().await);
    let guard = client.mutex("blocked").unwrap().lock().await.unwrap();
    let renewed_before = client.faults.calls(Verb::Renew);
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let (all_blocked, span) = (Arc::new(Barrier::new(workers)), world.ttl() * 2);
    let mut never_told = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    let blocked_at = world.now();
    for _ in 0..workers {
        let (tell, told) = mpsc::channel::<()>();
        never_told.push(tell);
        let all_blocked = all_blocked.clone();
        tasks.spawn(async move {
            all_blocked.wait();
            told.recv_timeout(span).unwrap_err();
        });
    }
    tasks.join_all().await;
    assert!(blocked_at.until(world.now()) >= span);
    guard.check().unwrap();
    let renewals = client.faults.calls(Verb::Renew) - renewed_before;
    assert!(renewals >= 4, "{renewals} renewals while every worker was blocked for two lives");
    assert_eq!(world.line(&other, "blocked").await.holders[0].place.entry, guard.entry());
    assert!(other.mutex("blocked").unwrap().try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

pub async fn a_released_lock_is_not_renewed_again(world: World) {
    let client = world.client().await;
    for dropped in [false, true] {
        let guard = client.mutex("released").unwrap().lock().await.unwrap();
        world.pass(world.ttl()).await;
        assert!(client.faults.calls(Verb::Renew) >= 2);
        if dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        assert_eq!(client.leases_kept(), 0);
        let renewals = client.faults.calls(Verb::Renew);
        world.pass(world.ttl() * 2).await;
        assert_eq!(client.faults.calls(Verb::Renew), renewals);
    }
}

/// The renewal leaves first and arrives last, when the entry is gone and somebody else holds the key.
pub async fn a_renewal_that_arrives_after_the_release_brings_nothing_back(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let guard = client.mutex("overtaken").unwrap().lock().await.unwrap();
    client.faults.next(Verb::Renew, Fault::Slow(world.ttl() / 8));
    let under_way = async || client.faults.calls(Verb::Renew) == 1;
    world.until("a renewal is under way", world.ttl() / 2, under_way).await;
    guard.release().await.unwrap();
    let next = other.mutex("overtaken").unwrap().try_lock().await.unwrap().expect("it was released");
    world.pass(world.ttl() / 4).await;
    let line = world.line(&other, "overtaken").await;
    assert_eq!(line.holders.len() + line.waiters.unwrap_or_default().len(), 1, "{:?}", line.holders);
    assert_eq!(line.holders[0].place.entry, next.entry());
    assert_eq!(client.leases_kept(), 0);
    next.release().await.unwrap();
    assert_eq!(other.inspect("overtaken").await.unwrap(), None);
}

/// Not from when it was answered: the store has been counting since it acted on it.
pub async fn a_renewal_counts_from_when_it_was_sent(world: World) {
    let client = world.client().await;
    let slow = world.ttl() / 10;
    client.faults.always(Verb::Renew, Fault::SlowReply(slow));
    let guard = client.mutex("renewed").unwrap().lock().await.unwrap();
    let mut before = guard.remaining();
    let started = world.now();
    while guard.remaining() <= before {
        assert!(started.until(world.now()) < world.ttl(), "it was not renewed");
        before = guard.remaining();
        world.pass(std::time::Duration::from_millis(1)).await;
    }
    let renewed = guard.remaining();
    assert!(renewed <= world.ttl() - slow, "{renewed:?} are believed after an answer that took {slow:?}");
    guard.release().await.unwrap();
}

/// The store's clock jumped past the lease, and nobody has looked at the line since: the renewal itself must see it.
pub async fn a_renewal_does_not_bring_back_a_lease_that_is_over_on_the_store(world: World) {
    let Some(store_clock) = world.store_clock() else { return };
    let client = world.client().await;
    let guard = client.mutex("renewed").unwrap().lock().await.unwrap();
    store_clock.jump(world.ttl());
    let loss = world.within(world.ttl() / 2 + world.slack(), guard.lost()).await;
    assert_eq!(loss, Some(leasehold::Loss::Gone));
}
