//! Everything that is measured, the same on every store.

mod hand_over;
mod held;
mod pairs;

use std::time::Duration;

use leasehold_testbed::interop::Peer;

use crate::contender::Rival;
use crate::sample::{Sample, Work};
use crate::stores::Store;

/// How much of it is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
    /// Tasks with a lock each.
    pub(crate) tasks: &'static [usize],
    /// Tasks on one lock.
    pub(crate) crowds: &'static [usize],
    /// Hand-overs with one in line, in each round, and in a line, in all.
    pub(crate) turns: usize,
    pub(crate) hand_overs: usize,
    pub(crate) waiters: &'static [usize],
    pub(crate) held: &'static [usize],
    pub(crate) names: &'static [usize],
    pub(crate) clients: &'static [usize],
    /// How long one step of growth may take: then no further rounds of it are begun.
    pub(crate) step_max: Duration,
}

impl Plan {
    /// Everything.
    pub(crate) fn whole() -> Self {
        Self {
            rounds: 7,
            round: Duration::from_millis(400),
            tasks: &[1, 4, 16, 64],
            crowds: &[16],
            turns: 30,
            hand_overs: 500,
            waiters: &[2, 10, 100, 1000, 10_000],
            held: &[1, 100, 1000, 10_000, 100_000],
            names: &[8, 64, 256, 500],
            clients: &[1, 4, 16, 64],
            step_max: Duration::from_secs(60),
        }
    }

    /// What is checked by limits: enough to see that something has become many times slower, or sends more than it did.
    pub(crate) fn short() -> Self {
        Self {
            rounds: 5,
            round: Duration::from_millis(200),
            tasks: &[1],
            crowds: &[],
            turns: 0,
            hand_overs: 200,
            waiters: &[2, 50],
            held: &[],
            names: &[],
            clients: &[],
            step_max: Duration::from_secs(60),
        }
    }
}

/// A store under measurement, and what it has come to so far.
pub(crate) struct Bench<'a> {
    pub(crate) plan: &'a Plan,
    store: &'a dyn Store,
    url: String,
    pub(crate) samples: Vec<Sample>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(plan: &'a Plan, store: &'a dyn Store) -> Self {
        Self { plan, store, url: store.url(), samples: Vec::new() }
    }

    /// All works in turn.
    pub(crate) async fn run(&mut self, rivals: &mut [Rival]) {
        // First, while our process is small: later it has memory to use again, and hardly grows.
        held::held(self, &rivals[0]).await;
        self.store.rest();
        pairs::pairs(self, rivals).await;
        self.pair_requests(&rivals[0]).await;
        pairs::crowd(self, rivals).await;
        if self.plan.turns > 0 {
            hand_over::turns(self, rivals).await;
        }
        hand_over::lines(self, &rivals[0]).await;
        pairs::names(self, &rivals[0]).await;
        pairs::clients(self, &rivals[0]).await;
        self.samples.extend(self.store.more(self.plan).await);
    }

    /// What the store is sent for one lock and its release, once everything is known that there is to know.
    async fn pair_requests(&mut self, ours: &Rival) {
        const PAIRS: usize = 200;
        let Some((client, _)) = ours.client() else { return };
        let mut lock = client.lock("counted");
        let counted = self.requests();
        for _ in 0..PAIRS {
            lock.take().await;
            lock.give().await;
        }
        if let Some(requests) = counted.since(self) {
            self.add(Work::PairRequests, ours.name, 1, requests / PAIRS as f64);
        }
    }

    fn add(&mut self, work: Work, name: &str, at: usize, value: f64) {
        let same = |sample: &&mut Sample| sample.work == work && sample.name == name && sample.at == at;
        match self.samples.iter_mut().find(same) {
            Some(sample) => sample.rounds.push(value),
            None => self.samples.push(Sample { work, name: name.into(), at, rounds: vec![value] }),
        }
    }

    /// Shows what is measured next.
    fn progress(&self, work: Work, name: &str, at: usize) {
        crate::progress::show(&format!("{}: {}, {name}, {at} {}", self.store.name(), work.title(), work.of_what()));
    }

    fn note(&self, text: &str) {
        crate::progress::say(&format!("{}: {text}", self.store.name()));
    }

    /// Begins to count what the store is sent.
    fn requests(&self) -> Counted {
        let asked = self.store.requests();
        let began = self.store.requests();
        // Asking may count as well.
        Counted { began, asking: asked.zip(began).map(|(asked, began)| began - asked) }
    }
}

struct Counted {
    began: Option<u64>,
    asking: Option<u64>,
}

impl Counted {
    /// How many requests the store has had since then, if it counts them.
    fn since(&self, bench: &Bench<'_>) -> Option<f64> {
        Some((bench.store.requests()? - self.began? - self.asking?) as f64)
    }
}

/// Pairs a second of a process that times itself, in about the time of a round.
fn timed_by_peer(bench: &Bench<'_>, peer: &mut Peer, prefix: &str) -> f64 {
    const TRIED: usize = 20;
    let key = format!("{prefix}pair");
    let mut rate = |times: usize| times as f64 / peer.pairs(&key, times).expect("timed").as_secs_f64();
    tokio::task::block_in_place(|| {
        let about = rate(TRIED) * bench.plan.round.as_secs_f64();
        rate((about as usize).max(TRIED))
    })
}
