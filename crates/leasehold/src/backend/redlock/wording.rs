//! Requests as calls of scripts, and what those answer, taken apart. Nothing that a server can say makes this panic.

use std::borrow::Cow;
use std::time::Duration;

use redis::Value;

use crate::backend::redis::call::millis;
use crate::backend::redis::command::{Command, Digits};
use crate::backend::redis::names::Names;
use crate::backend::redis::reply::{note, written};
use crate::backend::redis::scripts::Script;
use crate::backend::redlock::node::{
    Ask, Epoch, Extended, Grant, Memory, Release, Reply, SeenEntry, Sight, freed_channel,
};
use crate::backend::redlock::scripts::SCRIPTS;
use crate::backend::{EntryId, Note, Place};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;

/// Where a server keeps what it must not forget.
pub(super) const MEMORY: &str = "leasehold:redlock";

/// How many fences a server has. Many names share one, so that none is left behind by a name that is never used again; and
/// there are many, so that names hardly get in each other's way. All clients must agree on it.
const FENCES: u16 = 256;

/// The keys of one lock: it alone is what other programs look at.
struct Keys {
    lock: String,
    fence: String,
}

impl Keys {
    fn of(key: &Key) -> Self {
        let names = Names::of(key);
        Self { lock: names.lock().into(), fence: format!("f{}", names.slot() % FENCES) }
    }

    fn beside(&self, what: &str) -> String {
        format!("{{{}}}:{what}", self.lock)
    }

    fn left(&self, entry: EntryId) -> String {
        self.beside(&format!("left:{entry}"))
    }

    fn line(&self) -> [String; 3] {
        [self.lock.clone(), self.beside("sharers"), self.beside("notes")]
    }
}

/// A call of a script by its digest.
pub(super) fn call(script: &Script, keys: &[String], args: &[Vec<u8>]) -> Command {
    let command = Command::of(3 + keys.len() + args.len()).part(b"EVALSHA").part(script.digest.as_bytes());
    let parts = keys.iter().map(String::as_bytes).chain(args.iter().map(Vec::as_slice));
    parts.fold(command.number(keys.len() as u64), Command::part)
}

