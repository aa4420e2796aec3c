//! Keys that are used again: whoever came to one later is not taken for whoever was there before.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::backend::etcd::Etcd;
use leasehold::backend::{
    Annotation, Backend as _, Departure, EntryId, Note, Patience, Place, Query, Request, Standing, Terms,
};
use leasehold::{Claim, Key, Loss, Namespace};
use leasehold_testbed::Proxy;
use leasehold_testbed::etcd::{Cluster, Server};

use crate::{TTL, connect, keys, soon, timer, until_waiting};

/// Every key that was ever made under that beginning, though it may be gone, and how often.
fn made(server: &Server, beginning: &str, count: usize) -> BTreeSet<String> {
    let watch = server.session(&["watch", "--prefix", "--rev=1", beginning]).unwrap();
    let mut made = BTreeSet::new();
    let mut seen = 0;
    while seen < count {
        if watch.line() == "PUT" {
            made.insert(watch.line());
            seen += 1;
        }
    }
    made
}

/// The lease that a client's entries are on, by one that is held.
fn lease_of(key: &str) -> String {
    key.rsplit_once('/').unwrap().1.split_once('-').unwrap().0.to_owned()
}

pub(crate) fn request(name: &str, id: u128) -> Request {
    let key = Key::new(&Namespace::new("lock").unwrap(), name).unwrap();
    Request {
        place: Place { key, entry: EntryId(id) },
        claim: Claim::Exclusive,
        patience: Patience::Queue,
        terms: Terms { holding: TTL, waiting: TTL },
        note: Note { owner: format!("the {id}th").into(), host: "here".into(), pid: 1, value: None },
        returns: false,
    }
}

async fn holds(store: &Etcd, request: &Request) {
    let standing = store.enter(request).await.unwrap();
    assert!(matches!(standing, Standing::Holding { .. }), "{standing:?}");
}

/// Has all connections made that there will be: the second lock on a runtime makes one of that runtime's own.
async fn warm_up(store: &Etcd) {
    for warm in [1001, 1002].map(|id| request("warm", id)) {
        holds(store, &warm).await;
        store.leave(&warm.place).await.unwrap();
    }
}

