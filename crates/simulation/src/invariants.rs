//! What must be so in a run, one file each with its reason.

mod growing_tokens;
mod nothing_left;
mod one_writer;
mod ordered_grants;
mod progress;
mod unique_tokens;

use serde::Deserialize;

use crate::record::{Grant, Record};

/// What a scenario promises, or breaks on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// Nobody has a key beside one who has it alone.
    OneWriter,
    /// No token is handed out twice.
    UniqueTokens,
    /// Whatever is asked for after a grant gets a higher token.
    GrowingTokens,
    /// Grants are told in the order of their tokens.
    OrderedGrants,
    /// When all is well again, everybody gets the lock.
    Progress,
    /// When nobody wants anything any more, nothing is left on the servers.
    NothingLeft,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::OneWriter,
        Self::UniqueTokens,
        Self::GrowingTokens,
        Self::OrderedGrants,
        Self::Progress,
        Self::NothingLeft,
    ];

    /// How a run broke it, if it did.
    pub fn broken_by(self, record: &Record) -> Option<String> {
        match self {
            Self::OneWriter => one_writer::broken_by(&record.grants()),
            Self::UniqueTokens => unique_tokens::broken_by(&record.grants()),
            Self::GrowingTokens => growing_tokens::broken_by(&record.grants()),
            Self::OrderedGrants => ordered_grants::broken_by(&record.grants()),
            Self::Progress => progress::broken_by(&record.complaints()),
            Self::NothingLeft => nothing_left::broken_by(&record.complaints()),
        }
    }
}

/// Each grant with each later one of the same key, both exclusive, with their tokens.
fn exclusive_pairs(grants: &[Grant]) -> impl Iterator<Item = ((&Grant, u64), (&Grant, u64))> {
    grants.iter().enumerate().flat_map(move |(nth, one)| {
        let later = grants[nth + 1..].iter().filter(move |other| other.key == one.key);
        later.filter_map(move |other| Some(((one, one.token?), (other, other.token?))))
    })
}
