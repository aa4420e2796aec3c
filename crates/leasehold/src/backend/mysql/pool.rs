//! A few connections, each with one request under way.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use futures_util::future::{Either, select};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error as MyError, Params, Row, Value};
use tokio::sync::{Notify, Semaphore};

use super::address::Settings;
use super::fault;
use crate::clock::{Clock, Moment, Timer};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Mutex, locked};

/// How often a request is sent that the server undid because others were in its way. One of them always goes on, so that
/// there is no need to pause.
const COLLISIONS_MAX: usize = 10;

/// A connection that was not used for so long is asked whether it is still there: servers hang up on those that are silent.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// How long nobody tries to connect after a failure while there are connections: the server may have none left.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Connections are made one at a time, while requests want more than there are: a new one costs the server as much as ten
/// requests, because it reads our procedures anew for each. A crowd is served sooner by the few that are there.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) settings: Arc<Settings>,
    /// How many connections the pools of this client have, and are making.
    connections: Arc<AtomicUsize>,
    state: Mutex<State>,
    /// A permit for each idle connection.
    seats: Semaphore,
    /// Rings when a connection broke, or could not be made.
    troubled: Notify,
    timer: Timer,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<(Counted, Moment)>,
    /// How many of them this pool has, idle and in use.
    made: usize,
    is_making: bool,
    /// How many requests have no connection yet.
    wanting: usize,
    /// How often one could not be made, when and why the last could not.
    failures: u64,
    failed_at: Option<Moment>,
    failure: Option<Error>,
}

/// A connection that counts.
#[derive(Debug)]
struct Counted {
    conn: Conn,
    _place: CountedPlace,
}

#[derive(Debug)]
struct CountedPlace(Arc<AtomicUsize>);

impl Drop for CountedPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// A statement with values for its question marks, and the rows of its first result.
    Call(String, Vec<Value>),
    /// A statement with values for its question marks, and what it has changed. That is nothing if it would write what is
    /// there already.
    Change(String, Vec<Value>),
    /// Statements without values, one after the other, and the rows of the last.
    Plain(Vec<String>),
}

/// What is answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    /// How many rows a change, or plain statements, have changed.
    pub(super) changed: u64,
    /// What the server has counted for a row that was inserted.
    pub(super) counted: Option<u64>,
}

/// Why there are no rows.
enum Complaint {
    /// No connection could be had.
    Unconnected(Error),
    Server(MyError),
    Silence,
}

impl Pool {
    /// Must be called on the runtime on which it is used.
    pub(super) fn new(settings: Settings) -> Self {
        Self::with(Arc::new(settings), Arc::default(), Timer::on_callers_runtime(Clock::boot()))
    }

    /// Another pool of the same client, for another runtime. Together they have as many connections as one may have, but for the
    /// first of each, which it has in any case.
    pub(super) fn another(&self, timer: Timer) -> Self {
        Self::with(self.settings.clone(), self.connections.clone(), timer)
    }

    fn with(settings: Arc<Settings>, connections: Arc<AtomicUsize>, timer: Timer) -> Self {
        let (seats, troubled) = (Semaphore::new(0), Notify::new());
        Self { settings, connections, state: Mutex::default(), seats, troubled, timer }
    }

    pub(super) async fn ask(self: &Arc<Self>, question: Question) -> Result<Answer> {
        self.ask_in_turn(&[question]).await
    }

    /// Asks one after the other, until one of them changes anything or is the last.
    pub(super) async fn ask_in_turn(self: &Arc<Self>, questions: &[Question]) -> Result<Answer> {
        self.try_ask(questions).await.map_err(|complaint| complaint.error())
    }

    /// The same for a question that does no harm when it is asked twice: if its connection breaks, it is sent once more, on a
    /// new one. The server may have ended idle sessions long ago, which shows when one of them is next used.
    pub(super) async fn ask_harmlessly(self: &Arc<Self>, question: Question) -> Result<Answer> {
        let question = [question];
        match self.try_ask(&question).await {
            Err(complaint) if complaint.is_break() => self.ask_in_turn(&question).await,
            answered => answered.map_err(|complaint| complaint.error()),
        }
    }

