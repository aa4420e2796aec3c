//! Re-entrant locks: one owner may take what it has, and nobody else may.

use leasehold::{ErrorKind, Owner};

use crate::{Fault, Verb, World};

pub async fn an_owner_enters_again_at_once_under_the_same_token(world: World) {
    let client = world.client().await;
    let (lock, owner) = (client.reentrant("again").unwrap(), Owner::new("transfer").unwrap());
    let outer = lock.lock(&owner).await.unwrap();
    let asked = client.faults.calls(Verb::Enter);
    let inner = lock.lock(&owner.clone()).await.unwrap();
    let tried = lock.try_lock(&owner).await.unwrap().expect("it is the owner's already");
    let within = lock.lock_within(&owner, world.ttl()).await.unwrap().expect("it is the owner's already");
    assert_eq!(client.faults.calls(Verb::Enter), asked, "the store need not be asked");
    for guard in [&inner, &tried, &within] {
        assert_eq!((guard.token(), guard.entry(), guard.holds()), (outer.token(), outer.entry(), 4));
    }
    let line = world.line(&client, "again").await;
    assert_eq!(line.holders.len(), 1);
    assert_eq!(line.waiters.unwrap_or_default(), []);
    assert_eq!(client.leases_kept(), 1);
}

pub async fn another_owner_waits_even_under_the_same_name(world: World) {
    let client = world.client().await;
    let lock = client.reentrant("again").unwrap();
    let (first, second) = (Owner::new("same").unwrap(), Owner::new("same").unwrap());
    let guard = lock.lock(&first).await.unwrap();
    assert!(lock.try_lock(&second).await.unwrap().is_none());
    assert!(lock.lock_within(&second, world.ttl() / 10).await.unwrap().is_none());
    // To everybody else it is an ordinary mutex.
    assert!(client.mutex("again").unwrap().try_lock().await.unwrap().is_none());
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock(&second).await }
    });
    if world.capabilities().await.queueing {
        world.until_waiting(&client, "again", 1).await;
    }
    let last = guard.token();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > last);
    assert!(lock.try_lock(&first).await.unwrap().is_none());
    next.release().await.unwrap();
}

pub async fn it_is_free_only_after_the_last_guard(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let (lock, owner) = (client.reentrant("again").unwrap(), Owner::new("transfer").unwrap());
    let rival = other.mutex("again").unwrap();
    // In any order, released or dropped.
    let (one, two, three) =
        (lock.lock(&owner).await.unwrap(), lock.lock(&owner).await.unwrap(), lock.lock(&owner).await.unwrap());
    one.release().await.unwrap();
    drop(three);
    assert_eq!(two.holds(), 1);
    world.pass(world.ttl() * 2).await;
    two.check().unwrap();
    assert!(rival.try_lock().await.unwrap().is_none());
    two.release().await.unwrap();
    rival.try_lock().await.unwrap().expect("the last guard is gone").release().await.unwrap();

    let last = lock.lock(&owner).await.unwrap();
    drop(lock.lock(&owner).await.unwrap());
    assert!(rival.try_lock().await.unwrap().is_none());
    drop(last);
    world.until_deserted(&other, "again").await;
    let sum = lock.with(&owner, async |_| lock.with(&owner, async |inner| inner.holds()).await.unwrap()).await.unwrap();
    assert_eq!(sum, 2);
    assert_eq!(other.inspect("again").await.unwrap(), None);
}

/// Copies of one owner arrive together at a lock that somebody else has: one entry stands for all of them.
pub async fn contending_tasks_of_one_owner_take_it_once(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let (lock, owner) = (client.reentrant("again").unwrap(), Owner::new("transfer").unwrap());
    let guard = other.mutex("again").unwrap().lock().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..world.crowd() {
        let (lock, owner) = (lock.clone(), owner.clone());
        tasks.spawn(async move { lock.lock(&owner).await.unwrap() });
    }
    let queueing = world.capabilities().await.queueing;
    if queueing {
        world.until_waiting(&other, "again", 1).await;
    }
    world.pass(world.ttl() / 10).await;
    let waiters = world.line(&other, "again").await.waiters.unwrap_or_default();
    assert_eq!(waiters.len(), usize::from(queueing));
    guard.release().await.unwrap();
    let guards = tasks.join_all().await;
    assert_eq!(guards.len(), world.crowd());
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
    assert_eq!(world.line(&other, "again").await.holders.len(), 1);
    for (nth, guard) in guards.into_iter().enumerate() {
        assert!(other.inspect("again").await.unwrap().is_some(), "free after {nth}");
        guard.release().await.unwrap();
    }
    assert_eq!(other.inspect("again").await.unwrap(), None);
}

