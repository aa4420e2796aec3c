//! The lock libraries of other languages, among themselves.

use std::fs;
use std::time::Duration;

use leasehold_testbed::interop::{Answer, Library, Peer};
use leasehold_testbed::redis::Server;

const TTL: Duration = Duration::from_secs(20);

/// Runs the rest once for each library, with two processes that use it and a key of its own.
fn for_each_library(test: &str, run: impl Fn(Library, [Peer; 2], &str)) {
    let server = Server::shared();
    for library in Library::ALL {
        let peers = [library.start(&server.url()).unwrap(), library.start(&server.url()).unwrap()];
        run(library, peers, &format!("{test}-{library:?}"));
    }
}

/// The name under which the server has it.
fn stored(library: Library, key: &str) -> String {
    let prefix = if library == Library::PythonRedisLock { "lock:" } else { "" };
    format!("{prefix}{key}")
}

#[test]
fn a_lock_is_busy_until_its_holder_gives_it_back() {
    for_each_library("turns", |library, [mut one, mut other], key| {
        assert_eq!(one.lock(key, TTL, Duration::ZERO).unwrap(), Answer::Held, "{library:?}");
        assert_eq!(other.lock(key, TTL, Duration::ZERO).unwrap(), Answer::Busy, "{library:?}");
        assert_eq!(other.lock(key, TTL, Duration::from_millis(300)).unwrap(), Answer::Busy, "{library:?}");
        assert_eq!(Server::shared().cli(&["EXISTS", &stored(library, key)]), "1");
        assert_eq!(one.unlock(key).unwrap(), Answer::Released, "{library:?}");
        assert_eq!(other.lock(key, TTL, TTL / 2).unwrap(), Answer::Held, "{library:?}");
    });
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_given_back() {
    for_each_library("waiting", |library, [mut one, mut other], key| {
        assert_eq!(one.lock(key, TTL, Duration::ZERO).unwrap(), Answer::Held);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| other.lock(key, TTL, TTL / 2));
            assert_eq!(one.unlock(key).unwrap(), Answer::Released);
            assert_eq!(waiter.join().unwrap().unwrap(), Answer::Held, "{library:?}");
        });
    });
}

#[test]
fn an_extended_lock_lives_longer() {
    for_each_library("extending", |library, [mut one, _], key| {
        let left = || Server::shared().cli(&["PTTL", &stored(library, key)]).parse::<u64>().unwrap();
        assert_eq!(one.lock(key, TTL, Duration::ZERO).unwrap(), Answer::Held);
        assert!(left() <= 20_000);
        assert_eq!(one.extend(key, TTL * 5).unwrap(), Answer::Extended, "{library:?}");
        assert!((80_000..=100_000).contains(&left()), "{library:?}: {}", left());
    });
}

#[test]
fn a_lock_that_somebody_took_away_is_lost() {
    for_each_library("losing", |library, [mut one, mut other], key| {
        assert_eq!(one.lock(key, TTL, Duration::ZERO).unwrap(), Answer::Held);
        Server::shared().cli(&["DEL", &stored(library, key)]);
        assert_eq!(other.lock(key, TTL, Duration::ZERO).unwrap(), Answer::Held);
        assert_eq!(one.extend(key, TTL).unwrap(), Answer::Lost, "{library:?}");
        assert_eq!(one.unlock(key).unwrap(), Answer::Lost, "{library:?}");
        assert_eq!(other.unlock(key).unwrap(), Answer::Released, "{library:?}");
    });
}

#[test]
fn no_addition_is_lost_under_the_hammer() {
    const TIMES: u32 = 100;
    let folder = tempfile::TempDir::new().unwrap();
    for_each_library("hammer", |library, peers, key| {
        let file = folder.path().join(key);
        fs::write(&file, "0").unwrap();
        std::thread::scope(|scope| {
            for mut peer in peers {
                let file = &file;
                scope.spawn(move || peer.hammer(key, file, TIMES).unwrap());
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), (2 * TIMES).to_string(), "{library:?}");
    });
}

#[test]
fn additions_are_lost_where_the_hammers_take_different_locks() {
    let folder = tempfile::TempDir::new().unwrap();
    for_each_library("no-hammer", |library, [mut one, mut other], key| {
        let file = folder.path().join(key);
        fs::write(&file, "0").unwrap();
        let elsewhere = format!("{key}-elsewhere");
        let outcomes = std::thread::scope(|scope| {
            let one = scope.spawn(|| one.hammer(key, &file, 100));
            let other = scope.spawn(|| other.hammer(&elsewhere, &file, 100));
            [one.join().unwrap(), other.join().unwrap()]
        });
        // A peer may also find the file as the other is about to write it, and fail.
        let sum = fs::read_to_string(&file).unwrap();
        assert!(outcomes.iter().any(Result::is_err) || sum != "200", "{library:?}: the hammer would notice nothing");
    });
}

#[test]
fn a_peer_that_fails_says_why() {
    let server = Server::start().unwrap();
    for library in Library::ALL {
        let mut peer = library.start(&server.url()).unwrap();
        server.cli(&["SET", "lock:k", "x"]);
        server.cli(&["SET", "k", "x"]);
        let failure = peer.unlock("k").unwrap_err().to_string();
        assert!(failure.contains("unlock k") && failure.contains("error"), "{failure}");
        assert_eq!(peer.lock("k", TTL, Duration::ZERO).unwrap(), Answer::Busy, "{library:?}: and it is still there");
    }
}

#[test]
fn a_peer_that_cannot_reach_its_server_does_not_start() {
    let server = Server::start().unwrap();
    server.kill();
    let failure = Library::RedisPy.start(&server.url()).unwrap_err().to_string();
    assert!(failure.contains("ConnectionError") || failure.contains("Connection refused"), "{failure}");
    server.restart().unwrap();
    Library::RedisPy.start(&server.url()).unwrap();
}
