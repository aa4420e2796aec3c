//! Redis: one server, a cluster, or a master with replicas and sentinels.

mod cluster;
mod sentinel;
mod server;

pub use cluster::Cluster;
pub use sentinel::{Sentinel, SentinelBuilder};
pub use server::{Builder, Server};
