//! One lock with redis-py, python-redis-lock and redlock for Node.js.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::backend::Departure;
use leasehold::clock::{Clock, Timer};
use leasehold::{Locks, Mutex};
use leasehold_testbed::interop::{Answer, Library, Peer};
use leasehold_testbed::redis::Server;

use crate::{TTL, connect, soon, until_waiting};

/// What a peer calls the lock that we call `name`.
fn theirs(library: Library, name: &str) -> String {
    match library {
        Library::PythonRedisLock => name.into(),
        Library::RedisPy | Library::NodeRedlock => format!("lock:{name}"),
    }
}

/// Each library, a process that uses it, and our name and its name of a lock.
fn each_peer(test: &str) -> impl Iterator<Item = (Library, Peer, String, String)> {
    Library::ALL.into_iter().map(move |library| {
        let name = format!("{test}-{library:?}");
        let key = theirs(library, &name);
        (library, library.start(&Server::shared().url()).unwrap(), name, key)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn while_they_hold_we_are_refused_and_we_get_in_when_they_have_left_without_a_word() {
    let locks = connect(&Server::shared().url()).await;
    for (library, mut peer, name, key) in each_peer("they-hold") {
        let mutex = locks.mutex(&name).unwrap();
        assert_eq!(peer.lock(&key, TTL, Duration::ZERO).unwrap(), Answer::Held);
        assert!(mutex.try_lock().await.unwrap().is_none(), "{library:?}");
        assert!(locks.rw_lock(&name).unwrap().try_read().await.unwrap().is_none(), "{library:?}");

        let view = locks.inspect(&name).await.unwrap().unwrap();
        let [holder] = &view.holders[..] else { panic!("{library:?}: {view:?}") };
        assert!(holder.foreign && holder.token.is_none() && holder.lease_left <= TTL, "{library:?}: {holder:?}");
        assert_eq!(*holder.note.owner, *Server::shared().cli(&["GET", &format!("lock:{name}")]), "{library:?}");

        let waiter = tokio::spawn(async move { mutex.lock().await });
        until_waiting(&locks, &name, 1).await.unwrap();
        assert_eq!(peer.unlock(&key).unwrap(), Answer::Released);
        let guard = soon("our turn", waiter).await.unwrap().unwrap();
        assert_eq!(peer.lock(&key, TTL, Duration::ZERO).unwrap(), Answer::Busy, "{library:?}");
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_we_hold_they_are_busy_and_get_in_when_we_have_left() {
    let locks = connect(&Server::shared().url()).await;
    for (library, mut peer, name, key) in each_peer("we-hold") {
        let mut busy_until_left = |whose: &str| {
            assert_eq!(peer.lock(&key, TTL, Duration::ZERO).unwrap(), Answer::Busy, "{library:?}, {whose}");
            assert_eq!(peer.lock(&key, TTL, Duration::from_millis(20)).unwrap(), Answer::Busy, "{library:?}, {whose}");
        };
        let mutex = locks.mutex(&name).unwrap().lock().await.unwrap();
        busy_until_left("mutex");
        mutex.release().await.unwrap();
        let readers = locks.rw_lock(&name).unwrap();
        let (one, other) = (readers.read().await.unwrap(), readers.read().await.unwrap());
        busy_until_left("two readers");
        one.release().await.unwrap();
        busy_until_left("a reader");
        other.release().await.unwrap();
        let permit = locks.semaphore(&name, 3).unwrap().acquire(1).await.unwrap();
        busy_until_left("a permit of three");
        permit.release().await.unwrap();
        assert_eq!(peer.lock(&key, TTL, Duration::ZERO).unwrap(), Answer::Held, "{library:?}");
        assert_eq!(peer.unlock(&key).unwrap(), Answer::Released, "{library:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_empty_namespace_a_name_is_the_key_as_it_is() {
    let locks = Locks::builder(&Server::shared().url()).namespace("").ttl(TTL).connect().await.unwrap();
    let mut peer = Library::RedisPy.start(&Server::shared().url()).unwrap();
    let guard = locks.mutex("orders").unwrap().lock().await.unwrap();
    assert_eq!(peer.lock("orders", TTL, Duration::ZERO).unwrap(), Answer::Busy);
    guard.release().await.unwrap();
    assert_eq!(peer.lock("orders", TTL, Duration::ZERO).unwrap(), Answer::Held);
    assert!(locks.mutex("orders").unwrap().try_lock().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_theirs_can_be_evicted_and_learns_that_it_lost() {
    let locks = connect(&Server::shared().url()).await;
    for (library, mut peer, name, key) in each_peer("evicted") {
        assert_eq!(peer.lock(&key, TTL, Duration::ZERO).unwrap(), Answer::Held);
        let holder = locks.inspect(&name).await.unwrap().unwrap().holders.remove(0);
        assert_eq!(locks.evict(&holder).await.unwrap(), Departure::WasHolding, "{library:?}");
        let _guard = locks.mutex(&name).unwrap().try_lock().await.unwrap().unwrap();
        assert_eq!(locks.evict(&holder).await.unwrap(), Departure::WasGone, "{library:?}: it was that one alone");
        assert_eq!(peer.extend(&key, TTL).unwrap(), Answer::Lost, "{library:?}");
        assert_eq!(peer.unlock(&key).unwrap(), Answer::Lost, "{library:?}");
    }
}

/// Adds one to the number in a file, so many times, each under the lock and slowly enough to be caught without it.
async fn hammer(mutex: &Mutex, file: &Path, times: u32) {
    let timer = Timer::on_callers_runtime(Clock::boot());
    for _ in 0..times {
        let guard = mutex.lock().await.unwrap();
        let number: u32 = fs::read_to_string(file).unwrap().parse().unwrap();
        timer.sleep(Duration::from_micros(300)).await;
        fs::write(file, (number + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
}

/// So many additions by each peer, and as many by each of two clients of ours; all under the lock of that name.
async fn all_hammer(name: &str, libraries: &[Library], times: u32) {
    let url = Server::shared().url();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("number");
    fs::write(&file, "0").unwrap();
    let mut peers: Vec<(Library, Peer)> =
        libraries.iter().map(|library| (*library, library.start(&url).unwrap())).collect();
    let ours = [connect(&url).await, connect(&url).await].map(|locks| {
        let (mutex, file) = (locks.mutex(name).unwrap(), file.clone());
        tokio::spawn(async move { hammer(&mutex, &file, times).await })
    });
    std::thread::scope(|scope| {
        for (library, peer) in &mut peers {
            let (key, file) = (theirs(*library, name), &file);
            scope.spawn(move || peer.hammer(&key, file, times).unwrap());
        }
    });
    for task in ours {
        soon("our own additions", task).await.unwrap();
    }
    let all = times * u32::try_from(peers.len() + 2).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), all.to_string(), "{libraries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_with_redis_py() {
    all_hammer("hammer-redis-py", &[Library::RedisPy], 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_with_python_redis_lock() {
    all_hammer("hammer-python-redis-lock", &[Library::PythonRedisLock], 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_with_redlock_for_node() {
    all_hammer("hammer-node-redlock", &[Library::NodeRedlock], 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_addition_is_lost_with_all_of_them_at_once() {
    all_hammer("hammer-all", &Library::ALL, 150).await;
}
