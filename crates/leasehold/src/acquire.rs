//! The loop by which every lock is taken: enter, wait, enter again. Trying, waiting, timing out, retrying and cancelling
//! happen here and nowhere else.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::select;

use crate::backend::{EntryId, EntryView, KeyView, Lease, Note, Patience, Place, Request, Standing, Turn, Version};
use crate::claim::Claim;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Fate, Result};
use crate::fence::{FencingToken, Ticket};
use crate::guard::Held;
use crate::key::Key;
use crate::lease::deadline;
use crate::lease::hold::{Hold, State};
use crate::lease::parting::Entering;

/// The first pause after the store could not be reached; it doubles with each failure in a row up to [`FAULT_PAUSE_MAX`].
const FAULT_PAUSE: Duration = Duration::from_millis(50);
const FAULT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Whoever is refused by a store without lines does not try again sooner, even if told to.
const OUTSIDE_PAUSE_MIN: Duration = Duration::from_millis(1);

/// What is wanted, ready to be asked for any number of times.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: Key,
    pub(crate) claim: Claim,
    pub(crate) note: Note,
}

impl Wanted {
    /// Whether one task may hand it to the next before the store knows. Not the leadership of an election: whoever observes
    /// sees every leader, and the store is where they look.
    fn can_be_passed_on(&self) -> bool {
        self.claim == Claim::Exclusive && self.note.value.is_none()
    }
}

/// How long to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Not at all.
    Try,
    /// This long.
    Within(Duration),
    /// As long as it takes.
    Forever,
}

/// What came of an attempt to take a lock.
#[derive(Debug)]
pub enum Attempt<G> {
    /// It is held.
    Held(G),
    /// It is not, and this is why.
    Busy(Busy),
}

impl<G> Attempt<G> {
    /// The guard, if there is one.
    pub fn ok(self) -> Option<G> {
        match self {
            Self::Held(guard) => Some(guard),
            Self::Busy(_) => None,
        }
    }

    pub(crate) fn map<H>(self, into: impl FnOnce(G) -> H) -> Attempt<H> {
        match self {
            Self::Held(guard) => Attempt::Held(into(guard)),
            Self::Busy(busy) => Attempt::Busy(busy),
        }
    }
}

/// Why a lock could not be taken: who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// The key that is taken.
    pub key: Key,
    /// Who held it when we looked, in ticket order.
    pub held_by: Vec<EntryView>,
    /// How many others were in line, if the store can tell and was asked.
    pub waiting: Option<usize>,
    /// The entry with which we tried.
    candidate: EntryId,
}

impl Busy {
    /// Takes over who is in line from a look at it, leaving ourselves out: our departure may be still on its way.
    pub(crate) fn seen(&mut self, view: KeyView) {
        let others = |entry: &EntryView| entry.place.entry != self.candidate;
        self.waiting = view.waiters.map(|waiters| waiters.iter().filter(|entry| others(entry)).count());
        self.held_by = view.holders.into_iter().filter(others).collect();
    }
}

/// `"billing/close" is held by worker-7 (pid 4711 on build-3) for 12s, 3 waiting`
impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\" is held", self.key)?;
        for (nth, holder) in self.held_by.iter().enumerate() {
            let joint = if nth == 0 { " by" } else { "," };
            match holder.foreign {
                true => write!(f, "{joint} a program of another kind")?,
                false => write!(f, "{joint} {} for {}s", holder.note, holder.age.as_secs())?,
            }
        }
        match self.waiting {
            Some(waiting) if waiting > 0 => write!(f, ", {waiting} waiting"),
            _ => Ok(()),
        }
    }
}

