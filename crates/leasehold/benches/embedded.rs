//! What the embedded store costs, beside the bare file: `cargo bench -p leasehold --features sqlite-bundled --bench embedded`.
//!
//! Figures of one run on one machine; `docs/performance.md` keeps some with the machine named.

use std::path::Path;
use std::time::Duration;

use leasehold::Locks;
use leasehold::clock::{Clock, Moment, Timer};
use rusqlite::{Connection, TransactionBehavior};
use rustix::time::{ClockId, clock_gettime};

const PAIRS: u32 = 20_000;
const HAND_OVERS: usize = 2_000;
const WAITERS: usize = 1_000;
const WATCHED: Duration = Duration::from_secs(20);

fn main() {
    let folder = std::env::temp_dir().join(format!("leasehold-bench-{:016x}", fastrand::u64(..)));
    std::fs::create_dir(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    bare(&folder.join("bare.db"));
    runtime.block_on(pairs(&folder.join("pairs.db")));
    runtime.block_on(hand_over(&folder.join("hand.db")));
    runtime.block_on(waiting(&folder.join("waiting.db")));
    std::fs::remove_dir_all(&folder).unwrap();
}

async fn connect(file: &Path) -> Locks {
    leasehold::connect(&format!("sqlite:{}", file.display())).await.unwrap()
}

/// Two commits of one row each, which is the least that a lock and its release can be in such a file.
fn bare(file: &Path) {
    let mut connection = Connection::open(file).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.pragma_update(None, "synchronous", "NORMAL").unwrap();
    connection.execute_batch("CREATE TABLE entry (id INTEGER PRIMARY KEY, ticket INTEGER)").unwrap();
    let clock = Clock::boot();
    let start = clock.now();
    for ticket in 0..PAIRS {
        for sql in ["INSERT INTO entry VALUES (1, ?1)", "DELETE FROM entry WHERE ticket = ?1"] {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            tx.prepare_cached(sql).unwrap().execute([ticket]).unwrap();
            tx.commit().unwrap();
        }
    }
    tell("bare insert and delete, two commits", start, clock.now(), PAIRS);
}

async fn pairs(file: &Path) {
    let mutex = connect(file).await.mutex("k").unwrap();
    let clock = Clock::boot();
    let start = clock.now();
    for _ in 0..PAIRS {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    tell("lock and release", start, clock.now(), PAIRS);
}

fn tell(what: &str, start: Moment, end: Moment, times: u32) {
    let each = start.until(end) / times;
    println!("{what}: {each:?} each, {:.0} a second", 1.0 / each.as_secs_f64());
}

/// Two clients take turns, as two processes would: each has its own connection, pipes and thread.
async fn hand_over(file: &Path) {
    let clock = Clock::boot();
    let (one, two) = (connect(file).await, connect(file).await);
    let (one, two) = (one.mutex("k").unwrap(), two.mutex("k").unwrap());
    let mut took = Vec::with_capacity(HAND_OVERS);
    let mut held = one.lock().await.unwrap();
    for turn in 0..HAND_OVERS {
        let next = if turn % 2 == 0 { two.clone() } else { one.clone() };
        let clock_of_next = clock.clone();
        let waiting = tokio::spawn(async move {
            let guard = next.lock().await.unwrap();
            (guard, clock_of_next.now())
        });
        Timer::on_callers_runtime(clock.clone()).sleep(Duration::from_millis(2)).await;
        let released = clock.now();
        held.release().await.unwrap();
        let (guard, granted) = waiting.await.unwrap();
        took.push(released.until(granted));
        held = guard;
    }
    took.sort_unstable();
    println!("release to next holder: {:?} p50, {:?} p99", took[HAND_OVERS / 2], took[HAND_OVERS * 99 / 100]);
}

async fn waiting(file: &Path) {
    let clients = [connect(file).await, connect(file).await, connect(file).await, connect(file).await];
    let held = clients[0].mutex("k").unwrap().lock().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..WAITERS {
        let mutex = clients[nth % clients.len()].mutex("k").unwrap();
        tasks.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }
    let in_line = async || held_and_waiting(&clients[0]).await;
    while in_line().await < WAITERS {
        tokio::task::yield_now().await;
    }
    let before = cpu_time();
    Timer::on_callers_runtime(Clock::boot()).sleep(WATCHED).await;
    let share = (cpu_time() - before).as_secs_f64() / WATCHED.as_secs_f64();
    println!("{WAITERS} waiters of 4 clients: {:.2} % of one core over {WATCHED:?}", 100.0 * share);
    drop(held);
    tasks.join_all().await;
}

async fn held_and_waiting(locks: &Locks) -> usize {
    locks.inspect("k").await.unwrap().and_then(|view| view.waiters).map_or(0, |waiters| waiters.len())
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
