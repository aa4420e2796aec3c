//! The store on Redis, alone, behind sentinels or as a cluster: fair, pushed, fenced, and one with everybody else's
//! `SET NX PX`.
//!
//! Every verb is one script, so it happens entirely or not at all, on the server's own clock; what takes a free key without
//! one counts only if all of it happened. Trips: one to enter, or two if there is a line that we did not know of; one to
//! leave; none for the waiter that a departure hands over to; one for any number of renewals on one server.

pub(super) mod address;
pub(super) mod call;
pub(super) mod command;
pub(super) mod fault;
mod frames;
mod gate;
pub(super) mod health;
mod hub;
mod listening;
mod local;
pub(super) mod names;
pub(super) mod pipe;
pub(super) mod reply;
pub(super) mod scan;
pub(super) mod scripts;
mod together;
pub(super) mod topology;
mod wire;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::future::join_all;
use futures_util::stream;
use redis::Value;

use crate::backend::io::IoThread;
use crate::backend::near::Near;
use crate::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, Finding, KeyView, Lease, LeaseId, Note, Notice, Page,
    Patience, Place, Query, Renewal, Request, Standing, Verdict, Version,
};
use crate::error::{ErrorKind, Result};
use crate::key::Key;
use call::{Call, evalsha, many, millis};
use health::Health;
use hub::{Heard, Hub, Listener};
use local::Local;
use names::{Names, Spellings};
use scripts::Script;
use wire::{Settings, Wire};

pub use address::Builder;
pub use gate::GATE;
pub use scripts::Layout;

/// The most leases in one call of the script: it keeps the server from everybody else for about half a millisecond.
const RENEWED_TOGETHER_MAX: usize = 250;

/// Lines kept on a Redis server, on the master that sentinels name, or on a cluster.
pub struct Redis {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    settings: Arc<Settings>,
    eviction_accepted: bool,
    io: IoThread,
    /// The connections of the thread above. News arrive here, and renewals leave.
    wire: Arc<Wire>,
    hub: Arc<Hub>,
    near: Near<Local>,
    spellings: Spellings,
}

impl Redis {
    /// Connects to the store that `url` names. See [`Redis::builder`] for the URLs.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url)?.connect().await
    }

    /// Settings for a connection.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://user:password@host:6379/0` | one server; user, password, port and database may be left out |
    /// | `redis+sentinel://host:26379,host/name/0` | the master that these sentinels know by that name |
    /// | `redis+cluster://host:6379,host` | a cluster, found through any of its nodes |
    ///
    /// `rediss` in place of `redis` encrypts the connection (feature `tls`). Options behind a `?`: `replicas=1` believes a grant only
    /// once so many replicas have confirmed it; `layout=redisson` writes locks as Redisson does; `eviction=accept` accepts a
    /// server that may throw locks out; `ca`, `cert` and `key` name PEM files for the encryption; `sentinel-user` and
    /// `sentinel-password` are for the sentinels.
    pub fn builder(url: &str) -> Result<Builder> {
        Builder::parse(url)
    }

    async fn open(builder: Builder) -> Result<Self> {
        let Builder { name, topology, layout, replicas, eviction_accepted } = builder;
        let hub = Arc::new(Hub::new(replicas == 0));
        let (client, scripts) = (hub.client.clone(), scripts::Scripts::of(layout));
        let settings = Arc::new(Settings { topology, layout, scripts, client, replicas });
        let wire = Arc::new(Wire::new(settings.clone(), "own", &hub, hub.stirred.clone()));
        let io = IoThread::start("leasehold-redis")?;
        let health = io.run(listening::start(wire.clone(), hub.clone(), eviction_accepted)).await?;
        for finding in
            health.findings(eviction_accepted, replicas).iter().filter(|finding| finding.verdict > Verdict::Fine)
        {
            tracing::warn!(target: "leasehold::redis", store = %name, "{finding}");
        }
        let (near, spellings) = (Near::new(), Spellings::new());
        Ok(Self { shared: Arc::new(Shared { name, settings, eviction_accepted, io, wire, hub, near, spellings }) })
    }
}

impl Shared {
    /// Enters or leaves a line. One trip.
    async fn call(&self, call: Call) -> Result<Value> {
        if let Some(local) = self.local_for(call.enters()) {
            return local.ask(&call).await;
        }
        let wire = self.wire.clone();
        self.io.run(async move { wire.call(&call).await }).await
    }

    /// The connection of the runtime that this is called on, if it has one. Whatever happens elsewhere, such as on the thread
    /// that renews, is done on the connection of our own thread.
    fn local_for(&self, enters: bool) -> Option<Arc<Local>> {
        self.near.here(enters, || {
            let wire = Arc::new(Wire::new(self.settings.clone(), "local", &self.hub, Arc::default()));
            Local::start(wire, self.hub.clone())
        })
    }

