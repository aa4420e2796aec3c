//! What is shown while it is measured: one line on a terminal, and nothing elsewhere unless asked for.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io::IsTerminal;
use std::time::Duration;

use leasehold::clock::{Moment, Timer};

use super::plan::Plan;
use crate::commands::run::StatusLine;
use crate::settings::Settings;

/// How often the line is written again.
const REFRESH: Duration = Duration::from_millis(100);

/// How many characters the bar has.
const BAR: usize = 24;

/// How far the measurement is.
pub(crate) struct Progress<'a> {
    settings: &'a Settings,
    timer: &'a Timer,
    /// When it began, and how long it takes.
    course: Cell<Option<(Moment, Duration)>>,
    doing: Cell<&'static str>,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(settings: &'a Settings, timer: &'a Timer) -> Self {
        Self { settings, timer, course: Cell::new(None), doing: Cell::new("connecting") }
    }

    pub(crate) fn begin(&self, began: Moment, plan: Plan) {
        self.course.set(Some((began, plan.time)));
    }

    /// What is done from now on.
    pub(crate) fn note(&self, doing: &'static str) {
        self.doing.set(doing);
        if !self.on_terminal() {
            self.settings.detail(doing);
        }
    }

    /// What `work` comes to. Meanwhile it is shown how far it is.
    pub(crate) async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.show() => match never {},
        }
    }

    fn on_terminal(&self) -> bool {
        std::io::stderr().is_terminal() && !self.settings.look.quiet
    }

    async fn show(&self) -> Infallible {
        if !self.on_terminal() {
            return std::future::pending().await;
        }
        let mut line = StatusLine::default();
        loop {
            match self.course.get() {
                None => line.show(self.doing.get()),
                Some((began, time)) => {
                    let gone = began.until(self.timer.now()).min(time);
                    line.show(&describe(gone, time, self.doing.get()));
                }
            }
            self.timer.sleep(REFRESH).await;
        }
    }
}

/// `[#########---------------]  12s left, 4 tasks hand one lock on`
fn describe(gone: Duration, time: Duration, doing: &str) -> String {
    let done = (gone.as_millis() * BAR as u128 / time.as_millis()) as usize;
    let left = (time - gone).as_millis().div_ceil(1000);
    format!("[{}{}] {left:>3}s left, {doing}", "#".repeat(done), "-".repeat(BAR - done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_empty_at_first_and_full_in_the_end() {
        let shown = |gone| describe(Duration::from_millis(gone), Duration::from_secs(24), "busy");
        assert_eq!(shown(0), "[------------------------]  24s left, busy");
        assert_eq!(shown(12_500), "[############------------]  12s left, busy");
        assert_eq!(shown(24_000), "[########################]   0s left, busy");
    }
}
