//! The command under the lock: how it is started, what it is told, and how it is stopped in time.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use leasehold::clock::{Moment, Timer, unix_time_in};
use leasehold::{FencingToken, Held, Locks, State};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, waitid, waitpid};

use crate::args::{ChildOptions, OnLost, OnYield};
use crate::commands::run::exec;
use crate::commands::run::signals::{Heard, Signals};
use crate::commands::run::terminal::Terminal;
use crate::exit;
use crate::settings::{Settings, URL_VARIABLE};

const KEY_VARIABLE: &str = "LEASEHOLD_KEY";
const TOKEN_VARIABLE: &str = "LEASEHOLD_TOKEN";
const DEADLINE_VARIABLE: &str = "LEASEHOLD_DEADLINE";

/// How long before our deadline a command that did not go is killed: time for the kernel to do so.
fn margin(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(20), Duration::from_millis(500))
}

/// A running command, the leader of a process group of its own.
///
/// It is not reaped before it is dropped: until then its number, and so its group's, is nobody else's, and a signal
/// cannot hit a stranger.
struct Child {
    group: Pid,
    terminal: Option<Terminal>,
}

impl Child {
    fn start(command: &[OsString], locks: &Locks, held: &Held, token: Option<FencingToken>) -> io::Result<Self> {
        let mut through = exec::through_us(command);
        through.process_group(0);
        through.env_remove(URL_VARIABLE).env(KEY_VARIABLE, OsStr::from_bytes(held.key().name()));
        match token {
            Some(token) => through.env(TOKEN_VARIABLE, token.to_string()),
            None => through.env_remove(TOKEN_VARIABLE),
        };
        through.env(DEADLINE_VARIABLE, unix_seconds_in(held.remaining()));
        let terminal = Terminal::of_stdin();
        // What the command leaves behind counts as ours should we die: the lock is not handed over beneath it.
        let liveness = locks.liveness();
        let started = through.spawn()?;
        drop(liveness);
        let number = i32::try_from(started.id()).ok().and_then(Pid::from_raw);
        let child = Self { group: number.expect("a process has a number"), terminal };
        match terminal {
            // Then it gets the terminal when it asks for it.
            Some(_) if Terminal::is_shared() => {}
            Some(terminal) => terminal.give_to(child.group),
            None => {}
        }
        Ok(child)
    }

    /// To the whole group. A group that has ended needs no signal.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }

    /// A stopped process hears of it too.
    fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Lets it go on after a stop, with the terminal if that is ours now.
    fn go_on(&self) {
        if let Some(terminal) = self.terminal {
            terminal.give_to(self.group);
        }
        self.signal(Signal::CONT);
    }

    /// Follows it into a stop. Without a terminal nobody would let us go on, and the lease would run out meanwhile.
    fn follow_stops(&self) {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        // An error means that it has ended meanwhile, of which we hear as well.
        while let Ok(Some(status)) = waitid(WaitId::Pid(self.group), options) {
            let (Some(terminal), Some(signal)) = (self.terminal, status.stopping_signal()) else { continue };
            let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|wants| wants.as_raw() == signal);
            // One that asks as soon as it runs may have been stopped for it just before it was given the terminal.
            if wants_terminal && (terminal.is_ours() || terminal.belongs_to(self.group)) {
                self.go_on();
                continue;
            }
            terminal.take_back_from(self.group);
            if !terminal.stop_ourselves() {
                self.go_on();
            }
            // What lets us go on is heard as a signal; whether the lock is still ours is asked before it is passed on.
        }
    }

    /// If an interrupt ended it on a terminal: whether our own group has yet to hear of that.
    fn interrupted(&self, code: u8) -> Option<Interrupted> {
        let terminal = self.terminal.filter(|_| code == exit::by_signal(Signal::INT.as_raw()))?;
        Some(Interrupted { terminal, alone: terminal.belongs_to(self.group) })
    }

    /// The exit code, once it has ended.
    fn ended(&self) -> io::Result<Option<u8>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Some(status) = waitid(WaitId::Pid(self.group), options)? else { return Ok(None) };
        let code = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            (None, Some(signal)) => exit::by_signal(signal),
            (None, None) => return Ok(None),
        };
        Ok(Some(code))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(terminal) = self.terminal {
            terminal.take_back_from(self.group);
        }
        if !matches!(self.ended(), Ok(Some(_))) {
            // We can no longer look after it.
            self.signal(Signal::KILL);
        }
        let _ = waitpid(Some(self.group), WaitOptions::NOHANG);
    }
}

