//! Connections that break, fall silent, or lose a reply.

use std::time::Duration;

use leasehold::{Locks, Loss, State};
use leasehold_testbed::Proxy;
use leasehold_testbed::etcd::{Cluster, Server};

use crate::{connect, connect_for, keys, soon, timer, until_waiting};

fn revision(server: &Server) -> u64 {
    let answer = server.cli(&["get", "nothing", "--write-out", "json"]);
    let digits = answer.split("\"revision\":").nth(1).expect("an answer has a revision");
    digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// Has all connections made that there will be: the second lock on a runtime makes one of that runtime's own.
async fn warm_up(locks: &Locks) {
    for _ in 0..2 {
        locks.mutex("warm").unwrap().lock().await.unwrap().release().await.unwrap();
    }
}

/// Whether or not the request arrived, its entry does not stay; and it did arrive, for its making and its going are writes.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_reply_was_lost_on_the_way_is_found_and_taken_out() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let (near, far) = (connect(&cluster.url()).await, connect(&format!("etcd://{}", proxy.address())).await);
    let mut arrived = 0;
    for round in 0..5 {
        warm_up(&far).await;
        let before = revision(server);
        proxy.drop_replies(1);
        let lost = far.mutex("unsure").unwrap().try_lock().await;
        proxy.heal();
        assert!(lost.is_err(), "round {round}: {lost:?}");
        soon("nobody is in line", async {
            while near.inspect("unsure").await.unwrap().is_some() {
                timer().sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        near.mutex("unsure").unwrap().try_lock().await.unwrap().expect("it is free").release().await.unwrap();
        // That one made an entry and took it out, and so did the first if it arrived.
        arrived += usize::from(revision(server) >= before + 4);
    }
    assert!(arrived > 0, "no request arrived, so that no reply was lost");
    assert_eq!(keys(server, "lock/unsure/"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_costs_neither_a_lock_nor_a_place_in_line() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", cluster.servers()[0].port())).unwrap();
    let ttl = Duration::from_secs(6);
    let (near, far) =
        (connect_for(&cluster.url(), ttl).await, connect_for(&format!("etcd://{}", proxy.address()), ttl).await);
    let kept = far.mutex("kept").unwrap().lock().await.unwrap();
    let held = near.mutex("awaited").unwrap().lock().await.unwrap();
    let mutex = far.mutex("awaited").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&near, "awaited", 1).await.unwrap();
    let place = near.inspect("awaited").await.unwrap().unwrap().waiters.unwrap()[0].place.entry;
    // Once every eighth of a TTL: among the cut ones are keep-alives that are under way.
    for _ in 0..16 {
        proxy.cut();
        timer().sleep(ttl / 8).await;
        kept.check().unwrap();
    }
    held.release().await.unwrap();
    let awaited = soon("the waiter's turn", waiter).await.unwrap().unwrap();
    assert_eq!(awaited.entry(), place);
    soon("it is confirmed", async {
        while kept.state() != State::Held {
            timer().sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    awaited.release().await.unwrap();
    kept.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_network_is_down_is_told_at_its_deadline_and_before_anybody_else_holds() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", cluster.servers()[0].port())).unwrap();
    let ttl = Duration::from_secs(3);
    let (near, far) =
        (connect_for(&cluster.url(), ttl).await, connect_for(&format!("etcd://{}", proxy.address()), ttl).await);
    let guard = far.mutex("cut-off").unwrap().lock().await.unwrap();
    let mutex = near.mutex("cut-off").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&near, "cut-off", 1).await.unwrap();
    proxy.blackhole();
    let next = soon("the next one's turn", waiter).await.unwrap().unwrap();
    assert_eq!(guard.state(), State::Lost(Loss::Expired), "two believe to hold it");
    assert!(next.token() > guard.token());
}

/// A keep-alive that an enter has begun is joined by whoever renews meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_kept_alive_though_the_runtime_that_began_to_is_gone() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", cluster.servers()[0].port())).unwrap();
    let ttl = Duration::from_secs(6);
    let locks = connect_for(&format!("etcd://{}", proxy.address()), ttl).await;
    let guard = locks.mutex("kept").unwrap().lock().await.unwrap();
    let short_lived = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let warm = locks.clone();
    short_lived.spawn(async move { warm_up(&warm).await }).await.unwrap();
    // It is no longer fresh, and not yet due for renewal.
    timer().sleep(ttl * 7 / 24).await;
    proxy.delay(Duration::from_millis(400));
    let mutex = locks.mutex("begun").unwrap();
    short_lived.spawn(async move { mutex.lock().await });
    timer().sleep(Duration::from_millis(100)).await;
    short_lived.shutdown_background();
    proxy.delay(Duration::ZERO);
    timer().sleep(ttl * 3 / 2).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
}

/// The server begins to count when the keep-alive arrives, and the holder when it was sent: an answer that takes long leaves less.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_believed_in_from_when_its_keep_alive_was_sent() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", cluster.servers()[0].port())).unwrap();
    let (ttl, delay) = (Duration::from_secs(6), Duration::from_millis(300));
    let locks = connect_for(&format!("etcd://{}", proxy.address()), ttl).await;
    warm_up(&locks).await;
    let guard = locks.mutex("far").unwrap().lock().await.unwrap();
    proxy.delay(delay);
    let mut renewals = 0;
    let (mut before, started) = (guard.remaining(), timer().now());
    while started.until(timer().now()) < ttl {
        timer().sleep(Duration::from_millis(1)).await;
        let left = guard.remaining();
        if left > before + Duration::from_millis(500) {
            renewals += 1;
            assert!(left <= ttl - delay * 2, "{left:?} are left of {ttl:?} after an answer that took {:?}", delay * 2);
            // What is taken now has as much of the session as this has, but for what is taken off for clocks that drift.
            let late = locks.mutex("late").unwrap().lock().await.unwrap();
            let (late, first) = (late.remaining(), guard.remaining());
            assert!(late <= first + ttl / 50, "{late:?} are left of a session that has {first:?}");
        }
        before = guard.remaining();
    }
    assert!(renewals >= 2, "it was renewed {renewals} times");
}
