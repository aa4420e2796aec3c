//! A run: clients that contend, troubles that befall them, and what is looked at when it is over.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select};
use leasehold::backend::redlock::{Redlock, Settings};
use leasehold::clock::{Clock, Timer};
use leasehold::{Guard, Held, Locks, Result, SharedGuard};

use crate::invariants::Invariant;
use crate::network::Net;
use crate::record::{Grant, Record};
use crate::scenario::{Scenario, Trouble};

/// The longest lease of the store: how long a server stays out that forgot.
const LONGEST: Duration = Duration::from_secs(3);

/// Within this everybody gets the lock when all is well: the servers are back, and whatever was left has ended.
const WELL_WITHIN: Duration = Duration::from_secs(12);

/// No run takes longer, in its own time.
const RUN_MAX: Duration = Duration::from_secs(600);

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What happened.
    pub record: Record,
    /// Which invariants it broke, and how.
    pub broken: BTreeMap<Invariant, String>,
}

/// One run of a scenario. The same seed always takes the same course.
pub fn run(scenario: &Scenario, seed: u64, record: Record) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::runtime();
        let timer = Timer::on_callers_runtime(clock.clone());
        let world = World::new(scenario.clone(), seed, clock, record.clone());
        if timer.within(RUN_MAX, world.play()).await.is_none() {
            record.complain(format!("stuck: the run was not over after {RUN_MAX:?}"));
        }
    });
    let broken = Invariant::ALL.into_iter().filter_map(|one| Some((one, one.broken_by(&record)?))).collect();
    Outcome { record, broken }
}

struct World {
    scenario: Scenario,
    clock: Clock,
    net: Arc<Net>,
    chance: Mutex<fastrand::Rng>,
    over: AtomicBool,
}

impl World {
    fn new(scenario: Scenario, seed: u64, clock: Clock, record: Record) -> Arc<Self> {
        let mut chance = fastrand::Rng::with_seed(seed);
        let rate = scenario.clocks.server_rate.unwrap_or(1.0);
        let drift = scenario.clocks.server_drift / 1000.0;
        let rates: Vec<f64> = (0..scenario.servers).map(|_| rate + drift * (2.0 * chance.f64() - 1.0)).collect();
        let timer = Timer::on_callers_runtime(clock.clone());
        let net = Net::new(timer, record, scenario.network, &rates, scenario.flaw, chance.u64(..));
        Arc::new(Self { scenario, clock, net, chance: Mutex::new(chance), over: AtomicBool::new(false) })
    }

