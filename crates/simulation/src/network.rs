//! Servers, clients, and what happens to everything that goes between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use leasehold::backend::redlock::node::{Ask, Node, Push, Reply};
use leasehold::clock::{Moment, Timer};
use leasehold::{Error, ErrorKind, Result};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::record::Record;
use crate::scenario::{Flaw, Network};
use crate::server::{Message, Server};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How soon a connection is tried again.
const RECONNECT: Duration = Duration::from_millis(100);

/// Everything between clients and servers, and both.
#[derive(Debug)]
pub struct Net {
    pub(crate) timer: Timer,
    pub(crate) record: Record,
    start: Moment,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    network: Network,
    machines: Vec<Machine>,
    clients: Vec<Party>,
    /// Which client cannot reach which server, until when.
    cuts: BTreeMap<(usize, usize), Moment>,
    chance: fastrand::Rng,
}

/// A server, and what it runs on.
#[derive(Debug)]
struct Machine {
    server: Server,
    snapshot: Server,
    clock: ServerClock,
    stopped_until: Moment,
    /// How often it was restarted. Connections do not outlive that.
    run: u64,
    heard: BTreeMap<String, BTreeSet<usize>>,
}

/// The wall clock of a server, by which its leases end.
#[derive(Clone, Copy, Debug)]
struct ServerClock {
    at: Moment,
    shows_ms: f64,
    rate: f64,
}

/// When the clocks of servers begin: some time, so that they can be set back.
const SERVER_EPOCH_MS: f64 = 1_700_000_000_000.0;

impl ServerClock {
    fn now_ms(self, now: Moment) -> u64 {
        (self.shows_ms + self.at.until(now).as_secs_f64() * 1000.0 * self.rate) as u64
    }

    fn step(&mut self, now: Moment, by_ms: f64) {
        (self.shows_ms, self.at) = (self.now_ms(now) as f64 + by_ms, now);
    }
}

/// A client.
#[derive(Debug, Default)]
struct Party {
    asleep_until: Option<Moment>,
    dead: bool,
    /// Told when it dies.
    death: Arc<Notify>,
    /// For each server, who follows what it tells.
    followers: BTreeMap<usize, mpsc::UnboundedSender<Push>>,
    /// What it wants to hear of which server.
    wants: BTreeSet<(usize, String)>,
}

/// How one request fares.
#[derive(Clone, Copy, Debug)]
struct Trip {
    there: Duration,
    back: Duration,
    lost_there: bool,
    lost_back: bool,
    broken_before: bool,
    broken_after: bool,
    again_after: Option<Duration>,
}

