//! The store on several independent Redis servers: a lock is held by whoever has it on a majority of them.
//!
//! All servers are asked at once, and the answer comes as soon as a majority decides. There is no line: whoever is refused is
//! told when the key comes free, and tries again. Tokens come from the servers' fences, which only grow, and no clock has
//! a say in them.

mod address;
mod admission;
mod alarm;
mod attempt;
mod breaker;
mod checkup;
mod connection;
mod core;
mod departure;
mod member;
#[doc(hidden)]
pub mod node;
mod quiet;
#[doc(hidden)]
pub mod quorum;
mod renewal;
mod scripts;
mod token;
mod view;
mod waiting;
mod ways;
mod wording;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::backend::io::IoThread;
use crate::backend::redlock::core::Core;
use crate::backend::redlock::member::Member;
use crate::backend::redlock::node::{Ask, Node, Push, Reply, Sight};
use crate::backend::redlock::quorum::Tally;
use crate::backend::redlock::ways::{Neighbourhood, Nodes};
use crate::backend::{
    Annotation, Asked, Backend, Capabilities, Departure, EntryId, Finding, KeyView, Lease, Note, Notice, Page, Place,
    Query, Renewal, Request, Standing, Version,
};
use crate::chance::Chance;
use crate::claim::Capacity;
use crate::clock::{Clock, Timer};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;

pub use address::Builder;

/// The longest lease unless told otherwise: how long a server stays out that has forgotten what it knew.
const LONGEST: Duration = Duration::from_secs(60);

/// How long an answer is waited for unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often channels are looked through that nobody waits on any more, and keys that are watched.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// Locks kept by a majority of independent servers.
pub struct Redlock {
    core: Arc<Core>,
    name: String,
    /// `None`: the servers are reached in one way only.
    neighbourhood: Option<Neighbourhood>,
    /// The thread of the connections, which ends with this. `None`: they are on the runtime that this was made on.
    io: Option<IoThread>,
}

/// How a store is put together over nodes of any kind.
#[doc(hidden)]
#[derive(Debug)]
pub struct Settings {
    /// What the store is called.
    pub name: String,
    /// What time it is. On [`Clock::runtime`] everything runs on the caller's runtime.
    pub clock: Clock,
    /// Makes everything repeat itself that is left to chance.
    pub seed: Option<u64>,
    /// The longest lease.
    pub longest: Duration,
    /// Whether a store of which no server remembers anything is begun at once.
    pub accept_blank: bool,
    /// Whether each node carries requests out in the order in which they are made.
    pub in_order: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let (clock, name) = (Clock::boot(), "redlock".into());
        Self { name, clock, seed: None, longest: LONGEST, accept_blank: false, in_order: true }
    }
}

impl Redlock {
    /// Connects to the servers that `url` names. See [`Redlock::builder`] for the URLs.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url)?.connect().await
    }

    /// Settings for a connection to `redlock://user:password@host:6379,host,host/0`: an odd number of independent servers,
    /// three at least. User, password, ports and database may be left out, and are the same for all.
    ///
    /// `redlocks` in place of `redlock` encrypts the connections (feature `tls`). Options behind a `?`: `longest=60` is the
    /// longest lease in seconds; `blank=accept` begins at once on servers of which none remembers anything;
    /// `eviction=accept` accepts servers that may throw locks out; `ca`, `cert` and `key` name PEM files for the encryption.
    pub fn builder(url: &str) -> Result<Builder> {
        Builder::parse(url)
    }

    /// The store on these nodes. Must be called on the runtime that it is to run on.
    #[doc(hidden)]
    pub async fn over(nodes: Vec<Arc<dyn Node>>, settings: Settings) -> Result<Self> {
        let home = Handle::current();
        let Settings { name, clock, seed, longest, accept_blank, in_order } = settings;
        refuse_unless_odd(nodes.len())?;
        let (timer, chance) = (Timer::on_callers_runtime(clock), Chance::new(seed));
        let members = nodes.into_iter().map(|node| Member::new(node, timer.clone())).collect();
        let channel = format!("redlock:{}", chance.entry());
        let mut core = Core::new(members, timer, chance, &channel, longest, home);
        core.in_order = in_order;
        let core = Arc::new(core);
        for (server, member) in core.members.iter().enumerate() {
            core.spawn(follow(Arc::downgrade(&core), server, member.node.pushes()));
            member.node.listen(&channel);
        }
        core.spawn(tidy(Arc::downgrade(&core), core.timer.clone()));
        core.meet(accept_blank).await?;
        Ok(Self { core, name, neighbourhood: None, io: None })
    }

    /// The connections of the runtime that this is called on, if it has some.
    fn near(&self, enters: bool) -> Option<Arc<Nodes>> {
        self.neighbourhood.as_ref()?.here(enters)
    }

    /// Does that where the servers' connections are.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.core.spawn(async move {
            let _ = answer.send(work.await); // nobody may wait for it any more
        });
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// An even number tolerates no more failures than one less, and one alone is no quorum.
fn refuse_unless_odd(servers: usize) -> Result<()> {
    match servers {
        0..3 => Err(Error::option("url", "names fewer than three servers: a single one is redis://")),
        _ if servers.is_multiple_of(2) => Err(Error::option(
            "url",
            format!("names {servers} servers: an even number tolerates no more failures than one less"),
        )),
        _ => Ok(()),
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Closed, "the runtime of the connections has ended").with_unknown_fate()
}

