//! What happens to entries and sessions behind their owners' backs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::backend::{Asked, Verdict};
use leasehold::clock::Clock;
use leasehold::{ErrorKind, Locks, Loss, State};
use leasehold_testbed::etcd::Cluster;

use crate::{connect, connect_for, keys, soon, timer, until_waiting};

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_key_is_deleted_is_told_at_once_and_the_next_one_holds() {
    let server = &Cluster::shared().servers()[0];
    let (locks, other) = (connect(&Cluster::shared().url()).await, connect(&Cluster::shared().url()).await);
    let guard = locks.mutex("deleted").unwrap().lock().await.unwrap();
    let bystander = locks.mutex("not-deleted").unwrap().lock().await.unwrap();
    let mutex = other.mutex("deleted").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&other, "deleted", 1).await.unwrap();
    let [held, _] = &keys(server, "lock/deleted/")[..] else { panic!("two are in line") };
    server.cli(&["del", held]);
    assert_eq!(soon("it is told", guard.lost()).await, Loss::Gone);
    let next = soon("the next one's turn", waiter).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    bystander.release().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_on_a_session_that_is_revoked_is_lost_at_once_and_the_next_lock_has_a_new_one() {
    let server = &Cluster::shared().servers()[0];
    let (locks, other) = (connect(&Cluster::shared().url()).await, connect(&Cluster::shared().url()).await);
    let blocking = other.mutex("revoked-waiter").unwrap().lock().await.unwrap();
    let guards = [
        locks.mutex("revoked-1").unwrap().lock().await.unwrap(),
        locks.mutex("revoked-2").unwrap().lock().await.unwrap(),
    ];
    let mutex = locks.mutex("revoked-waiter").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&other, "revoked-waiter", 1).await.unwrap();
    let place = other.inspect("revoked-waiter").await.unwrap().unwrap().waiters.unwrap()[0].place.entry;
    let key = keys(server, "lock/revoked-1/").remove(0);
    let lease = key.trim_start_matches("lock/revoked-1/").split_once('-').unwrap().0.to_owned();
    server.cli(&["lease", "revoke", &lease]);
    for guard in &guards {
        assert_eq!(soon("it is told", guard.lost()).await, Loss::Gone);
    }
    let again = soon("the waiter lines up again", async {
        loop {
            let waiters = other.inspect("revoked-waiter").await.unwrap().unwrap().waiters.unwrap();
            if let Some(waiter) = waiters.first() {
                break waiter.place.entry;
            }
            timer().sleep(Duration::from_millis(5)).await;
        }
    });
    assert_ne!(again.await, place);
    blocking.release().await.unwrap();
    soon("its turn", waiter).await.unwrap().unwrap().release().await.unwrap();
    locks.mutex("revoked-1").unwrap().lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_still_held_and_watched_after_its_server_was_restarted() {
    let cluster = Cluster::start().unwrap();
    let locks = connect_for(&cluster.url(), Duration::from_secs(20)).await;
    let guard = locks.mutex("restarted").unwrap().lock().await.unwrap();
    cluster.servers()[0].kill();
    let other = locks.mutex("another").unwrap().lock_within(Duration::from_millis(200)).await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Unreachable);
    cluster.restart(0).unwrap();
    soon("it is confirmed", async {
        while guard.remaining() < Duration::from_secs(17) || guard.state() != State::Held {
            timer().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let other = soon("the store is back", locks.mutex("another").unwrap().lock()).await.unwrap();
    other.release().await.unwrap();
    let server = &cluster.servers()[0];
    server.cli(&["del", &keys(server, "lock/restarted/")[0]]);
    assert_eq!(soon("it is told", guard.lost()).await, Loss::Gone);
}

/// The watch cannot be taken up where it was: the server has forgotten what happened since.
#[tokio::test(flavor = "multi_thread")]
async fn neither_a_waiter_nor_a_holder_misses_what_was_compacted_while_they_were_cut_off() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let proxy = leasehold_testbed::Proxy::start(("127.0.0.1", server.port())).unwrap();
    let (near, far) = (connect(&cluster.url()).await, connect(&format!("etcd://{}", proxy.address())).await);
    let held = near.mutex("compacted").unwrap().lock().await.unwrap();
    let evicted = far.mutex("evicted").unwrap().lock().await.unwrap();
    let mutex = far.mutex("compacted").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&near, "compacted", 1).await.unwrap();
    timer().sleep(Duration::from_millis(200)).await; // so that both are watched
    proxy.refuse();
    proxy.cut();
    held.release().await.unwrap();
    server.cli(&["del", &keys(server, "lock/evicted/")[0]]);
    let status = server.cli(&["put", "x", "y", "--write-out", "json"]);
    let revision: String =
        status.split("\"revision\":").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    server.cli(&["compact", &revision]);
    proxy.heal();
    assert_eq!(soon("the holder is told", evicted.lost()).await, Loss::Gone);
    soon("the waiter's turn", waiter).await.unwrap().unwrap().release().await.unwrap();
}

