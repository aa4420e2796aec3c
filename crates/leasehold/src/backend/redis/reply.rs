//! What the scripts answer, taken apart. Nothing that a server can say makes this panic.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::backend::redis::command::Digits;
use crate::backend::{
    Departure, EntryId, EntryView, KeyView, Lease, LeaseId, Note, Place, Renewal, Request, Standing, Turn, Version,
};
use crate::claim::{Capacity, Claim};
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{FencingToken, Ticket};
use crate::key::{Escaped, Key};
use crate::queue;

/// How soon the first in line looks again while a foreign client holds the key: it leaves without telling anybody.
const FOREIGN_RECHECK: Duration = Duration::from_millis(50);

/// A note as it stands behind an entry: when it was made in ms of the server's time, the pid, three lengths, then the texts.
pub(in crate::backend) fn written(note: &Note, entered_ms: u64) -> Vec<u8> {
    let value = note.value.as_deref();
    let mut text = Vec::with_capacity(64 + note.owner.len() + note.host.len() + value.map_or(0, <[u8]>::len));
    for number in [entered_ms, note.pid.into(), note.owner.len() as u64, note.host.len() as u64] {
        text.extend_from_slice(&Digits::of(number));
        text.push(b' ');
    }
    match value {
        Some(value) => text.extend_from_slice(&Digits::of(value.len() as u64)),
        None => text.extend_from_slice(b"-1"),
    }
    text.push(b' ');
    text.extend_from_slice(note.owner.as_bytes());
    text.extend_from_slice(note.host.as_bytes());
    text.extend_from_slice(value.unwrap_or_default());
    text
}

