//! Where a line and its entries are on the server: `<namespace>/<name>/<lease>-…`.
//!
//! The beginning is that of the Go client's mutexes and elections, so that theirs and ours stand in one line, ordered by
//! create revision. An entry is at a slot of its session, and its value says what it is. A candidate's value must be the
//! candidate's alone, because others print it; so a candidate says the same in a key of its own:
//!
//! ```text
//! lock/nightly/694d8f3c2a1b0c0d-0          0af3…9c,x,1763273000123,30,4711,build-3,worker-7      exclusive
//!              lease            slot       entry   │ entered, in ms  │  pid  host    label
//!                                                  │                 TTL in s
//!                                                  └ x exclusive, s shared, p2 two permits; `=` behind it: there is a value
//! lock/pool/~5-694d8f3c2a1b0c0d-0          0af3…9c,p2,…                                          two of five permits
//! lock/boss/694d8f3c2a1b0c0d-0af3…9c,x=,…  10.0.0.7:80                                           a candidate
//! lock/%yield/nightly/0af3…9c                                                                    a wish that this entry let go
//! ```
//!
//! Permits stand apart from everything else by their first character, so that one comparison can keep a lock and a
//! semaphore out of each other's line.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::backend::{EntryId, NOTE_BYTES_MAX, Note};
use crate::claim::Claim;
use crate::key::{Escaped, Key, Namespace};

/// No encoded name is this: what follows a percent sign there is a number.
const WISHES: &str = "%yield";

/// What an entry says of itself is in so many parts.
const FIELDS: usize = 7;

/// Where the line of a key is: every entry's key begins so.
pub(super) fn line(key: &Key) -> Vec<u8> {
    let mut line = root(key.namespace());
    line.extend(key.encoded(b"").bytes());
    line.push(b'/');
    line
}

/// What every key of a namespace begins with.
pub(super) fn root(namespace: &Namespace) -> Vec<u8> {
    match namespace.as_str() {
        "" => Vec::new(),
        text => format!("{text}/").into_bytes(),
    }
}

/// The first key behind all that begin so. Those that do end in a slash or are empty, so there is one.
pub(super) fn behind(beginning: &[u8]) -> Vec<u8> {
    match beginning.split_last() {
        Some((last, rest)) => [rest, &[last + 1]].concat(),
        None => vec![0], // all keys, by the server's convention
    }
}

/// Where the wish is that an entry let go.
pub(super) fn wish(key: &Key, entry: EntryId) -> Vec<u8> {
    let mut wish = wishes(key);
    wish.extend(entry.to_string().bytes());
    wish
}

/// Where all wishes for entries of a line are.
pub(super) fn wishes(key: &Key) -> Vec<u8> {
    let mut wishes = root(key.namespace());
    wishes.extend(format!("{WISHES}/{}/", key.encoded(b"")).bytes());
    wishes
}

/// The entry that a wish is for, if that is one.
pub(super) fn wished(namespace: &Namespace, key: &[u8]) -> Option<EntryId> {
    let rest = std::str::from_utf8(key.strip_prefix(&root(namespace)[..])?).ok()?;
    let (_name, entry) = rest.strip_prefix(WISHES)?.strip_prefix('/')?.split_once('/')?;
    entry.parse().ok()
}

/// The ranges in which there must be no key for a claim to agree with those in line.
pub(super) fn of_another_kind(line: &[u8], claim: Claim) -> Vec<(Vec<u8>, Vec<u8>)> {
    let with = |text: &str| [line, text.as_bytes()].concat();
    match claim {
        Claim::Exclusive | Claim::Shared => vec![(with("~"), with("\x7f"))],
        Claim::Permits { of, .. } => {
            vec![(line.to_vec(), with(&format!("~{of}-"))), (with(&format!("~{of}.")), behind(line))]
        }
    }
}

/// What the keys of a session begin with in a line, for claims of that kind: a slot follows, or what a candidate says of itself.
pub(super) fn beginning(line: &[u8], claim: Claim, lease: i64) -> Vec<u8> {
    let text = match claim {
        Claim::Exclusive | Claim::Shared => format!("{lease:x}-"),
        Claim::Permits { of, .. } => format!("~{of}-{lease:x}-"),
    };
    [line, text.as_bytes()].concat()
}

