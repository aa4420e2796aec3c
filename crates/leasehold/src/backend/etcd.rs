//! The store on etcd: one session for all locks of a client, lines in the order of create revisions, and one with the locks
//! and elections of the Go client and `etcdctl`.
//!
//! Trips: one to enter a line, and one more where a session has to be made, or where somebody is in it whom we did not expect; one
//! to leave; one for the waiter that a departure makes way for; one for any number of renewals.

mod address;
mod core;
mod fault;
mod gate;
mod grpc;
mod health;
mod hub;
mod joined;
mod line;
mod message;
mod names;
mod roster;
mod session;
mod sight;
mod slots;
mod verbs;
mod waiting;
mod wire;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;

use crate::backend::etcd::core::Core;
use crate::backend::etcd::sight::Follower;
use crate::backend::etcd::wire::Wire;
use crate::backend::io::IoThread;
use crate::backend::to_its_end::ToItsEnd;
use crate::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, Finding, KeyView, Lease, Note, Notice, Page, Place, Query,
    Renewal, Request, Standing, Version,
};
use crate::clock::{Clock, Timer};
use crate::error::Result;
use crate::key::Key;

pub use address::Builder;
pub use gate::Gate;

/// Lines kept on an etcd cluster.
pub struct Etcd {
    name: String,
    core: Arc<Core>,
}

impl Etcd {
    /// Connects to the store that `url` names. See [`Etcd::builder`] for the URLs.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url)?.connect().await
    }

    /// Settings for a connection to `etcd://user:password@host:2379,host,host`. User, password and port may be left out; one
    /// server that answers is enough, and another is asked when it does not.
    ///
    /// `etcds` in place of `etcd` encrypts the connection (feature `tls`); behind a `?`, `ca`, `cert` and `key` name PEM files
    /// for that.
    pub fn builder(url: &str) -> Result<Builder> {
        Builder::parse(url)
    }

    /// A gate for a resource on this cluster, which remembers the highest token at that key. It must be no lock's.
    pub fn gate(&self, key: impl Into<Vec<u8>>) -> Gate {
        Gate::new(self.core.clone(), key.into())
    }

    async fn open(builder: Builder) -> Result<Self> {
        let Builder { name, settings } = builder;
        let io = IoThread::start("leasehold-etcd")?;
        let wire = Arc::new(Wire::new(Arc::new(settings), Timer::on_callers_runtime(Clock::boot())));
        let asked = wire.clone();
        io.run(async move { asked.link().await.map(drop) }).await?;
        Ok(Self { name, core: Core::new(io, wire) })
    }

    /// Enters or leaves a line: to its end once begun, by a connection of the runtime that this is called on, if it has one.
    async fn pass<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        enters: bool,
        work: impl FnOnce(Arc<Core>, Arc<Wire>) -> F,
    ) -> Result<T> {
        match self.core.wire_near(enters) {
            Some(wire) => ToItsEnd::new(work(self.core.clone(), wire)).await,
            None => self.on_io(|core| work(core.clone(), core.wire.clone())).await,
        }
    }

    /// Does the work on our own thread, to its end.
    async fn on_io<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<Core>) -> F,
    ) -> Result<T> {
        self.core.io.run(work(self.core.clone())).await
    }
}

impl Backend for Etcd {
    fn capabilities(&self) -> Capabilities {
        Capabilities { sessions: true, relays: false, ..Capabilities::all() }
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        Box::pin(async {
            let (asked_at, request) = (self.core.wire.timer.now(), request.clone());
            let enters = !request.returns;
            self.pass(enters, |core, wire| async move { core.enter(&wire, &request, asked_at).await }).await
        })
    }

    fn changed<'a>(&'a self, place: &'a Place, _seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(self.core.changed(place))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        let place = place.clone();
        Box::pin(self.pass(false, |core, wire| async move { core.leave(&wire, &place).await }))
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(async {
            let (asked_at, leases) = (self.core.wire.timer.now(), leases.to_vec());
            self.on_io(|core| async move { Ok(core.renew(&leases, asked_at).await) }).await
        })
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        let place = place.clone();
        Box::pin(self.on_io(|core| async move { core.ask_to_yield(&place).await }))
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.core.roster.notices.follow()
    }

    fn liveness(&self) -> Option<OwnedFd> {
        None
    }

    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        let (place, note) = (place.clone(), note.clone());
        Box::pin(self.on_io(|core| async move { core.annotate(&place, &note).await }))
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        let query = query.clone();
        Box::pin(self.on_io(|core| async move { core.inspect(&query).await }))
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let follower = Follower::new(self.core.clone(), key);
        Box::pin(stream::unfold(Some(follower), async |follower| {
            let mut follower = follower?;
            match follower.next().await {
                Ok(view) => Some((Ok(view), Some(follower))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(self.on_io(|core| async move { health::findings(&core.wire).await }))
    }
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("store", &self.name).finish_non_exhaustive()
    }
}
