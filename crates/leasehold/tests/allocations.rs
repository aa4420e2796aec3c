//! What a lock costs in allocations. The counter counts those of the calling thread.

use allocation_counter::measure;
use leasehold::{Locks, Mutex};

fn lock_and_release(mutex: &Mutex) {
    pollster::block_on(async { mutex.lock().await.unwrap().release().await.unwrap() });
}

fn locks() -> Locks {
    pollster::block_on(leasehold::connect("memory:")).unwrap()
}

/// Three boxed futures: the store's `enter` and `leave`, which are boxed because the trait is object-safe, and the
/// request around `enter`, which owns what it needs so that it outlives a cancelled caller. Beyond them two: the hold
/// that guard and keeper share, and the line of a key that nobody was in.
#[test]
fn an_uncontended_lock_and_release_allocates_two_times_beside_its_three_boxed_futures() {
    let locks = locks();
    let mutex = locks.mutex("k").unwrap();
    lock_and_release(&mutex);
    let rounds = 100;
    let counted = measure(|| (0..rounds).for_each(|_| lock_and_release(&mutex)));
    assert_eq!(counted.count_total, rounds * (3 + 2), "{counted:?}");
}

#[test]
fn a_held_guard_costs_less_than_a_kibibyte() {
    const HELD: u64 = 10_000;
    let locks = locks();
    let names: Vec<String> = (0..HELD).map(|nth| format!("key-{nth}")).collect();
    let mut guards = Vec::with_capacity(names.len());
    let counted = measure(|| {
        for name in &names {
            guards.push(pollster::block_on(locks.mutex(name).unwrap().lock()).unwrap());
        }
    });
    let each = counted.bytes_current / i64::try_from(HELD).unwrap();
    assert!(each < 1024, "{each} bytes a guard, the store's own memory included");
}
