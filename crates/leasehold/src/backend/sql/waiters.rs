//! Entries of this client that wait, and what they have been told.

use std::collections::HashMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::token;
use crate::backend::{EntryId, Lease, LeaseId, Place, Standing};
use crate::claim::Claim;
use crate::fence::Ticket;
use crate::sync::{Mutex, locked};

/// What a waiter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum News {
    /// It holds now, by that ticket.
    Granted(Ticket),
    /// It is not in line any more.
    Gone,
    /// Something may have been missed.
    LookAgain,
}

#[derive(Debug, Default)]
pub(in crate::backend) struct Waiters {
    waiters: Mutex<HashMap<EntryId, Waiter>>,
    /// Rings when one more is known to be in line.
    pub(in crate::backend) joined: Notify,
    /// Rings when one of them may have its turn.
    pub(in crate::backend) stirred: Notify,
}

#[derive(Debug)]
struct Waiter {
    claim: Claim,
    /// Whether the server has said that it waits.
    is_in_line: bool,
    told: Option<News>,
    waker: Option<Waker>,
}

impl Waiters {
    /// News of this entry count from now on. Called before anybody else can know of it, so that none are missed.
    pub(in crate::backend) fn expect(&self, entry: EntryId, claim: Claim) {
        locked(&self.waiters).entry(entry).or_insert(Waiter { claim, is_in_line: false, told: None, waker: None });
    }

    /// The server has said that it waits.
    pub(in crate::backend) fn is_in_line(&self, entry: EntryId) {
        if let Some(waiter) = locked(&self.waiters).get_mut(&entry)
            && !waiter.is_in_line
        {
            waiter.is_in_line = true;
            self.joined.notify_one();
        }
    }

    /// Those who are known to be in line and have not been told anything yet.
    pub(in crate::backend) fn in_line(&self) -> Vec<EntryId> {
        let waiters = locked(&self.waiters);
        waiters.iter().filter(|(_, waiter)| waiter.is_in_line && waiter.told.is_none()).map(|(id, _)| *id).collect()
    }

    pub(in crate::backend) fn forget(&self, entry: EntryId) {
        locked(&self.waiters).remove(&entry);
    }

    pub(in crate::backend) fn tell(&self, entry: EntryId, news: News) {
        if let Some(waiter) = locked(&self.waiters).get_mut(&entry) {
            waiter.hear(news);
        }
    }

    /// Messages may have been missed: everybody looks for themselves.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn let_all_look(&self) {
        for waiter in locked(&self.waiters).values_mut().filter(|waiter| waiter.told.is_none()) {
            waiter.hear(News::LookAgain);
        }
    }

    /// Resolves when there is news of a place.
    pub(in crate::backend) async fn changed(&self, place: &Place) -> Option<Standing> {
        poll_fn(|cx| self.poll_changed(place, cx.waker())).await
    }

    fn poll_changed(&self, place: &Place, waker: &Waker) -> Poll<Option<Standing>> {
        let mut waiters = locked(&self.waiters);
        let Some(waiter) = waiters.get_mut(&place.entry) else { return Poll::Ready(None) };
        match waiter.told.take() {
            Some(News::Granted(ticket)) => {
                // Its lease counts from our own last renewal, which the caller knows better than the server.
                let lease = Lease { id: LeaseId::Entry(place.clone()), ttl: Duration::ZERO };
                Poll::Ready(Some(Standing::Holding { ticket, token: token(waiter.claim, ticket), lease }))
            }
            Some(News::Gone) => Poll::Ready(Some(gone())),
            Some(News::LookAgain) => {
                self.joined.notify_one(); // it is in line as before, and asked about again
                Poll::Ready(None)
            }
            None => {
                waiter.waker = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}

impl Waiter {
    fn hear(&mut self, news: News) {
        self.told = Some(news);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The standing of an entry that was in line and is no longer.
pub(in crate::backend) fn gone() -> Standing {
    Standing::Refused { held_by: Vec::new(), recheck_in: Duration::ZERO }
}
