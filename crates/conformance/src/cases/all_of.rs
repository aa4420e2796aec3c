//! Many keys at once: all of them or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{Attempt, ErrorKind};

use crate::{Client, Fault, Verb, World};

/// Waits until nobody is in the line of `name` but the one who holds it.
async fn until_nobody_waits(world: &World, client: &Client, name: &str) {
    let only_a_holder = async || {
        let line = world.line(client, name).await;
        line.holders.len() == 1 && line.waiters.unwrap_or_default().is_empty()
    };
    world.until("only the holder is left in line", world.ttl() / 4, only_a_holder).await;
}

pub async fn one_busy_key_means_that_none_is_taken(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    for busy in ["a", "b", "c"] {
        let all = client.all_of(["c", "a", "b"]).unwrap();
        let rival = other.mutex(busy).unwrap().lock().await.unwrap();
        assert!(all.try_lock().await.unwrap().is_none());
        assert!(all.lock_within(world.ttl() / 8).await.unwrap().is_none());
        let Attempt::Busy(why) = all.attempt_within(world.ttl() / 8).await.unwrap() else { panic!("{busy} is busy") };
        assert_eq!(why.key.name(), busy.as_bytes());
        assert_eq!(why.held_by[0].place.entry, rival.entry());
        for free in ["a", "b", "c"].into_iter().filter(|name| *name != busy) {
            world.until_deserted(&other, free).await;
        }
        until_nobody_waits(&world, &other, busy).await;
        assert_eq!(client.leases_kept(), 0);
        rival.release().await.unwrap();
        let guard = all.lock().await.unwrap();
        let keys: Vec<_> = guard.tokens().map(|(key, _)| key.name().to_owned()).collect();
        assert_eq!(keys, [b"a", b"b", b"c"]);
        guard.check().unwrap();
        assert!(guard.remaining() > Duration::ZERO);
        guard.release().await.unwrap();
        assert_eq!(other.inspect_all().await.unwrap(), []);
    }
}

