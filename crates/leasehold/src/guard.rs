//! What the user holds. Every question is answered from the clock at that moment, never from a flag set earlier.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::backend::{Annotation, Departure, EntryId, Note};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::{FencingToken, Ticket};
use crate::key::Key;
use crate::lease::hold::{Hold, Loss, Released, State};

/// A held place: what every guard can tell and do. Dropping it gives the place up in the background.
///
/// A guard *believes* in its lock until its deadline, counted from before the last confirmed renewal was sent and a
/// little short of the store's own. No lock can do better than that for a process that is paused: between
/// [`check`](Self::check) and the write that follows it, any time may pass. Where that matters, hand the fencing token
/// to the resource.
pub struct Held {
    client: Arc<Client>,
    hold: Arc<Hold>,
    note: Note,
    token: Option<FencingToken>,
    /// Our ticket, if the lock may be passed on to whoever of ours is next in line.
    passes_on: Option<Ticket>,
    /// Whether the store has confirmed our departure.
    departed: bool,
}

impl Held {
    pub(crate) fn new(
        client: Arc<Client>,
        hold: Arc<Hold>,
        note: Note,
        token: Option<FencingToken>,
        passes_on: Option<Ticket>,
    ) -> Self {
        Self { client, hold, note, token, passes_on, departed: false }
    }

    /// The key that is held.
    pub fn key(&self) -> &Key {
        &self.hold.place.key
    }

    /// The entry on the store, as [`inspect`](crate::Locks::inspect) shows it.
    pub fn entry(&self) -> EntryId {
        self.hold.place.entry
    }

    /// Whether it is held, suspect or lost right now.
    pub fn state(&self) -> State {
        if self.client.is_forked() {
            return State::Lost(Loss::Abandoned);
        }
        self.hold.state(self.client.now())
    }

    /// `Ok` if it is still ours, an error of kind [`Lost`](ErrorKind::Lost) if not.
    pub fn check(&self) -> Result<()> {
        match self.state() {
            State::Held | State::Suspect => Ok(()),
            State::Lost(loss) => Err(self.lost_error(loss)),
        }
    }

    /// How long we may go on believing in it without another renewal. Zero if it is lost.
    pub fn remaining(&self) -> Duration {
        if self.client.is_forked() { Duration::ZERO } else { self.hold.remaining(self.client.now()) }
    }

    /// Resolves when it is lost, with the reason: at our deadline, before the store's, or as soon as the store says that
    /// the entry is gone. Needs no answer from the store.
    pub async fn lost(&self) -> Loss {
        let mut told = pin!(self.hold.lost());
        poll_fn(|cx| match self.state() {
            // The clock is asked first: a thread that slept past the deadline must not get another step of work done.
            State::Lost(loss) => Poll::Ready(loss),
            State::Held | State::Suspect => told.as_mut().poll(cx),
        })
        .await
    }

    /// Whether somebody has [asked](crate::Locks::ask_to_yield) for it to be let go.
    pub fn yield_asked(&self) -> bool {
        self.hold.yield_asked()
    }

