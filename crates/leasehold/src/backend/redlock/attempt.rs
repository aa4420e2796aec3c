//! One attempt to take a lock: all servers at once, an answer as soon as they decide either way, and whatever comes later
//! kept or given back.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;

use crate::backend::redlock::alarm::Alarm;
use crate::backend::redlock::core::{Core, Ours};
use crate::backend::redlock::member::Asked;
use crate::backend::redlock::node::{Ask, Grant, Reply, Sight, Spelled};
use crate::backend::redlock::quorum::{Ballot, Step};
use crate::backend::redlock::token::TOKEN_MAX;
use crate::backend::redlock::view;
use crate::backend::redlock::ways::Ways;
use crate::backend::{Lease, LeaseId, Request, Standing};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Fate, Result};
use crate::fence::{FencingToken, Ticket};
use crate::lease::deadline;

/// How soon a refused attempt is repeated at the latest, if nobody tells that the key is free.
const RECHECK: Duration = Duration::from_secs(1);

/// What part of the lease servers are waited for at most, if nobody contests the lock.
const LEASE_SHARE: u32 = 10;

/// An attempt, by those ways. It goes on to its end even if nobody waits for the answer.
pub(super) async fn run(core: Arc<Core>, ways: Ways, request: Request, answer: oneshot::Sender<Result<Standing>>) {
    Attempt::new(core, ways, request).run(answer).await;
}

struct Attempt {
    core: Arc<Core>,
    ways: Ways,
    request: Request,
    ballot: Ballot,
    asked: FuturesUnordered<Pending>,
    alarm: Alarm,
    /// When a server that has not answered counts as silent.
    limits: BTreeSet<(Moment, usize, Question)>,
    /// Until when any server is waited for.
    latest: Moment,
    /// Until when the lease could be believed in.
    ends: Moment,
    votes: Vec<Vote>,
    /// Whether the lock was given up by another way than that by which it was asked for.
    elsewhere: Arc<AtomicBool>,
    briefly: bool,
}

/// What a server was asked and has not answered.
struct Pending {
    server: usize,
    question: Question,
    asked: Asked,
}

impl Future for Pending {
    type Output = (usize, Question, Result<Reply>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.asked).poll(cx).map(|reply| (self.server, self.question, reply))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Grant,
    Commit,
}

/// What a server said to the request for the lock.
enum Vote {
    /// Nothing so far: it may have it or get it yet.
    Open,
    Granted,
    Busy(Sight),
    /// It was not granted there, for certain.
    No(Error),
    /// Nobody knows.
    Unknown(Error),
}

impl Attempt {
    fn new(core: Arc<Core>, ways: Ways, request: Request) -> Self {
        let servers = core.members.len();
        let guess = request.claim.is_exclusive().then(|| core.guess.next());
        let briefly = request.claim.is_exclusive() && core.quiet.is_at(&request.place.key);
        let (now, ttl) = (core.timer.now(), request.terms.holding);
        let (latest, ends) = (now.after(ttl / LEASE_SHARE), deadline::believe_until(now, ttl));
        let (ballot, asked, alarm) =
            (Ballot::new(servers, guess), FuturesUnordered::new(), Alarm::new(core.timer.clone()));
        let votes = (0..servers).map(|_| Vote::Open).collect();
        let mut attempt = Self {
            core,
            ways,
            request,
            ballot,
            asked,
            alarm,
            limits: BTreeSet::new(),
            latest,
            ends,
            votes,
            elsewhere: Arc::default(),
            briefly,
        };
        attempt.ask_for_grants(guess.unwrap_or_default());
        attempt
    }

    fn ttl(&self) -> Duration {
        self.request.terms.holding
    }

