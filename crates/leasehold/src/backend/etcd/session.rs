//! The one lease that carries all entries of a client, and how much of it is left.
//!
//! It is kept alive by whoever renews or enters, and only then: a client whose locks are not renewed must not go on holding
//! them. However many ask, one keep-alive is under way, and one that was answered a short while ago serves for all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::backend::etcd::joined::Joined;
use crate::backend::etcd::message::{LeaseGrant, LeaseGranted, LeaseKeepAlive, LeaseKeptAlive};
use crate::backend::etcd::slots::Slots;
use crate::backend::etcd::wire::Wire;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::locked;

/// An answer that was sent for less than this part of the TTL ago is as good as a new one.
const FRESH_PART: u32 = 4;

/// A session with less than this part of its TTL left is not entered upon any more.
const USABLE_PART: u32 = 10;

/// How far wall time may move against our clock before an answer from before is worth nothing: the machine may have been
/// restored from a snapshot, and has not been told how long ago that was.
const WALL_SHIFT_NANOS_MAX: u64 = 100_000_000;

/// A lease on the server. Entries keep the one that they were made on.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) lease: i64,
    pub(super) ttl: Duration,
    /// Its keys go with it, and so does what is known of them.
    pub(super) slots: Mutex<Slots>,
    life: Mutex<Life>,
    keeping: Joined<Result<Alive>>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    /// When the last request that was answered was sent. The server has been counting from then on, or later.
    sent_at: Moment,
    wall_lead: i64,
    is_over: bool,
}

/// Whether the server still knows the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alive {
    /// It said so just now.
    Confirmed,
    /// It said so a short while ago.
    Known,
    No,
}

impl Session {
    /// Asks the server for a lease of at least that length. One trip.
    async fn open(wire: &Arc<Wire>, ttl: Duration) -> Result<Arc<Self>> {
        let (sent_at, wall_lead) = (wire.timer.now(), wire.timer.clock().wall_lead());
        let asked = i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        // A lease that nobody hears of carries nothing, and ends by itself.
        let granted: LeaseGranted = wire.read("/etcdserverpb.Lease/LeaseGrant", LeaseGrant { ttl: asked }).await?;
        let seconds = u64::try_from(granted.ttl).unwrap_or_default();
        if !granted.error.is_empty() || granted.id == 0 || seconds == 0 {
            return Err(Error::new(ErrorKind::Protocol, format!("no lease was granted: {}", granted.error)));
        }
        let life = Life { sent_at, wall_lead, is_over: false };
        let ttl = Duration::from_secs(seconds);
        let (slots, life, keeping) = (Mutex::default(), Mutex::new(life), Joined::new());
        Ok(Arc::new(Self { lease: granted.id, ttl, slots, life, keeping }))
    }

    /// How long the server vouches for it, counted from `since`. Never longer than it was granted for.
    pub(super) fn left(&self, since: Moment) -> Duration {
        since.until(locked(&self.life).sent_at.after(self.ttl)).min(self.ttl)
    }

    pub(super) fn is_over(&self) -> bool {
        locked(&self.life).is_over
    }

    /// The server does not know it any more.
    pub(super) fn end(&self) {
        locked(&self.life).is_over = true;
    }

    fn is_usable(&self, now: Moment) -> bool {
        !self.is_over() && self.left(now) > self.ttl / USABLE_PART
    }

    fn is_fresh(&self, wire: &Wire) -> bool {
        let (now, wall_lead) = (wire.timer.now(), wire.timer.clock().wall_lead());
        let life = locked(&self.life);
        life.sent_at.until(now) < self.ttl / FRESH_PART && wall_lead.abs_diff(life.wall_lead) < WALL_SHIFT_NANOS_MAX
    }

    /// Whether it lives on, if that need not be asked.
    pub(super) fn known(&self, wire: &Wire) -> Option<Alive> {
        if self.is_over() {
            return Some(Alive::No);
        }
        self.is_fresh(wire).then_some(Alive::Known)
    }

    /// Makes sure that it lives on. No trip if that is known to be so, one otherwise, and none of our own while another
    /// is under way.
    pub(super) async fn keep(self: &Arc<Self>, wire: &Arc<Wire>) -> Result<Alive> {
        if let Some(alive) = self.known(wire) {
            return Ok(alive);
        }
        let (session, wire) = (self.clone(), wire.clone());
        self.keeping.join(|| async move { session.keep_alive(&wire).await }).await
    }

    async fn keep_alive(&self, wire: &Arc<Wire>) -> Result<Alive> {
        let (sent_at, wall_lead) = (wire.timer.now(), wire.timer.clock().wall_lead());
        let query = LeaseKeepAlive { id: self.lease };
        let answer: LeaseKeptAlive = wire.call_on_stream("/etcdserverpb.Lease/LeaseKeepAlive", query).await?;
        let mut life = locked(&self.life);
        if answer.id != self.lease {
            return Err(Error::new(ErrorKind::Protocol, "another lease was kept alive"));
        }
        if answer.ttl <= 0 {
            life.is_over = true;
            return Ok(Alive::No);
        }
        if life.sent_at < sent_at {
            *life = Life { sent_at, wall_lead, ..*life };
        }
        Ok(Alive::Confirmed)
    }
}

/// The session of a client: one at a time, made when it is needed.
#[derive(Debug)]
pub(super) struct Sessions {
    current: Mutex<Option<Arc<Session>>>,
    opening: Joined<Result<Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self { current: Mutex::new(None), opening: Joined::new() }
    }

    /// The session to enter upon, if there is one.
    pub(super) fn known(&self, wire: &Wire) -> Option<Arc<Session>> {
        locked(&self.current).clone().filter(|session| session.is_usable(wire.timer.now()))
    }

    /// The session to enter upon. One trip if there is none, or if it is nearly over; none otherwise.
    ///
    /// It is as long as whoever needed it first wanted it to be. One that is nearly over is left to itself and what is on it.
    pub(super) async fn get(self: &Arc<Self>, wire: &Arc<Wire>, ttl: Duration) -> Result<Arc<Session>> {
        if let Some(session) = self.known(wire) {
            return Ok(session);
        }
        let (sessions, wire) = (self.clone(), wire.clone());
        let opening = self.opening.join(|| async move {
            let session = Session::open(&wire, ttl).await?;
            *locked(&sessions.current) = Some(session.clone());
            Ok(session)
        });
        opening.await
    }
}
