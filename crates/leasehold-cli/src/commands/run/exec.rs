//! The step between us and the command: the same program again, which sees to it that the command dies with us.
//!
//! What it does must happen in the new process, between fork and exec, where only unsafe code may run. So it runs after
//! an exec, as `leasehold __exec PARENT -- COMMAND ARGUMENTS…`, and then becomes the command.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use crate::exit::{self, Failure};
use crate::output::escaped;

/// The hidden first argument.
const STEP: &str = "__exec";
/// What it is given instead of a command by a process that wants to end by an interrupt.
const INTERRUPT: &str = "--interrupt";

/// The command line that takes this step and then becomes `command`.
pub(super) fn through_us(command: &[OsString]) -> Command {
    let mut through = itself();
    through.arg(STEP).arg(getpid().as_raw_nonzero().to_string()).arg("--").args(command);
    through
}

fn itself() -> Command {
    // The link leads to this very program also after it has been replaced by a newer one.
    let link = OsString::from("/proc/self/exe");
    let program = if std::fs::exists(&link).unwrap_or(false) {
        link
    } else {
        std::env::current_exe().map_or_else(|_| "leasehold".into(), OsString::from)
    };
    let mut itself = Command::new(program);
    itself.arg0("leasehold");
    itself
}

/// Ends this process by an interrupt rather than with a code: shells go on with their scripts after a code. The step has
/// none of our handlers, so it can. Returns only if that cannot be.
pub(super) fn die_by_interrupt() {
    let _ = itself().arg(STEP).arg(INTERRUPT).exec();
}

/// Whether this process is that step; then the arguments behind the hidden one.
pub(crate) fn is_step(arguments: &[OsString]) -> Option<&[OsString]> {
    let (first, rest) = arguments.get(1..)?.split_first()?;
    (first == STEP).then_some(rest)
}

/// Becomes the command. Returns only if that cannot be.
pub(crate) fn become_command(arguments: &[OsString]) -> anyhow::Result<Infallible> {
    if arguments.len() == 1 && arguments[0] == INTERRUPT {
        kill_process(getpid(), Signal::INT)?;
    }
    let [parent, dashes, program, arguments @ ..] = arguments else { return Err(misused()) };
    let parent = parent.to_str().and_then(|parent| Pid::from_raw(parent.parse().ok()?)).ok_or_else(misused)?;
    if dashes != "--" {
        return Err(misused());
    }
    // KILL, not TERM: nobody would be left to renew the lease, or to follow up on a command that ignores TERM.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        // It died before we asked to be told.
        kill_process(getpid(), Signal::KILL)?;
    }
    let error = Command::new(program).args(arguments).exec();
    Err(cannot_run(program, &error).into())
}

fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let program = escaped(program.as_encoded_bytes());
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(exit::NOT_FOUND, format!("{program}: command not found")),
        _ => Failure::new(exit::NOT_EXECUTABLE, format!("{program}: cannot be run: {error}")),
    }
}

fn misused() -> anyhow::Error {
    Failure::usage(format!("{STEP} is for leasehold itself")).into()
}
