//! Blocking: the same locks for threads without an async runtime.
//!
//! Leases are renewed on a thread of the library's own, so a thread may compute for as long as it likes while it holds.

use std::time::Duration;

use leasehold::Attempt;
use leasehold::blocking::{self, Locks};

/// Lets four threads fill one list in turns, each turn whole.
pub fn main() -> leasehold::Result<()> {
    let locks = blocking::connect("memory:")?;
    let list = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (locks, list) = (&locks, &list);
        let threads = [1, 2, 3, 4].map(|nth| scope.spawn(move || take_turns(locks, nth, list)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panicked"))
    })?;
    let list = list.into_inner().expect("no thread panicked");
    println!("who wrote, in order: {list:?}");
    assert_eq!(list.len(), 4 * 5 * 2);
    assert!(list.chunks(2).all(|turn| turn[0] == turn[1]), "a turn was interrupted");

    // Waiting for a time, and being told who was in the way.
    let guard = locks.mutex("list")?.lock()?;
    match locks.mutex("list")?.attempt_within(Duration::from_millis(10))? {
        Attempt::Held(_) => unreachable!("we hold it"),
        Attempt::Busy(busy) => println!("{busy}"),
    }
    guard.check()?;
    guard.release()
}

/// Writes twice in each of five turns, and lets others run in between.
fn take_turns(locks: &Locks, nth: u32, list: &std::sync::Mutex<Vec<u32>>) -> leasehold::Result<()> {
    let mutex = locks.mutex("list")?;
    for _ in 0..5 {
        mutex.with(|_guard| {
            list.lock().expect("no thread panicked").push(nth);
            std::thread::yield_now();
            list.lock().expect("no thread panicked").push(nth);
        })?;
    }
    Ok(())
}
