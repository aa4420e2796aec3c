//! What others may ask of a holder, and how it hears of it.

use leasehold::backend::Asked;
use leasehold::{ErrorKind, Loss, State};

use crate::{Fault, Verb, World};

pub async fn a_holder_is_told_at_once_that_somebody_wants_its_lock(world: World) {
    let (client, operator) = (world.client().await, world.client().await);
    let guard = client.mutex("wanted").unwrap().lock().await.unwrap();
    let bystander = client.mutex("unwanted").unwrap().lock().await.unwrap();
    let holder = world.line(&operator, "wanted").await.holders.remove(0);
    assert!(!holder.yield_asked && !guard.yield_asked());
    let asked_at = world.now();
    assert_eq!(operator.ask_to_yield(&holder).await.unwrap(), Asked::Told);
    guard.yield_requested().await;
    assert!(
        asked_at.until(world.now()) <= world.hearsay().await,
        "it heard of it only after {:?}",
        asked_at.until(world.now())
    );
    assert!(guard.yield_asked() && !bystander.yield_asked());
    // It is a wish and no more: the holder decides.
    guard.check().unwrap();
    assert!(world.line(&operator, "wanted").await.holders[0].yield_asked);
    guard.release().await.unwrap();
}

pub async fn a_wish_that_was_not_heard_comes_with_the_next_renewal(world: World) {
    let (client, operator) = (world.client().await, world.client().await);
    client.faults.always(Verb::Notices, Fault::Unsent);
    let guard = client.mutex("wanted").unwrap().lock().await.unwrap();
    let holder = world.line(&operator, "wanted").await.holders.remove(0);
    operator.ask_to_yield(&holder).await.unwrap();
    let told = world.within(world.ttl() / 2 + world.slack(), guard.yield_requested()).await;
    assert!(told.is_some(), "it has been renewed, and has not heard of it");
    guard.release().await.unwrap();
}

pub async fn a_wish_for_an_entry_that_has_left_says_so_and_hits_nobody(world: World) {
    let (client, operator) = (world.client().await, world.client().await);
    let mutex = client.mutex("wanted").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let first = mutex.lock().await.unwrap();
    let holder = world.line(&operator, "wanted").await.holders.remove(0);
    first.release().await.unwrap();
    let second = mutex.lock().await.unwrap();
    assert_eq!(operator.ask_to_yield(&holder).await.unwrap(), Asked::NotThere);
    assert!(!world.line(&operator, "wanted").await.holders[0].yield_asked);
    assert!(!second.yield_asked());
    second.release().await.unwrap();
}

pub async fn an_eviction_is_told_at_once(world: World) {
    let (client, operator) = (world.client().await, world.client().await);
    let guard = client.mutex("evicted").unwrap().lock().await.unwrap();
    let holder = world.line(&operator, "evicted").await.holders.remove(0);
    let evicted_at = world.now();
    operator.evict(&holder).await.unwrap();
    assert_eq!(guard.lost().await, Loss::Gone);
    let noticed_after = evicted_at.until(world.now());
    assert!(noticed_after <= world.hearsay().await, "it heard of it only after {noticed_after:?}");
    assert_eq!(guard.state(), State::Lost(Loss::Gone));
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}
