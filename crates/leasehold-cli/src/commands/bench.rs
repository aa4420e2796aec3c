//! `leasehold bench`: how fast locks are on the store that is named, and how many of them it keeps.

mod ground;
mod held;
mod measure;
mod plan;
mod progress;
mod report;

use std::cell::{OnceCell, RefCell};
use std::time::Duration;

use leasehold::clock::{Clock, Moment, Timer};
use leasehold::{Guard, Locks};
use rustix::process::Signal;

use crate::args;
use crate::commands::run::Signals;
use crate::exit::{self, Failure};
use crate::settings::Settings;

use plan::{Part, Plan};
use progress::Progress;
use report::{Measured, Report};

/// The lease of what is not held for its own sake. A bench that is killed is forgotten after so long.
const TTL: Duration = Duration::from_secs(10);

/// How long the store is waited for to confirm that everything was given back: by then all leases are over.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(10);

/// Measures the store, leaves nothing on it, and returns the exit code.
pub(crate) async fn run(settings: &Settings, args: &args::Bench) -> anyhow::Result<u8> {
    // Before anything else, so that no signal is missed from here on.
    let mut signals = Signals::listen()?;
    let plan = Plan::new(args.time, args.keys)?;
    if settings.url().starts_with("memory:") {
        return Err(Failure::usage("the memory of this process is no store that others share: name another").into());
    }
    let timer = Timer::on_callers_runtime(Clock::boot());
    let progress = Progress::new(settings, &timer);
    let bench = Bench::new(settings, plan, &timer);
    let ended = {
        // Dropped before anything is given back: what was under way then leaves too.
        let work = Box::pin(progress.beside(bench.measure(&progress)));
        tokio::select! {
            biased;
            signal = signals.end() => Err(signal),
            report = work => Ok(report),
        }
    };
    progress.note("giving everything back");
    progress.beside(bench.clean_up()).await;
    match ended {
        Ok(report) => report?.write(settings.look, &mut std::io::stdout())?,
        Err(signal) => return Ok(ended_by(settings, signal)),
    }
    Ok(0)
}

fn ended_by(settings: &Settings, signal: Signal) -> u8 {
    settings.look.say("interrupted, so there is nothing to show");
    exit::by_signal(signal.as_raw())
}

/// What a bench has on the store.
struct Bench<'a> {
    settings: &'a Settings,
    plan: Plan,
    timer: &'a Timer,
    home: OnceCell<Locks>,
    /// As long as it is held, the keys are ours.
    turn: OnceCell<Guard>,
    /// Those of the part that is under way.
    clients: RefCell<Vec<Locks>>,
}

impl<'a> Bench<'a> {
    fn new(settings: &'a Settings, plan: Plan, timer: &'a Timer) -> Self {
        let (home, turn, clients) = (OnceCell::new(), OnceCell::new(), RefCell::default());
        Self { settings, plan, timer, home, turn, clients }
    }

    async fn measure(&self, progress: &Progress<'_>) -> anyhow::Result<Report> {
        let home = self.settings.connect_for(TTL).await?;
        let home = self.home.get_or_init(|| home);
        let turn = ground::claim(home).await?;
        self.turn.get_or_init(|| turn);
        let began = self.timer.now();
        progress.begin(began, self.plan);
        let mut report = Report::new(home.to_string(), self.plan);
        for part in Part::ALL {
            progress.note(part.title());
            let until = began.after(self.plan.ends(part));
            match part {
                Part::Alone | Part::Apart => {
                    let client = self.client(TTL).await?;
                    let timings = measure::pairs(self.timer, &client, part.tasks(), until).await?;
                    report.pairs.push(Measured { tasks: part.tasks(), keys: part.tasks(), timings });
                }
                Part::FewInLine | Part::ManyInLine => {
                    // Two, so that a hand-over goes through the store, as it does between processes.
                    let clients = [self.client(TTL).await?, self.client(TTL).await?];
                    let timings = measure::hand_overs(self.timer, &clients, part.tasks(), until).await?;
                    report.hand_overs.push(Measured { tasks: part.tasks(), keys: 1, timings });
                }
                Part::Held => {
                    let client = self.client(held::LEASE).await?;
                    report.held = Some(held::grow(self.timer, &client, self.plan.keys, until).await?);
                }
            }
            self.part_with_clients(began.after(self.plan.time)).await;
        }
        Ok(report)
    }

    /// A client for the part that is under way.
    async fn client(&self, ttl: Duration) -> anyhow::Result<Locks> {
        let client = self.settings.connect_for(ttl).await?;
        self.clients.borrow_mut().push(client.clone());
        Ok(client)
    }

    /// Waits until the store knows that the clients of a part have left every line. Those of which it does not confirm that
    /// while there is time to measure stay for the clean-up.
    async fn part_with_clients(&self, until: Moment) {
        let clients = self.clients.borrow().clone();
        if self.timer.within(self.timer.now().until(until), ground::close_all(&clients)).await.is_some() {
            self.clients.take();
        }
    }

    /// Leaves nothing on the store, or says that it may have.
    async fn clean_up(self) {
        let clients = self.clients.take();
        let work = async {
            ground::close_all(&clients).await;
            let Some(home) = self.home.get() else { return Ok(()) };
            let swept = if self.turn.get().is_some() { ground::sweep(home).await } else { Ok(()) };
            drop(self.turn);
            home.close().await;
            swept
        };
        let left = match self.timer.within(CLEAN_UP_LIMIT, work).await {
            Some(Ok(())) => return,
            Some(Err(error)) => error.to_string(),
            None => "the store does not confirm that everything was given back".into(),
        };
        exit::say(&format!("{left}; what is left under \"{}\" ends with its lease", ground::PREFIX));
    }
}
