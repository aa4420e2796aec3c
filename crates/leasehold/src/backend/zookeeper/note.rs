//! What the node of an entry says about whoever made it.
//!
//! `leasehold ttl=30000 pid=4711 host=build-3 owner=worker-7`, with ` yield` behind it once somebody wants the entry, and
//! for a candidate a line feed and its value. Texts are percent-encoded. What else is found there was written by another
//! program: it is shown as its owner.

use std::fmt::Write as _;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::backend::Note;

/// What Curator's `Revoker` writes to ask a holder to let go.
pub(super) const REVOKE: &[u8] = b"__REVOKE__";

const MARK: &str = "leasehold ";

/// What was read of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) note: Note,
    /// How long the entry lives unless it is renewed, if it is one of ours.
    pub(super) ttl: Option<Duration>,
    pub(super) yield_asked: bool,
}

impl Written {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Note { owner, host, pid, value } = &self.note;
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let ttl = self.ttl.unwrap_or_default().as_millis();
        let mut text = format!("{MARK}ttl={ttl} pid={pid} host={} owner={}", encoded(host), encoded(owner));
        if self.yield_asked {
            let _ = write!(text, " yield");
        }
        let mut bytes = text.into_bytes();
        if let Some(value) = value {
            bytes.push(b'\n');
            bytes.extend_from_slice(value);
        }
        bytes
    }

    pub(super) fn parse(data: &[u8]) -> Self {
        Self::ours(data).unwrap_or_else(|| Self::foreign(data))
    }

    fn ours(data: &[u8]) -> Option<Self> {
        let (head, value) = match data.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&data[..at], Some(data[at + 1..].into())),
            None => (data, None),
        };
        let head = std::str::from_utf8(head).ok()?.strip_prefix(MARK)?;
        let field = |name: &str| head.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let text = |name: &str| Some(percent_decode_str(field(name)?).decode_utf8().ok()?.into_owned());
        let note =
            Note { owner: text("owner")?.into(), host: text("host")?.into(), pid: field("pid")?.parse().ok()?, value };
        let ttl = Some(Duration::from_millis(field("ttl")?.parse().ok()?));
        Some(Self { note, ttl, yield_asked: head.ends_with(" yield") })
    }

    /// Curator's participants and kazoo's contenders write who they are, or nothing.
    fn foreign(data: &[u8]) -> Self {
        let yield_asked = data == REVOKE;
        let owner = if yield_asked { String::new() } else { String::from_utf8_lossy(data).into_owned() };
        let value = if yield_asked { None } else { Some(data.into()) };
        Self { note: Note { owner: owner.into(), host: "".into(), pid: 0, value }, ttl: None, yield_asked }
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.ttl.is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_note_can_be_read_by_a_person() {
        let note = Note { owner: "worker 7".into(), host: "build".into(), pid: 4711, value: Some((*b"a:80").into()) };
        let written = Written { note, ttl: Some(Duration::from_secs(30)), yield_asked: true };
        let text = String::from_utf8(written.bytes()).unwrap();
        assert_eq!(text, "leasehold ttl=30000 pid=4711 host=build owner=worker%207 yield\na:80");
    }

    #[test]
    fn what_others_write_is_their_name() {
        let curator = Written::parse(b"10.0.0.7");
        assert_eq!((&*curator.note.owner, curator.is_foreign(), curator.yield_asked), ("10.0.0.7", true, false));
        let asked = Written::parse(REVOKE);
        assert_eq!((&*asked.note.owner, asked.is_foreign(), asked.yield_asked), ("", true, true));
        assert_eq!(&*Written::parse(b"\xff").note.owner, "\u{fffd}");
        assert!(Written::parse(b"leasehold ttl=x pid=1 host= owner=").is_foreign());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            owner in "\\PC{0,30}", host in ".{0,20}", pid: u32, ttl in 0..100_000_000u64, yield_asked: bool,
            value in prop::option::of(prop::collection::vec(any::<u8>(), 0..50)),
        ) {
            let note = Note { owner: owner.into(), host: host.into(), pid, value: value.map(Into::into) };
            let written = Written { note, ttl: Some(Duration::from_millis(ttl)), yield_asked };
            prop_assert_eq!(Written::parse(&written.bytes()), written);
        }
    }
}
