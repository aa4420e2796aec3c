//! Ports that nobody uses.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::{Failure, Result};

/// Below the ports from which Linux serves outgoing connections and `bind(0)`, by ten thousand and more: so none of those
/// takes a port while its server restarts, and the bus of a cluster node, ten thousand above its port, is as safe.
const PORTS: RangeInclusive<u16> = 10_000..=22_000;

/// Far more than are ever in use.
const TRIES_MAX: usize = 1_000;

/// Handed out by this process. None is handed out twice: its server may only be down for a moment.
static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A port on which nobody listens. Another process may be quicker, so whoever binds it must be ready to ask for another.
pub(crate) fn free() -> Result<u16> {
    for _ in 0..TRIES_MAX {
        let port = fastrand::u16(PORTS);
        let is_free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if is_free && TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
    Err(Failure::new(format!("no free port between {} and {}", PORTS.start(), PORTS.end())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_handed_out_once_however_many_are_asked_for() {
        let ports: Vec<u16> = (0..500).map(|_| free().unwrap()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), ports.len());
    }
}
