//! A node that is a Redis server: one connection to it, made when needed and replaced when broken.
//!
//! A request is sent once, unless the server says that it did nothing.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use redis::{PushInfo, PushKind, RedisError, ServerErrorKind, Value};
use tokio::sync::{Notify, mpsc};

use crate::backend::Place;
use crate::backend::redis::command::Command;
use crate::backend::redis::health::Health;
use crate::backend::redis::pipe::{Hear, Pipe, Watched, Watching};
use crate::backend::redis::topology::Topology;
use crate::backend::redis::{fault, names, scan};
use crate::backend::redlock::node::{Ask, Epoch, Grant, Memory, Node, Push, Release, Reply};
use crate::backend::redlock::scripts::SCRIPTS;
use crate::backend::redlock::wording::{self, Brief, Giving, MEMORY};
use crate::clock::{Clock, Timer};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Key, Namespace};
use crate::sync::locked;
use crate::url::Host;

/// How often a connection that says nothing is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The first pause after a failure to listen; it doubles with each in a row up to the second.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

pub(super) struct Server(Arc<Wire>);

struct Wire {
    host: Host,
    topology: Topology,
    eviction_accepted: bool,
    state: Mutex<State>,
    /// Held by whoever makes a connection, so that a hundred waiters make one.
    opening: tokio::sync::Mutex<()>,
    /// There is something else to listen to, or the connection broke.
    stirred: Arc<Notify>,
    /// Locks that are being asked for.
    asking: Mutex<HashMap<u128, Asking>>,
    pushes: mpsc::UnboundedSender<Push>,
    heard: Mutex<Option<mpsc::UnboundedReceiver<Push>>>,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// Tells a connection from the one that replaced it.
    opened: u64,
    /// Which server answered last: another one after each restart.
    run_id: Option<Arc<str>>,
    wanted: BTreeSet<String>,
}

#[derive(Clone)]
struct Link {
    pipe: Pipe,
    number: u64,
    run_id: Arc<str>,
    /// The server's epoch and its longest lease, as far as they were told on this connection. They may be others by now.
    memory: Arc<Mutex<Option<(Epoch, Duration)>>>,
    /// Whether the server does transactions on the condition that a key was not touched. One that refused a part of such a
    /// transaction might do the rest of it on no condition at all.
    has_transactions: bool,
}

impl Server {
    pub(super) fn new(host: Host, topology: Topology, eviction_accepted: bool) -> Self {
        let (pushes, heard) = mpsc::unbounded_channel();
        let (state, opening, stirred) = (Mutex::default(), tokio::sync::Mutex::default(), Arc::default());
        let (heard, asking) = (Mutex::new(Some(heard)), Mutex::default());
        Self(Arc::new(Wire { host, topology, eviction_accepted, state, opening, stirred, asking, pushes, heard }))
    }
}

impl Node for Server {
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<Reply>> {
        let wire = self.0.clone();
        let asking = match &ask {
            Ask::Grant(grant) if !grant.shared => Some(wire.ask_for(grant.place.entry.0)),
            _ => None,
        };
        Box::pin(async move {
            let _asking = asking;
            if let Ask::Release(release) = &ask
                && release.alone
                && let Some(reply) = wire.give_behind(&release.place).await
            {
                return Ok(reply);
            }
            let link = match wire.known() {
                Some(link) => link,
                None => wire.patiently_connected().await?,
            };
            let answer = link.carry_out(&ask, &wire).await;
            answer.map_err(|failure| match failure {
                Failure::Redis(error) => {
                    wire.learn_from(&error, &link);
                    fault::of_request(&error)
                }
                Failure::Halfway(error) => {
                    wire.learn_from(&error, &link);
                    fault::of_request(&error).with_unknown_fate()
                }
                Failure::Other(error) => error,
            })
        })
    }

    fn listen(&self, channel: &str) {
        locked(&self.0.state).wanted.insert(channel.into());
        self.0.stirred.notify_one();
    }

    fn unlisten(&self, channel: &str) {
        locked(&self.0.state).wanted.remove(channel);
        self.0.stirred.notify_one();
    }

    fn pushes(&self) -> BoxStream<'static, Push> {
        let Some(heard) = locked(&self.0.heard).take() else { return Box::pin(stream::pending()) };
        tokio::spawn(keep_listening(self.0.clone()));
        Box::pin(stream::unfold(heard, async |mut heard| heard.recv().await.map(|push| (push, heard))))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.host.fmt(f)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.0.host)
    }
}

