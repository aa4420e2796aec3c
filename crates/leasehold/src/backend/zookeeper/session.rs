//! One session: what all entries of a client live and die with. It outlives its connections, and goes on at whichever server
//! can be reached.
//!
//! Nothing here is done again by itself: a request that is made while there is no connection tries each server once.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, join_all};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::backend::socket::{self, Stream};
use crate::backend::tls::Tls;
use crate::backend::zookeeper::fault::Trouble;
use crate::backend::zookeeper::link::{Answer, Frames, Link, framed};
use crate::backend::zookeeper::request::{self, Ask, Event, Hello, Welcome, code};
use crate::clock::{Clock, Moment, Timer};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::locked;
use crate::url::Host;

/// So many reads are sent one by one: every server knows those.
const FEW: usize = 4;

/// Which servers there are, and how to be let in.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    pub(super) hosts: Vec<Host>,
    pub(super) login: Option<Login>,
    pub(super) tls: Option<Tls>,
    /// How long a connection or an answer may take.
    pub(super) patience: Duration,
}

#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

/// Hears what becomes of a session.
pub(super) trait Listener: Send + Sync {
    /// A server said something of a node.
    fn event(&self, link: &Link, event: Event);
    /// A connection is gone that others than our entries may have relied on.
    fn silenced(&self);
    /// The connection is gone. What was watched is not watched any more.
    fn detached(&self);
    /// There is a connection again, or for the first time.
    fn attached(&self, seat: &Seat);
    /// The session is over, and everything that was made in it is gone.
    fn ended(&self);
}

pub(super) struct Session {
    servers: Servers,
    pub(super) timer: Timer,
    io: Handle,
    listener: Weak<dyn Listener>,
    state: Mutex<State>,
    /// How often there was a connection.
    attachments: watch::Sender<u64>,
}

struct State {
    identity: Option<Identity>,
    link: Option<Arc<Link>>,
    connecting: Option<Connecting>,
    /// How many sessions there were.
    number: u64,
    /// When the last request was sent that the leader had a part in answering. The session cannot end before this and its
    /// timeout.
    confirmed: Moment,
    /// When anything was last sent.
    last_sent: Moment,
    last_zxid: i64,
    /// Which server is tried next.
    next_host: usize,
    /// How long the next session may go without a sign of life.
    wish: Duration,
}

#[derive(Clone)]
struct Identity {
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
}

type Connecting = Shared<BoxFuture<'static, std::result::Result<(), Unattached>>>;

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum Unattached {
    /// The session is over.
    Ended,
    /// No server could be reached.
    Failed(Error),
}

impl From<Unattached> for Error {
    fn from(unattached: Unattached) -> Self {
        match unattached {
            Unattached::Ended => Self::new(ErrorKind::Unreachable, "the session has ended"),
            Unattached::Failed(error) => error,
        }
    }
}

/// A session with a connection, as it was at a moment.
#[derive(Clone)]
pub(super) struct Seat {
    pub(super) link: Arc<Link>,
    pub(super) session: i64,
    /// Which session of this client it is.
    pub(super) number: u64,
    pub(super) timeout: Duration,
    /// Which server it is at.
    pub(super) host: Host,
}

impl Session {
    pub(super) fn new(servers: Servers, wish: Duration, io: Handle, listener: Weak<dyn Listener>) -> Self {
        let clock = Clock::boot();
        let now = clock.now();
        let next_host = fastrand::usize(..servers.hosts.len());
        let state = State {
            identity: None,
            link: None,
            connecting: None,
            number: 0,
            confirmed: now,
            last_sent: now,
            last_zxid: 0,
            next_host,
            wish,
        };
        let timer = Timer::driven_by(clock, io.clone());
        Self { servers, timer, io, listener, state: Mutex::new(state), attachments: watch::Sender::new(0) }
    }

    pub(super) fn now(&self) -> Moment {
        self.timer.now()
    }

