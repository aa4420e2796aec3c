//! The store on ZooKeeper, one server or an ensemble: lines of ephemeral sequential nodes, named as Curator or kazoo name
//! them, on one session for each client.
//!
//! The servers know one lease, the session's. It is renewed by a request that the leader has a part in answering, and ends
//! every entry with it. Entries that nobody renews while their session lives are taken out by the client that made them.

mod address;
mod caretaker;
mod checkup;
mod core;
mod entries;
mod fault;
mod gate;
mod jute;
mod line;
mod link;
mod looks;
mod names;
mod note;
mod request;
mod session;
mod time;
mod view;
mod watches;

use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::mpsc;

use crate::backend::io::IoThread;
use crate::backend::notices::NoticeBoard;
use crate::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, Finding, KeyView, Lease, Note, Notice, Page, Place, Query,
    Renewal, Request, Standing, Version,
};
use crate::error::{Error, Result};
use crate::key::Key;

use self::core::Core;
use entries::Entries;
use session::{Listener, Session};
use time::ServerTime;
use view::Sights;
use watches::Watches;

pub use address::Builder;
pub use gate::{Gate, Write};
pub use names::Layout;

/// Lines kept on ZooKeeper.
pub struct Zookeeper {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    core: Arc<Core>,
    /// Taken when the store is dropped.
    io: Option<IoThread>,
}

impl Zookeeper {
    /// Connects to the store that `url` names. See [`Zookeeper::builder`] for the URLs.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url)?.connect().await
    }

    /// Settings for a connection: `zookeeper://user:password@host:2181,host,host/folder`. User and password, ports, further
    /// hosts and the folder may be left out.
    ///
    /// `zookeepers` in place of `zookeeper` encrypts the connection (feature `tls`). Options behind a `?`: `layout=kazoo` names
    /// nodes as kazoo does, and `layout=curator-rw` as Curator's read/write lock does, and not as its mutex; `acl=open` lets everybody do everything with the nodes of a client that logs
    /// in, which are its user's alone otherwise; `ca`, `cert` and `key` name PEM files for the encryption.
    pub fn builder(url: &str) -> Result<Builder> {
        Builder::parse(url)
    }

    async fn open(builder: Builder) -> Result<Self> {
        let Builder { name, servers, paths, rights, session: wish } = builder;
        let io = IoThread::start("leasehold-zk")?;
        let (own_events, events) = mpsc::unbounded_channel();
        let handle = io.handle();
        let core = Arc::new_cyclic(|core: &std::sync::Weak<Core>| {
            let listener: std::sync::Weak<dyn Listener> = core.clone();
            Core {
                session: Arc::new(Session::new(servers, wish, handle.clone(), listener)),
                entries: Entries::default(),
                watches: Arc::new(Watches::default()),
                notices: NoticeBoard::new(),
                paths,
                rights,
                time: ServerTime::new(),
                looks: looks::Looks::default(),
                keeping: Mutex::default(),
                own_events,
            }
        });
        handle.spawn(caretaker::care(Arc::downgrade(&core), events, core.session.timer.clone()));
        let shared = Shared { name, core: core.clone(), io: Some(io) };
        shared.to_its_end(async move { Ok(core.session.seat(true).await.map(drop)?) }).await?;
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl Shared {
    fn io(&self) -> &IoThread {
        self.io.as_ref().expect("it is there until this is dropped")
    }

    /// Done on our own thread, entirely, even if nobody waits for it any more.
    async fn to_its_end<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.io().run(work).await
    }
}

/// The session ends with the store, so that nobody waits for what nobody has any more.
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(io) = self.io.take() {
            io.end_after(self.core.session.clone().close());
        }
    }
}

impl Backend for Zookeeper {
    fn capabilities(&self) -> Capabilities {
        Capabilities { sessions: true, relays: false, ..Capabilities::all() }
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        Box::pin(async {
            let (core, request) = (self.shared.core.clone(), request.clone());
            self.shared.to_its_end(async move { core.enter(&request).await }).await
        })
    }

