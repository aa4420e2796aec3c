//! A lock on five servers: ours, the bare commands sent to all of them at once, and the peers; and what a dead server costs.

use std::time::{Duration, Instant};

use distributed_lock_core::prelude::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::RedisLockProvider;
use futures_util::future::join_all;
use leasehold::Locks;
use leasehold_testbed::Proxy;
use leasehold_testbed::redis::Server;
use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::summary::{median, micros, percentile};

const TTL: Duration = Duration::from_secs(30);
const SERVERS: usize = 5;
const ROUNDS: usize = 7;
const PAIRS: usize = 400;

pub async fn run() {
    println!("one lock on {SERVERS} servers, 1 task");
    let servers: Vec<Server> = (0..SERVERS).map(|_| Server::start().expect("a server of our own")).collect();
    let proxies: Vec<Proxy> =
        servers.iter().map(|server| Proxy::start(("127.0.0.1", server.port())).expect("a proxy")).collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let locks = connect(servers.iter().map(|server| server.port())).await;
    let mutex = locks.mutex("k").expect("a name");
    let mut bare = Vec::new();
    for url in &urls {
        let client = redis::Client::open(&**url).expect("a URL");
        bare.push(client.get_multiplexed_async_connection().await.expect("bare connects"));
    }
    let release = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
    );
    let rslock = rslock::LockManager::new(urls.clone());
    let provider =
        RedisLockProvider::builder().urls(&urls).expiry(TTL).build().await.expect("distributed-lock connects");
    let theirs = provider.create_lock("k");
    let mut spans: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        spans[0].push(timed(async || mutex.lock().await.expect("granted").release().await.expect("released")).await);
        spans[1].push(timed(async || pair(&bare, &release).await).await);
        spans[2].push(
            timed(async || {
                let lock = rslock.lock(b"rslock:k", TTL).await.expect("granted");
                rslock.unlock(&lock).await;
            })
            .await,
        );
        spans[3].push(
            timed(async || {
                let handle = theirs.try_acquire().await.expect("answered").expect("granted");
                handle.release().await.expect("released");
            })
            .await,
        );
    }
    let bare_span = median(&mut spans[1].clone());
    for (name, spans) in ["leasehold", "bare, all at once", "rslock", "distributed-lock"].iter().zip(&mut spans) {
        let span = median(spans);
        println!("  {name:<18} {:>7.0} µs a pair  {:>5.2} x bare", span * 1e6, span / bare_span);
    }

    println!("the same through a network, and with one server cut off");
    let locks = connect(proxies.iter().map(Proxy::port)).await;
    let mutex = locks.mutex("through").expect("a name");
    let healthy = acquire(&mutex).await;
    proxies[0].blackhole();
    let without = acquire(&mutex).await;
    for (name, mut spans) in [("five answer", healthy.clone()), ("one is silent", without.clone())] {
        println!(
            "  {name:<18} p50 {:>6.0} µs  p99 {:>6.0} µs to take it",
            micros(percentile(&mut spans, 50)),
            micros(percentile(&mut spans, 99))
        );
    }
    let (mut healthy, mut without) = (healthy, without);
    let ratio = percentile(&mut without, 99).as_secs_f64() / percentile(&mut healthy, 99).as_secs_f64();
    println!("  p99 {ratio:.2} x");
}

async fn connect(ports: impl Iterator<Item = u16>) -> Locks {
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    let url = format!("redlock://{}?blank=accept", hosts.join(","));
    Locks::builder(&url).ttl(TTL).connect().await.expect("leasehold connects")
}

/// Seconds for each of many.
async fn timed(mut work: impl AsyncFnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..PAIRS {
        work().await;
    }
    began.elapsed().as_secs_f64() / PAIRS as f64
}

/// Takes the lock on all servers at once, and gives it back on all, without counting votes.
async fn pair(servers: &[MultiplexedConnection], release: &Script) {
    let took = servers.iter().map(|connection| async {
        let mut set = redis::cmd("SET");
        set.arg("bare:k").arg("me").arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        set.query_async::<Option<String>>(&mut connection.clone()).await.expect("answered").expect("granted");
    });
    join_all(took).await;
    let gave = servers.iter().map(|connection| async {
        let mut connection = connection.clone();
        let released: i64 = release.key("bare:k").arg("me").invoke_async(&mut connection).await.expect("answered");
        assert_eq!(released, 1);
    });
    join_all(gave).await;
}

async fn acquire(mutex: &leasehold::Mutex) -> Vec<Duration> {
    let mut spans = Vec::new();
    for _ in 0..PAIRS * 3 {
        let began = Instant::now();
        let guard = mutex.lock().await.expect("granted");
        spans.push(began.elapsed());
        guard.release().await.expect("released");
    }
    spans
}
