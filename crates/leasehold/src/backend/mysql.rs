//! The store on MySQL and MariaDB: fair and fenced, on the server's clock. The server cannot tell anybody anything, so those
//! who wait are asked about, all of one client together.
//!
//! A lock that nobody has is taken by one INSERT, and given back by one DELETE. Where others are in line, and for everything
//! else, a verb is one call of a procedure of ours. Either happens entirely or not at all, and commits once. Trips: one to enter,
//! one to leave, one for a few hundred renewals; and one more for whoever finds a line where there was none, or had none behind
//! it when it came.

mod address;
mod checkup;
mod fault;
mod pool;
mod reply;
mod schema;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use mysql_async::{Row, Value};

use crate::backend::crowds::Crowds;
use crate::backend::io::IoThread;
use crate::backend::near::Near;
use crate::backend::sql::following::{FOLLOW_EVERY, Sight};
use crate::backend::sql::polling::{self, Stand};
use crate::backend::sql::waiters::Waiters;
use crate::backend::sql::{LINE_MAX, columns, micros};
use crate::backend::to_its_end::ToItsEnd;
use crate::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, EntryId, EntryView, Finding, KeyView, Lease, LeaseId, Note,
    Notice, Page, Patience, Place, Query, Renewal, Request, Standing, Verdict, Version,
};
use crate::clock::{Clock, Timer};
use crate::error::Result;
use crate::key::{Key, Namespace};

use checkup::Health;
use pool::{Answer, Pool, Question};
use schema::Prefix;

pub use crate::backend::sql::spring::{Layout, Spring};
pub use address::Builder;

/// The most leases in one statement, which locks so many rows at a time.
const RENEWED_TOGETHER_MAX: usize = 500;

/// How often the server is asked to take out what nobody comes back for. It does so once a minute, whoever asks.
const SWEEP_EVERY: Duration = Duration::from_secs(20);

/// Lines kept in tables of a MySQL or MariaDB database.
pub struct MySql {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    io: IoThread,
    pool: Arc<Pool>,
    /// The connection of the runtime that takes locks.
    near: Near<Pool>,
    waiters: Arc<Waiters>,
    crowds: Crowds,
    calls: Calls,
}

/// What is called, with the prefix in it.
struct Calls {
    enter_alone: String,
    leave_alone: String,
    enter: String,
    leave: String,
    ask_to_yield: String,
    annotate: String,
    list: String,
    renew_rows: String,
    foreign: String,
    entry: String,
}

impl MySql {
    /// Connects to the database that `url` names. See [`MySql::builder`] for the URLs.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url)?.connect().await
    }

    /// Settings for a connection to `mysql://user:password@host:3306/database`, or `mariadb://`; user, password and port may be
    /// left out.
    ///
    /// Options behind a `?`: `prefix=locks_` names the tables so rather than `leasehold_`; `layout=spring` writes locks as
    /// Spring Integration does too, in its `region` and for its `spring-ttl` ([`Spring`]); `connections=16` allows so many
    /// connections; `galera=accept` accepts a server of a Galera cluster; `sslmode=verify-full` encrypts the connection
    /// (feature `tls`), and `ca`, `cert` and `key` name PEM files for that.
    pub fn builder(url: &str) -> Result<Builder> {
        Builder::parse(url)
    }

    /// The statements that make the tables and procedures of a layout, for somebody to apply who may; with that prefix, or with
    /// the layout's own.
    pub fn schema(prefix: Option<&str>, layout: Layout) -> Result<String> {
        Ok(Prefix::new(prefix, layout)?.tables())
    }

    async fn open(builder: Builder) -> Result<Self> {
        let Builder { name, settings } = builder;
        let calls = Calls::with_prefix(&settings.prefix);
        let io = IoThread::start("leasehold-mysql")?;
        let waiters = Arc::new(Waiters::default());
        // On the heap, or whoever awaits a connection would carry all of this.
        let (pool, health) = io.run(Box::pin(start(settings, waiters.clone(), calls.entry.clone()))).await?;
        for finding in health.findings().iter().filter(|finding| finding.verdict == Verdict::Fault) {
            tracing::warn!(target: "leasehold::mysql", store = %name, "{finding}");
        }
        Ok(Self {
            shared: Arc::new(Shared { name, io, pool, near: Near::new(), waiters, crowds: Crowds::default(), calls }),
        })
    }
}

