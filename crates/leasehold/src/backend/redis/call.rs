//! Calls of scripts, as commands.

use redis::Value;

use crate::backend::redis::command::Command;
use crate::backend::redis::names::Names;
use crate::backend::redis::reply;
use crate::backend::redis::scripts::Script;
use crate::backend::redis::wire::{Link, Wire};
use crate::backend::{EntryId, Patience, Request, Terms};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};

/// How long a key's last ticket is remembered at least, as `line.lua` has it too.
const KEEP_MS: u64 = 3_600_000;

/// A wish to enter or to leave one line, ready to be sent.
pub(super) struct Call {
    pub(super) names: Names,
    entry: EntryId,
    verb: Verb,
}

enum Verb {
    Enter { terms: Terms, wants: String, note: Vec<u8>, guess: Option<u64> },
    Leave,
}

impl Call {
    /// `guess` is a ticket that will do if the key has no line.
    pub(super) fn enter(names: Names, request: &Request, entered_ms: u64, guess: Option<u64>) -> Self {
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
        let note = reply::written(note, entered_ms);
        Self { names, entry: place.entry, verb: Verb::Enter { terms: *terms, wants, note, guess } }
    }

    pub(super) fn leave(names: Names, entry: EntryId) -> Self {
        Self { names, entry, verb: Verb::Leave }
    }

    pub(super) fn enters(&self) -> bool {
        matches!(self.verb, Verb::Enter { .. })
    }

    /// As a command over these connections.
    fn command(&self, wire: &Wire) -> (&'static Script, Command) {
        let scripts = wire.settings.scripts;
        let (line, id) = (std::iter::once(&self.names), self.entry.to_string());
        match &self.verb {
            Verb::Enter { terms, wants, note, .. } => {
                let command = evalsha(&scripts.enter.digest, line, 5)
                    .joined(&[id.as_bytes(), b" ", wire.channel.as_bytes(), b" ", note])
                    .number(millis(terms.holding))
                    .part(wants.as_bytes())
                    .number(millis(terms.waiting))
                    .number(keep_ms(terms));
                (&scripts.enter, command)
            }
            Verb::Leave => {
                let own = [id.as_bytes(), b" ", wire.settings.client.as_bytes()];
                (&scripts.leave, evalsha(&scripts.leave.digest, line, 1).joined(&own))
            }
        }
    }
}

/// How long the last ticket of a key is remembered that is held on these terms.
fn keep_ms(terms: &Terms) -> u64 {
    millis(terms.holding).saturating_mul(2).saturating_add(KEEP_MS)
}

/// A lease in whole milliseconds, never longer than it was meant.
pub(in crate::backend) fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The beginning of a call by digest, up to its keys. So many arguments follow.
pub(super) fn evalsha<'a>(digest: &str, lines: impl ExactSizeIterator<Item = &'a Names>, args: usize) -> Command {
    let keys = lines.len() * 5;
    let command = Command::of(3 + keys + args).part(b"EVALSHA").part(digest.as_bytes()).number(keys as u64);
    lines.fold(command, |command, names| {
        names.all().into_iter().fold(command, |command, name| command.part(name.as_bytes()))
    })
}

impl Wire {
    /// Does it in one trip, and one more for the replicas' word if that is wanted; two, if a key that seemed to have no line
    /// has one.
    pub(super) async fn call(&self, call: &Call) -> Result<Value> {
        if let Some(ticket) = self.try_alone(call).await? {
            return Ok(Value::Int(ticket));
        }
        let (script, command) = call.command(self);
        let (answer, link) = self.ask(call.names.slot(), script, &command).await?;
        if self.settings.replicas == 0 || !call.enters() || !reply::is_grant(&answer) {
            return Ok(answer);
        }
        self.confirm(&link).await?;
        Ok(answer)
    }

    /// Finds out whether we may call scripts: a lock could be taken without, and then not be given back.
    pub(super) async fn try_scripts(&self) -> Result<()> {
        let renew = &self.settings.scripts.renew;
        let of_nothing = evalsha(&renew.digest, std::iter::empty(), 0);
        self.ask(0, renew, &of_nothing).await.map(drop)
    }

    /// Enters a key that has no line, if it has none: no script, but a transaction, which takes the server half the time. The
    /// mark is set if the key is free, and the guess is the ticket if it is higher than all before. Whatever else comes of it
    /// is put right by the script, which must follow: it finds the mark that may be there, and takes no notice of it.
    async fn try_alone(&self, call: &Call) -> Result<Option<i64>> {
        let Verb::Enter { terms, note, guess: Some(guess), .. } = &call.verb else { return Ok(None) };
        let [lock, tickets, _, _, entries] = call.names.all().map(str::as_bytes);
        let (id, ticket) = (call.entry.to_string(), guess.to_string());
        let command = Command::of(1)
            .part(b"MULTI")
            .and(6)
            .part(b"SET")
            .part(lock)
            .joined(&[id.as_bytes(), b" ", self.channel.as_bytes(), b" ", ticket.as_bytes(), b" ", note])
            .part(b"NX")
            .part(b"PX")
            .number(millis(terms.holding))
            .and(6)
            .part(b"ZADD")
            .part(tickets)
            .part(b"GT")
            .part(b"CH")
            .part(ticket.as_bytes())
            .part(b"t")
            .and(3)
            .part(b"PEXPIRE")
            .part(tickets)
            .number(keep_ms(terms))
            .and(2)
            .part(b"EXISTS")
            .part(entries)
            .and(1)
            .part(b"EXEC");
        let (answer, link) = self.transact(call.names.slot(), &command).await?;
        let granted = [Value::Okay, Value::Int(1), Value::Int(1), Value::Int(0)];
        if answer != Some(Value::Array(granted.into())) {
            return Ok(None);
        }
        if self.settings.replicas > 0 {
            self.confirm(&link).await?;
        }
        Ok(i64::try_from(*guess).ok())
    }

    /// Waits for the replicas to have what was written over this connection. If it fails, whoever asked takes the entry out
    /// again, because its fate is unknown.
    async fn confirm(&self, link: &Link) -> Result<()> {
        let wanted = self.settings.replicas;
        let wait =
            Command::of(3).part(b"WAIT").number(wanted.into()).number(millis(self.settings.topology.patience / 2));
        let why = match link.command(&wait).await {
            Ok(Value::Int(heard)) if heard >= i64::from(wanted) => return Ok(()),
            Ok(Value::Int(heard)) => format!("{heard} of {wanted} replicas confirmed the grant, so it is not believed"),
            _ => "the replicas could not be asked about the grant, so it is not believed".into(),
        };
        Err(Error::new(ErrorKind::Unreachable, why).with_unknown_fate())
    }
}

/// The answers of a script that was called for so many lines.
pub(super) fn many(answer: Value, lines: usize) -> Result<Vec<Value>> {
    match answer {
        Value::Array(answers) if answers.len() == lines => Ok(answers),
        _ => Err(Error::new(ErrorKind::Protocol, "a script answered for another number of lines").with_unknown_fate()),
    }
}
