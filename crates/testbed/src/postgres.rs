//! PostgreSQL: one server, and a pooler in front of it.

mod pooler;
mod server;

pub use pooler::Pooler;
pub use server::{Builder, Server};