    /// Calls a script for one line, on our own thread.
    async fn run(&self, script: &'static Script, names: Names, args: Vec<Vec<u8>>) -> Result<Value> {
        let wire = self.wire.clone();
        self.io.run(async move { run(&wire, script, &names, args).await }).await
    }

    /// The lines of those keys that anybody is in. What others keep at a key that was `found` is no lock, and no reason to
    /// see none of ours; at one that was asked for it is an error.
    async fn views(&self, keys: Vec<Key>, found: bool) -> Result<Vec<KeyView>> {
        let (wire, script) = (self.wire.clone(), &self.settings.scripts.inspect);
        self.io
            .run(async move {
                let looks = keys.iter().map(|key| look(&wire, script, key));
                let mut views = Vec::new();
                for view in join_all(looks).await {
                    match view {
                        Ok(view) => views.extend(view.capacity.is_some().then_some(view)),
                        Err(error) if found && error.kind() == ErrorKind::KindMismatch => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(views)
            })
            .await
    }

    /// Every key of a namespace that may have a line, in order. As many trips as all keys on the servers have steps.
    async fn keys(&self, query: &Query) -> Result<Vec<Key>> {
        let (wire, namespace, after) = (self.wire.clone(), query.namespace.clone(), query.after.clone());
        self.io
            .run(async move {
                let pattern = names::pattern(&namespace);
                let mut keys = std::collections::BTreeSet::new();
                for host in wire.route().await?.hosts() {
                    let link = wire.link(&host).await?;
                    let listed = scan::names(&link.pipe, &pattern, |name| {
                        let key = names::key_of(&namespace, name);
                        keys.extend(key.filter(|key| after.as_ref().is_none_or(|after| after < key)));
                    });
                    listed.await.map_err(|error| fault::of_request(&error))?;
                }
                Ok(keys.into_iter().collect())
            })
            .await
    }
}

async fn look(wire: &Wire, script: &'static Script, key: &Key) -> Result<KeyView> {
    let answer = run(wire, script, &Names::of(key), vec![b"0".into()]).await?;
    reply::view(&answer, key).map(|(view, _)| view)
}

async fn run(wire: &Wire, script: &'static Script, names: &Names, args: Vec<Vec<u8>>) -> Result<Value> {
    let command = evalsha(&script.digest, std::iter::once(names), args.len());
    let command = args.iter().fold(command, |command, arg| command.part(arg));
    Ok(wire.ask(names.slot(), script, &command).await?.0)
}

/// Renews so many leases in as few calls as there are slots, all on their way at once.
async fn renew(wire: &Wire, leases: &[Lease]) -> Vec<Renewal> {
    let script = &wire.settings.scripts.renew;
    let lines: Vec<(Names, &Place, Duration)> = leases
        .iter()
        .map(|lease| {
            let LeaseId::Entry(place) = &lease.id;
            (Names::of(&place.key), place, lease.ttl)
        })
        .collect();
    let mut groups: Vec<(u16, Vec<usize>)> = Vec::new();
    let mut open = std::collections::HashMap::new();
    for (nth, (names, _, _)) in lines.iter().enumerate() {
        let slot = if wire.has_slots() { names.slot() } else { 0 };
        let group = open.entry(slot).or_insert(usize::MAX);
        if groups.get(*group).is_none_or(|(_, members)| members.len() == RENEWED_TOGETHER_MAX) {
            *group = groups.len();
            groups.push((slot, Vec::new()));
        }
        groups[*group].1.push(nth);
    }
    let calls = groups.iter().map(|(slot, members)| {
        let command = evalsha(&script.digest, members.iter().map(|nth| &lines[*nth].0), members.len() * 2);
        let command = members.iter().map(|nth| &lines[*nth]).fold(command, |command, (_, place, ttl)| {
            command.part(place.entry.to_string().as_bytes()).number(millis(*ttl))
        });
        async move {
            let (answer, _) = wire.ask(*slot, script, &command).await?;
            many(answer, members.len())
        }
    });
    let mut renewals: Vec<Option<Renewal>> = vec![None; leases.len()];
    for ((_, members), answers) in groups.iter().zip(join_all(calls).await) {
        for (at, nth) in members.iter().enumerate() {
            renewals[*nth] = Some(match &answers {
                Ok(answers) => reply::renewal(&answers[at], lines[*nth].2),
                Err(error) => Renewal::Unknown(error.clone()),
            });
        }
    }
    renewals.into_iter().map(|renewal| renewal.expect("every lease is in a group")).collect()
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        // A grant that replicas have to confirm is none that a client can make.
        let able = Capabilities { relays: self.shared.settings.replicas == 0, ..Capabilities::all() };
        match self.shared.settings.layout {
            Layout::Canonical => able,
            // Its hash has one owner.
            Layout::Redisson => Capabilities { shared: false, counted: false, ..able },
        }
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        Box::pin(async {
            let (shared, entry) = (&self.shared, request.place.entry);
            if request.patience == Patience::Queue {
                shared.hub.expect(entry, request.claim);
            }
            let names = shared.spellings.of(&request.place.key);
            let slot = names.slot();
            let alone = request.claim.is_exclusive() && request.note.value.is_none() && !request.returns;
            let guesses = alone && shared.settings.layout == Layout::Canonical;
            let now = shared.hub.server_us();
            let guess = if guesses { shared.hub.guess_ticket(&names, now) } else { None };
            let answer = shared.call(Call::enter(names, request, now / 1000, guess)).await;
            if shared.settings.layout == Layout::Redisson && answer.as_ref().is_ok_and(reply::waits_for_foreigner) {
                shared.hub.expect_freedom(entry, Names::of(&request.place.key).freed());
            }
            let standing = answer.and_then(|answer| reply::standing(&answer, request));
            if alone && let Ok(standing) = &standing {
                let ticket = if let Standing::Holding { ticket, .. } = standing { Some(*ticket) } else { None };
                shared.hub.learn_ticket(slot, guess, ticket);
            }
            if !matches!(standing, Ok(Standing::Waiting { .. })) && !request.returns {
                shared.hub.forget(entry);
            }
            standing
        })
    }

    fn changed<'a>(&'a self, place: &'a Place, _seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(async { Ok(self.shared.hub.changed(place).await) })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        Box::pin(async {
            let (shared, names) = (&self.shared, self.shared.spellings.of(&place.key));
            shared.hub.forget(place.entry);
            let alone = shared.settings.layout == Layout::Canonical && !shared.hub.has_line(names.slot());
            let answer = shared.call(Call::leave(names, place.entry, alone)).await?;
            reply::departure(&answer)
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(async {
            let (wire, leases) = (self.shared.wire.clone(), leases.to_vec());
            self.shared.io.run(async move { Ok(renew(&wire, &leases).await) }).await
        })
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        Box::pin(async {
            let args = vec![place.entry.to_string().into_bytes()];
            let answer = self.shared.run(&self.shared.settings.scripts.wish, Names::of(&place.key), args).await?;
            Ok(if answer == Value::Int(1) { Asked::Told } else { Asked::NotThere })
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
            let args = vec![place.entry.to_string().into_bytes(), reply::written(note, self.shared.hub.server_ms())];
            let answer = self.shared.run(&self.shared.settings.scripts.annotate, Names::of(&place.key), args).await?;
            Ok(if answer == Value::Int(1) { Annotation::Written } else { Annotation::NotHolding })
        })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        Box::pin(async {
            if let Some(key) = &query.key {
                return Ok(Page { items: self.shared.views(vec![key.clone()], false).await?, next: None });
            }
            let mut keys = self.shared.keys(query).await?;
            let next = if keys.len() > query.keys_max { keys.get(query.keys_max.max(1) - 1).cloned() } else { None };
            keys.truncate(query.keys_max);
            Ok(Page { items: self.shared.views(keys, true).await?, next })
        })
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let listener = self.shared.hub.listen(Names::of(key).entries());
        let follower = Follower { shared: self.shared.clone(), key: key.clone(), listener, seen: 0 };
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
            let (shared, wire) = (&self.shared, self.shared.wire.clone());
            let (accepted, replicas) = (shared.eviction_accepted, shared.settings.replicas);
            let look = async move {
                let mut findings = Vec::new();
                for host in wire.route().await?.hosts() {
                    let health = Health::of(&wire.link(&host).await?.pipe).await?;
                    findings.extend(health.findings(accepted, replicas).into_iter().map(|finding| finding.of(&host)));
                }
                Ok(findings)
            };
            shared.io.run(look).await
        })
    }
}

/// Reads the states of one key, one after the other.
struct Follower {
    shared: Arc<Shared>,
    key: Key,
    listener: Listener,
    /// The last version that was read: what is told of earlier ones is old news.
    seen: u64,
}

impl Follower {
    async fn next(&mut self) -> Result<KeyView> {
        loop {
            let sight = match self.listener.next().await {
                Heard::Message(message) => reply::sight(&message, &self.key),
                Heard::Gap => None,
            };
            let (view, version) = match sight {
                Some((_, version)) if version <= self.seen => continue,
                Some(sight) => sight,
                None => {
                    let (names, script) = (Names::of(&self.key), &self.shared.settings.scripts.inspect);
                    let answer = self.shared.run(script, names, vec![b"1".into()]).await?;
                    reply::view(&answer, &self.key)?
                }
            };
            self.seen = version;
            return Ok(view);
        }
    }
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.name)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("store", &self.shared.name).finish_non_exhaustive()
    }
}