    fn changed<'a>(&'a self, place: &'a Place, _seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(async {
            let (core, place) = (self.shared.core.clone(), place.clone());
            // On our own thread, where the news arrive; and no longer than somebody waits for it.
            let waiting = self.shared.io().handle().spawn(async move { core.changed(&place).await });
            let _end = AbortOnDrop(waiting.abort_handle());
            waiting.await.unwrap_or_else(|cause| Err(closed(cause))).map(Some)
        })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        Box::pin(async {
            let (core, place) = (self.shared.core.clone(), place.clone());
            self.shared.to_its_end(async move { core.leave(&place).await }).await
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(async {
            let (core, leases) = (self.shared.core.clone(), leases.to_vec());
            self.shared.to_its_end(async move { core.renew(&leases).await }).await
        })
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        Box::pin(async {
            let (core, place) = (self.shared.core.clone(), place.clone());
            self.shared.to_its_end(async move { core.ask_to_yield(&place).await }).await
        })
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.shared.core.notices.follow()
    }

    fn liveness(&self) -> Option<OwnedFd> {
        None
    }

    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        Box::pin(async {
            let (core, place, note) = (self.shared.core.clone(), place.clone(), note.clone());
            self.shared.to_its_end(async move { core.annotate(&place, &note).await }).await
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        Box::pin(async {
            let (core, query) = (self.shared.core.clone(), query.clone());
            self.shared.to_its_end(async move { core.inspect(&query).await }).await
        })
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let begins = Watching::Begins(self.shared.clone(), key.clone());
        Box::pin(stream::unfold(begins, async |watching| match watching {
            Watching::Ended => None,
            Watching::Begins(shared, key) => {
                let core = shared.core.clone();
                let views = shared.to_its_end(async move { Ok(follow(core, key).await) }).await;
                Watching::next(shared, views.ok()?).await
            }
            Watching::Goes(shared, views) => Watching::next(shared, views).await,
        }))
    }

    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async {
            let core = self.shared.core.clone();
            self.shared.to_its_end(async move { core.checkup().await }).await
        })
    }
}

/// How far a watcher is.
enum Watching {
    Begins(Arc<Shared>, Key),
    Goes(Arc<Shared>, mpsc::UnboundedReceiver<Result<KeyView>>),
    Ended,
}

impl Watching {
    async fn next(
        shared: Arc<Shared>,
        mut views: mpsc::UnboundedReceiver<Result<KeyView>>,
    ) -> Option<(Result<KeyView>, Self)> {
        match views.recv().await? {
            Ok(view) => Some((Ok(view), Self::Goes(shared, views))),
            Err(error) => Some((Err(error), Self::Ended)),
        }
    }
}

/// Follows a key on our own thread: what is read too late is gone, and the reader may be slow.
async fn follow(core: Arc<Core>, key: Key) -> mpsc::UnboundedReceiver<Result<KeyView>> {
    let (sender, views) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut sights: Sights = match core.follow(key).await {
            Ok(sights) => sights,
            Err(error) => return drop(sender.send(Err(error))),
        };
        let mut view = Ok(sights.view());
        loop {
            let failed = view.is_err();
            if sender.send(view).is_err() || failed {
                return;
            }
            let next = std::pin::pin!(sights.next());
            let gone = std::pin::pin!(sender.closed());
            view = match futures_util::future::select(next, gone).await {
                futures_util::future::Either::Left((view, _)) => view,
                futures_util::future::Either::Right(_) => return,
            };
        }
    });
    views
}

/// Ends a task that nobody waits for any more.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn closed(cause: tokio::task::JoinError) -> Error {
    Error::new(crate::error::ErrorKind::Closed, "the thread of the connections has ended").caused_by(cause)
}

impl fmt::Display for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.name)
    }
}

impl fmt::Debug for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zookeeper").field("store", &self.shared.name).finish_non_exhaustive()
    }
}
