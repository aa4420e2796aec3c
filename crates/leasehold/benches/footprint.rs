//! What locks cost the process that holds them: `cargo bench -p leasehold --bench footprint`.
//!
//! Figures of one run on one machine; `docs/performance.md` keeps some with the machine named.

use std::time::Duration;

use allocation_counter::measure;
use leasehold::clock::{Clock, Timer};
use leasehold::{Locks, Mutex};
use rustix::time::{ClockId, clock_gettime};

const PAIRS: u32 = 200_000;
const HELD: usize = 100_000;
const TTL: Duration = Duration::from_secs(30);
/// Three renewals of everything.
const WATCHED: Duration = TTL;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let locks = Locks::builder("memory:").ttl(TTL).connect().await.unwrap();
    uncontended(&locks.mutex("k").unwrap()).await;
    contended(&locks).await;
    held(&locks).await;
}

async fn uncontended(mutex: &Mutex) {
    let clock = Clock::boot();
    let start = clock.now();
    for _ in 0..PAIRS {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let took = start.until(clock.now());
    let pair = || pollster::block_on(async { mutex.lock().await.unwrap().release().await.unwrap() });
    pair();
    let counted = measure(pair);
    println!("uncontended lock+release: {:?} a pair, {} allocations", took / PAIRS, counted.count_total);
}

/// Sixteen tasks on one key: every release is a hand-over.
async fn contended(locks: &Locks) {
    const TASKS: u32 = 16;
    let clock = Clock::boot();
    let start = clock.now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let mutex = locks.mutex("contended").unwrap();
        tasks.spawn(async move {
            for _ in 0..PAIRS / TASKS / 4 {
                mutex.lock().await.unwrap().release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    println!("hand-over among {TASKS} tasks: {:?} each", start.until(clock.now()) / (PAIRS / 4));
}

async fn held(locks: &Locks) {
    let mut guards = Vec::with_capacity(HELD);
    let counted = measure(|| {
        for nth in 0..HELD {
            guards.push(pollster::block_on(locks.mutex(format!("key-{nth}")).unwrap().lock()).unwrap());
        }
    });
    println!(
        "{HELD} held guards: {} bytes each, the store in this process included",
        counted.bytes_current / HELD as i64
    );
    let before = cpu_time();
    Timer::on_callers_runtime(Clock::boot()).sleep(WATCHED).await;
    let spent = cpu_time() - before;
    let held = guards.iter().filter(|guard| guard.check().is_ok()).count();
    assert_eq!(held, HELD, "all of them were renewed");
    println!(
        "renewing them at a TTL of {TTL:?}: {:.2} % of one core over {WATCHED:?} ({:?} a renewal, the store's work included)",
        100.0 * spent.as_secs_f64() / WATCHED.as_secs_f64(),
        spent / (3 * HELD as u32),
    );
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
