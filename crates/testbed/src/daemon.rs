//! What all servers have: a process that comes and goes, a port that stays, and a folder that they write to.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{self, Process};
use crate::{Failure, Result, until};

/// How often another port is tried.
const PORTS_MAX: usize = 10;

/// A server's process, ended when dropped.
#[derive(Debug)]
pub struct Daemon {
    process: Mutex<Option<Process>>, // dropped before the folder that it writes to
    program: &'static str,
    port: u16,
    folder: TempDir,
}

/// What became of a server that was launched.
pub(crate) enum Launched {
    Ready,
    PortTaken,
}

/// A server that found nobody on its port, of as many as that takes.
pub(crate) fn on_a_free_port<S>(mut start: impl FnMut() -> Result<(S, Launched)>) -> Result<S> {
    for _ in 0..PORTS_MAX {
        if let (server, Launched::Ready) = start()? {
            return Ok(server);
        }
    }
    Err(Failure::new(format!("somebody was quicker to take each of {PORTS_MAX} ports")))
}

impl Daemon {
    pub(crate) fn new(program: &'static str, port: u16, folder: TempDir) -> Self {
        Self { process: Mutex::default(), program, port, folder }
    }

    /// Where it listens; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it keeps its data, its settings and its log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The number of its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// Kills it: it has no time to write or to say anything (SIGKILL).
    pub fn kill(&self) {
        self.process().take();
    }

    /// Stops it until [`cont`](Self::cont): it keeps its connections, and answers nobody (SIGSTOP).
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts its process, in its folder and with a log of its own, which begins anew.
    pub(crate) fn start(&self, mut command: Command) -> Result {
        let log = File::create(self.log()).map_err(Failure::during("cannot write the log of a server"))?;
        let errors = log.try_clone().map_err(Failure::during("cannot write the log of a server"))?;
        command.current_dir(self.folder()).stdin(Stdio::null()).stdout(log).stderr(errors);
        *self.process() = Some(Process::start(command)?);
        Ok(())
    }

    /// Starts its process, and returns when it is ready or found its port taken.
    pub(crate) fn launch(&self, command: Command, mut is_ready: impl FnMut() -> bool) -> Result<Launched> {
        self.start(command)?;
        until("it answers", || self.has_ended() || is_ready()).map_err(|_| self.failure("does not answer"))?;
        if self.has_said("Address already in use") {
            Ok(Launched::PortTaken)
        } else if self.has_ended() {
            Err(self.failure("ended at once"))
        } else {
            Ok(Launched::Ready)
        }
    }

    /// A server that comes back has only the port that it had.
    pub(crate) fn came_back(&self, launched: &Launched) -> Result {
        match launched {
            Launched::Ready => Ok(()),
            Launched::PortTaken => Err(self.failure("found its port taken when it came back")),
        }
    }

    /// Asks it to end in its own way, and returns when it has.
    pub(crate) fn end(&self, signal: Signal) -> Result {
        let Some(mut process) = self.process().take() else { return Ok(()) };
        process.signal(signal);
        until("it ends", || process.ended().is_some()).map_err(|_| self.failure("does not end"))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.process().as_mut().is_none_or(|process| process.ended().is_some())
    }

    pub(crate) fn has_said(&self, words: &str) -> bool {
        fs::read_to_string(self.log()).is_ok_and(|log| log.contains(words))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    pub(crate) fn failure(&self, what: &str) -> Failure {
        let (program, port, tail) = (self.program, self.port, process::tail(&self.log()));
        Failure::new(format!("{program} on port {port} {what}; its log ends:\n  {tail}"))
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        self.process().as_ref().expect("the server runs").signal(signal);
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
