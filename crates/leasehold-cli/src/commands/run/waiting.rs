//! Waiting for a turn: what is shown meanwhile, and which signals end it.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

use leasehold::backend::KeyView;
use leasehold::clock::Timer;
use leasehold::{Attempt, Key, Locks};

use crate::args;
use crate::commands::run::grant::{Grant, Wanted, leave};
use crate::commands::run::signals::Signals;
use crate::commands::run::terminal::StatusLine;
use crate::exit;
use crate::output::{span, who};
use crate::settings::Settings;

/// How long a wait lasts before it is worth a word.
const PATIENCE: Duration = Duration::from_millis(250);
/// How often the line that shows a wait is written again.
const REFRESH: Duration = Duration::from_secs(1);

/// What became of a wait.
pub(crate) enum Waited {
    Held(Grant),
    /// There is nothing to be held, and this is the exit code.
    Ended(u8),
}

/// Opens the store, unless a signal asks us to end first: then this is the exit code.
pub(crate) async fn connect(settings: &Settings, signals: &mut Signals) -> anyhow::Result<Result<Locks, u8>> {
    tokio::select! {
        biased;
        locks = settings.connect() => locks.map(Ok),
        signal = signals.end() => Ok(Err(exit::by_signal(signal.as_raw()))),
    }
}

/// Waits until it is our turn, the limit is over, or a signal asks us to end.
pub(crate) async fn wait(
    settings: &Settings,
    locks: &Locks,
    wanted: &Wanted,
    options: &args::Wait,
    timer: &Timer,
    signals: &mut Signals,
) -> anyhow::Result<Waited> {
    let limit = if options.nonblock { Some(Duration::ZERO) } else { options.wait };
    let ended = tokio::select! {
        biased;
        taken = wanted.take(limit) => match taken {
            Ok(Attempt::Held(grant)) => return Ok(Waited::Held(grant)),
            Ok(Attempt::Busy(busy)) => {
                settings.look.say(&busy.to_string());
                Ok(Waited::Ended(options.conflict_exit_code))
            }
            Err(error) => Err(error.into()),
        },
        signal = signals.end() => Ok(Waited::Ended(exit::by_signal(signal.as_raw()))),
        never = show_progress(settings, locks, wanted.key(), timer) => match never {},
    };
    // Whatever came of it, our place in line is being given up, and would stay if we ended before.
    leave(timer, locks).await;
    ended
}

/// Shows on a terminal how the wait goes; elsewhere says once that there is one, if asked for. Never ends by itself.
async fn show_progress(settings: &Settings, locks: &Locks, key: &Key, timer: &Timer) -> Infallible {
    let on_terminal = std::io::stderr().is_terminal() && !settings.look.quiet;
    if !on_terminal && !settings.verbose {
        return std::future::pending().await;
    }
    let mut line = StatusLine::default();
    timer.sleep(PATIENCE).await;
    loop {
        // A store that does not answer is for the wait itself to complain about.
        if let Ok(view) = locks.inspect(key.name()).await {
            let text = describe(key, view.as_ref());
            if !on_terminal {
                settings.detail(&text);
                return std::future::pending().await;
            }
            line.show(&text);
        }
        timer.sleep(REFRESH).await;
    }
}

/// `waiting for "billing/close", held by worker-7 4711@build-3 for 12s: 2nd of 3 in line`
fn describe(key: &Key, view: Option<&KeyView>) -> String {
    let mut text = format!("waiting for \"{key}\"");
    let Some(view) = view else { return text };
    if let Some(holder) = view.holders.first() {
        text += &format!(", held by {}", who(holder));
        if !holder.foreign {
            text += &format!(" for {}", since(holder.age));
        }
        let others = view.holders.len() - 1;
        if others > 0 {
            text += &format!(" and {others} more");
        }
    }
    let waiters = view.waiters.as_deref().unwrap_or_default();
    let (pid, system) = (std::process::id(), rustix::system::uname());
    let host = system.nodename().to_string_lossy();
    if let Some(ahead) = waiters.iter().position(|waiter| waiter.note.pid == pid && *waiter.note.host == *host) {
        text += &format!(": {} of {} in line", ordinal(ahead + 1), waiters.len());
    }
    text
}

/// Whole seconds, as long as it is not worth more.
fn since(age: Duration) -> String {
    if age < Duration::from_secs(60) { format!("{}s", age.as_secs()) } else { span(age) }
}

fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_line_are_called_by_their_ordinals() {
        let called = [1, 2, 3, 4, 11, 12, 13, 21, 111, 122].map(ordinal);
        assert_eq!(called, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "111th", "122nd"]);
    }
}
