//! What was measured, and what it comes to.

use serde::{Deserialize, Serialize};

use crate::plot::grouped;

/// Whatever everybody is compared with.
pub(crate) const BARE: &str = "bare";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// So many tasks take and give back, each a lock of its own.
    Pairs,
    /// So many tasks take and give back one lock.
    Crowd,
    /// How often the slowest task of a crowd had it for each time that the fastest had it.
    Fairness,
    /// Time from a release to the next holder, with so many in line.
    HandOver,
    /// What one in a hundred of those takes at least.
    HandOverTail,
    /// A bare request after the pause that comes before such a release: what a trip takes when everybody has slept.
    Trip,
    /// What the store was sent for a lock that was taken and given back.
    PairRequests,
    /// What the store was sent for each hand-over, with so many in line.
    HandOverRequests,
    /// Taking and giving back one lock while so many others are held.
    BesideHeld,
    /// What the store is sent each second to keep so many held.
    Renewals,
    /// Share of one core that this takes our process.
    RenewalLoad,
    /// Memory of our process for each held lock.
    HeldMemory,
    /// Taking and giving back a lock whose name is so long.
    NameLength,
    /// So many clients, each with a connection and a task of its own, take and give back.
    Clients,
    /// What one in a hundred takes at least of a lock on several servers, so many of which are silent.
    Silent,
    /// A command that does nothing, run under a lock by a program.
    Program,
}

impl Work {
    /// All of them, in the order of a report.
    pub(crate) const ALL: [Self; 16] = [
        Self::Pairs,
        Self::PairRequests,
        Self::Crowd,
        Self::Fairness,
        Self::HandOver,
        Self::HandOverTail,
        Self::Trip,
        Self::HandOverRequests,
        Self::BesideHeld,
        Self::Renewals,
        Self::RenewalLoad,
        Self::HeldMemory,
        Self::NameLength,
        Self::Clients,
        Self::Silent,
        Self::Program,
    ];

    /// As a heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Pairs => "lock and release, each task its own lock",
            Self::Crowd => "lock and release, all tasks one lock",
            Self::Fairness => "slowest task against the fastest, all tasks one lock",
            Self::HandOver => "release to the next holder, p50",
            Self::HandOverTail => "release to the next holder, p99",
            Self::Trip => "a bare request after a pause, as before a release to one waiter, p50",
            Self::PairRequests => "requests for a lock and its release",
            Self::HandOverRequests => "requests for each hand-over, the next turn's request to join included",
            Self::BesideHeld => "lock and release beside held locks",
            Self::Renewals => "requests to keep locks held",
            Self::RenewalLoad => "processor time to keep locks held",
            Self::HeldMemory => "memory of a held lock",
            Self::NameLength => "lock and release, by the length of the name",
            Self::Clients => "lock and release, each client its own lock",
            Self::Silent => "taking a lock on five servers, p99",
            Self::Program => "running `true` under a lock",
        }
    }

    /// As the name of a file.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Crowd => "crowd",
            Self::Fairness => "fairness",
            Self::HandOver => "hand-over",
            Self::HandOverTail => "hand-over-tail",
            Self::Trip => "trip",
            Self::PairRequests => "pair-requests",
            Self::HandOverRequests => "hand-over-requests",
            Self::BesideHeld => "beside-held",
            Self::Renewals => "renewals",
            Self::RenewalLoad => "renewal-load",
            Self::HeldMemory => "held-memory",
            Self::NameLength => "name-length",
            Self::Clients => "clients",
            Self::Silent => "silent",
            Self::Program => "program",
        }
    }

    /// What it is measured in.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Pairs | Self::Crowd | Self::Clients => "pairs/s",
            Self::Fairness => "of the fastest",
            Self::HandOver | Self::HandOverTail | Self::Trip | Self::Silent => "µs",
            Self::PairRequests | Self::HandOverRequests => "requests",
            Self::BesideHeld | Self::NameLength => "µs a pair",
            Self::Renewals => "requests/s",
            Self::RenewalLoad => "% of a core",
            Self::HeldMemory => "KiB",
            Self::Program => "ms",
        }
    }

    /// What there are more and more of.
    pub(crate) fn of_what(self) -> &'static str {
        match self {
            Self::Pairs | Self::Crowd | Self::Fairness | Self::PairRequests => "tasks",
            Self::HandOver | Self::HandOverTail | Self::HandOverRequests => "waiters",
            Self::BesideHeld | Self::Renewals | Self::RenewalLoad | Self::HeldMemory => "held locks",
            Self::Trip => "requests",
            Self::NameLength => "bytes",
            Self::Clients => "clients",
            Self::Silent => "silent servers",
            Self::Program => "programs",
        }
    }

    /// So much of it: `1 task`, `1,000 waiters`.
    pub(crate) fn amount(self, at: usize) -> String {
        match self.of_what().strip_suffix('s') {
            Some(one) if at == 1 => format!("1 {one}"),
            _ => format!("{} {}", grouped(at as f64), self.of_what()),
        }
    }

    /// Whether it means anything to say how many times the bare store's it is.
    pub(crate) fn has_ratio(self) -> bool {
        self != Self::Fairness
    }
}

