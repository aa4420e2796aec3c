//! The steps of the protocol, and when each of them can be taken.

use stateright::{Model, Property};

use crate::properties;
use crate::rules::{Admitting, Clocks, Collected, Collecting, LateGrants, Planting, Renewal, Restart, Rules};
use crate::world::{ADMITTERS, Bond, Link, Lock, Node, Phase, Reply, World};

/// The protocol on `N` nodes with `A` attempts.
#[derive(Clone, Copy, Debug)]
pub struct Protocol<const N: usize, const A: usize> {
    /// Which rules are kept.
    pub rules: Rules,
    /// What can happen at most.
    pub bounds: Bounds,
    /// The names of the [properties] that are looked at.
    pub promises: &'static [&'static str],
}

/// What can happen at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The highest guess. Guesses are what clocks and memories of clients make of them, so every attempt may have any.
    pub guess_max: u8,
    /// How many GRANTs are carried out twice. Another COMMIT or RELEASE changes nothing, so only these matter.
    pub doubles: u8,
    /// How many nodes lose their memory.
    pub crashes: u8,
    /// How many clients re-admit nodes.
    pub admitters: usize,
    /// How often a lease is renewed.
    pub renewals: u8,
    /// How many requests for the lock raise a fence without having it.
    pub strays: u8,
}

impl Bounds {
    /// Nothing goes wrong but messages and leases.
    pub const CALM: Self = Self { guess_max: 3, doubles: 0, crashes: 0, admitters: 0, renewals: 0, strays: 0 };
    /// One node loses its memory.
    pub const ONE_CRASH: Self = Self { crashes: 1, admitters: 1, ..Self::CALM };
}

/// One step. Nodes go by their place in the state it is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields say which attempt, which node and which re-admission")]
pub enum Step {
    /// A client asks all nodes.
    Begin { attempt: usize, guess: u8 },
    /// A node grants. Where it had granted before, `answer` says which of both answers is the first to arrive.
    Grant { attempt: usize, node: usize, answer: Answer },
    /// A node raises its fence to a guess, whosever the lock is: asked in few words, it does not look.
    Raise { attempt: usize, node: usize },
    /// A client has enough grants for its guess, and believes.
    TakeGuess { attempt: usize },
    /// A client makes a token from the grants of the nodes in the set.
    FixToken { attempt: usize, nodes: u8 },
    /// A node raises its fence to the token.
    Commit { attempt: usize, node: usize },
    /// A client has enough commits, and believes.
    TakeToken { attempt: usize },
    /// A client releases, gives up, or its deadline passes before it was granted.
    End { attempt: usize },
    /// A node frees the lock: it was released, or its lease is over.
    Free { node: usize },
    /// A client asks all nodes for a longer lease.
    Renew { attempt: usize },
    /// A node extends.
    Extend { attempt: usize, node: usize },
    /// A node that does not have the lock takes it over.
    Plant { attempt: usize, node: usize },
    /// A client has enough extensions.
    Confirm { attempt: usize },
    /// The next deadline of a client passes.
    Pass { attempt: usize },
    /// A node loses its memory.
    Crash { node: usize },
    /// A client finds a blank node.
    Notice { admission: usize, node: usize },
    /// It has waited.
    Wait { admission: usize },
    /// It reads a fence.
    Collect { admission: usize, node: usize },
    /// The node takes the fence and an epoch from it.
    Admit { admission: usize, node: usize },
}

/// Which of two answers arrives first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This one.
    This,
    /// That of the time before.
    Former,
}

type Steps = Vec<Step>;

impl<const N: usize, const A: usize> Protocol<N, A> {
    const QUORUM: usize = World::<N, A>::QUORUM;

