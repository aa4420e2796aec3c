//! Every exit code of the program that is not the command's own.

use std::fmt;
use std::io;
use std::process::ExitCode;

use leasehold::ErrorKind;

use crate::output::on_one_line;

/// Nobody was there to be evicted or asked, or the doctor found something bad.
pub(crate) const NOTHING: u8 = 1;
/// What `sysexits.h` calls a command used wrongly.
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached or used.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Something went wrong on this machine that is none of the others.
pub(crate) const OS_ERROR: u8 = 71;
/// The key stayed taken. `-E` changes it.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The command is there and cannot be run; shells say the same.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command; shells say the same.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended the command, or us while we waited.
const SIGNALLED: i32 = 128;
/// Whoever read our output has gone.
const BROKEN_PIPE: u8 = 128 + 13;

pub(crate) const HELP: &str = "\
Exit codes:
  the command's own, or
  1    nobody was there to be evicted or asked, or the doctor found something bad
  64   wrong usage
  69   the store cannot be reached or used
  71   something went wrong on this machine
  75   the key is taken (-E chooses another code)
  76   the lock was lost
  126  the command cannot be run
  127  the command was not found
  128+n  signal n ended the command, or ended us while we waited";

/// The code for an end by that signal.
pub(crate) fn by_signal(number: i32) -> u8 {
    u8::try_from(SIGNALLED + number).unwrap_or(u8::MAX)
}

/// A failure that says with which code the program ends. No message means that everything was said.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The code for an error.
pub(crate) fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if let Some(error) = cause.downcast_ref::<leasehold::Error>() {
            return code_of_kind(error.kind());
        }
    }
    OS_ERROR
}

fn code_of_kind(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Lost | ErrorKind::Stale => LOST,
        ErrorKind::InvalidKey
        | ErrorKind::InvalidOption
        | ErrorKind::CapacityMismatch
        | ErrorKind::KindMismatch
        | ErrorKind::Unsupported => USAGE,
        _ => UNAVAILABLE,
    }
}

/// Says what went wrong, in one line, and ends with its code. Nobody is left to be told about a broken pipe.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let is_broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(is_broken_pipe) {
        return ExitCode::from(BROKEN_PIPE);
    }
    let message = format!("{error:#}");
    if !message.is_empty() {
        say(&message);
    }
    ExitCode::from(code_of(error))
}

/// One line on stderr.
pub(crate) fn say(message: &str) {
    use io::Write as _;
    // Nobody is left to be told that stderr is gone.
    let _ = writeln!(io::stderr(), "leasehold: {}", on_one_line(&without_secrets(message)));
}

/// The text with the user and the password of every URL left out.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        // A password may hold any character, an `@` too; what follows the last one of a word is a host.
        let word = after.find(char::is_whitespace).unwrap_or(after.len());
        rest = match after[..word].rfind('@') {
            Some(end) => {
                shown.push('…');
                &after[end..]
            }
            None => after,
        };
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_of_a_url_are_not_shown() {
        assert_eq!(without_secrets("no 'redis://me:pa@ss@host/0' here"), "no 'redis://…@host/0' here");
        assert_eq!(without_secrets("a://b:c@d e://f:g@h"), "a://…@d e://…@h");
        assert_eq!(without_secrets("sqlite:/tmp/a@b: full"), "sqlite:/tmp/a@b: full");
    }

    #[test]
    fn an_error_deep_in_a_chain_decides_the_code() {
        let lost = leasehold::Error::new(ErrorKind::Lost, "gone");
        assert_eq!(code_of(&anyhow::Error::new(lost).context("running")), LOST);
        assert_eq!(code_of(&Failure::usage("no").into()), USAGE);
        assert_eq!(code_of(&io::Error::other("disk").into()), OS_ERROR);
    }
}
