//! A connection to one server. Requests leave in the order in which they are made, but for those that gather into one call,
//! which leave behind the others that are written with them. Answers come back in the order in which requests left.
//!
//! Whoever waits for an answer reads for everybody: a request that is alone goes to the socket and comes back from it
//! without passing through another task, and each task more may be another thread to wake, which takes as long as the trip
//! itself. While nobody waits, a task of the connection's own reads what the server sends by itself. It also takes over from
//! a reader that is not polled: whoever made a request may have turned to something else, and nobody else must starve.
//! That task is not woken by requests: the last to have its answer has the socket wake it, and it looks every now and then
//! while there are any.
//!
//! Two locks: `socket`, under which bytes move, and `state`, which may be taken under it. Who reads is decided under
//! `state` and obeyed under `socket`, so whoever registers with the socket last is the one who should.

mod attend;
mod watch;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::backend::redis::command::Command;
use crate::backend::redis::frames::Frames;
use crate::backend::redis::together::{Joinable, Together};
use crate::backend::socket::Stream;
use crate::clock::{Clock, Moment};
use crate::sync::locked;
use watch::Watch;
pub(in crate::backend) use watch::{Watched, Watching};

/// What is done with messages that a server sends by itself.
pub(in crate::backend) type Hear = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// How many requests wait for each other to be written. A server that has some to do need not wait for more: with 32 of them,
/// and 64 tasks that ask, server and client were each idle for half of the time, waiting for the other.
const TOGETHER_MAX: usize = 12;

/// How much is read at once.
const READ_MAX: usize = 16 * 1024;

/// A connection. It is closed when nobody has it any more.
#[derive(Clone)]
pub(in crate::backend) struct Pipe {
    end: Arc<End>,
}

struct End(Arc<Inner>);

struct Inner {
    hear: Option<Hear>,
    clock: Clock,
    /// How long an answer may take.
    patience: Duration,
    socket: Mutex<Socket>,
    state: Mutex<State>,
}

struct Socket {
    stream: Box<dyn Stream>,
    frames: Frames,
    read: Box<[u8; READ_MAX]>,
    /// What is being written, and how much of it has been.
    writing: Vec<u8>,
    written: usize,
}

struct State {
    /// What has yet to be written, then what leaves together, and how many requests all that is.
    outgoing: Vec<u8>,
    together: Together,
    queued: usize,
    /// How many requests went together when some last did.
    gathered: usize,
    /// Whether somebody is about to write.
    flush_due: bool,
    /// Those who wait, in the order of their answers. Behind them come those who leave together.
    waiting: VecDeque<Awaited>,
    /// The answers that the first of them has had, if it has several.
    answered: Vec<Value>,
    made: u64,
    /// The request whose maker reads. If there is none, the connection's own task does.
    reader: Option<u64>,
    /// How to wake that task, and whether it looks after readers.
    own_task: Option<Waker>,
    watched: bool,
    watch: Option<Watch>,
    /// Why there will be no more answers.
    broken: Option<RedisError>,
}

/// What the server has yet to answer.
enum Awaited {
    /// With so many answers.
    One(Arc<Slot>, usize),
    /// With one that is for all of them.
    Together(Vec<Arc<Slot>>),
}

/// Where an answer is put.
pub(super) struct Slot {
    number: u64,
    overdue_at: Moment,
    answer: Mutex<Answer>,
}