    fn attempt_steps(&self, world: &World<N, A>, attempt: usize, steps: &mut Steps) {
        let own = &world.attempts[attempt];
        match own.phase {
            // In order: attempts that differ only by which is called the first are the same.
            Phase::Waiting if world.attempts[..attempt].iter().all(|earlier| earlier.phase != Phase::Waiting) => {
                steps.extend((1..=self.bounds.guess_max).map(|guess| Step::Begin { attempt, guess }));
            }
            Phase::Waiting => return,
            Phase::Asking => {
                if world.count(attempt, |link| self.is_fresh(link, own.guess)) >= Self::QUORUM {
                    steps.push(Step::TakeGuess { attempt });
                }
                self.sets_of_grants(world, attempt, steps);
            }
            Phase::Committing => {
                let counts =
                    |link: &Link| link.committed || self.rules.late_grants == LateGrants::Counted && is_late(link);
                if world.count(attempt, counts) >= Self::QUORUM {
                    steps.push(Step::TakeToken { attempt });
                }
            }
            Phase::Holding if own.sent > own.confirmed => {
                if world.count(attempt, |link| link.extended) >= self.extensions_needed() {
                    steps.push(Step::Confirm { attempt });
                }
            }
            Phase::Holding if own.sent < self.bounds.renewals => steps.push(Step::Renew { attempt }),
            Phase::Holding | Phase::Over => {}
        }
        if !matches!(own.phase, Phase::Waiting | Phase::Over) {
            steps.push(Step::End { attempt });
            if self.bounds.renewals > 0 && own.passed <= own.sent {
                steps.push(Step::Pass { attempt });
            }
        }
        for node in 0..N {
            self.request_steps(world, attempt, node, steps);
        }
    }

    /// The requests of an attempt that would change a node. They arrive at any time after they were sent, whatever has
    /// become of the attempt.
    fn request_steps(&self, world: &World<N, A>, attempt: usize, node: usize, steps: &mut Steps) {
        let (own, at) = (&world.attempts[attempt], &world.nodes[node]);
        let link = &at.links[attempt];
        let arrives = match link.grants {
            0 => own.phase != Phase::Waiting,
            1 => world.doubles_left > 0,
            _ => false,
        };
        if arrives && at.lock.is_none() && self.grants(at) {
            steps.push(Step::Grant { attempt, node, answer: Answer::This });
            if link.reply.is_some() {
                steps.push(Step::Grant { attempt, node, answer: Answer::Former });
            }
        }
        if own.phase != Phase::Waiting && world.strays_left > 0 && at.fence < own.guess && self.grants(at) {
            steps.push(Step::Raise { attempt, node });
        }
        if own.token > 0 && self.commits(at, attempt, own.token) {
            steps.push(Step::Commit { attempt, node });
        }
        if own.phase == Phase::Holding && own.sent > 0 {
            let owned = at.lock.filter(|lock| usize::from(lock.owner) == attempt);
            if owned.is_some_and(|lock| lock.round < own.sent) {
                steps.push(Step::Extend { attempt, node });
            }
            let may_plant = self.rules.planting == Planting::Counted || own.confirmed == own.sent;
            if at.lock.is_none() && self.grants(at) && may_plant {
                steps.push(Step::Plant { attempt, node });
            }
        }
    }

    /// Every set of grants that may have arrived when the token is fixed, without enough of them for the guess.
    fn sets_of_grants(&self, world: &World<N, A>, attempt: usize, steps: &mut Steps) {
        let guess = world.attempts[attempt].guess;
        let links = || world.nodes.iter().map(|node| &node.links[attempt]);
        for nodes in 0_u8..1 << N {
            let counted = || links().enumerate().filter(|(node, _)| nodes >> node & 1 == 1).map(|(_, link)| link);
            let all_granted = counted().all(|link| link.reply.is_some());
            let fresh = counted().filter(|link| self.is_fresh(link, guess)).count();
            if all_granted && counted().count() >= Self::QUORUM && fresh < Self::QUORUM {
                steps.push(Step::FixToken { attempt, nodes });
            }
        }
    }

