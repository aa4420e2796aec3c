//! What may never be exceeded, on whatever machine and by whatever build: counts as they are meant to be, and ratios so wide
//! that no noise reaches them. Figures to be proud of are in `docs/performance/`.

use crate::contender::OURS;
use crate::sample::{BARE, Figures, Ratio, Work};

/// A lock and its release may take so many times as long as the bare store takes.
fn slowdown_max(store: &str) -> f64 {
    match store {
        // Beside commits that wait for no disk: the file that is compared has neither a line nor tickets.
        "sqlite" => 40.0,
        _ => 8.0,
    }
}

/// Requests for a lock and its release. On ZooKeeper a look goes with the node; on five servers each is asked.
fn pair_requests_max(store: &str) -> f64 {
    match store {
        "redlock" => 10.0,
        "zookeeper" => 3.0,
        _ => 2.0,
    }
}

/// Requests for each hand-over, the next turn's request to join included, however many wait.
fn hand_over_requests_max(store: &str) -> Option<f64> {
    match store {
        // They have no line that is pushed from: who waits looks.
        "redlock" | "mysql" => None,
        // Watches begin and end by messages of their own.
        "etcd" => Some(12.0),
        "zookeeper" => Some(8.0),
        _ => Some(3.0),
    }
}

/// Keep-alives, rechecks and questions of our own, which are few, happen at any time.
const BESIDES: f64 = 1.25;

/// What was exceeded, each as a sentence.
pub(crate) fn exceeded(figures: &Figures) -> Vec<String> {
    let store = &figures.store;
    let mut exceeded = Vec::new();
    let mut compare = |what: &str, value: f64, most: f64| {
        // What was not measured is not fine either.
        if value.is_nan() || value > most {
            exceeded.push(format!("{store}: {what}: {value:.2}, where {most:.2} is the most that is allowed"));
        }
    };
    let pairs = |name| figures.find(Work::Pairs, name, 1);
    let slowdown = pairs(BARE).zip(pairs(OURS)).map_or(f64::NAN, |(bare, ours)| Ratio::of(bare, ours).median);
    compare("time of a lock and its release, in times of the bare store", slowdown, slowdown_max(store));
    for sample in figures.of(Work::PairRequests) {
        compare(sample.work.title(), sample.median(), pair_requests_max(store) * BESIDES);
    }
    for sample in figures.of(Work::HandOverRequests) {
        if let Some(most) = hand_over_requests_max(store) {
            compare(&format!("{}, {} in line", sample.work.title(), sample.at), sample.median(), most * BESIDES);
        }
    }
    exceeded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::OURS;
    use crate::sample::Sample;

    fn figures(samples: &[(Work, &str, f64)]) -> Figures {
        let sample =
            |&(work, name, value): &(Work, &str, f64)| Sample { work, name: name.into(), at: 1, rounds: vec![value] };
        let samples = samples.iter().map(sample).collect();
        Figures { store: "redis".into(), server: String::new(), machine: String::new(), samples }
    }

    #[test]
    fn a_lock_that_takes_too_long_or_asks_too_often_is_named() {
        let fine = [(Work::Pairs, OURS, 900.0), (Work::Pairs, BARE, 1000.0), (Work::PairRequests, OURS, 2.0)];
        assert_eq!(exceeded(&figures(&fine)), Vec::<String>::new());
        let slow = [(Work::Pairs, OURS, 90.0), (Work::Pairs, BARE, 1000.0)];
        assert!(exceeded(&figures(&slow))[0].starts_with("redis: time of a lock and its release"));
        let busy = [fine[0], fine[1], (Work::HandOverRequests, OURS, 4.0)];
        assert!(exceeded(&figures(&busy))[0].starts_with("redis: requests for each hand-over"));
        assert_eq!(exceeded(&figures(&[])).len(), 1, "nothing was measured");
    }
}
