//! The ways to the servers: connections of the caller's runtime if it has some, and otherwise those of our own thread.
//!
//! What is asked on one connection is answered in order. Between two of them nothing is, so whoever leaves by another than it
//! came bars what may still be on its way.

use std::sync::Arc;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use crate::backend::near::Near;
use crate::backend::redlock::core::Core;
use crate::backend::redlock::member::{Asked, Member};
use crate::backend::redlock::node::{Ask, Node};
use crate::backend::to_its_end::ToItsEnd;

/// A node for each server, in their order.
pub(super) type Nodes = Vec<Arc<dyn Node>>;

/// Makes connections of the runtime that takes locks.
pub(super) struct Neighbourhood {
    near: Near<Nodes>,
    make: Box<dyn Fn() -> Nodes + Send + Sync>,
}

impl Neighbourhood {
    pub(super) fn new(make: impl Fn() -> Nodes + Send + Sync + 'static) -> Self {
        Self { near: Near::new(), make: Box::new(make) }
    }

    /// The ways of the runtime that this is called on, if it has some.
    pub(super) fn here(&self, enters: bool) -> Option<Arc<Nodes>> {
        self.near.here(enters, &self.make)
    }
}

/// How a request reaches the servers.
pub(super) struct Ways(Option<Arc<Nodes>>);

/// Tells one way from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WayId(usize);

impl Ways {
    pub(super) fn id(&self) -> WayId {
        WayId(self.0.as_ref().map_or(0, |nodes| Arc::as_ptr(nodes).addr()))
    }

    pub(super) fn ask(&self, member: &Member, server: usize, ask: Ask) -> Asked {
        match &self.0 {
            None => member.ask(ask),
            Some(near) => member.ask_through(&*near[server], ask),
        }
    }
}

/// Does what answers, where it is awaited if there is a way from there, and otherwise at home. It is done to its end either way.
pub(super) async fn answered<T, W>(
    core: &Core,
    near: Option<Arc<Nodes>>,
    work: impl FnOnce(Ways, oneshot::Sender<T>) -> W,
) -> Option<T>
where
    T: Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let is_near = near.is_some();
    let work = work(Ways(near), answer);
    if !is_near {
        core.spawn(work);
        return answered.await.ok();
    }
    match select(ToItsEnd::new(work), answered).await {
        Either::Left(((), answered)) => answered.await.ok(),
        Either::Right((answer, _)) => answer.ok(),
    }
}