/// The key of a slot.
pub(super) fn slot(beginning: &[u8], slot: u32) -> Vec<u8> {
    [beginning, slot.to_string().as_bytes()].concat()
}

/// What an entry says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) entry: EntryId,
    pub(super) claim: Claim,
    pub(super) note: Note,
    pub(super) entered_ms: u64,
    pub(super) ttl_s: u64,
}

impl Label {
    fn fields(&self) -> String {
        let Self { entry, claim, note, entered_ms, ttl_s } = self;
        let kind = match claim {
            Claim::Exclusive => "x".to_owned(),
            Claim::Shared => "s".to_owned(),
            Claim::Permits { count, .. } => format!("p{count}"),
        };
        let valued = if note.value.is_some() { "=" } else { "" };
        let (pid, host, owner) = (note.pid, encoded(note.host.as_bytes()), encoded(note.owner.as_bytes()));
        format!("{entry},{kind}{valued},{entered_ms},{ttl_s},{pid},{host},{owner}")
    }

    /// The key of a candidate, and nobody else's ever. Its value is what it stands for.
    pub(super) fn key(&self, beginning: &[u8]) -> Vec<u8> {
        [beginning, self.fields().as_bytes()].concat()
    }

    /// The value of an entry at a slot. No other entry's is the same, because the id is in it.
    pub(super) fn value(&self) -> Vec<u8> {
        let mut text = self.fields();
        if let Some(value) = &self.note.value {
            text.push(',');
            text.push_str(&encoded(value));
        }
        text.into_bytes()
    }

    /// What an entry in that line says. `None` if another program made it.
    pub(super) fn of(line: &[u8], key: &[u8], value: &[u8]) -> Option<Self> {
        let rest = std::str::from_utf8(key.strip_prefix(line)?).ok()?;
        let (of, rest) = match rest.strip_prefix('~') {
            Some(rest) => {
                let (of, rest) = rest.split_once('-')?;
                (Some(of.parse::<NonZeroU32>().ok()?), rest)
            }
            None => (None, rest),
        };
        let (_lease, rest) = rest.split_once('-')?;
        if rest.parse::<u32>().is_ok() {
            let text = std::str::from_utf8(value).ok()?;
            return match text.split(',').count() {
                FIELDS => Self::parse(of, text, None),
                _ => {
                    let (text, value) = text.rsplit_once(',')?;
                    Self::parse(of, text, Some(percent_decode_str(value).collect()))
                }
            };
        }
        Self::parse(of, rest, Some(value.into()))
    }

    fn parse(of: Option<NonZeroU32>, text: &str, value: Option<Arc<[u8]>>) -> Option<Self> {
        let fields: Vec<&str> = text.split(',').collect();
        let [entry, kind, entered_ms, ttl_s, pid, host, owner]: [&str; FIELDS] = fields.try_into().ok()?;
        let (kind, valued) = kind.strip_suffix('=').map_or((kind, false), |kind| (kind, true));
        let claim = match (kind, kind.strip_prefix('p'), of) {
            ("x", _, None) => Claim::Exclusive,
            ("s", _, None) => Claim::Shared,
            (_, Some(count), Some(of)) => {
                let count = count.parse::<NonZeroU32>().ok().filter(|count| *count <= of)?;
                Claim::Permits { count, of }
            }
            _ => return None,
        };
        let entry = if entry.len() == 32 { entry.parse().ok()? } else { return None };
        if valued != value.is_some() {
            return None;
        }
        let note = Note { owner: text_of(owner)?, host: text_of(host)?, pid: pid.parse().ok()?, value };
        Some(Self { entry, claim, note, entered_ms: entered_ms.parse().ok()?, ttl_s: ttl_s.parse().ok()? })
    }
}

/// By what an entry of another program is known: the Go client's by its lease, whatever else by a digest of its key.
pub(super) fn foreign_id(rest: &[u8]) -> EntryId {
    let text = std::str::from_utf8(rest).unwrap_or_default();
    match u64::from_str_radix(text, 16) {
        Ok(lease) => EntryId(lease.into()),
        Err(_) => EntryId(rest.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |digest: u128, byte| {
            (digest ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })),
    }
}

