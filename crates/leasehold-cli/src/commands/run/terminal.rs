//! The terminal: which process group may use it, and the line that shows how a wait goes.

use std::io::{self, IsTerminal, Write};

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, getpgrp, getsid, kill_process_group};
use rustix::termios::{tcgetpgrp, tcgetwinsize, tcsetpgrp};

/// How wide a terminal is that does not say so.
const COLUMNS_DEFAULT: usize = 80;

/// The terminal that we were started on. Only its foreground process group may read it and is sent what its keys mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    ours: Pid,
}

impl Terminal {
    /// The one on stdin, if there is one.
    pub(crate) fn of_stdin() -> Option<Self> {
        io::stdin().is_terminal().then(|| Self { ours: getpgrp() })
    }

    /// Whether it is our own process group's turn.
    pub(crate) fn is_ours(self) -> bool {
        self.belongs_to(self.ours)
    }

    /// Whether the rest of a pipeline may need it too: it is in our group, and would be stopped if we gave it away.
    pub(crate) fn is_shared() -> bool {
        !io::stdout().is_terminal()
    }

    /// Lets another group use it, if it is ours to give.
    pub(crate) fn give_to(self, group: Pid) {
        if self.is_ours() {
            set_foreground(group);
        }
    }

    /// Takes it back from a group that we gave it to, unless somebody else has it by now.
    pub(crate) fn take_back_from(self, group: Pid) {
        if self.belongs_to(group) {
            set_foreground(self.ours);
        }
    }

    /// Stops our whole group, as the terminal would have done had the command been in it, and returns once it goes on.
    /// `false` if nobody could ever let it go on.
    pub(crate) fn stop_ourselves(self) -> bool {
        can_go_on() && kill_process_group(self.ours, Signal::STOP).is_ok()
    }

    /// Tells our group of the interrupt that only the command's group got: a script that we are a step of ends by it.
    pub(crate) fn interrupt_ourselves(self) {
        let _ = kill_process_group(self.ours, Signal::INT);
    }

    pub(crate) fn belongs_to(self, group: Pid) -> bool {
        tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == group)
    }
}

/// Whether somebody could let us go on after a stop: the leader of a session has no shell above it, and neither has its
/// group.
pub(crate) fn can_go_on() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// A group in the background that changes the foreground is stopped, unless this thread does not hear of it.
fn set_foreground(group: Pid) {
    let mut stop = SigSet::empty();
    stop.add(nix::sys::signal::Signal::SIGTTOU);
    if stop.thread_block().is_ok() {
        // If the terminal is gone there is nothing to hand over.
        let _ = tcsetpgrp(io::stdin(), group);
        let _ = stop.thread_unblock();
    }
}

/// One line on stderr that is written again and again. Dropping it erases it.
#[derive(Debug, Default)]
pub(crate) struct StatusLine {
    shown: bool,
}

impl StatusLine {
    /// Shows `text`, cut to the width of the terminal, unless we are in the background, where it would disturb others.
    /// The text must hold nothing that could fool a terminal.
    pub(crate) fn show(&mut self, text: &str) {
        if tcgetpgrp(io::stderr()).is_ok_and(|foreground| foreground != getpgrp()) {
            self.shown = false;
            return;
        }
        let told = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col.into());
        let columns = if told == 0 { COLUMNS_DEFAULT } else { told };
        let _ = write!(io::stderr(), "\r{}\x1b[K", cut(text, columns.saturating_sub(1)));
        self.shown = true;
    }

    pub(crate) fn erase(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.erase();
    }
}

/// As much of `text` as fits into so many columns. A line that wrapped could not be erased, so what may be wide counts
/// as wide.
fn cut(text: &str, columns: usize) -> String {
    let width = |c: char| if c.is_ascii() { 1 } else { 2 };
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.into();
    }
    let mut left = columns.saturating_sub(width('…'));
    let fits = |c: &char| {
        let fits = width(*c) <= left;
        left = left.saturating_sub(width(*c));
        fits
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_so_that_it_cannot_wrap() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcd…");
        assert_eq!(cut("日本語日本語", 8), "日本語…");
        assert_eq!(cut("abc", 0), "…");
    }
}
