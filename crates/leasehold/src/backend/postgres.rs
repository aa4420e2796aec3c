//! The store on PostgreSQL: fair, pushed, fenced, and without any state of a session, so that a pooler may be in between.
//!
//! A lock that nobody has is taken by one INSERT, and given back by one DELETE. Where others are in line, and for everything
//! else, a verb is one call of a function of ours. Either is one statement: it happens entirely or not at all, on the server's
//! own clock, and commits once. Trips: one to enter, one to leave, none for the waiter that a departure hands over to, one for a
//! thousand renewals; and one more for whoever finds a line that it did not expect, or whom others have joined since it came.

mod address;
mod checkup;
mod fault;
mod hub;
mod link;
mod listening;
mod pool;
mod reply;
mod schema;
#[cfg(feature = "tls")]
mod tls;

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::broadcast;
use tokio_postgres::Row;

use crate::backend::crowds::Crowds;
use crate::backend::io::IoThread;
use crate::backend::near::Near;
use crate::backend::sql::following::{FOLLOW_EVERY, Sight};
use crate::backend::sql::{LINE_MAX, columns, micros};
use crate::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, Finding, KeyView, Lease, LeaseId, Note, Notice, Page,
    Patience, Place, Query, Renewal, Request, Standing, Version,
};
use crate::clock::{Clock, Timer};
use crate::error::Result;
use crate::key::Key;
use crate::sync::locked;

use hub::{Heard, Hub};
use link::Value;
use listening::{Ear, Seat};
use pool::{Errand, Line, Pool};
use schema::Schema;

pub use crate::backend::sql::spring::{Layout, Spring};
pub use address::Builder;

/// The most leases in one statement: so many rows are locked at a time, for a few milliseconds.
const RENEWED_TOGETHER_MAX: usize = 1000;

/// Lines kept in tables of a PostgreSQL database.
pub struct Postgres {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    io: IoThread,
    pool: Arc<Pool>,
    /// The connections of the runtime that takes locks.
    near: Near<Pool>,
    hub: Arc<Hub>,
    seat: Seat,
    crowds: Crowds,
    statements: Statements,
    /// Numbers watches.
    watches: AtomicU64,
}

/// What is asked, with the schema's name in it.
struct Statements {
    enter_alone: String,
    leave_alone: String,
    enter: String,
    leave: String,
    renew: String,
    ask_to_yield: String,
    annotate: String,
    inspect: String,
    list: String,
    watch: String,
    unwatch: String,
}