/// How a command came to its end.
pub(crate) struct Ended {
    pub(crate) code: u8,
    /// Whether the lock was lost, or so nearly that the command was stopped.
    pub(crate) lost: bool,
    pub(crate) interrupted: Option<Interrupted>,
}

/// An interrupt ended the command on a terminal.
#[derive(Clone, Copy)]
pub(crate) struct Interrupted {
    terminal: Terminal,
    /// The command had the terminal to itself, so nobody else was told.
    alone: bool,
}

impl Interrupted {
    /// Ends us, and the script that we may be a step of, the way the command ended. Returns only if that cannot be.
    pub(crate) fn follow(self) {
        if self.alone {
            self.terminal.interrupt_ourselves();
        }
        exec::die_by_interrupt();
    }
}

/// What the command is run with.
pub(crate) struct Work<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) options: &'a ChildOptions,
    pub(crate) locks: &'a Locks,
    pub(crate) timer: &'a Timer,
    pub(crate) command: &'a [OsString],
}

impl Work<'_> {
    /// Runs the command to its end, and sees to it that it does not outlive the lock.
    pub(crate) async fn run(
        &self,
        held: &Held,
        token: Option<FencingToken>,
        signals: &mut Signals,
    ) -> anyhow::Result<Ended> {
        let child = Child::start(self.command, self.locks, held, token)?;
        let mut watch = Watch::new(self, held);
        let mut yield_told = false;
        loop {
            // The lock is looked at first: after a pause it may be gone, and then nothing else may be let through.
            watch.look(&child);
            let look_again = watch.look_again();
            tokio::select! {
                biased;
                _ = held.lost(), if !watch.knows_of_loss => {}
                () = self.timer.sleep_until(look_again) => {}
                heard = signals.next() => match heard {
                    Heard::Child => {
                        if let Some(code) = child.ended()? {
                            watch.look(&child);
                            if watch.stop.is_some() {
                                // It went; what it has started goes with it.
                                child.signal(Signal::KILL);
                            }
                            return Ok(Ended { code, lost: watch.lost(), interrupted: child.interrupted(code) });
                        }
                        child.follow_stops();
                    }
                    Heard::Signal(Signal::CONT) => {
                        watch.look(&child);
                        child.go_on();
                    }
                    Heard::Signal(signal) => child.signal(signal),
                },
                () = held.yield_requested(), if !yield_told => {
                    yield_told = true;
                    self.heed_wish(held, &child);
                }
            }
        }
    }

    fn heed_wish(&self, held: &Held, child: &Child) {
        let wish = format!("somebody asks for \"{}\"", held.key());
        match self.options.on_yield {
            OnYield::Ignore => self.settings.look.say(&format!("{wish}; the command goes on (see --on-yield)")),
            OnYield::Signal(signal) => {
                self.settings.detail(&format!("{wish}; the command gets signal {}", signal.as_raw()));
                child.signal(signal);
            }
        }
    }
}

/// Watches the lease, and stops the command before it is over.
struct Watch<'a> {
    work: &'a Work<'a>,
    held: &'a Held,
    margin: Duration,
    /// The latest deadline that was believed in.
    believed_until: Moment,
    /// Since when renewals have been failing so close to the deadline that the command must go.
    failing_since: Option<Moment>,
    knows_of_loss: bool,
    stop: Option<Stop>,
}