/// Makes the tables if there are none, refuses a server that is unfit, and looks after waiters and leftovers until its runtime
/// ends.
async fn start(settings: address::Settings, waiters: Arc<Waiters>, entry: String) -> Result<(Arc<Pool>, Health)> {
    let pool = Arc::new(Pool::new(settings));
    let mut conn = pool.connect().await?;
    pool.settings.prefix.prepare(&mut conn).await?;
    drop(conn);
    let health = Health::of(&pool).await?;
    health.refuse_if_unfit()?;
    let asked = pool.clone();
    let ask = move |entries: Vec<EntryId>| -> BoxFuture<'static, Result<Vec<Stand>>> {
        let (pool, question) = (asked.clone(), standing_of(&entry, &entries));
        Box::pin(async move { pool.ask(question).await?.rows.iter().map(reply::stand).collect() })
    };
    tokio::spawn(polling::poll(waiters, ask));
    tokio::spawn(sweep(pool.clone()));
    Ok((pool, health))
}

async fn sweep(pool: Arc<Pool>) {
    let timer = Timer::on_callers_runtime(Clock::boot());
    let call = pool.settings.prefix.named("CALL leasehold_sweep()");
    loop {
        timer.sleep(SWEEP_EVERY).await;
        let _ = pool.ask(Question::Plain(vec![call.clone()])).await; // the next one will do
    }
}

/// Ids as a list of literals. They are digits, so that nothing in them can end the statement.
fn ids<'a>(entries: impl IntoIterator<Item = &'a EntryId>) -> String {
    let mut list = String::new();
    for entry in entries {
        let separator = if list.is_empty() { "" } else { ", " };
        write!(list, "{separator}x'{entry}'").expect("writing to a String does not fail");
    }
    list
}

/// Which entries are to be extended by which number of microseconds.
fn by_length(leases: &[Lease]) -> BTreeMap<i64, Vec<&EntryId>> {
    let mut by_length: BTreeMap<i64, Vec<&EntryId>> = BTreeMap::new();
    for lease in leases {
        let LeaseId::Entry(place) = &lease.id;
        by_length.entry(micros(lease.ttl)).or_default().push(&place.entry);
    }
    by_length
}

/// What an answer about all of these says of each. Nothing of one whose lease is over.
fn each<'a>(
    entries: impl IntoIterator<Item = &'a EntryId>,
    answer: Result<HashMap<EntryId, bool>>,
) -> HashMap<EntryId, Result<bool>> {
    match answer {
        Ok(renewed) => renewed.into_iter().map(|(entry, yield_asked)| (entry, Ok(yield_asked))).collect(),
        Err(error) => entries.into_iter().map(|entry| (*entry, Err(error.clone()))).collect(),
    }
}

/// How far from its turn each of them is, as far as that matters for how soon to ask again: first of those who wait, or with
/// up to four, sixteen or more of them ahead. A subquery that counts all of them would read the whole line for each.
fn standing_of(table: &str, entries: &[EntryId]) -> Question {
    let ids = ids(entries);
    let has_fewer_ahead = |count: u32| {
        format!(
            "(SELECT a.slot FROM {table} a WHERE a.namespace = e.namespace AND a.name = e.name AND a.slot < e.slot \
             AND NOT a.holds ORDER BY a.slot LIMIT {}, 1) IS NULL",
            count - 1
        )
    };
    Question::Plain(vec![format!(
        "SELECT e.entry, e.ticket, e.holds, CASE WHEN {} THEN 1 WHEN {} THEN 4 WHEN {} THEN 16 ELSE 64 END AS ahead, \
         COALESCE((SELECT a.ticket FROM {table} a WHERE a.namespace = e.namespace AND a.name = e.name \
         AND a.expires_at > UTC_TIMESTAMP(6) ORDER BY a.slot LIMIT 1), e.ticket) AS first \
         FROM {table} e WHERE e.entry IN ({ids})",
        has_fewer_ahead(1),
        has_fewer_ahead(4),
        has_fewer_ahead(16)
    )])
}

