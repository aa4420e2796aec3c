//! The store on ZooKeeper, on real servers with real faults, and beside the clients of other languages.

mod economy;
mod ensemble;
mod gate;
mod interop;
mod network;
mod secrets;

use std::time::Duration;

use leasehold::clock::{Clock, Timer};
use leasehold::{Locks, Result};
use leasehold_testbed::PATIENCE;

/// Long enough that no session ends while a test runs, so that what happens earlier has another reason.
const TTL: Duration = Duration::from_secs(600);

async fn connect(url: &str) -> Locks {
    Locks::builder(url).ttl(TTL).connect().await.unwrap()
}

fn timer() -> Timer {
    Timer::on_callers_runtime(Clock::boot())
}

/// What comes of it, unless it takes longer than anything may take.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timer().within(PATIENCE, work).await.unwrap_or_else(|| panic!("waited in vain: {what}"))
}

/// Resolves when it is so.
async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    soon(what, async {
        while !condition().await {
            timer().sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Resolves when so many wait for the key.
async fn until_waiting(locks: &Locks, name: &str, count: usize) -> Result<()> {
    soon("they wait in line", async {
        while locks.inspect(name).await?.is_none_or(|view| view.waiters.unwrap_or_default().len() != count) {
            timer().sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
    .await
}