    fn admission_steps(&self, world: &World<N, A>, admission: usize, steps: &mut Steps) {
        let own = &world.admissions[admission];
        let nodes = || world.nodes.iter().enumerate();
        if own.incarnation.is_none() {
            let next = world.admissions[..admission].iter().all(|earlier| earlier.incarnation.is_some());
            let blank = nodes().filter(|(_, at)| next && at.epoch.is_none());
            steps.extend(blank.map(|(node, _)| Step::Notice { admission, node }));
            return;
        }
        let over = |(attempt, passed): (usize, &u8)| {
            world.attempts[attempt].phase == Phase::Over || world.attempts[attempt].passed >= *passed
        };
        if !own.waited && own.outstanding.iter().enumerate().all(over) {
            steps.push(Step::Wait { admission });
        }
        let enough = match self.rules.collected {
            Collected::Fewer => Self::QUORUM - 1,
            Collected::Quorum | Collected::BlankOnesToo => Self::QUORUM,
        };
        let read = nodes().filter(|(_, at)| at.bonds[admission].read).count();
        if read < enough && (own.waited || self.rules.collecting != Collecting::AfterTheWait) {
            let readable = |at: &Node<A>| at.epoch.is_some() || self.rules.collected == Collected::BlankOnesToo;
            let others = nodes().filter(|(_, at)| at.bonds[admission] == Bond::default() && readable(at));
            steps.extend(others.map(|(node, _)| Step::Collect { admission, node }));
        }
        if read == enough && (own.waited || self.rules.collecting == Collecting::WithoutAWait) {
            let (node, at) = nodes().find(|(_, at)| at.bonds[admission].blank).expect("it noticed one");
            let writes = match self.rules.admitting {
                Admitting::SameBlankNode => at.epoch.is_none() && own.incarnation == Some(at.incarnation),
                Admitting::AnyBlankNode => at.epoch.is_none(),
                Admitting::AnyNode => true,
            };
            if writes {
                steps.push(Step::Admit { admission, node });
            }
        }
    }

    fn is_fresh(&self, link: &Link, guess: u8) -> bool {
        let Some(reply) = link.reply else { return false };
        reply.prior < guess || !self.rules.strict_guess && reply.prior == guess
    }

    fn grants(&self, at: &Node<A>) -> bool {
        at.epoch.is_some() || self.rules.restart == Restart::Voting
    }

    fn commits(&self, at: &Node<A>, attempt: usize, token: u8) -> bool {
        let link = &at.links[attempt];
        let Some(reply) = link.reply else { return false };
        let sent = link.counted || self.rules.late_grants == LateGrants::Committed && is_late(link);
        let owned = at.lock.is_some_and(|lock| usize::from(lock.owner) == attempt) || !self.rules.owner_test;
        let same_epoch = at.epoch == Some(reply.epoch) || !self.rules.epoch_test;
        let higher = token > at.fence || !self.rules.strict_commit && token == at.fence && !link.committed;
        sent && owned && same_epoch && higher
    }

    fn extensions_needed(&self) -> usize {
        match self.rules.renewal {
            Renewal::Quorum => Self::QUORUM,
            Renewal::Fewer => Self::QUORUM - 1,
        }
    }

    fn may_free(&self, world: &World<N, A>, lock: Lock) -> bool {
        let owner = &world.attempts[usize::from(lock.owner)];
        self.rules.clocks == Clocks::Jumping || owner.phase == Phase::Over || lock.round < owner.passed
    }

    fn fix_token(&self, world: &mut World<N, A>, attempt: usize, nodes: u8) {
        let mut highest = world.attempts[attempt].guess;
        for (node, at) in world.nodes.iter_mut().enumerate() {
            let link = &mut at.links[attempt];
            link.counted = nodes >> node & 1 == 1;
            if let (true, Some(reply)) = (link.counted, link.reply) {
                highest = highest.max(reply.prior);
            }
        }
        if self.rules.write_back {
            world.attempts[attempt].phase = Phase::Committing;
            world.attempts[attempt].token = highest + 1;
        } else {
            world.grant(attempt, highest + 1, |link| link.counted);
        }
    }

    fn crash(&self, world: &mut World<N, A>, node: usize) {
        world.crashes_left -= 1;
        let at = &mut world.nodes[node];
        for (attempt, own) in world.attempts.iter().enumerate() {
            // What an attempt can still make of this node's word: a token, or a belief.
            let undecided = matches!(own.phase, Phase::Asking | Phase::Committing);
            let granted = undecided && at.links[attempt].reply.is_some();
            let held = at.lock.is_some_and(|lock| usize::from(lock.owner) == attempt);
            if granted || held {
                at.outstanding[attempt] = own.sent + 1;
            }
        }
        at.lock = None;
        at.fence = 0;
        at.epoch = at.epoch.filter(|_| self.rules.restart == Restart::Snapshot);
        at.incarnation += 1;
    }
}

/// A grant that was not among those from which the token was made.
fn is_late(link: &Link) -> bool {
    link.reply.is_some() && !link.counted
}

