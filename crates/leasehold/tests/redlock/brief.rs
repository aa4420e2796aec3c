//! Locks that are taken and given back by plain commands, on the condition that nobody else had a hand in them.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_testbed::redis::Server;

use crate::network::{lock_and_release, scripts_run, times_done};
use crate::{LONG, Quorum, raise_fences, soon};

/// Another program's lock stands where ours was.
fn replace(server: &Server, name: &str) {
    let key = format!("lock:{name}");
    server.cli(&["DEL", &key]);
    assert_eq!(server.cli(&["SET", &key, "somebody else's", "NX", "PX", "600000"]), "OK");
}

fn is_theirs(server: &Server, name: &str) -> bool {
    server.cli(&["GET", &format!("lock:{name}")]) == "somebody else's"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_nobody_else_wants_needs_hardly_any_script() {
    const TIMES: u64 = 200;
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    lock_and_release(&locks, 20).await;
    let before: u64 = quorum.servers.iter().map(scripts_run).sum();
    lock_and_release(&locks, TIMES as usize).await;
    let scripts = quorum.servers.iter().map(scripts_run).sum::<u64>() - before;
    // Where a lock is given back on a connection that still carries the one before, there is one.
    assert!(scripts < TIMES * 3 / 2, "{scripts} scripts for {TIMES} locks on 3 servers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_somebody_elses_by_now_is_not_given_up_with_ours() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    lock_and_release(&locks, 5).await;
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    quorum.servers.iter().for_each(|server| replace(server, "k"));
    let lost = soon("giving it back", guard.release()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost, "{lost}");
    assert!(quorum.servers.iter().all(|server| is_theirs(server, "k")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_watched_for_one_lock_is_not_taken_for_another() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    lock_and_release(&locks, 5).await;
    let first = locks.mutex("first").unwrap().lock().await.unwrap();
    let second = locks.mutex("second").unwrap().lock().await.unwrap();
    quorum.servers.iter().for_each(|server| replace(server, "first"));
    let lost = soon("giving it back", first.release()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost, "{lost}");
    assert!(quorum.servers.iter().all(|server| is_theirs(server, "first")));
    soon("giving the other back", second.release()).await.unwrap();
    assert_eq!(quorum.holding("second"), [false; 3]);
}

/// A lock of ours may stand there for a moment, and counts for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_grants_nothing_in_few_words_either() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    lock_and_release(&locks, 5).await;
    quorum.servers[..2].iter().for_each(|server| drop(server.cli(&["FLUSHALL"])));
    let error = locks.mutex("k").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("has forgotten what it knew"), "{error}: {cause}");
    crate::until("nothing is left of it", async || quorum.holding("k") == [false; 3]).await;
}

/// The guess is behind the fences: then the script says how far, and a second trip commits a token above them.
#[tokio::test(flavor = "multi_thread")]
async fn a_guess_that_is_behind_is_found_out_in_few_words() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    lock_and_release(&locks, 5).await;
    quorum.servers.iter().for_each(|server| raise_fences(server, "7000000000000000"));
    let guard = locks.mutex("k").unwrap().lock().await.unwrap();
    assert!(guard.token().get() > 7_000_000_000_000_000);
    soon("giving it back", guard.release()).await.unwrap();
    assert_eq!(quorum.holding("k"), [false; 3]);
}

/// The third server has set the lock, and its fence is higher than the guess, so that it is asked once more. Meanwhile the lock is
/// held and given up, there too.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_given_up_is_not_set_again_by_the_rest_of_asking_for_it() {
    let quorum = Quorum::of(3, LONG);
    let locks = quorum.connect(LONG).await;
    lock_and_release(&locks, 5).await;
    raise_fences(&quorum.servers[2], "7000000000000000");
    let before = times_done(&quorum.servers[2], "set");
    quorum.proxies[2].delay(Duration::from_millis(300));
    lock_and_release(&locks, 1).await;
    crate::until("it was set twice", async || times_done(&quorum.servers[2], "set") == before + 2).await;
    crate::until("nothing is left of it", async || quorum.holding("k") == [false; 3]).await;
}
