//! What cannot be honoured is refused by name, and changes nothing.

use leasehold::backend::KeyView;
use leasehold::{Error, ErrorKind, Fate};

use crate::{Verb, World};

const NAME: &str = "one kind at a time";

pub async fn a_key_in_use_as_a_lock_is_refused_as_a_semaphore(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let guard = one.mutex(NAME).unwrap().lock().await.unwrap();
    let Ok(semaphore) = two.semaphore(NAME, 1) else {
        assert!(!two.capabilities().counted);
        return;
    };
    let before = world.line(&one, NAME).await;
    let refused = [
        semaphore.acquire(1).await.unwrap_err(),
        semaphore.try_acquire(1).await.unwrap_err(),
        semaphore.acquire_within(1, world.ttl()).await.unwrap_err(),
    ];
    for error in refused {
        is_a_kind_mismatch(&error);
        assert_eq!(error.key(), Some(semaphore.key()));
    }
    is_unchanged(&before, &world.line(&one, NAME).await);
    guard.release().await.unwrap();
    semaphore.acquire(1).await.unwrap().release().await.unwrap();
}

pub async fn a_key_in_use_as_a_semaphore_is_refused_as_a_lock(world: World) {
    let (one, two) = (world.client().await, world.client().await);
    let Ok(semaphore) = one.semaphore(NAME, 2) else {
        assert!(!one.capabilities().counted);
        return;
    };
    let guard = semaphore.acquire(1).await.unwrap();
    let before = world.line(&one, NAME).await;
    let mutex = two.mutex(NAME).unwrap();
    let mut refused = vec![
        mutex.lock().await.unwrap_err(),
        mutex.try_lock().await.unwrap_err(),
        mutex.lock_within(world.ttl()).await.unwrap_err(),
    ];
    if let Ok(lock) = two.rw_lock(NAME) {
        refused.push(lock.read().await.unwrap_err());
        refused.push(lock.try_write().await.unwrap_err());
    }
    for error in refused {
        is_a_kind_mismatch(&error);
        assert_eq!(error.key(), Some(mutex.key()));
    }
    is_unchanged(&before, &world.line(&one, NAME).await);
    guard.release().await.unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
}

fn is_a_kind_mismatch(error: &Error) {
    assert_eq!((error.kind(), error.fate()), (ErrorKind::KindMismatch, Fate::NotApplied), "{error}");
    assert!(error.to_string().contains(NAME), "{error}");
}

fn is_unchanged(before: &KeyView, after: &KeyView) {
    assert_eq!((before.capacity, &before.key), (after.capacity, &after.key));
    let entries = |view: &KeyView| {
        let waiters = view.waiters.iter().flatten();
        view.holders.iter().chain(waiters).map(|entry| (entry.place.entry, entry.ticket)).collect::<Vec<_>>()
    };
    assert_eq!(entries(before), entries(after));
}

pub async fn what_the_store_lacks_is_refused_at_once_by_name(world: World) {
    let client = world.client().await;
    let offered = client.capabilities();
    let outcomes = [
        (true, "mutex", client.mutex(NAME).err()),
        (true, "reentrant", client.reentrant(NAME).err()),
        (true, "all_of", client.all_of([NAME]).err()),
        (offered.shared, "rw_lock", client.rw_lock(NAME).err()),
        (offered.counted, "semaphore", client.semaphore(NAME, 3).err()),
        (offered.notes, "election", client.election(NAME).err()),
    ];
    for (offered, what, refused) in outcomes {
        match refused {
            None => assert!(offered, "{what} is offered by a store that cannot honour it"),
            Some(error) => {
                assert_eq!((offered, error.kind()), (false, ErrorKind::Unsupported), "{what}: {error}");
                assert_eq!(error.fate(), Fate::NotApplied);
                assert_eq!(error.key(), Some(client.mutex(NAME).unwrap().key()), "{what}");
                assert!(error.to_string().contains(NAME), "{what}: {error}");
            }
        }
    }
    assert_eq!(client.faults.calls(Verb::Enter), 0);
}