/// Why a request failed.
enum Failure {
    Redis(RedisError),
    /// A part of it may have been done.
    Halfway(RedisError),
    Other(Error),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Wire {
    async fn link(self: &Arc<Self>) -> Result<Link> {
        if let Some(link) = self.known() {
            return Ok(link);
        }
        let _only_one = self.opening.lock().await;
        if let Some(link) = self.known() {
            return Ok(link);
        }
        // Nothing has been asked yet, so whatever goes wrong here has done nothing.
        self.connect().await.map_err(Error::with_no_effect)
    }

    /// A connection, unless it takes longer to make one than any answer is waited for.
    async fn patiently_connected(self: &Arc<Self>) -> Result<Link> {
        let timer = Timer::on_callers_runtime(Clock::boot());
        let late = || Error::new(ErrorKind::Unreachable, "no connection in time").with_no_effect();
        timer.within(self.topology.patience, self.link()).await.unwrap_or_else(|| Err(late()))
    }

    fn known(&self) -> Option<Link> {
        locked(&self.state).link.clone().filter(|link| !link.pipe.is_broken())
    }

    /// A new connection, once the server is known to be fit, and to remember what it says it does.
    async fn connect(self: &Arc<Self>) -> Result<Link> {
        let hear: Hear = {
            let (pushes, stirred) = (self.pushes.clone(), self.stirred.clone());
            Arc::new(move |push| hear(push, &pushes, &stirred))
        };
        let pipe = self.topology.connect(&self.host, Some(hear)).await?;
        let health = Health::of(&pipe).await?;
        health.refuse_if_unfit(self.eviction_accepted)?;
        let durable = u8::from(loses_nothing(&pipe).await);
        let run_id: Arc<str> = health.run_id.into();
        let args = [run_id.as_bytes().to_vec(), durable.to_string().into_bytes()];
        let greeting = wording::call(&SCRIPTS.greet, &[MEMORY.to_owned()], &args);
        let greeted = SCRIPTS.greet.call(&pipe, &greeting).await;
        let memory = wording::learnt(&greeted.map_err(|error| fault::of_request(&error))?);
        let (memory, has_transactions) = (Arc::new(Mutex::new(memory)), has_transactions(&pipe).await);
        let mut state = locked(&self.state);
        state.opened += 1;
        let link = Link { pipe, number: state.opened, run_id: run_id.clone(), memory, has_transactions };
        if state.run_id.replace(run_id.clone()).is_some_and(|before| before != run_id) {
            let _ = self.pushes.send(Push::Shaken); // nobody may follow any more
        }
        state.link = Some(link.clone());
        drop(state);
        self.stirred.notify_one();
        Ok(link)
    }

    /// From now on that lock is asked for, until what this yields is gone.
    fn ask_for(self: &Arc<Self>, entry: u128) -> Asked {
        let answered = Arc::<tokio::sync::Mutex<()>>::default();
        let asked = answered.clone().try_lock_owned().expect("nobody else has it yet");
        locked(&self.asking).insert(entry, Asking { answered, given_up: false });
        Asked { wire: self.clone(), entry, _asked: asked }
    }

    /// Gives a lock up that is still asked for, behind that and at once: a program may end right afterwards. If it was not there,
    /// waits until it is no longer asked for, since the end of that may be another trip away, and yields nothing. If it was, that
    /// other trip may set it once more: whoever asks finds a note here, which is made before anything is sent.
    async fn give_behind(&self, place: &Place) -> Option<Reply> {
        let answered = {
            let mut asking = locked(&self.asking);
            let asking = asking.get_mut(&place.entry.0)?;
            asking.given_up = true;
            asking.answered.clone()
        };
        if let Some(link) = self.known()
            && let Ok(answer) = SCRIPTS.give.call(&link.pipe, &wording::give_call(place)).await
            && let Ok(Some(Reply::Done)) = Giving::reply(&answer)
        {
            return Some(Reply::Done);
        }
        drop(answered.lock().await);
        None
    }

    fn is_given_up(&self, entry: u128) -> bool {
        locked(&self.asking).get(&entry).is_some_and(|asking| asking.given_up)
    }

    fn forget(&self, link: &Link) {
        let mut state = locked(&self.state);
        if state.link.as_ref().is_some_and(|known| known.number == link.number) {
            state.link = None;
        }
    }

    fn learn_from(&self, error: &RedisError, link: &Link) {
        use ServerErrorKind as Said;
        match error.kind() {
            redis::ErrorKind::Server(Said::ReadOnly | Said::MasterDown) => self.forget(link),
            redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => {}
            // One that is slow is not replaced: what it was asked before must not be overtaken on another connection.
            _ if error.is_timeout() => {}
            _ => self.forget(link),
        }
    }
}

impl Link {
    async fn carry_out(&self, ask: &Ask, wire: &Wire) -> Result<Reply, Failure> {
        match ask {
            Ask::Grant(grant) if grant.briefly => match self.grant_briefly(grant).await? {
                Briefly::Granted(reply) => return Ok(reply),
                Briefly::Locked => return self.grant_at_length(ask, grant, wire).await,
                Briefly::Nothing => {}
            },
            Ask::Release(release) if release.alone && release.held => return self.give(release).await,
            _ => {}
        }
        match ask {
            Ask::Keys(namespace) => Ok(Reply::Keys(self.keys(namespace).await?)),
            Ask::Health => {
                let health = Health::of(&self.pipe).await?;
                Ok(Reply::Health(health.findings(wire.eviction_accepted, 0)))
            }
            _ => self.call_script(ask).await,
        }
    }

