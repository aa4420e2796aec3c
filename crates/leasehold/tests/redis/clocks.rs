//! A server whose wall clock is set while locks are held. Leases on it end by that clock; those who hold count by their own.

use std::time::Duration;

use leasehold::backend::Departure;
use leasehold::clock::{Clock, Timer};
use leasehold::{ErrorKind, Guard, Locks, Loss, State};
use leasehold_testbed::Proxy;
use leasehold_testbed::redis::Server;

use crate::{soon, until_waiting};

const HOUR: i64 = 3600;
/// Renewed every second.
const LEASE: Duration = Duration::from_secs(3);

async fn client(url: &str) -> Locks {
    Locks::builder(url).ttl(LEASE).connect().await.unwrap()
}

/// The clock leaps to and fro, further than tickets are remembered, and each time somebody takes the lock.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_however_the_clock_is_set() {
    let server = Server::builder().own_clock().start().unwrap();
    let locks = client(&server.url()).await;
    let mut last = None;
    for hours in [0, 1, 0, -1, 0, 24, 0, -24, 1, -1, 2, 0] {
        server.set_clock_ahead(hours * HOUR);
        for _ in 0..3 {
            let guard = locks.mutex("k").unwrap().try_lock().await.unwrap().expect("nobody holds it");
            assert!(Some(guard.token()) > last, "{:?} after {last:?} at {hours} h", guard.token());
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
    }
}

/// Until the lease of a guard has been lengthened by a renewal.
async fn until_renewed(guard: &Guard) {
    let (timer, before) = (Timer::on_callers_runtime(Clock::boot()), guard.remaining());
    soon("a renewal", async {
        while guard.remaining() <= before {
            assert!(!matches!(guard.state(), State::Lost(_)), "{:?}", guard.state());
            timer.sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The server takes the lease for ended, and nothing can stop it. The token makes up for it, and nobody is left in the dark.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_leaps_ahead_hands_over_early_with_a_higher_token_and_the_holder_is_told() {
    let server = Server::builder().own_clock().start().unwrap();
    let (one, other) = (client(&server.url()).await, client(&server.url()).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let reader = one.rw_lock("rw").unwrap().read().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    server.set_clock_ahead(HOUR);
    assert_eq!(soon("the holder is told", guard.lost()).await, Loss::Gone);
    assert_eq!(soon("the reader is told", reader.lost()).await, Loss::Gone);
    let next = soon("the waiter's turn", waiter).await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    until_renewed(&next).await;
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_leaps_back_costs_nobody_a_lock_or_a_place() {
    let server = Server::builder().own_clock().start().unwrap();
    let (one, other) = (client(&server.url()).await, client(&server.url()).await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    server.set_clock_ahead(-HOUR);
    until_renewed(&guard).await;
    let lease_ms: u128 = server.cli(&["PTTL", "lock:k"]).parse().unwrap();
    assert!(lease_ms <= LEASE.as_millis(), "a renewal makes the lease as long as it was meant again: {lease_ms} ms");
    let view = one.inspect("k").await.unwrap().unwrap();
    assert_eq!((view.holders[0].token, view.waiters.unwrap().len()), (Some(guard.token()), 1));
    let before = guard.token();
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    let next = soon("the waiter's turn", waiter).await.unwrap();
    assert!(next.token() > before);
    until_renewed(&next).await;
    next.release().await.unwrap();
}

/// Whoever has died since its last renewal is kept for as long as the clock went back. It shows, and can be taken out.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holder_that_a_leap_back_keeps_alive_is_shown_with_its_lease_and_can_be_evicted() {
    let server = Server::builder().own_clock().start().unwrap();
    let proxy = Proxy::start(("127.0.0.1", server.port())).unwrap();
    let (dying, locks) = (client(&format!("redis://{}", proxy.address())).await, client(&server.url()).await);
    let guard = dying.mutex("k").unwrap().lock().await.unwrap();
    proxy.blackhole();
    server.set_clock_ahead(-HOUR);
    assert_eq!(soon("it stops believing", guard.lost()).await, Loss::Expired);
    let holder = locks.inspect("k").await.unwrap().unwrap().holders.remove(0);
    assert_eq!(holder.token, Some(guard.token()));
    assert!(holder.lease_left > LEASE, "{:?}", holder.lease_left);
    assert_eq!(locks.evict(&holder).await.unwrap(), Departure::WasHolding);
    let next = locks.mutex("k").unwrap().try_lock().await.unwrap().expect("it is free");
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}
