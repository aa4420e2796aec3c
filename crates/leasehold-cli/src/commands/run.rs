//! `leasehold run`: a command under a lock.

mod child;
mod exec;
mod grant;
mod signals;
mod terminal;
mod waiting;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use leasehold::Locks;
use leasehold::clock::{Clock, Timer};

use crate::args::{self, ChildOptions};
use crate::exit::{self, Failure};
use crate::settings::Settings;

pub(crate) use exec::{become_command, is_step};
pub(super) use grant::{Grant, Wanted, leave, part};
pub(super) use signals::Signals;
pub(super) use terminal::StatusLine;
pub(super) use waiting::{Waited, connect, wait};

/// Waits for the key, runs the command, and returns its exit code or ours.
pub(crate) async fn run(settings: &Settings, args: &args::Run) -> anyhow::Result<u8> {
    // Before anything else, so that no signal is missed from here on.
    let mut signals = Signals::listen()?;
    let command = match &args.line {
        Some(line) => vec![shell(), "-c".into(), line.clone()],
        None if args.command.is_empty() => {
            return Err(Failure::usage("name a command behind --, or a line for the shell with -c").into());
        }
        None => args.command.clone(),
    };
    let locks = match connect(settings, &mut signals).await? {
        Ok(locks) => locks,
        Err(code) => return Ok(code),
    };
    let wanted = Wanted::new(&locks, args)?;
    under(settings, &args.wait, &args.child, &command, &locks, &wanted, &mut signals).await
}

/// Runs a command under whatever is wanted.
pub(super) async fn under(
    settings: &Settings,
    wait_for: &args::Wait,
    options: &ChildOptions,
    command: &[OsString],
    locks: &Locks,
    wanted: &Wanted,
    signals: &mut Signals,
) -> anyhow::Result<u8> {
    let timer = Timer::on_callers_runtime(Clock::boot());
    let grant = match wait(settings, locks, wanted, wait_for, &timer, signals).await? {
        Waited::Held(grant) => grant,
        Waited::Ended(code) => return Ok(code),
    };
    settings.detail(&grant.to_string());
    let work = child::Work { settings, options, locks, timer: &timer, command };
    let ended = work.run(grant.held(), grant.token(), signals).await;
    let released = part(&timer, grant).await;
    leave(&timer, locks).await;
    let ended = ended?;
    if let Some(interrupted) = ended.interrupted
        && !ended.lost
    {
        interrupted.follow();
    }
    Ok(if ended.lost { exit::LOST } else { released.code_or(ended.code) })
}

/// The shell for `-c`.
fn shell() -> OsString {
    let shell = std::env::var_os("SHELL").map(PathBuf::from).filter(|shell| !shell.as_os_str().as_bytes().is_empty());
    shell.unwrap_or_else(|| "/bin/sh".into()).into()
}
