//! The crate `rslock`, on one server or on several.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold_bench::{Contender, Lock, POLL, Rival, TTL};

pub async fn rival(urls: Vec<String>) -> Rival {
    Rival::here("rslock", move || {
        let manager = Arc::new(rslock::LockManager::new(urls.clone()));
        Box::pin(async { Client(manager) })
    })
    .await
}

struct Client(Arc<rslock::LockManager>);

struct TheirLock {
    manager: Arc<rslock::LockManager>,
    key: String,
    held: Option<rslock::Lock>,
}

impl Contender for Client {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(TheirLock { manager: self.0.clone(), key: format!("rslock:{key}"), held: None })
    }
}

impl Lock for TheirLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.held = Some(loop {
                match self.manager.lock(self.key.as_bytes(), TTL).await {
                    Ok(lock) => break lock,
                    Err(rslock::LockError::Unavailable) => tokio::time::sleep(POLL).await,
                    Err(other) => panic!("{other}"),
                }
            });
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let held = self.held.take().expect("it is held");
            self.manager.unlock(&held).await;
        })
    }
}
