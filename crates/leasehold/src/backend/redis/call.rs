//! Calls of scripts, as commands.

use redis::Value;

use crate::backend::redis::command::{Command, Digits};
use crate::backend::redis::hub::{Guess, KEPT_FOR_US};
use crate::backend::redis::names::Names;
use crate::backend::redis::reply;
use crate::backend::redis::scripts::Script;
use crate::backend::redis::together::{Joinable, Together};
use crate::backend::redis::wire::{Link, Wire};
use crate::backend::{EntryId, Patience, Request, Terms};
use crate::claim::Claim;
use crate::error::{Error, ErrorKind, Result};

/// How long a key's last ticket is remembered at least. For an hour, as `line.lua` has it too, although not every use of
/// the key says so anew.
const KEEP_MS: u64 = 3_600_000 + KEPT_FOR_US / 1000;

/// A wish to enter or to leave one line, ready to be sent.
pub(super) struct Call {
    pub(super) names: Names,
    entry: EntryId,
    verb: Verb,
}

enum Verb {
    Enter { terms: Terms, claim: Claim, mood: char, observed: bool, note: Vec<u8>, guess: Option<Guess> },
    Leave { alone: bool },
}

impl Call {
    /// `guess` is a ticket that will do if the key has no line.
    pub(super) fn enter(names: Names, request: &Request, entered_ms: u64, guess: Option<Guess>) -> Self {
        let Request { place, claim, patience, terms, note, returns } = request;
        let mood = match (returns, patience) {
            (true, _) => 'b',
            (false, Patience::Queue) => 'q',
            (false, Patience::Refuse) => 'r',
        };
        let (observed, note) = (note.value.is_some(), reply::written(note, entered_ms));
        let verb = Verb::Enter { terms: *terms, claim: *claim, mood, observed, note, guess };
        Self { names, entry: place.entry, verb }
    }

    /// `alone` if the key most likely has no line.
    pub(super) fn leave(names: Names, entry: EntryId, alone: bool) -> Self {
        Self { names, entry, verb: Verb::Leave { alone } }
    }

    pub(super) fn enters(&self) -> bool {
        matches!(self.verb, Verb::Enter { .. })
    }

