//! Fencing tokens, and the gate by which a resource refuses a holder that woke up too late.

pub mod sql;

use std::fmt;
use std::num::{NonZeroU64, ParseIntError};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_core::future::BoxFuture;

use crate::error::{Error, ErrorKind, Result};

/// The number under which an entry joined its line. Tickets of one key only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Ticket(pub u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an exclusive grant. A later grant of the same key has a larger one.
///
/// Hand it to whatever the lock protects, and let that refuse a token lower than the highest it has seen ([`Gate`]).
/// It is not a secret and gives no right by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The token with that number; `None` for 0, which resources keep for "none seen yet".
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The token as a number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// The resource's side of fencing, wherever the resource keeps its memory of the highest token.
///
/// A gate guards one resource. Let it decide in the same transaction as the write it protects: a gate asked first and
/// a write done later leave a gap for the very pause that tokens are for. Show the token on the *first* contact under
/// a grant, reads included.
pub trait FenceGate: fmt::Debug + Send + Sync {
    /// Lets a token pass that is at least the highest seen so far, and remembers it. A lower one is [`ErrorKind::Stale`].
    fn admit(&self, token: FencingToken) -> BoxFuture<'_, Result<()>>;
}

/// A gate for a resource that lives in this process's memory.
///
/// ```
/// use leasehold::fence::{FencingToken, Gate};
///
/// let gate = Gate::new();
/// let (older, newer) = (FencingToken::new(7).unwrap(), FencingToken::new(8).unwrap());
/// gate.admit(older)?;
/// gate.admit(newer)?;
/// gate.admit(newer)?;                     // the holder may write as often as it likes
/// assert!(gate.admit(older).is_err());    // the one before it woke up too late
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    highest: AtomicU64,
}

impl Gate {
    /// A gate that has seen no token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a token pass that is at least the highest seen so far, and remembers it.
    pub fn admit(&self, token: FencingToken) -> Result<()> {
        let highest = self.highest.fetch_max(token.get(), Ordering::SeqCst);
        if token.get() < highest {
            return Err(Error::new(
                ErrorKind::Stale,
                format!("token {token} is older than {highest}: its holder has lost the lock since"),
            ));
        }
        Ok(())
    }

    /// The highest token let through so far.
    pub fn highest(&self) -> Option<FencingToken> {
        FencingToken::new(self.highest.load(Ordering::SeqCst))
    }
}

impl FenceGate for Gate {
    fn admit(&self, token: FencingToken) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Self::admit(self, token)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    #[test]
    fn a_gate_refuses_a_token_lower_than_the_highest_seen_and_accepts_an_equal_one() {
        let gate = Gate::new();
        assert_eq!(gate.highest(), None);
        gate.admit(token(5)).unwrap();
        gate.admit(token(5)).unwrap();
        let stale = gate.admit(token(4)).unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::Stale);
        assert!(stale.to_string().contains("token 4 is older than 5"), "{stale}");
        assert_eq!(gate.highest(), Some(token(5)));
    }

    #[test]
    fn any_gate_can_be_asked_through_the_trait() {
        let gate: &dyn FenceGate = &Gate::new();
        pollster::block_on(gate.admit(token(2))).unwrap();
        assert_eq!(pollster::block_on(gate.admit(token(1))).unwrap_err().kind(), ErrorKind::Stale);
    }

    #[test]
    fn a_token_survives_display_and_parse_and_zero_is_none() {
        assert_eq!(token(42).to_string().parse::<FencingToken>().unwrap(), token(42));
        assert!("0".parse::<FencingToken>().is_err());
        assert_eq!(FencingToken::new(0), None);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_token_is_a_plain_number_in_json_and_zero_is_refused() {
        assert_eq!(serde_json::to_string(&token(9)).unwrap(), "9");
        assert_eq!(serde_json::from_str::<FencingToken>("9").unwrap(), token(9));
        assert!(serde_json::from_str::<FencingToken>("0").is_err());
    }
}