    /// One trip, three commands, and up to two more if nothing else is under way.
    async fn grant_briefly(&self, grant: &Grant) -> Result<Briefly, Failure> {
        let Some((epoch, longest)) = *locked(&self.memory) else { return Ok(Briefly::Nothing) };
        if grant.ttl > longest || !self.has_transactions {
            return Ok(Briefly::Nothing);
        }
        let (whose, brief) = (grant.place.entry.0, Brief::of(grant));
        let asked = brief.asked(grant.guess, epoch);
        let words = Watching { whose, asked: &asked, watch: &brief.watch, then: &brief.look };
        let answer = self.pipe.ask_watching(&words).await.map_err(Failure::Halfway)?;
        let Value::Array(answers) = answer else { return Err(wording::nonsense().into()) };
        if !Brief::is_granted(grant, &answers) {
            let mut answers = answers.into_iter();
            if answers.next().map(Value::extract_error).transpose()? != Some(Value::Okay) {
                return Ok(Briefly::Nothing);
            }
            answers.try_for_each(|answer| answer.extract_error().map(drop)).map_err(Failure::Halfway)?;
            return Ok(Briefly::Locked);
        }
        self.pipe.is_sure_of(whose);
        Ok(Briefly::Granted(Reply::Granted { prior: grant.guess - 1, epoch }))
    }

    /// The lock is set, and whether it is granted is for the script to say: the fence was higher, or the server has forgotten, or
    /// somebody else has the lock by now. A server that refuses is rid of it again, and so is one that grants what was given up
    /// in between.
    async fn grant_at_length(&self, ask: &Ask, grant: &Grant, wire: &Wire) -> Result<Reply, Failure> {
        let halfway = |failure: Failure| match failure {
            Failure::Redis(error) | Failure::Halfway(error) => Failure::Halfway(error),
            Failure::Other(error) => Failure::Other(error.with_unknown_fate()),
        };
        let reply = self.call_script(ask).await.map_err(halfway)?;
        let granted = matches!(reply, Reply::Granted { .. });
        let refused = matches!(reply, Reply::NotReady | Reply::TooLong { .. } | Reply::Barred);
        let too_late = granted && wire.is_given_up(grant.place.entry.0);
        if refused || too_late {
            SCRIPTS.give.call(&self.pipe, &wording::give_call(&grant.place)).await.map_err(Failure::Halfway)?;
        }
        Ok(if too_late { Reply::Barred } else { reply })
    }

    async fn call_script(&self, ask: &Ask) -> Result<Reply, Failure> {
        let Some((script, call)) = wording::script_of(ask, &self.run_id) else {
            return Err(wording::nonsense().into());
        };
        let answer = script.call(&self.pipe, &call).await?;
        let reply = wording::reply_of(ask, &self.run_id, &answer)?;
        self.learn(ask, &reply, &answer);
        Ok(reply)
    }

    /// One trip: four commands if nobody else can have touched the lock, and otherwise a script.
    async fn give(&self, release: &Release) -> Result<Reply, Failure> {
        let giving = Giving::of(release);
        if release.untouched {
            let (whose, asked, otherwise) = (release.place.entry.0, &giving.watched, &giving.otherwise);
            let answer = self.pipe.ask_watched(&Watched { whose, asked, otherwise }).await;
            match answer {
                Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {}
                answer => {
                    if let Some(reply) = Giving::reply(&answer?)? {
                        return Ok(reply);
                    }
                }
            }
        }
        let answer = SCRIPTS.give.call(&self.pipe, &giving.otherwise).await?;
        Giving::reply(&answer)?.ok_or_else(|| wording::nonsense().into())
    }

    fn learn(&self, ask: &Ask, reply: &Reply, answer: &Value) {
        let memory = match (ask, reply) {
            (_, Reply::Granted { .. }) => wording::learnt(answer),
            (Ask::Admit { longest, epoch, .. }, Reply::Done)
            | (_, Reply::Memory(Memory::Ready { epoch, longest, .. })) => Some((*epoch, *longest)),
            (_, Reply::NotReady | Reply::Memory(Memory::Blank { .. })) => None,
            _ => return,
        };
        *locked(&self.memory) = memory;
    }

