//! A few connections that requests share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::Row;

use super::address::Settings;
use super::link::{Complaint, Link, Value};
use crate::clock::Timer;
use crate::error::{Error, Result};
use crate::sync::{Mutex, locked};

/// How often a statement is sent that the server undid because others were in its way. One of them always goes on, so that
/// there is no need to pause.
const COLLISIONS_MAX: usize = 5;

/// Behind so many requests nobody stands if there may be a connection more, which is made in about that time.
const CROWD: usize = 10;

/// How long such a connection is waited for: one that takes longer may never come.
const OPENING_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) settings: Arc<Settings>,
    timer: Timer,
    common: Arc<Common>,
    state: Mutex<State>,
    /// Rings when a connection is there, or could not be made.
    opened: Notify,
}

/// What the pools of one client have in common.
#[derive(Debug, Default)]
struct Common {
    /// How many connections there are, and are being made.
    connections: Arc<AtomicUsize>,
    /// Whether nobody hands the server's sessions to others in between.
    sessions_are_ours: AtomicBool,
}

/// A connection that counts.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

#[derive(Debug, Default)]
struct State {
    links: Vec<(Arc<Link>, Counted)>,
    /// Lines that are being joined: on which connection, and by how many.
    joining: HashMap<Line, (Arc<Link>, usize)>,
    /// How many connections are being made.
    opening: usize,
    /// How often one could not be made, and why the last could not.
    failures: u64,
    failure: Option<Error>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// To join that line. The server lets one in after the other, each time with a wait for the disk, and a crowd may want it
    /// at once.
    Join(Line),
    Other,
}

/// A line, as a number. That two may have the same does no harm.
pub(super) type Line = u64;

enum Found {
    Link(Arc<Link>),
    /// All are busy, and there may be one more.
    LinkAndRoom(Arc<Link>, Counted),
    /// There may be one more, and there is none, or that one with a crowd on it.
    Room(Counted, Option<Arc<Link>>),
    /// There is none, and others are making as many as there may be.
    Wait(u64),
}

impl Pool {
    pub(super) fn new(settings: Arc<Settings>, timer: Timer) -> Self {
        Self { settings, timer, common: Arc::default(), state: Mutex::default(), opened: Notify::new() }
    }

    /// Another pool of the same client, for another runtime. Together they have as many connections as one may have, but for the
    /// first of each, which it has in any case.
    pub(super) fn another(&self) -> Self {
        Self { common: self.common.clone(), ..Self::new(self.settings.clone(), self.timer.clone()) }
    }

    /// Whether sessions are ours alone, as has just been found out.
    pub(super) fn set_sessions_are_ours(&self, ours: bool) {
        self.common.sessions_are_ours.store(ours, Relaxed);
    }

    pub(super) fn sessions_are_ours(&self) -> bool {
        self.common.sessions_are_ours.load(Relaxed)
    }

    /// Sends a statement on the connection with the least to do, and waits for its rows.
    pub(super) async fn ask(self: &Arc<Self>, statement: &str, values: &[Value]) -> Result<Vec<Row>> {
        self.ask_for(Errand::Other, statement, values).await
    }

    /// The same, on one of the connections for that errand.
    pub(super) async fn ask_for(
        self: &Arc<Self>,
        errand: Errand,
        statement: &str,
        values: &[Value],
    ) -> Result<Vec<Row>> {
        self.try_ask(errand, statement, values).await.map_err(|complaint| complaint.error())
    }

    /// The same for a statement that does no harm when it is done twice: if its connection breaks, it is sent once more, on a
    /// new one. The server may have ended idle sessions long ago, which shows when one of them is next used.
    pub(super) async fn ask_harmlessly(self: &Arc<Self>, statement: &str, values: &[Value]) -> Result<Vec<Row>> {
        match self.try_ask(Errand::Other, statement, values).await {
            Err(complaint) if complaint.is_break() => self.ask(statement, values).await,
            answered => answered.map_err(|complaint| complaint.error()),
        }
    }

