//! Whoever can take a lock and give it back: us, the bare commands through the same client crate, and the peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distributed_lock_core::prelude::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisDistributedLock, RedisLockProvider};
use leasehold::{Locks, Mutex};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};

const TTL: Duration = Duration::from_secs(30);

/// How long whoever polls waits before it tries again. The peers' own defaults are 100 ms and more; this favours them.
const POLL: Duration = Duration::from_millis(1);

/// One of those that are compared.
#[derive(Clone)]
pub enum Contender {
    Leasehold(Locks),
    Bare { connection: MultiplexedConnection, release: Arc<Script>, last: Arc<AtomicU64> },
    Rslock(Arc<rslock::LockManager>),
    DistributedLock(Arc<RedisLockProvider>),
}

/// A lock of one of them, ready to be taken by one task.
pub enum Lock {
    Leasehold(Mutex),
    Bare { connection: MultiplexedConnection, release: Arc<Script>, last: Arc<AtomicU64>, key: String },
    Rslock(Arc<rslock::LockManager>, String),
    DistributedLock(RedisDistributedLock),
}

impl Contender {
    /// All of them on one server: us first, then the bare commands.
    pub async fn all(url: &str) -> Vec<(&'static str, Self)> {
        let locks = Locks::builder(url).ttl(TTL).connect().await.expect("leasehold connects");
        let client = redis::Client::open(url).expect("a URL");
        let config = AsyncConnectionConfig::new().set_pipeline_buffer_size(512);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("bare connects");
        let release = Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
        );
        let provider =
            RedisLockProvider::builder().url(url).expiry(TTL).build().await.expect("distributed-lock connects");
        vec![
            ("leasehold", Self::Leasehold(locks)),
            ("bare", Self::Bare { connection, release: Arc::new(release), last: Arc::default() }),
            ("rslock", Self::Rslock(Arc::new(rslock::LockManager::new(vec![url])))),
            ("distributed-lock", Self::DistributedLock(Arc::new(provider))),
        ]
    }

    pub fn lock(&self, key: &str) -> Lock {
        match self {
            Self::Leasehold(locks) => Lock::Leasehold(locks.mutex(key).expect("a name")),
            Self::Bare { connection, release, last } => Lock::Bare {
                connection: connection.clone(),
                release: release.clone(),
                last: last.clone(),
                key: format!("bare:{key}"),
            },
            Self::Rslock(manager) => Lock::Rslock(manager.clone(), format!("rslock:{key}")),
            Self::DistributedLock(provider) => Lock::DistributedLock(provider.create_lock(key)),
        }
    }
}

impl Lock {
    /// Takes the lock, waiting for it, does the work, and gives it back.
    pub async fn pair<T>(&mut self, work: impl AsyncFnOnce() -> T) -> T {
        match self {
            Self::Leasehold(mutex) => {
                let guard = mutex.lock().await.expect("granted");
                let output = work().await;
                guard.release().await.expect("released");
                output
            }
            Self::Bare { connection, release, last, key } => {
                let value = last.fetch_add(1, Ordering::Relaxed).to_string();
                loop {
                    let mut set = redis::cmd("SET");
                    set.arg(&*key).arg(&value).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
                    let taken: Option<String> = set.query_async(connection).await.expect("answered");
                    if taken.is_some() {
                        break;
                    }
                    tokio::time::sleep(POLL).await;
                }
                let output = work().await;
                let released: i64 = release.key(&*key).arg(&value).invoke_async(connection).await.expect("answered");
                assert_eq!(released, 1);
                output
            }
            Self::Rslock(manager, key) => {
                let lock = loop {
                    match manager.lock(key.as_bytes(), TTL).await {
                        Ok(lock) => break lock,
                        Err(rslock::LockError::Unavailable) => tokio::time::sleep(POLL).await,
                        Err(other) => panic!("{other}"),
                    }
                };
                let output = work().await;
                manager.unlock(&lock).await;
                output
            }
            Self::DistributedLock(lock) => {
                let handle = loop {
                    match lock.try_acquire().await {
                        Ok(Some(handle)) => break handle,
                        Ok(None) => tokio::time::sleep(POLL).await,
                        Err(other) => panic!("{other}"),
                    }
                };
                let output = work().await;
                handle.release().await.expect("released");
                output
            }
        }
    }
}
