//! How many requests it takes.

use std::time::Duration;

use leasehold::backend::Backend as _;
use leasehold::backend::etcd::Etcd;
use leasehold::{Locks, Mutex};
use leasehold_testbed::etcd::{Cluster, Server};

use crate::slots::request;
use crate::{TTL, connect, connect_for, soon, timer, until_waiting};

/// How many messages the server has got for these methods so far.
fn asked(server: &Server, methods: &[&str]) -> u64 {
    let counted = server.counted(|counter| {
        counter.starts_with("grpc_server_msg_received_total")
            && methods.iter().any(|method| counter.contains(&format!("grpc_method=\"{method}\"")))
    });
    counted.expect("the server can be reached")
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_held_locks_have_one_session_and_one_keep_alive_at_a_time() {
    const LOCKS: usize = 3_000;
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let ttl = Duration::from_secs(30);
    let locks = connect_for(&cluster.url(), ttl).await;
    let mutexes: Vec<Mutex> = (0..LOCKS).map(|nth| locks.mutex(format!("many-{nth}")).unwrap()).collect();
    let mut guards = Vec::new();
    for some in mutexes.chunks(100) {
        guards.extend(futures_util::future::try_join_all(some.iter().map(Mutex::lock)).await.unwrap());
    }
    let leases = server.cli(&["lease", "list"]);
    assert!(leases.starts_with("found 1 leases"), "{leases}");
    let (before, started) = (asked(server, &["LeaseKeepAlive"]), timer().now());
    timer().sleep(ttl * 3 / 2).await;
    let (kept, took) = (asked(server, &["LeaseKeepAlive"]) - before, started.until(timer().now()));
    // Every third of its length, give or take a tenth; and never sooner than a quarter after the last.
    let most = took.div_duration_f64(ttl / 4) as u64 + 1;
    assert!((3..=most).contains(&kept), "{kept} keep-alives in {took:?}");
    for guard in guards {
        guard.check().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_is_one_transaction_and_so_is_its_release() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let locks = connect(&cluster.url()).await;
    let mutex = locks.mutex("free").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    let everything = ["Txn", "Range", "Put", "DeleteRange", "LeaseGrant", "LeaseKeepAlive", "Watch"];
    let before = asked(server, &everything);
    let mut slow = 0;
    for _ in 0..100 {
        let began = timer().now();
        mutex.lock().await.unwrap().release().await.unwrap();
        slow += u64::from(began.until(timer().now()) >= Duration::from_millis(50));
    }
    assert_eq!(asked(server, &["Txn"]), 2 + 200);
    // What a busy machine held for so long is watched: two watches, begun and ended.
    let more = asked(server, &everything) - before - 200;
    assert!(more <= 4 * slow, "{more} requests more than 200 transactions, and {slow} were slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_meets_others_unexpectedly_needs_one_transaction_more_and_expects_them_from_then_on() {
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let (one, other) = (Etcd::connect(&cluster.url()).await.unwrap(), Etcd::connect(&cluster.url()).await.unwrap());
    let held = request("taken", 1);
    one.enter(&held).await.unwrap();
    let mut transactions = Vec::new();
    for id in 2..8 {
        if id == 5 {
            one.leave(&held.place).await.unwrap();
        }
        let (before, joins) = (asked(server, &["Txn"]), request("taken", id));
        other.enter(&joins).await.unwrap();
        transactions.push(asked(server, &["Txn"]) - before);
        other.leave(&joins.place).await.unwrap();
    }
    assert_eq!(transactions, [2, 1, 1, 1, 1, 1]);
}

/// Whoever waits further back is not woken.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_takes_as_many_requests_behind_two_waiters_as_behind_fifty() {
    const HAND_OVERS: u64 = 20;
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let locks = connect(&cluster.url()).await;
    let mut costs = Vec::new();
    for waiters in [2, 50] {
        let name = format!("line-of-{waiters}");
        let mutex = locks.mutex(&name).unwrap();
        let held = mutex.lock().await.unwrap();
        let mut line = std::collections::VecDeque::new();
        let mut guard = Some(held);
        let join = |mutex: &Mutex| {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.lock().await.unwrap() })
        };
        for nth in 0..waiters {
            line.push_back(join(&mutex));
            until_waiting(&locks, &name, nth + 1).await.unwrap();
        }
        let before = asked(server, &["Txn", "Range", "DeleteRange", "Put"]);
        for _ in 0..HAND_OVERS.min(waiters as u64) {
            guard.take().unwrap().release().await.unwrap();
            guard = Some(soon("the next one's turn", line.pop_front().unwrap()).await.unwrap());
        }
        let all = asked(server, &["Txn", "Range", "DeleteRange", "Put"]) - before;
        costs.push(all as f64 / HAND_OVERS.min(waiters as u64) as f64);
        line.iter().for_each(tokio::task::JoinHandle::abort);
    }
    // One to leave, one to look; and a look of somebody who waited for a second, now and then.
    assert!(costs.iter().all(|cost| (2.0..4.0).contains(cost)), "{costs:?} requests for a hand-over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_of_many_locks_takes_few_requests_and_says_who_has_each() {
    const LOCKS: usize = 150;
    let cluster = Cluster::start().unwrap();
    let server = &cluster.servers()[0];
    let locks = Locks::builder(&cluster.url()).ttl(TTL).label("worker-7").connect().await.unwrap();
    let mutexes: Vec<Mutex> = (0..LOCKS).map(|nth| locks.mutex(format!("listed-{nth}")).unwrap()).collect();
    let guards = futures_util::future::try_join_all(mutexes.iter().map(Mutex::lock)).await.unwrap();
    let before = asked(server, &["Txn", "Range", "LeaseTimeToLive"]);
    let views = locks.inspect_all().await.unwrap();
    let requests = asked(server, &["Txn", "Range", "LeaseTimeToLive"]) - before;
    assert_eq!(views.len(), LOCKS);
    for view in &views {
        let [holder] = &view.holders[..] else { panic!("{view:?}") };
        assert!(!holder.foreign && &*holder.note.owner == "worker-7", "{holder:?}");
    }
    assert!(requests <= 10, "{requests} requests");
    drop(guards);
}
