//! How long it takes from a release to the next holder, and what it costs the server, against the number of waiters.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::Locks;
use leasehold_testbed::redis::Server;

use crate::summary::{micros, percentile};

const WAITERS: [usize; 4] = [2, 10, 100, 1000];
const HAND_OVERS: usize = 2000;

pub async fn run(server: &Server) {
    println!("release to next holder, two clients");
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("connects");
    let mut trips = Vec::new();
    for _ in 0..2000 {
        let began = Instant::now();
        let _: String = redis::cmd("PING").query_async(&mut connection).await.expect("answered");
        trips.push(began.elapsed());
    }
    let trip = percentile(&mut trips, 50);
    println!("  a bare round trip takes {:.0} µs", micros(trip));
    for waiters in WAITERS {
        let clients = [connect(server).await, connect(server).await];
        let key = format!("line-of-{waiters}");
        let released: Arc<Mutex<Option<Instant>>> = Arc::default();
        let spans: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let before = calls(server);
        let rounds = HAND_OVERS.div_ceil(waiters).max(2);
        let tasks: Vec<_> = (0..waiters)
            .map(|nth| {
                let mutex = clients[nth % 2].mutex(&key).expect("a name");
                let (released, spans) = (released.clone(), spans.clone());
                tokio::spawn(async move {
                    for _ in 0..rounds {
                        let guard = mutex.lock().await.expect("granted");
                        let now = Instant::now();
                        if let Some(at) = released.lock().expect("no panic").take() {
                            spans.lock().expect("no panic").push(now.duration_since(at));
                        }
                        *released.lock().expect("no panic") = Some(Instant::now());
                        guard.release().await.expect("released");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        let sent = calls(server) - before;
        let mut spans = std::mem::take(&mut *spans.lock().expect("no panic"));
        let (half, most) = (percentile(&mut spans, 50), percentile(&mut spans, 99));
        println!(
            "  {waiters:>5} waiters  p50 {:>6.0} µs = {:.1} trips  p99 {:>6.0} µs  {:.2} commands sent for each",
            micros(half),
            half.as_secs_f64() / trip.as_secs_f64(),
            micros(most),
            sent as f64 / (rounds * waiters) as f64,
        );
    }
}

async fn connect(server: &Server) -> Locks {
    Locks::builder(&server.url()).ttl(Duration::from_secs(30)).connect().await.expect("leasehold connects")
}

/// How many scripts and transactions clients have sent so far. What is done in them is counted by the server too.
pub fn calls(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split(['=', ',']).nth(1).and_then(|calls| calls.parse::<u64>().ok());
    let sent = |line: &&str| line.starts_with("cmdstat_evalsha:") || line.starts_with("cmdstat_exec:");
    stats.lines().filter(sent).filter_map(calls).sum()
}
