//! Everything that must hold before a change is merged, in one command.

use std::time::Duration;

use crate::{Result, check, interleavings, mutants, setup, sh, simulate};

/// More threads than cores: the cases in real time mostly sleep, and together take as long as the slowest.
const TESTS: &str = "test --workspace --all-features --locked --no-fail-fast -- --test-threads=8";

/// What is done, and what does it.
type Step = (&'static str, fn() -> Result);

const STEPS: [Step; 7] = [
    ("set-up: what is missing", setup::run),
    ("check: formatting, lints, dependencies, tidiness", check::run),
    ("docs: they build without a warning", build_docs),
    ("tests: unit, conformance, examples, documentation", run_tests),
    ("simulation: the whole client over simulated servers", || simulate::run(&[])),
    ("interleavings: thread schedules of the lease machinery", interleavings::run),
    ("mutants: the tests notice broken code", || mutants::run(&[])),
];

pub(crate) fn run() -> Result {
    let mut took: Vec<(&str, Duration)> = Vec::new();
    for (nth, (step, work)) in STEPS.iter().enumerate() {
        eprintln!("\n[{}/{}] {step}", nth + 1, STEPS.len());
        let watch = sh::Stopwatch::start();
        work().map_err(|failure| format!("step {} of {} ({step}) failed: {failure}", nth + 1, STEPS.len()))?;
        took.push((step, watch.elapsed()));
    }
    eprintln!("\nall is well");
    for (step, took) in took {
        eprintln!("  {:>6.1} s  {step}", took.as_secs_f64());
    }
    Ok(())
}

/// In CI nothing is built a second time, and what cargo would keep for that is more than all the rest: 8 GB.
fn run_tests() -> Result {
    let mut tests = sh::cargo(TESTS);
    if std::env::var_os("CI").is_some() {
        tests.env("CARGO_INCREMENTAL", "0");
    }
    sh::run(&mut tests)
}

fn build_docs() -> Result {
    sh::run(sh::cargo("doc --workspace --no-deps --all-features --locked").env("RUSTDOCFLAGS", "-D warnings"))
}
