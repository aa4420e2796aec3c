//! ZooKeeper, beside the bare requests that any such lock is made of, and beside the locks of other languages.

mod wire;

use futures_core::future::BoxFuture;
use leasehold::clock::{Clock, Timer};
use leasehold_testbed::interop::ZookeeperLibrary;
use leasehold_testbed::zookeeper::Server;

use self::wire::{NoParent, Node, Session};
use super::Store;
use crate::contender::{Contender, Lock, POLL, Rival};
use crate::sample::BARE;

pub(super) struct Zookeeper(Server);

impl Zookeeper {
    pub(super) fn start() -> Self {
        Self(Server::builder().setting("maxClientCnxns", "1000").start().expect("a server of our own"))
    }
}

impl Store for Zookeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn server(&self) -> String {
        let said = self.0.asked("srvr");
        let version = said.lines().find_map(|line| line.strip_prefix("Zookeeper version: ")).unwrap_or_default();
        format!("ZooKeeper {}", version.split(['-', ',']).next().unwrap_or_default())
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn bare(&self) -> BoxFuture<'_, Rival> {
        let address = self.0.address();
        Box::pin(Rival::here(BARE, move || {
            let address = address.clone();
            Box::pin(async move { Bare(Session::open(&address).await) })
        }))
    }

    fn peers(&self) -> BoxFuture<'_, Vec<Rival>> {
        let address = self.0.address();
        Box::pin(async move {
            let peer = |name, library: ZookeeperLibrary| {
                Rival::elsewhere(name, library.start(&address).expect("it starts"), "mutex:/")
            };
            vec![peer("Curator", ZookeeperLibrary::Curator), peer("kazoo", ZookeeperLibrary::Kazoo)]
        })
    }

    /// Packets, of which a request is one and a ping another.
    fn requests(&self) -> Option<u64> {
        let counted = self.0.asked("mntr");
        let line = counted.lines().find(|line| line.starts_with("zk_packets_received"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

/// What a lock needs at least: a node, a look at who is there, and no node any more.
struct Bare(Session);

struct BareLock {
    session: Session,
    folder: String,
    node: Option<String>,
}

impl Contender for Bare {
    fn lock(&self, key: &str) -> Box<dyn Lock> {
        Box::new(BareLock { session: self.0.clone(), folder: format!("/bare-{key}"), node: None })
    }
}

impl BareLock {
    async fn join(&self) -> String {
        let path = format!("{}/n-", self.folder);
        loop {
            match self.session.create(&path, Node::EphemeralSequential).await {
                Ok(node) => return node,
                Err(NoParent) => {
                    let made = self.session.create(&self.folder, Node::Persistent).await;
                    assert!(made.is_ok(), "the root is always there");
                }
            }
        }
    }
}

impl Lock for BareLock {
    fn take(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let node = self.join().await;
            let name = &node[self.folder.len() + 1..];
            while self.session.children(&self.folder).await.iter().min().is_some_and(|first| first != name) {
                Timer::on_callers_runtime(Clock::boot()).sleep(POLL).await;
            }
            self.node = Some(node);
        })
    }

    fn give(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let node = self.node.take().expect("it is held");
            self.session.delete(&node).await;
        })
    }
}
