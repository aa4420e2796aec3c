//! Connections of the runtime that takes locks, beside those of our own thread.
//!
//! A request that is sent from the caller's runtime changes no threads, and on an idle machine waking another thread takes as
//! long as a trip to a server. A program that takes one lock and ends is better off without a further connection, so
//! they are made for the second one.

use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use crate::clock::{Clock, Timer};
use crate::sync::locked;

/// What one runtime has of its own: the first that asks twice.
pub(super) struct Near<T>(Mutex<State<T>>);

enum State<T> {
    /// Nobody has any. The runtime that asked last might get them.
    Nobody(Option<runtime::Id>),
    Here(Here<T>),
    /// The one that asked cannot drive connections.
    Nowhere,
}

struct Here<T> {
    runtime: runtime::Id,
    /// Gone with the runtime.
    lives: Weak<()>,
    /// Dropped with this; whatever keeps the above waits for that.
    _stay: oneshot::Sender<()>,
    connections: Arc<T>,
}

impl<T> Near<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State::Nobody(None)))
    }

    /// What the runtime has that this is called on. If nobody has any, whoever enters for the second time gets it made.
    pub(super) fn here(&self, enters: bool, make: impl FnOnce() -> T) -> Option<Arc<T>> {
        let runtime = Handle::try_current().ok()?.id();
        let mut state = locked(&self.0);
        if let State::Here(here) = &*state {
            if here.lives.strong_count() > 0 {
                return (here.runtime == runtime).then(|| here.connections.clone());
            }
            *state = State::Nobody(None);
        }
        match *state {
            State::Nobody(Some(asked)) if enters && asked == runtime => {
                if !can_connect() {
                    *state = State::Nowhere;
                    return None;
                }
                let here = Here::start(runtime, Arc::new(make()));
                let connections = here.connections.clone();
                *state = State::Here(here);
                Some(connections)
            }
            State::Nobody(_) if enters => {
                *state = State::Nobody(Some(runtime));
                None
            }
            _ => None,
        }
    }
}

impl<T> Here<T> {
    fn start(runtime: runtime::Id, connections: Arc<T>) -> Self {
        let (stay, gone) = oneshot::channel::<()>();
        let life = Arc::new(());
        let lives = Arc::downgrade(&life);
        tokio::spawn(async move {
            let _ = gone.await;
            drop(life);
        });
        Self { runtime, lives, _stay: stay, connections }
    }
}

/// Whether the runtime that this is called on has what a connection needs. There is no other way to ask than to try, and
/// one that has not panics.
fn can_connect() -> bool {
    catch_unwind(|| {
        let timer = Timer::on_callers_runtime(Clock::boot());
        timer.sleep(Duration::from_secs(1)).now_or_never();
        tokio::net::UnixStream::pair().is_ok()
    })
    .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> runtime::Runtime {
        runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn the_runtime_that_enters_twice_has_connections_of_its_own_until_it_ends() {
        let near = Near::new();
        let (first, other) = (runtime(), runtime());
        let ask = |on: &runtime::Runtime, enters| on.block_on(async { near.here(enters, || ()).is_some() });
        assert_eq!([ask(&first, true), ask(&first, false), ask(&first, true)], [false, false, true]);
        assert!(ask(&first, false), "whoever has some leaves by them too");
        assert_eq!([ask(&other, true), ask(&other, true)], [false, false]);
        drop(first);
        assert_eq!([ask(&other, false), ask(&other, true), ask(&other, true)], [false, false, true]);
    }

    #[test]
    fn nobody_is_near_outside_of_a_runtime() {
        let near = Near::new();
        assert!((0..3).all(|_| near.here(true, || ()).is_none()));
    }
}
