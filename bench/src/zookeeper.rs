//! A lock on ZooKeeper beside the bare requests that any such lock is made of, beside the lock of the crate that sends them, and
//! beside the locks of other languages, which time themselves.

use std::time::{Duration, Instant};

use leasehold::Locks;
use leasehold_testbed::interop::{Peer, ZookeeperLibrary};
use leasehold_testbed::zookeeper::Server;
use zookeeper_client::{Acls, Client, CreateMode, LockPrefix};

use crate::summary::{median, micros, percentile, timed};

const TTL: Duration = Duration::from_secs(60);
const ROUNDS: usize = 7;
const PAIRS: usize = 400;
const HAND_OVERS: usize = 300;

/// How many a peer does in a row.
const TURNS: usize = 30;

pub async fn run() {
    let server = Server::start().expect("a server of our own");
    println!("ZooKeeper on loopback, 1 task");
    let locks = Locks::builder(&server.url()).ttl(TTL).connect().await.expect("leasehold connects");
    let mutex = locks.mutex("k").expect("a name");
    let (bare, peer) = (connect(&server).await, connect(&server).await);
    let folder = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for path in ["/bare", "/theirs"] {
        bare.create(path, b"", &folder).await.expect("a folder");
    }
    let mut peers = [ZookeeperLibrary::Curator, ZookeeperLibrary::Kazoo]
        .map(|library| library.start(&server.address()).expect("it starts"));
    for peer in &mut peers {
        pairs(peer, PAIRS * 5); // until it has compiled what it needs
    }
    let mut spans: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        spans[0]
            .push(timed(PAIRS, async || mutex.lock().await.expect("granted").release().await.expect("released")).await);
        spans[1].push(timed(PAIRS, async || pair(&bare).await).await);
        spans[2].push(timed(PAIRS, async || drop(theirs(&bare, "/theirs").await)).await);
        for (peer, spans) in peers.iter_mut().zip(&mut spans[3..]) {
            spans.push(pairs(peer, PAIRS));
        }
    }
    let bare_span = median(&mut spans[1].clone());
    // Theirs is deleted in the background, which they do not wait for.
    let names = ["leasehold", "create, list, delete", "zookeeper-client", "Curator", "kazoo"];
    for (name, spans) in names.iter().zip(&mut spans) {
        let span = median(spans);
        println!("  {name:<20} {:>7.0} µs a pair  {:>5.2} x bare", span * 1e6, span / bare_span);
    }

    println!("release to the next holder, one waits");
    let other = Locks::builder(&server.url()).ttl(TTL).connect().await.expect("leasehold connects");
    let (mut ours, mut others, mut curator, mut kazoo) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for nth in 0..HAND_OVERS {
        if nth % TURNS == 0 {
            for (peer, spans) in peers.iter_mut().zip([&mut curator, &mut kazoo]) {
                spans.extend(peer.turns(&format!("mutex:/turn-{nth}"), TURNS).expect("timed"));
            }
        }
        let name = format!("turn-{nth}");
        let held = locks.mutex(&name).expect("a name").lock().await.expect("granted");
        let next = other.mutex(&name).expect("a name");
        let waiter = tokio::spawn(async move {
            let guard = next.lock().await.expect("granted");
            (Instant::now(), guard)
        });
        while locks.inspect(&name).await.expect("answered").is_none_or(|view| view.waiters.is_none_or(|w| w.is_empty()))
        {
        }
        tokio::time::sleep(Duration::from_millis(3)).await; // until it watches
        let began = Instant::now();
        held.release().await.expect("released");
        let (at, guard) = waiter.await.expect("no panic");
        ours.push(at - began);
        guard.release().await.expect("released");

        let held = theirs(&bare, "/theirs").await;
        let waits = async {
            let guard = theirs(&peer, "/theirs").await;
            (Instant::now(), guard)
        };
        let leaves = async {
            tokio::time::sleep(Duration::from_millis(8)).await; // until it watches
            let began = Instant::now();
            drop(held);
            began
        };
        let ((at, guard), began) = tokio::join!(waits, leaves);
        others.push(at - began);
        drop(guard);
    }
    let all = [("leasehold", &mut ours), ("zookeeper-client", &mut others), ("Curator", &mut curator), ("kazoo", &mut kazoo)];
    for (name, spans) in all {
        let (half, most) = (percentile(spans, 50), percentile(spans, 99));
        println!("  {name:<20} p50 {:>6.0} µs  p99 {:>6.0} µs", micros(half), micros(most));
    }
}

async fn connect(server: &Server) -> Client {
    Client::connect(&server.address()).await.expect("bare connects")
}

/// What a lock needs at least that nobody else wants: a node, a look at who is there, and no node any more.
async fn pair(client: &Client) {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = client.create("/bare/n-", b"", &options).await.expect("created");
    let children = client.list_children("/bare").await.expect("listed");
    assert_eq!(children.len(), 1);
    client.delete(&format!("/bare/n-{sequence}"), None).await.expect("deleted");
}

/// Seconds for each of so many.
fn pairs(peer: &mut Peer, times: usize) -> f64 {
    peer.pairs("mutex:/peers", times).expect("timed").as_secs_f64() / times as f64
}

async fn theirs<'a>(client: &'a Client, folder: &str) -> zookeeper_client::LockClient<'a> {
    let prefix = LockPrefix::new_curator(folder, "lock-").expect("a path");
    client.lock(prefix, b"", Acls::anyone_all()).await.expect("granted")
}
