//! The layout of Spring Integration: what tests of it have in common on every database, and a client that sends what Spring's
//! own `DefaultLockRepository` sends.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use leasehold::backend::Departure;
use leasehold::clock::Clock;
use leasehold::{Attempt, ErrorKind, Guard, Locks};
use tokio::task::{JoinHandle, JoinSet};

use crate::database::{TTL, connect, soon, timer, until_waiting};

/// Spring Integration 6 knows when a lock was taken, and 7 when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Six,
    Seven,
}

/// A database that Spring may have made its table in.
pub(crate) trait Database: Sized + 'static {
    type Session: Session;

    fn start() -> Self;

    /// Where our tables of this layout are.
    const ENTRY: &'static str;

    fn url(&self) -> String;

    fn sql(&self, statement: &str) -> String;

    /// As Spring's script makes it.
    fn make_table(&self, version: Version);

    async fn session(&self) -> Self::Session;

    /// The time so many milliseconds from now in UTC, as an expression.
    fn time(ms: i64) -> String;

    /// When an entry's lease ends, in UTC.
    const LEASE_END: &'static str;

    /// Lets a lease be over now, or last for 20 seconds longer: what is set in an entry.
    const OVER: &'static str;
    const LONGER: &'static str;

    /// Makes an entry that waits for `k` with the ticket 1, whose lease ends in a second.
    const DYING: &'static str;

    /// Renews all leases that there are by 90 seconds.
    const RENEW: &'static str;

    const SWEEP: &'static str;

    /// Makes Spring 7's of Spring 6's table.
    const ALTER: &'static str;

    /// Asks for the columns of Spring's table.
    const COLUMNS: &'static str;

    /// The option that has our tables elsewhere.
    fn named(name: &str) -> String;

    /// The milliseconds from one time to another, rounded, as an expression.
    fn span_ms(from: &str, to: &str) -> String;
}

/// What a JDBC driver does on one connection.
pub(crate) trait Session: Send + 'static {
    fn begin(&mut self) -> impl Future<Output = ()> + Send;

    fn commit(&mut self) -> impl Future<Output = ()> + Send;

    /// How many rows it concerned; `None` if the server refused, because the row is there or somebody is in the way.
    fn update(&mut self, statement: &str) -> impl Future<Output = Option<u64>> + Send;
}

impl Version {
    /// Take a row over that is ours or has ended; otherwise make one; extend it; delete it. The order of the values is
    /// Spring's.
    fn statements(self) -> [&'static str; 4] {
        match self {
            Self::Six => [
                "UPDATE INT_LOCK SET CLIENT_ID=?, CREATED_DATE=? WHERE REGION=? AND LOCK_KEY=? AND (CLIENT_ID=? OR CREATED_DATE<?)",
                "INSERT INTO INT_LOCK (REGION, LOCK_KEY, CLIENT_ID, CREATED_DATE) VALUES (?, ?, ?, ?)",
                "UPDATE INT_LOCK SET CREATED_DATE=? WHERE REGION=? AND LOCK_KEY=? AND CLIENT_ID=?",
                "DELETE FROM INT_LOCK WHERE REGION=? AND LOCK_KEY=? AND CLIENT_ID=?",
            ],
            Self::Seven => [
                "UPDATE INT_LOCK SET CLIENT_ID=?, CREATED_DATE=?, EXPIRED_AFTER=? WHERE REGION=? AND LOCK_KEY=? AND (CLIENT_ID=? OR EXPIRED_AFTER<?)",
                "INSERT INTO INT_LOCK (REGION, LOCK_KEY, CLIENT_ID, CREATED_DATE, EXPIRED_AFTER) VALUES (?, ?, ?, ?, ?)",
                "UPDATE INT_LOCK SET EXPIRED_AFTER=? WHERE REGION=? AND LOCK_KEY=? AND CLIENT_ID=?",
                "DELETE FROM INT_LOCK WHERE REGION=? AND LOCK_KEY=? AND CLIENT_ID=?",
            ],
        }
    }
}

