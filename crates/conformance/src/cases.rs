//! The cases, one file a property.
#![allow(missing_docs, reason = "a case's name is a sentence, and says what it checks")]

pub mod all_of;
pub mod cancelling;
pub mod election;
pub mod exclusive;
pub mod expiry;
pub mod fairness;
pub mod input;
pub mod inspect;
pub mod loss;
pub mod names;
pub mod permits;
pub mod reentrant;
pub mod refusal;
pub mod relay;
pub mod renewal;
pub mod rule;
pub mod sharing;
pub mod tokens;
pub mod unknown;
pub mod waiting;
pub mod yielding;
