//! Real servers for tests: on this machine's loopback address, on free ports, in temporary folders.
//!
//! A server ends when its handle is dropped, and with its process however that ends: by a panic, by `exit`, by `kill -9`.
//! What is not installed is not skipped; starting it fails and says what installs it.
//!
//! ```no_run
//! # fn main() -> leasehold_testbed::Result {
//! use leasehold_testbed::redis::Server;
//!
//! let server = Server::builder().persistent(true).start()?;
//! server.cli(&["SET", "greeting", "hello"]);
//! server.kill();
//! server.restart()?;
//! assert_eq!(server.cli(&["GET", "greeting"]), "hello");
//! # Ok(())
//! # }
//! ```

mod clock;
mod daemon;
pub mod etcd;
mod failure;
mod folder;
pub mod interop;
pub mod mysql;
mod ports;
pub mod postgres;
mod process;
mod proxy;
pub mod redis;
mod tls;
mod tools;
mod unprivileged;
mod wait;
pub mod zookeeper;

pub use daemon::Daemon;
pub use failure::{Failure, Result};
pub use proxy::Proxy;
pub use tls::Tls;
pub use wait::{PATIENCE, until};
