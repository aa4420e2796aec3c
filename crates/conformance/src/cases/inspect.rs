//! Looking at the store: who holds, who waits, and how to take an entry out.

use std::time::Duration;

use leasehold::backend::{Departure, EntryView};
use leasehold::{Capacity, Claim, Mutex};

use crate::World;

pub async fn a_line_shows_who_holds_and_who_waits_and_since_when(world: World) {
    let labelled = async |label: &str| world.client_with(|builder| builder.label(label)).await;
    let (holder, second, third) = (labelled("worker-1").await, labelled("worker-2").await, labelled("").await);
    let before = world.now();
    let guard = holder.mutex("seen").unwrap().lock().await.unwrap();
    let queueing = world.capabilities().await.queueing;
    let mut waiting = Vec::new();
    for client in [&second, &third] {
        if queueing {
            let mutex = client.mutex("seen").unwrap();
            waiting.push(tokio::spawn(async move { mutex.lock().await }));
            world.until_waiting(&holder, "seen", waiting.len()).await;
        }
    }
    let span = world.ttl() / 10;
    world.pass(span).await;
    let view = world.line(&third, "seen").await;
    let elapsed = before.until(world.now());
    assert_eq!(view.key, *guard.key());
    assert_eq!(view.capacity, Some(Capacity::Whole));
    assert_eq!(view.holders.len(), 1);
    let waiters = view.waiters.clone().unwrap_or_default();
    let owners = |entries: &[EntryView]| entries.iter().map(|e| e.note.owner.to_string()).collect::<Vec<_>>();
    assert_eq!(owners(&view.holders), ["worker-1"]);
    if queueing {
        assert_eq!(owners(&waiters), ["worker-2", ""]);
    } else {
        assert_eq!(waiters, []);
    }
    let host = view.holders[0].note.host.clone();
    assert!(!host.is_empty());
    for entry in view.holders.iter().chain(&waiters) {
        assert_eq!(entry.place.key, *guard.key());
        assert_eq!(entry.claim, Claim::Exclusive);
        assert_eq!((&entry.note.host, entry.note.pid), (&host, std::process::id()));
        assert_eq!(entry.note.value, None);
        assert!(entry.age + Duration::from_millis(2) >= span, "{:?} old after {span:?}", entry.age);
        assert!(entry.age <= elapsed + Duration::from_millis(2), "{:?} old after {elapsed:?}", entry.age);
        assert!(entry.lease_left > Duration::ZERO && entry.lease_left <= world.ttl(), "{:?}", entry.lease_left);
    }
    assert_eq!((view.holders[0].place.entry, view.holders[0].token), (guard.entry(), Some(guard.token())));
    assert!(waiters.iter().all(|waiter| waiter.token.is_none()), "a waiter has no token yet");
    let tickets: Vec<_> = view.holders.iter().chain(&waiters).map(|entry| entry.ticket).collect();
    assert!(tickets.is_sorted_by(|earlier, later| earlier < later), "{tickets:?}");
    assert_eq!(second.inspect_all().await.unwrap().len(), 1);

    // A renewal makes the lease younger, and the entry no younger.
    world.pass(world.ttl()).await;
    let later = &world.line(&third, "seen").await.holders[0];
    assert!(later.age >= world.ttl() && later.lease_left <= world.ttl(), "{later:?}");
    guard.release().await.unwrap();
    for waiting in waiting {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(holder.inspect("seen").await.unwrap(), None);
}

pub async fn a_line_shows_what_each_entry_claims(world: World) {
    let (client, able) = (world.client().await, world.capabilities().await);
    if able.shared {
        let lock = client.rw_lock("shared").unwrap();
        let (_one, _two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        let view = world.line(&client, "shared").await;
        assert_eq!(view.capacity, Some(Capacity::Whole));
        assert_eq!(view.holders.iter().map(|e| e.claim).collect::<Vec<_>>(), [Claim::Shared, Claim::Shared]);
    }
    if able.counted {
        let permits = client.semaphore("counted", 5).unwrap();
        let (_one, _two) = (permits.acquire(1).await.unwrap(), permits.acquire(3).await.unwrap());
        let view = world.line(&client, "counted").await;
        assert_eq!(view.capacity, Some(Capacity::Permits(5.try_into().unwrap())));
        let claim = |count: u32| Claim::Permits { count: count.try_into().unwrap(), of: 5.try_into().unwrap() };
        assert_eq!(view.holders.iter().map(|e| e.claim).collect::<Vec<_>>(), [claim(1), claim(3)]);
    }
    let _guard = client.mutex("whole").unwrap().lock().await.unwrap();
    let view = world.line(&client, "whole").await;
    assert_eq!((view.capacity, view.holders[0].claim), (Some(Capacity::Whole), Claim::Exclusive));
}

/// More keys than a page holds; whatever the page's size, every key comes once and in order.
pub async fn pages_are_complete_and_in_order(world: World) {
    const KEYS: usize = 23;
    let client = world.client().await;
    let mut names: Vec<_> = (0..KEYS).map(|nth| format!("paged/{}", nth * 7 % KEYS)).collect();
    let mutexes: Vec<_> = names.iter().map(|name| client.mutex(name).unwrap()).collect();
    let _guards = futures_util::future::try_join_all(mutexes.iter().map(Mutex::lock)).await.unwrap();
    names.sort_unstable();
    let named = |items: &[leasehold::backend::KeyView]| -> Vec<String> {
        items.iter().map(|view| String::from_utf8(view.key.name().to_owned()).unwrap()).collect()
    };
    for keys_max in [1, 4, KEYS - 1, KEYS, KEYS + 1] {
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = client.inspect_page(after, keys_max).await.unwrap();
            assert!(page.items.len() <= keys_max, "{} keys on a page of {keys_max}", page.items.len());
            seen.extend(named(&page.items));
            pages += 1;
            assert!(pages <= KEYS + 1, "the pages of {keys_max} do not end: {seen:?}");
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, names, "in pages of {keys_max}");
    }
    assert_eq!(named(&client.inspect_all().await.unwrap()), names);
}

/// Not even one whose name is the beginning of the other's.
pub async fn a_namespace_does_not_see_the_keys_of_another(world: World) {
    let longer = format!("{}-x", world.namespace());
    let (client, other) = (world.client().await, world.client_with(|builder| builder.namespace(&longer)).await);
    for name in ["same", "-x", "x/same"] {
        let here = client.mutex(name).unwrap().try_lock().await.unwrap().expect("it is free here");
        assert_eq!(other.inspect(name).await.unwrap(), None);
        assert_eq!(other.inspect_all().await.unwrap(), []);
        let there = other.mutex(name).unwrap().try_lock().await.unwrap().expect("and there");
        let (view, other_view) = (client.inspect_all().await.unwrap(), other.inspect_all().await.unwrap());
        assert_eq!((view.len(), other_view.len()), (1, 1));
        assert_eq!((&view[0].key, &other_view[0].key), (here.key(), there.key()));
        assert_eq!(view[0].holders[0].place.entry, here.entry());
        assert_eq!(other_view[0].holders[0].place.entry, there.entry());
        here.release().await.unwrap();
        there.check().unwrap();
        assert_eq!(other.inspect_all().await.unwrap().len(), 1);
        there.release().await.unwrap();
    }
}

pub async fn an_eviction_names_an_entry_and_tells_what_it_was(world: World) {
    let (client, operator) = (world.client().await, world.client().await);
    let evicted = client.mutex("evicted").unwrap().lock().await.unwrap();
    let holder = world.line(&operator, "evicted").await.holders.remove(0);
    assert_eq!(operator.evict(&holder).await.unwrap(), Departure::WasHolding);
    assert_eq!(operator.evict(&holder).await.unwrap(), Departure::WasGone);
    assert_eq!(operator.inspect("evicted").await.unwrap(), None);
    // The entry is named, so whoever came after it is safe.
    let guard = operator.mutex("evicted").unwrap().try_lock().await.unwrap().expect("it is free");
    assert_eq!(client.evict(&holder).await.unwrap(), Departure::WasGone);
    drop(evicted);
    world.pass(world.ttl() / 2).await;
    guard.check().unwrap();
    assert_eq!(world.line(&client, "evicted").await.holders[0].place.entry, guard.entry());
    guard.release().await.unwrap();
}

/// It lines up again, behind those who were behind it.
pub async fn an_evicted_waiter_that_is_alive_lines_up_again(world: World) {
    if !world.capabilities().await.queueing {
        return;
    }
    let (holder, client, operator) = (world.client().await, world.client().await, world.client().await);
    let guard = holder.mutex("evicted").unwrap().lock().await.unwrap();
    let mutex = client.mutex("evicted").unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    world.until_waiting(&operator, "evicted", 1).await;
    let waiter = world.line(&operator, "evicted").await.waiters.unwrap().remove(0);
    assert_eq!(operator.evict(&waiter).await.unwrap(), Departure::WasWaiting);
    assert_eq!(operator.evict(&waiter).await.unwrap(), Departure::WasGone);
    guard.check().unwrap();
    world.until_waiting(&operator, "evicted", 1).await;
    let again = world.line(&operator, "evicted").await.waiters.unwrap().remove(0);
    assert!(again.ticket > waiter.ticket);
    assert_ne!(again.place.entry, waiter.place.entry);
    assert_eq!(
        operator.evict(&waiter).await.unwrap(),
        Departure::WasGone,
        "its new place is not the one that was named"
    );
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

pub async fn an_empty_line_is_not_shown(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    assert_eq!(client.inspect("empty").await.unwrap(), None);
    assert_eq!(client.inspect_all().await.unwrap(), []);
    let guard = client.mutex("empty").unwrap().lock().await.unwrap();
    assert!(other.mutex("empty").unwrap().try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert_eq!(client.inspect("empty").await.unwrap(), None);
    assert_eq!(client.inspect_all().await.unwrap(), []);
    // Nor one whose last entry has expired.
    let _crashed = client.mutex("empty").unwrap().lock().await.unwrap();
    client.faults.always_all(crate::Fault::Swallowed);
    world.pass(world.ttl() + world.slack()).await;
    assert_eq!(other.inspect_all().await.unwrap(), []);
    assert_eq!(other.inspect("empty").await.unwrap(), None);
    let page = other.inspect_page(None, 1).await.unwrap();
    assert_eq!(page.items, []);
}