/// Whose turn it is, and who waits.
async fn in_line(store: &Etcd, of: &Request) -> Vec<u128> {
    let key = of.place.key.clone();
    let query = Query { namespace: key.namespace().clone(), key: Some(key), after: None, keys_max: 1 };
    let views = store.inspect(&query).await.unwrap().items;
    let line = views.into_iter().flat_map(|view| view.holders.into_iter().chain(view.waiters.unwrap()));
    line.map(|entry| entry.place.entry.0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_acquisitions_of_one_lock_by_one_session_use_one_key() {
    const TIMES: usize = 1_000;
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let mutex = locks.mutex("thousand").unwrap();
    for _ in 0..TIMES {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let made = made(server, "lock/thousand/", TIMES);
    assert_eq!(made.len(), 1, "{made:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_as_many_keys_in_a_line_as_it_had_entries_there_at_a_time() {
    const AT_A_TIME: usize = 3;
    const TIMES: usize = 20;
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let (readers, permits) = (locks.rw_lock("readers").unwrap(), locks.semaphore("permits", 5).unwrap());
    for _ in 0..TIMES {
        let (mut read, mut permitted) = (Vec::new(), Vec::new());
        for _ in 0..AT_A_TIME {
            read.push(readers.read().await.unwrap());
            permitted.push(permits.try_acquire(1).await.unwrap().expect("there is room"));
        }
        for (read, permit) in read.into_iter().rev().zip(permitted) {
            read.release().await.unwrap();
            permit.release().await.unwrap();
        }
    }
    for line in ["lock/readers/", "lock/permits/"] {
        let made = made(server, line, AT_A_TIME * TIMES);
        assert_eq!(made.len(), AT_A_TIME, "{made:?}");
    }
}

/// Whoever looked before and evicts afterwards means the one that it saw.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_evicts_an_entry_that_has_left_does_not_hit_the_one_that_came_to_its_key() {
    let server = &Cluster::shared().servers()[0];
    let (locks, operator) = (connect(&Cluster::shared().url()).await, connect(&Cluster::shared().url()).await);
    let mutex = locks.mutex("seen-before").unwrap();
    let first = mutex.lock().await.unwrap();
    let (seen, at) = (operator.inspect("seen-before").await.unwrap().unwrap(), keys(server, "lock/seen-before/"));
    first.release().await.unwrap();
    let second = mutex.lock().await.unwrap();
    assert_eq!(keys(server, "lock/seen-before/"), at);
    assert_eq!(operator.evict(&seen.holders[0]).await.unwrap(), Departure::WasGone);
    second.check().unwrap();
    second.release().await.unwrap();
}

/// The one behind is told of a departure though the key is there again before it can look.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_key_that_is_made_again_at_once_has_its_turn_first() {
    let server = &Cluster::shared().servers()[0];
    let (locks, other) = (connect(&Cluster::shared().url()).await, connect(&Cluster::shared().url()).await);
    let (ours, theirs) = (locks.mutex("again").unwrap(), other.mutex("again").unwrap());
    let mut held = ours.lock().await.unwrap();
    for _ in 0..20 {
        let waiting = theirs.clone();
        let waiter = tokio::spawn(async move { waiting.lock().await });
        until_waiting(&other, "again", 1).await.unwrap();
        let token = held.token();
        held.release().await.unwrap();
        let again = ours.clone();
        let again = tokio::spawn(async move { again.lock().await });
        let next = soon("the waiter's turn", waiter).await.unwrap().unwrap();
        assert!(next.token() > token);
        until_waiting(&other, "again", 1).await.unwrap();
        next.release().await.unwrap();
        held = soon("our turn again", again).await.unwrap().unwrap();
    }
    let stranger = server.session(&["lock", "lock/again"]).unwrap();
    until_waiting(&other, "again", 1).await.unwrap();
    held.release().await.unwrap();
    let last = tokio::spawn(async move { ours.lock().await });
    assert!(stranger.line().starts_with("lock/again/"));
    until_waiting(&other, "again", 1).await.unwrap();
    stranger.end();
    soon("our turn", last).await.unwrap().unwrap().release().await.unwrap();
}

/// Whether the departure arrived or not: its key is left alone until that is known, and then used again.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_departure_was_not_answered_is_not_used_again_before_it_is() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let (near, far) = (
        Etcd::connect(&cluster.url()).await.unwrap(),
        Etcd::connect(&format!("etcd://{}", proxy.address())).await.unwrap(),
    );
    let [first, second, third] = [1, 2, 3].map(|id| request("unanswered", id));
    holds(&far, &first).await;
    let at = keys(server, "lock/unanswered/").remove(0);
    proxy.drop_replies(1);
    far.leave(&first.place).await.unwrap_err();
    proxy.heal();
    far.enter(&second).await.unwrap();
    let line = keys(server, "lock/unanswered/");
    assert!(line.iter().filter(|key| **key == at).count() == in_line(&near, &first).await.len() - 1, "{line:?}");
    // Repeated, as whoever gives a lock back does until it is answered, and once more than that.
    far.leave(&first.place).await.unwrap();
    assert_eq!(in_line(&near, &first).await, [2]);
    far.enter(&third).await.unwrap();
    assert_eq!(in_line(&near, &first).await, [2, 3]);
    assert!(keys(server, "lock/unanswered/").contains(&at), "it can be used again");
    assert_eq!(far.leave(&first.place).await.unwrap(), Departure::WasGone);
    assert_eq!(in_line(&near, &first).await, [2, 3]);
}

/// Nobody was told that it was made, and it was not found: it may yet appear.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_yet_be_made_is_left_to_whoever_was_to_have_it() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let store = Etcd::builder(&format!("etcd://{}", proxy.address())).unwrap().patience(Duration::from_millis(500));
    let store = store.connect().await.unwrap();
    warm_up(&store).await;
    let [warm, lost, next, last] = [1, 2, 3, 4].map(|id| request("late", id));
    holds(&store, &warm).await;
    let at = keys(server, "lock/late/").remove(0);
    store.leave(&warm.place).await.unwrap();
    proxy.blackhole();
    store.enter(&lost).await.unwrap_err();
    proxy.heal();
    let left = soon("the network is back", async {
        loop {
            match store.leave(&lost.place).await {
                Ok(departure) => break departure,
                Err(_) => timer().sleep(Duration::from_millis(20)).await,
            }
        }
    });
    assert_eq!(left.await, Departure::WasGone);
    holds(&store, &next).await;
    let instead = keys(server, "lock/late/");
    assert!(!instead.contains(&at), "{instead:?}");
    // There it is.
    let value = format!("{:032x},x,0,600,1,here,late", 2);
    server.cli(&["put", &at, &value, &format!("--lease={}", lease_of(&at))]);
    assert_eq!(in_line(&store, &next).await, [3, 2]);
    assert_eq!(store.leave(&lost.place).await.unwrap(), Departure::WasWaiting);
    assert_eq!(in_line(&store, &next).await, [3]);
    store.leave(&next.place).await.unwrap();
    holds(&store, &last).await;
    assert_eq!(keys(server, "lock/late/"), instead);
}

