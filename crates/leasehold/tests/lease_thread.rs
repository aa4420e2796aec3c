//! Alone in its file, because it counts the threads of its process.

use std::time::Duration;

use leasehold::clock::Clock;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux lists a process's threads").count()
}

#[test]
fn the_lease_thread_ends_with_its_last_client_or_guard() {
    let (clock, before) = (Clock::boot(), threads());
    let locks = pollster::block_on(leasehold::connect("memory:")).unwrap();
    let guard = pollster::block_on(locks.mutex("k").unwrap().lock()).unwrap();
    assert_eq!(threads(), before + 1);
    drop(locks);
    assert_eq!(threads(), before + 1, "a guard is still held");
    drop(guard);
    let start = clock.now();
    while threads() > before {
        assert!(start.until(clock.now()) < Duration::from_secs(10), "the thread goes on for nobody");
        std::thread::yield_now();
    }
}
