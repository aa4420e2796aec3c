//! How little is asked of the servers.

use std::time::Duration;

use leasehold::Locks;
use leasehold_testbed::zookeeper::Server;

use crate::{connect, timer, until, until_waiting};

/// How many requests a server has had, one for each time that it is asked this included.
fn requests(server: &Server) -> u64 {
    let said = server.asked("srvr");
    let count = said.lines().find_map(|line| line.strip_prefix("Received: "));
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("it does not say: {said}"))
}

/// The requests that `work` takes.
async fn cost(server: &Server, work: impl Future<Output = ()>) -> u64 {
    let before = requests(server);
    work.await;
    requests(server) - before - 1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_taken_and_given_back_costs_three_requests() {
    let server = Server::start().unwrap();
    let locks = connect(&server.url()).await;
    let mutex = locks.mutex("k").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let mut costs = Vec::new();
    for _ in 0..20 {
        let pairs = cost(&server, async {
            for _ in 0..10 {
                mutex.lock().await.unwrap().release().await.unwrap();
            }
        });
        costs.push(pairs.await);
    }
    // On a busy machine one may be held for so long that it is watched: one request more.
    assert!(costs.iter().all(|cost| (30..=40).contains(cost)) && costs.contains(&30), "{costs:?} for ten locks each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_locks_are_kept_by_one_request_in_a_third_of_their_lease() {
    const HELD: Duration = Duration::from_secs(6);
    let server = Server::start().unwrap();
    let locks = Locks::builder(&server.url()).ttl(HELD).connect().await.unwrap();
    let mutexes: Vec<_> = (0..1000).map(|nth| locks.mutex(format!("{nth}")).unwrap()).collect();
    let mut guards = Vec::new();
    for mutex in &mutexes {
        guards.push(mutex.lock().await.unwrap());
    }
    let watched = async || server.asked("wchs").contains("watching 1000 paths");
    until("all of them are watched", watched).await;
    let requests = cost(&server, timer().sleep(HELD)).await;
    assert!((2..=10).contains(&requests), "{requests} requests in the time of one lease");
    for guard in &guards {
        guard.check().unwrap();
    }
    assert_eq!(server.asked("cons").lines().filter(|line| line.contains("sid=")).count(), 1, "it has one connection");
}

/// However many wait: a departure wakes one.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_costs_the_same_however_many_wait() {
    let mut costs = Vec::new();
    for waiters in [2, 60] {
        let server = Server::start().unwrap();
        let (holder, crowd) = (connect(&server.url()).await, connect(&server.url()).await);
        let mut guard = holder.mutex("k").unwrap().lock().await.unwrap();
        let (sender, mut granted) = tokio::sync::mpsc::unbounded_channel();
        for nth in 0..waiters {
            let (mutex, sender) = (crowd.mutex("k").unwrap(), sender.clone());
            tokio::spawn(async move { sender.send(mutex.lock().await.unwrap()) });
            until_waiting(&holder, "k", nth + 1).await.unwrap();
        }
        // Until all of them are told of whoever they wait for.
        let watched = async || {
            let count = server.asked("wchs");
            count.contains(&format!("watching {} paths", waiters + 1))
        };
        until("everybody is watched", watched).await;
        let before = requests(&server);
        guard.release().await.unwrap();
        guard = granted.recv().await.unwrap();
        // Whoever else was woken would look now.
        timer().sleep(Duration::from_millis(500)).await;
        costs.push(requests(&server) - before - 1);
        drop(guard);
    }
    // A departure, a look for the one behind it, what watches may add, and a renewal that may fall due meanwhile.
    assert!(costs.iter().all(|cost| *cost <= 6), "{costs:?}");
}

/// What is told of a line is as long as the line.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_joins_a_line_at_the_same_time_as_others_is_told_of_it_together_with_them() {
    const WAITERS: usize = 1000;
    let server = Server::start().unwrap();
    let (holder, crowd) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = holder.mutex("k").unwrap().lock().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    let requests = cost(&server, async {
        for _ in 0..WAITERS {
            let mutex = crowd.mutex("k").unwrap();
            waiting.spawn(async move { mutex.lock().await.unwrap().release().await });
        }
        let watched = async || server.asked("wchs").contains(&format!("watching {} paths", WAITERS + 1));
        until("everybody is told when their turn comes", watched).await;
    });
    // Each makes an entry, and watches it and the one before it. The others are looks.
    let requests = requests.await as usize;
    assert!(requests < WAITERS * 7 / 2, "{requests} requests of {WAITERS} who wait");
    drop(guard);
    while let Some(released) = waiting.join_next().await {
        released.unwrap().unwrap();
    }
}
