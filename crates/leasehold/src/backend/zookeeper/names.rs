//! Paths of keys, and names of the nodes in them: ours, and those of other programs that lock there.

use std::cmp::Ordering;
use std::num::NonZeroU32;

use percent_encoding::percent_decode_str;

use crate::backend::EntryId;
use crate::claim::Claim;
use crate::key::{Key, Namespace};

/// How the nodes of locks are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// As Apache Curator names them: `_c_<uuid>-lock-0000000000`.
    #[default]
    Curator,
    /// As kazoo names them: `<uuid>__lock__0000000000`.
    Kazoo,
}

/// Where a client's locks are.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// Empty, or `/a/b`.
    pub(super) chroot: String,
    pub(super) layout: Layout,
}

impl Paths {
    /// The folder of a namespace's keys.
    pub(super) fn namespace(&self, namespace: &Namespace) -> String {
        match namespace.as_str() {
            "" if self.chroot.is_empty() => "/".into(),
            "" => self.chroot.clone(),
            text => format!("{}/{}", self.chroot, segment(text.into())),
        }
    }

    /// The folder of a key's entries.
    pub(super) fn key(&self, key: &Key) -> String {
        let namespace = self.namespace(key.namespace());
        format!("{}/{}", namespace.trim_end_matches('/'), key_segment(key))
    }

    /// The folders that must be there before a key's first entry can be, the outermost first.
    pub(super) fn folders(&self, key: &Key) -> Vec<String> {
        let path = self.key(key);
        let ends = path.char_indices().skip(1).filter(|(_, c)| *c == '/').map(|(at, _)| at);
        ends.chain([path.len()]).map(|end| path[..end].to_owned()).collect()
    }

    /// The name of a new entry, to which the server appends its number.
    pub(super) fn entry(&self, id: EntryId, claim: Claim, elects: bool) -> String {
        match self.layout {
            Layout::Curator => {
                let hex = id.to_string();
                let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
                match claim {
                    Claim::Exclusive if elects => format!("_c_{uuid}-latch-"),
                    Claim::Exclusive => format!("_c_{uuid}-lock-"),
                    Claim::Shared => format!("_c_{uuid}-__READ__"),
                    Claim::Permits { count, of } => format!("_c_{uuid}-{count}-of-{of}-permits-"),
                }
            }
            Layout::Kazoo => match claim {
                Claim::Exclusive => format!("{id}__lock__"),
                Claim::Shared => format!("{id}__rlock__"),
                Claim::Permits { count, of } => format!("{id}-{count}-of-{of}-permits-"),
            },
        }
    }
}

fn key_segment(key: &Key) -> String {
    let encoded = key.encoded(b"");
    match encoded.as_str() {
        // At the root this is where the server keeps things of its own.
        "zookeeper" if key.namespace().as_str().is_empty() => "%7Aookeeper".into(),
        _ => segment(encoded),
    }
}

/// A path's segment that means nothing but itself.
fn segment(text: String) -> String {
    match text.as_str() {
        "." => "%2E".into(),
        ".." => "%2E%2E".into(),
        _ => text,
    }
}

/// The key whose folder this is, if it is one that we would make.
pub(super) fn key_of(namespace: &Namespace, folder: &str) -> Option<Key> {
    let name: Vec<u8> = percent_decode_str(folder).collect();
    let key = Key::new(namespace, name).ok()?;
    (key_segment(&key) == folder).then_some(key)
}

/// An entry, as far as its name tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) id: EntryId,
    pub(super) claim: Claim,
    /// What the server appended. It grows within a folder, and wraps around.
    pub(super) sequence: i32,
}

impl Named {
    /// `None` if it is the name of no lock that we know of.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (stem, sequence) = cut_sequence(name)?;
        let claim = claim(stem)?;
        let id = uuid(stem).unwrap_or_else(|| stand_in(name));
        Some(Self { name: name.to_owned(), id, claim, sequence })
    }

    /// The order of a line. Numbers are compared as what is left and right of each other on a circle: a line is never half
    /// as long as it. A reader that has its own writer's number, as Curator has them, stands behind it.
    pub(super) fn cmp_in_line(&self, other: &Self) -> Ordering {
        self.sequence
            .wrapping_sub(other.sequence)
            .cmp(&0)
            .then_with(|| (self.claim == Claim::Shared).cmp(&(other.claim == Claim::Shared)))
            .then_with(|| self.name.cmp(&other.name))
    }
}

