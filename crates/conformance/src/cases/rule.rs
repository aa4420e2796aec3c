//! Every answer of the store beside the one that the rule gives, in random histories of a few clients.

use std::env;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use leasehold::backend::{
    Backend, Capabilities, Departure, EntryId, Lease, LeaseId, Note, Patience, Place, Query, Renewal, Request,
    Standing, Terms, Version,
};
use leasehold::clock::Moment;
use leasehold::{Claim, Key, Namespace};

use crate::World;
use crate::model::{Ends, Entered, Line, same};

/// How many histories there are, one for each seed from 0 on.
const HISTORIES: u64 = 200;
/// How many are under way at a time: they pass their time together.
const AT_A_TIME: usize = 100;
const ACTS: usize = 24;
const CLIENTS: usize = 3;

/// Outlives every history.
const LONG: Duration = Duration::from_secs(600);
/// Is waited for.
const SHORT: Duration = Duration::from_secs(1);
/// Nothing is done while a lease has less left than this: what came of it could not be foretold.
const DOUBTFUL: Duration = Duration::from_millis(500);

/// How long whoever has its turn may go without being told, however slow the machine.
const TOLD_MAX: Duration = Duration::from_secs(10);

/// Tries the histories, or only the one whose seed is in the environment as `LEASEHOLD_RULE_SEED`.
pub async fn every_answer_is_the_one_that_the_rule_gives(world: World) {
    let mut stores = Vec::new();
    for _ in 0..CLIENTS {
        stores.push(world.store().await);
    }
    if !stores[0].capabilities().queueing {
        return; // the rule is about lines, and it keeps none
    }
    let seeds = match env::var("LEASEHOLD_RULE_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEASEHOLD_RULE_SEED is a number")],
        Err(_) => (0..HISTORIES).collect(),
    };
    let (world, stores) = (&world, &stores);
    let histories = stream::iter(&seeds).map(async |seed| {
        let mut history = History::new(world, stores, *seed);
        match history.run().await {
            Ok(end) => end,
            Err(why) => panic!("with LEASEHOLD_RULE_SEED={seed}: {why}, after\n{}", history.told()),
        }
    });
    let ends: Vec<End> = histories.buffer_unordered(AT_A_TIME).collect().await;
    let whole = ends.iter().filter(|end| **end == End::Whole).count();
    assert!(whole * 2 > ends.len(), "{whole} of {} histories came to their end: the machine is too slow", ends.len());
}

/// How far a history came.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// An act took so long that a lease may have ended meanwhile, or not.
    Doubtful,
}

#[derive(Clone, Debug)]
enum Act {
    Enter { claim: Claim, patience: Patience, long: bool, valued: bool },
    Look { at: usize, long: bool },
    Repeat { at: usize },
    Leave { at: usize, client: usize },
    Renew { at: Vec<usize>, client: usize },
    AskToYield { at: usize, client: usize },
    Annotate { at: usize },
    LetShortLeasesEnd,
}

/// An entry that was made, whether or not it is still there.
struct Made {
    request: Request,
    line: usize,
    client: usize,
    /// What its client saw of it last.
    seen: Version,
}

struct History<'a> {
    world: &'a World,
    stores: &'a [Arc<dyn Backend>],
    able: Capabilities,
    rng: fastrand::Rng,
    keys: Vec<Key>,
    /// How many permits each key has, unless it is a lock.
    permits: Vec<Option<NonZeroU32>>,
    lines: Vec<Line>,
    made: Vec<Made>,
    acts: Vec<Act>,
}

impl<'a> History<'a> {
    fn new(world: &'a World, stores: &'a [Arc<dyn Backend>], seed: u64) -> Self {
        let (able, mut rng) = (stores[0].capabilities(), fastrand::Rng::with_seed(seed));
        let namespace = Namespace::new(world.namespace()).unwrap();
        let keys: Vec<Key> =
            (0..rng.usize(1..=2)).map(|nth| Key::new(&namespace, format!("{seed}-{nth}")).unwrap()).collect();
        let permits =
            keys.iter().map(|_| if able.counted && rng.bool() { NonZeroU32::new(rng.u32(1..=4)) } else { None });
        let permits = permits.collect();
        let lines = keys.iter().map(|_| Line::default()).collect();
        Self { world, stores, able, rng, keys, permits, lines, made: Vec::new(), acts: Vec::new() }
    }