fn text(value: &impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// What stands at the lock of one who has it, `id channel token since note`. Its age is told by its own clock.
fn mark(grant: &Grant) -> Vec<u8> {
    let Grant { place, guess, channel, note, .. } = grant;
    let since_ms = Clock::boot().wall_micros() / 1000;
    let mut mark = format!("{} {channel} {guess} {since_ms} ", place.entry).into_bytes();
    mark.extend(written(note, 0));
    mark
}

fn grant_call(grant: &Grant) -> Command {
    let keys = Keys::of(&grant.place.key);
    let kind = if grant.shared { "s" } else { "x" };
    let args = [mark(grant), text(&millis(grant.ttl)), text(&grant.guess), text(&keys.fence), text(&kind)];
    let (left, [lock, sharers, notes]) = (keys.left(grant.place.entry), keys.line());
    call(&SCRIPTS.grant, &[lock, sharers, notes, left, MEMORY.to_owned()], &args)
}

/// A request for a lock in few words: plain commands, which take a server a fifth of the time that a script takes.
pub(super) struct Brief {
    /// The lock is set if it is free.
    set: Command,
    fence: String,
    pub(super) watch: Command,
    /// If the lock is the owner's now, it was when the fence was raised, and the lock is what is watched.
    pub(super) look: Command,
}

impl Brief {
    pub(super) fn of(grant: &Grant) -> &Self {
        grant.spelled.brief.get_or_init(|| {
            let Keys { lock, fence } = Keys::of(&grant.place.key);
            let set = Command::of(6).part(b"SET").part(lock.as_bytes()).part(&mark(grant));
            let set = set.part(b"NX").part(b"PX").number(millis(grant.ttl));
            let of_lock = |verb: &[u8]| Command::of(2).part(verb).part(lock.as_bytes());
            Self { set, fence, watch: of_lock(b"WATCH"), look: of_lock(b"GET") }
        })
    }

    /// And the fence is raised, if the server has that epoch and the guess is higher.
    pub(super) fn asked(&self, guess: u64, epoch: Epoch) -> Command {
        let asked = self.set.clone().and(7).part(b"ZADD").part(MEMORY.as_bytes());
        let asked = asked.part(b"XX").part(b"GT").part(b"CH").number(guess);
        asked.joined(&[self.fence.as_bytes(), b":", &Digits::of(epoch.0)])
    }

    /// Whether the lock is the owner's, by a guess that is its token as far as this server goes. If not, there is more to be said.
    pub(super) fn is_granted(grant: &Grant, answers: &[Value]) -> bool {
        let [Value::Okay, Value::Int(1), watched @ .., Value::BulkString(mark)] = answers else { return false };
        watched.iter().all(|answer| *answer == Value::Okay) && mark.starts_with(text(&grant.place.entry).as_slice())
    }
}

/// Gives a lock up that one has alone, whoever has touched it.
pub(super) fn give_call(place: &Place) -> Command {
    call(&SCRIPTS.give, &[Keys::of(&place.key).lock], &[text(&place.entry), text(&freed_channel(&place.key))])
}

/// How a lock is given up that was held alone.
pub(super) struct Giving {
    /// If nobody has touched it since it is watched.
    pub(super) watched: Command,
    pub(super) otherwise: Command,
}

impl Giving {
    pub(super) fn of(release: &Release) -> &Self {
        let Release { place, spelled, .. } = release;
        spelled.giving.get_or_init(|| {
            let (lock, freed, id) = (Keys::of(&place.key).lock, freed_channel(&place.key), text(&place.entry));
            let watched = Command::of(1).part(b"MULTI").and(2).part(b"DEL").part(lock.as_bytes()).and(1).part(b"EXEC");
            // Not within: to a connection that hears that channel, older servers would tell it in the middle of their answer.
            let watched = watched.and(3).part(b"PUBLISH").part(freed.as_bytes()).part(&id);
            Self { watched, otherwise: give_call(place) }
        })
    }

    /// What was answered; `None` if somebody had touched the lock.
    pub(super) fn reply(answer: &Value) -> Result<Option<Reply>> {
        let answer = match answer {
            Value::Array(answers) => match answers.as_slice() {
                [_, _, Value::Nil, _] => return Ok(None),
                [_, _, Value::Array(answers), _] if !answers.is_empty() => &answers[0],
                _ => return Err(nonsense()),
            },
            answer => answer,
        };
        done(answer).map(Some)
    }
}

fn release_call(release: &Release) -> Command {
    let Release { place, bar, held, by, .. } = release;
    let (keys, freed) = (Keys::of(&place.key), freed_channel(&place.key));
    let bar_ms = bar.map_or(0, |bar| millis(bar).max(1));
    let args = [text(&place.entry), text(&bar_ms), text(&u8::from(*held)), text(by), text(&freed)];
    let [lock, sharers, notes] = keys.line();
    call(&SCRIPTS.release, &[lock, sharers, notes, keys.left(place.entry)], &args)
}

/// The script that does what is asked, and its call; `None` for what no script does. `server` is the server's run id.
pub(super) fn script_of<'a>(ask: &'a Ask, server: &str) -> Option<(&'static Script, Cow<'a, Command>)> {
    let scripts = &*SCRIPTS;
    let memory = || MEMORY.to_owned();
    let (script, keys, args) = match ask {
        Ask::Grant(grant) => {
            let call = grant.spelled.at_length.get_or_init(|| grant_call(grant));
            return Some((&scripts.grant, Cow::Borrowed(call)));
        }
        Ask::Release(release) => {
            let call = release.spelled.at_length.get_or_init(|| release_call(release));
            return Some((&scripts.release, Cow::Borrowed(call)));
        }
        Ask::Commit { place, token, epoch } => {
            let keys = Keys::of(&place.key);
            let args = vec![text(&place.entry), text(token), text(&epoch.0), text(&keys.fence)];
            (&scripts.commit, vec![keys.lock, memory()], args)
        }
        Ask::Extend(extensions) => {
            let keys = extensions.iter().flat_map(|extension| Keys::of(&extension.place.key).line()).collect();
            let args = extensions
                .iter()
                .flat_map(|extension| [text(&extension.place.entry), text(&millis(extension.ttl))])
                .collect();
            (&scripts.extend, keys, args)
        }
        Ask::Wish(Place { key, entry }) => (&scripts.wish, Keys::of(key).line().into(), vec![text(entry)]),
        Ask::Survey { mark } => (&scripts.survey, vec![memory()], vec![text(mark)]),
        Ask::Admit { mark, floor, longest, epoch } => {
            let args =
                vec![text(mark), text(floor), text(&millis(*longest)), text(&epoch.0), text(&server), text(&FENCES)];
            (&scripts.admit, vec![memory()], args)
        }
        Ask::Inspect(keys) => {
            let keys = keys.iter().flat_map(|key| Keys::of(key).line()).collect();
            (&scripts.inspect, keys, Vec::new())
        }
        Ask::Keys(_) | Ask::Health => return None,
    };
    Some((script, Cow::Owned(call(script, &keys, &args))))
}

