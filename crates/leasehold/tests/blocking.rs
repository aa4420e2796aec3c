//! The blocking facade, on plain threads and where blocking is usually forbidden.

use std::time::Duration;

use leasehold::blocking::{self, Locks};
use leasehold::{Attempt, ErrorKind, Owner};

fn locks() -> Locks {
    blocking::connect("memory:").unwrap()
}

#[test]
fn threads_without_a_runtime_exclude_each_other() {
    let locks = locks();
    let count = std::sync::Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mutex = locks.mutex("count").unwrap();
                for _ in 0..50 {
                    mutex.with(|_guard| *count.try_lock().expect("nobody else is in here") += 1).unwrap();
                }
            });
        }
    });
    assert_eq!(*count.lock().unwrap(), 400);
}

#[test]
fn every_primitive_can_be_taken_and_given_back() {
    let locks = locks();
    let mutex = locks.mutex("k").unwrap();
    let guard = mutex.lock().unwrap();
    assert!(mutex.try_lock().unwrap().is_none());
    assert!(mutex.lock_within(Duration::from_millis(5)).unwrap().is_none());
    let Attempt::Busy(busy) = mutex.attempt_within(Duration::ZERO).unwrap() else { panic!("it is held") };
    assert_eq!(busy.held_by[0].token, Some(guard.token()));
    guard.release().unwrap();

    let lock = locks.rw_lock("k").unwrap();
    let (one, two) = (lock.read().unwrap(), lock.try_read().unwrap().unwrap());
    assert!(lock.try_write().unwrap().is_none() && lock.write_within(Duration::from_millis(5)).unwrap().is_none());
    one.release().unwrap();
    two.release().unwrap();
    let first = lock.with_write(|guard| guard.token()).unwrap();
    let second = lock.with_write(|guard| guard.token()).unwrap();
    assert!(first < second);
    lock.with_read(|guard| guard.check().unwrap()).unwrap();

    let semaphore = locks.semaphore("k", 3).unwrap();
    let two = semaphore.acquire(2).unwrap();
    assert!(semaphore.try_acquire(2).unwrap().is_none());
    assert!(semaphore.acquire_within(1, Duration::from_secs(1)).unwrap().is_some());
    two.release().unwrap();

    let election = locks.election("office").unwrap();
    let mut leaders = election.observe();
    assert_eq!(leaders.next().unwrap().unwrap(), None);
    let mut leadership = election.campaign("a").unwrap();
    leadership.proclaim("b").unwrap();
    assert_eq!(&*election.leader().unwrap().unwrap().value, b"b");
    assert_eq!(&*leaders.next().unwrap().unwrap().unwrap().value, b"a");
    assert!(election.try_campaign("c").unwrap().is_none());
    leadership.release().unwrap();

    let (reentrant, owner) = (locks.reentrant("account").unwrap(), Owner::new("me").unwrap());
    let outer = reentrant.lock(&owner).unwrap();
    assert_eq!(reentrant.with(&owner, |inner| inner.token()).unwrap(), outer.token());
    outer.release().unwrap();

    let all = locks.all_of(["x", "y"]).unwrap();
    let guard = all.lock().unwrap();
    assert!(all.try_lock().unwrap().is_none());
    guard.release().unwrap();
    locks.close();
    assert_eq!(mutex.lock().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_blocking_call_works_on_the_only_thread_of_a_runtime_while_another_thread_releases() {
    let locks = locks();
    let held = locks.mutex("k").unwrap().lock().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let waiting = locks.clone();
    let releaser = std::thread::spawn(move || {
        while waiting.inspect("k").unwrap().unwrap().waiters.unwrap().is_empty() {
            std::thread::yield_now();
        }
        held.release().unwrap();
    });
    runtime.block_on(async { locks.mutex("k").unwrap().lock().unwrap().release().unwrap() });
    releaser.join().unwrap();
}

#[test]
fn a_wait_ends_at_its_limit_on_the_only_thread_of_a_runtime() {
    let locks = locks();
    let _held = locks.mutex("k").unwrap().lock().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let waited = runtime.block_on(async { locks.mutex("k").unwrap().lock_within(Duration::from_millis(20)).unwrap() });
    assert!(waited.is_none());
}