    /// Resolves when somebody asks for it to be let go. It is up to the holder to do so, and when.
    ///
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// let guard = locks.mutex("billing/close")?.lock().await?;
    /// # let holder = locks.inspect("billing/close").await?.unwrap().holders.remove(0);
    /// # locks.ask_to_yield(&holder).await?;
    /// guard.yield_requested().await;
    /// guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn yield_requested(&self) {
        self.hold.yield_requested().await;
    }

    /// Runs `work` while it is held, and drops `work` unfinished if it is lost first.
    ///
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// let guard = locks.mutex("billing/close")?.lock().await?;
    /// let sum = guard.run(async { 1 + 1 }).await?;
    /// # assert_eq!(sum, 2);
    /// # Ok(()) });
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let lost = async { self.lost_error(self.lost().await) };
        run_unless_lost(lost, || self.check(), work).await
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    pub(crate) async fn annotate(&mut self, value: Arc<[u8]>) -> Result<()> {
        self.check()?;
        let note = Note { value: Some(value), ..self.note.clone() };
        let writing = self.client.backend.annotate(&self.hold.place, &note);
        match self.client.ask("annotating", self.key(), writing).await? {
            Annotation::Written => {
                self.note = note;
                Ok(())
            }
            Annotation::NotHolding => {
                self.hold.lose(Loss::Gone);
                Err(self.lost_error(Loss::Gone))
            }
        }
    }

    /// Gives it up and waits until the store has confirmed. One request.
    pub(crate) async fn release(mut self) -> Result<()> {
        if self.client.is_forked() {
            return Err(self.lost_error(Loss::Abandoned));
        }
        let released = self.end_belief();
        // Should this future be dropped, or the store not answer, the drop of `self` goes on trying in the background.
        let leaving = self.client.backend.leave(&self.hold.place);
        let departure = self.client.ask("releasing", self.key(), leaving).await?;
        self.departed = true;
        match (released, departure) {
            (Err(loss), _) => Err(self.lost_error(loss)),
            // As a waiter only if the store has yet to hear that whoever passed it on to us has left.
            (Ok(_), Departure::WasHolding) | (Ok(Released { borrowed: true, .. }), Departure::WasWaiting) => Ok(()),
            (Ok(_), Departure::WasWaiting | Departure::WasGone) => Err(self.lost_error(Loss::Gone)),
        }
    }

    /// First no more renewals, then the departure: a renewal must not follow it. If the next in line is one of ours, it may
    /// hold from here on, as long as we would have believed.
    fn end_belief(&self) -> Result<Released, Loss> {
        self.client.forget(&self.hold);
        let released = self.hold.release(self.client.now())?;
        if let (Some(ticket), Some(until)) = (self.passes_on, released.until) {
            self.client.relay.pass_on(self.key(), ticket, until);
        }
        Ok(released)
    }

    pub(crate) fn lost_error(&self, loss: Loss) -> Error {
        Error::new(ErrorKind::Lost, format!("the lock was lost: {loss}")).at(self.key()).on(&self.client.store)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // In a forked child it is the parent's lock, and the parent's to give up.
        if !self.departed && !self.client.is_forked() {
            let _ = self.end_belief();
            self.client.part_from(self.hold.place.clone(), None, false);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("key", self.key())
            .field("token", &self.token)
            .field("state", &self.state())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// What `work` comes to, unless `lost` resolves first or `check` fails after it.
pub(crate) async fn run_unless_lost<T>(
    lost: impl Future<Output = Error>,
    check: impl FnOnce() -> Result<()>,
    work: impl Future<Output = T>,
) -> Result<T> {
    match select(pin!(lost), pin!(work)).await {
        Either::Left((lost, _)) => Err(lost),
        Either::Right((output, _)) => {
            // The work may have blocked its thread past the deadline; then its end proves nothing.
            check()?;
            Ok(output)
        }
    }
}

/// Holds a key alone: a mutex or a write lock. Every such grant has a [`token`](Self::token).
#[derive(Debug)]
pub struct Guard(Held);

impl Guard {
    /// The number of this grant, larger than that of every grant of this key before it.
    pub fn token(&self) -> FencingToken {
        self.0.token().expect("the acquire loop lets no exclusive grant through without a token")
    }

    /// Gives the lock up and waits until the store has confirmed. [`Lost`](ErrorKind::Lost) if it was no longer ours:
    /// then somebody else may have held it in the meantime.
    ///
    /// # Cancel safety
    /// Dropping the future still gives the lock up, in the background. So does an error: an unreachable store is
    /// asked again until it confirms or the lease is over.
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }

    pub(crate) fn held_mut(&mut self) -> &mut Held {
        &mut self.0
    }
}

/// Holds a share of a key beside others: a read lock, or permits. Such grants overlap, so they have no token.
#[derive(Debug)]
pub struct SharedGuard(Held);

impl SharedGuard {
    /// Gives the share up and waits until the store has confirmed. [`Lost`](ErrorKind::Lost) if it was no longer ours.
    ///
    /// # Cancel safety
    /// Dropping the future still gives the share up, in the background. So does an error: an unreachable store is
    /// asked again until it confirms or the lease is over.
    pub async fn release(self) -> Result<()> {
        self.0.release().await
    }
}

macro_rules! is_held {
    ($($guard:ty),*) => {$(
        impl Deref for $guard {
            type Target = Held;

            fn deref(&self) -> &Held {
                &self.0
            }
        }

        impl From<Held> for $guard {
            fn from(held: Held) -> Self {
                Self(held)
            }
        }
    )*};
}

is_held!(Guard, SharedGuard);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::Memory;
    use crate::backend::{Lease, LeaseId, Place};
    use crate::client::Settings;
    use crate::clock::Clock;
    use crate::key::Namespace;
    use crate::lease::driver::Driver;
    use crate::locks::Locks;

    #[test]
    fn guards_can_be_sent_to_and_shared_between_threads() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Held>();
        is_shared::<Guard>();
        is_shared::<crate::AllGuard>();
        is_shared::<crate::ReentrantGuard>();
    }

    /// A client as a forked child finds it: made by a process of another id.
    fn forked_from(pid: u32, store: &Memory) -> Arc<Client> {
        let note = Note { pid, ..Note::default() };
        let settings = Settings { namespace: Namespace::default(), note, ttl: Duration::from_secs(30), seed: None };
        Client::start(Driver::start(Clock::boot()).unwrap(), Arc::new(store.clone()), settings)
    }

    #[test]
    fn a_forked_child_does_not_have_its_parents_lock_and_cannot_give_it_up() {
        let store = Memory::new();
        let client = forked_from(std::process::id() + 1, &store);
        let key = Key::new(&Namespace::default(), "k").unwrap();
        pollster::block_on(async {
            let parent = Locks::on(store).connect().await.unwrap();
            let held = parent.mutex("k").unwrap().lock().await.unwrap();
            let place = Place { key, entry: held.entry() };
            let lease = Lease { id: LeaseId::Entry(place.clone()), ttl: Duration::from_secs(30) };
            let hold = client.believe(&place, &lease, client.now());
            let inherited = Held::new(client.clone(), hold, client.note.clone(), None, None);
            assert_eq!(inherited.state(), State::Lost(Loss::Abandoned));
            assert_eq!(inherited.remaining(), Duration::ZERO);
            assert_eq!(inherited.release().await.unwrap_err().kind(), ErrorKind::Lost);
            assert_eq!(parent.inspect("k").await.unwrap().unwrap().holders.len(), 1);
            let child = Locks { client: client.clone() };
            let refused = child.mutex("other").unwrap().lock().await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Closed);
        });
    }
}