    /// The session that there is, with a connection; made if there is none and one may be made.
    pub(super) async fn seat(self: &Arc<Self>, may_begin: bool) -> std::result::Result<Seat, Unattached> {
        loop {
            let connecting = {
                let mut state = locked(&self.state);
                if let Some(seat) = self.seat_of(&state) {
                    return Ok(seat);
                }
                if state.identity.is_none() && !may_begin {
                    return Err(Unattached::Ended);
                }
                match &state.connecting {
                    Some(connecting) => connecting.clone(),
                    None => {
                        let connecting = self.clone().connect().boxed().shared();
                        state.connecting = Some(connecting.clone());
                        // On a task of its own: nobody who stops waiting for it stops it.
                        self.io.spawn(connecting.clone());
                        connecting
                    }
                }
            };
            match connecting.await {
                Ok(()) => {}
                Err(Unattached::Ended) if may_begin => {}
                Err(unattached) => return Err(unattached),
            }
        }
    }

    /// A session that goes on for so long without a sign of life, if nothing depends on the one that there is.
    pub(super) async fn seat_for(
        self: &Arc<Self>,
        wish: Duration,
        is_unused: bool,
    ) -> std::result::Result<Seat, Unattached> {
        {
            let mut state = locked(&self.state);
            if is_unused && state.wish != wish {
                state.wish = wish;
                // Whoever is still about to ask something in the old session may do so.
                if let Some(link) = state.link.take() {
                    state.identity = None;
                    link.retire();
                }
            }
        }
        self.seat(true).await
    }

    /// The session, if it has a connection.
    pub(super) fn seat_now(&self) -> Option<Seat> {
        self.seat_of(&locked(&self.state))
    }

    fn seat_of(&self, state: &State) -> Option<Seat> {
        let (identity, link) = (state.identity.as_ref()?, state.link.as_ref()?);
        if link.is_broken() {
            return None;
        }
        let host = self.servers.hosts[state.next_host].clone();
        let (session, timeout) = (identity.id, identity.timeout);
        Some(Seat { link: link.clone(), session, number: state.number, timeout, host })
    }

    /// Resolves when there has been a connection since `seen`.
    pub(super) async fn attached_since(&self, seen: u64) {
        let mut attachments = self.attachments.subscribe();
        let _ = attachments.wait_for(|now| *now > seen).await; // its sender is ours
    }

    pub(super) fn attachments(&self) -> u64 {
        *self.attachments.borrow()
    }

    /// When the last request was sent that the leader had a part in answering.
    pub(super) fn confirmed(&self) -> Moment {
        locked(&self.state).confirmed
    }

    /// When anything was last sent.
    pub(super) fn last_sent(&self) -> Moment {
        locked(&self.state).last_sent
    }

    /// Sends requests together, and waits for all answers. One trip.
    pub(super) async fn ask(&self, seat: &Seat, asks: &[Ask]) -> Vec<Answer> {
        // Read before a byte can leave: the server cannot have heard from us later than it answers to.
        let sent_at = self.now();
        locked(&self.state).last_sent = sent_at;
        let answers = join_all(seat.link.send(asks));
        let Some(answers) = self.timer.within(self.servers.patience, answers).await else {
            seat.link.abandon(&Trouble::Silent);
            return asks.iter().map(|_| Err(Trouble::Silent)).collect();
        };
        let answers: Vec<Answer> = answers.into_iter().map(|answer| answer.unwrap_or(Err(Trouble::Closed))).collect();
        let mut confirmed =
            asks.iter().zip(&answers).filter(|(ask, answer)| answer.is_ok() && ask.is_confirmed_by_leader());
        if confirmed.next().is_some() {
            let mut state = locked(&self.state);
            if state.number == seat.number {
                state.confirmed = state.confirmed.max(sent_at);
            }
        }
        if answers.iter().any(|answer| answer.as_ref().is_err_and(Trouble::ends_session)) {
            self.end(seat.number);
        }
        answers
    }