/// What is asked.
#[derive(Clone, Copy)]
enum Request<'a> {
    Alone(&'a Command),
    Joinable(&'a dyn Joinable),
    Watching(&'a Watching<'a>),
    Watched(&'a Watched<'a>),
}

#[derive(Default)]
struct Answer {
    value: Option<RedisResult<Value>>,
    waker: Option<Waker>,
}

impl Pipe {
    /// Must be called on the runtime of the stream, on which a task goes on until the connection is closed.
    pub(super) fn over(stream: Box<dyn Stream>, hear: Option<Hear>, patience: Duration) -> Self {
        let (frames, read) = (Frames::default(), Box::new([0; READ_MAX]));
        let socket = Socket { stream, frames, read, writing: Vec::new(), written: 0 };
        let state = State {
            outgoing: Vec::new(),
            together: Together::default(),
            queued: 0,
            gathered: 0,
            flush_due: false,
            waiting: VecDeque::new(),
            answered: Vec::new(),
            made: 0,
            reader: None,
            own_task: None,
            watched: false,
            watch: None,
            broken: None,
        };
        let (socket, state, clock) = (Mutex::new(socket), Mutex::new(state), Clock::boot());
        let inner = Arc::new(Inner { hear, clock, patience, socket, state });
        attend::spawn(inner.clone());
        Self { end: Arc::new(End(inner)) }
    }

    /// Whether nothing can be asked any more.
    pub(in crate::backend) fn is_broken(&self) -> bool {
        locked(&self.end.0.state).broken.is_some()
    }

    /// Sends a request and waits for its answer; for a list of them, if it is of several commands. Once this has been
    /// polled, the request may have been sent.
    pub(in crate::backend) async fn ask(&self, command: &Command) -> RedisResult<Value> {
        self.end.0.send(Request::Alone(command)).await?.extract_error()
    }

    /// The same, of a request that may leave together with others.
    pub(super) async fn ask_together(&self, request: &dyn Joinable) -> RedisResult<Value> {
        self.end.0.send(Request::Joinable(request)).await?.extract_error()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.fail(&closed());
    }
}

impl Inner {
    async fn send(&self, request: Request<'_>) -> RedisResult<Value> {
        let mut turn = self.join(request)?;
        if turn.flushes {
            // Whoever is about to ask gets the chance to: many answers at once make many ask again.
            if !turn.is_last {
                tokio::task::yield_now().await;
            }
            turn.flushes = !poll_fn(|cx| Poll::Ready(self.flush(cx))).await;
        }
        turn.pass_on_flush();
        poll_fn(|cx| turn.poll(cx)).await
    }

    /// Puts a request behind the others. Its maker is to write it in a moment, unless somebody else is about to, or it is
    /// alone and may be written at once, by whoever reads.
    fn join(&self, request: Request<'_>) -> RedisResult<Turn<'_>> {
        let mut state = locked(&self.state);
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let reads = state.reader.is_none();
        let alone = reads && state.gathered <= 1;
        let slot = state.slot(self.clock.now().after(self.patience));
        match request {
            Request::Alone(command) => state.put(command, slot.clone()),
            Request::Joinable(request) if alone => state.put(&request.alone(), slot.clone()),
            Request::Joinable(request) => state.put_together(request, slot.clone()),
            Request::Watching(request) => state.put_watching(request, slot.clone()),
            Request::Watched(request) => state.put_watched(request, slot.clone()),
        }
        if reads {
            state.reader = Some(slot.number);
        }
        let watcher = if std::mem::replace(&mut state.watched, true) { None } else { state.own_task.clone() };
        let is_last = state.queued >= TOGETHER_MAX;
        let flushes = is_last || !state.flush_due && !alone;
        state.flush_due |= flushes;
        drop(state);
        if let Some(own_task) = watcher {
            own_task.wake();
        }
        Ok(Turn { inner: self, slot, flushes, is_last })
    }

    /// Writes what there is to write. False if the socket takes no more for now.
    fn flush(&self, cx: &mut Context<'_>) -> bool {
        let flushed = locked(&self.socket).poll_write(&self.state, cx);
        match flushed {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                self.fail(&error.into());
                true
            }
        }
    }

    /// Writes, reads, and hands out what was read, if it is for that request's maker to do so, or for our own task.
    fn turn(&self, reader: Option<u64>, cx: &mut Context<'_>) {
        let mut wakers = Vec::new();
        let moved = {
            let mut socket = locked(&self.socket);
            if locked(&self.state).reader != reader {
                return;
            }
            match socket.poll_write(&self.state, cx) {
                Poll::Ready(Err(error)) => Err(error.into()),
                _ => self.read(&mut socket, reader, &mut wakers, cx),
            }
        };
        wakers.into_iter().for_each(Waker::wake);
        if let Err(error) = moved {
            self.fail(&error);
        }
    }

    fn read(
        &self,
        socket: &mut Socket,
        reader: Option<u64>,
        wakers: &mut Vec<Waker>,
        cx: &mut Context<'_>,
    ) -> RedisResult<()> {
        let Socket { stream, frames, read, .. } = socket;
        loop {
            let mut buffer = ReadBuf::new(&mut read[..]);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Err(closed()),
                Poll::Ready(Ok(())) => frames.push(buffer.filled()),
            }
            while let Some(frame) = frames.next()? {
                // A subscription is confirmed by a message too, which is its answer.
                if frame.is_push()
                    && let Value::Push { kind, data } = frame.value()?
                    && !matches!(kind, PushKind::Subscribe | PushKind::Unsubscribe)
                {
                    if let Some(hear) = &self.hear {
                        hear(PushInfo { kind, data });
                    }
                    continue;
                }
                let value = frame.value()?;
                let Some(answered) = locked(&self.state).answer(value) else { return Err(unasked()) };
                match answered {
                    None => {}
                    Some((Awaited::One(slot, _), value)) => hand_out(&slot, Ok(value), reader, wakers),
                    Some((Awaited::Together(slots), value)) => hand_out_all(&slots, value, reader, wakers),
                }
            }
        }
    }

    /// There will be no more answers.
    fn fail(&self, error: &RedisError) {
        let (waiting, own_task) = {
            let mut state = locked(&self.state);
            if state.broken.is_some() {
                return;
            }
            state.broken = Some(error.clone());
            let waiting: Vec<Arc<Slot>> = state.slots().cloned().collect();
            (state.waiting, state.together) = Default::default();
            (waiting, state.own_task.take())
        };
        let wakers: Vec<Waker> = waiting.iter().filter_map(|slot| slot.fill(Err(error.clone()))).collect();
        wakers.into_iter().chain(own_task).for_each(Waker::wake);
        if let Some(hear) = &self.hear {
            hear(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        }
    }
}

impl State {
    /// Puts a request behind the others, and before those that leave together.
    fn put(&mut self, command: &Command, slot: Arc<Slot>) {
        self.outgoing.extend_from_slice(command.bytes());
        self.waiting.push_back(Awaited::One(slot, command.count));
    }

    /// Puts a request behind the others, as a part of the last if that can be.
    fn put_together(&mut self, request: &dyn Joinable, slot: Arc<Slot>) {
        if !self.together.takes(request) {
            self.close_together();
        }
        self.together.add(request, slot);
    }

    /// What leaves together is complete.
    fn close_together(&mut self) {
        if !self.together.slots.is_empty() {
            let slots = self.together.close(&mut self.outgoing);
            self.waiting.push_back(Awaited::Together(slots));
        }
    }

    fn slot(&mut self, overdue_at: Moment) -> Arc<Slot> {
        self.made += 1;
        self.queued += 1;
        Arc::new(Slot { number: self.made, overdue_at, answer: Mutex::default() })
    }

    /// Everybody who waits, in the order of their requests.
    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let awaited = self.waiting.iter().flat_map(|awaited| match awaited {
            Awaited::One(slot, _) => std::slice::from_ref(slot),
            Awaited::Together(slots) => slots,
        });
        awaited.chain(&self.together.slots)
    }

    /// The next answer has come: whose it is, and all that they get, if nothing is lacking any more. Nothing at all if nobody
    /// waits for one.
    fn answer(&mut self, value: Value) -> Option<Option<(Awaited, Value)>> {
        let Awaited::One(_, answers @ 2..) = *self.waiting.front()? else {
            return Some(self.waiting.pop_front().map(|awaited| (awaited, value)));
        };
        self.answered.push(value);
        if self.answered.len() < answers {
            return Some(None);
        }
        let all = Value::Array(std::mem::take(&mut self.answered));
        Some(self.waiting.pop_front().map(|awaited| (awaited, all)))
    }

    fn reader_waker(&mut self) -> Option<Waker> {
        match self.reader {
            None => self.own_task.clone(),
            Some(number) => {
                let slot = self.slots().find(|slot| slot.number == number)?;
                locked(&slot.answer).waker.take()
            }
        }
    }
}