/// The command is being stopped.
struct Stop {
    kill_at: Moment,
    killed: bool,
}

impl<'a> Watch<'a> {
    fn new(work: &'a Work<'a>, held: &'a Held) -> Self {
        let believed_until = work.timer.now().after(held.remaining());
        let margin = margin(work.settings.ttl);
        Self { work, held, margin, believed_until, failing_since: None, knows_of_loss: false, stop: None }
    }

    fn lost(&self) -> bool {
        self.knows_of_loss || self.stop.is_some()
    }

    /// How much must be left of the lease for the command to be given its grace within it. Not more than a third of the
    /// TTL, or one failed renewal would end commands whose grace is longer than that.
    fn notice(&self) -> Duration {
        let grace = match self.work.options.on_lost {
            OnLost::Term => self.work.options.grace.min(self.work.settings.ttl / 3),
            OnLost::Kill | OnLost::Ignore => Duration::ZERO,
        };
        // The second margin is for the time between seeing that renewals fail and believing it.
        grace + self.margin * 2
    }

    fn look(&mut self, child: &Child) {
        let now = self.work.timer.now();
        match self.held.state() {
            State::Lost(loss) => {
                if !self.knows_of_loss {
                    self.knows_of_loss = true;
                    let key = self.held.key();
                    exit::say(&format!("the lock on \"{key}\" was lost: {loss}{}", self.what_follows()));
                    self.stop(child, now, self.believed_until);
                }
            }
            State::Held => {
                self.failing_since = None;
                self.believed_until = now.after(self.held.remaining());
            }
            State::Suspect => {
                let left = self.held.remaining();
                self.believed_until = now.after(left);
                // A pause makes a lock suspect as well, and the renewal after it may be on its way.
                if left > self.notice() {
                    self.failing_since = None;
                } else if now >= self.failing_since.get_or_insert(now).after(self.margin)
                    && self.stop.is_none()
                    && self.work.options.on_lost != OnLost::Ignore
                {
                    let key = self.held.key();
                    exit::say(&format!(
                        "the lock on \"{key}\" cannot be renewed: stopping the command while it is held"
                    ));
                    let kill_at = now.after(left.saturating_sub(self.margin));
                    self.stop(child, now, kill_at);
                }
            }
        }
        if let Some(stop) = &mut self.stop
            && !stop.killed
            && now >= stop.kill_at
        {
            stop.killed = true;
            child.signal(Signal::KILL);
        }
    }

    fn what_follows(&self) -> &'static str {
        match (self.work.options.on_lost, &self.stop) {
            (OnLost::Ignore, _) => "; the command goes on without it",
            (_, None) => "; stopping the command",
            (_, Some(_)) => "",
        }
    }

    fn stop(&mut self, child: &Child, now: Moment, lease_ends: Moment) {
        let kill_at = match self.work.options.on_lost {
            OnLost::Ignore => return,
            OnLost::Kill => now,
            OnLost::Term => now.after(self.work.options.grace).min(lease_ends),
        };
        match &mut self.stop {
            Some(stop) => stop.kill_at = stop.kill_at.min(kill_at),
            None => {
                if kill_at > now {
                    child.terminate();
                }
                self.stop = Some(Stop { kill_at, killed: false });
            }
        }
    }

    /// When to look without being called.
    fn look_again(&self) -> Moment {
        let now = self.work.timer.now();
        match &self.stop {
            Some(stop) if !stop.killed => stop.kill_at,
            Some(_) => Moment::FAR,
            None if self.knows_of_loss => Moment::FAR,
            None => match self.held.remaining().checked_sub(self.notice()) {
                Some(early) if !early.is_zero() => now.after(early),
                _ => now.after(self.margin),
            },
        }
    }
}

/// When `span` will have passed, in seconds since 1970, for the command to show or compare.
fn unix_seconds_in(span: Duration) -> String {
    let then = unix_time_in(span);
    format!("{}.{:03}", then.as_secs(), then.subsec_millis())
}