pub(in crate::backend) fn note(text: &[u8]) -> Option<(Note, u64)> {
    let mut parts = text.splitn(6, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<i64>().ok();
    let (entered_ms, pid) = (number()?, number()?);
    let (owner, host, value) = (number()?, number()?, number()?);
    let texts = parts.next()?;
    let (owner, rest) = texts.split_at_checked(usize::try_from(owner).ok()?)?;
    let (host, rest) = rest.split_at_checked(usize::try_from(host).ok()?)?;
    let value = match usize::try_from(value) {
        Ok(length) => Some(rest.get(..length)?.into()),
        Err(_) => None,
    };
    let text = |bytes: &[u8]| -> Arc<str> { String::from_utf8_lossy(bytes).into() };
    let note = Note { owner: text(owner), host: text(host), pid: u32::try_from(pid).ok()?, value };
    Some((note, u64::try_from(entered_ms).ok()?))
}

/// An entry without its id: `claim weight ticket channel note`.
pub(super) struct Record {
    pub(super) claim: Claim,
    pub(super) ticket: Ticket,
    pub(super) note: Note,
    pub(super) entered_ms: u64,
}

/// The capacity is the line's: entries do not repeat it.
pub(super) fn record(text: &[u8], capacity: Capacity) -> Option<Record> {
    let mut parts = text.splitn(5, |byte| *byte == b' ');
    let (claim, weight, ticket, _channel, texts) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let claim = match (claim, capacity) {
        (b"x", _) => Claim::Exclusive,
        (b"s", _) => Claim::Shared,
        (b"p", Capacity::Permits(of)) => {
            Claim::Permits { count: u32::try_from(number(weight)?).ok()?.try_into().ok()?, of }
        }
        _ => return None,
    };
    let (note, entered_ms) = note(texts)?;
    Some(Record { claim, ticket: Ticket(number(ticket)?), note, entered_ms })
}

/// The token of a grant with that ticket.
pub(super) fn token(claim: Claim, ticket: Ticket) -> Option<FencingToken> {
    if claim.is_exclusive() { FencingToken::new(ticket.0) } else { None }
}

/// A capacity in the scripts' words.
fn capacity(word: &[u8]) -> Option<Capacity> {
    match word {
        b"w" => Some(Capacity::Whole),
        number => std::str::from_utf8(number).ok()?.parse().ok().map(Capacity::Permits),
    }
}

/// The standing of an entry that was in line and is no longer.
pub(super) fn gone() -> Standing {
    Standing::Refused { held_by: Vec::new(), recheck_in: Duration::ZERO }
}

/// What `enter.lua` says of one request.
pub(super) fn standing(answer: &Value, request: &Request) -> Result<Standing> {
    let Request { place, claim, terms, .. } = request;
    let lease = |ttl| Lease { id: LeaseId::Entry(place.clone()), ttl };
    let holding = |ticket: i64, lease| {
        let ticket = Ticket(u64::try_from(ticket).map_err(|_| nonsense())?);
        Ok(Standing::Holding { ticket, token: token(*claim, ticket), lease })
    };
    if let Value::Int(ticket) = answer {
        return holding(*ticket, lease(terms.holding));
    }
    let parts = Parts::of(answer)?;
    match parts.int(0)? {
        1 => holding(parts.int(1)?, lease(parts.span(2)?)),
        2 => {
            let ahead = u32::try_from(parts.natural(1)?).unwrap_or(u32::MAX);
            let recheck_in = recheck(ahead, parts.int(3)?, parts.int(4)?);
            Ok(Standing::Waiting {
                ahead: Some(ahead),
                turn: parts.turn(5)?,
                lease: Some(lease(parts.span(2)?)),
                seen: Version(0),
                recheck_in,
            })
        }
        3 => {
            let recheck_in = recheck(1, parts.int(1)?, parts.int(2)?);
            let held_by = entries(parts.array(3)?, &place.key, claim.capacity(), parts.time(4)?, true)?;
            Ok(Standing::Refused { held_by, recheck_in })
        }
        4 => Ok(gone()),
        5 => {
            let agreed = capacity(parts.bytes(1)?).ok_or_else(nonsense)?;
            agreed.admits(*claim, &place.key)?;
            Err(nonsense())
        }
        6 => Err(Error::new(ErrorKind::Full, format!("{} entries are in line already", parts.int(1)?))),
        7 => Err(in_the_way(parts.bytes(1)?)),
        8 => {
            Err(Error::new(ErrorKind::Unusable, "the key's tokens have run out: its last one is the largest there is"))
        }
        _ => Err(nonsense()),
    }
}

/// Whether `enter.lua` granted: in the common case it answers with the ticket alone.
pub(super) fn is_grant(answer: &Value) -> bool {
    match answer {
        Value::Int(_) => true,
        answer => Parts::of(answer).and_then(|parts| parts.int(0)).is_ok_and(|word| word == 1),
    }
}

/// Whether `enter.lua` put us in line behind a holder of another kind.
pub(super) fn waits_for_foreigner(answer: &Value) -> bool {
    let Ok(parts) = Parts::of(answer) else { return false };
    matches!((parts.int(0), parts.int(4)), (Ok(2), Ok(0..)))
}

fn in_the_way(kind: &[u8]) -> Error {
    let kind = Escaped(kind);
    Error::new(ErrorKind::KindMismatch, format!("a {kind} of somebody else's is stored at the place of this lock"))
}

/// `shortest` is the shortest lease in line, or negative. `before` is how many of us wait before us for a foreign holder,
/// or negative if the holder is not foreign.
fn recheck(ahead: u32, shortest: i64, before: i64) -> Duration {
    let shortest = u64::try_from(shortest).map_or(Duration::MAX, Duration::from_millis);
    let regular = queue::recheck_in(ahead, shortest);
    match u32::try_from(before) {
        Ok(before) => regular.min(FOREIGN_RECHECK.saturating_mul(before.saturating_add(1))),
        Err(_) => regular,
    }
}

/// What `leave.lua` says of one entry.
pub(super) fn departure(answer: &Value) -> Result<Departure> {
    match answer {
        Value::Int(0) => Ok(Departure::WasGone),
        Value::Int(1) => Ok(Departure::WasWaiting),
        Value::Int(2) => Ok(Departure::WasHolding),
        _ => Err(nonsense()),
    }
}

/// What `renew.lua` says of one lease.
pub(super) fn renewal(answer: &Value, ttl: Duration) -> Renewal {
    match answer {
        Value::Int(0) => Renewal::Lost,
        Value::Int(said @ 1..=4) => Renewal::Renewed { ttl, yield_asked: *said % 2 == 0, waits: *said > 2 },
        _ => Renewal::Unknown(nonsense()),
    }
}

/// What `inspect.lua` says of one line, and the version by which observers know it.
pub(super) fn view(answer: &Value, key: &Key) -> Result<(KeyView, u64)> {
    let parts = Parts::of(answer)?;
    if !parts.bytes(0)?.is_empty() {
        return Err(in_the_way(parts.bytes(0)?).at(key));
    }
    let now = parts.time(1)?;
    let capacity = capacity(parts.bytes(2)?).ok_or_else(nonsense)?;
    let mut holders = entries(parts.array(3)?, key, capacity, now, true)?;
    holders.sort_by_key(|holder| holder.ticket);
    let waiters = entries(parts.array(4)?, key, capacity, now, false)?;
    let capacity = if holders.is_empty() && waiters.is_empty() { None } else { Some(capacity) };
    Ok((KeyView { key: key.clone(), capacity, holders, waiters: Some(waiters) }, parts.time(5)?))
}

/// What observers are told of one key: `version`, then nothing if nobody holds it, or `lease id record`. `None`: it does not
/// say, so look.
pub(super) fn sight(message: &[u8], key: &Key) -> Option<(KeyView, u64)> {
    let mut parts = message.splitn(4, |byte| *byte == b' ');
    let mut next = || parts.next().filter(|part| !part.is_empty());
    let text = |part| std::str::from_utf8(part).ok();
    let version = text(next()?)?.parse().ok()?;
    let mut view = KeyView { key: key.clone(), capacity: None, holders: Vec::new(), waiters: None };
    if let Some(left) = next() {
        let (left, entry) = (text(left)?.parse().ok()?, text(next()?)?.parse().ok()?);
        let Record { claim, ticket, note, .. } = record(next()?, Capacity::Whole)?;
        let (place, token) = (Place { key: key.clone(), entry }, token(claim, ticket));
        let seen = seen(place, Duration::from_millis(left));
        view.capacity = Some(Capacity::Whole);
        view.holders.push(EntryView { claim, ticket, token, note, ..seen });
    }
    Some((view, version))
}

fn entries(answers: &[Value], key: &Key, capacity: Capacity, now: u64, hold: bool) -> Result<Vec<EntryView>> {
    answers.iter().map(|answer| entry(&Parts::of(answer)?, key, capacity, now, hold)).collect()
}

/// One entry as `id record lease wish [mark]`, when the server's time is `now` in µs.
fn entry(parts: &Parts<'_>, key: &Key, capacity: Capacity, now: u64, holds: bool) -> Result<EntryView> {
    let id: EntryId = std::str::from_utf8(parts.bytes(0)?).ok().and_then(|id| id.parse().ok()).ok_or_else(nonsense)?;
    let lease_left = u64::try_from(parts.int(2)?).map_or(Duration::MAX, Duration::from_millis);
    let yield_asked = parts.int(3)? == 1;
    let place = Place { key: key.clone(), entry: id };
    if let Ok(mark) = parts.bytes(4) {
        let note = Note { owner: String::from_utf8_lossy(mark).into(), ..Note::default() };
        return Ok(EntryView { note, yield_asked, foreign: true, ..seen(place, lease_left) });
    }
    let Record { claim, ticket, note, entered_ms } = record(parts.bytes(1)?, capacity).ok_or_else(nonsense)?;
    let token = if holds { token(claim, ticket) } else { None };
    let age = Duration::from_millis((now / 1000).saturating_sub(entered_ms));
    Ok(EntryView { claim, ticket, token, note, age, yield_asked, ..seen(place, lease_left) })
}

/// An entry of which nothing else is known.
fn seen(place: Place, lease_left: Duration) -> EntryView {
    EntryView {
        place,
        claim: Claim::Exclusive,
        ticket: Ticket(0),
        token: None,
        note: Note::default(),
        age: Duration::ZERO,
        lease_left,
        yield_asked: false,
        foreign: false,
        spread: None,
    }
}

/// A list of answers.
struct Parts<'a>(&'a [Value]);

