//! The crate `distributed-lock`, on one server or on several.

use distributed_lock_core::prelude::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisDistributedLock, RedisLockHandle, RedisLockProvider};
use futures_core::future::BoxFuture;
use leasehold_bench::{Contender, Lock, POLL, Rival, TTL};

pub async fn rival(urls: Vec<String>) -> Rival {
    Rival::here("distributed-lock", move || {
        let urls = urls.clone();
        Box::pin(async move {
            Client(RedisLockProvider::builder().urls(&urls).expiry(TTL).build().await.expect("it connects"))
        })
    })
    .await
}

struct Client(RedisLockProvider);

struct TheirLock(RedisDistributedLock, Option<RedisLockHandle>);

impl Contender for Client {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(TheirLock(self.0.create_lock(key), None))
    }
}

impl Lock for TheirLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.1 = Some(loop {
                match self.0.try_acquire().await {
                    Ok(Some(handle)) => break handle,
                    Ok(None) => tokio::time::sleep(POLL).await,
                    Err(other) => panic!("{other}"),
                }
            });
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        let handle = self.1.take().expect("it is held");
        Box::pin(async { handle.release().await.expect("released") })
    }
}
