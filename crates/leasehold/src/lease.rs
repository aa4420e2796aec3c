//! Leases from the holder's side: when to stop believing, how to go on holding, how to leave.

pub(crate) mod agenda;
pub(crate) mod deadline;
pub(crate) mod driver;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod parting;
pub(crate) mod relay;
