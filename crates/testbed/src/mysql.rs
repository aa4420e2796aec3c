//! MariaDB, which speaks as MySQL does.

mod server;

pub use server::{Builder, Server};