    /// As a command over these connections.
    fn command(&self, wire: &Wire) -> (&'static Script, Command) {
        let scripts = wire.settings.scripts;
        let (line, id) = (std::iter::once(&self.names), hex(self.entry));
        match &self.verb {
            Verb::Enter { terms, claim, mood, observed, note, .. } => {
                let observed = u8::from(*observed);
                let wants = match claim {
                    Claim::Exclusive => format!("x{mood}{observed}"),
                    Claim::Shared => format!("s{mood}{observed} 1 w"),
                    Claim::Permits { count, of } => format!("p{mood}{observed} {count} {of}"),
                };
                let command = evalsha(&scripts.enter.digest, line, 5)
                    .joined(&[&id, b" ", wire.channel.as_bytes(), b" ", note])
                    .number(millis(terms.holding))
                    .part(wants.as_bytes())
                    .number(millis(terms.waiting))
                    .number(keep_ms(terms));
                (&scripts.enter, command)
            }
            Verb::Leave { .. } => {
                let own = [&id as &[u8], b" ", wire.settings.client.as_bytes()];
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

/// What became of a verb for a key that most likely has no line. If it is not done, its own script must follow.
enum Alone {
    Done(Value),
    /// Nothing was changed: it has a line, or anything else is unusual.
    NotDone,
    /// A mark may have been set that does not count.
    Begun,
}

impl Wire {
    /// Does it in one trip, and one more for the replicas' word if that is wanted; two, if a key that seemed to have no line
    /// has one.
    pub(super) async fn call(&self, call: &Call) -> Result<Value> {
        let alone = self.try_alone(call).await?;
        if let Alone::Done(answer) = alone {
            return Ok(answer);
        }
        let (script, command) = call.command(self);
        let asked = self.ask(call.names.slot(), script, &command).await;
        // A script that is refused takes no mark away.
        let asked = if let Alone::Begun = alone { asked.map_err(Error::with_unknown_fate) } else { asked };
        let (answer, link) = asked?;
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

    /// Enters or leaves a key that most likely has no line.
    async fn try_alone(&self, call: &Call) -> Result<Alone> {
        let slot = call.names.slot();
        match &call.verb {
            Verb::Enter { terms, note, guess: Some(guess), .. } => {
                let (answer, link) = self.send(slot, &call.free(&self.channel, terms, note, guess)).await?;
                let taken = match answer {
                    Some(Value::Array(answers)) if answers.starts_with(&[Value::Nil]) => return Ok(Alone::NotDone),
                    Some(Value::Array(answers)) => answers.starts_with(&[Value::Okay, Value::Int(1)]),
                    _ => false,
                };
                let Some(ticket) = i64::try_from(guess.ticket).ok().filter(|_| taken) else { return Ok(Alone::Begun) };
                if self.settings.replicas > 0 {
                    self.confirm(&link).await?;
                }
                Ok(Alone::Done(Value::Int(ticket)))
            }
            Verb::Leave { alone: true } if !self.has_slots() => {
                let leaving = Leaving { call, wire: self };
                let answer = self.send_together(slot, &leaving, &self.settings.scripts.leave).await?;
                Ok(answer.filter(|answer| *answer != Value::Int(-1)).map_or(Alone::NotDone, Alone::Done))
            }
            _ => Ok(Alone::NotDone),
        }
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

impl Call {
    /// Takes a key that has no line, without a script: two commands, or three, which take the server a third of the time.
    /// The mark is set if the key is free, and the guess is the ticket if it is higher than all before, which it is not while
    /// there is a line. Whatever else comes of it is put right by the script, which must follow: it finds the mark that may be
    /// there, and takes no notice of it. Others may come in between the two, and find a mark that does not count yet.
    fn free(&self, channel: &str, terms: &Terms, note: &[u8], guess: &Guess) -> Command {
        let [lock, tickets, ..] = self.names.all().map(str::as_bytes);
        let (id, ticket) = (hex(self.entry), Digits::of(guess.ticket));
        let command = Command::of(6)
            .part(b"SET")
            .part(lock)
            .joined(&[&id, b" ", channel.as_bytes(), b" ", &ticket, b" ", note])
            .part(b"NX")
            .part(b"PX")
            .number(millis(terms.holding))
            .and(6)
            .part(b"ZADD")
            .part(tickets)
            .part(b"GT")
            .part(b"CH")
            .part(&ticket)
            .part(b"t");
        if guess.is_kept { command } else { command.and(3).part(b"PEXPIRE").part(tickets).number(keep_ms(terms)) }
    }
}

/// Giving back a key that has no line.
struct Leaving<'a> {
    call: &'a Call,
    wire: &'a Wire,
}

impl Joinable for Leaving<'_> {
    fn alone(&self) -> Command {
        self.call.command(self.wire).1
    }

    fn script(&self) -> &'static str {
        &self.wire.settings.scripts.leave_many.digest
    }

    fn join(&self, together: &mut Together) {
        let [lock, ..] = self.call.names.all();
        together.key(lock.as_bytes());
        together.arg(&[&hex(self.call.entry), b" ", self.wire.settings.client.as_bytes()]);
    }
}

/// An id as its `Display` writes it.
fn hex(id: EntryId) -> [u8; 32] {
    let mut text = [0; 32];
    for (nth, digit) in text.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(id.0 >> (124 - 4 * nth)) as usize & 15];
    }
    text
}

/// The answers of a script that was called for so many lines.
pub(super) fn many(answer: Value, lines: usize) -> Result<Vec<Value>> {
    match answer {
        Value::Array(answers) if answers.len() == lines => Ok(answers),
        _ => Err(Error::new(ErrorKind::Protocol, "a script answered for another number of lines").with_unknown_fate()),
    }
}