/// Takes a lock, or says who has it.
///
/// Uncontended, this is one request. Contended, one to join the line and none for the hand-over where the store pushes.
/// Dropping the future at any await hands the entry to the parting worker.
pub(crate) async fn acquire(client: &Arc<Client>, wanted: &Wanted, limit: Limit) -> Result<Attempt<Held>> {
    client.refuse_if_closed()?;
    client.supports(wanted.claim, &wanted.key)?;
    let give_up_at = match limit {
        Limit::Try => Some(client.now()),
        Limit::Within(span) => Some(client.now().after(span)),
        Limit::Forever => None,
    };
    let mut candidate = Candidate::new(client, wanted, limit);
    let mut failing = Failing::default();
    let mut found_busy = false;
    loop {
        let standing = match candidate.enter(give_up_at).await {
            Ok(entered) => {
                failing = Failing::default();
                entered
            }
            Err(error) => {
                let Some(pause) = failing.pause(&error, client, give_up_at) else {
                    // Once the lock was found busy, running out of time is no error, whatever became of the last look.
                    let out_of_time = give_up_at.is_some_and(|at| client.now() >= at);
                    let busy = found_busy && out_of_time && error.is_passing();
                    return if busy { Ok(Attempt::Busy(candidate.busy(Vec::new()))) } else { Err(error) };
                };
                candidate.assume_entered();
                client.timer.sleep(pause).await;
                continue;
            }
        };
        match standing {
            Entered::Holding(held) => return Ok(Attempt::Held(held)),
            Entered::Waiting { seen, recheck_in } => match candidate.wait(seen, recheck_in, give_up_at).await {
                Woken::Granted(held) => return Ok(Attempt::Held(held)),
                Woken::LookAgain => {}
                Woken::GaveUp => return Ok(Attempt::Busy(candidate.busy(Vec::new()))),
            },
            Entered::Gone => candidate.start_afresh(),
            Entered::Refused { held_by, recheck_in } => {
                if give_up_at.is_some_and(|at| client.now() >= at) {
                    return Ok(Attempt::Busy(candidate.busy(held_by)));
                }
                candidate.wait_outside(recheck_in, give_up_at).await;
            }
        }
        found_busy = true;
    }
}

/// How long the store has not been reachable in a row.
#[derive(Default)]
struct Failing {
    since: Option<Moment>,
    pause: Duration,
}

impl Failing {
    /// How long to pause before the next try, or `None` if this error is final.
    fn pause(&mut self, error: &Error, client: &Client, give_up_at: Option<Moment>) -> Option<Duration> {
        if !error.is_passing() {
            return None;
        }
        let now = client.now();
        let since = *self.since.get_or_insert(now);
        let patience_ends = since.after(deadline::patience_with_faults(client.terms.holding));
        // An unreachable store is not a busy lock, so running out of time here is the error and not "busy".
        let ends = patience_ends.min(give_up_at.unwrap_or(Moment::FAR));
        self.pause = (self.pause * 2).clamp(FAULT_PAUSE, FAULT_PAUSE_MAX);
        (now < ends).then(|| client.chance.about(self.pause).min(now.until(ends)))
    }
}

/// One wish to hold a key, with whatever it has left on the store so far. Dropping it leaves the line.
struct Candidate<'a> {
    client: &'a Arc<Client>,
    wanted: &'a Wanted,
    limit: Limit,
    place: Place,
    /// The request that is under way.
    entering: Option<Entering>,
    /// The lease on our place in line, once we have one.
    hold: Option<Arc<Hold>>,
    /// Whom we are behind, if that one may pass the lock on to us.
    turn: Option<Turn>,
    /// What the store may know of the entry.
    trace: Trace,
}

/// What an entry has left on the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// Nothing.
    None,
    /// An entry.
    Entry,
    /// An entry, or none, or one that will only appear.
    Unknown,
}

enum Entered {
    Holding(Held),
    Waiting {
        seen: Version,
        recheck_in: Duration,
    },
    Refused {
        held_by: Vec<EntryView>,
        recheck_in: Duration,
    },
    /// Our place in line is no longer there.
    Gone,
}

/// What ended a wait.
enum News {
    /// It is time to look, or to give up; or our place is lost.
    None,
    /// The store says that something has changed, and what, if that is all there is to know.
    Store(Option<Standing>),
    /// Whoever was before us has left, and passed the lock on: our ticket, and until when to believe in the lease that it
    /// had.
    Neighbour(Ticket, Moment),
}

enum Woken {
    Granted(Held),
    LookAgain,
    GaveUp,
}

impl<'a> Candidate<'a> {
    fn new(client: &'a Arc<Client>, wanted: &'a Wanted, limit: Limit) -> Self {
        // A client that has just not been refused is this process's own.
        let place = Place { key: wanted.key.clone(), entry: client.chance.entry_of(client.note.pid) };
        Self { client, wanted, limit, place, entering: None, hold: None, turn: None, trace: Trace::None }
    }

    fn patience(&self) -> Patience {
        if self.limit == Limit::Try || !self.client.capabilities.queueing { Patience::Refuse } else { Patience::Queue }
    }

