//! A holder that went silent: it stops believing first, the store forgets it next, and only then somebody else holds.

use std::time::Duration;

use leasehold::{ErrorKind, Loss, State};

use crate::{Client, Fault, RECHECK_MAX, Verb, World};

const NAME: &str = "nightly";

/// Whether the store no longer knows that entry as a holder. What the holder believes is to be asked after this: then
/// a belief is one too many for certain.
async fn is_forgotten(watcher: &Client, entry: leasehold::backend::EntryId) -> bool {
    let view = watcher.inspect(NAME).await.unwrap();
    view.is_none_or(|view| view.holders.iter().all(|holder| holder.place.entry != entry))
}

pub async fn expiry_hands_over_to_the_next_and_not_before_the_holder_stopped_believing(world: World) {
    let (dead, next) = (world.client().await, world.client().await);
    let guard = dead.mutex(NAME).unwrap().lock().await.unwrap();
    let mutex = next.mutex(NAME).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    world.until_contending(&next, NAME).await;
    dead.faults.always_all(Fault::Swallowed);
    let died_at = world.now();
    let heir = waiting.await.unwrap();
    let (state, left) = (guard.state(), guard.remaining());
    let waited = died_at.until(world.now());
    assert_eq!((state, left), (State::Lost(Loss::Expired), Duration::ZERO), "two believe to hold it");
    assert!(waited <= world.ttl() + world.notice().await, "handed over only after {waited:?}");
    assert!(heir.token() > guard.token());
    heir.release().await.unwrap();
}

/// Also with a store's clock that runs half a percent fast, five times what a disciplined clock may.
pub async fn holder_stops_believing_before_the_store_forgets(world: World) {
    let watcher = world.client().await;
    for rate in [1.0, 1.005] {
        match world.store_clock() {
            Some(hand) => hand.run_at(rate),
            None if rate > 1.0 => continue,
            None => {}
        }
        let holder = world.client().await;
        let guard = holder.mutex(NAME).unwrap().lock().await.unwrap();
        holder.faults.always_all(Fault::Swallowed);
        let forgotten = async || is_forgotten(&watcher, guard.entry()).await;
        world.until("the store forgets", world.ttl() + world.slack(), forgotten).await;
        assert!(guard.check().is_err(), "at a rate of {rate} it believes for another {:?}", guard.remaining());
    }
}

/// The store counts from when it was asked, so the holder counts from before it asked.
pub async fn a_slow_answer_shortens_the_belief(world: World) {
    let (slow, watcher) = (world.client().await, world.client().await);
    let span = world.ttl() / 8;
    slow.faults.next(Verb::Enter, Fault::SlowReply(span));
    let guard = slow.mutex(NAME).unwrap().lock().await.unwrap();
    assert!(guard.remaining() <= world.ttl() - span, "it believes for {:?}", guard.remaining());
    slow.faults.always_all(Fault::Swallowed);
    let forgotten = async || is_forgotten(&watcher, guard.entry()).await;
    world.until("the store forgets", world.ttl() + world.slack(), forgotten).await;
    assert!(guard.check().is_err(), "it believes for another {:?}", guard.remaining());
}

/// A grant does not lengthen the lease of a waiter, however late the waiter hears of it.
pub async fn a_waiter_that_is_told_late_believes_no_longer_than_its_place_was_leased(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    if !two.capabilities().queueing {
        return;
    }
    let first = one.mutex(NAME).unwrap().lock().await.unwrap();
    let late = RECHECK_MAX / 4;
    two.faults.always(Verb::Changed, Fault::SlowReply(late));
    two.faults.always(Verb::Renew, Fault::Swallowed);
    let mutex = two.mutex(NAME).unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    world.until_waiting(&one, NAME, 1).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    assert!(second.remaining() <= world.ttl() - late, "it believes for {:?}", second.remaining());
    let forgotten = async || is_forgotten(&one, second.entry()).await;
    world.until("the store forgets", world.ttl() + world.slack(), forgotten).await;
    assert!(second.check().is_err(), "it believes for another {:?}", second.remaining());
}

/// A control for the case of a clock that runs a little fast: it would notice. And why there are tokens: they grow whatever the clocks do.
pub async fn a_store_clock_that_is_much_too_fast_lets_beliefs_overlap_but_tokens_still_grow(world: World) {
    let Some(hand) = world.store_clock() else { return };
    let (one, two) = (world.client().await, world.client().await);
    // Five percent, and as much more as it takes for the overlap to outlast the slack of this machine.
    hand.run_at(1.05_f64.max(world.ttl().div_duration_f64(world.ttl() - world.slack() * 2)));
    let first = one.mutex(NAME).unwrap().lock().await.unwrap();
    one.faults.always_all(Fault::Swallowed);
    world.until("the store forgets", world.ttl(), async || is_forgotten(&two, first.entry()).await).await;
    let second = two.mutex(NAME).unwrap().try_lock().await.unwrap().expect("the store has forgotten the first");
    first.check().expect("the first still believes in it");
    assert!(second.token() > first.token());
}

/// No timer runs and no message comes between the pause and the question: the clock alone decides.
pub async fn a_paused_holder_is_told_at_its_first_check_after_the_deadline(world: World) {
    let (paused, hand) = world.client_on_moved_clock().await;
    let guard = paused.mutex(NAME).unwrap().lock().await.unwrap();
    guard.check().unwrap();
    let left = guard.remaining();
    assert!(left <= world.ttl());
    hand.jump(left);
    let lost = guard.check().unwrap_err();
    assert_eq!((lost.kind(), lost.key()), (ErrorKind::Lost, Some(guard.key())));
    assert_eq!((guard.state(), guard.remaining()), (State::Lost(Loss::Expired), Duration::ZERO));
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// A store that does not answer cannot keep the holder from learning it.
pub async fn a_cut_off_holder_is_told_at_its_deadline(world: World) {
    for fault in [Fault::Swallowed, Fault::Unsent, Fault::ReplyLost] {
        let holder = world.client().await;
        let guard = holder.mutex(NAME).unwrap().lock().await.unwrap();
        holder.faults.always(Verb::Renew, fault);
        // A renewal whose answer is lost did lengthen the lease on the store; the holder cannot know.
        let left = guard.remaining();
        let started = world.now();
        assert_eq!(guard.lost().await, Loss::Expired, "{fault:?}");
        let took = started.until(world.now());
        assert!(took + Duration::from_millis(1) >= left, "{fault:?}: gave up after {took:?} of {left:?}");
        assert!(took <= left + world.slack(), "{fault:?}: believed for {took:?} instead of {left:?}");
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

pub async fn renewing_keeps_a_lock_past_many_leases(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let guard = one.mutex(NAME).unwrap().lock().await.unwrap();
    for _ in 0..30 {
        world.pass(world.ttl() / 10).await;
        guard.check().unwrap();
        assert!(two.mutex(NAME).unwrap().try_lock().await.unwrap().is_none());
    }
    world.until_alone(&two, NAME, guard.entry()).await;
    let renewals = one.faults.calls(Verb::Renew);
    assert!((6..=12).contains(&renewals), "{renewals} renewals in three leases' time");
    guard.release().await.unwrap();
}