/// What stands before the number, and the number, which is written with at least ten characters. Once it has wrapped around,
/// a minus sign is one of them, or stands before ten digits.
fn cut_sequence(name: &str) -> Option<(&str, i32)> {
    let (stem, last) = name.split_at_checked(name.len().checked_sub(10)?)?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match last.strip_prefix('-') {
        Some(digits) => is_number(digits).then(|| Some((stem, last.parse().ok()?)))?,
        None if !is_number(last) => None,
        None => match stem.strip_suffix('-') {
            // `lock-0000000001` has a dash of its own; `lock--2147483648` has a minus sign beside it.
            Some(shorter) if shorter.ends_with(['-', '_']) => Some((shorter, format!("-{last}").parse().ok()?)),
            _ => Some((stem, last.parse().ok()?)),
        },
    }
}

/// What an entry claims whose name begins so. What we do not know claims everything, so that nobody is let in beside it.
fn claim(stem: &str) -> Option<Claim> {
    if let Some(permits) = stem.strip_suffix("-permits-") {
        let (rest, of) = permits.rsplit_once("-of-")?;
        let (_, count) = rest.rsplit_once('-')?;
        let (count, of): (NonZeroU32, NonZeroU32) = (count.parse().ok()?, of.parse().ok()?);
        return (count <= of).then_some(Claim::Permits { count, of });
    }
    let shared = ["__READ__", "__rlock__", "read-"];
    Some(if shared.iter().any(|kind| stem.ends_with(kind)) { Claim::Shared } else { Claim::Exclusive })
}

/// The id of an entry of Curator's or kazoo's form, and so of ours.
fn uuid(stem: &str) -> Option<EntryId> {
    let hex = match stem.strip_prefix("_c_") {
        Some(rest) => {
            let uuid = rest.get(..36)?;
            let dashes = [8, 13, 18, 23];
            if dashes.iter().any(|at| uuid.as_bytes()[*at] != b'-') {
                return None;
            }
            uuid.replace('-', "")
        }
        None => stem.get(..32)?.to_owned(),
    };
    let plain = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    if plain { hex.parse().ok() } else { None }
}

