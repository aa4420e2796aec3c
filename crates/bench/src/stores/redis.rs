//! One Redis server, beside the bare `SET NX PX` and a script that compares and deletes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_core::future::BoxFuture;
use leasehold::clock::{Clock, Timer};
use leasehold_testbed::interop::Library;
use leasehold_testbed::redis::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};

use super::Store;
use crate::contender::{Contender, Lock, POLL, Rival, TTL};
use crate::sample::BARE;

/// Deletes the key if it is still ours.
pub(super) const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

pub(super) struct Redis(Server);

impl Redis {
    pub(super) fn start() -> Self {
        Self(Server::start().expect("a server of our own"))
    }
}

impl Store for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn server(&self) -> String {
        version(&self.0)
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn bare(&self) -> BoxFuture<'_, Rival> {
        let url = self.0.url();
        Box::pin(Rival::here(BARE, move || {
            let url = url.clone();
            Box::pin(async move { Bare::connect(&url).await })
        }))
    }

    fn peers(&self) -> BoxFuture<'_, Vec<Rival>> {
        let peer =
            |name, library: Library| Rival::elsewhere(name, library.start(&self.0.url()).expect("it starts"), "");
        Box::pin(async move {
            vec![
                peer("redis-py", Library::RedisPy),
                peer("python-redis-lock", Library::PythonRedisLock),
                peer("node-redlock", Library::NodeRedlock),
            ]
        })
    }

    fn requests(&self) -> Option<u64> {
        Some(calls(&self.0))
    }
}

pub(super) fn version(server: &Server) -> String {
    let info = server.cli(&["INFO", "server"]);
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or_default();
    format!("Redis {}, in memory", version.trim())
}

/// How many requests clients have sent so far: scripts, and locks that were set without one. The server counts what is done in
/// scripts too, where a lock is set for whoever is next and told of it; that a lock may also be set there for whoever asks makes
/// this rather too many.
fn calls(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = |command: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    calls("evalsha") + calls("set").saturating_sub(calls("publish"))
}

#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    release: Arc<Script>,
    last: Arc<AtomicU64>,
}

struct BareLock {
    bare: Bare,
    key: String,
    value: String,
}

impl Bare {
    async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a URL");
        let config = AsyncConnectionConfig::new().set_pipeline_buffer_size(512);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("bare connects");
        Self { connection, release: Arc::new(Script::new(RELEASE)), last: Arc::default() }
    }
}

impl Contender for Bare {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(BareLock { bare: self.clone(), key: format!("bare:{key}"), value: String::new() })
    }
}

impl Lock for BareLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.value = self.bare.last.fetch_add(1, Ordering::Relaxed).to_string();
            loop {
                let mut set = redis::cmd("SET");
                set.arg(&self.key).arg(&self.value).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
                let taken: Option<String> = set.query_async(&mut self.bare.connection).await.expect("answered");
                if taken.is_some() {
                    return;
                }
                Timer::on_callers_runtime(Clock::boot()).sleep(POLL).await;
            }
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let Bare { connection, release, .. } = &mut self.bare;
            let gave: i64 = release.key(&self.key).arg(&self.value).invoke_async(connection).await.expect("answered");
            assert_eq!(gave, 1, "it was held");
        })
    }
}
