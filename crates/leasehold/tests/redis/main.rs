//! The store on Redis, on real servers with real faults, and beside the clients of other languages.

mod clocks;
mod cluster;
mod economy;
mod faults;
mod interop;
mod network;
mod redisson;
mod replicas;
mod rights;
mod sentinel;
mod tickets;
mod tls;
mod together;

use std::time::Duration;

use leasehold::clock::{Clock, Timer};
use leasehold::{Locks, Result};
use leasehold_testbed::PATIENCE;

/// Long enough that no lease runs out or is renewed while a test runs, so that what happens earlier has another reason.
const TTL: Duration = Duration::from_secs(600);

async fn connect(url: &str) -> Locks {
    Locks::builder(url).ttl(TTL).connect().await.unwrap()
}

/// What comes of it, unless it takes longer than anything may take.
#[track_caller]
fn soon<T>(what: &str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let timer = Timer::on_callers_runtime(Clock::boot());
    async move { timer.within(PATIENCE, work).await.unwrap_or_else(|| panic!("waited in vain: {what}")) }
}

/// Resolves when so many wait for the key.
async fn until_waiting(locks: &Locks, name: &str, count: usize) -> Result<()> {
    soon("they wait in line", async {
        let timer = Timer::on_callers_runtime(Clock::boot());
        while locks.inspect(name).await?.is_none_or(|view| view.waiters.unwrap_or_default().len() != count) {
            timer.sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
    .await
}