    async fn try_ask(self: &Arc<Self>, questions: &[Question]) -> std::result::Result<Answer, Complaint> {
        let taken = self.timer.within(self.settings.patience, self.take()).await;
        let busy = || Err(Error::new(ErrorKind::Unreachable, "no connection was free in time"));
        taken.unwrap_or_else(busy).map_err(Complaint::Unconnected)?.try_ask(questions).await
    }

    /// A connection that is idle. If there is none, one is made for the next who asks, and nobody waits for it: neither are there
    /// several of them, nor does it matter if whoever has it is not polled for a while.
    pub(super) fn take_idle(self: &Arc<Self>) -> Option<Taken> {
        if let Ok(seat) = self.seats.try_acquire() {
            seat.forget();
            let (conn, since) = locked(&self.state).idle.pop().expect("a permit for each");
            let taken = Taken { pool: self.clone(), conn: Some(conn) };
            if since.until(self.timer.now()) < STALE_AFTER {
                return Some(taken);
            }
        }
        let has_one = |state: &State| state.made > 0 || self.has_just_failed(state);
        if !has_one(&locked(&self.state)) {
            let _wanting = Wanting::one_more(self);
            self.make_more();
        }
        None
    }

    /// The next connection that is idle, in the order of asking.
    async fn take(self: &Arc<Self>) -> Result<Taken> {
        let _wanting = Wanting::one_more(self);
        let failures = locked(&self.state).failures;
        loop {
            let mut troubled = pin!(self.troubled.notified());
            troubled.as_mut().enable();
            self.make_more();
            match select(pin!(self.seats.acquire()), troubled).await {
                Either::Left((seat, _)) => {
                    seat.expect("it is never closed").forget();
                    let (conn, since) = locked(&self.state).idle.pop().expect("a permit for each");
                    let mut taken = Taken { pool: self.clone(), conn: Some(conn) };
                    if since.until(self.timer.now()) < STALE_AFTER {
                        return Ok(taken);
                    }
                    if let Some(Ok(())) = self.timer.within(self.settings.patience, taken.conn().ping()).await {
                        return Ok(taken);
                    }
                }
                Either::Right(_) => {
                    let state = locked(&self.state);
                    if let (true, Some(failure)) = (state.failures > failures && state.made == 0, &state.failure) {
                        return Err(failure.clone());
                    }
                }
            }
        }
    }

    /// Makes connections, one after the other, as long as requests want more than are idle, and there may be more.
    fn make_more(self: &Arc<Self>) {
        let mut state = locked(&self.state);
        if state.is_making {
            return;
        }
        let Some(mut place) = self.room(&state) else { return };
        state.is_making = true;
        drop(state);
        let pool = self.clone();
        tokio::spawn(async move {
            loop {
                let made = pool.connect().await;
                let mut state = locked(&pool.state);
                match made {
                    Ok(conn) => {
                        state.made += 1;
                        state.idle.push((Counted { conn, _place: place }, pool.timer.now()));
                        pool.seats.add_permits(1);
                    }
                    Err(error) => {
                        state.failures += 1;
                        state.failed_at = Some(pool.timer.now());
                        state.failure = Some(error);
                        state.is_making = false;
                        drop(state);
                        return pool.troubled.notify_waiters();
                    }
                }
                match pool.room(&state) {
                    Some(next) => place = next,
                    None => {
                        state.is_making = false;
                        return;
                    }
                }
            }
        });
    }

    /// What broke one connection has as a rule broken all of them, and the next request should not have to find out.
    fn forget_idle(&self) {
        let mut state = locked(&self.state);
        while let Ok(seat) = self.seats.try_acquire() {
            seat.forget();
            state.idle.pop().expect("a permit for each");
            state.made -= 1;
        }
    }

    fn has_just_failed(&self, state: &State) -> bool {
        state.failed_at.is_some_and(|at| at.until(self.timer.now()) < FAILURE_PAUSE)
    }

    /// A place for one more connection, if one is wanted and may be made.
    fn room(&self, state: &State) -> Option<CountedPlace> {
        if state.wanting <= state.idle.len() {
            return None;
        }
        let may_be_made = |count| state.made == 0 || count < self.settings.connections && !self.has_just_failed(state);
        let one_more = |count| may_be_made(count).then_some(count + 1);
        self.connections.fetch_update(AcqRel, Acquire, one_more).ok()?;
        Some(CountedPlace(self.connections.clone()))
    }