/// Its holder was suspended past the deadline, and holds other locks now: they keep the session alive, and must not keep
/// what nobody believes in.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_in_which_nobody_believes_any_more_does_not_live_on_with_the_session() {
    let ttl = Duration::from_secs(3);
    let (clock, hand) = Clock::moved_by_hand(Clock::boot());
    let url = Cluster::shared().url();
    let suspended = Locks::builder(&url).ttl(ttl).clock(clock).connect().await.unwrap();
    let other = connect_for(&url, ttl).await;
    let lost = suspended.mutex("believed-no-more").unwrap().lock().await.unwrap();
    hand.jump(ttl);
    assert_eq!(lost.state(), State::Lost(Loss::Expired));
    let kept = suspended.mutex("believed").unwrap().lock().await.unwrap();
    let next = soon("the next one's turn", other.mutex("believed-no-more").unwrap().lock()).await.unwrap();
    assert!(next.token() > lost.token());
    kept.check().unwrap();
    kept.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_goes_with_the_entry_that_it_was_for() {
    let server = &Cluster::shared().servers()[0];
    let locks = connect(&Cluster::shared().url()).await;
    for name in ["wanted-and-released", "wanted-and-evicted"] {
        let guard = locks.mutex(name).unwrap().lock().await.unwrap();
        let holder = locks.inspect(name).await.unwrap().unwrap().holders.remove(0);
        assert_eq!(locks.ask_to_yield(&holder).await.unwrap(), Asked::Told);
        soon("it is told", guard.yield_requested()).await;
        assert_eq!(keys(server, &format!("lock/%yield/{name}/")).len(), 1);
        if name.ends_with("released") {
            guard.release().await.unwrap();
        } else {
            connect(&Cluster::shared().url()).await.evict(&holder).await.unwrap();
        }
        assert_eq!(keys(server, &format!("lock/%yield/{name}/")), [""; 0]);
    }
}

/// Whoever tries looks first and joins then; whoever comes in between must be counted.
#[tokio::test(flavor = "multi_thread")]
async fn tries_never_take_more_permits_than_there_are() {
    const PERMITS: u32 = 3;
    let url = Cluster::shared().url();
    let (held, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let permits = connect(&url).await.semaphore("tried", PERMITS).unwrap();
        let (held, most) = (held.clone(), most.clone());
        tasks.spawn(async move {
            for _ in 0..25 {
                if let Some(permit) = permits.try_acquire(1).await.unwrap() {
                    let together = held.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(together, Ordering::SeqCst);
                    timer().sleep(Duration::from_millis(2)).await;
                    held.fetch_sub(1, Ordering::SeqCst);
                    permit.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
    let most = most.load(Ordering::SeqCst);
    assert!((1..=PERMITS as usize).contains(&most), "{most} at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_full_refuses_locks_by_name_and_still_takes_them_back() {
    let cluster = Cluster::builder().flag("--quota-backend-bytes=1000000").start().unwrap();
    let server = &cluster.servers()[0];
    let locks = connect(&cluster.url()).await;
    let guard = locks.mutex("held").unwrap().lock().await.unwrap();
    let large = "x".repeat(100_000);
    let full = (0..40).find_map(|nth| server.try_cli(&["put", &format!("large-{nth}"), &large]).err());
    assert!(full.expect("it is full").to_string().contains("space exceeded"));
    let refused = locks.mutex("another").unwrap().lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unusable, "{refused}");
    assert!(refused.to_string().contains("space exceeded"), "{refused}");
    let worst = locks.checkup().await.unwrap().into_iter().max_by_key(|finding| finding.verdict).unwrap();
    assert_eq!((worst.check, worst.verdict), ("alarm", Verdict::Fault), "{worst}");
    guard.release().await.unwrap();
    assert_eq!(keys(server, "lock/held/"), [""; 0]);
}
