//! The store on etcd, on real servers with real faults, and beside `etcdctl`.

mod economy;
mod faults;
mod interop;
mod members;
mod network;
mod rights;
mod slots;

use std::time::Duration;

use leasehold::clock::{Clock, Timer};
use leasehold::{Locks, Result};
use leasehold_testbed::PATIENCE;
use leasehold_testbed::etcd::Server;

/// Long enough that no session ends or is renewed while a test runs, so that what happens earlier has another reason.
const TTL: Duration = Duration::from_secs(600);

async fn connect(url: &str) -> Locks {
    connect_for(url, TTL).await
}

async fn connect_for(url: &str, ttl: Duration) -> Locks {
    Locks::builder(url).ttl(ttl).connect().await.unwrap()
}

fn timer() -> Timer {
    Timer::on_callers_runtime(Clock::boot())
}

/// What comes of it, unless it takes longer than anything may take.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timer().within(PATIENCE, work).await.unwrap_or_else(|| panic!("waited in vain: {what}"))
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

/// The keys on the server that begin so.
fn keys(server: &Server, beginning: &str) -> Vec<String> {
    let listed = server.cli(&["get", "--prefix", "--keys-only", beginning]);
    listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