impl Calls {
    fn with_prefix(prefix: &Prefix) -> Self {
        Self {
            // The values are there before the row is written, and it is counted with the writing: whoever has a ticket had the
            // line locked before. Without the locked row there would be no slot, which is an error.
            enter_alone: prefix.named(
                "INSERT INTO leasehold_entry (namespace, name, slot, entry, weight, capacity, holds, alone, owner, host, pid, \
                 value, entered_at, expires_at) VALUES (?, ?, (SELECT 0 FROM leasehold_shard \
                 WHERE id = CRC32(CONCAT(?, '/', ?)) MOD 1024 FOR UPDATE), ?, ?, ?, TRUE, TRUE, ?, ?, ?, ?, UTC_TIMESTAMP(6), \
                 DATE_ADD(UTC_TIMESTAMP(6), INTERVAL ? MICROSECOND))",
            ),
            // Time as of when the statement came: as long as the entry is there, and alone, nobody else has been let in.
            leave_alone: prefix.named(
                "DELETE FROM leasehold_entry WHERE namespace = ? AND name = ? AND entry = ? AND alone \
                 AND expires_at > UTC_TIMESTAMP(6)",
            ),
            enter: prefix.named("CALL leasehold_enter(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
            leave: prefix.named("CALL leasehold_leave(?, ?, ?)"),
            ask_to_yield: prefix.named("CALL leasehold_ask_to_yield(?, ?, ?)"),
            annotate: prefix.named("CALL leasehold_annotate(?, ?, ?, ?)"),
            list: prefix.named("CALL leasehold_list(?, ?, ?, ?)"),
            renew_rows: prefix.named("CALL leasehold_renew_rows(?, ?)"),
            foreign: prefix.named("CALL leasehold_foreign(?, ?)"),
            entry: prefix.named("leasehold_entry"),
        }
    }
}

impl Shared {
    /// One call, done to its end once begun.
    async fn call(&self, statement: &str, values: Vec<Value>) -> Result<Vec<Row>> {
        Ok(self.ask(Question::Call(statement.into(), values)).await?.rows)
    }

    /// What becomes of the first question, if it changes anything, and otherwise of the second. Both are asked to their end once
    /// begun: whoever has found that it is not alone must not be left there. From the caller's runtime, if it has a connection
    /// that is idle.
    async fn ask_in_turn(&self, enters: bool, alone: Option<Question>, otherwise: Question) -> Result<Answer> {
        let questions: Vec<Question> = alone.into_iter().chain([otherwise]).collect();
        // A single connection is for everybody.
        let near = match self.pool.settings.connections {
            1 => None,
            _ => self.near.here(enters, || self.pool.another(self.io.timer())),
        };
        if let Some(taken) = near.and_then(|pool| pool.take_idle()) {
            return ToItsEnd::new(async move { taken.ask_in_turn(&questions).await }).await;
        }
        let pool = self.pool.clone();
        self.io.run(async move { pool.ask_in_turn(&questions).await }).await
    }

