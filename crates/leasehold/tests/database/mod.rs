//! What tests of stores on a database server have in common.

use std::time::Duration;

use leasehold::clock::{Clock, Timer};
use leasehold::{Guard, Locks, Result};
use leasehold_testbed::PATIENCE;
use tokio::task::JoinHandle;

/// Long enough that no lease runs out or is renewed while a test runs, so that what happens earlier has another reason.
pub(crate) const TTL: Duration = Duration::from_secs(600);

pub(crate) async fn connect(url: &str) -> Locks {
    Locks::builder(url).ttl(TTL).connect().await.unwrap()
}

pub(crate) fn timer() -> Timer {
    Timer::on_callers_runtime(Clock::boot())
}

/// What comes of it, unless it takes longer than anything may take.
#[track_caller]
pub(crate) fn soon<T>(what: &str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let timer = timer();
    async move { timer.within(PATIENCE, work).await.unwrap_or_else(|| panic!("waited in vain: {what}")) }
}

/// Resolves when so many wait for the key.
pub(crate) async fn until_waiting(locks: &Locks, name: &str, count: usize) -> Result<()> {
    soon("they wait in line", async {
        while locks.inspect(name).await?.is_none_or(|view| view.waiters.unwrap_or_default().len() != count) {
            timer().sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
    .await
}

/// A holder and a waiter of two clients.
pub(crate) async fn held_and_awaited(url: &str, ttl: Duration) -> (Locks, Guard, JoinHandle<Guard>) {
    let client = async || Locks::builder(url).ttl(ttl).connect().await.unwrap();
    let (one, other) = (client().await, client().await);
    let guard = one.mutex("k").unwrap().lock().await.unwrap();
    let mutex = other.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(&one, "k", 1).await.unwrap();
    (one, guard, waiter)
}

/// The holder leaves in the background, however often it has to try, and the waiter has its turn with a higher token.
pub(crate) async fn hand_over(guard: Guard, waiter: JoinHandle<Guard>) {
    let before = guard.token();
    assert!(!waiter.is_finished());
    drop(guard);
    let next = soon("the waiter's turn", waiter).await.unwrap();
    assert!(next.token() > before);
    next.release().await.unwrap();
}