/// Everybody wants three of five keys, named in an order of its own.
pub async fn crossing_orders_do_not_deadlock(world: World) {
    const KEYS: [&str; 5] = ["k/0", "k/1", "k/2", "k/3", "k/4"];
    let rounds = if world.capabilities().await.queueing { 4 } else { 1 };
    let clients = [world.client().await, world.client().await];
    let in_use: Arc<[AtomicBool; 5]> = Arc::default();
    let world = Arc::new(world);
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..world.crowd() / 2 {
        let mut rng = fastrand::Rng::with_seed(nth as u64);
        let (locks, in_use, world) = (clients[nth % 2].locks.clone(), in_use.clone(), world.clone());
        tasks.spawn(async move {
            for _ in 0..rounds {
                let mut wanted = [0, 1, 2, 3, 4];
                rng.shuffle(&mut wanted);
                let wanted = &wanted[..3];
                let all = locks.all_of(wanted.iter().map(|key| KEYS[*key])).unwrap();
                let guard = all.lock().await.unwrap();
                for key in wanted {
                    assert!(!in_use[*key].swap(true, Ordering::SeqCst), "{} is in use", KEYS[*key]);
                }
                world.pass(Duration::from_micros(300)).await;
                for key in wanted {
                    in_use[*key].store(false, Ordering::SeqCst);
                }
                guard.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(clients[0].inspect_all().await.unwrap(), []);
}

/// What was spent on the first key is not there for the second.
pub async fn one_deadline_counts_for_all_keys(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let (first, _second) =
        (other.mutex("a").unwrap().lock().await.unwrap(), other.mutex("b").unwrap().lock().await.unwrap());
    let limit = world.ttl() / 2;
    let all = client.all_of(["a", "b"]).unwrap();
    let asked_at = world.now();
    let taking = async {
        assert!(all.lock_within(limit).await.unwrap().is_none());
        asked_at.until(world.now())
    };
    let releasing = async {
        world.pass(limit * 6 / 10).await;
        first.release().await.unwrap();
    };
    let (took, ()) = futures_util::future::join(taking, releasing).await;
    assert!(took <= limit + world.slack(), "{took:?} instead of {limit:?}");
    if world.capabilities().await.queueing {
        assert!(took >= limit, "gave up {:?} early", limit - took);
    }
    world.until_deserted(&other, "a").await;
    until_nobody_waits(&world, &other, "b").await;
}

/// Whoever waits for the first key then finds the later ones free, rather than waiting at each.
pub async fn keys_are_released_in_reverse(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let guard = client.all_of(["a", "b", "c"]).unwrap().lock().await.unwrap();
    client.faults.always(Verb::Leave, Fault::Slow(world.ttl() / 10));
    let releasing = tokio::spawn(guard.release());
    let held = async || {
        let all = other.inspect_all().await.unwrap();
        all.iter().map(|view| String::from_utf8(view.key.name().to_owned()).unwrap()).collect::<String>()
    };
    let mut seen = vec![held().await];
    while !seen.last().unwrap().is_empty() {
        world.pass(Duration::from_millis(1)).await;
        let now = held().await;
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert_eq!(seen, ["abc", "ab", "a", ""]);
    releasing.await.unwrap().unwrap();
}

pub async fn losing_one_key_is_losing_all_and_names_it(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let guard = client.all_of(["a", "b", "c"]).unwrap().lock().await.unwrap();
    let view = world.line(&other, "b").await;
    other.evict(&view.holders[0]).await.unwrap();
    let lost = world.within(world.ttl(), guard.lost()).await.expect("the eviction is noticed");
    assert_eq!((lost.kind(), lost.key()), (ErrorKind::Lost, Some(&view.key)));
    let check = guard.check().unwrap_err();
    assert_eq!((check.kind(), check.key()), (ErrorKind::Lost, Some(&view.key)));
    assert!(guard.remaining().is_zero());
    let run = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!((run.kind(), run.key()), (ErrorKind::Lost, Some(&view.key)));
    let released = guard.release().await.unwrap_err();
    assert_eq!((released.kind(), released.key()), (ErrorKind::Lost, Some(&view.key)));
    assert_eq!(other.inspect_all().await.unwrap(), [], "the others were released all the same");
}

pub async fn losing_an_early_key_while_waiting_for_a_late_one_is_a_loss(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let rival = other.mutex("b").unwrap().lock().await.unwrap();
    let all = client.all_of(["a", "b", "c"]).unwrap();
    let taking = tokio::spawn(async move { all.lock().await });
    let entered = async || other.inspect("a").await.unwrap().is_some();
    world.until("the first key is held", world.ttl() / 4, entered).await;
    if world.capabilities().await.queueing {
        world.until_waiting(&other, "b", 1).await;
    }
    let early = world.line(&other, "a").await;
    other.evict(&early.holders[0]).await.unwrap();
    let lost = world.within(world.ttl() / 2 + world.slack(), taking).await.expect("it does not wait for the rival");
    let lost = lost.unwrap().unwrap_err();
    assert_eq!((lost.kind(), lost.key()), (ErrorKind::Lost, Some(&early.key)));
    world.until_deserted(&other, "a").await;
    until_nobody_waits(&world, &other, "b").await;
    assert_eq!(other.inspect("c").await.unwrap(), None);
    assert_eq!(client.leases_kept(), 0);
    rival.check().unwrap();
}

pub async fn a_key_named_twice_counts_once(world: World) {
    let client = world.client().await;
    let guard = client.all_of(["b", "a", "b", "a"]).unwrap().lock().await.unwrap();
    let keys: Vec<_> = guard.tokens().map(|(key, _)| key.name().to_owned()).collect();
    assert_eq!(keys, [b"a", b"b"]);
    assert_eq!(client.leases_kept(), 2);
    for (key, token) in guard.tokens() {
        let line = world.line(&client, key.name()).await;
        assert_eq!((line.holders.len(), line.holders[0].token), (1, Some(token)));
    }
    guard.release().await.unwrap();
    assert_eq!(client.inspect_all().await.unwrap(), []);
}

pub async fn no_keys_are_refused(world: World) {
    let client = world.client().await;
    let refused = client.all_of(Vec::<&str>::new()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidOption);
    assert!(refused.to_string().contains("all_of"), "{refused}");
    // One bad name among good ones is refused before any of them is asked for.
    assert_eq!(client.all_of(["a", "", "b"]).unwrap_err().kind(), ErrorKind::InvalidKey);
    assert_eq!(client.faults.calls(Verb::Enter), 0);
}

pub async fn cancelling_midway_leaves_nothing(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let rival = other.mutex("b").unwrap().lock().await.unwrap();
    let all = client.all_of(["a", "b", "c"]).unwrap();
    assert!(world.within(world.ttl() / 5, all.lock()).await.is_none(), "it waits for the rival");
    world.until_deserted(&other, "a").await;
    until_nobody_waits(&world, &other, "b").await;
    assert_eq!(other.inspect("c").await.unwrap(), None);
    assert_eq!(client.leases_kept(), 0);
    rival.release().await.unwrap();
    // A guard that is dropped leaves nothing either.
    drop(all.lock().await.unwrap());
    for name in ["a", "b", "c"] {
        world.until_deserted(&other, name).await;
    }
}

/// The middle key cannot be asked for; the first one is given back.
pub async fn a_fault_midway_leaves_nothing(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let all = client.all_of(["a", "b", "c"]).unwrap();
    client.faults.next(Verb::Enter, Fault::Slow(Duration::from_millis(1)));
    client.faults.next(Verb::Enter, Fault::Garbled);
    let error = all.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(error.key().map(leasehold::Key::name), Some(&b"b"[..]));
    for name in ["a", "b", "c"] {
        world.until_deserted(&other, name).await;
    }
    all.lock().await.unwrap().release().await.unwrap();
}
