//! Whoever can take a lock and give it back: us, the bare store through the same client crate, and the peers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use leasehold::{Guard, Locks, Mutex};
use leasehold_testbed::interop::Peer;

/// The lease of whatever is taken: far longer than any of it is held.
pub const TTL: Duration = Duration::from_secs(60);

/// How long whoever has to poll waits before it tries again. The peers' own defaults are 100 ms and more; this favours them.
pub const POLL: Duration = Duration::from_millis(1);

/// What we are called in the tables.
pub(crate) const OURS: &str = "leasehold";

/// A client of a store.
pub trait Contender: Send + Sync {
    /// A lock that one task can take.
    fn lock(&self, key: &str) -> Box<dyn Lock>;
}

/// A lock of such a client. Whatever goes wrong is a panic: nothing is measured on a store that fails.
pub trait Lock: Send {
    /// Takes it, and waits for it as long as it takes.
    fn take(&mut self) -> BoxFuture<'_, ()>;

    /// Gives it back.
    fn give(&mut self) -> BoxFuture<'_, ()>;
}

/// Makes a client.
pub type Connect = Arc<dyn Fn() -> BoxFuture<'static, Arc<dyn Contender>> + Send + Sync>;

/// One of those that are compared.
pub struct Rival {
    /// What it is called in the tables.
    pub name: &'static str,
    pub(crate) place: Place,
}

pub(crate) enum Place {
    /// In this process: a client that was made, and how to make another.
    Here(Arc<dyn Contender>, Connect),
    /// In a process of its own, which times itself, with what its keys begin with.
    Elsewhere(Box<Peer>, &'static str),
}

impl Rival {
    /// One in this process.
    pub async fn here<F, C>(name: &'static str, connect: F) -> Self
    where
        F: Fn() -> BoxFuture<'static, C> + Send + Sync + 'static,
        C: Contender + 'static,
    {
        let connect: Connect = Arc::new(move || {
            let connecting = connect();
            Box::pin(async move { Arc::new(connecting.await) as Arc<dyn Contender> })
        });
        Self { name, place: Place::Here(connect().await, connect) }
    }

    pub(crate) fn elsewhere(name: &'static str, peer: Peer, prefix: &'static str) -> Self {
        Self { name, place: Place::Elsewhere(Box::new(peer), prefix) }
    }

    /// The client, if it is one of this process, and how to make another.
    pub(crate) fn client(&self) -> Option<(&Arc<dyn Contender>, &Connect)> {
        match &self.place {
            Place::Here(client, connect) => Some((client, connect)),
            Place::Elsewhere(..) => None,
        }
    }
}

impl fmt::Debug for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rival").field(&self.name).finish()
    }
}

/// Us.
#[derive(Clone)]
pub(crate) struct Ours(pub(crate) Locks);

impl Ours {
    pub(crate) async fn connect(url: &str) -> Self {
        Self(Locks::builder(url).ttl(TTL).connect().await.expect("leasehold connects"))
    }

    /// Us, as one of those that are compared.
    pub(crate) async fn rival(url: &str) -> Rival {
        let url = url.to_owned();
        Rival::here(OURS, move || {
            let url = url.clone();
            Box::pin(async move { Self::connect(&url).await })
        })
        .await
    }
}

struct OurLock(Mutex, Option<Guard>);

impl Contender for Ours {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(OurLock(self.0.mutex(key).expect("a name"), None))
    }
}

impl Lock for OurLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.1 = Some(self.0.lock().await.expect("granted")) })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        let guard = self.1.take().expect("it is held");
        Box::pin(async { guard.release().await.expect("released") })
    }
}
