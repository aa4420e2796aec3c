//! Where a key's line lives on the server, and which slot of a cluster that is.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex};

use percent_encoding::percent_decode;

use crate::key::{Key, Namespace};
use crate::sync::locked;

/// What of a name stands as it is beside letters, digits, `-`, `_`, `.` and `:`. All that prints but for `%`, which encodes,
/// and braces, which would move a key to another slot of a cluster and let one name reach into the side keys of another.
const VERBATIM: &[u8] = b" !\"#$&'()*+,/;<=>?@[\\]^`|~";

/// The keys of one line. Cheap to copy.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Names(Arc<Spelled>);

/// One behind the other in one text. All lie in one slot: the side keys name the lock in braces.
#[derive(Debug)]
struct Spelled {
    text: Box<str>,
    ends: [u32; 5],
    slot: u16,
    hash: u64,
}

impl Spelled {
    fn of(key: &Key) -> Self {
        let lock = lock_name(key);
        let slot = slot(lock.as_bytes());
        let mut text = String::with_capacity(lock.len() * 5 + 48);
        text.push_str(&lock);
        let mut ends = [lock.len() as u32; 5];
        for (nth, side) in ["tickets", "queue", "leases", "entries"].into_iter().enumerate() {
            for part in ["{", &lock, "}:", side] {
                text.push_str(part);
            }
            ends[nth + 1] = text.len() as u32;
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&lock);
        Self { text: text.into(), ends, slot, hash }
    }
}

impl Names {
    pub(in crate::backend) fn of(key: &Key) -> Self {
        Self(Arc::new(Spelled::of(key)))
    }

    /// What other programs look at.
    pub(in crate::backend) fn lock(&self) -> &str {
        self.part(0, self.0.ends[0])
    }

    /// Where the entries are, and the channel on which observers of them listen.
    pub(super) fn entries(&self) -> &str {
        self.part(self.0.ends[3], self.0.ends[4])
    }

    /// The channel on which Redisson says that the lock is free.
    pub(super) fn freed(&self) -> String {
        format!("redisson_lock__channel:{{{}}}", self.lock())
    }

    /// Lock, tickets, queue, leases and entries: what every script is given, in its order.
    pub(super) fn all(&self) -> [&str; 5] {
        let [lock, tickets, queue, leases, _] = self.0.ends;
        let part = |from, to| self.part(from, to);
        [self.lock(), part(lock, tickets), part(tickets, queue), part(queue, leases), self.entries()]
    }

    /// By which it is told from others in its slot.
    pub(super) fn hash(&self) -> u64 {
        self.0.hash
    }

    pub(in crate::backend) fn slot(&self) -> u16 {
        self.0.slot
    }

    fn part(&self, from: u32, to: u32) -> &str {
        &self.0.text[from as usize..to as usize]
    }
}

/// Names that were made last. A lock is taken and given back, and often taken again, by copies of one key, which need not be
/// spelled each time.
pub(super) struct Spellings(Vec<Mutex<Option<Spelling>>>);

struct Spelling {
    key: Key,
    names: Names,
}

/// How many are remembered.
const SPELLINGS: usize = 1024;

impl Spellings {
    pub(super) fn new() -> Self {
        Self((0..SPELLINGS).map(|_| Mutex::new(None)).collect())
    }

    pub(super) fn of(&self, key: &Key) -> Names {
        // Texts lie some dozen bytes apart. One that is remembered here lives, so that no other lies where it does.
        let mut remembered = locked(&self.0[key.address() / 64 % SPELLINGS]);
        match &*remembered {
            Some(known) if known.key.address() == key.address() => known.names.clone(),
            _ => remembered.insert(Spelling { key: key.clone(), names: Names::of(key) }).names.clone(),
        }
    }
}

/// `namespace:name`, or the name alone in the empty namespace.
fn lock_name(key: &Key) -> String {
    let name = key.encoded(VERBATIM);
    match key.namespace().as_str() {
        "" => name,
        namespace => [namespace, ":", &name].concat(),
    }
}

/// A pattern that finds the locks and the entries of a namespace, and more.
pub(in crate::backend) fn pattern(namespace: &Namespace) -> String {
    // A namespace has no character that means something in a pattern.
    match namespace.as_str() {
        "" => "*".into(),
        namespace => format!("*{namespace}:*"),
    }
}