/// What a script answered to what was asked.
pub(super) fn reply_of(ask: &Ask, server: &str, answer: &Value) -> Result<Reply> {
    match ask {
        Ask::Grant(_) => grant(Parts::of(answer)?),
        Ask::Commit { .. } | Ask::Release(_) | Ask::Wish(_) | Ask::Admit { .. } => done(answer),
        Ask::Extend(extensions) => {
            let answers = Parts::of(answer)?;
            if answers.0.len() != extensions.len() {
                return Err(nonsense());
            }
            let extended = answers.0.iter().map(|answer| match answer {
                Value::Int(0) => Ok(Extended::No),
                Value::Int(wanted @ 1..=2) => Ok(Extended::Yes { yield_asked: *wanted == 2 }),
                _ => Err(nonsense()),
            });
            Ok(Reply::Extended(extended.collect::<Result<_>>()?))
        }
        Ask::Survey { .. } => memory(Parts::of(answer)?, server).map(Reply::Memory),
        Ask::Inspect(keys) => {
            let answers = Parts::of(answer)?;
            if answers.0.len() != keys.len() + 1 {
                return Err(nonsense());
            }
            let now_ms = answers.number(0)?;
            // What others keep at a key is no lock, and nobody holds it.
            let seen = answers.0[1..].iter().map(|answer| match answer {
                Value::Array(_) => sight(Parts::of(answer)?, now_ms),
                _ => Ok(Sight::default()),
            });
            Ok(Reply::Seen(seen.collect::<Result<_>>()?))
        }
        Ask::Keys(_) | Ask::Health => Err(nonsense()),
    }
}

fn done(answer: &Value) -> Result<Reply> {
    match answer {
        Value::Int(1) => Ok(Reply::Done),
        Value::Int(0) => Ok(Reply::NotDone),
        _ => Err(nonsense()),
    }
}

/// In which epoch a server is, and how long its longest lease, if a greeting or a grant says so.
pub(super) fn learnt(answer: &Value) -> Option<(Epoch, Duration)> {
    let parts = Parts::of(answer).ok()?;
    let epoch_at = parts.0.len().checked_sub(2)?;
    Some((Epoch(parts.number(epoch_at).ok()?), Duration::from_millis(parts.number(epoch_at + 1).ok()?)))
}

fn grant(parts: Parts<'_>) -> Result<Reply> {
    match parts.int(0)? {
        1 => Ok(Reply::Granted { prior: parts.number(1)?, epoch: Epoch(parts.number(2)?) }),
        2 => Ok(Reply::Busy(Box::new(sight(Parts::of(parts.get(1)?)?, 0)?))),
        3 => Ok(Reply::NotReady),
        4 => Ok(Reply::TooLong { longest: Duration::from_millis(parts.number(1)?) }),
        5 => Ok(Reply::Barred),
        6 => Ok(Reply::InTheWay(String::from_utf8_lossy(parts.bytes(1)?).into())),
        _ => Err(nonsense()),
    }
}