    /// Takes a lock that nobody has, or waits for. Nothing is changed if somebody does.
    fn enter_alone(&self, request: &Request) -> Question {
        let Request { place, claim, terms, note, .. } = request;
        let (weight, capacity) = columns(*claim);
        let (namespace, name) = (place.key.namespace().as_str(), place.key.name());
        let values = vec![
            namespace.into(),
            name.into(),
            namespace.into(),
            name.into(),
            place.entry.0.to_be_bytes()[..].into(),
            weight.into(),
            capacity.into(),
            note.owner.as_bytes().into(),
            note.host.as_bytes().into(),
            note.pid.into(),
            note.value.as_deref().map_or(Value::NULL, Into::into),
            micros(terms.holding).into(),
        ];
        Question::Change(self.calls.enter_alone.clone(), values)
    }

    /// Gives a lock back for which nobody waits. Nothing is changed if somebody does.
    fn leave_alone(&self, place: &Place) -> Question {
        Question::Change(self.calls.leave_alone.clone(), place_values(place))
    }

    /// Whether it is worth a try to enter or leave as somebody who is alone. In the layout of Spring there are rows to be seen
    /// to.
    fn may_be_alone(&self, key: &Key) -> bool {
        !self.is_spring() && !self.crowds.is_one_at(key)
    }

    async fn ask(&self, question: Question) -> Result<Answer> {
        let pool = self.pool.clone();
        self.io.run(async move { pool.ask(question).await }).await
    }

    /// Extends the leases that are not over, and says which are there and whether their holders are asked to yield. One UPDATE
    /// for each length that is asked for, as a rule: if all were extended that nobody is asked to give up, there is no more
    /// to find out.
    async fn renew(&self, leases: &[Lease]) -> Result<HashMap<EntryId, bool>> {
        let by_length = by_length(leases);
        let table = &self.calls.entry;
        let extend = |condition: &str| -> Vec<String> {
            let statement = |(length_us, entries): (&i64, &Vec<&EntryId>)| {
                format!(
                    "UPDATE {table} SET expires_at = GREATEST(expires_at, DATE_ADD(UTC_TIMESTAMP(6), INTERVAL {length_us} \
                     MICROSECOND)) WHERE entry IN ({}) AND expires_at > UTC_TIMESTAMP(6){condition}",
                    ids(entries.iter().copied())
                )
            };
            by_length.iter().map(statement).collect()
        };
        let entries = || by_length.values().flatten().copied();
        let extended = self.ask(Question::Plain(extend(" AND NOT yield_asked"))).await?;
        if usize::try_from(extended.changed).is_ok_and(|changed| changed == leases.len()) {
            return Ok(entries().map(|entry| (*entry, false)).collect());
        }
        // One that is there now was there before, and none comes back that was over.
        let mut statements = extend("");
        let all = ids(entries());
        statements.push(format!(
            "SELECT entry, yield_asked FROM {table} WHERE entry IN ({all}) AND expires_at > UTC_TIMESTAMP(6)"
        ));
        reply::renewed(&self.ask(Question::Plain(statements)).await?.rows)
    }

    /// The same in the layout of Spring, where rows are extended along with the leases.
    /// What becomes of one length says nothing of another.
    async fn renew_rows(&self, leases: &[Lease]) -> HashMap<EntryId, Result<bool>> {
        let mut renewed = HashMap::with_capacity(leases.len());
        for (length_us, entries) in by_length(leases) {
            let values = vec![ids(entries.iter().copied()).into(), length_us.into()];
            let rows = self.call(&self.calls.renew_rows, values).await;
            renewed.extend(each(entries, rows.and_then(|rows| reply::renewed(&rows))));
        }
        renewed
    }

    fn is_spring(&self) -> bool {
        self.pool.settings.prefix.layout != Layout::Canonical
    }

    async fn lines(
        &self,
        namespace: &Namespace,
        after: &[u8],
        only: Option<&[u8]>,
        keys_max: i64,
    ) -> Result<Vec<KeyView>> {
        let values =
            vec![namespace.as_str().into(), after.into(), only.map_or(Value::NULL, Into::into), keys_max.into()];
        let (pool, question) = (self.pool.clone(), Question::Call(self.calls.list.clone(), values));
        let answer = self.io.run(async move { pool.ask_harmlessly(question).await }).await?;
        let mut views = reply::lines(&answer.rows, namespace)?;
        if self.is_spring() {
            for view in views.iter_mut().filter(|view| view.holders.is_empty()) {
                view.holders.extend(self.foreign(&view.key).await?);
            }
        }
        Ok(views)
    }