    fn told(&self) -> String {
        let entries = self.made.iter().enumerate().map(|(nth, made)| {
            let Place { key, entry } = &made.request.place;
            format!("  {nth} is {entry} of client {} at {key}\n", made.client)
        });
        entries.chain(self.acts.iter().map(|act| format!("  {act:?}\n"))).collect()
    }

    async fn run(&mut self) -> Result<End, String> {
        for _ in 0..ACTS {
            let waited: Vec<Vec<EntryId>> = self.lines.iter().map(waiting).collect();
            self.let_leases_end(DOUBTFUL).await;
            let act = self.choose();
            self.acts.push(act.clone());
            if matches!(act, Act::LetShortLeasesEnd) {
                self.let_leases_end(SHORT * 2).await;
            }
            let ending = self.soonest_end();
            let answered = match self.act(act).await {
                Ok(()) => self.look_at_all(&waited).await,
                wrong => wrong,
            };
            if ending.into_iter().chain(self.soonest_end()).any(|end| end <= self.world.now()) {
                return Ok(End::Doubtful);
            }
            answered?;
        }
        Ok(End::Whole)
    }

    fn leases(&self) -> impl Iterator<Item = Ends> {
        self.lines.iter().flat_map(Line::members).map(|member| member.ends)
    }

    fn soonest_end(&self) -> Option<Moment> {
        self.leases().map(|ends| ends.at_the_earliest).min()
    }

    /// Waits until every lease has ended that may end within that span.
    async fn let_leases_end(&mut self, span: Duration) {
        let limit = self.world.now().after(span);
        let ending = self.leases().filter(|ends| ends.at_the_earliest <= limit).map(|ends| ends.at_the_latest).max();
        if let Some(last) = ending {
            self.world.pass(self.world.now().until(last) + Duration::from_millis(1)).await;
        }
        let now = self.world.now();
        self.lines.iter_mut().for_each(|line| line.leave_expired(now));
    }

    fn choose(&mut self) -> Act {
        let Some(last) = self.made.len().checked_sub(1) else { return self.choose_entering() };
        let (at, client) = (self.rng.usize(last.saturating_sub(5)..=last), self.rng.usize(..CLIENTS));
        match self.rng.u32(..100) {
            // What becomes of single leases cannot be asked of a store that has none.
            78..86 | 95.. if self.able.sessions => self.choose_entering(),
            ..45 => self.choose_entering(),
            45..55 => Act::Look { at, long: self.able.sessions || self.rng.bool() },
            55..58 => Act::Repeat { at },
            58..78 => Act::Leave { at, client },
            78..86 => {
                let others = 0..self.rng.usize(..3);
                let at = others.map(|_| self.rng.usize(..=last)).chain([at]).collect();
                Act::Renew { at, client }
            }
            86..91 => Act::AskToYield { at, client },
            91..95 if self.able.notes => Act::Annotate { at },
            _ => Act::LetShortLeasesEnd,
        }
    }

    fn choose_entering(&mut self) -> Act {
        let of = match self.permits[self.made.len() % self.keys.len()] {
            // Now and then somebody takes the key for something else than it is.
            of if self.rng.u32(..20) > 0 || !self.able.counted => of,
            None => NonZeroU32::new(2),
            Some(_) => None,
        };
        let claim = match of {
            Some(of) => {
                let count = NonZeroU32::new(self.rng.u32(1..=of.get())).unwrap();
                Claim::Permits { count, of }
            }
            None if self.able.shared && self.rng.u32(..3) > 0 => Claim::Shared,
            None => Claim::Exclusive,
        };
        let queues = self.rng.u32(..4) > 0;
        let patience = if queues { Patience::Queue } else { Patience::Refuse };
        let valued = self.able.notes && self.rng.u32(..10) == 0;
        let long = self.rng.u32(..3) > 0 || self.able.sessions;
        Act::Enter { claim, patience, long, valued }
    }