impl Net {
    /// Servers that know nothing, and nobody who asks them.
    pub fn new(
        timer: Timer,
        record: Record,
        network: Network,
        rates: &[f64],
        flaw: Option<Flaw>,
        seed: u64,
    ) -> Arc<Self> {
        let start = timer.now();
        let machine = |(nth, rate): (usize, &f64)| {
            let server = Server::new(format!("server {nth}"), flaw);
            let clock = ServerClock { at: start, shows_ms: SERVER_EPOCH_MS, rate: *rate };
            Machine { snapshot: server.clone(), server, clock, stopped_until: start, run: 0, heard: BTreeMap::new() }
        };
        let machines = rates.iter().enumerate().map(machine).collect();
        let chance = fastrand::Rng::with_seed(seed);
        let inner = Inner { network, machines, clients: Vec::new(), cuts: BTreeMap::new(), chance };
        Arc::new(Self { timer, record, start, inner: Mutex::new(inner) })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().expect("no panic under this lock"))
    }

    /// How long the run has been going on.
    pub fn now(&self) -> Duration {
        self.start.until(self.timer.now())
    }

    /// Something happened.
    pub fn note(&self, what: impl fmt::Display) {
        self.record.note(self.now(), what);
    }

    /// One more client, and its connections to all servers.
    pub fn client(self: &Arc<Self>) -> (usize, Vec<Arc<dyn Node>>) {
        let (client, servers) = self.with(|inner| {
            inner.clients.push(Party::default());
            (inner.clients.len() - 1, inner.machines.len())
        });
        let link = |server| Arc::new(Link { net: self.clone(), client, server }) as Arc<dyn Node>;
        (client, (0..servers).map(link).collect())
    }

    /// Resolves when that client is awake. Never, if it is dead.
    pub async fn awake(&self, client: usize) {
        loop {
            match self.with(|inner| (inner.clients[client].dead, inner.clients[client].asleep_until)) {
                (true, _) => std::future::pending().await,
                (false, Some(until)) if until > self.timer.now() => self.timer.sleep_until(until).await,
                (false, _) => return,
            }
        }
    }

    /// Resolves when that client dies.
    pub async fn death(&self, client: usize) {
        let death = self.with(|inner| inner.clients[client].death.clone());
        death.notified().await;
    }

    async fn carry(self: Arc<Self>, client: usize, server: usize, ask: Ask, answer: oneshot::Sender<Result<Reply>>) {
        self.awake(client).await;
        let (trip, run) = self.with(|inner| (inner.draw(), inner.machines[server].run));
        self.timer.sleep(trip.there).await;
        if trip.lost_there || self.is_cut(client, server) {
            return;
        }
        self.while_stopped(server).await;
        if trip.broken_before {
            let _ = answer.send(Err(Error::new(ErrorKind::Unreachable, "the connection was refused")));
            return;
        }
        let reply = self.serve(client, server, &ask, run);
        if let Some(after) = trip.again_after {
            let net = self.clone();
            tokio::spawn(async move {
                net.timer.sleep(after).await;
                net.while_stopped(server).await;
                let _ = net.serve(client, server, &ask, run);
            });
        }
        self.timer.sleep(trip.back).await;
        if trip.lost_back || self.is_cut(client, server) {
            return;
        }
        self.awake(client).await;
        let same_run = self.with(|inner| inner.machines[server].run == run);
        let reply = reply.filter(|_| same_run && !trip.broken_after);
        let broken = || Error::new(ErrorKind::Unreachable, "the connection broke").with_unknown_fate();
        let _ = answer.send(reply.ok_or_else(broken));
    }

    /// Lets a server carry a request out, unless it was restarted since the request was sent.
    fn serve(self: &Arc<Self>, client: usize, server: usize, ask: &Ask, run: u64) -> Option<Reply> {
        let now = self.timer.now();
        let (reply, told) = self.with(|inner| {
            let machine = &mut inner.machines[server];
            (machine.run == run).then(|| machine.server.answer(ask, machine.clock.now_ms(now)))
        })?;
        self.note(format_args!("client {client} to server {server}: {} {}", Told(ask), Answered(&reply)));
        for message in told {
            self.publish(server, &message);
        }
        Some(reply)
    }

    fn publish(self: &Arc<Self>, server: usize, message: &Message) {
        let heard = self.with(|inner| {
            let clients = inner.machines[server].heard.get(&message.channel).cloned().unwrap_or_default();
            clients.into_iter().map(|client| (client, inner.draw())).collect::<Vec<_>>()
        });
        for (client, trip) in heard.into_iter().filter(|(_, trip)| !trip.lost_back) {
            let Message { channel, text } = message.clone();
            self.clone().push_later(client, server, trip.back, Push::Message { channel, text });
        }
    }

    fn push_later(self: Arc<Self>, client: usize, server: usize, after: Duration, push: Push) {
        tokio::spawn(async move {
            self.timer.sleep(after).await;
            if self.is_cut(client, server) {
                return;
            }
            self.awake(client).await;
            self.with(|inner| {
                if let Some(follower) = inner.clients[client].followers.get(&server) {
                    let _ = follower.send(push); // the client may have ended
                }
            });
        });
    }

    async fn subscribe(self: Arc<Self>, client: usize, server: usize, channel: String) {
        loop {
            self.awake(client).await;
            let (trip, run) = self.with(|inner| (inner.draw(), inner.machines[server].run));
            self.timer.sleep(trip.there).await;
            self.while_stopped(server).await;
            let fine = !trip.lost_there && !self.is_cut(client, server);
            let heard = fine && self.with(|inner| inner.listen(client, server, &channel, run));
            let wanted = self.with(|inner| inner.clients[client].wants.contains(&(server, channel.clone())));
            if heard {
                return self.push_later(client, server, trip.back, Push::Listening(channel));
            }
            if !wanted {
                return;
            }
            self.timer.sleep(RECONNECT).await;
        }
    }

    fn is_cut(&self, client: usize, server: usize) -> bool {
        let now = self.timer.now();
        self.with(|inner| inner.cuts.get(&(client, server)).is_some_and(|until| *until > now))
    }

    async fn while_stopped(&self, server: usize) {
        loop {
            let until = self.with(|inner| inner.machines[server].stopped_until);
            if until <= self.timer.now() {
                return;
            }
            self.timer.sleep_until(until).await;
        }
    }
}