/// One work of one contender: a value for each round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// What was measured,
    pub(crate) work: Work,
    /// of whom,
    pub(crate) name: String,
    /// with how many tasks, waiters, locks, bytes or clients.
    pub(crate) at: usize,
    /// In the order of rounds, in which everybody had a turn.
    pub(crate) rounds: Vec<f64>,
}

impl Sample {
    /// The value in the middle.
    pub(crate) fn median(&self) -> f64 {
        median(&self.rounds)
    }

    /// The least and the most of the rounds.
    pub(crate) fn span(&self) -> (f64, f64) {
        span(&self.rounds)
    }
}

/// How one compares with another, in the rounds that they have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// In the middle.
    pub(crate) median: f64,
    /// In the round where it was least,
    pub(crate) least: f64,
    /// and where it was most.
    pub(crate) most: f64,
}

impl Ratio {
    /// Of the first to the second, round by round.
    pub(crate) fn of(one: &Sample, other: &Sample) -> Self {
        let ratios: Vec<f64> = one.rounds.iter().zip(&other.rounds).map(|(one, other)| one / other).collect();
        let (least, most) = span(&ratios);
        Self { median: median(&ratios), least, most }
    }
}

/// What was measured on one store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// The name by which it is asked for.
    pub(crate) store: String,
    /// The server and its version.
    pub(crate) server: String,
    /// Where and when.
    pub(crate) machine: String,
    /// All of it.
    pub(crate) samples: Vec<Sample>,
}

impl Figures {
    /// That of one contender.
    pub(crate) fn find(&self, work: Work, name: &str, at: usize) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.work == work && sample.name == name && sample.at == at)
    }

    /// Those of one work.
    pub(crate) fn of(&self, work: Work) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.work == work)
    }
}

fn span(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::MAX, 0.0), |(least, most), value| (value.min(least), value.max(most)))
}

pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// The least value that so many percent of all do not exceed; nothing of nothing.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rounds: &[f64]) -> Sample {
        Sample { work: Work::Pairs, name: BARE.into(), at: 1, rounds: rounds.to_vec() }
    }

    #[test]
    fn a_ratio_is_that_of_each_round() {
        let ratio = Ratio::of(&sample(&[2.0, 30.0, 8.0]), &sample(&[1.0, 10.0, 2.0]));
        assert_eq!(ratio, Ratio { median: 3.0, least: 2.0, most: 4.0 });
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!((percentile(&values, 50), percentile(&values, 99)), (100.0, 198.0));
        assert!(percentile(&[], 50).is_nan());
    }
}
