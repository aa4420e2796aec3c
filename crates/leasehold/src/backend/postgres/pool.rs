//! A few connections that requests share.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_postgres::Row;

use super::address::Settings;
use super::link::{Complaint, Link, Value};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Mutex, locked};

/// How often a statement is sent that the server undid because others were in its way. One of them always goes on, so that
/// there is no need to pause.
const COLLISIONS_MAX: usize = 5;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) settings: Arc<Settings>,
    state: Mutex<State>,
    /// Rings when a connection is there, or could not be made.
    opened: Notify,
}

#[derive(Debug, Default)]
struct State {
    links: Vec<Arc<Link>>,
    /// How many connections are being made.
    opening: usize,
    /// How often one could not be made, and why the last could not.
    failures: u64,
    failure: Option<Error>,
}

enum Found {
    Link(Arc<Link>),
    /// All are busy, and there may be one more.
    LinkAndRoom(Arc<Link>),
    Room,
    /// There is none, and others are making as many as there may be.
    Wait(u64),
}

impl Pool {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, state: Mutex::default(), opened: Notify::new() }
    }

    /// Sends a statement on the connection with the least to do, and waits for its rows.
    pub(super) async fn ask(self: &Arc<Self>, statement: &str, values: &[Value]) -> Result<Vec<Row>> {
        self.try_ask(statement, values).await.map_err(|complaint| complaint.error())
    }

    /// The same for a statement that does no harm when it is done twice: if its connection breaks, it is sent once more, on a
    /// new one. The server may have ended idle sessions long ago, which shows when one of them is next used.
    pub(super) async fn ask_harmlessly(self: &Arc<Self>, statement: &str, values: &[Value]) -> Result<Vec<Row>> {
        match self.try_ask(statement, values).await {
            Err(complaint) if complaint.is_break() => self.ask(statement, values).await,
            answered => answered.map_err(|complaint| complaint.error()),
        }
    }

    async fn try_ask(self: &Arc<Self>, statement: &str, values: &[Value]) -> Result<Vec<Row>, Complaint> {
        let mut collisions = 0;
        loop {
            let link = self.link().await.map_err(Complaint::NoConnection)?;
            match link.ask(statement, values).await {
                Ok(rows) => return Ok(rows),
                Err(complaint) if complaint.is_collision() && collisions < COLLISIONS_MAX => collisions += 1,
                Err(complaint) => {
                    if complaint.is_break() {
                        self.forget_connections();
                    }
                    return Err(complaint);
                }
            }
        }
    }

    /// What broke one connection has as a rule broken all of them, and the next request should not have to find out. Those
    /// that are in use serve their requests to the end.
    fn forget_connections(&self) {
        locked(&self.state).links.clear();
    }

    /// The connection with the least to do; one more is made if all are busy.
    async fn link(self: &Arc<Self>) -> Result<Arc<Link>> {
        loop {
            let opened = self.opened.notified();
            match self.find() {
                Found::Link(link) => return Ok(link),
                Found::LinkAndRoom(link) => {
                    let pool = self.clone();
                    tokio::spawn(async move { pool.open().await });
                    return Ok(link);
                }
                Found::Room => return self.open().await,
                Found::Wait(failures) => {
                    opened.await;
                    let state = locked(&self.state);
                    if let (true, Some(failure)) = (state.failures > failures && state.links.is_empty(), &state.failure)
                    {
                        return Err(failure.clone());
                    }
                }
            }
        }
    }

    fn find(&self) -> Found {
        let mut state = locked(&self.state);
        state.links.retain(|link| link.is_open());
        let has_room = state.links.len() + state.opening < self.settings.connections;
        let idlest = state.links.iter().min_by_key(|link| link.busy()).cloned();
        match idlest {
            Some(link) if link.busy() > 0 && has_room => {
                state.opening += 1;
                Found::LinkAndRoom(link)
            }
            Some(link) => Found::Link(link),
            None if has_room => {
                state.opening += 1;
                Found::Room
            }
            None => Found::Wait(state.failures),
        }
    }

    /// Makes the connection that was counted as being made.
    async fn open(&self) -> Result<Arc<Link>> {
        let mut opening = Opening { pool: self, made: Err(Error::new(ErrorKind::Closed, "nobody waited for it")) };
        opening.made = Link::open(&self.settings, None).await.map(Arc::new);
        opening.made.clone()
    }
}

/// Says what became of it, even if whoever was making it is dropped.
struct Opening<'a> {
    pool: &'a Pool,
    made: Result<Arc<Link>>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.pool.state);
        state.opening -= 1;
        match &self.made {
            Ok(link) => state.links.push(link.clone()),
            Err(error) => {
                state.failures += 1;
                state.failure = Some(error.clone());
            }
        }
        drop(state);
        self.pool.opened.notify_waiters();
    }
}