    async fn act(&mut self, act: Act) -> Result<(), String> {
        match act {
            Act::Enter { claim, patience, long, valued } => {
                let line = self.made.len() % self.keys.len();
                let place = Place { key: self.keys[line].clone(), entry: EntryId(self.rng.u128(..)) };
                let value = valued.then(|| Arc::from(*b"stands for"));
                let note = Note { owner: self.made.len().to_string().into(), host: "here".into(), pid: 1, value };
                let request = Request { place, claim, patience, terms: terms(long), note, returns: false };
                let client = self.rng.usize(..CLIENTS);
                self.made.push(Made { request, line, client, seen: Version(0) });
                self.enter(self.made.len() - 1, false).await
            }
            Act::Look { at, long } => {
                self.made[at].request.terms = terms(long);
                self.enter(at, true).await
            }
            Act::Repeat { at } if self.waits(at) => self.enter(at, false).await,
            Act::Leave { at, client } => {
                let place = &self.made[at].request.place;
                let said = self.stores[client].leave(place).await.map_err(|error| error.to_string())?;
                let line = &mut self.lines[self.made[at].line];
                let (unseen, expected) = (line.is_unseen(), line.leave(place.entry));
                // Nobody has seen yet that its turn has come.
                if unseen && (said, expected) == (Departure::WasWaiting, Departure::WasHolding) {
                    return Ok(());
                }
                same("leaving", &said, &expected)
            }
            Act::Renew { at, client } => self.renew(&at, client).await,
            Act::AskToYield { at, client } => {
                let place = &self.made[at].request.place;
                let said = self.stores[client].ask_to_yield(place).await.map_err(|error| error.to_string())?;
                same("asking", &said, &self.lines[self.made[at].line].ask_to_yield(place.entry))
            }
            Act::Annotate { at } => {
                let Made { request, client, line, .. } = &self.made[at];
                let value = Some(format!("noted {}", self.acts.len()).into_bytes().into());
                let note = Note { value, ..request.note.clone() };
                let said = self.stores[*client].annotate(&request.place, &note).await;
                let said = said.map_err(|error| error.to_string())?;
                same("annotating", &said, &self.lines[*line].annotate(request.place.entry, &note))
            }
            // One that is gone would be another entry under the same id, and one that was granted is not asked for again;
            // and whoever chose to wait has waited.
            Act::Repeat { .. } | Act::LetShortLeasesEnd => Ok(()),
        }
    }

    fn waits(&self, at: usize) -> bool {
        let (id, line) = (self.made[at].request.place.entry, &self.lines[self.made[at].line]);
        line.members().any(|member| member.id == id) && !line.holding().contains(&id)
    }

    async fn enter(&mut self, at: usize, returns: bool) -> Result<(), String> {
        let (world, stores) = (self.world, self.stores);
        let made = &mut self.made[at];
        let request = Request { returns, ..made.request.clone() };
        let sent_at = world.now();
        let answer = stores[made.client].enter(&request).await;
        let ends = Ends::of(request.terms.holding, sent_at, world.now());
        let line = &mut self.lines[made.line];
        let joins = line.members().all(|member| member.id != request.place.entry);
        let (said, expected) = (Entered::from_store(&answer)?, line.enter(&request, ends));
        let is_gone = returns && matches!(expected, Entered::Refused { .. });
        // Of one that is gone, a store may say who holds the key instead, or that it has become another kind of key.
        if !(is_gone && matches!(said, Entered::Refused { .. } | Entered::Mismatch(_))) {
            same("entering", &said, &expected)?;
        }
        match answer {
            Ok(Standing::Holding { ticket, token, lease }) => {
                same("whether there is a token", &token.is_some(), &request.claim.is_exclusive())?;
                same("the token", &token.map_or(ticket.0, leasehold::FencingToken::get), &ticket.0)?;
                if !self.able.sessions {
                    same("the lease", &lease.ttl, &request.terms.holding)?;
                }
                line.learn_ticket(request.place.entry, ticket)
            }
            Ok(Standing::Waiting { turn, seen, lease, .. }) => {
                made.seen = seen;
                match turn {
                    Some(turn) => line.learn_turn(request.place.entry, turn)?,
                    None if self.able.relays && joins => return Err("it does not say whom it is behind".into()),
                    None => {}
                }
                if self.able.sessions {
                    return Ok(());
                }
                same("the lease of the place", &lease.map(|lease| lease.ttl), &Some(request.terms.waiting))
            }
            _ => Ok(()),
        }
    }