/// What Spring takes unless told otherwise.
const SPRING_TTL_MS: i64 = 10_000;

/// The key of `lock:k`: the name of our `k` in the default namespace.
pub(crate) const KEY: &str = "d7d54db6-be01-3f6b-838c-f3ef996d02b6";

/// A repository of Spring's, each of which has an id.
pub(crate) struct Repository<D: Database> {
    session: D::Session,
    id: String,
    version: Version,
    /// How far its clock is ahead of the database's.
    ahead_ms: i64,
}

impl<D: Database> Repository<D> {
    pub(crate) async fn of(database: &D, version: Version, nth: u32) -> Self {
        let id = format!("8a3b5f1e-6c2d-4e7f-9a0b-{nth:012x}");
        Self { session: database.session().await, id, version, ahead_ms: 0 }
    }

    fn filled(&self, statement: &str, values: &[&str]) -> String {
        let mut values = values.iter();
        let filled = statement.split('?').fold(String::new(), |filled, part| match filled.is_empty() {
            true => part.to_owned(),
            false => filled + values.next().expect("a value for each mark") + part,
        });
        assert_eq!(values.next(), None);
        filled
    }

    pub(crate) async fn acquire(&mut self, key: &str) -> bool {
        let (id, region, key) = (format!("'{}'", self.id), "'DEFAULT'", format!("'{key}'"));
        let now = D::time(self.ahead_ms);
        let (since, until) = (D::time(self.ahead_ms - SPRING_TTL_MS), D::time(self.ahead_ms + SPRING_TTL_MS));
        let [take_over, make, ..] = self.version.statements();
        let (take_over, make) = match self.version {
            Version::Six => (
                self.filled(take_over, &[&id, &now, region, &key, &id, &since]),
                self.filled(make, &[region, &key, &id, &now]),
            ),
            Version::Seven => (
                self.filled(take_over, &[&id, &now, &until, region, &key, &id, &now]),
                self.filled(make, &[region, &key, &id, &now, &until]),
            ),
        };
        self.session.begin().await;
        let taken = match self.session.update(&take_over).await {
            Some(0) => self.session.update(&make).await.is_some_and(|made| made > 0),
            taken => taken.is_some(),
        };
        self.session.commit().await;
        taken
    }

    pub(crate) async fn renew(&mut self, key: &str) -> bool {
        let until = D::time(self.ahead_ms + if self.version == Version::Six { 0 } else { SPRING_TTL_MS });
        let [_, _, extend, _] = self.version.statements();
        let extend = self.filled(extend, &[&until, "'DEFAULT'", &format!("'{key}'"), &format!("'{}'", self.id)]);
        self.session.update(&extend).await == Some(1)
    }

    pub(crate) async fn delete(&mut self, key: &str) -> bool {
        let [.., delete] = self.version.statements();
        let delete = self.filled(delete, &["'DEFAULT'", &format!("'{key}'"), &format!("'{}'", self.id)]);
        loop {
            if let Some(deleted) = self.session.update(&delete).await {
                return deleted == 1;
            }
        }
    }
}

/// All that is in Spring's table of one lock, as text.
fn row<D: Database>(database: &D, key: &str) -> String {
    database.sql(&format!("SELECT * FROM INT_LOCK WHERE LOCK_KEY = '{key}'"))
}

fn owner<D: Database>(database: &D, key: &str) -> String {
    database.sql(&format!("SELECT CLIENT_ID FROM INT_LOCK WHERE LOCK_KEY = '{key}'"))
}

