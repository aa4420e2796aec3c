//! A lock in PostgreSQL beside bare commits of a row, and its hand-over beside somebody who looks every 100 ms, over the same
//! client crate. The server waits for its disk, as it does in earnest.

use std::time::{Duration, Instant};

use leasehold::Locks;
use leasehold_testbed::postgres::Server;
use tokio_postgres::{Client, NoTls};

use crate::summary::{median, micros, percentile, timed};

const TTL: Duration = Duration::from_secs(60);
const ROUNDS: usize = 7;
const PAIRS: usize = 200;
const HAND_OVERS: usize = 200;

/// How often Spring's lock registry looks whether a lock is free.
const POLL_EVERY: Duration = Duration::from_millis(100);

pub async fn run() {
    let server = Server::builder().durable(true).start().expect("a server of our own");
    println!("PostgreSQL on loopback, on disk, 1 task");
    let url = server.url();
    let locks = Locks::builder(&url).ttl(TTL).connect().await.expect("leasehold connects");
    let mutex = locks.mutex("k").expect("a name");
    let bare = connect(&url).await;
    bare.batch_execute("CREATE TABLE bare (id text PRIMARY KEY, at timestamptz NOT NULL)").await.expect("a table");
    let take = bare.prepare("INSERT INTO bare VALUES ($1, now()) ON CONFLICT DO NOTHING").await.expect("prepared");
    let give = bare.prepare("DELETE FROM bare WHERE id = $1").await.expect("prepared");
    let commits = async || {
        assert_eq!(bare.execute(&take, &[&"k"]).await.expect("taken"), 1);
        assert_eq!(bare.execute(&give, &[&"k"]).await.expect("given"), 1);
    };
    let mut spans: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        spans[0]
            .push(timed(PAIRS, async || mutex.lock().await.expect("granted").release().await.expect("released")).await);
        spans[1].push(timed(PAIRS, commits).await);
    }
    let two_commits = median(&mut spans[1].clone());
    for (name, spans) in ["leasehold", "two bare commits"].iter().zip(&mut spans) {
        let span = median(spans);
        println!("  {name:<18} {:>7.0} µs a pair  {:>5.2} x bare", span * 1e6, span / two_commits);
    }

    println!("release to the next holder, one waits");
    let other = Locks::builder(&url).ttl(TTL).connect().await.expect("leasehold connects");
    let poller = connect(&url).await;
    let (mut ours, mut polled) = (Vec::new(), Vec::new());
    for nth in 0..HAND_OVERS {
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
        let began = Instant::now();
        held.release().await.expect("released");
        let (at, guard) = waiter.await.expect("no panic");
        ours.push(at - began);
        guard.release().await.expect("released");
    }
    for _ in 0..HAND_OVERS / 10 {
        assert_eq!(bare.execute(&take, &[&"k"]).await.expect("taken"), 1);
        let waits = async {
            let insert = "INSERT INTO bare VALUES ('k', now()) ON CONFLICT DO NOTHING";
            while poller.execute(insert, &[]).await.expect("tried") == 0 {
                tokio::time::sleep(POLL_EVERY).await;
            }
            Instant::now()
        };
        let leaves = async {
            tokio::time::sleep(Duration::from_millis(150 + polled.len() as u64 * 37 % 100)).await;
            let began = Instant::now();
            bare.execute(&give, &[&"k"]).await.expect("given");
            began
        };
        let (at, began) = tokio::join!(waits, leaves);
        polled.push(at.saturating_duration_since(began));
        bare.execute(&give, &[&"k"]).await.expect("given");
    }
    for (name, spans) in [("leasehold", &mut ours), ("100 ms poller", &mut polled)] {
        let (half, most) = (percentile(spans, 50), percentile(spans, 99));
        let commits = half.as_secs_f64() / (two_commits / 2.0);
        println!("  {name:<18} p50 {:>6.0} µs  p99 {:>6.0} µs  {commits:>5.1} commits", micros(half), micros(most));
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("bare connects");
    tokio::spawn(connection);
    client
}
