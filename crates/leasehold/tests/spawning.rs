//! Every call can be spawned on a runtime of many threads. That it compiles is the test.

use std::time::Duration;

use leasehold::{Guard, Locks, Owner, Result};

fn is_send<T>(future: impl Future<Output = T> + Send) {
    drop(future);
}

#[test]
fn the_future_of_every_call_can_be_sent_to_another_thread() {
    leasehold::doc_test(async |locks: Locks| -> Result<()> {
        let limit = Duration::ZERO;
        let mutex = locks.mutex("k")?;
        is_send(mutex.lock());
        is_send(mutex.try_lock());
        is_send(mutex.lock_within(limit));
        is_send(mutex.attempt_within(limit));
        is_send(mutex.with(async |guard: &Guard| guard.token()));
        let rw_lock = locks.rw_lock("k")?;
        is_send(rw_lock.read());
        is_send(rw_lock.read_within(limit));
        is_send(rw_lock.write());
        is_send(rw_lock.attempt_write_within(limit));
        let semaphore = locks.semaphore("k", 3)?;
        is_send(semaphore.acquire(2));
        is_send(semaphore.attempt_within(2, limit));
        let election = locks.election("k")?;
        is_send(election.campaign("a"));
        is_send(election.campaign_within("a", limit));
        is_send(election.leader());
        is_send(async { drop(election.observe()) });
        let (reentrant, owner) = (locks.reentrant("k")?, Owner::new("me")?);
        is_send(reentrant.lock(&owner));
        is_send(reentrant.lock_within(&owner, limit));
        let all_of = locks.all_of(["k"])?;
        is_send(all_of.lock());
        is_send(all_of.try_lock());
        is_send(all_of.lock_within(limit));
        is_send(all_of.attempt_within(limit));
        let guard = mutex.lock().await?;
        is_send(guard.lost());
        is_send(guard.yield_requested());
        is_send(guard.run(async {}));
        is_send(guard.release());
        is_send(locks.inspect("k"));
        is_send(locks.inspect_all());
        is_send(locks.close());
        Ok(())
    });
}