impl<'a> Parts<'a> {
    fn of(answer: &'a Value) -> Result<Self> {
        if let Value::Array(parts) = answer { Ok(Self(parts)) } else { Err(nonsense()) }
    }

    fn get(&self, at: usize) -> Result<&'a Value> {
        self.0.get(at).ok_or_else(nonsense)
    }

    fn int(&self, at: usize) -> Result<i64> {
        if let Value::Int(number) = self.get(at)? { Ok(*number) } else { Err(nonsense()) }
    }

    fn natural(&self, at: usize) -> Result<u64> {
        u64::try_from(self.int(at)?).map_err(|_| nonsense())
    }

    /// The ticket and whom it is behind, or nothing.
    fn turn(&self, at: usize) -> Result<Option<Turn>> {
        if self.0.len() <= at {
            return Ok(None);
        }
        Ok(Some(Turn { ticket: Ticket(self.natural(at)?), behind: Ticket(self.natural(at + 1)?) }))
    }

    fn span(&self, at: usize) -> Result<Duration> {
        self.natural(at).map(Duration::from_millis)
    }

    fn bytes(&self, at: usize) -> Result<&'a [u8]> {
        match self.get(at)? {
            Value::BulkString(bytes) => Ok(bytes),
            Value::SimpleString(text) => Ok(text.as_bytes()),
            _ => Err(nonsense()),
        }
    }

    /// Microseconds, as text: a number would be cut to what a script can count to.
    fn time(&self, at: usize) -> Result<u64> {
        std::str::from_utf8(self.bytes(at)?).ok().and_then(|time| time.parse().ok()).ok_or_else(nonsense)
    }

    fn array(&self, at: usize) -> Result<&'a [Value]> {
        if let Value::Array(parts) = self.get(at)? { Ok(parts) } else { Err(nonsense()) }
    }
}

