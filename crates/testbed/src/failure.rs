//! What went wrong while a server was started or spoken to.

use std::fmt;

/// What went wrong, told to a person.
pub struct Failure(String);

/// What a testbed yields, or why it could not.
pub type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// For `map_err`: what was being done when the system refused.
    pub(crate) fn during<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// As it is displayed: `unwrap` in a test prints this, and the message may have several lines.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}