/// An entry's id as it stands in the table.
fn uuid(guard: &Guard) -> String {
    let id = guard.entry().to_string();
    [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-")
}

async fn spring<D: Database>(database: &D) -> Locks {
    connect(&database.url()).await
}

/// One of ours that lines up for `k`, as the `nth` there.
async fn waiter(locks: &Locks, nth: usize) -> JoinHandle<Guard> {
    let mutex = locks.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until_waiting(locks, "k", nth).await.unwrap();
    waiter
}

pub(crate) async fn a_holder_of_ours_has_the_row_that_spring_looks_for<D: Database>(version: Version) {
    let database = D::start();
    database.make_table(version);
    let locks = Locks::builder(&database.url()).namespace("").ttl(TTL).connect().await.unwrap();
    for (name, key) in [
        ("foo", "acbd18db-4cc2-385c-adef-654fccc4a4d8"),
        ("my-lock", "eda23b8c-64b2-3f01-8c10-660455d15168"),
        ("Straße", "a763ca07-3cfd-31fc-a8a1-4f2f0cc84591"),
        ("0F8FAD5B-D9CB-469F-A165-70867728950E", "0f8fad5b-d9cb-469f-a165-70867728950e"),
    ] {
        let guard = locks.mutex(name).unwrap().lock().await.unwrap();
        let (since, until) = match version {
            // As old as makes ten seconds of it end with our lease.
            Version::Six => (D::span_ms(&D::time(0), "CREATED_DATE"), "0".to_owned()),
            Version::Seven => (D::span_ms(&D::time(0), "CREATED_DATE"), D::span_ms("CREATED_DATE", "EXPIRED_AFTER")),
        };
        let found = database
            .sql(&format!("SELECT CONCAT_WS(' ', LOCK_KEY, REGION, CLIENT_ID, {since}, {until}) FROM INT_LOCK"));
        let words: Vec<&str> = found.split(' ').collect();
        assert_eq!(words[..3], [key, "DEFAULT", &uuid(&guard)], "{name}");
        let (created_ms, lives_ms): (f64, f64) = (words[3].parse().unwrap(), words[4].parse().unwrap());
        let ttl_ms = TTL.as_secs_f64() * 1000.0;
        let (created_expected_ms, lives_expected_ms) = match version {
            Version::Six => (ttl_ms - SPRING_TTL_MS as f64, 0.0),
            Version::Seven => (0.0, ttl_ms),
        };
        assert!((-5_000.0..1.0).contains(&(created_ms - created_expected_ms)), "{name}: {found}");
        assert!((lives_ms - lives_expected_ms).abs() < 1.0, "{name}: {found}");
        guard.release().await.unwrap();
        assert_eq!(database.sql("SELECT COUNT(*) FROM INT_LOCK"), "0", "{name}");
    }
    let guard = spring(&database).await.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(owner(&database, KEY), uuid(&guard), "the namespace stands before the name");
}

/// A number that nobody guards but the lock, who added to it last, and how often that was one of the other kind.
#[derive(Default)]
struct Number {
    value: AtomicU64,
    last: AtomicU64,
    handed_over: AtomicU64,
}

impl Number {
    async fn add_one(&self, kind: u64) {
        let seen = self.value.load(SeqCst);
        timer().sleep(Duration::from_millis(1)).await;
        self.value.store(seen + 1, SeqCst);
        if self.last.swap(kind, SeqCst) != kind {
            self.handed_over.fetch_add(1, SeqCst);
        }
    }
}

pub(crate) async fn ours_and_springs_exclude_each_other_under_contention<D: Database>(version: Version) {
    const TURNS: u64 = 50;
    let database = D::start();
    database.make_table(version);
    let number = Arc::new(Number::default());
    let mut tasks = JoinSet::new();
    for nth in 0..2 {
        let (mutex, shared) = (spring(&database).await.mutex("k").unwrap(), number.clone());
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = mutex.lock().await.unwrap();
                shared.add_one(1).await;
                guard.release().await.unwrap();
                timer().sleep(Duration::from_millis(20)).await;
            }
        });
        let (mut theirs, shared) = (Repository::of(&database, version, nth).await, number.clone());
        tasks.spawn(async move {
            for _ in 0..TURNS {
                while !theirs.acquire(KEY).await {
                    timer().sleep(Duration::from_millis(2)).await;
                }
                shared.add_one(2).await;
                assert!(theirs.delete(KEY).await, "somebody took it from them");
                timer().sleep(Duration::from_millis(20)).await;
            }
        });
    }
    soon("all have had their turns", tasks.join_all()).await;
    assert_eq!(number.value.load(SeqCst), 4 * TURNS, "some were not alone");
    let handed_over = number.handed_over.load(SeqCst);
    assert!(handed_over > 20, "they hardly met: {handed_over}");
}

