//! Keeps this client listening: connects, notices when it stops hearing, and starts anew. What else has to be done now and
//! then is done on the way.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::hub::Hub;
use super::link::{Link, Value};
use super::pool::Pool;
use super::reply;
use crate::backend::sql::polling::{self, Stand};
use crate::backend::{EntryId, Notice};
use crate::clock::{Clock, Timer};
use crate::error::Result;
use crate::sync::{Mutex, locked};

/// How often a connection that says nothing is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Every so many pings the server is told what we still follow, and asked to take out what nobody comes back for. A watch
/// lasts a minute, so that two of three may be missed.
const CHORES_EVERY: u32 = 3;

/// How long a message to ourselves may take before we take it that none can be heard.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// The first pause after a failure; it doubles with each in a row up to the second.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The connection on which the server tells us things, while there is one. Renewals are sent on it, so that they do not
/// queue behind those who enter.
pub(super) type Seat = Arc<Mutex<Option<Arc<Link>>>>;

pub(super) struct Ear {
    pub(super) pool: Arc<Pool>,
    pub(super) hub: Arc<Hub>,
    pub(super) seat: Seat,
    /// Which server we heard last: since when it runs.
    server: Option<String>,
    /// Whether somebody asks where the waiters stand, because they cannot be told.
    polls: bool,
    timer: Timer,
}

impl Ear {
    /// Connects for the first time, makes the tables if there are none, and goes on in the background until its runtime ends.
    pub(super) async fn start(pool: Arc<Pool>, hub: Arc<Hub>) -> Result<Seat> {
        let timer = Timer::on_callers_runtime(Clock::boot());
        let mut ear = Self { pool, hub, seat: Seat::default(), server: None, polls: false, timer };
        let mut link = Link::open(&ear.pool.settings, &ear.timer, Some(ear.hub.clone())).await?;
        ear.pool.settings.schema.prepare(link.client()).await?;
        let link = Arc::new(link);
        ear.listen(&link).await?;
        let seat = ear.seat.clone();
        tokio::spawn(async move { ear.run(link).await });
        Ok(seat)
    }

    async fn run(mut self, mut link: Arc<Link>) {
        loop {
            let mut pings = 0;
            while self.still_hears(&link, pings).await {
                pings += 1;
            }
            *locked(&self.seat) = None;
            let mut pause = PAUSE;
            link = loop {
                match self.start_anew().await {
                    Ok(new) => break new,
                    Err(error) => {
                        tracing::debug!(target: "leasehold::postgres", %error, "not listening");
                        self.timer.sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            };
        }
    }

    /// Waits until it is time to ask, or the connection ends. False if it is no longer good.
    async fn still_hears(&self, link: &Link, pings: u32) -> bool {
        if self.timer.within(PING_EVERY, link.ended()).await.is_some() {
            return false;
        }
        if pings.is_multiple_of(CHORES_EVERY) {
            let schema = &self.pool.settings.schema;
            if self.hub.keys_followed() > 0 {
                let keep = schema.named("SELECT leasehold.keep_watching($1) AS kept");
                let kept = self.pool.ask(&keep, &[Value::text(&self.hub.client)]).await;
                let kept = kept.and_then(|rows| reply::column::<i64>(reply::only(&rows)?, "kept"));
                // Nobody tells us of a key that we did not keep in time. The next try will do if this one failed.
                if kept.is_ok_and(|kept| usize::try_from(kept).is_ok_and(|kept| kept < self.hub.keys_followed())) {
                    self.hub.let_followers_look();
                }
            }
            let _ = self.pool.ask(&schema.named("SELECT leasehold.sweep()"), &[]).await; // likewise
        }
        link.command("SELECT 1").await.is_ok()
    }

    async fn start_anew(&mut self) -> Result<Arc<Link>> {
        let link = Arc::new(Link::open(&self.pool.settings, &self.timer, Some(self.hub.clone())).await?);
        let before = self.server.clone();
        self.listen(&link).await?;
        if self.server != before {
            tracing::warn!(target: "leasehold::postgres", "another server answers now, or it was restarted: asking about every lease");
            self.hub.notices.post(Notice::Shaken);
        }
        // Whatever was said meanwhile was not heard.
        self.hub.let_all_look();
        Ok(link)
    }

    async fn listen(&mut self, link: &Arc<Link>) -> Result<()> {
        let who = "SELECT pg_postmaster_start_time()::text AS since, pg_backend_pid()::bigint AS session";
        let rows = link.ask(who, &[], false).await;
        let rows = rows.map_err(|complaint| complaint.error().with_no_effect())?;
        let row = reply::only(&rows)?;
        self.server = Some(reply::column(row, "since")?);
        let hears = self.is_heard(link, reply::column(row, "session")?).await?;
        if !hears && !self.polls {
            tracing::warn!(
                target: "leasehold::postgres",
                "a pooler is in between that cannot pass notifications on: waiters are not told when it is their turn, and look"
            );
            self.polls = true;
            tokio::spawn(poll(self.pool.clone(), self.hub.clone()));
        }
        self.hub.set_hears(hears);
        self.pool.set_sessions_are_ours(hears);
        *locked(&self.seat) = Some(link.clone());
        Ok(())
    }

    /// Whether what is said on another connection is heard on this one. It is not if a pooler is in between that hands the
    /// server's session to somebody else after each transaction: then another connection may be in the very same session.
    async fn is_heard(&self, link: &Link, session: i64) -> Result<bool> {
        let rows = self.pool.ask("SELECT pg_backend_pid()::bigint AS session", &[]).await?;
        if reply::column::<i64>(reply::only(&rows)?, "session")? == session {
            return Ok(false);
        }
        link.command(&format!("LISTEN {}", self.hub.channel())).await?;
        let returns = self.hub.probe_returns();
        self.pool.ask("SELECT pg_notify($1, 'p')", &[Value::Text(self.hub.channel())]).await?;
        Ok(self.timer.within(PROBE_MAX, returns).await.is_some())
    }
}

async fn poll(pool: Arc<Pool>, hub: Arc<Hub>) {
    let statement: Arc<str> = pool.settings.schema.named("SELECT * FROM leasehold.stand($1)").into();
    let ask = move |entries: Vec<EntryId>| -> BoxFuture<'static, Result<Vec<Stand>>> {
        let (pool, statement) = (pool.clone(), statement.clone());
        Box::pin(async move {
            let entries = entries.iter().map(|entry| entry.0.to_be_bytes().to_vec()).collect();
            let rows = pool.ask(&statement, &[Value::ManyBytes(entries)]).await?;
            rows.iter().map(reply::stand).collect()
        })
    };
    polling::poll(hub.waiters.clone(), ask).await;
}
