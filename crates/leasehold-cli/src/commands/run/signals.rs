//! Every signal that reaches this program, as one stream.

use std::io;
use std::task::{Context, Poll};

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use crate::commands::run::terminal::can_go_on;

/// What is passed on to the command. The rest either cannot be caught, is a fault of our own, or is about our own
/// children and terminal.
const PASSED_ON: [Signal; 13] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::WINCH,
    Signal::IO,
    Signal::TSTP,
    Signal::CONT,
];

/// Something was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A child ended, stopped or went on.
    Child,
    /// A signal for us.
    Signal(Signal),
}

/// Listens for as long as it lives; signals do nothing by themselves from then on.
pub(crate) struct Signals {
    children: unix::Signal,
    passed_on: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Begins to listen. Signals that were ignored when we started stay so, for us and for what we start: that is how
    /// `nohup` and shells without job control mean it.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let listen = |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        let heeded = PASSED_ON.into_iter().filter(|signal| ignored >> (signal.as_raw() - 1) & 1 == 0);
        Ok(Self {
            children: unix::signal(SignalKind::child())?,
            passed_on: heeded.map(listen).collect::<io::Result<_>>()?,
        })
    }

    /// The next one. Several of a kind may come as one.
    pub(crate) async fn next(&mut self) -> Heard {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// The next one that asks us to end, while there is nobody to pass signals on to.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                // We have taken the terminal's word from the kernel, so we have to do what it says.
                Heard::Signal(Signal::TSTP) if can_go_on() => drop(kill_process(getpid(), Signal::STOP)),
                Heard::Signal(signal) if asks_to_end(signal) => return signal,
                Heard::Signal(_) | Heard::Child => {}
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        for (signal, heard) in &mut self.passed_on {
            if heard.poll_recv(cx).is_ready() {
                return Poll::Ready(Heard::Signal(*signal));
            }
        }
        self.children.poll_recv(cx).map(|_| Heard::Child)
    }
}

/// Whether the signal asks a program that has nothing else to do to end.
fn asks_to_end(signal: Signal) -> bool {
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].contains(&signal)
}

/// The signals that are ignored, one bit each from signal 1 on; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