/// What can be said of whoever made an entry that is not ours: its value, or the end of its key.
pub(super) fn foreign_note(rest: &[u8], value: &[u8]) -> Note {
    let shown = if value.is_empty() { rest } else { value };
    let owner = String::from_utf8_lossy(&shown[..shown.len().min(NOTE_BYTES_MAX)]).into_owned();
    let value = (!value.is_empty()).then(|| value.into());
    Note { owner: owner.into(), host: "".into(), pid: 0, value }
}

/// The lock that a key of the server belongs to, and what stands behind its line's beginning. `None` for keys that are no
/// entry of that namespace.
pub(super) fn entry_of(namespace: &Namespace, key: &[u8]) -> Option<Key> {
    let rest = key.strip_prefix(&root(namespace)[..])?;
    let rest = std::str::from_utf8(rest).ok()?;
    let (name, entry) = rest.split_once('/')?;
    if name == WISHES || entry.is_empty() || entry.contains('/') {
        return None;
    }
    let decoded: Vec<u8> = percent_decode_str(name).collect();
    let found = Key::new(namespace, decoded).ok()?;
    // A name that we would have written in another way is not ours, and its line is not where we would look.
    (found.encoded(b"") == name).then_some(found)
}

/// Text with nothing in it that has a meaning where it is written.
fn encoded(text: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'@') {
            encoded.push(char::from(*byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a String does not fail");
        }
    }
    encoded
}

fn text_of(encoded: &str) -> Option<Arc<str>> {
    Some(percent_decode_str(encoded).decode_utf8().ok()?.into())
}

