//! One lock with rslock, and with whoever writes keys as redsync does, on the same servers.

use std::time::Duration;

use crate::{LONG, Quorum, soon, until};

fn rslock_on(quorum: &Quorum) -> rslock::LockManager {
    let urls = quorum.servers.iter().map(leasehold_testbed::redis::Server::url).collect();
    let mut manager = rslock::LockManager::new(urls);
    manager.set_retry(0, Duration::ZERO);
    manager
}

#[tokio::test(flavor = "multi_thread")]
async fn rslock_and_we_exclude_each_other() {
    let quorum = Quorum::of(3, LONG);
    let (locks, rslock) = (quorum.connect(LONG).await, rslock_on(&quorum));
    let mutex = locks.mutex("k").unwrap();

    let theirs = rslock.lock("lock:k", LONG).await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(locks.rw_lock("k").unwrap().try_read().await.unwrap().is_none());
    let view = locks.inspect("k").await.unwrap().unwrap();
    assert!(view.holders.len() == 1 && view.holders[0].foreign, "{view:?}");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    rslock.unlock(&theirs).await;

    let ours = soon("our turn", waiter).await.unwrap();
    assert!(rslock.lock("lock:k", LONG).await.is_err());
    ours.release().await.unwrap();
    let theirs = rslock.lock("lock:k", LONG).await.unwrap();
    rslock.unlock(&theirs).await;

    let reader = locks.rw_lock("k").unwrap().read().await.unwrap();
    assert!(rslock.lock("lock:k", LONG).await.is_err(), "a reader does not keep them out");
    reader.release().await.unwrap();
    until("it is free everywhere", async || quorum.holding("k") == [false; 3]).await;
    rslock.lock("lock:k", LONG).await.unwrap();
}

/// redsync is written in Go. These are its commands, byte for byte: the value is 16 random bytes in base64, extending and
/// releasing compare it.
mod redsync {
    use leasehold_testbed::redis::Server;

    const VALUE: &str = "q83vEjRWeJCrze8SNFZ4kA==";

    const RELEASE: &str = r#"
	local val = redis.call("GET", KEYS[1])
	if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end
"#;

    const EXTEND: &str = r#"
	if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])
	else
		return 0
	end
"#;

    pub(super) fn acquire(server: &Server, key: &str) -> bool {
        server.cli(&["SET", key, VALUE, "PX", "8000", "NX"]) == "OK"
    }

    pub(super) fn extend(server: &Server, key: &str) -> String {
        server.cli(&["EVAL", EXTEND, "1", key, VALUE, "8000"])
    }

    pub(super) fn release(server: &Server, key: &str) -> String {
        server.cli(&["EVAL", RELEASE, "1", key, VALUE])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_writes_keys_as_redsync_does_and_we_exclude_each_other() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    let mutex = locks.mutex("k").unwrap();
    assert!(quorum.servers.iter().all(|server| redsync::acquire(server, "lock:k")));
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(quorum.servers.iter().all(|server| redsync::extend(server, "lock:k") == "1"), "we touched their key");
    assert!(quorum.servers.iter().all(|server| redsync::release(server, "lock:k") == "1"));

    let ours = mutex.try_lock().await.unwrap().expect("they have left");
    until("all have it", async || quorum.holding("k") == [true; 3]).await;
    assert!(!quorum.servers.iter().any(|server| redsync::acquire(server, "lock:k")));
    assert!(quorum.servers.iter().all(|server| redsync::extend(server, "lock:k") == "0"));
    assert!(quorum.servers.iter().all(|server| redsync::release(server, "lock:k") == "0"), "they took ours");
    ours.release().await.unwrap();
    until("none has it", async || quorum.holding("k") == [false; 3]).await;

    // A minority of theirs does not keep us out, and is not taken from them.
    assert!(redsync::acquire(&quorum.servers[0], "lock:k"));
    let ours = mutex.try_lock().await.unwrap().expect("a majority is free");
    ours.release().await.unwrap();
    assert_eq!(redsync::release(&quorum.servers[0], "lock:k"), "1");
}
