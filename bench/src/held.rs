//! What ten thousand held locks cost: connections, calls, processor time and memory.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::Locks;
use leasehold_testbed::redis::Server;

use crate::hand_over::calls;

const LOCKS: usize = 10_000;
const TTL: Duration = Duration::from_secs(15);
const WATCHED: Duration = Duration::from_secs(10);

pub async fn run(server: &Server) {
    println!("{LOCKS} held locks, TTL {} s, for {} s", TTL.as_secs(), WATCHED.as_secs());
    let clients = connections(server);
    let locks = Locks::builder(&server.url()).ttl(TTL).connect().await.expect("leasehold connects");
    let memory_before = resident_kib();
    let mut guards = Vec::with_capacity(LOCKS);
    for part in 0..LOCKS / 500 {
        let taken = (0..500).map(|nth| {
            let mutex = locks.mutex(format!("held-{part}-{nth}")).expect("a name");
            async move { mutex.lock().await.expect("granted") }
        });
        guards.extend(join_all(taken).await);
    }
    let memory = resident_kib().saturating_sub(memory_before);
    let (calls_before, cpu_before) = (calls(server), cpu_seconds());
    tokio::time::sleep(WATCHED).await;
    let (sent, cpu) = (calls(server) - calls_before, cpu_seconds() - cpu_before);
    assert!(guards.iter().all(|guard| guard.check().is_ok()), "every lock is still held");
    println!(
        "  {} connections  {:.1} calls/s  {:.2} % of a core here  {:.2} KiB a lock here",
        connections(server) - clients,
        sent as f64 / WATCHED.as_secs_f64(),
        cpu / WATCHED.as_secs_f64() * 100.0,
        memory as f64 / LOCKS as f64,
    );
}

fn connections(server: &Server) -> usize {
    server.cli(&["CLIENT", "LIST"]).lines().filter(|line| line.contains("addr=")).count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

/// User and system time of this process, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}