impl Slot {
    fn fill(&self, value: RedisResult<Value>) -> Option<Waker> {
        let mut answer = locked(&self.answer);
        answer.value = Some(value);
        answer.waker.take()
    }
}

impl Socket {
    /// Ready when everything has been written.
    fn poll_write(&mut self, state: &Mutex<State>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.written == self.writing.len() {
                self.writing.clear();
                self.written = 0;
                let mut state = locked(state);
                state.flush_due = false;
                state.close_together();
                if state.outgoing.is_empty() {
                    break;
                }
                state.gathered = std::mem::take(&mut state.queued);
                std::mem::swap(&mut state.outgoing, &mut self.writing);
            }
            match Pin::new(&mut self.stream).poll_write(cx, &self.writing[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

/// Gives an answer to whoever waits for it, who is to be woken, unless it is the one who reads.
fn hand_out(slot: &Slot, value: RedisResult<Value>, reader: Option<u64>, wakers: &mut Vec<Waker>) {
    let own = reader == Some(slot.number);
    wakers.extend(slot.fill(value).filter(|_| !own));
}

/// Gives each its part of an answer to all, which may also be that the server did nothing.
fn hand_out_all(slots: &[Arc<Slot>], answer: Value, reader: Option<u64>, wakers: &mut Vec<Waker>) {
    let for_all = match answer {
        Value::Array(parts) if parts.len() == slots.len() => {
            return slots.iter().zip(parts).for_each(|(slot, part)| hand_out(slot, Ok(part), reader, wakers));
        }
        error @ Value::ServerError(_) => Ok(error),
        _ => Err(unasked()),
    };
    slots.iter().for_each(|slot| hand_out(slot, for_all.clone(), reader, wakers));
}

/// One who waits for an answer. Dropping it passes on what it had to do for the others.
struct Turn<'a> {
    inner: &'a Inner,
    slot: Arc<Slot>,
    /// Whether it has yet to write for others.
    flushes: bool,
    /// Whether nobody else is waited for before it does.
    is_last: bool,
}

impl Turn<'_> {
    /// Whoever reads writes what we could not.
    fn pass_on_flush(&mut self) {
        if std::mem::take(&mut self.flushes)
            && let Some(reader) = locked(&self.inner.state).reader_waker()
        {
            reader.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<RedisResult<Value>> {
        {
            // First of all, so that whoever makes us the reader finds us.
            let mut answer = locked(&self.slot.answer);
            if let Some(value) = answer.value.take() {
                return Poll::Ready(value);
            }
            match &mut answer.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                waker => *waker = Some(cx.waker().clone()),
            }
        }
        let reader = Some(self.slot.number);
        if locked(&self.inner.state).reader != reader {
            return Poll::Pending;
        }
        self.inner.turn(reader, cx);
        locked(&self.slot.answer).value.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.inner.state);
        let reads = state.reader == Some(self.slot.number);
        if reads {
            // Whose answer comes next is the next to read, if anybody still waits for it.
            let others = |slot: &&Arc<Slot>| slot.number != self.slot.number && Arc::strong_count(slot) > 1;
            let next = state.slots().find(others).map(|slot| slot.number);
            state.reader = next;
        }
        let waker = if reads || self.flushes { state.reader_waker() } else { None };
        let is_own_task = state.reader.is_none();
        drop(state);
        match waker {
            None => {}
            // It reads on when there is something to read, and need not be woken to wait for that.
            Some(waker) if is_own_task => self.inner.turn(None, &mut Context::from_waker(&waker)),
            Some(waker) => waker.wake(),
        }
    }
}

fn closed() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

fn unasked() -> RedisError {
    (redis::ErrorKind::Parse, "an answer came that nobody had asked for").into()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::Wake;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn pipe() -> (Pipe, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        (Pipe::over(Box::new(ours), None, PATIENCE), theirs)
    }

    fn ping() -> Command {
        Command::of(1).part(b"PING")
    }

    /// Waits for so many requests, each a ping.
    async fn receive(server: &mut DuplexStream, requests: usize) {
        let mut bytes = vec![0; requests * ping().bytes().len()];
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes, ping().bytes().repeat(requests));
    }

    #[tokio::test]
    async fn answers_come_in_the_order_of_requests() {
        let (pipe, mut server) = pipe();
        let asking: Vec<_> = (0..50)
            .map(|_| {
                let pipe = pipe.clone();
                tokio::spawn(async move { pipe.ask(&ping()).await.unwrap() })
            })
            .collect();
        receive(&mut server, 50).await;
        let answers: String = (0..50).map(|number| format!(":{number}\r\n")).collect();
        server.write_all(answers.as_bytes()).await.unwrap();
        for (number, task) in asking.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), Value::Int(number as i64));
        }
    }

    #[tokio::test]
    async fn several_commands_in_a_row_are_answered_by_a_list() {
        let (pipe, mut server) = pipe();
        let (several, one) = (ping().before(&ping()).before(&ping()), ping());
        let answering = async {
            receive(&mut server, 4).await;
            server.write_all(b"+OK\r\n_\r\n*1\r\n:7\r\n:8\r\n").await.unwrap();
        };
        let (several, one, ()) = futures_util::future::join3(pipe.ask(&several), pipe.ask(&one), answering).await;
        assert_eq!(several.unwrap(), Value::Array(vec![Value::Okay, Value::Nil, Value::Array(vec![Value::Int(7)])]));
        assert_eq!(one.unwrap(), Value::Int(8));
    }

    #[tokio::test]
    async fn a_request_that_is_no_longer_polled_starves_nobody() {
        let (pipe, mut server) = pipe();
        let mut forgotten = pin!(async { pipe.ask(&ping()).await });
        assert!(forgotten.as_mut().now_or_never().is_none());
        let other = tokio::spawn({
            let pipe = pipe.clone();
            async move { pipe.ask(&ping()).await.unwrap() }
        });
        receive(&mut server, 2).await;
        server.write_all(b":1\r\n:2\r\n").await.unwrap();
        assert_eq!(other.await.unwrap(), Value::Int(2));
        assert_eq!(forgotten.await.unwrap(), Value::Int(1));
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_passes_on_what_it_did_for_others() {
        let (pipe, mut server) = pipe();
        let ping = ping();
        let mut dropped = Box::pin(pipe.ask(&ping));
        assert!(dropped.as_mut().now_or_never().is_none());
        let (mut other, woken) = (pin!(pipe.ask(&ping)), Arc::new(Woken::default()));
        // Twice: at first it waits for others to be written with.
        for _ in 0..2 {
            assert!(other.as_mut().poll(&mut Context::from_waker(&woken.clone().into())).is_pending());
            tokio::task::yield_now().await;
        }
        woken.0.store(false, Relaxed);
        drop(dropped);
        assert!(woken.0.load(Relaxed), "it is told that it is the next to read");
        let answering = async {
            receive(&mut server, 2).await;
            server.write_all(b":1\r\n:2\r\n").await.unwrap();
        };
        let (answer, ()) = futures_util::future::join(other, answering).await;
        assert_eq!(answer.unwrap(), Value::Int(2));
    }

    /// On paused time, so that nobody looks after readers meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_alone_wakes_nobody_else_and_what_comes_after_its_answer_is_heard() {
        let (pipe, mut server) = pipe();
        let exchange = async |server: &mut DuplexStream| {
            let answering = async {
                receive(server, 1).await;
                server.write_all(b":1\r\n").await.unwrap();
            };
            let (answer, ()) = futures_util::future::join(async { pipe.ask(&ping()).await }, answering).await;
            assert_eq!(answer.unwrap(), Value::Int(1));
        };
        exchange(&mut server).await;
        let own_task = Arc::new(Woken::default());
        {
            let mut state = locked(&pipe.end.0.state);
            assert!(state.watched);
            state.own_task = Some(own_task.clone().into());
        }
        exchange(&mut server).await;
        assert!(!own_task.0.load(Relaxed));
        server.write_all(b">2\r\n$4\r\nnews\r\n:1\r\n").await.unwrap();
        assert!(own_task.0.load(Relaxed));
    }

    #[tokio::test]
    async fn a_connection_that_breaks_answers_everybody_who_waits_and_nobody_after() {
        let (pipe, mut server) = pipe();
        let asking: Vec<_> = (0..3)
            .map(|_| {
                let pipe = pipe.clone();
                tokio::spawn(async move { pipe.ask(&ping()).await })
            })
            .collect();
        receive(&mut server, 3).await;
        server.write_all(b":1\r\n").await.unwrap();
        drop(server);
        let mut answers = Vec::new();
        for task in asking {
            answers.push(task.await.unwrap());
        }
        assert_eq!(answers.remove(0).unwrap(), Value::Int(1));
        assert!(answers.iter().all(Result::is_err));
        assert!(pipe.is_broken());
        assert!(pipe.ask(&ping()).await.is_err());
    }

    #[tokio::test]
    async fn an_answer_that_is_overdue_is_not_waited_for_and_is_nobody_elses() {
        let (ours, mut server) = tokio::io::duplex(1024);
        let pipe = Pipe::over(Box::new(ours), None, Duration::from_millis(30));
        assert!(pipe.ask(&ping()).await.is_err_and(|error| error.is_timeout()));
        let answering = async {
            receive(&mut server, 2).await;
            server.write_all(b":1\r\n:2\r\n").await.unwrap();
        };
        let (answer, ()) = futures_util::future::join(async { pipe.ask(&ping()).await }, answering).await;
        assert_eq!(answer.unwrap(), Value::Int(2));
    }

    #[tokio::test]
    async fn what_the_server_says_by_itself_is_heard_while_nobody_asks() {
        let (ours, mut server) = tokio::io::duplex(1024);
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let hear: Hear = Arc::new(move |push| told.send(push.kind).unwrap());
        let pipe = Pipe::over(Box::new(ours), Some(hear), PATIENCE);
        server.write_all(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n").await.unwrap();
        assert_eq!(heard.recv().await.unwrap(), PushKind::Message);
        server.write_all(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await.unwrap();
        assert!(matches!(pipe.ask(&ping()).await.unwrap(), Value::Push { kind: PushKind::Subscribe, .. }));
        drop(server);
        assert_eq!(heard.recv().await.unwrap(), PushKind::Disconnection);
    }

    #[tokio::test]
    async fn a_connection_that_nobody_has_any_more_is_closed() {
        let (pipe, mut server) = pipe();
        drop(pipe);
        assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