pub(crate) async fn a_live_row_of_theirs_is_shown_and_never_touched<D: Database>(version: Version) {
    let database = D::start();
    database.make_table(version);
    let mut theirs = Repository::of(&database, version, 1).await;
    assert!(theirs.acquire(KEY).await);
    let before = row(&database, KEY);
    let locks = spring(&database).await;
    let Attempt::Busy(busy) = locks.mutex("k").unwrap().attempt_within(Duration::ZERO).await.unwrap() else {
        panic!("it is theirs")
    };
    assert!(busy.held_by[0].foreign, "{busy:?}");
    let waiting = waiter(&locks, 1).await;
    let holder = locks.inspect("k").await.unwrap().unwrap().holders.remove(0);
    assert!(holder.foreign && holder.token.is_none());
    assert_eq!(*holder.note.owner, *theirs.id);
    assert!(holder.lease_left > Duration::from_secs(5) && holder.lease_left <= Duration::from_secs(10), "{holder:?}");
    timer().sleep(Duration::from_secs(1)).await;
    waiting.abort();
    until_waiting(&locks, "k", 0).await.unwrap();
    assert_eq!(row(&database, KEY), before);
    assert!(theirs.renew(KEY).await && theirs.delete(KEY).await);
}

pub(crate) async fn a_waiter_of_ours_gets_in_soon_after_they_leave_without_a_word<D: Database>(version: Version) {
    let database = D::start();
    database.make_table(version);
    let mut theirs = Repository::of(&database, version, 1).await;
    assert!(theirs.acquire(KEY).await);
    let locks = spring(&database).await;
    let (first, second) = (waiter(&locks, 1).await, waiter(&locks, 2).await);
    timer().sleep(Duration::from_millis(300)).await;
    assert!(theirs.delete(KEY).await);
    let left = Clock::boot().now();
    let guard = soon("our turn", first).await.unwrap();
    let took = left.until(Clock::boot().now());
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert!(!theirs.acquire(KEY).await, "it is ours");
    guard.release().await.unwrap();
    let guard = soon("the next of ours has its turn", second).await.unwrap();
    assert_eq!(owner(&database, KEY), uuid(&guard), "the row went from one to the other");
    guard.release().await.unwrap();
    assert!(theirs.acquire(KEY).await, "it is free");
}

pub(crate) async fn whoever_becomes_the_first_of_ours_looks_as_often_as_the_first_did<D: Database>() {
    let database = D::start();
    let mut theirs = Repository::of(&database, Version::Seven, 1).await;
    let locks = spring(&database).await;
    assert!(theirs.acquire(KEY).await);
    let gives_up = waiter(&locks, 1).await;
    let (second, third) = (waiter(&locks, 2).await, waiter(&locks, 3).await);
    gives_up.abort();
    until_waiting(&locks, "k", 2).await.unwrap();
    timer().sleep(Duration::from_millis(400)).await;
    assert!(theirs.delete(KEY).await);
    let left = Clock::boot().now();
    soon("the second", second).await.unwrap().release().await.unwrap();
    let took = left.until(Clock::boot().now());
    assert!(took < Duration::from_millis(800), "{took:?}");
    soon("the third", third).await.unwrap().release().await.unwrap();
}

pub(crate) async fn a_row_of_theirs_that_has_ended_is_taken_over<D: Database>(version: Version) {
    let database = D::start();
    database.make_table(version);
    let mut theirs = Repository::of(&database, version, 1).await;
    // Nine and a half seconds ago.
    theirs.ahead_ms = -9_500;
    assert!(theirs.acquire(KEY).await);
    let locks = spring(&database).await;
    assert!(locks.mutex("k").unwrap().try_lock().await.unwrap().is_none(), "it has half a second left");
    let guard = soon("it ends", locks.mutex("k").unwrap().lock()).await.unwrap();
    assert_eq!(owner(&database, KEY), uuid(&guard));
    assert!(!theirs.renew(KEY).await && !theirs.delete(KEY).await && !theirs.acquire(KEY).await);
    guard.release().await.unwrap();
}