/// An id for an entry whose name has none: FNV-1a, the same for everybody who looks.
fn stand_in(name: &str) -> EntryId {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    EntryId(name.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths(chroot: &str, layout: Layout) -> Paths {
        Paths { chroot: chroot.into(), layout }
    }

    fn key(namespace: &str, name: &[u8]) -> Key {
        Key::new(&Namespace::new(namespace).unwrap(), name).unwrap()
    }

    #[test]
    fn an_ordinary_name_is_found_where_any_client_would_look_for_it() {
        let curator = paths("", Layout::Curator);
        assert_eq!(curator.key(&key("lock", b"orders")), "/lock/orders");
        assert_eq!(curator.key(&key("", b"orders")), "/orders");
        let nested = paths("/app/a", Layout::Curator);
        assert_eq!(nested.key(&key("lock", b"a/b")), "/app/a/lock/a%2Fb");
        assert_eq!(nested.folders(&key("lock", b"x")), ["/app", "/app/a", "/app/a/lock", "/app/a/lock/x"]);
        assert_eq!(nested.namespace(&Namespace::new("").unwrap()), "/app/a");
    }

    #[test]
    fn a_name_that_means_something_to_a_path_means_nothing() {
        let curator = paths("", Layout::Curator);
        for (name, path) in [
            (&b"."[..], "/lock/%2E"),
            (b"..", "/lock/%2E%2E"),
            (b"/", "/lock/%2F"),
            (b"\0", "/lock/%00"),
            (b"a..", "/lock/a.."),
            (b"\xed\xa0\x80", "/lock/%ED%A0%80"),
        ] {
            assert_eq!(curator.key(&key("lock", name)), path);
        }
        assert_eq!(curator.key(&key("", b"zookeeper")), "/%7Aookeeper");
        assert_eq!(curator.key(&key("..", b"a")), "/%2E%2E/a");
    }

    proptest! {
        #[test]
        fn every_name_is_one_segment_and_is_known_again(name in prop::collection::vec(any::<u8>(), 1..40)) {
            for namespace in ["lock", ""] {
                let key = key(namespace, &name);
                let segment = key_segment(&key);
                prop_assert!(segment.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'));
                prop_assert!(segment != "." && segment != "..");
                prop_assert_eq!(key_of(key.namespace(), &segment), Some(key));
            }
        }

        #[test]
        fn no_name_of_a_node_makes_it_panic(name in "\\PC{0,60}") {
            let _ = Named::parse(&name);
        }
    }

    #[test]
    fn what_we_write_we_read() {
        let (count, of) = (NonZeroU32::new(2).unwrap(), NonZeroU32::new(5).unwrap());
        let id = EntryId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        for layout in [Layout::Curator, Layout::Kazoo] {
            for claim in [Claim::Exclusive, Claim::Shared, Claim::Permits { count, of }] {
                for (digits, sequence) in [("0000000007", 7), ("-2147483648", i32::MIN), ("-000000005", -5)] {
                    let name = paths("", layout).entry(id, claim, false) + digits;
                    let named = Named::parse(&name).unwrap_or_else(|| panic!("{name}"));
                    assert_eq!((named.id, named.claim, named.sequence), (id, claim, sequence), "{name}");
                }
            }
        }
        assert_eq!(
            paths("", Layout::Curator).entry(id, Claim::Exclusive, true),
            "_c_01234567-89ab-cdef-0123-456789abcdef-latch-"
        );
    }

    /// Written by Curator 5.4.0, kazoo 2.11, ZooKeeper's own recipe and DistributedLock.
    #[test]
    fn names_of_other_programs_are_known() {
        let claims = |name: &str| Named::parse(name).map(|named| (named.claim, named.sequence));
        let uuid = "_c_5a3c81b0-3f6e-4b0a-9d37-2f1f3a1f4c55";
        assert_eq!(claims(&format!("{uuid}-lock-0000000012")), Some((Claim::Exclusive, 12)));
        assert_eq!(claims(&format!("{uuid}-latch-0000000003")), Some((Claim::Exclusive, 3)));
        assert_eq!(claims(&format!("{uuid}-__WRIT__0000000000")), Some((Claim::Exclusive, 0)));
        assert_eq!(claims(&format!("{uuid}-__READ__0000000001")), Some((Claim::Shared, 1)));
        assert_eq!(claims("9f1d0cbd95bc4a4a8a5d9f6b3b0d9f11__lock__0000000004"), Some((Claim::Exclusive, 4)));
        assert_eq!(claims("9f1d0cbd95bc4a4a8a5d9f6b3b0d9f11__rlock__0000000005"), Some((Claim::Shared, 5)));
        assert_eq!(claims("x-72057594037927936-0000000006"), Some((Claim::Exclusive, 6)));
        assert_eq!(claims("read-0000000007"), Some((Claim::Shared, 7)));
        assert_eq!(claims("lock--2147483648"), Some((Claim::Exclusive, i32::MIN)));
        for other in ["leases", "locks", "ready", "", "config", "9f1d0cbd95bc4a4a8a5d9f6b3b0d9f11"] {
            assert_eq!(claims(other), None, "{other}");
        }
    }

    #[test]
    fn a_line_goes_on_where_the_numbers_wrap_around() {
        let named = |name: &str| Named::parse(name).unwrap();
        let mut line =
            [named("lock--2147483647"), named("lock-2147483646"), named("lock--2147483648"), named("lock-2147483647")];
        line.sort_by(Named::cmp_in_line);
        let numbers: Vec<i32> = line.iter().map(|named| named.sequence).collect();
        assert_eq!(numbers, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]);
    }

    #[test]
    fn a_reader_with_its_writers_number_stands_behind_it() {
        let reader = Named::parse("_c_5a3c81b0-3f6e-4b0a-9d37-2f1f3a1f4c55-__READ__0000000003").unwrap();
        let writer = Named::parse("_c_6a3c81b0-3f6e-4b0a-9d37-2f1f3a1f4c55-__WRIT__0000000003").unwrap();
        assert_eq!(writer.cmp_in_line(&reader), Ordering::Less);
        assert_eq!(reader.cmp_in_line(&writer), Ordering::Greater);
    }
}