    /// Asks the store for our standing, and believes it no further than its lease reaches.
    async fn enter(&mut self, give_up_at: Option<Moment>) -> Result<Entered> {
        let client = self.client;
        // Read before a byte can leave: the server's lease cannot have begun earlier.
        let sent_at = client.now();
        // A limit is for the lock. Somebody who does not want to wait for that still waits for the answer, or a healthy
        // store further away than the limit would look like a dead one.
        let limit = match give_up_at {
            Some(at) if self.limit != Limit::Try => sent_at.until(at).max(deadline::answer_in(client.terms.holding)),
            _ => Duration::MAX,
        };
        let limit = client.attempt_limit().min(limit);
        // A look that is still under way may be dropped: it makes no entry. Requests that do are sent once for each id.
        let returns = self.trace == Trace::Entry;
        let request = self.request(returns);
        let entering = self.entering.insert(request);
        let before = self.trace;
        if !returns {
            self.trace = Trace::Unknown;
        }
        let standing = match client.timer.within(limit, entering.as_mut()).await {
            Some(answer) => {
                self.entering = None;
                self.trace = match &answer {
                    Ok(Standing::Refused { .. }) => Trace::None,
                    Ok(_) => Trace::Entry,
                    Err(error) if error.fate() == Fate::NotApplied => before,
                    Err(_) => self.trace,
                };
                answer
            }
            None => Err(client.no_answer()),
        };
        match standing.map_err(|error| client.place_error(error, "entering", &self.place.key))? {
            Standing::Holding { ticket, token, lease } => {
                let hold = self.hold_until(&lease, sent_at);
                hold.ask_for(client.terms.holding);
                if hold.remaining(client.now()) < deadline::least_useful(lease.ttl) {
                    let late =
                        format!("granted for {:?}, but the answer took {:?}", lease.ttl, sent_at.until(client.now()));
                    return Err(client.place_error(Error::new(ErrorKind::TooLate, late), "entering", &self.place.key));
                }
                Ok(Entered::Holding(self.become_holder(hold, ticket, token)?))
            }
            Standing::Waiting { turn, lease, seen, recheck_in, .. } => {
                // Nobody comes in between any more, so it need not be said again.
                self.turn = turn.or(self.turn);
                if let Some(lease) = lease {
                    self.hold_until(&lease, sent_at);
                }
                Ok(Entered::Waiting { seen, recheck_in })
            }
            Standing::Refused { .. } if returns => Ok(Entered::Gone),
            Standing::Refused { held_by, recheck_in } => Ok(Entered::Refused { held_by, recheck_in }),
        }
    }

    fn request(&self, returns: bool) -> Entering {
        let (backend, terms) = (self.client.backend.clone(), self.client.terms);
        let (place, claim, patience) = (self.place.clone(), self.wanted.claim, self.patience());
        let request = Request { place, claim, patience, terms, note: self.wanted.note.clone(), returns };
        // It owns what it needs, so that it can outlive us and be seen to its end by the parting worker.
        Box::pin(async move { backend.enter(&request).await })
    }

    /// The hold of our place, made or extended by a lease that a request sent at `sent_at` was granted.
    fn hold_until(&mut self, lease: &Lease, sent_at: Moment) -> Arc<Hold> {
        let until = deadline::believe_until(sent_at, lease.ttl);
        match &self.hold {
            Some(hold) if hold.extend(self.client.now(), until) => hold.clone(),
            _ => {
                let hold = self.client.believe(&self.place, lease, sent_at);
                self.hold.insert(hold).clone()
            }
        }
    }