    /// Asks all servers at once, but for those that have just failed.
    fn ask_for_grants(&mut self, guess: u64) {
        let (core, request) = (self.core.clone(), &self.request);
        let (shared, ttl) = (!request.claim.is_exclusive(), self.ttl());
        let worth_asking = core.worth_asking();
        let open = worth_asking.iter().map(|asked| u32::from(*asked)).collect();
        let (asked, unknown, touched) = (worth_asking.clone(), vec![false; worth_asking.len()], false);
        let (note, token, way) = (request.note.clone(), guess, Some(self.ways.id()));
        let (elsewhere, briefly) = (self.elsewhere.clone(), self.briefly);
        let ours = Ours { shared, ttl, note, token, asked, open, unknown, briefly, touched, way, elsewhere };
        core.remember(request.place.entry, ours);
        let channel = core.channel.clone();
        let (place, note, spelled) = (request.place.clone(), request.note.clone(), Spelled::default());
        let grant = Arc::new(Grant { place, shared, ttl, guess, channel, note, briefly, spelled });
        for (server, worth_asking) in worth_asking.into_iter().enumerate() {
            if worth_asking {
                self.ask(server, Question::Grant, Ask::Grant(grant.clone()));
            } else {
                self.votes[server] = Vote::No(unreachable("it failed a moment ago, and is left alone for now"));
            }
        }
    }

    fn ask(&mut self, server: usize, question: Question, ask: Ask) {
        let member = &self.core.members[server];
        let trips = match question {
            Question::Grant => 1,
            // The lock is ours there already, so nobody is kept waiting by our patience.
            Question::Commit => 2,
        };
        self.limits.insert((self.core.timer.now().after(member.limit(self.ttl()) * trips), server, question));
        let asked = self.ways.ask(member, server, ask);
        self.asked.push(Pending { server, question, asked });
    }

    async fn run(mut self, answer: oneshot::Sender<Result<Standing>>) {
        let held = self.decide().await;
        let standing = match held {
            Some(_) if self.core.timer.now() >= self.ends => Err(self.too_late()),
            Some(token) => Ok(self.holding(token)),
            None => {
                self.hear_whether_it_is_busy().await;
                self.failure()
            }
        };
        let held = matches!(standing, Ok(Standing::Holding { .. }));
        self.core.quiet.note(&self.request.place.key, self.is_contested());
        if !held {
            self.give_back();
        }
        if answer.send(standing).is_err() && held {
            self.give_back(); // nobody is there to hold it
        }
        // What was asked is seen to its end: a late grant counts for the slack, and a late answer for the server's health.
        while let Some((server, question, reply)) = self.asked.next().await {
            self.note(server, question, reply);
        }
    }

    /// What the servers come to: held, with a token if the lock is exclusive, or not.
    async fn decide(&mut self) -> Option<Option<u64>> {
        let mut step = Step::Wait;
        for server in 0..self.votes.len() {
            if !matches!(self.votes[server], Vote::Open) {
                step = self.ballot.missing(server);
            }
        }
        loop {
            match step {
                Step::Wait => {}
                Step::Held { token } => return Some(token),
                Step::Failed => return None,
                Step::Commit { token, .. } if token > TOKEN_MAX => {
                    let why = "the tokens have run out: a server has seen the largest there is";
                    self.votes.fill_with(|| Vote::Unknown(Error::new(ErrorKind::Unusable, why)));
                    return None;
                }
                Step::Commit { token, to } => {
                    self.core.update(self.request.place.entry, |ours| ours.touched = true);
                    for (server, epoch) in to {
                        let place = self.request.place.clone();
                        self.ask(server, Question::Commit, Ask::Commit { place, token, epoch });
                    }
                }
            }
            step = self.next().await;
        }
    }

    /// It cannot be had. Whether that is because somebody has it may need one more answer than that it cannot.
    async fn hear_whether_it_is_busy(&mut self) {
        let needed = self.core.majority();
        loop {
            let count = |which: fn(&Vote) -> bool| self.votes.iter().filter(|vote| which(vote)).count();
            let (busy, granted) =
                (count(|vote| matches!(vote, Vote::Busy(_))), count(|vote| matches!(vote, Vote::Granted)));
            let open = count(|vote| matches!(vote, Vote::Open));
            let unclear = busy > 0 && busy + granted < needed && busy + granted + open >= needed;
            if !unclear || self.limits.is_empty() {
                return;
            }
            self.next().await;
        }
    }

    fn is_contested(&self) -> bool {
        self.votes.iter().any(|vote| matches!(vote, Vote::Busy(_)))
    }

