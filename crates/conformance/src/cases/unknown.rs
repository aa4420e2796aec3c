//! Requests of unknown outcome are assumed to have happened: cleaned up after, and reported as what they are.

use leasehold::{ErrorKind, Fate};

use crate::{Client, Fault, Verb, World};

/// The store grants the lock and the reply is lost, at once or by silence.
pub async fn an_entry_whose_reply_was_lost_is_taken_out_again(world: World) {
    for fault in [Fault::ReplyLost, Fault::Unanswered] {
        let (client, other) = (world.client().await, world.client().await);
        client.faults.next(Verb::Enter, fault);
        let error = client.mutex("unsure").unwrap().try_lock().await.unwrap_err();
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Unreachable, Fate::Unknown), "{fault:?}: {error}");
        assert_eq!(client.leases_kept(), 0, "{fault:?}: nobody believes in it");
        world.until_deserted(&other, "unsure").await;
        let guard = other.mutex("unsure").unwrap().try_lock().await.unwrap();
        guard.unwrap_or_else(|| panic!("{fault:?}: it is free")).release().await.unwrap();
    }
}

/// The clean-up's own reply is lost, and it cannot reach the store at first.
pub async fn cleaning_up_after_a_lost_reply_goes_on_until_it_is_confirmed(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    client.faults.next(Verb::Enter, Fault::ReplyLost);
    client.faults.next(Verb::Leave, Fault::Unsent);
    client.faults.next(Verb::Leave, Fault::Garbled);
    client.mutex("unsure").unwrap().try_lock().await.unwrap_err();
    world.until_deserted(&other, "unsure").await;
    assert!(client.faults.calls(Verb::Leave) >= 3);
}

/// Whoever cleans up after the first request may still be on the way when the second one is granted.
pub async fn an_id_of_unknown_fate_is_not_used_again(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    client.faults.next(Verb::Enter, Fault::ReplyLost);
    client.faults.always(Verb::Leave, Fault::Unsent);
    let mutex = client.mutex("unsure").unwrap();
    let taking = tokio::spawn(async move { mutex.lock().await });
    let entered = async || other.inspect("unsure").await.unwrap().is_some();
    world.until("the first request arrived", world.ttl() / 4, entered).await;
    let first = world.line(&other, "unsure").await.holders[0].place.entry;
    if world.capabilities().await.queueing {
        world.until_waiting(&other, "unsure", 1).await;
        let line = world.line(&other, "unsure").await;
        assert_eq!(line.holders[0].place.entry, first);
        assert_ne!(line.waiters.unwrap()[0].place.entry, first);
    }
    client.faults.heal();
    let guard = world.within(world.ttl() / 2, taking).await.expect("the first entry was taken out");
    let guard = guard.unwrap().unwrap();
    assert_ne!(guard.entry(), first);
    let line = world.line(&other, "unsure").await;
    assert_eq!(line.holders[0].place.entry, guard.entry());
    assert_eq!(line.waiters.unwrap_or_default(), []);
    world.pass(world.ttl() * 2).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
}

/// A place in line that we know we have is not given up because one look at it failed.
pub async fn a_waiter_keeps_its_place_through_a_lost_reply(world: World) {
    if !world.capabilities().await.queueing {
        return;
    }
    let (holder, waiter) = (world.client().await, world.client().await);
    let guard = holder.mutex("unsure").unwrap().lock().await.unwrap();
    let mutex = waiter.mutex("unsure").unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    world.until_waiting(&holder, "unsure", 1).await;
    let place = world.line(&holder, "unsure").await.waiters.unwrap()[0].place.entry;
    let looks = waiter.faults.calls(Verb::Enter);
    waiter.faults.next(Verb::Enter, Fault::ReplyLost);
    let looked_again = async || waiter.faults.calls(Verb::Enter) >= looks + 2;
    world.until("the waiter looked again", world.ttl() * 2, looked_again).await;
    let waiters = world.line(&holder, "unsure").await.waiters.unwrap();
    assert_eq!(waiters.iter().map(|waiter| waiter.place.entry).collect::<Vec<_>>(), [place]);
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().entry(), place);
}

/// The release happened or will happen, but whoever asked for it is told that nobody knows.
pub async fn a_release_whose_reply_is_lost_says_so_and_frees_the_key(world: World) {
    for fault in [Fault::ReplyLost, Fault::Unanswered, Fault::Garbled, Fault::Swallowed] {
        let (client, other) = (world.client().await, world.client().await);
        let guard = client.mutex("unsure").unwrap().lock().await.unwrap();
        client.faults.next(Verb::Leave, fault);
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.fate(), Fate::Unknown, "{fault:?}: {error}");
        assert_ne!(error.kind(), ErrorKind::Lost, "{fault:?}: it was not lost but given up");
        assert_eq!(error.key().map(leasehold::Key::name), Some(&b"unsure"[..]));
        world.until_deserted(&other, "unsure").await;
        let next = other.mutex("unsure").unwrap().try_lock().await.unwrap();
        next.unwrap_or_else(|| panic!("{fault:?}: it is free")).release().await.unwrap();
        assert_eq!(client.leases_kept(), 0);
    }
}

/// "Busy" would be a claim about the lock that nobody made.
pub async fn no_answer_is_an_error_and_not_busy(world: World) {
    let (client, holder) = (world.client().await, world.client().await);
    let unreachable = async |client: &Client, name: &str| {
        let mutex = client.mutex(name).unwrap();
        let asked_at = world.now();
        let tried = mutex.try_lock().await.unwrap_err();
        let took = asked_at.until(world.now());
        assert!(took <= world.ttl() / 6 + world.slack(), "{took:?} for one try");
        let waited = mutex.lock_within(world.ttl() / 10).await.unwrap_err();
        let attempted = mutex.attempt_within(world.ttl() / 10).await.unwrap_err();
        for error in [tried, waited, attempted] {
            assert_eq!((error.kind(), error.fate()), (ErrorKind::Unreachable, Fate::Unknown), "{error}");
            assert_eq!(error.key(), Some(mutex.key()));
        }
    };
    let _guard = holder.mutex("taken").unwrap().lock().await.unwrap();
    client.faults.always(Verb::Enter, Fault::Swallowed);
    unreachable(&client, "free").await;
    unreachable(&client, "taken").await;
    assert_eq!(holder.inspect("free").await.unwrap(), None);
}