    /// Every key of a namespace that may be a lock. As many trips as all keys on the server have steps.
    async fn keys(&self, namespace: &Namespace) -> Result<Vec<Key>, Failure> {
        let (pattern, mut keys) = (names::pattern(namespace), Vec::new());
        scan::names(&self.pipe, &pattern, |name| keys.extend(names::key_of_lock(namespace, name))).await?;
        Ok(keys)
    }
}

/// What came of asking in few words.
enum Briefly {
    Granted(Reply),
    /// The lock is set, and that is not enough.
    Locked,
    /// Nothing was done that matters.
    Nothing,
}

/// What is known of a lock that is being asked for.
struct Asking {
    /// Held until that was answered.
    answered: Arc<tokio::sync::Mutex<()>>,
    given_up: bool,
}

/// Asks for a lock, until this is dropped.
struct Asked {
    wire: Arc<Wire>,
    entry: u128,
    _asked: tokio::sync::OwnedMutexGuard<()>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        locked(&self.wire.asking).remove(&self.entry);
    }
}

async fn has_transactions(pipe: &Pipe) -> bool {
    let watch = Command::of(2).part(b"WATCH").part(MEMORY.as_bytes());
    let all = watch.and(1).part(b"MULTI").and(1).part(b"EXEC").and(1).part(b"UNWATCH");
    pipe.ask(&all).await.is_ok()
}

/// Whether each write is on disk before it is answered. A server that will not say is taken for one that may forget.
async fn loses_nothing(pipe: &Pipe) -> bool {
    for (setting, wanted) in [("appendonly", "yes"), ("appendfsync", "always")] {
        let answer = pipe.ask(&Command::of(3).part(b"CONFIG").part(b"GET").part(setting.as_bytes())).await;
        let found: Option<Vec<(String, String)>> = answer.ok().and_then(|answer| redis::from_redis_value(answer).ok());
        if !found.is_some_and(|found| found.iter().any(|(_, value)| value == wanted)) {
            return false;
        }
    }
    true
}

/// Called by a connection with whatever the server pushes. Does not block.
fn hear(push: PushInfo, pushes: &mpsc::UnboundedSender<Push>, stirred: &Notify) {
    if push.kind == PushKind::Disconnection {
        stirred.notify_one();
        return;
    }
    let mut parts = push.data.into_iter();
    if push.kind == PushKind::Message
        && let (Some(Value::BulkString(channel)), Some(Value::BulkString(text))) = (parts.next(), parts.next())
        && let Ok(channel) = String::from_utf8(channel)
    {
        let _ = pushes.send(Push::Message { channel, text }); // nobody may follow any more
    }
}

/// Stays connected and subscribed, until its runtime ends.
async fn keep_listening(wire: Arc<Wire>) {
    let timer = Timer::on_callers_runtime(Clock::boot());
    let (mut heard, mut number, mut pause) = (BTreeSet::new(), 0, PAUSE);
    loop {
        match listen(&wire, &mut heard, &mut number).await {
            Ok(()) => {
                pause = PAUSE;
                timer.within(PING_EVERY, wire.stirred.notified()).await;
            }
            Err(error) => {
                tracing::debug!(target: "leasehold::redlock", server = %wire.host, %error, "not listening");
                timer.sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Subscribes to what somebody wants to hear, and to nothing else. Finds out whether the connection is still there.
async fn listen(wire: &Arc<Wire>, heard: &mut BTreeSet<String>, number: &mut u64) -> Result<()> {
    let link = wire.link().await?;
    if link.number != *number {
        heard.clear();
        *number = link.number;
    }
    let result = subscribe(wire, &link, heard).await;
    if result.is_err() {
        wire.forget(&link);
    }
    result.map_err(|error| fault::of_request(&error))
}

async fn subscribe(wire: &Wire, link: &Link, heard: &mut BTreeSet<String>) -> Result<(), RedisError> {
    let wanted = locked(&wire.state).wanted.clone();
    for channel in &wanted {
        if !heard.contains(channel) {
            link.pipe.ask(&Command::of(2).part(b"SUBSCRIBE").part(channel.as_bytes())).await?;
            heard.insert(channel.clone());
            let _ = wire.pushes.send(Push::Listening(channel.clone())); // nobody may follow any more
        }
    }
    let unwanted: Vec<String> = heard.difference(&wanted).cloned().collect();
    for channel in unwanted {
        link.pipe.ask(&Command::of(2).part(b"UNSUBSCRIBE").part(channel.as_bytes())).await?;
        heard.remove(&channel);
    }
    link.pipe.ask(&Command::of(1).part(b"PING")).await?;
    Ok(())
}