    /// Waits for the next answer, or until a server counts as silent.
    async fn next(&mut self) -> Step {
        let limit = self.limits.first().copied();
        if let Some((at, server, Question::Grant)) = limit
            && at == self.latest
            && self.is_contested()
        {
            // It was waited for beyond its limit, as long as nobody else wanted the lock.
            self.limits.remove(&(at, server, Question::Grant));
            return self.ballot.missing(server);
        }
        let at = limit.map_or(Moment::FAR, |(at, _, _)| at);
        let answered = self.alarm.before(at, self.asked.next()).await.flatten();
        match (answered, limit) {
            (Some((server, question, reply)), _) => {
                self.limits.retain(|(_, of, about)| (*of, *about) != (server, question));
                self.note(server, question, reply)
            }
            (None, Some((at, server, question))) => {
                self.limits.remove(&(at, server, question));
                match question {
                    // Nobody else wants it, as far as anybody says: then a slow majority is better than none.
                    Question::Grant if at < self.latest && !self.is_contested() => {
                        self.limits.insert((self.latest, server, question));
                        Step::Wait
                    }
                    Question::Grant => self.ballot.missing(server),
                    Question::Commit => self.ballot.committed(server, false),
                }
            }
            // Nothing is under way and nothing is awaited: then everybody has voted, and that decides.
            (None, None) => Step::Failed,
        }
    }

    /// Takes down what a server said.
    fn note(&mut self, server: usize, question: Question, reply: Result<Reply>) -> Step {
        if question == Question::Commit {
            return self.ballot.committed(server, matches!(reply, Ok(Reply::Done)));
        }
        let (vote, step) = match reply {
            Ok(Reply::Granted { prior, epoch }) => {
                self.core.guess.learn(prior);
                (Vote::Granted, self.ballot.granted(server, prior, epoch))
            }
            other => (self.vote_of(server, other), self.ballot.missing(server)),
        };
        self.take_down(server, vote);
        step
    }

    fn take_down(&mut self, server: usize, vote: Vote) {
        let is_ours = self.core.update(self.request.place.entry, |ours| match vote {
            Vote::Unknown(_) => ours.unknown[server] = true,
            _ => ours.open[server] = ours.open[server].saturating_sub(1),
        });
        if !is_ours {
            self.part_late(server, &vote);
        }
        self.votes[server] = vote;
    }

    /// The lock was given up before this was heard, and the request for it may have come after that: in few words it is not
    /// refused. On one way everything comes in order, unless it broke.
    fn part_late(&self, server: usize, vote: &Vote) {
        let unknown = matches!(vote, Vote::Unknown(_));
        if unknown || matches!(vote, Vote::Granted) && self.elsewhere.load(Acquire) {
            let (core, place, ttl) = (&self.core, self.request.place.clone(), self.ttl());
            core.spawn(core.clone().give_back(server, place, unknown.then_some(ttl), unknown && self.briefly, ttl));
        }
    }

    fn vote_of(&self, server: usize, reply: Result<Reply>) -> Vote {
        match reply {
            Ok(Reply::Busy(sight)) => Vote::Busy(*sight),
            Ok(Reply::NotReady) => {
                self.core.look_after(server);
                Vote::No(unreachable("it has forgotten what it knew, and grants nothing until it is admitted again"))
            }
            Ok(Reply::TooLong { longest }) => Vote::No(Error::option(
                "ttl",
                format!("is {:?}, and the servers were set up for leases of at most {longest:?}", self.ttl()),
            )),
            Ok(Reply::InTheWay(kind)) => {
                let kind = crate::key::Escaped(kind.as_bytes());
                let why = format!("a {kind} of somebody else's is stored at the place of this lock");
                Vote::No(Error::new(ErrorKind::KindMismatch, why))
            }
            Ok(Reply::Barred) => Vote::No(unreachable("it had been given up already when the request arrived")),
            Ok(_) => Vote::Unknown(Error::new(ErrorKind::Protocol, "it answered something else").with_unknown_fate()),
            Err(error) if error.fate() == Fate::NotApplied => Vote::No(error),
            Err(error) => Vote::Unknown(error),
        }
    }

