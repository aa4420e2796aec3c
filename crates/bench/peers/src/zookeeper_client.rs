//! The lock of the crate `zookeeper-client`. It is deleted in the background, which nobody can wait for.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use leasehold_bench::{Contender, Lock, Rival};
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

pub async fn rival(address: String) -> Rival {
    Rival::here("zookeeper-client", move || {
        let address = address.clone();
        Box::pin(async move { Session(Arc::new(Client::connect(&address).await.expect("it connects"))) })
    })
    .await
}

struct Session(Arc<Client>);

struct TheirLock {
    client: Arc<Client>,
    folder: String,
    held: Option<OwnedLockClient>,
}

impl Contender for Session {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(TheirLock { client: self.0.clone(), folder: format!("/crate-{key}"), held: None })
    }
}

impl Lock for TheirLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let prefix = LockPrefix::new_curator(&self.folder, "lock-").expect("a path");
            let folders = CreateMode::Persistent.with_acls(Acls::anyone_all());
            let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(folders).expect("options");
            let held = self.client.lock(prefix, b"", options).await.expect("granted");
            self.held = Some(held.into_owned());
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        drop(self.held.take());
        Box::pin(async {})
    }
}
