//! Calls of scripts, as commands.

use redis::{Cmd, Value};

use crate::backend::redis::names::Names;
use crate::backend::redis::reply;
use crate::backend::redis::wire::Wire;
use crate::backend::{EntryId, Patience, Request, Terms};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};

/// How long a key's last ticket is remembered at least, as `line.lua` has it too.
const KEEP_MS: u64 = 3_600_000;

/// What can be done for many lines in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Enter(Terms),
    Leave,
}

/// A wish to enter or to leave one line, ready to be sent.
pub(super) struct Call {
    pub(super) verb: Verb,
    pub(super) names: Names,
    entry: EntryId,
    entering: Option<Entering>,
}

struct Entering {
    wants: String,
    note: Vec<u8>,
}

impl Call {
    pub(super) fn enter(names: Names, request: &Request, entered_ms: u64) -> Self {
        let Request { place, claim, patience, terms, note, returns } = request;
        let mood = match (returns, patience) {
            (true, _) => 'b',
            (false, Patience::Queue) => 'q',
            (false, Patience::Refuse) => 'r',
        };
        let observed = u8::from(note.value.is_some());
        let wants = match claim {
            Claim::Exclusive => format!("x{mood}{observed}"),
            Claim::Shared => format!("s{mood}{observed} 1 w"),
            Claim::Permits { count, of } => format!("p{mood}{observed} {count} {of}"),
        };
        let entering = Entering { wants, note: reply::written(note, entered_ms) };
        Self { verb: Verb::Enter(*terms), names, entry: place.entry, entering: Some(entering) }
    }

    pub(super) fn leave(names: Names, entry: EntryId) -> Self {
        Self { verb: Verb::Leave, names, entry, entering: None }
    }

    fn write_args(&self, command: &mut Cmd) {
        command.arg(self.entry.to_string());
        if let Some(entering) = &self.entering {
            command.arg(&entering.wants).arg(&entering.note[..]);
        }
    }
}

/// A lease in whole milliseconds, never longer than it was meant.
pub(super) fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The beginning of a call by digest, up to its keys.
pub(super) fn evalsha<'a>(digest: &str, lines: impl ExactSizeIterator<Item = &'a Names>) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(lines.len() * 5);
    for names in lines {
        for name in names.all() {
            command.arg(name);
        }
    }
    command
}

impl Wire {
    /// Does all of these in one trip, and one more for the replicas' word if that is wanted. One answer for each.
    pub(super) async fn call<'a>(
        &self,
        verb: Verb,
        slot: u16,
        calls: impl ExactSizeIterator<Item = &'a Call> + Clone,
    ) -> Result<Vec<Result<Value>>> {
        let script = match verb {
            Verb::Enter(_) => &self.settings.scripts.enter,
            Verb::Leave => &self.settings.scripts.leave,
        };
        let mut command = evalsha(&script.digest, calls.clone().map(|call| &call.names));
        match verb {
            Verb::Enter(_) => command.arg(&self.channel),
            Verb::Leave => command.arg(&self.settings.client),
        };
        if let Verb::Enter(terms) = verb {
            let holding_ms = millis(terms.holding);
            command
                .arg(holding_ms)
                .arg(millis(terms.waiting))
                .arg(holding_ms.saturating_mul(2).saturating_add(KEEP_MS));
        }
        calls.clone().for_each(|call| call.write_args(&mut command));
        let (answer, mut link) = self.ask(slot, script, &command).await?;
        let answers = many(answer, calls.len())?;
        let granted = reply::is_grant;
        let replicas = self.settings.replicas;
        if verb == Verb::Leave || replicas == 0 || !answers.iter().any(granted) {
            return Ok(answers.into_iter().map(Ok).collect());
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(millis(self.settings.topology.patience / 2));
        let heard = link.command(&wait).await;
        let why = match heard {
            Ok(Value::Int(heard)) if heard >= i64::from(replicas) => return Ok(answers.into_iter().map(Ok).collect()),
            Ok(Value::Int(heard)) => {
                format!("{heard} of {replicas} replicas confirmed the grant, so it is not believed")
            }
            _ => "the replicas could not be asked about the grant, so it is not believed".into(),
        };
        // Whoever asked takes the entry out again, because its fate is unknown.
        let doubt = || Err(Error::new(ErrorKind::Unreachable, why.clone()).with_unknown_fate());
        Ok(answers.into_iter().map(|answer| if granted(&answer) { doubt() } else { Ok(answer) }).collect())
    }
}

impl Wire {
    /// Does this one alone.
    pub(super) async fn call_one(&self, call: &Call) -> Result<Value> {
        let answers = self.call(call.verb, call.names.slot(), std::iter::once(call)).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(Error::new(ErrorKind::Protocol, "a script answered nothing")))
    }
}

/// The answers of a script that was called for so many lines.
pub(super) fn many(answer: Value, lines: usize) -> Result<Vec<Value>> {
    match answer {
        Value::Array(answers) if answers.len() == lines => Ok(answers),
        _ => Err(Error::new(ErrorKind::Protocol, "a script answered for another number of lines").with_unknown_fate()),
    }
}