    fn holding(&self, token: Option<u64>) -> Standing {
        let entry = self.request.place.entry;
        if let Some(token) = token {
            self.core.guess.learn(token);
            self.core.update(entry, |ours| ours.token = token);
        }
        self.core.no_clash(&self.request.place.key);
        if token.is_none() {
            self.core.let_next_in(&self.request.place.key);
        }
        let lease = Lease { id: LeaseId::Entry(self.request.place.clone()), ttl: self.ttl() };
        let ticket = Ticket(token.unwrap_or_default());
        Standing::Holding { ticket, token: token.and_then(FencingToken::new), lease }
    }

    fn too_late(&self) -> Error {
        let late = format!("granted by a majority for {:?}, but only when that was nearly over", self.ttl());
        Error::new(ErrorKind::TooLate, late).with_unknown_fate()
    }

    /// Why the lock cannot be had: somebody has it, or too few servers can say.
    fn failure(&self) -> Result<Standing> {
        let (servers, needed) = (self.votes.len(), self.core.majority());
        let granted = self.votes.iter().filter(|vote| matches!(vote, Vote::Granted)).count();
        let busy: Vec<&Sight> = self
            .votes
            .iter()
            .filter_map(|vote| if let Vote::Busy(sight) = vote { Some(sight) } else { None })
            .collect();
        if !busy.is_empty() && granted + busy.len() >= needed {
            let held_by = view::merged(&self.request.place.key, &busy, servers, servers - busy.len());
            return Ok(Standing::Refused { held_by, recheck_in: self.recheck_in(granted, &busy) });
        }
        let errors = || {
            self.votes.iter().filter_map(|vote| match vote {
                Vote::No(error) | Vote::Unknown(error) => Some(error),
                Vote::Open | Vote::Granted | Vote::Busy(_) => None,
            })
        };
        // What a server refuses for good, the others will not make good.
        if let Some(error) = errors().find(|error| !error.is_passing()) {
            return Err(error.clone());
        }
        let answered = granted + busy.len();
        let why = format!("{answered} of {servers} servers take part, and {needed} are needed");
        let mut error = unreachable(why);
        if let Some(cause) = errors().next() {
            error = error.caused_by(cause.clone());
        }
        let certain = self.votes.iter().all(|vote| matches!(vote, Vote::No(_) | Vote::Busy(_)));
        Err(if certain { error } else { error.with_unknown_fate() })
    }

    /// When another attempt may fare better: as soon as enough leases have ended; or, if we got in each other's way, at some
    /// moment that the others will hardly choose too.
    fn recheck_in(&self, granted: usize, busy: &[&Sight]) -> Duration {
        let key = &self.request.place.key;
        if granted > 0 {
            return self.core.clash(key).min(RECHECK);
        }
        self.core.no_clash(key);
        let mut ends: Vec<Duration> = busy.iter().map(|sight| sight.free_in.unwrap_or(Duration::MAX)).collect();
        ends.sort_unstable();
        let needed = self.core.majority() - 1;
        let free_in = ends.get(needed).copied().unwrap_or(Duration::MAX);
        free_in.saturating_add(Duration::from_millis(1)).min(RECHECK)
    }

    /// Gives back whatever was granted, and whatever may be granted yet: everywhere but where it certainly was not.
    fn give_back(&mut self) {
        let (core, place, ttl) = (&self.core, &self.request.place, self.ttl());
        self.elsewhere.store(true, Release);
        core.forget(place.entry);
        for (server, vote) in self.votes.iter().enumerate() {
            let (bar, may_come) = match vote {
                Vote::Busy(_) | Vote::No(_) => continue,
                Vote::Granted => (None, false),
                Vote::Open => (Some(ttl), false),
                Vote::Unknown(_) => (Some(ttl), self.briefly),
            };
            core.spawn(core.clone().give_back(server, place.clone(), bar, may_come, ttl));
        }
    }
}

/// Nobody hears any more what is under way: the runtime has ended that it was asked from.
impl Drop for Attempt {
    fn drop(&mut self) {
        for server in 0..self.votes.len() {
            if matches!(self.votes[server], Vote::Open) {
                self.take_down(server, Vote::Unknown(unreachable("it was not heard out")));
            }
        }
    }
}

fn unreachable(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unreachable, why)
}