fn memory(parts: Parts<'_>, server: &str) -> Result<Memory> {
    let server = server.to_owned();
    match parts.int(0)? {
        0 => Ok(Memory::Blank { mark: parts.number(1)?, server }),
        1 => {
            let (epoch, highest) = (Epoch(parts.number(1)?), parts.number(2)?);
            Ok(Memory::Ready { epoch, highest, longest: Duration::from_millis(parts.number(3)?), server })
        }
        _ => Err(nonsense()),
    }
}

/// Who has a key. Without the server's time nobody's age is told.
fn sight(parts: Parts<'_>, now_ms: u64) -> Result<Sight> {
    let free_in = u64::try_from(parts.int(0)?).ok().map(Duration::from_millis);
    let entries = parts.0[1..].iter().map(|answer| seen(&Parts::of(answer)?, now_ms)).collect::<Result<_>>()?;
    Ok(Sight { entries, free_in })
}

/// One who has it, as `id kind record lease wish`.
fn seen(parts: &Parts<'_>, now_ms: u64) -> Result<SeenEntry> {
    let id = std::str::from_utf8(parts.bytes(0)?).ok().and_then(|id| id.parse().ok()).ok_or_else(nonsense)?;
    let (kind, record) = (parts.bytes(1)?, parts.bytes(2)?);
    let lease_left = u64::try_from(parts.int(3)?).map_or(Duration::MAX, Duration::from_millis);
    let yield_asked = parts.int(4)? == 1;
    let mut entry = SeenEntry {
        entry: id,
        shared: kind == b"s",
        token: 0,
        note: Note::default(),
        age: Duration::ZERO,
        lease_left,
        yield_asked,
        foreign: kind == b"f",
    };
    if entry.foreign {
        entry.note.owner = String::from_utf8_lossy(record).into();
        return Ok(entry);
    }
    // `channel token since note`
    let mut words = record.splitn(4, |byte| *byte == b' ').skip(1);
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (token, since_ms) = (number().ok_or_else(nonsense)?, number().ok_or_else(nonsense)?);
    let (note, _) = words.next().and_then(note).ok_or_else(nonsense)?;
    entry.token = token;
    entry.note = note;
    entry.age = Duration::from_millis(now_ms.saturating_sub(since_ms));
    Ok(entry)
}

/// A list of answers.
#[derive(Clone, Copy)]
struct Parts<'a>(&'a [Value]);

impl<'a> Parts<'a> {
    fn of(answer: &'a Value) -> Result<Self> {
        if let Value::Array(parts) = answer { Ok(Self(parts)) } else { Err(nonsense()) }
    }

    fn get(self, at: usize) -> Result<&'a Value> {
        self.0.get(at).ok_or_else(nonsense)
    }

    fn int(self, at: usize) -> Result<i64> {
        if let Value::Int(number) = self.get(at)? { Ok(*number) } else { Err(nonsense()) }
    }

    fn bytes(self, at: usize) -> Result<&'a [u8]> {
        match self.get(at)? {
            Value::BulkString(bytes) => Ok(bytes),
            Value::SimpleString(text) => Ok(text.as_bytes()),
            _ => Err(nonsense()),
        }
    }

    /// A number as text: as such it would be cut to what a script can count to.
    fn number(self, at: usize) -> Result<u64> {
        std::str::from_utf8(self.bytes(at)?).ok().and_then(|text| text.parse().ok()).ok_or_else(nonsense)
    }
}

pub(super) fn nonsense() -> Error {
    let why =
        "a script of ours answered something that it cannot: is another program changing the keys beside the lock?";
    Error::new(ErrorKind::Protocol, why).with_unknown_fate()
}
