//! What a client of an etcd store has: a connection, a session, entries, and watches of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;

use crate::backend::crowds::Crowds;
use crate::backend::etcd::hub::Hub;
use crate::backend::etcd::roster::{Own, Roster};
use crate::backend::etcd::session::{Alive, Session, Sessions};
use crate::backend::etcd::wire::Wire;
use crate::backend::io::IoThread;
use crate::backend::near::Near;
use crate::backend::{EntryId, Lease, LeaseId, Renewal};
use crate::clock::Moment;
use crate::error::Result;
use crate::sync::locked;

/// How long an entry is ours before it is watched. One that is given back sooner costs no watch; whatever happens to it
/// before is told then, since a watch begins where its entry did.
const WATCHED_AFTER: Duration = Duration::from_millis(50);

pub(super) struct Core {
    pub(super) io: IoThread,
    /// Of our own thread: for sessions, watches, and whoever has no other.
    pub(super) wire: Arc<Wire>,
    near: Near<Wire>,
    pub(super) hub: Arc<Hub>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) roster: Roster,
    pub(super) crowds: Crowds,
    /// Entries that are to be watched if they are still there then, in the order of time.
    unwatched: Mutex<VecDeque<(EntryId, Moment)>>,
}

impl Core {
    pub(super) fn new(io: IoThread, wire: Arc<Wire>) -> Arc<Self> {
        let hub = Arc::new(Hub::default());
        io.spawn(hub.clone().run(wire.clone()));
        let (sessions, roster) = (Arc::new(Sessions::new()), Roster::new());
        let (near, crowds, unwatched) = (Near::new(), Crowds::default(), Mutex::default());
        Arc::new(Self { io, wire, near, hub, sessions, roster, crowds, unwatched })
    }

    /// A connection of the runtime that this is called on, if it has one.
    pub(super) fn wire_near(&self, enters: bool) -> Option<Arc<Wire>> {
        self.near.here(enters, || self.wire.another(self.io.timer()))
    }

    /// What the wall clock shows, in ms since 1970.
    pub(super) fn wall_ms(&self) -> u64 {
        self.wire.timer.clock().wall_micros() / 1000
    }

    /// The session to enter upon, made on our own thread if it has to be.
    pub(super) async fn session(&self, ttl: Duration) -> Result<Arc<Session>> {
        if let Some(session) = self.sessions.known(&self.wire) {
            return Ok(session);
        }
        let (sessions, wire) = (self.sessions.clone(), self.wire.clone());
        self.io.run(async move { sessions.get(&wire, ttl).await }).await
    }

    /// Keeps a session alive, on our own thread: others join that, and must not depend on a runtime that may be blocked or gone. What was
    /// on one that has ended is gone; what nobody believes in any more is taken out.
    pub(super) async fn keep(self: &Arc<Self>, session: &Arc<Session>) -> Result<Alive> {
        let alive = match session.known(&self.wire) {
            Some(alive) => alive,
            None => {
                let (session, wire) = (session.clone(), self.wire.clone());
                self.io.run(async move { session.keep(&wire).await }).await?
            }
        };
        match alive {
            Alive::No => self.roster.is_over(session),
            Alive::Known => {}
            Alive::Confirmed => {
                for place in self.roster.abandoned(session, self.wire.timer.now()) {
                    let core = self.clone();
                    self.io.spawn(async move {
                        if let Err(error) = core.leave(&core.wire, &place).await {
                            tracing::debug!(target: "leasehold::etcd", key = %place.key, %error, "an entry was not left");
                        }
                    });
                }
            }
        }
        Ok(alive)
    }

    /// One answer for each lease. One trip for all that are on one session, and none if it was kept alive just now.
    pub(super) async fn renew(self: &Arc<Self>, leases: &[Lease], asked_at: Moment) -> Vec<Renewal> {
        let owns: Vec<Option<Own>> = leases
            .iter()
            .map(|lease| {
                let LeaseId::Entry(place) = &lease.id;
                self.roster.get(place.entry)
            })
            .collect();
        let mut sessions: Vec<&Arc<Session>> = Vec::new();
        for own in owns.iter().flatten() {
            if sessions.iter().all(|session| session.lease != own.session.lease) {
                sessions.push(&own.session);
            }
        }
        let kept = join_all(sessions.iter().map(|session| self.keep(session))).await;
        let renewal = |own: &Option<Own>| {
            let Some(own) = own.as_ref().filter(|own| !own.fate.is_gone()) else { return Renewal::Lost };
            let session = sessions.iter().position(|session| session.lease == own.session.lease);
            match &kept[session.expect("the session of every entry was kept")] {
                Ok(Alive::No) => Renewal::Lost,
                Err(error) => Renewal::Unknown(error.clone()),
                Ok(Alive::Confirmed | Alive::Known) => {
                    let ttl = own.session.left(asked_at);
                    self.roster.is_believed_until(own.place.entry, asked_at.after(ttl));
                    Renewal::Renewed { ttl, yield_asked: own.fate.yield_asked(), waits: false }
                }
            }
        };
        owns.iter().map(renewal).collect()
    }

    /// Watches an entry of ours, if it is still there after a moment.
    pub(super) fn watch_soon(self: &Arc<Self>, own: &Own) {
        if own.fate.watched.load(std::sync::atomic::Ordering::Acquire) {
            return;
        }
        let is_first = {
            let mut unwatched = locked(&self.unwatched);
            unwatched.push_back((own.place.entry, self.wire.timer.now().after(WATCHED_AFTER)));
            unwatched.len() == 1
        };
        if is_first {
            let core = self.clone();
            self.io.spawn(async move { core.watch_those_that_stay().await });
        }
    }

    async fn watch_those_that_stay(self: &Arc<Self>) {
        let mut next = locked(&self.unwatched).front().copied();
        while let Some((entry, due)) = next {
            // Even if it has gone already: one alarm does for all that come and go meanwhile.
            self.wire.timer.sleep_until(due).await;
            if let Some(own) = self.roster.get(entry) {
                self.watch_now(&own);
            }
            // It was in the list until now, so that nobody has started another of us.
            let mut unwatched = locked(&self.unwatched);
            unwatched.pop_front();
            // Nobody is woken for those that have gone by now.
            while unwatched.front().is_some_and(|(entry, _)| !self.roster.has(*entry)) {
                unwatched.pop_front();
            }
            next = unwatched.front().copied();
        }
    }
}
