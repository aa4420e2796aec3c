//! Names of locks: checked once, compared as bytes, and encoded so that no name reaches into another.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The longest name, in bytes. Percent-encoding at most triples it, and the shortest limit on a store's own key that we
/// know of (an index prefix of 3,072 bytes) still has room beside it for a namespace.
pub const NAME_BYTES_MAX: usize = 512;

/// The longest namespace, in bytes. It stands in front of every name on the store.
pub const NAMESPACE_BYTES_MAX: usize = 128;

/// The name of one lock, within a namespace.
///
/// A name is any 1 to [`NAME_BYTES_MAX`] bytes. Bytes are its identity: nothing is folded, trimmed or normalised, so
/// `a`, `A`, `a/` and `a/b` are four locks. Showing a key escapes whatever could confuse a terminal or a reader.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<KeyText>);

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct KeyText {
    namespace: Namespace,
    name: Box<[u8]>,
}

impl Key {
    /// A key of that name in that namespace, if the name is neither empty nor too long.
    pub fn new(namespace: &Namespace, name: impl AsRef<[u8]>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::new(ErrorKind::InvalidKey, "a lock's name must not be empty"));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::InvalidKey,
                format!(
                    "the name \"{}…\" has {} bytes, and {NAME_BYTES_MAX} is the most: use a shorter one, or its digest",
                    Escaped(&name[..24]),
                    name.len()
                ),
            ));
        }
        Ok(Self(Arc::new(KeyText { namespace: namespace.clone(), name: name.into() })))
    }

    /// The name as it was given.
    pub fn name(&self) -> &[u8] {
        &self.0.name
    }

    /// The namespace that the name lives in.
    pub fn namespace(&self) -> &Namespace {
        &self.0.namespace
    }

    /// The name with every byte percent-encoded except letters, digits, `-`, `_`, `.`, `:` and those in `verbatim`.
    ///
    /// Different names stay different, because `%` itself is always encoded. Ordinary names come out as they are, so
    /// that a client in another language can be pointed at them.
    pub fn encoded(&self, verbatim: &[u8]) -> String {
        let mut encoded = String::with_capacity(self.0.name.len());
        for &byte in &*self.0.name {
            let ordinary = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
            if byte.is_ascii() && byte != b'%' && (ordinary || verbatim.contains(&byte)) {
                encoded.push(char::from(byte));
            } else {
                write!(encoded, "%{byte:02X}").expect("writing to a String does not fail");
            }
        }
        encoded
    }
}

#[cfg(feature = "redis")]
impl Key {
    /// Where its text lies. Copies have it in common.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

/// The name, escaped for a reader: no control character, direction mark or invalid UTF-8 gets through.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(&self.0.name).fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What stands before every name of one application on a store, so that two applications can share the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// A namespace of letters, digits, `-`, `_` and `.`; it may be empty.
    ///
    /// Narrower than a name on purpose: it is chosen once by a person, appears verbatim in every key on every store,
    /// and must never be mistaken for a part of a name.
    pub fn new(text: &str) -> Result<Self> {
        let bad = text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')));
        if let Some(bad) = bad {
            return Err(Error::option(
                "namespace",
                format!("holds {bad:?}; only letters, digits, '-', '_' and '.' are allowed"),
            ));
        }
        if text.len() > NAMESPACE_BYTES_MAX {
            return Err(Error::option(
                "namespace",
                format!("has {} bytes, and {NAMESPACE_BYTES_MAX} is the most", text.len()),
            ));
        }
        Ok(Self(text.into()))
    }

    /// The namespace as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    /// `lock`, the prefix that clients in other languages use most.
    fn default() -> Self {
        Self("lock".into())
    }
}

/// Bytes shown to a person: printable text as it is, everything else as an escape.
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                // `escape_debug` knows which characters print; quotes need no escape outside of a literal.
                if matches!(c, '\'' | '"') { f.write_char(c)? } else { write!(f, "{}", c.escape_debug())? }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(name: &[u8]) -> Key {
        Key::new(&Namespace::default(), name).unwrap()
    }

    #[test]
    fn an_empty_name_is_refused() {
        assert_eq!(Key::new(&Namespace::default(), "").unwrap_err().kind(), ErrorKind::InvalidKey);
    }

    #[test]
    fn a_name_of_512_bytes_is_allowed_and_one_of_513_is_refused_by_its_beginning() {
        assert!(Key::new(&Namespace::default(), "a".repeat(512)).is_ok());
        let error = Key::new(&Namespace::default(), "a".repeat(513)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidKey);
        assert!(error.to_string().contains("aaaa…"), "{error}");
    }

    #[test]
    fn ordinary_names_are_encoded_as_they_are() {
        assert_eq!(key(b"Orders-7_x.y:z").encoded(b""), "Orders-7_x.y:z");
        assert_eq!(key(b"billing/close").encoded(b"/"), "billing/close");
        assert_eq!(key(b"billing/close").encoded(b""), "billing%2Fclose");
    }

    #[test]
    fn what_could_fool_a_terminal_is_shown_escaped() {
        assert_eq!(key(b"\x1b]52;c\x07").to_string(), "\\u{1b}]52;c\\u{7}");
        assert_eq!(key("a\u{202e}b".as_bytes()).to_string(), "a\\u{202e}b");
        assert_eq!(key(b"a\xff\0").to_string(), "a\\xff\\0");
        assert_eq!(key("🦀 it's".as_bytes()).to_string(), "🦀 it's");
    }

    #[test]
    fn a_namespace_with_a_separator_is_refused() {
        let error = Namespace::new("shop:a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
        assert!(error.to_string().contains("namespace"), "{error}");
    }

    proptest! {
        #[test]
        fn different_names_are_encoded_differently_and_in_one_segment(
            a in prop::collection::vec(any::<u8>(), 1..40), b in prop::collection::vec(any::<u8>(), 1..40),
        ) {
            let (first, second) = (key(&a).encoded(b""), key(&b).encoded(b""));
            prop_assert_eq!(first == second, a == b);
            let reserved = first.contains(['/', '{', '}', '\0', '*']);
            prop_assert!(first.is_ascii() && !reserved);
        }

        #[test]
        fn a_shown_name_holds_no_control_character(name in prop::collection::vec(any::<u8>(), 1..40)) {
            prop_assert!(!key(&name).to_string().chars().any(char::is_control));
        }
    }
}