/// One task of an owner waits in line; another one only tries. It is not the owner's yet, and trying does not wait.
pub async fn a_try_does_not_wait_for_another_task_of_its_owner(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let (lock, owner) = (client.reentrant("again").unwrap(), Owner::new("transfer").unwrap());
    let guard = other.mutex("again").unwrap().lock().await.unwrap();
    let waiting = tokio::spawn({
        let (lock, owner) = (lock.clone(), owner.clone());
        async move { lock.lock(&owner).await }
    });
    let entered = async || client.faults.calls(Verb::Enter) > 0;
    world.until("the first task asked", world.ttl() / 4, entered).await;
    let limit = world.ttl() / 6 + world.slack();
    let tried = world.within(limit, lock.try_lock(&owner)).await.expect("trying does not wait");
    assert!(tried.unwrap().is_none());
    let asked_at = world.now();
    assert!(lock.lock_within(&owner, world.ttl() / 10).await.unwrap().is_none());
    assert!(asked_at.until(world.now()) <= world.ttl() / 10 + world.slack());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Its token is stale, and somebody else may have had the key meanwhile.
pub async fn a_lost_lock_is_not_entered_again(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let (lock, owner) = (client.reentrant("again").unwrap(), Owner::new("transfer").unwrap());
    let lost = lock.lock(&owner).await.unwrap();
    let view = world.line(&other, "again").await;
    other.evict(&view.holders[0]).await.unwrap();
    world.within(world.ttl(), lost.lost()).await.expect("the eviction is noticed");
    let rival = other.mutex("again").unwrap().try_lock().await.unwrap().expect("it is free");
    assert!(lock.try_lock(&owner).await.unwrap().is_none());
    rival.release().await.unwrap();
    let taken_anew = lock.lock(&owner).await.unwrap();
    assert!(taken_anew.token() > lost.token());
    assert_eq!(taken_anew.holds(), 1);
    assert_eq!(lost.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(lost.release().await.unwrap_err().kind(), ErrorKind::Lost);
    taken_anew.check().unwrap();
    assert_eq!(world.line(&other, "again").await.holders[0].place.entry, taken_anew.entry());
    taken_anew.release().await.unwrap();
}

pub async fn the_name_of_the_owner_is_seen_by_others(world: World) {
    let client = world.client_with(|builder| builder.label("worker-7")).await;
    let owner = Owner::new("transfer 4711").unwrap();
    assert_eq!(owner.name(), "transfer 4711");
    let _guard = client.reentrant("again").unwrap().lock(&owner).await.unwrap();
    assert_eq!(&*world.line(&client, "again").await.holders[0].note.owner, "transfer 4711");
    // It is that lock's note, not the client's.
    let _other = client.mutex("plain").unwrap().lock().await.unwrap();
    assert_eq!(&*world.line(&client, "plain").await.holders[0].note.owner, "worker-7");
}

/// An owner is a value that can be used anywhere. What it holds on one store, it does not hold on another.
pub async fn what_an_owner_holds_on_one_store_it_does_not_hold_on_another(world: World) {
    let (here, elsewhere) = (world.client().await, world.client_of_another_store().await);
    let owner = Owner::new("transfer").unwrap();
    let first = here.reentrant("again").unwrap().lock(&owner).await.unwrap();
    let second = elsewhere.reentrant("again").unwrap().lock(&owner).await.unwrap();
    assert_ne!(first.entry(), second.entry());
    assert_eq!(world.line(&here, "again").await.holders[0].place.entry, first.entry());
    assert_eq!(world.line(&elsewhere, "again").await.holders[0].place.entry, second.entry());
    second.release().await.unwrap();
    assert_eq!(elsewhere.inspect("again").await.unwrap(), None);
    first.check().unwrap();
    first.release().await.unwrap();
    assert_eq!(here.inspect("again").await.unwrap(), None);
}

pub async fn a_store_that_does_not_answer_is_an_error_to_an_owner_too(world: World) {
    let client = world.client().await;
    let (lock, owner) = (client.reentrant("again").unwrap(), Owner::new("transfer").unwrap());
    client.faults.always(Verb::Enter, Fault::Swallowed);
    assert_eq!(lock.try_lock(&owner).await.unwrap_err().kind(), ErrorKind::Unreachable);
    for _ in 0..5 {
        let waited = lock.lock_within(&owner, world.ttl() / 20).await;
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Unreachable);
    }
    assert_eq!(lock.lock(&owner).await.unwrap_err().kind(), ErrorKind::Unreachable);
    client.faults.heal();
    lock.lock(&owner).await.unwrap().release().await.unwrap();
}
