//! Many locks that are taken and given back at the same moment, which share calls to the server.

use futures_util::future::join_all;
use leasehold::ErrorKind;
use leasehold_testbed::redis::Server;

use crate::connect;

/// How often the server was asked to do that, going by its own count.
fn calls(server: &Server, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok());
    count.unwrap_or(0)
}

#[tokio::test]
async fn many_locks_at_once_take_few_calls() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let names: Vec<String> = (0..100).map(|nth| format!("k{nth}")).collect();
    for _ in 0..2 {
        server.cli(&["CONFIG", "RESETSTAT"]);
        let mutexes: Vec<_> = names.iter().map(|name| locks.mutex(name).unwrap()).collect();
        let guards = join_all(mutexes.iter().map(leasehold::Mutex::lock)).await;
        let mut tokens: Vec<u64> = guards.iter().map(|guard| guard.as_ref().unwrap().token().get()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), names.len(), "each has a token of its own");
        join_all(guards.into_iter().map(|guard| guard.unwrap().release())).await.into_iter().for_each(Result::unwrap);
    }
    let (set, scripts) = (calls(&server, "set"), calls(&server, "evalsha"));
    assert_eq!(set, 100, "to take a free lock takes no script");
    assert!(scripts <= 12, "{scripts} scripts to give back 100 locks");
    assert_eq!(calls(&server, "pexpire"), 0, "that tickets are to be remembered need not be said again");
    assert_eq!(server.cli(&["EXISTS", "lock:k0", "lock:k50", "lock:k99"]), "0");
}

#[tokio::test]
async fn of_many_that_are_given_back_at_once_what_is_somebody_elses_by_now_stays_theirs() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let mutexes: Vec<_> = (0..50).map(|nth| locks.mutex(format!("k{nth}")).unwrap()).collect();
    // Once before, so that the server knows the scripts.
    let guards = join_all(mutexes.iter().map(leasehold::Mutex::lock)).await;
    join_all(guards.into_iter().map(|guard| guard.unwrap().release())).await.into_iter().for_each(Result::unwrap);
    let guards = join_all(mutexes.iter().map(leasehold::Mutex::lock)).await;
    for theirs in ["lock:k20", "lock:k40"] {
        server.cli(&["SET", theirs, "somebody's", "PX", "60000"]);
    }
    server.cli(&["CONFIG", "RESETSTAT"]);
    let released = join_all(guards.into_iter().map(|guard| guard.unwrap().release())).await;
    assert!(calls(&server, "evalsha") < 25, "they share calls");
    for (nth, released) in released.into_iter().enumerate() {
        match nth {
            20 | 40 => assert_eq!(released.unwrap_err().kind(), ErrorKind::Lost, "k{nth}"),
            _ => released.unwrap(),
        }
    }
    assert_eq!(server.cli(&["MGET", "lock:k20", "lock:k40", "lock:k30"]), "somebody's\nsomebody's");
}

#[tokio::test]
async fn among_many_at_once_each_gets_what_it_would_get_alone() {
    let server = Server::start().unwrap();
    let (locks, others) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = others.mutex("held").unwrap().lock().await.unwrap();
    server.cli(&["SET", "lock:foreign", "somebody's", "PX", "60000"]);
    server.cli(&["RPUSH", "lock:list", "a"]);
    server.cli(&["SET", "{lock:spoilt}:tickets", "no set"]);
    server.cli(&["ZADD", "{lock:ahead}:tickets", "9007199254740000", "t"]);
    for round in 0..2 {
        if round == 1 {
            server.cli(&["SCRIPT", "FLUSH"]);
        }
        let names = ["first", "held", "free", "foreign", "list", "spoilt", "ahead", "last"];
        let mutexes = names.map(|name| locks.mutex(name).unwrap());
        let [first, busy, free, foreign, list, spoilt, ahead, last] =
            join_all(mutexes.iter().map(leasehold::Mutex::try_lock)).await.try_into().unwrap();
        let mut taken = Vec::new();
        for attempt in [first, free, ahead, last] {
            taken.push(attempt.unwrap().expect("nobody has it"));
        }
        assert!(taken[2].token().get() > 9_007_199_254_740_000);
        assert!(busy.unwrap().is_none() && foreign.unwrap().is_none());
        assert_eq!(list.unwrap_err().kind(), ErrorKind::KindMismatch);
        assert!(spoilt.is_err());
        let left = join_all(taken.into_iter().map(leasehold::Guard::release)).await;
        assert!(left.iter().all(Result::is_ok), "round {round}: {left:?}");
    }
    held.release().await.unwrap();
    assert_eq!(server.cli(&["TYPE", "lock:list"]), "list");
    assert_eq!(server.cli(&["GET", "lock:foreign"]), "somebody's");
}

#[tokio::test]
async fn whoever_enters_without_a_look_does_not_get_past_a_line_whose_holder_is_gone() {
    let server = Server::start().unwrap();
    let (locks, others) = (connect(&server.url()).await, connect(&server.url()).await);
    let holder = others.mutex("k").unwrap().lock().await.unwrap();
    let mutex = others.mutex("k").unwrap();
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    crate::until_waiting(&others, "k", 1).await.unwrap();
    // As it is when a holder's lease has ended, and nobody has looked yet.
    server.cli(&["DEL", "lock:k"]);
    let attempt = locks.mutex("k").unwrap().try_lock().await.unwrap();
    assert!(attempt.is_none(), "somebody was first in line");
    let turn = crate::soon("the waiter's turn", waiter).await.unwrap();
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().holders[0].token, Some(turn.token()));
    assert!(turn.token() > holder.token());
    turn.release().await.unwrap();
    let alone = locks.mutex("k").unwrap().lock().await.unwrap();
    alone.release().await.unwrap();
    assert_ne!(server.cli(&["ZSCORE", "{lock:k}:tickets", "t"]), "9007199254740991", "the line is over");
}