    async fn look(&self, key: &Key) -> Result<Option<KeyView>> {
        let view = self.lines(key.namespace(), b"", Some(key.name()), 1).await?.pop();
        if view.is_some() || !self.is_spring() {
            return Ok(view);
        }
        let view = |holder: EntryView| KeyView {
            key: key.clone(),
            capacity: Some(holder.claim.capacity()),
            holders: vec![holder],
            waiters: Some(Vec::new()),
        };
        Ok(self.foreign(key).await?.map(view))
    }

    /// The holder of another kind, if there is one.
    async fn foreign(&self, key: &Key) -> Result<Option<EntryView>> {
        let values = vec![key.namespace().as_str().into(), key.name().into()];
        let (pool, question) = (self.pool.clone(), Question::Call(self.calls.foreign.clone(), values));
        let answer = self.io.run(async move { pool.ask_harmlessly(question).await }).await?;
        answer.rows.first().map(|row| reply::foreign(row, key)).transpose()
    }
}

/// A place as the first three values of a call.
fn place_values(place: &Place) -> Vec<Value> {
    let entry = place.entry.0.to_be_bytes();
    vec![place.key.namespace().as_str().into(), place.key.name().into(), entry[..].into()]
}

impl Backend for MySql {
    fn capabilities(&self) -> Capabilities {
        // A row of Spring's has one owner.
        let shares = !self.shared.is_spring();
        Capabilities { shared: shares, counted: shares, pushes: false, relays: false, ..Capabilities::all() }
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        Box::pin(async {
            let shared = &self.shared;
            let Request { place, claim, patience, terms, note, returns } = request;
            let queues = *patience == Patience::Queue;
            if queues {
                shared.waiters.expect(place.entry, *claim);
            }
            let (weight, capacity) = columns(*claim);
            let mut values = place_values(place);
            values.extend([
                weight.into(),
                capacity.into(),
                queues.into(),
                returns.into(),
                micros(terms.holding).into(),
                micros(terms.waiting).into(),
                note.owner.as_bytes().into(),
                note.host.as_bytes().into(),
                note.pid.into(),
                note.value.as_deref().map_or(Value::NULL, Into::into),
                LINE_MAX.into(),
            ]);
            let alone = (!returns && shared.may_be_alone(&place.key)).then(|| shared.enter_alone(request));
            let answer = shared.ask_in_turn(true, alone, Question::Call(shared.calls.enter.clone(), values)).await;
            let standing = answer.and_then(|answer| {
                if answer.changed > 0 {
                    return reply::alone(&answer, request);
                }
                let row = reply::only(&answer.rows)?;
                shared.crowds.note(&place.key, reply::column(row, "crowded")?);
                reply::standing(row, request)
            });
            match standing {
                Ok(Standing::Waiting { .. }) => shared.waiters.is_in_line(place.entry),
                Ok(Standing::Refused { recheck_in, .. }) if !returns => {
                    shared.waiters.forget(place.entry);
                    // It may have left since, and then it is said that nobody does.
                    let held_by =
                        shared.look(&place.key).await.ok().flatten().map_or_else(Vec::new, |view| view.holders);
                    return Ok(Standing::Refused { held_by, recheck_in });
                }
                _ if !returns => shared.waiters.forget(place.entry),
                _ => {}
            }
            standing
        })
    }