/// By their clock our lease is over, by ours it is not.
pub(crate) async fn a_row_that_they_took_over_is_a_loss_at_the_next_renewal_and_not_taken_back<D: Database>(
    version: Version,
) {
    let database = D::start();
    database.make_table(version);
    let ttl = Duration::from_secs(3);
    let locks = Locks::builder(&database.url()).ttl(ttl).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    timer().sleep(ttl).await;
    guard.check().unwrap();
    let mut theirs = Repository::of(&database, version, 1).await;
    assert!(!theirs.acquire(KEY).await, "renewals are seen by them");
    theirs.ahead_ms = 4_000;
    assert!(theirs.acquire(KEY).await);
    let taken = row(&database, KEY);
    let stolen = Clock::boot().now();
    soon("the loss", guard.lost()).await;
    let took = stolen.until(Clock::boot().now());
    assert!(took < ttl / 2, "told by a renewal and not by the deadline: {took:?}");
    assert!(locks.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(row(&database, KEY), taken);
    assert!(theirs.delete(KEY).await, "it is still theirs");
}

pub(crate) async fn a_row_that_somebody_deleted_is_a_loss_and_not_made_anew<D: Database>() {
    let database = D::start();
    let locks = Locks::builder(&database.url()).ttl(Duration::from_secs(3)).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    database.sql("DELETE FROM INT_LOCK");
    soon("the loss", guard.lost()).await;
    assert_eq!(database.sql("SELECT COUNT(*) FROM INT_LOCK"), "0");
}

/// Should the answer be lost, nobody of ours may have the lock before its holder gives up.
pub(crate) async fn a_renewal_that_finds_no_row_leaves_the_lease_as_it_was<D: Database>() {
    let database = D::start();
    let locks = Locks::builder(&database.url()).ttl(Duration::from_secs(60)).connect().await.unwrap();
    let _guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let end = || database.sql(&format!("SELECT expires_at FROM {}", D::ENTRY));
    let first = end();
    assert_ne!(database.sql(D::RENEW), "");
    let second = end();
    assert_ne!(first, second);
    database.sql("DELETE FROM INT_LOCK");
    assert_eq!(database.sql(D::RENEW), "");
    assert_eq!(end(), second);
}

pub(crate) async fn what_a_dead_client_of_ours_held_is_swept_out_with_its_row<D: Database>() {
    let database = D::start();
    let locks = spring(&database).await;
    std::mem::forget(locks.mutex("k").unwrap().lock().await.unwrap());
    assert_ne!(row(&database, KEY), "");
    database.sql(&format!("UPDATE {} SET {}", D::ENTRY, D::OVER));
    database.sql(D::SWEEP);
    assert_eq!(database.sql(&format!("SELECT COUNT(*) FROM {}", D::ENTRY)), "0");
    assert_eq!(row(&database, KEY), "");
}

pub(crate) async fn a_holder_of_another_kind_can_be_evicted_whatever_it_calls_itself<D: Database>() {
    let database = D::start();
    let locks = spring(&database).await;
    for id in ["8a3b5f1e-6c2d-4e7f-9a0b-000000000001", "8A3B5F1E-6C2D-4E7F-9A0B-000000000002", "payments-1"] {
        let mut theirs = Repository::of(&database, Version::Seven, 1).await;
        theirs.id = id.into();
        assert!(theirs.acquire(KEY).await);
        let waiting = waiter(&locks, 1).await;
        let holder = locks.inspect("k").await.unwrap().unwrap().holders.remove(0);
        assert_eq!(*holder.note.owner, *id);
        assert_eq!(locks.evict(&holder).await.unwrap(), Departure::WasHolding, "{id}");
        let guard = soon("our turn", waiting).await.unwrap();
        assert_eq!(owner(&database, KEY), uuid(&guard));
        assert!(!theirs.delete(KEY).await);
        assert_eq!(locks.evict(&holder).await.unwrap(), Departure::WasGone, "{id}");
        guard.release().await.unwrap();
    }
}

/// The renewal of a waiter has been sent and is not done yet when the lock becomes its own.
pub(crate) async fn a_renewal_that_meets_a_hand_over_leaves_no_row_that_ends_before_its_lease<D: Database>(
    version: Version,
) {
    let database = D::start();
    database.make_table(version);
    let locks = spring(&database).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let waiting = waiter(&locks, 1).await;
    let mut renewal = database.session().await;
    renewal.begin().await;
    assert_eq!(renewal.update(&format!("UPDATE {} SET {} WHERE NOT holds", D::ENTRY, D::LONGER)).await, Some(1));
    let release = tokio::spawn(guard.release());
    // Either it waits for the renewal, or it has not seen it.
    timer().within(Duration::from_millis(500), waiters_hold::<D>(&database)).await;
    renewal.commit().await;
    soon("the release", release).await.unwrap().unwrap();
    let next = soon("the next", waiting).await.unwrap();
    let ends = match version {
        Version::Six => D::span_ms("l.CREATED_DATE", D::LEASE_END),
        Version::Seven => D::span_ms("l.EXPIRED_AFTER", D::LEASE_END),
    };
    let lacks_ms: i64 = database.sql(&format!("SELECT {ends} FROM INT_LOCK l, {} e", D::ENTRY)).parse().unwrap();
    assert_eq!(lacks_ms, if version == Version::Six { SPRING_TTL_MS } else { 0 });
    next.release().await.unwrap();
}

/// Until there is one that holds and has a row.
async fn waiters_hold<D: Database>(database: &D) {
    while database.sql(&format!("SELECT COUNT(*) FROM {} WHERE holds", D::ENTRY)) != "1"
        || database.sql(&format!("SELECT COUNT(*) FROM {}", D::ENTRY)) != "1"
    {
        timer().sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn nobody_of_ours_takes_the_place_of_a_holder_that_does_not_know_yet_that_its_row_is_gone<
    D: Database,
>() {
    let database = D::start();
    let ttl = Duration::from_secs(3);
    let locks = Locks::builder(&database.url()).ttl(ttl).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    let next = waiter(&locks, 1).await;
    database.sql("DELETE FROM INT_LOCK");
    // Which has the line looked at.
    assert!(locks.mutex("k").unwrap().try_lock().await.unwrap().is_none());
    let next = soon("the next", next).await.unwrap();
    assert!(guard.check().is_err(), "two think that they hold it");
    assert_eq!(owner(&database, KEY), uuid(&next));
}

pub(crate) async fn those_behind_one_that_died_while_spring_has_the_lock_do_not_wait_for_it<D: Database>() {
    let database = D::start();
    let locks = spring(&database).await;
    // Uses up the ticket.
    locks.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
    let mut theirs = Repository::of(&database, Version::Seven, 1).await;
    assert!(theirs.acquire(KEY).await);
    database.sql(D::DYING);
    let second = waiter(&locks, 2).await;
    assert!(theirs.delete(KEY).await);
    let left = Clock::boot().now();
    soon("the second", second).await.unwrap().release().await.unwrap();
    let took = left.until(Clock::boot().now());
    assert!(took < Duration::from_secs(5), "{took:?}");
}

pub(crate) async fn a_table_that_is_altered_for_spring_7_is_written_as_such_from_then_on<D: Database>() {
    let database = D::start();
    database.make_table(Version::Six);
    let ttl = Duration::from_secs(3);
    let locks = Locks::builder(&database.url()).ttl(ttl).connect().await.unwrap();
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    database.sql(D::ALTER);
    timer().sleep(ttl).await;
    guard.check().unwrap();
    let mut theirs = Repository::of(&database, Version::Seven, 1).await;
    assert!(!theirs.acquire(KEY).await, "our renewal has told until when");
    guard.release().await.unwrap();
    assert!(theirs.acquire(KEY).await);
    assert!(locks.mutex("k").unwrap().try_lock().await.unwrap().is_none());
}

pub(crate) async fn tables_of_another_layout_or_region_are_refused_and_left_alone<D: Database>() {
    let database = D::start();
    let url = database.url();
    let plain = url.replace("?layout=spring", "");
    let (locks, ours) = (spring(&database).await, connect(&plain).await);
    // Both in one database do not meet.
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    ours.mutex("k").unwrap().try_lock().await.unwrap().unwrap().release().await.unwrap();
    for (url, why) in [
        (format!("{url}&{}", D::named("leasehold")), "another ?layout="),
        (format!("{plain}?{}", D::named("leasehold_spring")), "another ?layout="),
        (format!("{url}&region=ORDERS"), "region \"DEFAULT\""),
        (format!("{url}&spring-ttl=5000"), "10000 ms"),
    ] {
        let refused = Locks::builder(&url).connect().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable);
        assert!(refused.to_string().contains(why), "{url}: {refused}");
    }
    let orders = connect(&format!("{url}&region=ORDERS&{}", D::named("orders"))).await;
    orders.mutex("k").unwrap().try_lock().await.unwrap().unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

pub(crate) async fn the_doctor_says_which_table_and_which_version<D: Database>() {
    for (version, words) in [(Version::Six, "Integration 6 "), (Version::Seven, "Integration 7 ")] {
        let database = D::start();
        database.make_table(version);
        let findings = spring(&database).await.checkup().await.unwrap();
        let finding = findings.iter().find(|finding| finding.check == "layout").unwrap().to_string();
        let lower = finding.to_lowercase();
        assert!(finding.contains(words) && finding.contains("\"DEFAULT\"") && lower.contains("int_lock"), "{finding}");
    }
}

pub(crate) async fn the_table_that_we_make_is_that_of_spring_7<D: Database>() {
    let database = D::start();
    drop(spring(&database).await);
    let made = database.sql(D::COLUMNS);
    database.sql("DROP TABLE INT_LOCK");
    database.make_table(Version::Seven);
    assert_eq!(made, database.sql(D::COLUMNS));
}

/// All of these on a database that is called so where this stands, and some of them for each version of Spring.
macro_rules! tests_on {
    ($database:ident) => {
        tests_on! { $database():
            whoever_becomes_the_first_of_ours_looks_as_often_as_the_first_did
            a_row_that_somebody_deleted_is_a_loss_and_not_made_anew
            a_renewal_that_finds_no_row_leaves_the_lease_as_it_was
            what_a_dead_client_of_ours_held_is_swept_out_with_its_row
            a_holder_of_another_kind_can_be_evicted_whatever_it_calls_itself
            nobody_of_ours_takes_the_place_of_a_holder_that_does_not_know_yet_that_its_row_is_gone
            those_behind_one_that_died_while_spring_has_the_lock_do_not_wait_for_it
            a_table_that_is_altered_for_spring_7_is_written_as_such_from_then_on
            tables_of_another_layout_or_region_are_refused_and_left_alone
            the_doctor_says_which_table_and_which_version
            the_table_that_we_make_is_that_of_spring_7
        }
        tests_on! { $database six Six }
        tests_on! { $database seven Seven }
    };
    ($database:ident $module:ident $version:ident) => {
        mod $module {
            use super::{$database, Version, cases};

            tests_on! { $database(Version::$version):
                a_holder_of_ours_has_the_row_that_spring_looks_for
                ours_and_springs_exclude_each_other_under_contention
                a_live_row_of_theirs_is_shown_and_never_touched
                a_waiter_of_ours_gets_in_soon_after_they_leave_without_a_word
                a_row_of_theirs_that_has_ended_is_taken_over
                a_row_that_they_took_over_is_a_loss_at_the_next_renewal_and_not_taken_back
                a_renewal_that_meets_a_hand_over_leaves_no_row_that_ends_before_its_lease
            }
        }
    };
    ($database:ident $arguments:tt: $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                cases::$case::<$database> $arguments.await;
            }
        )*
    };
}
