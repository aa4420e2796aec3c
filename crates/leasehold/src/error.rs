//! Errors that answer the caller's first question: did it happen?

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::key::Key;

/// What calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed, where, and whether the store may have acted on it all the same.
///
/// Busy, timed out and refused are not errors: calls that may find a lock taken return them as values.
#[derive(Clone)]
pub struct Error(Box<Details>);

#[derive(Clone)]
struct Details {
    kind: ErrorKind,
    fate: Fate,
    message: String,
    doing: Option<&'static str>,
    key: Option<Key>,
    store: Option<Arc<str>>,
    cause: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What sort of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock is no longer ours: its lease ran out, or the store says that the entry is gone.
    Lost,
    /// The store granted the lock so late that too little of the lease was left to be of use. It was given back.
    TooLate,
    /// The store could not be reached or did not answer in time.
    Unreachable,
    /// The store is there but cannot be used as it is: full, read-only, damaged, or of a newer version.
    Unusable,
    /// The store answered something that makes no sense here.
    Protocol,
    /// The name of a lock is empty or too long.
    InvalidKey,
    /// An option or argument is out of its range.
    InvalidOption,
    /// The key is in use with another number of permits.
    CapacityMismatch,
    /// The key is in use as another kind: as a lock rather than as a semaphore, or the other way round.
    KindMismatch,
    /// The key's line has as many entries as the store allows.
    Full,
    /// This store cannot honour the claim at all.
    Unsupported,
    /// These locks have been closed.
    Closed,
    /// The fencing token is lower than one that the resource has already seen.
    Stale,
}

/// Whether the store acted on a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It did not: repeating is safe.
    NotApplied,
    /// It may have: whoever asked must assume that it did, and clean up.
    Unknown,
}

impl Error {
    /// An error that changed nothing on the store.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Details {
            kind,
            fate: Fate::NotApplied,
            message,
            doing: None,
            key: None,
            store: None,
            cause: None,
        }))
    }

    pub(crate) fn option(name: &str, why: impl fmt::Display) -> Self {
        Self::new(ErrorKind::InvalidOption, format!("{name} {why}"))
    }

    /// The same error about a request that the store may have acted on.
    #[must_use]
    pub fn with_unknown_fate(mut self) -> Self {
        self.0.fate = Fate::Unknown;
        self
    }

    /// The same error about a request that only asked.
    #[cfg(feature = "_network")]
    pub(crate) fn with_no_effect(mut self) -> Self {
        self.0.fate = Fate::NotApplied;
        self
    }

    /// The same error, naming the key it is about.
    #[must_use]
    pub fn at(mut self, key: &Key) -> Self {
        self.0.key = Some(key.clone());
        self
    }

    /// The same error, saying what was being done: "entering", "renewing".
    #[must_use]
    pub fn while_doing(mut self, doing: &'static str) -> Self {
        self.0.doing.get_or_insert(doing);
        self
    }

    /// The same error, naming the store. The text must hold no secret.
    #[must_use]
    pub fn on(mut self, store: &Arc<str>) -> Self {
        self.0.store.get_or_insert_with(|| store.clone());
        self
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn caused_by(mut self, cause: impl StdError + Send + Sync + 'static) -> Self {
        self.0.cause = Some(Arc::new(cause));
        self
    }

    /// What sort of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the store may have acted.
    pub fn fate(&self) -> Fate {
        self.0.fate
    }

    /// The key it is about, if it is about one.
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// The store it came from, without its secrets.
    pub fn store(&self) -> Option<&str> {
        self.0.store.as_deref()
    }

    /// Whether the same request may well succeed a little later.
    pub(crate) fn is_passing(&self) -> bool {
        self.kind() == ErrorKind::Unreachable
    }
}

/// `store: doing "key": what happened (outcome unknown)`, with the parts that are known.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { store, doing, key, message, fate, .. } = &*self.0;
        if let Some(store) = store {
            write!(f, "{store}: ")?;
        }
        match (doing, key) {
            (Some(doing), Some(key)) => write!(f, "{doing} \"{key}\": ")?,
            (Some(doing), None) => write!(f, "{doing}: ")?,
            (None, Some(key)) => write!(f, "\"{key}\": ")?,
            (None, None) => {}
        }
        f.write_str(message)?;
        if *fate == Fate::Unknown { f.write_str(" (outcome unknown)") } else { Ok(()) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)?;
        match self.source() {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Namespace;

    #[test]
    fn an_error_names_store_deed_key_and_fate_and_leaves_the_cause_to_source() {
        let key = Key::new(&Namespace::default(), "billing/close").unwrap();
        let error = Error::new(ErrorKind::Unreachable, "connection reset")
            .with_unknown_fate()
            .caused_by(std::io::Error::other("peer gone"))
            .on(&"redis://cache-2".into())
            .while_doing("renewing")
            .at(&key);
        assert_eq!(
            error.to_string(),
            "redis://cache-2: renewing \"billing/close\": connection reset (outcome unknown)"
        );
        assert_eq!(error.source().unwrap().to_string(), "peer gone");
        assert_eq!((error.kind(), error.fate()), (ErrorKind::Unreachable, Fate::Unknown));
    }

    #[test]
    fn an_error_is_one_word_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
