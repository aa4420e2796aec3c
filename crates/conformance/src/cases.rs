//! The cases, one file a property.

pub mod exclusive;
