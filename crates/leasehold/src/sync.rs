//! The locks and atomics that the lease machinery is built on: the standard library's, or, in the tests that try every
//! interleaving, shuttle's.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicU64};

/// Locks a mutex under which nothing panics, so that it is never poisoned.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic under this lock")
}