impl<const N: usize, const A: usize> Model for Protocol<N, A> {
    type State = World<N, A>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        vec![World::new(self.bounds.crashes, self.bounds.doubles, self.bounds.strays)]
    }

    fn actions(&self, world: &Self::State, steps: &mut Steps) {
        for attempt in 0..A {
            self.attempt_steps(world, attempt, steps);
        }
        for (node, at) in world.nodes.iter().enumerate() {
            if at.lock.is_some_and(|lock| self.may_free(world, lock)) {
                steps.push(Step::Free { node });
            }
            if world.crashes_left > 0 && at.epoch.is_some() {
                steps.push(Step::Crash { node });
            }
        }
        for admission in 0..self.bounds.admitters.min(ADMITTERS) {
            self.admission_steps(world, admission, steps);
        }
    }

    fn next_state(&self, world: &Self::State, step: Step) -> Option<Self::State> {
        let mut world = world.clone();
        match step {
            Step::Begin { attempt, guess } => {
                let (own, highest) = (&mut world.attempts[attempt], world.highest);
                (own.phase, own.guess, own.began_above) = (Phase::Asking, guess, highest);
            }
            Step::Grant { attempt, node, answer } => {
                let own = world.attempts[attempt];
                let at = &mut world.nodes[node];
                let reply = Reply { prior: at.fence, epoch: at.epoch.unwrap_or_default() };
                let link = &mut at.links[attempt];
                world.doubles_left -= link.grants;
                link.grants += 1;
                let undecided = matches!(own.phase, Phase::Asking | Phase::Committing);
                if answer == Answer::This && undecided && !link.counted {
                    link.reply = Some(reply);
                }
                at.lock = Some(Lock { owner: attempt as u8, round: 0 });
                if self.rules.guess_is_written {
                    at.fence = at.fence.max(own.guess);
                }
            }
            Step::Raise { attempt, node } => {
                world.nodes[node].fence = world.attempts[attempt].guess;
                world.strays_left -= 1;
            }
            Step::TakeGuess { attempt } => {
                let guess = world.attempts[attempt].guess;
                world.grant(attempt, guess, |link| self.is_fresh(link, guess));
            }
            Step::FixToken { attempt, nodes } => self.fix_token(&mut world, attempt, nodes),
            Step::Commit { attempt, node } => {
                let own = world.attempts[attempt];
                let at = &mut world.nodes[node];
                at.fence = own.token;
                at.links[attempt].committed = own.phase == Phase::Committing;
            }
            Step::TakeToken { attempt } => {
                let token = world.attempts[attempt].token;
                world.grant(attempt, token, |link| link.committed);
            }
            Step::End { attempt } => world.end(attempt),
            Step::Free { node } => world.nodes[node].lock = None,
            Step::Renew { attempt } => world.attempts[attempt].sent += 1,
            Step::Extend { attempt, node } | Step::Plant { attempt, node } => {
                let own = world.attempts[attempt];
                let at = &mut world.nodes[node];
                let extended = at.lock.is_some() || self.rules.planting == Planting::Counted;
                at.lock = Some(Lock { owner: attempt as u8, round: own.sent });
                at.links[attempt].extended = extended && own.sent > own.confirmed;
            }
            Step::Confirm { attempt } => {
                world.attempts[attempt].confirmed = world.attempts[attempt].sent;
                world.nodes.iter_mut().for_each(|at| at.links[attempt].extended = false);
            }
            Step::Pass { attempt } => {
                let own = &mut world.attempts[attempt];
                own.passed += 1;
                if own.phase != Phase::Holding || own.confirmed < own.passed {
                    world.end(attempt);
                }
            }
            Step::Crash { node } => self.crash(&mut world, node),
            Step::Notice { admission, node } => {
                let at = &mut world.nodes[node];
                at.bonds[admission].blank = true;
                let own = &mut world.admissions[admission];
                (own.incarnation, own.outstanding) = (Some(at.incarnation), at.outstanding);
            }
            Step::Wait { admission } => world.admissions[admission].waited = true,
            Step::Collect { admission, node } => {
                let at = &mut world.nodes[node];
                at.bonds[admission].read = true;
                let own = &mut world.admissions[admission];
                own.highest = own.highest.max(at.fence);
            }
            Step::Admit { admission, node } => {
                let highest = world.admissions[admission].highest;
                let at = &mut world.nodes[node];
                at.fence = highest;
                at.epoch = Some(at.incarnation);
            }
        }
        Some(world.in_order())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.promises.iter().map(|name| properties::named(name)).collect()
    }
}