/// The key that this is the lock or the entries of, in that namespace. In the empty namespace every key could be a lock of
/// somebody, so there entries count, and tickets: whoever holds a key that nobody awaits has no entries.
pub(super) fn key_of(namespace: &Namespace, found: &[u8]) -> Option<Key> {
    let beside = |side: &[u8]| found.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(side));
    let lock = match beside(b"}:entries") {
        Some(lock) => lock,
        None if namespace.as_str().is_empty() => beside(b"}:tickets")?,
        None => found,
    };
    key_of_lock(namespace, lock)
}

/// The key that this is the lock of, in that namespace, if it is the lock of any.
pub(in crate::backend) fn key_of_lock(namespace: &Namespace, lock: &[u8]) -> Option<Key> {
    let name = match namespace.as_str() {
        "" => lock,
        namespace => lock.strip_prefix(namespace.as_bytes())?.strip_prefix(b":")?,
    };
    let name: Vec<u8> = percent_decode(name).collect();
    let key = Key::new(namespace, name).ok()?;
    // What we would write otherwise is not one of ours, and could not be reached by that name.
    (lock_name(&key).as_bytes() == lock).then_some(key)
}

/// The slot that a cluster puts a key in that has no braces: CRC-16 (XMODEM) modulo 16384, as its specification says.
fn slot(key: &[u8]) -> u16 {
    let crc = key.iter().fold(0u16, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    });
    crc % 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &[u8]) -> Key {
        Key::new(&Namespace::new(namespace).unwrap(), name).unwrap()
    }

    #[test]
    fn a_spelling_is_remembered_for_copies_of_its_key_and_for_no_other() {
        let spellings = Spellings::new();
        let keys: Vec<Key> = (0..3 * SPELLINGS).map(|nth| key("lock", nth.to_string().as_bytes())).collect();
        for key in keys.iter().chain(&keys) {
            let names = spellings.of(key);
            assert_eq!(names.all(), Names::of(key).all());
            assert!(Arc::ptr_eq(&spellings.of(&key.clone()).0, &names.0));
        }
    }

    #[test]
    fn an_ordinary_name_is_found_where_any_client_would_look_for_it() {
        let names = Names::of(&key("lock", b"billing/close"));
        assert_eq!(
            names.all(),
            [
                "lock:billing/close",
                "{lock:billing/close}:tickets",
                "{lock:billing/close}:queue",
                "{lock:billing/close}:leases",
                "{lock:billing/close}:entries",
            ]
        );
        assert_eq!((names.lock(), names.entries()), ("lock:billing/close", "{lock:billing/close}:entries"));
        assert_eq!(Names::of(&key("", b"orders")).lock(), "orders");
    }

    #[test]
    fn no_name_reaches_into_another_or_leaves_its_slot() {
        let names = Names::of(&key("lock", b"{a}:entries"));
        assert_eq!(names.lock(), "lock:%7Ba%7D:entries");
        assert_ne!(Names::of(&key("lock", b"a")).entries(), names.lock());
    }

    #[test]
    fn a_key_is_known_again_by_its_lock_and_by_its_entries() {
        for name in [b"a" as &[u8], b"a b/c", b"100%", b"{x}", "ü".as_bytes(), b"\0\xff", b"*?[a]", b"a:b"] {
            let key = key("shop", name);
            let names = Names::of(&key);
            assert_eq!(key_of(key.namespace(), names.lock().as_bytes()), Some(key.clone()));
            assert_eq!(key_of(key.namespace(), names.entries().as_bytes()), Some(key.clone()));
            assert_eq!(key_of(key.namespace(), names.all()[2].as_bytes()), None, "{name:?}");
            assert_eq!(key_of(&Namespace::new("sho").unwrap(), names.lock().as_bytes()), None);
        }
        let none = Namespace::new("").unwrap();
        assert_eq!(key_of(&none, b"whatever"), None);
        for side in [b"{orders}:entries", b"{orders}:tickets"] {
            assert_eq!(key_of(&none, side).unwrap().name(), b"orders");
        }
        assert_eq!(key_of(&Namespace::default(), b"{lock:orders}:tickets"), None, "they outlive the holder");
        assert_eq!(key_of(&Namespace::default(), b"lock:a%20b"), None, "we would write it with a space");
    }

    /// The first is the check value of the specification; the others were read off a server by CLUSTER KEYSLOT.
    #[test]
    fn slots_are_those_of_a_cluster() {
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b"lock:a"), 6035);
        assert_eq!(slot(b""), 0);
    }
}