    /// Subscribed to changes since `seen`, sleeps until one comes, our place is lost, it is time to look, or to give up.
    async fn wait(&mut self, seen: Version, recheck_in: Duration, give_up_at: Option<Moment>) -> Woken {
        let client = self.client;
        let look_at = client.now().after(recheck_in);
        let news = {
            // `None` once it has failed: a store that cannot wake us is looked at, but no more often than it asked for.
            let mut changed = Some(client.backend.changed(&self.place, &seen));
            let mut lost = pin!(async {
                match &self.hold {
                    Some(hold) => drop(hold.lost().await),
                    None => std::future::pending().await,
                }
            });
            let mut passed = pin!(async {
                match self.turn {
                    Some(Turn { ticket, behind }) if self.wanted.can_be_passed_on() => {
                        (ticket, client.relay.expect(&self.place.key, behind).passed().await)
                    }
                    _ => std::future::pending().await,
                }
            });
            let mut time = pin!(client.timer.sleep_until(look_at.min(give_up_at.unwrap_or(Moment::FAR))));
            poll_fn(|cx| {
                if lost.as_mut().poll(cx).is_ready() || time.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(News::None);
                }
                match changed.as_mut().map(|changed| changed.as_mut().poll(cx)) {
                    Some(Poll::Ready(Ok(standing))) => return Poll::Ready(News::Store(standing)),
                    Some(Poll::Ready(Err(_))) => changed = None,
                    Some(Poll::Pending) | None => {}
                }
                passed.as_mut().poll(cx).map(|(ticket, until)| News::Neighbour(ticket, until))
            })
            .await
        };
        let now = client.now();
        if let Some(hold) = self.hold.clone() {
            let gone = matches!(news, News::Store(Some(Standing::Refused { .. })));
            if gone || matches!(hold.state(now), State::Lost(_)) {
                // Evicted, or stopped for longer than our place could wait. Its id is not used again: whoever cleans up
                // after us may still be on the way.
                self.start_afresh();
            } else {
                // The grant did not lengthen the lease: with too little of it left we would look again, which renews it.
                let (left, least) = (hold.remaining(now), deadline::least_useful(client.terms.waiting));
                let granted = match news {
                    News::Store(Some(Standing::Holding { ticket, token, .. })) if left >= least => {
                        Some((ticket, token))
                    }
                    News::Neighbour(ticket, until) if left.min(now.until(until)) >= least => {
                        client.borrow(&hold, until);
                        Some((ticket, FencingToken::new(ticket.0)))
                    }
                    _ => None,
                };
                if let Some((ticket, token)) = granted {
                    hold.ask_for(client.terms.holding);
                    return self.become_holder(hold, ticket, token).map_or(Woken::LookAgain, Woken::Granted);
                }
            }
        }
        if give_up_at.is_some_and(|at| now >= at) { Woken::GaveUp } else { Woken::LookAgain }
    }

    /// Refused by a store that has no lines: sleeps until it is told that the key may be free, or it is time to try again.
    async fn wait_outside(&mut self, recheck_in: Duration, give_up_at: Option<Moment>) {
        let client = self.client;
        let now = client.now();
        // The last try is at the limit itself, or a lock that comes free shortly before would be missed.
        let latest = give_up_at.unwrap_or(Moment::FAR);
        let try_at = now.after(client.chance.about(recheck_in)).min(latest);
        {
            let told = async {
                if client.backend.changed(&self.place, &Version(0)).await.is_err() {
                    // A store that cannot tell is tried no more often than it asked for.
                    std::future::pending::<()>().await;
                }
            };
            select(pin!(told), pin!(client.timer.sleep_until(try_at))).await;
        }
        // However eager the store is to wake us.
        client.timer.sleep_until(now.after(OUTSIDE_PAUSE_MIN).min(latest)).await;
        // What is left of a refused attempt may still be on its way out; it must not meet the next one under its own name.
        self.start_afresh();
    }

    /// From here on the guard answers for the entry.
    fn become_holder(&mut self, hold: Arc<Hold>, ticket: Ticket, token: Option<FencingToken>) -> Result<Held> {
        if self.wanted.claim.is_exclusive() && token.is_none() {
            let error = Error::new(ErrorKind::Protocol, "the store granted an exclusive claim without a token");
            return Err(self.client.place_error(error, "entering", &self.place.key));
        }
        self.hold = None;
        self.trace = Trace::None;
        let passes_on = self.wanted.can_be_passed_on().then_some(ticket);
        Ok(Held::new(self.client.clone(), hold, self.wanted.note.clone(), token, passes_on))
    }

    /// After an unknown outcome the entry is assumed to be there: it is cleaned up, and its id not used again. A place
    /// that we are known to have is kept.
    fn assume_entered(&mut self) {
        if self.trace == Trace::Unknown {
            self.start_afresh();
        }
    }

    fn start_afresh(&mut self) {
        self.leave();
        self.turn = None;
        self.place.entry = self.client.chance.entry();
    }

    fn busy(&self, held_by: Vec<EntryView>) -> Busy {
        Busy { key: self.place.key.clone(), held_by, waiting: None, candidate: self.place.entry }
    }

    /// Hands whatever the store may know of us to the parting worker.
    fn leave(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.client.forget(&hold);
        }
        let trace = std::mem::replace(&mut self.trace, Trace::None);
        if trace == Trace::None {
            return;
        }
        let entering = self.entering.take();
        // While the request is under way its own end will tell; an answer that was lost tells nothing.
        let may_yet_appear = trace == Trace::Unknown && entering.is_none();
        self.client.part_from(self.place.clone(), entering, may_yet_appear);
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