    fn chance<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.chance.lock().expect("no panic under this lock"))
    }

    fn up_to_ms(&self, ms: u64) -> Duration {
        Duration::from_micros(self.chance(|chance| chance.u64(0..=ms * 1000)))
    }

    async fn pass(&self, span: Duration) {
        self.net.timer.sleep(span).await;
    }

    async fn play(self: Arc<Self>) {
        let mut contenders = Vec::new();
        for _ in 0..self.scenario.clients {
            let contender = self.start_client(contenders.is_empty()).await;
            (0..self.scenario.servers).for_each(|server| self.net.snapshot(server));
            contenders.push(tokio::spawn(self.clone().contend(contender)));
        }
        let troubles = tokio::spawn(self.clone().make_trouble());
        self.pass(Duration::from_secs(self.scenario.seconds)).await;
        self.over.store(true, Relaxed);
        let _ = troubles.await;
        self.net.heal();
        let mut survivors = Vec::new();
        for contender in contenders {
            survivors.push(contender.await.expect("a contender does not panic"));
        }
        let living = self.net.living();
        survivors.retain(|contender| living.contains(&contender.client));
        for survivor in &survivors {
            self.must_get_everything(survivor).await;
        }
        self.pass(2 * LONGEST).await;
        for server in 0..self.scenario.servers {
            let held = self.net.held(server);
            if held > 0 {
                self.net.record.complain(format!("left behind: {held} locks on server {server}"));
            }
        }
    }

    /// One more client, as soon as the servers let it.
    async fn start_client(&self, first: bool) -> Contender {
        loop {
            let (client, nodes) = self.net.client();
            let (clock, hand) = Clock::moved_by_hand(self.clock.clone());
            let clocks = self.scenario.clocks;
            hand.run_at(1.0 + clocks.client_drift / 1000.0 * self.chance(|chance| 2.0 * chance.f64() - 1.0));
            hand.step_wall(self.up_to_ms(clocks.client_skew_ms));
            let settings = Settings {
                name: format!("client {client}"),
                clock: clock.clone(),
                seed: Some(self.chance(|chance| chance.u64(..))),
                longest: LONGEST,
                accept_blank: first,
                in_order: false,
            };
            if let Ok(store) = Redlock::over(nodes, settings).await {
                let seed = self.chance(|chance| chance.u64(..));
                let locks = Locks::on(store).clock(clock).namespace("s").ttl(Scenario::TTL).seed(seed);
                let locks = locks.connect().await.expect("the settings are fine");
                self.net.note(format_args!("client {client} has started"));
                return Contender { client, locks };
            }
            self.net.note(format_args!("client {client} cannot start"));
            self.net.kill(client);
            self.pass(Duration::from_millis(200)).await;
        }
    }

    /// Takes locks and gives them up, until the run is over. Whoever dies is followed by another.
    async fn contend(self: Arc<Self>, mut contender: Contender) -> Contender {
        while !self.over.load(Relaxed) {
            let died = {
                let turn = pin!(self.take_a_turn(&contender));
                matches!(select(turn, pin!(self.net.death(contender.client))).await, Either::Right(_))
            };
            if died {
                // Its locks are not given up: it is dead, and nothing of it reaches a server.
                contender = self.start_client(false).await;
            }
        }
        contender
    }

    async fn take_a_turn(&self, contender: &Contender) {
        let client = contender.client;
        self.pass(self.up_to_ms(400)).await;
        self.net.awake(client).await;
        let key = self.chance(|chance| chance.usize(0..self.scenario.keys));
        let shared = self.chance(fastrand::Rng::f64) < self.scenario.sharing;
        let limit = self.up_to_ms(5000);
        let impatient = self.chance(|chance| chance.u8(0..10)) == 0;
        let asked = self.net.now();
        let taken = {
            let taking = contender.take(key, shared, limit);
            if impatient {
                // It is dropped in the middle, wherever that is.
                self.net.timer.within(self.up_to_ms(50), taking).await.unwrap_or(Ok(None))
            } else {
                taking.await
            }
        };
        self.net.awake(client).await;
        match taken {
            Ok(Some(lock)) => self.hold(client, key, asked, lock).await,
            Ok(None) => {}
            Err(error) => self.net.note(format_args!("client {client} gets no lock: {:?}", error.kind())),
        }
    }

    async fn hold(&self, client: usize, key: usize, asked: Duration, lock: Lock) {
        if lock.held().check().is_err() {
            return;
        }
        let (granted, token) = (self.net.now(), lock.token());
        let shared = token.is_none();
        self.net.note(format_args!("client {client} has key {key}, token {token:?}"));
        let nth = self.net.record.granted(Grant { key, client, shared, asked, granted, believed: granted, token });
        let long = self.chance(|chance| chance.u8(0..10)) == 0;
        let until = granted + self.up_to_ms(if long { 5000 } else { 300 });
        while self.net.now() < until {
            self.pass(Duration::from_millis(1) + self.up_to_ms(40)).await;
            self.net.awake(client).await;
            if lock.held().check().is_err() {
                self.net.note(format_args!("client {client} has lost key {key}"));
                return;
            }
            self.net.record.believes(nth, self.net.now());
        }
        self.net.note(format_args!("client {client} gives up key {key}"));
        let dropped = self.chance(|chance| chance.u8(0..4)) == 0;
        if !dropped && let Err(error) = lock.release().await {
            self.net.note(format_args!("client {client} could not give it up: {:?}", error.kind()));
        }
    }

    async fn must_get_everything(&self, survivor: &Contender) {
        let began = self.net.now();
        for key in 0..self.scenario.keys {
            let mut last = String::from("it was taken all the time");
            let got = loop {
                let waited = self.net.now() - began;
                if waited > WELL_WITHIN {
                    break None;
                }
                match survivor.take(key, false, WELL_WITHIN - waited).await {
                    Ok(Some(lock)) => break Some(lock),
                    Ok(None) => {}
                    Err(error) => last = error.to_string(),
                }
                self.pass(Duration::from_millis(100)).await;
            };
            match got {
                // Servers that failed a moment ago are told in the background, so this may have no answer yet.
                Some(lock) => drop(lock.release().await),
                None => {
                    let client = survivor.client;
                    self.net.record.complain(format!("stuck: client {client} did not get key {key}: {last}"));
                }
            }
        }
    }

    async fn make_trouble(self: Arc<Self>) {
        if self.scenario.troubles.is_empty() {
            return;
        }
        while !self.over.load(Relaxed) {
            self.pass(self.up_to_ms(self.scenario.trouble_every_ms)).await;
            let nth = self.chance(|chance| chance.usize(0..self.scenario.troubles.len()));
            self.befall(self.scenario.troubles[nth]);
            self.net.snapshot(self.chance(|chance| chance.usize(0..self.scenario.servers)));
        }
    }

    fn befall(&self, trouble: Trouble) {
        let (net, scenario) = (&self.net, &self.scenario);
        let server = self.chance(|chance| chance.usize(0..scenario.servers));
        let living = net.living();
        // While all are dead and their successors not yet begun, there is nobody to befall.
        let Some(client) = self.chance(|chance| chance.choice(living)) else { return };
        let down = self.up_to_ms(300);
        let may_forget = scenario.servers - net.ready() < scenario.forgetful_max;
        match trouble {
            Trouble::PauseClient => net.pause(client, self.up_to_ms(4000)),
            Trouble::KillClient => net.kill(client),
            Trouble::StopServer => net.stop(server, self.up_to_ms(4000)),
            Trouble::Partition => net.cut(client, server, self.up_to_ms(4000)),
            Trouble::RestartBlank if may_forget => {
                net.flush(server);
                net.restart(server, down, false);
            }
            Trouble::RestartRemembering => net.restart(server, down, false),
            Trouble::RestartSnapshot if may_forget => net.restart(server, down, true),
            Trouble::Flush if may_forget => net.flush(server),
            Trouble::ClockAhead => net.step_clock(server, self.up_to_ms(4000).as_secs_f64() * 1000.0),
            Trouble::ClockBack => net.step_clock(server, self.up_to_ms(1000).as_secs_f64() * -1000.0),
            Trouble::RestartBlank | Trouble::RestartSnapshot | Trouble::Flush => {}
        }
    }
}

/// A client that wants locks.
struct Contender {
    client: usize,
    locks: Locks,
}

/// What it has.
enum Lock {
    Alone(Guard),
    Shared(SharedGuard),
}

impl Contender {
    async fn take(&self, key: usize, shared: bool, limit: Duration) -> Result<Option<Lock>> {
        let lock = self.locks.rw_lock(format!("k{key}"))?;
        if shared {
            Ok(lock.read_within(limit).await?.map(Lock::Shared))
        } else {
            Ok(lock.write_within(limit).await?.map(Lock::Alone))
        }
    }
}

impl Lock {
    fn held(&self) -> &Held {
        match self {
            Self::Alone(guard) => guard,
            Self::Shared(guard) => guard,
        }
    }

    fn token(&self) -> Option<u64> {
        match self {
            Self::Alone(guard) => Some(guard.token().get()),
            Self::Shared(_) => None,
        }
    }

    async fn release(self) -> Result<()> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
        }
    }
}
