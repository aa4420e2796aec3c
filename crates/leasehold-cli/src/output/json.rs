//! What the program says to other programs. Names of fields are stable: fields are added, never renamed or removed.

use std::io::{self, Write};

use leasehold::backend::{EntryView, KeyView};
use leasehold::{Capacity, Claim, Key};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// One key and everybody in its line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KeyJson {
    #[serde(flatten)]
    pub(crate) name: NameJson,
    pub(crate) kind: &'static str,
    /// How many permits there are; `None` for a lock, which is given as a whole.
    pub(crate) capacity: Option<u32>,
    pub(crate) holders: Vec<EntryJson>,
    /// In order; `None` if the store cannot tell.
    pub(crate) waiters: Option<Vec<EntryJson>>,
}

impl KeyJson {
    pub(crate) fn new(view: &KeyView) -> Self {
        let (kind, capacity) = match view.capacity {
            Some(Capacity::Permits(of)) => ("semaphore", Some(of.get())),
            Some(Capacity::Whole) | None => ("lock", None),
        };
        Self {
            name: NameJson::new(&view.key),
            kind,
            capacity,
            holders: view.holders.iter().map(EntryJson::new).collect(),
            waiters: view.waiters.as_ref().map(|waiters| waiters.iter().map(EntryJson::new).collect()),
        }
    }
}

/// A key's name.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NameJson {
    /// As it was given if it is text, else as tables show it.
    key: String,
    /// In hexadecimal, if the name is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_bytes: Option<String>,
}

impl NameJson {
    pub(crate) fn new(key: &Key) -> Self {
        let (key, key_bytes) = text(key.name());
        Self { key, key_bytes }
    }
}

/// One entry in a key's line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EntryJson {
    entry: String,
    claim: &'static str,
    /// How many permits it claims; `None` for a lock.
    permits: Option<u32>,
    ticket: u64,
    token: Option<u64>,
    owner: String,
    host: String,
    pid: u32,
    value: Option<String>,
    /// In hexadecimal, if the value is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<String>,
    age_ms: u64,
    /// `None` if it has no end.
    lease_left_ms: Option<u64>,
    yield_asked: bool,
    /// Whether a program of another kind made it: then only the owner, as it stands at the key, and the lease are known.
    foreign: bool,
    /// On how many of how many servers it is, where a majority decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<ServersJson>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ServersJson {
    on: u32,
    of: u32,
}

impl EntryJson {
    pub(crate) fn new(entry: &EntryView) -> Self {
        let (claim, permits) = match entry.claim {
            Claim::Exclusive => ("exclusive", None),
            Claim::Shared => ("shared", None),
            Claim::Permits { count, .. } => ("permits", Some(count.get())),
        };
        let (value, value_bytes) = entry.note.value.as_deref().map(text).unzip();
        let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            entry: entry.place.entry.to_string(),
            claim,
            permits,
            ticket: entry.ticket.0,
            token: entry.token.map(leasehold::FencingToken::get),
            owner: (&*entry.note.owner).into(),
            host: (&*entry.note.host).into(),
            pid: entry.note.pid,
            value,
            value_bytes: value_bytes.flatten(),
            age_ms: millis(entry.age),
            lease_left_ms: (entry.lease_left != std::time::Duration::MAX).then(|| millis(entry.lease_left)),
            yield_asked: entry.yield_asked,
            foreign: entry.foreign,
            servers: entry.spread.map(|spread| ServersJson { on: spread.on, of: spread.of }),
        }
    }
}

/// Bytes as text; and in hexadecimal too if they are not UTF-8, so that nothing is lost.
pub(crate) fn text(bytes: &[u8]) -> (String, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (text.into(), None),
        Err(_) => (super::escaped(bytes), Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())),
    }
}

/// Writes one line of JSON.
pub(crate) fn write_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut line, Printable))?;
    line.push(b'\n');
    out.write_all(&line)
}

/// JSON on one line in which every character that does not print is escaped: it may end up on a terminal after all.
struct Printable;

impl Formatter for Printable {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for c in fragment.chars() {
            let prints = matches!(c, ' '..='~') || (!c.is_ascii() && c.escape_debug().len() == 1);
            if prints {
                out.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_no_character_that_does_not_print_and_means_the_same() {
        let name = "a\u{1b}[2J\u{9b}\u{202e}\u{7f}\"\\ 🦀 é \u{e0041}\u{2066}'";
        let mut line = Vec::new();
        write_line(&mut line, &name).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert!(
            !line.trim_end().contains(|c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2066}' | '\u{e0041}'))
        );
        assert!(line.contains('🦀') && line.contains('é'), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), name);
    }

    #[test]
    fn a_name_that_is_not_text_is_given_in_bytes_too() {
        let key = Key::new(&leasehold::Namespace::default(), b"a\xff\0").unwrap();
        let json = serde_json::to_value(NameJson::new(&key)).unwrap();
        assert_eq!(json, serde_json::json!({ "key": "a\\xff\\0", "key_bytes": "61ff00" }));
    }
}