    pub(super) async fn connect(&self) -> Result<Conn> {
        match self.timer.within(self.settings.patience, Conn::new(self.settings.opts.clone())).await {
            Some(Ok(conn)) => Ok(conn),
            Some(Err(error)) => Err(fault::of_connecting(&error)),
            None => Err(Error::new(ErrorKind::Unreachable, "no connection could be made in time")),
        }
    }
}

impl Complaint {
    fn error(&self) -> Error {
        match self {
            Self::Unconnected(error) => error.clone(),
            Self::Server(error) => fault::of_request(error),
            Self::Silence => Error::new(ErrorKind::Unreachable, "no answer in time").with_unknown_fate(),
        }
    }

    /// Whether two transactions got into each other's way, this one was undone, and another try may well succeed.
    fn is_collision(&self) -> bool {
        matches!(self, Self::Server(error) if fault::is_collision(error))
    }

    /// Whether the connection is gone, and what became of the request unknown.
    fn is_break(&self) -> bool {
        matches!(self, Self::Server(error) if fault::is_break(error))
    }
}

/// A connection in use. It is one fewer if it is not given back.
#[derive(Debug)]
pub(super) struct Taken {
    pool: Arc<Pool>,
    conn: Option<Counted>,
}

impl Taken {
    fn conn(&mut self) -> &mut Conn {
        &mut self.conn.as_mut().expect("it is here until it is given back").conn
    }

    pub(super) async fn ask_in_turn(self, questions: &[Question]) -> Result<Answer> {
        self.try_ask(questions).await.map_err(|complaint| complaint.error())
    }

    async fn try_ask(self, questions: &[Question]) -> std::result::Result<Answer, Complaint> {
        let pool = self.pool.clone();
        let answered = self.put_in_turn(questions).await;
        if answered.as_ref().is_err_and(Complaint::is_break) {
            pool.forget_idle();
        }
        answered
    }

    /// A connection whose request failed is not used again, unless the server undid it and says so. One that does not answer
    /// in time is cut.
    async fn put_in_turn(mut self, questions: &[Question]) -> std::result::Result<Answer, Complaint> {
        let (mut nth, mut collisions) = (0, 0);
        let (timer, patience) = (self.pool.timer.clone(), self.pool.settings.patience);
        loop {
            let answered = timer.within(patience, put(self.conn(), &questions[nth])).await;
            match answered.ok_or(Complaint::Silence)?.map_err(Complaint::Server) {
                Ok(answer) if answer.changed == 0 && nth + 1 < questions.len() => nth += 1,
                Err(complaint) if complaint.is_collision() && collisions < COLLISIONS_MAX => collisions += 1,
                Err(complaint) if !complaint.is_collision() => return Err(complaint),
                done => {
                    self.give_back();
                    return done;
                }
            }
        }
    }

    fn give_back(mut self) {
        if let Some(conn) = self.conn.take() {
            locked(&self.pool.state).idle.push((conn, self.pool.timer.now()));
            self.pool.seats.add_permits(1);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.conn.is_some() {
            locked(&self.pool.state).made -= 1;
            self.pool.troubled.notify_waiters();
        }
    }
}

/// A request that has no connection yet.
struct Wanting<'a>(&'a Pool);

impl<'a> Wanting<'a> {
    fn one_more(pool: &'a Pool) -> Self {
        locked(&pool.state).wanting += 1;
        Self(pool)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        locked(&self.0.state).wanting -= 1;
    }
}

async fn put(conn: &mut Conn, question: &Question) -> std::result::Result<Answer, MyError> {
    let mut answer = Answer::default();
    match question {
        Question::Call(statement, values) => {
            answer.rows = conn.exec(statement, Params::Positional(values.clone())).await?;
        }
        Question::Change(statement, values) => {
            match conn.exec_drop(statement, Params::Positional(values.clone())).await {
                Err(error) if fault::is_there_already(&error) => {}
                done => {
                    done?;
                    (answer.changed, answer.counted) = (conn.affected_rows(), conn.last_insert_id());
                }
            }
        }
        Question::Plain(statements) => {
            for statement in statements {
                answer.rows = conn.query(statement).await?;
                answer.changed += conn.affected_rows();
            }
        }
    }
    Ok(answer)
}