/// What can be done to those who take part.
impl Net {
    /// A client stands still.
    pub fn pause(&self, client: usize, span: Duration) {
        self.note(format_args!("client {client} is paused for {span:?}"));
        let until = self.timer.now().after(span);
        self.with(|inner| inner.clients[client].asleep_until = Some(until));
    }

    /// A client dies. What it sent still arrives.
    pub fn kill(&self, client: usize) {
        self.note(format_args!("client {client} dies"));
        self.with(|inner| {
            inner.clients[client].dead = true;
            inner.clients[client].death.notify_one();
            for machine in &mut inner.machines {
                for clients in machine.heard.values_mut() {
                    clients.remove(&client);
                }
            }
        });
    }

    /// A server stands still.
    pub fn stop(&self, server: usize, span: Duration) {
        self.note(format_args!("server {server} is stopped for {span:?}"));
        let until = self.timer.now().after(span);
        self.with(|inner| inner.machines[server].stopped_until = until);
    }

    /// A client and a server cannot reach each other.
    pub fn cut(&self, client: usize, server: usize, span: Duration) {
        self.note(format_args!("client {client} and server {server} are cut off from each other for {span:?}"));
        let until = self.timer.now().after(span);
        self.with(|inner| inner.cuts.insert((client, server), until));
    }

    /// A server's clock is set.
    pub fn step_clock(&self, server: usize, by_ms: f64) {
        self.note(format_args!("the clock of server {server} is moved by {by_ms:.0} ms"));
        let now = self.timer.now();
        self.with(|inner| inner.machines[server].clock.step(now, by_ms));
    }

    /// A server keeps a copy of what it knows, for [`restart`](Self::restart).
    pub fn snapshot(&self, server: usize) {
        self.with(|inner| inner.machines[server].snapshot = inner.machines[server].server.clone());
    }

    /// A server forgets everything.
    pub fn flush(&self, server: usize) {
        self.note(format_args!("server {server} forgets everything"));
        self.with(|inner| inner.machines[server].server.forget());
    }

    /// A server comes back after `span`, with its snapshot if asked for, or with what it knew. Its connections are broken.
    pub fn restart(self: &Arc<Self>, server: usize, span: Duration, from_snapshot: bool) {
        self.stop(server, span);
        let how = if from_snapshot { "an old copy of its memory" } else { "its memory" };
        self.note(format_args!("server {server} is restarted, with {how}"));
        let (clients, listening) = self.with(|inner| {
            let machine = &mut inner.machines[server];
            machine.run += 1;
            machine.heard.clear();
            if from_snapshot {
                machine.server.restore(&machine.snapshot);
            }
            let wants = |(client, party): (usize, &Party)| {
                let of_it = party.wants.iter().filter(|(of, _)| *of == server);
                of_it.map(|(_, channel)| (client, channel.clone())).collect::<Vec<_>>()
            };
            let listening: Vec<_> = inner.clients.iter().enumerate().flat_map(wants).collect();
            (inner.clients.len(), listening)
        });
        (0..clients).for_each(|client| self.clone().push_later(client, server, span, Push::Shaken));
        for (client, channel) in listening {
            tokio::spawn(self.clone().subscribe(client, server, channel));
        }
    }

    /// From now on nothing goes wrong any more.
    pub fn heal(&self) {
        self.note("all is well from now on");
        let now = self.timer.now();
        self.with(|inner| {
            inner.network = Network::default();
            inner.cuts.clear();
            inner.machines.iter_mut().for_each(|machine| machine.stopped_until = now);
            inner.clients.iter_mut().for_each(|party| party.asleep_until = None);
        });
    }

    /// Which clients are alive.
    pub fn living(&self) -> Vec<usize> {
        self.with(|inner| (0..inner.clients.len()).filter(|client| !inner.clients[*client].dead).collect())
    }

    /// How many servers take part.
    pub fn ready(&self) -> usize {
        self.with(|inner| inner.machines.iter().filter(|machine| machine.server.is_ready()).count())
    }

    /// How many have a key on that server.
    pub fn held(&self, server: usize) -> usize {
        let now = self.timer.now();
        self.with(|inner| {
            let machine = &mut inner.machines[server];
            machine.server.held(machine.clock.now_ms(now))
        })
    }
}

