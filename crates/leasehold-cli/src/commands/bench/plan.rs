//! What is measured, in which order and for how long.

use std::time::Duration;

use crate::exit::Failure;
use crate::output::span;

/// Less than this does not suffice to see a lease of [`LEASE`](super::held::LEASE) renewed.
const TIME_MIN: Duration = Duration::from_secs(8);

/// Who wants to know how a store does over days has better means.
const TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// How many tasks lock at once where many do: enough to keep a connection busy, and few enough for any server's pool.
pub(crate) const TASKS: usize = 16;

/// One part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One task takes one lock that nobody else wants, again and again.
    Alone,
    /// Many tasks do so, each with a lock of its own.
    Apart,
    /// A few tasks want the same lock.
    FewInLine,
    /// Many tasks want the same lock.
    ManyInLine,
    /// More and more locks are held.
    Held,
}

impl Part {
    pub(crate) const ALL: [Self; 5] = [Self::Alone, Self::Apart, Self::FewInLine, Self::ManyInLine, Self::Held];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Alone => "one task locks and releases",
            Self::Apart => "16 tasks lock and release, each its own lock",
            Self::FewInLine => "4 tasks hand one lock on",
            Self::ManyInLine => "16 tasks hand one lock on",
            Self::Held => "more and more locks are held",
        }
    }

    pub(crate) fn tasks(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::FewInLine => 4,
            Self::Apart | Self::ManyInLine | Self::Held => TASKS,
        }
    }

    /// Its share of the time, in percent. Held locks are watched for a whole lease, several times over.
    fn share(self) -> u32 {
        if self == Self::Held { 60 } else { 10 }
    }
}

/// How long to measure, and on how many keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) time: Duration,
    pub(crate) keys: usize,
}

impl Plan {
    pub(crate) fn new(time: Duration, keys: u32) -> Result<Self, Failure> {
        if !(TIME_MIN..=TIME_MAX).contains(&time) {
            let (least, most) = (span(TIME_MIN), span(TIME_MAX));
            return Err(Failure::usage(format!("--time is {}; it must be from {least} to {most}", span(time))));
        }
        Ok(Self { time, keys: keys as usize })
    }

    /// When a part is over, counted from the beginning of the first.
    pub(crate) fn ends(self, part: Part) -> Duration {
        let up_to = Part::ALL.iter().position(|one| *one == part).expect("all parts are listed");
        let shares: u32 = Part::ALL[..=up_to].iter().map(|part| part.share()).sum();
        self.time * shares / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fill_the_time_exactly() {
        let plan = Plan::new(Duration::from_secs(30), 1000).unwrap();
        assert_eq!(plan.ends(Part::Alone), Duration::from_secs(3));
        assert_eq!(plan.ends(Part::Held), plan.time);
    }

    #[test]
    fn a_title_names_as_many_tasks_as_there_are() {
        for part in [Part::Apart, Part::FewInLine, Part::ManyInLine] {
            assert!(part.title().starts_with(&format!("{} tasks", part.tasks())), "{part:?}");
        }
    }
}
