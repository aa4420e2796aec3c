//! What is wanted of a key: all of it, a share of it, or n of its m permits.

use std::fmt;
use std::num::NonZeroU32;

use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;

/// How much of a key an entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The whole key, alone: a mutex, a write lock, a leadership.
    Exclusive,
    /// The key beside any number of other shares: a read lock.
    Shared,
    /// `count` of the `of` permits that the key has: a semaphore.
    Permits {
        /// How many permits are wanted.
        count: NonZeroU32,
        /// How many permits the key has.
        of: NonZeroU32,
    },
}

impl Claim {
    /// `count` of `of` permits, refused if it could never be granted.
    pub fn permits(key: &Key, count: u32, of: NonZeroU32) -> Result<Self> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidOption, why).at(key);
        let count = NonZeroU32::new(count).ok_or_else(|| invalid("asking for 0 permits: ask for at least 1".into()))?;
        if count > of {
            return Err(invalid(format!("asking for {count} permits of {of}: no release could ever grant it")));
        }
        Ok(Self::Permits { count, of })
    }

    /// What the key must have for this claim to make sense.
    pub fn capacity(self) -> Capacity {
        match self {
            Self::Exclusive | Self::Shared => Capacity::Whole,
            Self::Permits { of, .. } => Capacity::Permits(of),
        }
    }

    /// How much of the capacity it takes while it is held.
    pub fn weight(self) -> u32 {
        match self {
            Self::Exclusive => Capacity::Whole.size(),
            Self::Shared => 1,
            Self::Permits { count, .. } => count.get(),
        }
    }

    /// Whether nobody else can hold the key beside it by the nature of the claim. Such grants carry a token.
    pub fn is_exclusive(self) -> bool {
        self == Self::Exclusive
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { count, of } => write!(f, "{count} of {of}"),
        }
    }
}

/// How much a key has to give. Every entry of a key agrees on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capacity {
    /// One exclusive holder, or any number of shared ones.
    Whole,
    /// So many permits.
    Permits(NonZeroU32),
}

impl Capacity {
    /// The capacity in the unit of [`Claim::weight`].
    pub fn size(self) -> u32 {
        match self {
            Self::Whole => u32::MAX,
            Self::Permits(of) => of.get(),
        }
    }

    /// Refuses a claim that sees the key differently than those already in its line do.
    pub fn admits(self, claim: Claim, key: &Key) -> Result<()> {
        let asked = claim.capacity();
        if self == asked {
            return Ok(());
        }
        let kind = match (self, asked) {
            (Self::Permits(_), Self::Permits(_)) => ErrorKind::CapacityMismatch,
            _ => ErrorKind::KindMismatch,
        };
        Err(Error::new(kind, format!("the key is in use as {self}, and this asks for it as {asked}")).at(key))
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("a lock"),
            Self::Permits(of) => write!(f, "a semaphore of {of}"),
        }
    }
}