impl Inner {
    fn draw(&mut self) -> Trip {
        let Network { delay_ms, slow, slow_ms, lost, broken, doubled } = self.network;
        let chance = &mut self.chance;
        let mut delay = || {
            let most = if chance.f64() < slow { slow_ms } else { delay_ms };
            Duration::from_micros(chance.u64(100..=most.max(1) * 1000))
        };
        let (there, back, again) = (delay(), delay(), delay());
        Trip {
            there,
            back,
            lost_there: chance.f64() < lost,
            lost_back: chance.f64() < lost,
            broken_before: chance.f64() < broken,
            broken_after: chance.f64() < broken,
            again_after: (chance.f64() < doubled).then_some(again),
        }
    }

    fn listen(&mut self, client: usize, server: usize, channel: &str, run: u64) -> bool {
        let machine = &mut self.machines[server];
        if machine.run != run || !self.clients[client].wants.contains(&(server, channel.to_owned())) {
            return false;
        }
        machine.heard.entry(channel.to_owned()).or_default().insert(client);
        true
    }
}

/// The connection of one client to one server.
#[derive(Clone)]
struct Link {
    net: Arc<Net>,
    client: usize,
    server: usize,
}

impl Node for Link {
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<Reply>> {
        let (answer, answered) = oneshot::channel();
        tokio::spawn(self.net.clone().carry(self.client, self.server, ask, answer));
        let timer = self.net.timer.clone();
        Box::pin(async move {
            let answered = async {
                match answered.await {
                    Ok(reply) => reply,
                    // It was lost: nobody will ever say so.
                    Err(_) => std::future::pending().await,
                }
            };
            let overdue = || Error::new(ErrorKind::Unreachable, "no answer in time").with_unknown_fate();
            timer.within(PATIENCE, answered).await.unwrap_or_else(|| Err(overdue()))
        })
    }

    fn listen(&self, channel: &str) {
        self.net.with(|inner| inner.clients[self.client].wants.insert((self.server, channel.to_owned())));
        tokio::spawn(self.net.clone().subscribe(self.client, self.server, channel.to_owned()));
    }

    fn unlisten(&self, channel: &str) {
        self.net.with(|inner| {
            inner.clients[self.client].wants.remove(&(self.server, channel.to_owned()));
            if let Some(clients) = inner.machines[self.server].heard.get_mut(channel) {
                clients.remove(&self.client);
            }
        });
    }

    fn pushes(&self) -> BoxStream<'static, Push> {
        let (follower, pushes) = mpsc::unbounded_channel();
        self.net.with(|inner| inner.clients[self.client].followers.insert(self.server, follower));
        Box::pin(stream::unfold(pushes, async |mut pushes| {
            let push = pushes.recv().await?;
            Some((push, pushes))
        }))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}", self.server)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A request, for the trace.
struct Told<'a>(&'a Ask);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |entry: leasehold::backend::EntryId| entry.0 >> 104;
        match self.0 {
            Ask::Grant(grant) => {
                let how = if grant.shared { "share" } else { "grant" };
                write!(f, "{how} {} to {:06x}, guess {}", grant.place.key, short(grant.place.entry), grant.guess)
            }
            Ask::Commit { place, token, .. } => write!(f, "commit {token} of {:06x}", short(place.entry)),
            Ask::Extend(leases) => {
                f.write_str("extend")?;
                leases.iter().try_for_each(|lease| write!(f, " {:06x}", short(lease.place.entry)))
            }
            Ask::Release(release) => {
                let for_good = if release.bar.is_some() { " for good" } else { "" };
                write!(f, "release {:06x}{for_good}", short(release.place.entry))
            }
            Ask::Wish(place) => write!(f, "wish {:06x}", short(place.entry)),
            Ask::Survey { .. } => f.write_str("survey"),
            Ask::Admit { floor, .. } => write!(f, "admit above {floor}"),
            Ask::Keys(_) => f.write_str("keys"),
            Ask::Inspect(_) => f.write_str("inspect"),
            Ask::Health => f.write_str("health"),
        }
    }
}

/// An answer, for the trace.
struct Answered<'a>(&'a Reply);

impl fmt::Display for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reply::Granted { prior, .. } => write!(f, "granted above {prior}"),
            Reply::Busy(_) => f.write_str("busy"),
            Reply::Extended(answers) => write!(f, "{answers:?}"),
            Reply::Memory(memory) => write!(f, "{memory:?}"),
            Reply::Keys(_) | Reply::Seen(_) | Reply::Health(_) => f.write_str("shown"),
            other => write!(f, "{other:?}"),
        }
    }
}
