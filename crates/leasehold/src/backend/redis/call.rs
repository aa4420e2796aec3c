//! Calls of scripts, as commands.

use redis::{Cmd, Value};

use crate::backend::redis::names::Names;
use crate::backend::redis::reply;
use crate::backend::redis::wire::Wire;
use crate::backend::{EntryId, Patience, Request};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};

/// What can be done for many lines in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Enter,
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
    claim: &'static str,
    weight: u32,
    capacity: String,
    mood: &'static str,
    holding_ms: u64,
    waiting_ms: u64,
    observed: &'static str,
    note: Vec<u8>,
}

impl Call {
    pub(super) fn enter(names: Names, request: &Request) -> Self {
        let Request { place, claim, patience, terms, note, returns } = request;
        let entering = Entering {
            claim: match claim {
                Claim::Exclusive => "x",
                Claim::Shared => "s",
                Claim::Permits { .. } => "p",
            },
            weight: claim.weight(),
            capacity: reply::capacity_word(claim.capacity()),
            mood: match (returns, patience) {
                (true, _) => "b",
                (false, Patience::Queue) => "q",
                (false, Patience::Refuse) => "r",
            },
            holding_ms: millis(terms.holding),
            waiting_ms: millis(terms.waiting),
            observed: if note.value.is_some() { "1" } else { "0" },
            note: reply::written(note),
        };
        Self { verb: Verb::Enter, names, entry: place.entry, entering: Some(entering) }
    }

    pub(super) fn leave(names: Names, entry: EntryId) -> Self {
        Self { verb: Verb::Leave, names, entry, entering: None }
    }

    fn write_args(&self, command: &mut Cmd) {
        command.arg(self.entry.to_string());
        if let Some(entering) = &self.entering {
            command.arg(entering.claim).arg(entering.weight).arg(&entering.capacity).arg(entering.mood);
            command.arg(entering.holding_ms).arg(entering.waiting_ms).arg(entering.observed).arg(&entering.note[..]);
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
    command.arg(digest).arg(lines.len() * 4);
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
            Verb::Enter => &self.settings.scripts.enter,
            Verb::Leave => &self.settings.scripts.leave,
        };
        let mut command = evalsha(&script.digest, calls.clone().map(|call| &call.names));
        command.arg(&self.settings.channel);
        calls.clone().for_each(|call| call.write_args(&mut command));
        let (answer, mut link) = self.ask(slot, script, &command).await?;
        let answers = many(answer, calls.len())?;
        let granted = |answer: &Value| matches!(answer, Value::Array(parts) if parts.first() == Some(&Value::Int(1)));
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

/// The answers of a script that was called for so many lines.
pub(super) fn many(answer: Value, lines: usize) -> Result<Vec<Value>> {
    match answer {
        Value::Array(answers) if answers.len() == lines => Ok(answers),
        _ => Err(Error::new(ErrorKind::Protocol, "a script answered for another number of lines").with_unknown_fate()),
    }
}
