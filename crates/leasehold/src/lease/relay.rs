//! Passes a lock on from one of a client's tasks to the next without waiting for the store.
//!
//! Whoever joined a line directly behind the holder is next, whatever happens: tickets only grow, so nobody can come in between
//! any more. If both are ours, the next need not wait for the store to hear that the first has left, and to
//! say so. Until the store has said that it holds, it holds by the lease of the one before it: its belief ends when that
//! one's would have.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::fence::Ticket;
use crate::key::Key;
use crate::sync::{Mutex, locked};

/// The tasks of one client that wait in lines alone, by the ticket that each is behind.
#[derive(Debug, Default)]
pub(crate) struct Relay(Mutex<HashMap<(Key, Ticket), oneshot::Sender<Moment>>>);

impl Relay {
    /// Takes note of somebody who is directly behind that ticket.
    pub(crate) fn expect(&self, key: &Key, behind: Ticket) -> Expecting<'_> {
        let (pass, passed) = oneshot::channel();
        let at = (key.clone(), behind);
        locked(&self.0).insert(at.clone(), pass);
        Expecting { relay: self, at, passed }
    }

    /// Whoever is directly behind the holder with that ticket may hold from now on, by a lease that is believed in until then. If
    /// it declines, or nobody of ours is there, the store will tell whoever is next.
    pub(crate) fn pass_on(&self, key: &Key, ticket: Ticket, until: Moment) {
        let mut waiting = locked(&self.0);
        if waiting.is_empty() {
            return;
        }
        let next = waiting.remove(&(key.clone(), ticket));
        drop(waiting);
        if let Some(next) = next {
            let _ = next.send(until); // it may just have given up
        }
    }
}

/// One that waits. Dropping it stops expecting.
pub(crate) struct Expecting<'a> {
    relay: &'a Relay,
    at: (Key, Ticket),
    passed: oneshot::Receiver<Moment>,
}

impl Expecting<'_> {
    /// Resolves when it is our turn, with the end of the lease that we hold by.
    pub(crate) async fn passed(&mut self) -> Moment {
        match (&mut self.passed).await {
            Ok(until) => until,
            // Somebody else has joined behind the same one: the store has forgotten us, and will say so.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        locked(&self.relay.0).remove(&self.at);
    }
}
