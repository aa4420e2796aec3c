//! PostgreSQL: one server, and a pooler in front of it.

mod server;

pub use server::{Builder, Server};