    async fn try_ask(
        self: &Arc<Self>,
        errand: Errand,
        statement: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, Complaint> {
        let mut collisions = 0;
        loop {
            let link = self.link(errand).await.map_err(Complaint::NoConnection)?;
            let (link, _joining) = self.with_others(errand, link);
            let by_name = self.sessions_are_ours();
            match link.ask(statement, values, by_name).await {
                Ok(rows) => return Ok(rows),
                Err(complaint) if by_name && complaint.is_about_names() => self.set_sessions_are_ours(false),
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
        let mut state = locked(&self.state);
        state.links.clear();
        state.joining.clear();
    }

    /// The connection with the least to do; one more is made if all are busy.
    async fn link(self: &Arc<Self>, errand: Errand) -> Result<Arc<Link>> {
        loop {
            let opened = self.opened.notified();
            match self.find(errand) {
                Found::Link(link) => return Ok(link),
                Found::LinkAndRoom(link, counted) => {
                    let pool = self.clone();
                    tokio::spawn(async move { pool.open(counted).await });
                    return Ok(link);
                }
                Found::Room(counted, None) => return self.open(counted).await,
                Found::Room(counted, Some(crowded)) => {
                    let pool = self.clone();
                    tokio::spawn(async move { pool.open(counted).await });
                    self.timer.within(OPENING_MAX, opened).await;
                    return Ok(locked(&self.state).idlest().cloned().unwrap_or(crowded));
                }
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

    fn find(&self, errand: Errand) -> Found {
        let mut state = locked(&self.state);
        state.links.retain(|(link, _)| link.is_open());
        if let Some(link) = state.joined_on(errand) {
            return Found::Link(link.clone());
        }
        let idlest = state.idlest().cloned();
        if let Some(link) = idlest.as_ref().filter(|link| link.busy() == 0) {
            return Found::Link(link.clone());
        }
        let is_first = state.links.is_empty() && state.opening == 0;
        match (idlest, self.room(is_first)) {
            (Some(link), None) => Found::Link(link),
            (None, None) => Found::Wait(state.failures),
            (link, Some(counted)) => {
                state.opening += 1;
                match link {
                    Some(link) if link.busy() < CROWD => Found::LinkAndRoom(link, counted),
                    crowded => Found::Room(counted, crowded),
                }
            }
        }
    }

    /// That connection, or the one on which others have begun to join the same line meanwhile. Until what comes with it is
    /// dropped, whoever joins that line does so there too.
    fn with_others(&self, errand: Errand, link: Arc<Link>) -> (Arc<Link>, Option<Joining<'_>>) {
        let Errand::Join(line) = errand else { return (link, None) };
        let mut state = locked(&self.state);
        let link = state.joined_on(errand).cloned().unwrap_or(link);
        match state.joining.get_mut(&line) {
            Some((before, by)) if Arc::ptr_eq(before, &link) => *by += 1,
            _ => drop(state.joining.insert(line, (link.clone(), 1))),
        }
        (link.clone(), Some(Joining { pool: self, line, link }))
    }

    /// Room for one more connection, if there is any. The first of a pool always finds some.
    fn room(&self, is_first: bool) -> Option<Counted> {
        let (connections, most) = (&self.common.connections, self.settings.connections);
        let one_more = |now| (is_first || now < most).then_some(now + 1);
        let counted = connections.fetch_update(AcqRel, Acquire, one_more).is_ok();
        counted.then(|| Counted(connections.clone()))
    }

    /// Makes the connection that was counted as being made.
    async fn open(&self, counted: Counted) -> Result<Arc<Link>> {
        let mut opening = Opening { pool: self, made: None };
        let made = Link::open(&self.settings, &self.timer, None).await.map(Arc::new);
        opening.made = Some(made.clone().map(|link| (link, counted)));
        made
    }
}

impl State {
    /// The connection with the least to do.
    fn idlest(&self) -> Option<&Arc<Link>> {
        self.links.iter().map(|(link, _)| link).filter(|link| link.is_open()).min_by_key(|link| link.busy())
    }

    /// Where others join the same line. Each of them keeps a connection until the server has let it in; on another one, whoever
    /// comes next would wait as long, and keep others from theirs.
    fn joined_on(&self, errand: Errand) -> Option<&Arc<Link>> {
        let Errand::Join(line) = errand else { return None };
        self.joining.get(&line).map(|(link, _)| link).filter(|link| link.is_open())
    }
}

/// Somebody who joins a line on a connection.
struct Joining<'a> {
    pool: &'a Pool,
    line: Line,
    link: Arc<Link>,
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.pool.state);
        if let Some((link, by)) = state.joining.get_mut(&self.line)
            && Arc::ptr_eq(link, &self.link)
        {
            *by -= 1;
            if *by == 0 {
                state.joining.remove(&self.line);
            }
        }
    }
}

/// Says what became of it. If whoever was making it is dropped, somebody who waits for it makes it instead.
struct Opening<'a> {
    pool: &'a Pool,
    made: Option<Result<(Arc<Link>, Counted)>>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.pool.state);
        state.opening -= 1;
        match self.made.take() {
            Some(Ok(link)) => state.links.push(link),
            Some(Err(error)) => {
                state.failures += 1;
                state.failure = Some(error);
            }
            None => {}
        }
        drop(state);
        self.pool.opened.notify_waiters();
    }
}
