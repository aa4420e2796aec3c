//! A majority of five Redis servers, beside the bare commands sent to all of them at once; and what a silent server costs.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::future::join_all;
use leasehold::clock::{Clock, Timer};
use leasehold::{Locks, Mutex};
use leasehold_testbed::Proxy;
use leasehold_testbed::redis::Server;
use redis::Script;
use redis::aio::MultiplexedConnection;

use super::Store;
use super::redis::{RELEASE, calls, version};
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

    /// Of all servers.
    fn requests(&self) -> Option<u64> {
        Some(self.0.iter().map(calls).sum())
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
}

struct BareLock(Bare, String);

impl Bare {
    async fn connect(urls: &[String]) -> Self {
        let mut servers = Vec::new();
        for url in urls {
            let client = redis::Client::open(&**url).expect("a URL");
            servers.push(client.get_multiplexed_async_connection().await.expect("bare connects"));
        }
        Self { servers, release: Arc::new(Script::new(RELEASE)) }
    }
}

impl Contender for Bare {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(BareLock(self.clone(), format!("bare:{key}")))
    }
}

impl BareLock {
    /// Whether all of them have set it. Nobody counts votes.
    async fn set_on_all(&self) -> bool {
        let sets = self.0.servers.iter().map(|connection| async {
            let mut set = redis::cmd("SET");
            set.arg(&self.1).arg("me").arg("NX").arg("PX").arg(TTL.as_millis() as u64);
            set.query_async::<Option<String>>(&mut connection.clone()).await.expect("answered").is_some()
        });
        join_all(sets).await.into_iter().all(|set| set)
    }
}

impl Lock for BareLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            while !self.set_on_all().await {
                Timer::on_callers_runtime(Clock::boot()).sleep(POLL).await;
            }
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Bare { servers, release } = &self.0;
            let gave = servers.iter().map(|connection| async {
                let mut connection = connection.clone();
                release.key(&self.1).arg("me").invoke_async::<i64>(&mut connection).await.expect("answered")
            });
            join_all(gave).await;
        })
    }
}
