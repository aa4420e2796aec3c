//! One module for each command.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod evict;
pub(crate) mod ls;
pub(crate) mod man;
mod pick;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod show;
pub(crate) mod watch;
pub(crate) mod yield_;