fn nonsense() -> Error {
    let why =
        "a script of ours answered something that it cannot: is another program changing the keys beside the lock?";
    Error::new(ErrorKind::Protocol, why).with_unknown_fate()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::{Patience, Terms};
    use crate::key::Namespace;

    const TTL: Duration = Duration::from_secs(30);

    fn key() -> Key {
        Key::new(&Namespace::default(), "k").unwrap()
    }

    fn request(claim: Claim) -> Request {
        let place = Place { key: key(), entry: EntryId(7) };
        let terms = Terms { holding: TTL, waiting: TTL };
        Request { place, claim, patience: Patience::Queue, terms, note: Note::default(), returns: false }
    }

    fn claim() -> impl Strategy<Value = Claim> {
        let permits = (1..5u32, 1..5u32)
            .prop_map(|(count, of)| Claim::Permits { count: count.try_into().unwrap(), of: of.try_into().unwrap() });
        prop_oneof![Just(Claim::Exclusive), Just(Claim::Shared), permits]
    }

    /// Numbers that something may depend on.
    fn number() -> impl Strategy<Value = i64> {
        let edges = [i64::MIN, -2, i64::from(u32::MAX), (1 << 53) - 1, i64::MAX];
        prop_oneof![-1..9i64, any::<i64>(), prop::sample::select(edges.to_vec())]
    }

    /// A number as text, if it is one.
    fn digits() -> BoxedStrategy<String> {
        let odd = prop_oneof![number().prop_map(|n| n.to_string()), "[0-9]{0,25}", "[+-]?[0-9a-f]{1,3}"];
        prop_oneof![9 => "[0-9]{1,9}", 1 => odd].boxed()
    }

    /// `claim weight ticket channel note`, mostly.
    fn record_text() -> BoxedStrategy<String> {
        let note = (0..9u64, 0..9u32, -1..5i64, -1..5i64, -1..5i64, ".{0,12}")
            .prop_map(|(made, pid, owner, host, value, texts)| format!("{made} {pid} {owner} {host} {value} {texts}"));
        let note = prop_oneof![6 => note, 1 => ".{0,9}"];
        let (weight, ticket) = (prop_oneof![2 => Just("1".to_owned()), 1 => digits()], digits());
        ("[xxssspq]", weight, ticket, "[a-z:]{0,3}", note)
            .prop_map(|(claim, weight, ticket, channel, note)| format!("{claim} {weight} {ticket} {channel} {note}"))
            .boxed()
    }

    fn id_text() -> BoxedStrategy<String> {
        prop_oneof![9 => "[0-9a-f]{32}", 1 => "[0-9a-f]{33}"].boxed()
    }

    /// Texts as scripts answer them, some of them wrong, and any bytes at all.
    fn text() -> BoxedStrategy<Vec<u8>> {
        let sight = (digits(), digits(), id_text(), record_text())
            .prop_map(|(version, left, id, record)| format!("{version} {left} {id} {record}"));
        let word = prop_oneof![Just(String::new()), Just("w".to_owned()), id_text(), digits()];
        let texts = prop_oneof![1 => word, 1 => record_text(), 3 => sight].prop_map(String::into_bytes);
        prop_oneof![4 => texts, 1 => prop::collection::vec(any::<u8>(), 0..40)].boxed()
    }

    fn value() -> BoxedStrategy<Value> {
        let leaf = prop_oneof![
            4 => number().prop_map(Value::Int),
            4 => text().prop_map(Value::BulkString),
            1 => ".{0,5}".prop_map(Value::SimpleString),
            1 => Just(Value::Nil),
            1 => Just(Value::Okay),
            1 => any::<f64>().prop_map(Value::Double),
            1 => any::<bool>().prop_map(Value::Boolean),
        ];
        let nested = leaf.prop_recursive(4, 40, 7, |inner| {
            let list = || prop::collection::vec(inner.clone(), 0..7);
            let pairs = prop::collection::vec((inner.clone(), inner.clone()), 0..3);
            prop_oneof![
                6 => list().prop_map(Value::Array),
                1 => list().prop_map(Value::Set),
                1 => pairs.prop_map(Value::Map),
            ]
        });
        nested.boxed()
    }

    fn bytes(text: impl Strategy<Value = String> + 'static) -> BoxedStrategy<Value> {
        prop_oneof![29 => text.prop_map(|text| Value::BulkString(text.into_bytes())), 1 => value()].boxed()
    }

    fn int() -> BoxedStrategy<Value> {
        prop_oneof![29 => number().prop_map(Value::Int), 1 => value()].boxed()
    }

    /// Entries in the form that `entry` reads, mostly.
    fn entry_list() -> BoxedStrategy<Value> {
        let parts = (bytes(id_text()), bytes(record_text()), int(), int(), prop::option::weighted(0.1, value()));
        let shown = parts.prop_map(|(id, record, lease, wish, mark)| {
            Value::Array([id, record, lease, wish].into_iter().chain(mark).collect())
        });
        prop_oneof![9 => prop::collection::vec(shown, 0..3).prop_map(Value::Array), 1 => value()].boxed()
    }

    fn capacity_word() -> BoxedStrategy<Value> {
        bytes(prop_oneof![Just("w".to_owned()), Just("3".to_owned()), digits()])
    }

    /// What `enter.lua` answers, mostly.
    fn enter_answer() -> BoxedStrategy<Value> {
        let parts = prop_oneof![
            (int(), int(), int(), int()).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
            (int(), int(), entry_list(), bytes(digits())).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
            capacity_word().prop_map(|word| vec![word]),
        ];
        let list = (0..10i64, parts).prop_map(|(word, parts)| [Value::Int(word)].into_iter().chain(parts).collect());
        prop_oneof![4 => list.prop_map(Value::Array), 1 => value()].boxed()
    }

    /// What `inspect.lua` answers, mostly.
    fn inspect_answer() -> BoxedStrategy<Value> {
        let in_the_way = bytes(prop_oneof![9 => Just(String::new()), 1 => digits()]);
        let parts = (in_the_way, bytes(digits()), capacity_word(), entry_list(), entry_list(), bytes(digits()));
        parts.prop_map(|(a, b, c, d, e, f)| Value::Array(vec![a, b, c, d, e, f])).boxed()
    }

    fn is_sane(entry: &EntryView, key: &Key) -> bool {
        entry.place.key == *key && entry.token.is_none_or(|token| token.get() == entry.ticket.0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Only what says that it is a grant is one, for as long as was asked for or said, and with a token if it is exclusive.
        #[test]
        fn whatever_is_answered_to_entering_is_a_standing_or_an_error(answer in enter_answer(), claim in claim()) {
            waits_for_foreigner(&answer);
            let request = request(claim);
            match standing(&answer, &request) {
                Ok(Standing::Holding { ticket, token, lease }) => {
                    prop_assert!(is_grant(&answer));
                    prop_assert_eq!(lease.id, LeaseId::Entry(request.place));
                    prop_assert_eq!(token.map(FencingToken::get), claim.is_exclusive().then_some(ticket.0).filter(|token| *token > 0));
                }
                Ok(Standing::Waiting { recheck_in, .. }) => {
                    prop_assert!(!is_grant(&answer) && !recheck_in.is_zero());
                }
                Ok(Standing::Refused { held_by, .. }) => {
                    prop_assert!(!is_grant(&answer));
                    prop_assert!(held_by.iter().all(|holder| is_sane(holder, &request.place.key)));
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn whatever_is_answered_to_leaving_or_renewing_is_understood_or_in_doubt(answer in value()) {
            prop_assert_eq!(departure(&answer).is_ok(), matches!(answer, Value::Int(0..=2)));
            match (renewal(&answer, TTL), answer) {
                (Renewal::Lost, answer) => prop_assert_eq!(answer, Value::Int(0)),
                (Renewal::Renewed { ttl, yield_asked, waits }, Value::Int(said @ 1..=4)) => {
                    prop_assert_eq!((ttl, yield_asked, waits), (TTL, said == 2 || said == 4, said >= 3));
                }
                (Renewal::Renewed { .. }, answer) => prop_assert!(false, "{:?} was understood", answer),
                (Renewal::Unknown(error), answer) => {
                    prop_assert!(!matches!(answer, Value::Int(0..=4)));
                    prop_assert_eq!(error.fate(), crate::error::Fate::Unknown);
                }
            }
        }

        #[test]
        fn whatever_is_shown_of_a_line_is_a_line_or_an_error(answer in inspect_answer()) {
            if let Ok((view, _)) = view(&answer, &key()) {
                let waiters = view.waiters.unwrap_or_default();
                prop_assert!(view.holders.iter().chain(&waiters).all(|entry| is_sane(entry, &view.key)));
                prop_assert!(view.holders.is_sorted_by_key(|holder| holder.ticket));
                prop_assert!(waiters.iter().all(|waiter| waiter.token.is_none()));
                prop_assert_eq!(view.capacity.is_none(), view.holders.is_empty() && waiters.is_empty());
            }
        }

        #[test]
        fn whatever_is_told_of_a_line_is_a_sight_or_a_reason_to_look(message in text()) {
            if let Some((view, _)) = sight(&message, &key()) {
                prop_assert!(view.holders.len() <= 1 && view.holders.iter().all(|holder| is_sane(holder, &view.key)));
            }
        }

        #[test]
        fn a_note_is_read_as_it_was_written(
            owner in ".{0,9}", host in ".{0,9}", pid: u32, value: Option<Vec<u8>>, entered_ms in 0..(1u64 << 53), cut: u8,
        ) {
            let made = Note { owner: owner.into(), host: host.into(), pid, value: value.map(Into::into) };
            let mut text = written(&made, entered_ms);
            prop_assert_eq!(note(&text), Some((made, entered_ms)));
            text.truncate(text.len().saturating_sub(usize::from(cut)));
            note(&text);
        }
    }
}
