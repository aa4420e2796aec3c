//! Ends of the keeper itself.

use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::{ErrorKind, Locks, Loss, State};

#[test]
fn a_guard_whose_keeper_has_ended_is_lost_and_says_so() {
    // With the runtime's clock the keeper lives on the runtime, and dies with it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(async {
        let locks = Locks::builder("memory:").clock(Clock::runtime()).connect().await.unwrap();
        let guard = locks.mutex("k").unwrap().lock().await.unwrap();
        tokio::task::yield_now().await; // lets the keeper start
        guard
    });
    assert_eq!(guard.state(), State::Held);
    drop(runtime);
    assert_eq!(guard.state(), State::Lost(Loss::Abandoned));
    assert_eq!(pollster::block_on(guard.lost()), Loss::Abandoned);
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn locks_on_a_runtimes_clock_cannot_be_made_outside_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clock = runtime.block_on(async { Clock::runtime() });
    let error = pollster::block_on(Locks::builder("memory:").clock(clock).connect()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
}

#[test]
fn locks_work_on_an_executor_that_is_not_tokios() {
    pollster::block_on(async {
        let locks = leasehold::connect("memory:").await.unwrap();
        let mutex = locks.mutex("k").unwrap();
        let guard = mutex.lock().await.unwrap();
        assert!(mutex.lock_within(Duration::from_millis(5)).await.unwrap().is_none());
        guard.release().await.unwrap();
    });
}
