//! Real etcd: one server, or a cluster of several.

mod cluster;
mod server;

pub use cluster::{Builder, Cluster};
pub use server::{Server, Session};