/// Its answer was lost, and it is asked for again under the same id.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_was_made_unheard_is_known_by_its_id_and_taken_out_by_what_it_says() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let store = Etcd::connect(&format!("etcd://{}", proxy.address())).await.unwrap();
    let near = Etcd::connect(&cluster.url()).await.unwrap();
    let mut arrived = 0;
    for id in 1..20 {
        let unheard = request("unheard", id);
        warm_up(&store).await;
        proxy.drop_replies(1);
        let answer = store.enter(&unheard).await;
        proxy.heal();
        answer.unwrap_err();
        let is_there = in_line(&near, &unheard).await == [id];
        arrived += usize::from(is_there);
        if is_there && id % 2 == 0 {
            let before = keys(server, "lock/unheard/");
            holds(&store, &unheard).await;
            assert_eq!(keys(server, "lock/unheard/"), before);
        }
        let left = store.leave(&unheard.place).await.unwrap();
        // It may have arrived since we looked.
        assert!(left == Departure::WasHolding || !is_there, "{left:?}");
        assert_eq!(in_line(&near, &unheard).await, [0; 0]);
    }
    assert!(arrived > 1, "no request arrived, so that no reply was lost");
}

/// Somebody deletes an entry and puts a copy in its place, while nobody can watch. To its owner it is gone all the same: whoever
/// was behind it is before the copy.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_was_deleted_and_made_again_by_another_is_lost() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let locks = connect(&format!("etcd://{}", proxy.address())).await;
    let exclusive = locks.mutex("copied").unwrap().lock().await.unwrap();
    let shared = locks.rw_lock("copied-too").unwrap().read().await.unwrap();
    timer().sleep(Duration::from_millis(200)).await; // so that both are watched
    proxy.refuse();
    proxy.cut();
    for line in ["lock/copied/", "lock/copied-too/"] {
        let key = keys(server, line).remove(0);
        let value = server.cli(&["get", "--print-value-only", &key]);
        server.cli(&["del", &key]);
        server.cli(&["put", &key, value.trim_end(), &format!("--lease={}", lease_of(&key))]);
    }
    let status = server.cli(&["put", "x", "y", "--write-out", "json"]);
    let revision: String =
        status.split("\"revision\":").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    server.cli(&["compact", &revision]);
    proxy.heal();
    assert_eq!(soon("the holder is told", exclusive.lost()).await, Loss::Gone);
    assert_eq!(soon("the reader is told", shared.lost()).await, Loss::Gone);
    exclusive.release().await.unwrap_err();
    shared.release().await.unwrap_err();
    // It is not ours to take away.
    assert_eq!((keys(server, "lock/copied/").len(), keys(server, "lock/copied-too/").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_who_wrote_where_our_entry_was_to_be_is_waited_for_and_not_written_over() {
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    let held = locks.mutex("occupied-before").unwrap().lock().await.unwrap();
    let lease = lease_of(&keys(server, "lock/occupied-before/")[0]);
    for (name, key) in [("occupied", format!("{lease}-0")), ("occupied-by-go", lease)] {
        let (mutex, key) = (locks.mutex(name).unwrap(), format!("lock/{name}/{key}"));
        server.cli(&["put", &key, "a stranger's"]);
        assert!(mutex.try_lock().await.unwrap().is_none());
        assert!(locks.inspect(name).await.unwrap().unwrap().holders[0].foreign);
        let waiter = tokio::spawn(async move { mutex.lock().await });
        until_waiting(&locks, name, 1).await.unwrap();
        assert_eq!(server.cli(&["get", "--print-value-only", &key]).trim_end(), "a stranger's");
        server.cli(&["del", &key]);
        soon("our turn", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_given_a_value_later_still_says_who_made_it() {
    let store = Etcd::connect(&Cluster::shared().url()).await.unwrap();
    let held = request("noted", 1);
    holds(&store, &held).await;
    let note = Note { value: Some(b"a, b=c/\xff"[..].into()), ..held.note.clone() };
    assert_eq!(store.annotate(&held.place, &note).await.unwrap(), Annotation::Written);
    let key = held.place.key.clone();
    let query = Query { namespace: key.namespace().clone(), key: Some(key), after: None, keys_max: 1 };
    let view = store.inspect(&query).await.unwrap().items.remove(0);
    assert_eq!(view.holders[0].note, note);
    assert_eq!(store.leave(&held.place).await.unwrap(), Departure::WasHolding);
}