    fn changed<'a>(&'a self, place: &'a Place, _seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(async { Ok(self.shared.waiters.changed(place).await) })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        Box::pin(async {
            let shared = &self.shared;
            shared.waiters.forget(place.entry);
            let alone = shared.may_be_alone(&place.key).then(|| shared.leave_alone(place));
            let otherwise = Question::Call(shared.calls.leave.clone(), place_values(place));
            let answer = shared.ask_in_turn(false, alone, otherwise).await?;
            if answer.changed > 0 {
                return Ok(Departure::WasHolding);
            }
            // Whoever is next may be one of ours.
            shared.waiters.stirred.notify_one();
            let row = reply::only(&answer.rows)?;
            shared.crowds.note(&place.key, reply::column(row, "crowded")?);
            reply::departure(row)
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(async {
            let mut renewals = Vec::with_capacity(leases.len());
            for batch in leases.chunks(RENEWED_TOGETHER_MAX) {
                let entry = |lease: &'a Lease| match &lease.id {
                    LeaseId::Entry(place) => &place.entry,
                };
                let renewed = match self.shared.is_spring() {
                    false => each(batch.iter().map(entry), self.shared.renew(batch).await),
                    true => self.shared.renew_rows(batch).await,
                };
                renewals.extend(batch.iter().map(|lease| match renewed.get(entry(lease)) {
                    Some(Ok(yield_asked)) => {
                        Renewal::Renewed { ttl: lease.ttl, yield_asked: *yield_asked, waits: false }
                    }
                    Some(Err(error)) => Renewal::Unknown(error.clone()),
                    None => Renewal::Lost,
                }));
            }
            Ok(renewals)
        })
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        Box::pin(async {
            let rows = self.shared.call(&self.shared.calls.ask_to_yield, place_values(place)).await?;
            let told: bool = reply::column(reply::only(&rows)?, "done")?;
            Ok(if told { Asked::Told } else { Asked::NotThere })
        })
    }

    /// Nothing: the server cannot tell. Renewals do.
    fn notices(&self) -> BoxStream<'static, Notice> {
        Box::pin(stream::pending())
    }

    fn liveness(&self) -> Option<OwnedFd> {
        None
    }

    fn annotate<'a>(&'a self, place: &'a Place, note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        Box::pin(async {
            let mut values = place_values(place);
            values.push(note.value.as_deref().map_or(Value::NULL, Into::into));
            let rows = self.shared.call(&self.shared.calls.annotate, values).await?;
            let written: bool = reply::column(reply::only(&rows)?, "done")?;
            Ok(if written { Annotation::Written } else { Annotation::NotHolding })
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        Box::pin(async {
            if let Some(key) = &query.key {
                return Ok(Page { items: Vec::from_iter(self.shared.look(key).await?), next: None });
            }
            let after = query.after.as_ref().map_or(&b""[..], Key::name);
            let one_more = i64::try_from(query.keys_max.saturating_add(1)).unwrap_or(i64::MAX);
            let mut views = self.shared.lines(&query.namespace, after, None, one_more).await?;
            let next = (views.len() > query.keys_max).then(|| views[query.keys_max.max(1) - 1].key.clone());
            views.truncate(query.keys_max);
            Ok(Page { items: views, next })
        })
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let follower = Follower { shared: self.shared.clone(), key: key.clone(), sight: Sight::default() };
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
            let pool = self.shared.pool.clone();
            self.shared.io.run(async move { checkup::look(&pool).await }).await
        })
    }
}

/// Looks at one key now and then.
struct Follower {
    shared: Arc<Shared>,
    key: Key,
    sight: Sight,
}

impl Follower {
    /// The next state that differs from the last, as far as it lasts long enough to be seen.
    async fn next(&mut self) -> Result<KeyView> {
        loop {
            let nobody =
                || KeyView { key: self.key.clone(), capacity: None, holders: Vec::new(), waiters: Some(Vec::new()) };
            let view = self.shared.look(&self.key).await?.unwrap_or_else(nobody);
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

impl fmt::Display for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.name)
    }
}

impl fmt::Debug for MySql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySql").field("store", &self.shared.name).finish_non_exhaustive()
    }
}
