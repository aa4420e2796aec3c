//! What was measured, as tables and as JSON.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use super::held::{Ended, Held, LEASE, Step};
use super::measure::Timings;
use super::plan::Plan;
use crate::exit::without_secrets;
use crate::output::json::write_line;
use crate::output::table::{Cut, Table};
use crate::output::{Look, on_one_line};

/// What was measured.
pub(crate) struct Report {
    store: String,
    plan: Plan,
    pub(crate) pairs: Vec<Measured>,
    pub(crate) hand_overs: Vec<Measured>,
    pub(crate) held: Option<Held>,
}

/// What so many tasks came to on so many keys.
pub(crate) struct Measured {
    pub(crate) tasks: usize,
    pub(crate) keys: usize,
    pub(crate) timings: Timings,
}

impl Report {
    pub(crate) fn new(store: String, plan: Plan) -> Self {
        Self { store, plan, pairs: Vec::new(), hand_overs: Vec::new(), held: None }
    }

    pub(crate) fn write(&self, look: Look, out: &mut impl Write) -> anyhow::Result<()> {
        if look.json {
            return Ok(write_line(out, &self.json())?);
        }
        writeln!(out, "store  {}\n", on_one_line(&self.store))?;
        self.speed().write(out, look.width, look.color)?;
        if let Some(held) = &self.held {
            writeln!(out)?;
            steps(held).write(out, look.width, look.color)?;
            writeln!(out, "\n{}", conclusion(held))?;
        }
        Ok(())
    }

    fn speed(&self) -> Table {
        let mut table = Table::new([
            ("MEASURED", Cut::End),
            ("TASKS", Cut::Never),
            ("KEYS", Cut::Never),
            ("P50", Cut::Never),
            ("P99", Cut::Never),
            ("PER SECOND", Cut::Never),
            ("TIMES", Cut::Never),
        ])
        .with_numbers_from(1);
        for (what, measured) in [("lock and release", &self.pairs), ("release to next holder", &self.hand_overs)] {
            for Measured { tasks, keys, timings } in measured {
                let [p50, p99] = [50, 99].map(|percent| timings.percentile(percent).map_or_else(|| "-".into(), millis));
                let (per_second, count) = (timings.per_second().round() as u64, timings.count() as u64);
                let (tasks, keys) = (tasks.to_string(), keys.to_string());
                table.row([what.into(), tasks, keys, p50, p99, grouped(per_second), grouped(count)]);
            }
        }
        table
    }

    fn json(&self) -> ReportJson<'_> {
        ReportJson {
            store: &self.store,
            time_ms: self.plan.time.as_millis() as u64,
            keys: self.plan.keys,
            pairs: self.pairs.iter().map(TimingsJson::new).collect(),
            hand_overs: self.hand_overs.iter().map(TimingsJson::new).collect(),
            held: self.held.as_ref().map(HeldJson::new),
        }
    }
}

fn steps(held: &Held) -> Table {
    let mut table = Table::new([
        ("LOCKS HELD", Cut::Never),
        ("LOST", Cut::Never),
        ("RENEWED LATE P50", Cut::Never),
        ("P99", Cut::Never),
        ("LEAST LEASE LEFT", Cut::Never),
    ])
    .with_numbers_from(0);
    for Step { locks, lost, late, left } in &held.steps {
        // Whole milliseconds: they were not looked at more closely.
        let millis = |span: Duration| format!("{} ms", grouped(span.as_millis() as u64));
        let late = |percent| late.percentile(percent).map_or_else(|| "-".into(), millis);
        table.row([grouped(*locks as u64), grouped(*lost as u64), late(50), late(99), millis(*left)]);
    }
    table
}

fn conclusion(held: &Held) -> String {
    let why = match &held.ended {
        Ended::Keys => "the most that --keys allows".into(),
        Ended::Time => "there was no time for more".into(),
        Ended::Lost => "of more than that, some were lost".into(),
        Ended::Failed(error) => on_one_line(&format!("under more the store gave way: {}", said(error))),
    };
    format!("{} locks stayed held, with leases of {}s: {why}", grouped(held.most() as u64), LEASE.as_secs())
}

fn said(error: &leasehold::Error) -> String {
    without_secrets(&error.to_string())
}

/// `1,234,567`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

/// `0.214 ms`
fn millis(span: Duration) -> String {
    let micros = span.as_micros() as u64;
    format!("{}.{:03} ms", grouped(micros / 1000), micros % 1000)
}

#[derive(Serialize)]
struct ReportJson<'a> {
    store: &'a str,
    time_ms: u64,
    keys: usize,
    pairs: Vec<TimingsJson>,
    hand_overs: Vec<TimingsJson>,
    held: Option<HeldJson>,
}

#[derive(Serialize)]
struct TimingsJson {
    tasks: usize,
    keys: usize,
    count: usize,
    per_second: f64,
    /// `None` if nothing was measured.
    took_us_p50: Option<u64>,
    took_us_p99: Option<u64>,
}

impl TimingsJson {
    fn new(Measured { tasks, keys, timings }: &Measured) -> Self {
        Self {
            tasks: *tasks,
            keys: *keys,
            count: timings.count(),
            per_second: (timings.per_second() * 10.0).round() / 10.0,
            took_us_p50: timings.percentile(50).map(micros),
            took_us_p99: timings.percentile(99).map(micros),
        }
    }
}

#[derive(Serialize)]
struct HeldJson {
    lease_ms: u64,
    most: usize,
    ended: &'static str,
    /// What the store failed with, if it did.
    error: Option<String>,
    steps: Vec<StepJson>,
}

impl HeldJson {
    fn new(held: &Held) -> Self {
        let (ended, error) = match &held.ended {
            Ended::Keys => ("keys", None),
            Ended::Time => ("time", None),
            Ended::Lost => ("lost", None),
            Ended::Failed(error) => ("failed", Some(said(error))),
        };
        let steps = held.steps.iter().map(StepJson::new).collect();
        Self { lease_ms: LEASE.as_millis() as u64, most: held.most(), ended, error, steps }
    }
}

#[derive(Serialize)]
struct StepJson {
    locks: usize,
    lost: usize,
    late_us_p50: Option<u64>,
    late_us_p99: Option<u64>,
    lease_left_us_min: u64,
}

impl StepJson {
    fn new(Step { locks, lost, late, left }: &Step) -> Self {
        Self {
            locks: *locks,
            lost: *lost,
            late_us_p50: late.percentile(50).map(micros),
            late_us_p99: late.percentile(99).map(micros),
            lease_left_us_min: micros(*left),
        }
    }
}

fn micros(span: Duration) -> u64 {
    span.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_shown_in_groups_of_three_digits() {
        let shown = [0, 7, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!(millis(Duration::from_micros(1_234_056)), "1,234.056 ms");
    }
}