    /// Renews for long: a lease that is asked to be shorter than it is may stay as it is.
    async fn renew(&mut self, at: &[usize], client: usize) -> Result<(), String> {
        let leases = at.iter().map(|at| self.made[*at].request.place.clone());
        let leases: Vec<Lease> = leases.map(|place| Lease { id: LeaseId::Entry(place), ttl: LONG }).collect();
        let sent_at = self.world.now();
        let answers = self.stores[client].renew(&leases).await.map_err(|error| error.to_string())?;
        let ends = Ends::of(LONG, sent_at, self.world.now());
        same("how many were renewed", &answers.len(), &leases.len())?;
        for (at, answer) in at.iter().zip(answers) {
            let Made { request, line, .. } = &self.made[*at];
            let said = match answer {
                Renewal::Renewed { ttl, yield_asked, waits } => {
                    same("the renewed lease", &ttl, &LONG)?;
                    if self.able.relays {
                        same("whether it waits", &waits, &self.waits(*at))?;
                    }
                    Some(yield_asked)
                }
                Renewal::Lost => None,
                Renewal::Unknown(error) => return Err(format!("a renewal failed: {error}")),
            };
            same("renewing", &said, &self.lines[*line].renew(request.place.entry, ends))?;
        }
        Ok(())
    }

    /// Compares all lines, and requires that those are told who waited and now hold.
    async fn look_at_all(&mut self, waited: &[Vec<EntryId>]) -> Result<(), String> {
        for (line, key) in self.lines.iter_mut().zip(&self.keys) {
            let store = &self.stores[self.rng.usize(..CLIENTS)];
            let (namespace, only) = (key.namespace().clone(), Some(key.clone()));
            let asked_at = self.world.now();
            let page = store.inspect(&Query { namespace, key: only, after: None, keys_max: 1 }).await;
            let page = page.map_err(|error| error.to_string())?;
            line.compare(page.items.first(), asked_at, self.world.now(), !self.able.sessions)?;
        }
        for (line, waited) in waited.iter().enumerate() {
            for granted in self.lines[line].holding().into_iter().filter(|id| waited.contains(id)) {
                self.is_told(granted).await?;
            }
        }
        Ok(())
    }

    async fn is_told(&mut self, granted: EntryId) -> Result<(), String> {
        let made = self.made.iter().find(|made| made.request.place.entry == granted);
        let Made { request, line, client, seen } = made.expect("whoever waits was made");
        let told = self.world.within(TOLD_MAX, self.stores[*client].changed(&request.place, seen)).await;
        match told {
            Some(Ok(Some(Standing::Holding { ticket, .. }))) => self.lines[*line].learn_ticket(granted, ticket),
            Some(Ok(None)) => Ok(()), // told to look
            other => Err(format!("{granted} has its turn and is told {other:?}")),
        }
    }
}

fn terms(long: bool) -> Terms {
    let ttl = if long { LONG } else { SHORT };
    Terms { holding: ttl, waiting: ttl }
}

/// Those who wait.
fn waiting(line: &Line) -> Vec<EntryId> {
    let holding = line.holding();
    line.members().map(|member| member.id).filter(|id| !holding.contains(id)).collect()
}