    /// Asks what changes nothing, in one request if the server knows how to. One trip.
    pub(super) async fn read(&self, seat: &Seat, reads: &[Ask]) -> Vec<Answer> {
        if reads.len() <= FEW {
            return self.ask(seat, reads).await;
        }
        match self.ask(seat, &[Ask::read_together(reads)]).await.remove(0) {
            Ok(body) => match request::read_together(reads, &body) {
                Ok(answers) => answers.into_iter().map(|answer| answer.map_err(Trouble::Refused)).collect(),
                Err(garbled) => reads.iter().map(|_| Err(garbled.into())).collect(),
            },
            // Before 3.6 there was no such request.
            Err(trouble) if trouble.is(code::UNIMPLEMENTED) => self.ask(seat, reads).await,
            Err(trouble) => reads.iter().map(|_| Err(trouble.clone())).collect(),
        }
    }

    /// How long a session was asked for.
    pub(super) fn wish(&self) -> Duration {
        locked(&self.state).wish
    }

    /// What a server says to a four-letter command, up to so many bytes. `None` if it cannot be asked: over an encrypted
    /// connection, these are not spoken.
    pub(super) async fn said_by(&self, host: &Host, command: &str, bytes_max: usize) -> Option<String> {
        if self.servers.tls.is_some() {
            return None;
        }
        let asking = async {
            let mut stream = socket::connect(host, None).await.ok()?;
            write_all(&mut stream, command.as_bytes()).await.ok()?;
            let mut said = vec![0; bytes_max];
            let mut buffer = ReadBuf::new(&mut said);
            loop {
                let before = buffer.filled().len();
                poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buffer)).await.ok()?;
                if buffer.filled().len() == before || buffer.remaining() == 0 {
                    return Some(String::from_utf8_lossy(buffer.filled()).into_owned());
                }
            }
        };
        self.timer.within(self.servers.patience, asking).await.flatten()
    }

    /// That session is over.
    fn end(&self, number: u64) {
        let link = {
            let mut state = locked(&self.state);
            if state.number != number || state.identity.take().is_none() {
                return;
            }
            state.link.take()
        };
        if let Some(link) = link {
            link.abandon(&Trouble::Ended);
        }
        if let Some(listener) = self.listener.upgrade() {
            listener.ended();
        }
    }

    /// Ends the session at once, so that nothing is left of it.
    pub(super) async fn close(self: Arc<Self>) {
        let Some(seat) = self.seat_now() else { return };
        self.ask(&seat, &[Ask::close_session()]).await;
    }

    /// Tries each server once, from the one behind the last on.
    async fn connect(self: Arc<Self>) -> std::result::Result<(), Unattached> {
        let connected = self.try_each().await;
        locked(&self.state).connecting = None;
        connected
    }

    async fn try_each(self: &Arc<Self>) -> std::result::Result<(), Unattached> {
        let mut failure = None;
        for _ in 0..self.servers.hosts.len() {
            let (at, hello, sent_at) = {
                let mut state = locked(&self.state);
                state.next_host = (state.next_host + 1) % self.servers.hosts.len();
                (state.next_host, self.hello(&state), self.now())
            };
            let host = &self.servers.hosts[at];
            let greeted = self.timer.within(self.servers.patience, self.greet(host, &hello)).await;
            match greeted.unwrap_or(Err(Trouble::Silent)) {
                Ok((welcome, stream, frames)) => {
                    if welcome.timeout_ms <= 0 {
                        let number = locked(&self.state).number;
                        self.end(number);
                        return Err(Unattached::Ended);
                    }
                    match self.log_in(&hello, welcome, stream, frames, sent_at).await {
                        Ok(()) => return Ok(()),
                        Err(error) if !error.is_passing() => return Err(Unattached::Failed(error)),
                        Err(error) => failure = Some(error),
                    }
                }
                Err(trouble) => {
                    let why = format!("no connection could be made to {host}");
                    let error = Error::new(ErrorKind::Unreachable, why);
                    failure = Some(match trouble {
                        Trouble::Broke(cause) => error.caused_by(std::io::Error::other(cause.to_string())),
                        _ => error,
                    });
                }
            }
        }
        Err(Unattached::Failed(failure.expect("there is at least one server")))
    }

    fn hello(&self, state: &State) -> Hello {
        let millis = |span: Duration| i32::try_from(span.as_millis()).unwrap_or(i32::MAX);
        let last_zxid = state.last_zxid;
        match &state.identity {
            Some(Identity { id, password, timeout }) => {
                Hello { last_zxid, timeout_ms: millis(*timeout), session: *id, password: password.clone() }
            }
            // A server that knows less than we have seen is refused, for a new session too: tokens must not go back.
            None => Hello { last_zxid, timeout_ms: millis(state.wish), session: 0, password: vec![0; 16] },
        }
    }

    async fn greet(
        &self,
        host: &Host,
        hello: &Hello,
    ) -> std::result::Result<(Welcome, Box<dyn Stream>, Frames), Trouble> {
        let mut stream = socket::connect(host, self.servers.tls.as_ref()).await.map_err(Trouble::broke)?;
        write_all(&mut stream, &framed(&hello.bytes())).await.map_err(Trouble::broke)?;
        let mut frames = Frames::default();
        let frame = loop {
            if let Some(frame) = frames.next() {
                break frame?;
            }
            poll_fn(|cx| frames.poll_read(&mut stream, cx)).await?;
        };
        Ok((Welcome::parse(&frame)?, stream, frames))
    }

    /// The connection is ours from here on, once the server has let our user in.
    async fn log_in(
        self: &Arc<Self>,
        hello: &Hello,
        welcome: Welcome,
        stream: Box<dyn Stream>,
        frames: Frames,
        sent_at: Moment,
    ) -> Result<()> {
        let begins = hello.session != welcome.session;
        let number = {
            let mut state = locked(&self.state);
            if begins {
                state.number += 1;
                state.confirmed = sent_at;
            }
            let timeout = Duration::from_millis(u64::from(welcome.timeout_ms.unsigned_abs()));
            state.identity = Some(Identity { id: welcome.session, password: welcome.password, timeout });
            // A session is taken up again with its leader's consent.
            state.confirmed = state.confirmed.max(sent_at);
            state.number
        };
        let session = Arc::downgrade(self);
        let link = Arc::new_cyclic(|link: &Weak<Link>| {
            let link = link.clone();
            Link::over(
                stream,
                frames,
                hello.last_zxid,
                Box::new(move |event| {
                    if let Some(session) = session.upgrade() {
                        session.hear(&link, event);
                    }
                }),
            )
        });
        if let Some(Login { user, password }) = &self.servers.login {
            let answer = link.send(&[Ask::login(user, password)]).remove(0);
            let answer = self.timer.within(self.servers.patience, answer).await;
            match answer {
                Some(Ok(Ok(_))) => {}
                Some(Ok(Err(trouble))) => return Err(Error::from(trouble).with_no_effect()),
                // A server that refuses a login may hang up before it says so.
                Some(Err(_)) | None => return Err(Error::from(Trouble::NotSent)),
            }
        }
        let seat = {
            let mut state = locked(&self.state);
            if state.number != number || state.identity.is_none() {
                return Err(Error::from(Trouble::NotSent));
            }
            state.link = Some(link);
            self.seat_of(&state)
        };
        self.attachments.send_modify(|count| *count += 1);
        if let (Some(seat), Some(listener)) = (seat, self.listener.upgrade()) {
            listener.attached(&seat);
        }
        Ok(())
    }

    fn hear(&self, link: &Weak<Link>, event: Option<Event>) {
        let (Some(listener), Some(link)) = (self.listener.upgrade(), link.upgrade()) else { return };
        if let Some(event) = event {
            return listener.event(&link, event);
        }
        let is_current = {
            let mut state = locked(&self.state);
            state.last_zxid = state.last_zxid.max(link.last_zxid());
            let is_current = state.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, &link));
            if is_current {
                state.link = None;
            }
            is_current
        };
        if is_current { listener.detached() } else { listener.silenced() }
    }
}

async fn write_all(stream: &mut Box<dyn Stream>, bytes: &[u8]) -> std::io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, &bytes[written..])).await? {
            0 => return Err(std::io::ErrorKind::WriteZero.into()),
            more => written += more,
        }
    }
    poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx)).await
}
