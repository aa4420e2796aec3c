//! ZooKeeper: one server, or an ensemble.

mod ensemble;
mod server;
mod warming;

pub use ensemble::Ensemble;
pub use server::{Builder, Server};
