//! A majority of five Redis servers, beside the bare commands sent to all of them at once; and what a silent server costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_core::future::BoxFuture;
use futures_util::future::join_all;
use leasehold::clock::{Clock, Timer};
use leasehold::{Locks, Mutex};
use leasehold_testbed::Proxy;
use leasehold_testbed::redis::Server;
use redis::Script;
use redis::aio::MultiplexedConnection;

use super::Store;
use super::redis::{RELEASE, version};
use crate::contender::{Contender, Lock, OURS, POLL, Rival, TTL};
use crate::sample::{BARE, Sample, Work, percentile};
use crate::works::Plan;

const SERVERS: usize = 5;

/// How often a lock is taken with a server silent, and without.
const TIMES: usize = 400;

pub(super) struct Redlock(Vec<Server>);

impl Redlock {
    pub(super) fn start() -> Self {
        Self((0..SERVERS).map(|_| Server::start().expect("a server of our own")).collect())
    }

    fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }
}

fn url(ports: impl Iterator<Item = u16>) -> String {
    let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redlock://{}?blank=accept", hosts.join(","))
}

fn reads(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "stats"]);
    let reads = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
    reads.and_then(|reads| reads.trim().parse().ok()).unwrap_or(0)
}

impl Store for Redlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn server(&self) -> String {
        format!("{SERVERS} servers of {}", version(&self.0[0]))
    }

    fn url(&self) -> String {
        url(self.0.iter().map(|server| server.port()))
    }

    fn bare(&self) -> BoxFuture<'_, Rival> {
        let urls = self.urls();
        Box::pin(Rival::here(BARE, move || {
            let urls = urls.clone();
            Box::pin(async move { Bare::connect(&urls).await })
        }))
    }

    fn peers(&self) -> BoxFuture<'_, Vec<Rival>> {
        Box::pin(async { Vec::new() })
    }

    /// How often all servers have read from a client: commands that go together are read together.
    fn requests(&self) -> Option<u64> {
        Some(self.0.iter().map(reads).sum())
    }

    /// Beyond that, so many ask anew each time that servers do not answer in time.
    fn waiters_max(&self) -> usize {
        1000
    }

    fn more<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Vec<Sample>> {
        Box::pin(async {
            if plan.turns == 0 {
                return Vec::new();
            }
            let proxies: Vec<Proxy> =
                self.0.iter().map(|server| Proxy::start(("127.0.0.1", server.port())).expect("a proxy")).collect();
            let through = url(proxies.iter().map(Proxy::port));
            let locks = Locks::builder(&through).ttl(TTL).connect().await.expect("leasehold connects");
            let mutex = locks.mutex("through").expect("a name");
            let mut samples = Vec::new();
            for silent in 0..2 {
                if silent == 1 {
                    proxies[0].blackhole();
                }
                let mut rounds = Vec::new();
                for _ in 0..plan.rounds {
                    rounds.push(percentile(&takes(&mutex).await, 99));
                }
                samples.push(Sample { work: Work::Silent, name: OURS.into(), at: silent, rounds });
            }
            samples
        })
    }
}

/// How long it took each time to take it, in µs.
async fn takes(mutex: &Mutex) -> Vec<f64> {
    let clock = Clock::boot();
    let mut spans = Vec::new();
    for _ in 0..TIMES {
        let began = clock.now();
        let guard = mutex.lock().await.expect("granted");
        spans.push(began.until(clock.now()).as_secs_f64() * 1e6);
        guard.release().await.expect("released");
    }
    spans
}

#[derive(Clone)]
struct Bare {
    servers: Vec<MultiplexedConnection>,
    release: Arc<Script>,
    last: Arc<AtomicU64>,
}

struct BareLock {
    bare: Bare,
    key: String,
    value: String,
}

impl Bare {
    async fn connect(urls: &[String]) -> Self {
        let mut servers = Vec::new();
        for url in urls {
            let client = redis::Client::open(&**url).expect("a URL");
            servers.push(client.get_multiplexed_async_connection().await.expect("bare connects"));
        }
        Self { servers, release: Arc::new(Script::new(RELEASE)), last: Arc::default() }
    }
}

impl Contender for Bare {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(BareLock { bare: self.clone(), key: format!("bare:{key}"), value: String::new() })
    }
}

impl BareLock {
    /// How many of them have set it, when all have answered.
    async fn set_on_all(&self) -> usize {
        let sets = self.bare.servers.iter().map(|connection| async {
            let mut set = redis::cmd("SET");
            set.arg(&self.key).arg(&self.value).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
            set.query_async::<Option<String>>(&mut connection.clone()).await.expect("answered").is_some()
        });
        join_all(sets).await.into_iter().filter(|set| *set).count()
    }

    async fn delete_on_all(&self) {
        let Bare { servers, release, .. } = &self.bare;
        let deletes = servers.iter().map(|connection| async {
            let mut connection = connection.clone();
            release.key(&self.key).arg(&self.value).invoke_async::<i64>(&mut connection).await.expect("answered")
        });
        join_all(deletes).await;
    }
}

impl Lock for BareLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let nth = self.bare.last.fetch_add(1, Ordering::Relaxed);
            self.value = nth.to_string();
            // Each task waits for another time, or they would get in each other's way again and again.
            let mut pause = POLL + POLL * (nth % 8) as u32;
            while self.set_on_all().await <= SERVERS / 2 {
                self.delete_on_all().await;
                Timer::on_callers_runtime(Clock::boot()).sleep(pause).await;
                pause += POLL;
            }
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.delete_on_all())
    }
}