/// Passes on what a server tells by itself.
async fn follow(core: Weak<Core>, server: usize, mut pushes: BoxStream<'static, Push>) {
    while let Some(push) = pushes.next().await {
        let Some(core) = core.upgrade() else { return };
        match push {
            Push::Message { channel, text } if *channel == *core.channel => hear_own(&core, &text),
            Push::Message { channel, text } => core.hear_release(server, &channel, &text),
            Push::Listening(channel) => core.hears(server, &channel),
            Push::Shaken => {
                core.notices.post(Notice::Shaken);
                core.look_after(server);
            }
        }
    }
}

/// `x id`: gone; `y id`: asked to yield. What is neither is not from us.
fn hear_own(core: &Core, text: &[u8]) {
    let Some((news, entry)) = std::str::from_utf8(text).ok().and_then(|text| text.split_once(' ')) else { return };
    let Ok(entry) = entry.parse::<EntryId>() else { return };
    match news {
        "x" => core.notices.post(Notice::Gone(entry)),
        "y" => core.notices.post(Notice::YieldAsked(entry)),
        _ => {}
    }
}

async fn tidy(core: Weak<Core>, timer: Timer) {
    loop {
        timer.sleep(TIDY_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        core.tidy_topics();
    }
}

impl Core {
    /// What the servers answer: a majority of them at least, and the others if they do so within their limits.
    async fn ask_all<T>(&self, ask: &Ask, read: impl Fn(Reply) -> Option<T>) -> Result<Vec<T>> {
        let (began, mut limit) = (self.timer.now(), Duration::ZERO);
        let mut asked = stream::FuturesUnordered::new();
        for member in &self.members {
            asked.push(member.ask(ask.clone()));
            // One that failed a moment ago is asked, and not waited for.
            limit = if member.is_worth_asking() { limit.max(member.limit(self.longest)) } else { limit };
        }
        let (mut answers, mut failure) = (Vec::new(), None);
        loop {
            let next = if answers.len() < self.majority() {
                asked.next().await
            } else {
                let left = self.timer.now().until(began.after(limit));
                self.timer.within(left, asked.next()).await.flatten()
            };
            match next {
                None => break,
                Some(Err(error)) => failure = Some(error),
                Some(Ok(reply)) => answers.extend(read(reply)),
            }
        }
        if answers.len() >= self.majority() {
            return Ok(answers);
        }
        let why =
            format!("{} of {} servers answered, and {} are needed", answers.len(), self.members.len(), self.majority());
        let error = Error::new(ErrorKind::Unreachable, why);
        Err(failure.into_iter().fold(error, Error::caused_by))
    }

    /// These keys as the servers see them together. Those that nobody holds are left out.
    async fn views(&self, keys: Vec<Key>) -> Result<Vec<KeyView>> {
        let keys: Arc<[Key]> = keys.into();
        let sights = self
            .ask_all(&Ask::Inspect(keys.clone()), |reply| match reply {
                Reply::Seen(sights) if sights.len() == keys.len() => Some(sights),
                _ => None,
            })
            .await?;
        let silent = self.members.len() - sights.len();
        let views = keys.iter().enumerate().filter_map(|(nth, key)| {
            let sights: Vec<&Sight> = sights.iter().map(|sights| &sights[nth]).collect();
            let holders = view::merged(key, &sights, self.members.len(), silent);
            let capacity = (!holders.is_empty()).then_some(Capacity::Whole)?;
            Some(KeyView { key: key.clone(), capacity: Some(capacity), holders, waiters: None })
        });
        Ok(views.collect())
    }
}

impl Backend for Redlock {
    fn capabilities(&self) -> Capabilities {
        Capabilities { shared: true, ..Capabilities::exclusive_only() }
    }

    fn enter<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Standing>> {
        Box::pin(async {
            if request.returns {
                // Nobody has a place here that they could return to.
                return Ok(Standing::Refused { held_by: Vec::new(), recheck_in: Duration::ZERO });
            }
            if request.terms.holding > self.core.longest {
                let why =
                    format!("is {:?}, and this store grants {:?} at most", request.terms.holding, self.core.longest);
                return Err(Error::option("ttl", why));
            }
            let (core, request) = (self.core.clone(), request.clone());
            let answered =
                ways::answered(&self.core, self.near(true), |ways, answer| attempt::run(core, ways, request, answer));
            answered.await.unwrap_or_else(|| Err(ended()))
        })
    }

    fn changed<'a>(&'a self, place: &'a Place, _seen: &'a Version) -> BoxFuture<'a, Result<Option<Standing>>> {
        Box::pin(async {
            self.core.freed(&place.key).await;
            Ok(None)
        })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Departure>> {
        Box::pin(async {
            let (core, place) = (self.core.clone(), place.clone());
            let answered =
                ways::answered(&self.core, self.near(false), |ways, answer| departure::run(core, ways, place, answer));
            answered.await.unwrap_or_else(|| Err(ended()))
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        Box::pin(self.run(renewal::renew(self.core.clone(), leases.to_vec())))
    }

    fn ask_to_yield<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Result<Asked>> {
        let (core, ask) = (self.core.clone(), Ask::Wish(place.clone()));
        Box::pin(self.run(async move {
            let told = join_all(core.members.iter().map(|member| member.ask(ask.clone()))).await;
            let mut tally = Tally::new(core.members.len());
            told.iter().flatten().for_each(|reply| tally.count(matches!(reply, Reply::Done)));
            match tally.verdict() {
                Some(true) => Ok(Asked::Told),
                Some(false) => Ok(Asked::NotThere),
                None if tally.yes() > 0 => Ok(Asked::Told),
                None => Err(Error::new(ErrorKind::Unreachable, "too few servers answered").with_unknown_fate()),
            }
        }))
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.core.notices.follow()
    }

    fn liveness(&self) -> Option<OwnedFd> {
        None
    }

    fn annotate<'a>(&'a self, _place: &'a Place, _note: &'a Note) -> BoxFuture<'a, Result<Annotation>> {
        Box::pin(async { Err(Error::new(ErrorKind::Unsupported, "this store has no notes that can be changed")) })
    }

    fn inspect<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Page<KeyView>>> {
        let (core, query) = (self.core.clone(), query.clone());
        Box::pin(self.run(async move {
            if let Some(key) = query.key {
                return Ok(Page { items: core.views(vec![key]).await?, next: None });
            }
            let bare = query.namespace.as_str().is_empty();
            let found = core
                .ask_all(&Ask::Keys(query.namespace), |reply| match reply {
                    Reply::Keys(keys) => Some(keys),
                    _ => None,
                })
                .await?;
            let keys: std::collections::BTreeSet<Key> = found.into_iter().flatten().collect();
            let mut keys: Vec<Key> =
                keys.into_iter().filter(|key| query.after.as_ref().is_none_or(|after| after < key)).collect();
            let next = if keys.len() > query.keys_max { keys.get(query.keys_max.max(1) - 1).cloned() } else { None };
            keys.truncate(query.keys_max);
            let mut items = core.views(keys).await?;
            if bare {
                // Any key of a server could be a lock of somebody then. Only ours are known to be.
                items.retain(|view| view.holders.iter().any(|holder| !holder.foreign));
            }
            Ok(Page { items, next })
        }))
    }

    fn watch(&self, key: &Key) -> BoxStream<'static, Result<KeyView>> {
        let (core, key) = (self.core.clone(), key.clone());
        let seen: Option<KeyView> = None;
        Box::pin(stream::unfold((core, key, seen), async |(core, key, mut seen)| {
            loop {
                let view = match core.views(vec![key.clone()]).await {
                    Err(error) => return Some((Err(error), (core, key, seen))),
                    Ok(views) => views.into_iter().next(),
                };
                let nobody = || KeyView { key: key.clone(), capacity: None, holders: Vec::new(), waiters: None };
                let view = view.unwrap_or_else(nobody);
                let holders = |view: &KeyView| view.holders.iter().map(|holder| holder.place.entry).collect::<Vec<_>>();
                if seen.as_ref().is_none_or(|seen| holders(seen) != holders(&view)) {
                    seen = Some(view.clone());
                    return Some((Ok(view), (core, key, seen)));
                }
                core.timer.within(TIDY_EVERY, core.freed(&key)).await;
            }
        }))
    }

    fn checkup(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let core = self.core.clone();
        Box::pin(self.run(async move { Ok(core.checkup().await) }))
    }
}

impl fmt::Display for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("store", &self.name).finish_non_exhaustive()
    }
}
