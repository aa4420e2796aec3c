//! Runs scenarios: all of them on all their seeds, or one on one seed with its trace.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use leasehold::clock::Clock;
use leasehold_simulation::invariants::Invariant;
use leasehold_simulation::record::Record;
use leasehold_simulation::scenario::Scenario;
use leasehold_simulation::world;

const USAGE: &str = "usage: leasehold-simulation [--scenario NAME] [--seed N | --seeds COUNT]";

fn main() -> ExitCode {
    let done = Args::parse(std::env::args().skip(1)).and_then(|args| {
        let mut scenarios = match args.scenario {
            Some(name) => vec![Scenario::named(&name)?],
            None => Scenario::all()?,
        };
        if let Some(seeds) = args.seeds {
            scenarios.iter_mut().for_each(|scenario| scenario.seeds = seeds);
        }
        match args.seed {
            Some(seed) => scenarios.iter().try_for_each(|scenario| replay(scenario, seed)),
            None => run_all(&scenarios),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// What was asked for.
#[derive(Default)]
struct Args {
    scenario: Option<String>,
    /// One run, with its trace.
    seed: Option<u64>,
    /// So many runs of each scenario, instead of as many as it says.
    seeds: Option<u64>,
}

impl Args {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let number = |value: &str| value.parse().map_err(|_| format!("{value} is no number\n{USAGE}"));
        let mut parsed = Self::default();
        while let Some(arg) = args.next() {
            let value = args.next().ok_or(USAGE)?;
            match arg.as_str() {
                "--scenario" => parsed.scenario = Some(value),
                "--seed" => parsed.seed = Some(number(&value)?),
                "--seeds" => parsed.seeds = Some(number(&value)?),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(parsed)
    }
}

/// One run, with everything that happened in it.
fn replay(scenario: &Scenario, seed: u64) -> Result<(), String> {
    let outcome = world::run(scenario, seed, Record::with_trace());
    for line in outcome.record.lines() {
        println!("{line}");
    }
    println!(
        "{}, seed {seed}: {} grants, trace {:016x}",
        scenario.name,
        outcome.record.grants().len(),
        outcome.record.digest()
    );
    for (invariant, how) in &outcome.broken {
        println!("{invariant:?} is broken: {how}");
    }
    match outcome.broken.keys().find(|broken| scenario.promised.contains(broken)) {
        None => Ok(()),
        Some(broken) => Err(format!("{}: {broken:?} was promised", scenario.name)),
    }
}

/// What came of all runs of one scenario.
#[derive(Default)]
struct Tally {
    grants: usize,
    /// For each invariant: how many runs broke it, and the first seed that did, with how.
    broken: BTreeMap<Invariant, (usize, u64, String)>,
}

fn run_all(scenarios: &[Scenario]) -> Result<(), String> {
    let began = Clock::boot().now();
    let runs: Vec<(usize, u64)> = scenarios
        .iter()
        .enumerate()
        .flat_map(|(nth, scenario)| (0..scenario.seeds).map(move |seed| (nth, seed)))
        .collect();
    let tallies: Vec<Mutex<Tally>> = scenarios.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((nth, seed)) = runs.get(next.fetch_add(1, Relaxed)) {
                    let outcome = world::run(&scenarios[*nth], *seed, Record::default());
                    let mut tally = tallies[*nth].lock().expect("no panic under this lock");
                    tally.grants += outcome.record.grants().len();
                    for (invariant, how) in outcome.broken {
                        let (count, first, told) = tally.broken.entry(invariant).or_insert((0, *seed, how.clone()));
                        *count += 1;
                        if seed < first {
                            (*first, *told) = (*seed, how);
                        }
                    }
                }
            });
        }
    });
    let mut failures = Vec::new();
    for (scenario, tally) in scenarios.iter().zip(tallies) {
        let tally = tally.into_inner().expect("no panic under this lock");
        failures.extend(judge(scenario, &tally));
    }
    println!("{} runs in {:.1} s", runs.len(), began.until(Clock::boot().now()).as_secs_f64());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n\n")) }
}

/// Says what came of a scenario, and what should not have.
fn judge(scenario: &Scenario, tally: &Tally) -> Vec<String> {
    let Scenario { name, seeds, about, .. } = scenario;
    println!("{name}: {seeds} seeds, {} grants: {about}", tally.grants);
    for (invariant, (count, seed, _)) in &tally.broken {
        println!("    {invariant:?} is broken by {count} seeds, first by {seed}");
    }
    let mut failures = Vec::new();
    for promised in &scenario.promised {
        if let Some((_, seed, how)) = tally.broken.get(promised) {
            let replay = format!("cargo xtask simulate --scenario {name} --seed {seed}");
            failures.push(format!("{name}: {promised:?} is promised, and broken: {how}\nreplay it with `{replay}`"));
        }
    }
    for control in scenario.violated.iter().filter(|control| !tally.broken.contains_key(control)) {
        failures.push(format!("{name}: no run broke {control:?}, which this scenario must: the simulation is blind"));
    }
    if tally.grants == 0 {
        failures.push(format!("{name}: nobody got a lock, so nothing was tried"));
    }
    failures
}