impl Postgres {
    /// Connects to the database that `url` names. See [`Postgres::builder`] for the URLs.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url)?.connect().await
    }

    /// Settings for a connection to `postgres://user:password@host:5432/database`; everything but a host may be left out.
    /// Several hosts, as in `postgres://db-1,db-2/shop`, are asked in turn for the one that can be written to.
    ///
    /// Options behind a `?`: `schema=locks` keeps the tables in that schema rather than in `leasehold`; `layout=spring` writes
    /// locks as Spring Integration does too, in its `region` and for its `spring-ttl` ([`Spring`]); `connections=8` lets so
    /// many connections carry requests; `sslmode=verify-full` encrypts the connection (feature `tls`), and `ca`, `cert` and
    /// `key` name PEM files for that.
    pub fn builder(url: &str) -> Result<Builder> {
        Builder::parse(url)
    }

    /// The statements that make the tables and functions of a layout, for somebody to apply who may; in that schema, or in the
    /// layout's own.
    ///
    /// ```
    /// use leasehold::backend::postgres::{Layout, Postgres};
    ///
    /// let statements = Postgres::schema(None, Layout::Canonical).unwrap();
    /// assert!(statements.contains("CREATE TABLE"));
    /// ```
    pub fn schema(name: Option<&str>, layout: Layout) -> Result<String> {
        Ok(Schema::new(name, layout)?.tables())
    }

    async fn open(builder: Builder) -> Result<Self> {
        let Builder { name, settings } = builder;
        let statements = Statements::in_schema(&settings.schema);
        let io = IoThread::start("leasehold-postgres")?;
        let pool = Arc::new(Pool::new(Arc::new(settings), io.timer()));
        let hub = Arc::new(Hub::new());
        // On the heap, or whoever awaits a connection would carry all of this.
        let seat = io.run(Box::pin(Ear::start(pool.clone(), hub.clone()))).await?;
        let near = Near::new();
        let (crowds, watches) = (Crowds::default(), AtomicU64::new(0));
        let shared = Shared { name, io, pool, near, hub, seat, crowds, statements, watches };
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl Statements {
    fn in_schema(schema: &Schema) -> Self {
        let named = |statement| schema.named(statement);
        let renew = match schema.layout {
            Layout::Canonical => "SELECT * FROM leasehold.renew($1, $2)",
            Layout::Spring(_) => "SELECT * FROM leasehold.renew_rows($1, $2)",
        };
        Self {
            // The line is locked before the ticket is drawn, so tickets are in the order of grants.
            enter_alone: named(
                "INSERT INTO leasehold.entry (namespace, name, slot, ticket, entry, client, hears, weight, capacity, holds, \
                 owner, host, pid, value, entered_at, expires_at, alone) VALUES ($1, $2, 0, \
                 CASE WHEN leasehold.lock_line($1, $2) IS NOT NULL THEN nextval('leasehold.ticket') END, $3, $4, $5, $6, $7, \
                 true, $8, $9, $10, $11, clock_timestamp(), clock_timestamp() + $12 * interval '1 microsecond', true) \
                 ON CONFLICT (namespace, name, slot) DO NOTHING RETURNING ticket",
            ),
            // As long as the entry is there, and alone, nobody else has been let in. One of another client has to be told.
            leave_alone: named(
                "DELETE FROM leasehold.entry WHERE entry = $3 AND namespace = $1 AND name = $2 AND client = $4 AND alone \
                 AND expires_at > clock_timestamp() RETURNING true",
            ),
            enter: named(
                "SELECT * FROM leasehold.enter($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
            ),
            leave: named("SELECT * FROM leasehold.leave($1, $2, $3, $4)"),
            renew: named(renew),
            ask_to_yield: named("SELECT leasehold.ask_to_yield($1, $2, $3)"),
            annotate: named("SELECT leasehold.annotate($1, $2, $3, $4)"),
            inspect: named("SELECT leasehold.inspect($1, $2)"),
            list: named("SELECT * FROM leasehold.list($1, $2, $3)"),
            watch: named("SELECT leasehold.watch($1, $2, $3, $4)"),
            unwatch: named("SELECT leasehold.unwatch($1, $2, $3)"),
        }
    }
}

impl Shared {
    /// Enters or leaves a line: one statement, on a connection of the runtime that this is called on, if it has any.
    async fn pass(&self, errand: Errand, statement: &str, values: Vec<Value>) -> Result<Vec<Row>> {
        let enters = matches!(errand, Errand::Join(_));
        // A single connection is for everybody.
        let near =
            if self.pool.settings.connections > 1 { self.near.here(enters, || self.pool.another()) } else { None };
        match near {
            Some(pool) => pool.ask_for(errand, statement, &values).await,
            None => self.ask_for(errand, statement, values).await,
        }
    }

    /// Takes a lock that nobody has, or waits for, if it may be one; nothing otherwise.
    async fn enter_alone(&self, request: &Request) -> Result<Option<Standing>> {
        let Request { place, claim, terms, note, returns, .. } = request;
        if *returns || !self.may_be_alone(&place.key) {
            return Ok(None);
        }
        let (weight, capacity) = columns(*claim);
        let mut values = place_values(place);
        values.extend([
            Value::text(&self.hub.client),
            Value::Flag(self.hub.hears()),
            Value::Number(weight),
            Value::Number(capacity),
            Value::bytes(note.owner.as_bytes()),
            Value::bytes(note.host.as_bytes()),
            Value::Number(note.pid.into()),
            Value::Bytes(note.value.as_deref().map(Into::into)),
            Value::Number(micros(terms.holding)),
        ]);
        let rows = self.pass(Errand::Join(line_of(&place.key)), &self.statements.enter_alone, values).await?;
        rows.first().map(|row| reply::holding(row, request)).transpose()
    }

    /// Joins a line that may have others in it, or looks up a place in it.
    async fn enter_line(&self, request: &Request) -> Result<Standing> {
        let Request { place, claim, patience, terms, note, returns } = request;
        let (weight, capacity) = columns(*claim);
        let mut values = place_values(place);
        values.extend([
            Value::text(&self.hub.client),
            Value::Flag(self.hub.hears()),
            Value::Number(weight),
            Value::Number(capacity),
            Value::Flag(*patience == Patience::Queue),
            Value::Flag(*returns),
            Value::Number(micros(terms.holding)),
            Value::Number(micros(terms.waiting)),
            Value::bytes(note.owner.as_bytes()),
            Value::bytes(note.host.as_bytes()),
            Value::Number(note.pid.into()),
            Value::Bytes(note.value.as_deref().map(Into::into)),
            Value::Number(LINE_MAX),
        ]);
        let rows = self.pass(Errand::Join(line_of(&place.key)), &self.statements.enter, values).await?;
        let row = reply::only(&rows)?;
        self.crowds.note(&place.key, reply::column(row, "crowded")?);
        reply::standing(row, request, !self.hub.hears())
    }

    /// Whether it is worth a try to enter or leave as somebody who is alone. In the layout of Spring there are rows to be seen
    /// to.
    fn may_be_alone(&self, key: &Key) -> bool {
        self.pool.settings.schema.layout == Layout::Canonical && !self.crowds.is_one_at(key)
    }

    /// One statement, done to its end once begun.
    async fn ask(&self, statement: &str, values: Vec<Value>) -> Result<Vec<Row>> {
        self.ask_for(Errand::Other, statement, values).await
    }

    async fn ask_for(&self, errand: Errand, statement: &str, values: Vec<Value>) -> Result<Vec<Row>> {
        let (pool, statement) = (self.pool.clone(), statement.to_owned());
        self.io.run(async move { pool.ask_for(errand, &statement, &values).await }).await
    }

    /// The same for a statement that may be done twice.
    async fn ask_harmlessly(&self, statement: &str, values: Vec<Value>) -> Result<Vec<Row>> {
        let (pool, statement) = (self.pool.clone(), statement.to_owned());
        self.io.run(async move { pool.ask_harmlessly(&statement, &values).await }).await
    }

    /// Extends so many leases on the connection that listens, if there is one.
    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Row>> {
        let places = leases.iter().map(|lease| {
            let LeaseId::Entry(place) = &lease.id;
            place.entry.0.to_be_bytes().to_vec()
        });
        let ttls = leases.iter().map(|lease| micros(lease.ttl)).collect();
        let values = vec![Value::ManyBytes(places.collect()), Value::Numbers(ttls)];
        let (pool, seat, statement) = (self.pool.clone(), locked(&self.seat).clone(), self.statements.renew.clone());
        self.io
            .run(async move {
                if let Some(link) = seat.filter(|link| link.is_open()) {
                    match link.ask(&statement, &values, pool.sessions_are_ours()).await {
                        Err(complaint) if complaint.is_collision() || complaint.is_about_names() => {}
                        answer => return answer.map_err(|complaint| complaint.error()),
                    }
                }
                pool.ask(&statement, &values).await
            })
            .await
    }

    async fn look(&self, key: &Key) -> Result<KeyView> {
        let rows = self.ask_harmlessly(&self.statements.inspect, key_values(key)).await?;
        reply::line(key, &reply::column::<String>(reply::only(&rows)?, "inspect")?)
    }
}

/// A key as the first two values of a statement.
fn key_values(key: &Key) -> Vec<Value> {
    vec![Value::text(key.namespace().as_str()), Value::bytes(key.name())]
}

fn line_of(key: &Key) -> Line {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// A place as the first three values of a statement.
fn place_values(place: &Place) -> Vec<Value> {
    let mut values = key_values(&place.key);
    values.push(Value::bytes(&place.entry.0.to_be_bytes()));
    values
}

impl Backend for Postgres {
    fn capabilities(&self) -> Capabilities {
        // A row of Spring's has one owner.
        let shares = self.shared.pool.settings.schema.layout == Layout::Canonical;
        Capabilities {
            shared: shares,
            counted: shares,
            pushes: self.shared.hub.hears(),
            relays: false,
            ..Capabilities::all()
        }
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        Box::pin(async {
            let (shared, hub, place) = (&self.shared, &self.shared.hub, &request.place);
            if request.patience == Patience::Queue {
                hub.waiters.expect(place.entry, request.claim);
            }
            let standing = match shared.enter_alone(request).await {
                Ok(None) => shared.enter_line(request).await,
                Ok(Some(standing)) => Ok(standing),
                Err(error) => Err(error),
            };
            match &standing {
                Ok(Standing::Waiting { .. }) => hub.waiters.is_in_line(place.entry),
                _ if !request.returns => hub.waiters.forget(place.entry),
                _ => {}
            }
            standing
        })
    }

    fn changed<'a>(&'a self, place: &'a Place, _seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(async { Ok(self.shared.hub.waiters.changed(place).await) })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        Box::pin(async {
            let shared = &self.shared;
            shared.hub.waiters.forget(place.entry);
            let mut values = place_values(place);
            values.push(Value::text(&shared.hub.client));
            if shared.may_be_alone(&place.key) {
                let rows = shared.pass(Errand::Other, &shared.statements.leave_alone, values.clone()).await?;
                if !rows.is_empty() {
                    return Ok(Departure::WasHolding);
                }
            }
            let rows = shared.pass(Errand::Other, &shared.statements.leave, values).await?;
            let row = reply::only(&rows)?;
            if let Some(crowded) = reply::column(row, "crowded")? {
                shared.crowds.note(&place.key, crowded);
            }
            reply::departure(row)
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(async {
            let mut renewals = Vec::with_capacity(leases.len());
            for batch in leases.chunks(RENEWED_TOGETHER_MAX) {
                let renewed = self.shared.renew(batch).await.and_then(|rows| reply::renewed(&rows));
                renewals.extend(batch.iter().map(|lease| reply::renewal(&renewed, lease)));
            }
            Ok(renewals)
        })
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        Box::pin(async {
            let rows = self.shared.ask(&self.shared.statements.ask_to_yield, place_values(place)).await?;
            let told: bool = reply::column(reply::only(&rows)?, "ask_to_yield")?;
            Ok(if told { Asked::Told } else { Asked::NotThere })
        })
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.shared.hub.notices.follow()
    }

    fn liveness(&self) -> Option<OwnedFd> {
        None
    }

    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        Box::pin(async {
            let mut values = place_values(place);
            values.push(Value::Bytes(note.value.as_deref().map(Into::into)));
            let rows = self.shared.ask(&self.shared.statements.annotate, values).await?;
            let written: bool = reply::column(reply::only(&rows)?, "annotate")?;
            Ok(if written { Annotation::Written } else { Annotation::NotHolding })
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        Box::pin(async {
            if let Some(key) = &query.key {
                let view = self.shared.look(key).await?;
                return Ok(Page { items: Vec::from_iter(view.capacity.is_some().then_some(view)), next: None });
            }
            let after = query.after.as_ref().map_or(&b""[..], Key::name);
            let one_more = i64::try_from(query.keys_max.saturating_add(1)).unwrap_or(i64::MAX);
            let values = vec![Value::text(query.namespace.as_str()), Value::bytes(after), Value::Number(one_more)];
            let rows = self.shared.ask_harmlessly(&self.shared.statements.list, values).await?;
            let lines = rows.iter().map(|row| {
                let key = Key::new(&query.namespace, reply::column::<Vec<u8>>(row, "name")?)?;
                reply::line(&key, &reply::column::<String>(row, "line")?)
            });
            let mut views = lines.collect::<Result<Vec<_>>>()?;
            let next = (views.len() > query.keys_max).then(|| views[query.keys_max.max(1) - 1].key.clone());
            views.truncate(query.keys_max);
            views.retain(|view| view.capacity.is_some());
            Ok(Page { items: views, next })
        })
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let shared = self.shared.clone();
        let news = shared.hub.follow(key);
        let follower = Follower { shared, key: key.clone(), news, watch: Watch::NotBegun, sight: Sight::default() };
        Box::pin(stream::unfold(Some(follower), async |follower| {
            let mut follower = follower?;
            match follower.next().await {
                Ok(view) => Some((Ok(view), Some(follower))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async {
            let (pool, hears) = (self.shared.pool.clone(), self.shared.hub.hears());
            self.shared.io.run(async move { checkup::look(&pool, hears).await }).await
        })
    }
}

/// Hears the states of one key, one after the other. Dropping it stops following.
struct Follower {
    shared: Arc<Shared>,
    key: Key,
    news: broadcast::Receiver<Heard>,
    watch: Watch,
    /// What was seen last, where nobody tells.
    sight: Sight,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    NotBegun,
    /// The answer of that watch is awaited: what is heard before it is old.
    Begun(u64),
    Follows,
}

impl Follower {
    async fn next(&mut self) -> Result<KeyView> {
        if !self.shared.hub.hears() {
            return self.look_until_changed().await;
        }
        loop {
            if self.watch == Watch::NotBegun {
                let watch = self.shared.watches.fetch_add(1, Relaxed);
                let mut values = key_values(&self.key);
                values.extend([Value::text(&self.shared.hub.client), Value::Text(watch.to_string())]);
                self.shared.ask(&self.shared.statements.watch, values).await?;
                self.watch = Watch::Begun(watch);
            }
            // One that fell behind has missed something.
            match self.news.recv().await.unwrap_or(Heard::Gap) {
                Heard::Began(watch, view) if self.watch == Watch::Begun(watch) => {
                    self.watch = Watch::Follows;
                    return Ok(view);
                }
                Heard::Changed(view) if self.watch == Watch::Follows => return Ok(view),
                Heard::Gap => self.watch = Watch::NotBegun,
                Heard::Began(..) | Heard::Changed(_) => {}
            }
        }
    }

    /// The next state that differs from the last, as far as it lasts long enough to be seen.
    async fn look_until_changed(&mut self) -> Result<KeyView> {
        loop {
            let view = self.shared.look(&self.key).await?;
            if self.sight.is_news(&view) {
                return Ok(view);
            }
            let pause = async {
                Timer::on_callers_runtime(Clock::boot()).sleep(FOLLOW_EVERY).await;
                Ok(())
            };
            self.shared.io.run(pause).await?;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.shared.hub.part(&self.key) {
            let (pool, hub, key) = (self.shared.pool.clone(), self.shared.hub.clone(), self.key.clone());
            let mut values = key_values(&key);
            values.push(Value::text(&hub.client));
            let statement = self.shared.statements.unwatch.clone();
            self.shared.io.spawn(async move {
                // Somebody here may have begun to follow it again meanwhile. Otherwise it lapses by itself.
                if !hub.follows(&key) {
                    let _ = pool.ask(&statement, &values).await;
                }
            });
        }
    }
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.name)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("store", &self.shared.name).finish_non_exhaustive()
    }
}