/// A key for a person to read.
pub(super) fn shown(key: &[u8]) -> String {
    Escaped(key).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(namespace: &str, name: impl AsRef<[u8]>) -> Key {
        Key::new(&Namespace::new(namespace).unwrap(), name).unwrap()
    }

    fn permits(count: u32, of: u32) -> Claim {
        Claim::Permits { count: count.try_into().unwrap(), of: of.try_into().unwrap() }
    }

    fn label(claim: Claim, owner: &str, value: Option<&[u8]>) -> Label {
        let note = Note { owner: owner.into(), host: "build-3".into(), pid: 4711, value: value.map(Into::into) };
        Label { entry: EntryId(0xaf3), claim, note, entered_ms: 1_763_273_000_123, ttl_s: 30 }
    }

    /// Where the first entry of a session is.
    fn first(line: &[u8], claim: Claim, lease: i64) -> Vec<u8> {
        slot(&beginning(line, claim, lease), 0)
    }

    #[test]
    fn an_entry_stands_where_the_go_client_would_put_it_and_says_who_made_it() {
        let line = line(&key("lock", "nightly"));
        assert_eq!(line, b"lock/nightly/");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert_eq!(text(first(&line, Claim::Exclusive, 0x694d_8f3c)), "lock/nightly/694d8f3c-0");
        assert_eq!(text(first(&line, permits(2, 5), 1)), "lock/nightly/~5-1-0");
        let value = text(label(permits(2, 5), "worker-7", None).value());
        assert_eq!(value, "00000000000000000000000000000af3,p2,1763273000123,30,4711,build-3,worker-7");
        let noted = text(label(Claim::Shared, "", Some(b"a, b")).value());
        assert_eq!(noted, "00000000000000000000000000000af3,s=,1763273000123,30,4711,build-3,,a%2C%20b");
        let candidate = label(Claim::Exclusive, "worker-7", Some(b"10.0.0.7:80"));
        let expected =
            "lock/nightly/694d8f3c-00000000000000000000000000000af3,x=,1763273000123,30,4711,build-3,worker-7";
        assert_eq!(text(candidate.key(&beginning(&line, Claim::Exclusive, 0x694d_8f3c))), expected);
    }

    #[test]
    fn the_range_of_a_line_ends_before_every_other_line() {
        for (line_of, other) in [("a", "a/b"), ("a", "a0"), ("a", "a."), ("a", "b"), ("a", "a\u{ff}")] {
            let (from, to) = (line(&key("lock", line_of)), behind(&line(&key("lock", line_of))));
            let stranger = first(&line(&key("lock", other)), Claim::Shared, 7);
            assert!(!(from <= stranger && stranger < to), "{other} is within {line_of}");
        }
    }

    #[test]
    fn an_entry_of_another_capacity_is_in_a_range_that_must_be_empty_and_one_of_the_same_is_not() {
        let line = line(&key("lock", "k"));
        let claims = [Claim::Exclusive, Claim::Shared, permits(1, 5), permits(5, 5), permits(1, 4), permits(1, 50)];
        for mine in claims {
            for theirs in claims {
                let entry = first(&line, theirs, 0x7fff_ffff_ffff_ffff);
                let kept_out = of_another_kind(&line, mine).iter().any(|(from, to)| *from <= entry && entry < *to);
                assert_eq!(kept_out, mine.capacity() != theirs.capacity(), "{mine} meets {theirs}");
            }
            let go = [&line[..], b"694d8f3c"].concat();
            let kept_out = of_another_kind(&line, mine).iter().any(|(from, to)| *from <= go && go < *to);
            assert_eq!(kept_out, matches!(mine, Claim::Permits { .. }), "{mine} meets the Go client");
        }
    }

    #[test]
    fn an_entry_of_the_go_client_is_known_by_its_lease_and_any_other_by_its_key() {
        let ours = label(Claim::Exclusive, "o", None).value();
        for (key, value) in [("694d8f3c", &ours[..]), ("694d8f3c-0", b"10.0.0.7:80"), ("694d8f3c-0", b"")] {
            assert_eq!(Label::of(b"k/", format!("k/{key}").as_bytes(), value), None, "{key}");
        }
        assert_eq!(foreign_id(b"694d8f3c"), EntryId(0x694d_8f3c));
        assert_ne!(foreign_id(b"read/17"), foreign_id(b"read/18"));
        assert_eq!(&*foreign_note(b"694d8f3c", b"").owner, "694d8f3c");
        assert_eq!(foreign_note(b"694d8f3c", b"me").value.as_deref(), Some(&b"me"[..]));
    }

    #[test]
    fn neither_a_wish_nor_a_key_of_somebody_else_is_taken_for_an_entry() {
        let namespace = Namespace::new("lock").unwrap();
        let name = key("lock", "a/b");
        let entry = first(&line(&name), Claim::Exclusive, 7);
        assert_eq!(entry_of(&namespace, &entry), Some(name.clone()));
        assert_eq!(entry_of(&namespace, b"lock/a%2Fb/694d8f3c"), Some(name.clone()));
        for other in [
            wish(&name, EntryId(1)),
            b"lock/a%2fb/1".into(),
            b"lock/a".into(),
            b"lock/a/b/c".into(),
            b"locks/a/1".into(),
        ] {
            assert_eq!(entry_of(&namespace, &other), None, "{}", shown(&other));
        }
        assert!(wish(&name, EntryId(1)).starts_with(&wishes(&name)));
        assert_eq!(wished(&namespace, &wish(&name, EntryId(1))), Some(EntryId(1)));
        assert_eq!(wished(&namespace, &entry), None);
    }

    proptest! {
        #[test]
        fn what_an_entry_says_of_itself_is_read_as_it_was_written(
            owner in ".{0,40}", host in ".{0,20}", pid: u32, id: u128, lease in 1..i64::MAX, nth: u32, kind in 0..3u32,
            value: Option<Vec<u8>>,
        ) {
            let claim = match kind { 0 => Claim::Exclusive, 1 => Claim::Shared, _ => permits(pid % 9 + 1, 9) };
            let note = Note { owner: owner.into(), host: host.into(), pid, value: value.clone().map(Into::into) };
            let label = Label { entry: EntryId(id), claim, note, entered_ms: id as u64, ttl_s: u64::from(pid) };
            let line = line(&key("lock", "k"));
            let beginning = beginning(&line, claim, lease);
            prop_assert_eq!(Label::of(&line, &slot(&beginning, nth), &label.value()), Some(label.clone()));
            if let Some(value) = value {
                let candidate = label.key(&beginning);
                prop_assert!(!candidate[line.len()..].contains(&b'/'));
                prop_assert_eq!(Label::of(&line, &candidate, &value), Some(label));
            }
        }

        #[test]
        fn whatever_stands_in_a_line_is_read_without_panic(text in ".{0,60}", value in ".{0,60}") {
            let _ = (Label::of(b"", text.as_bytes(), value.as_bytes()), foreign_id(text.as_bytes()));
            let _ = Label::of(b"", b"1-0", value.as_bytes());
        }
    }
}
