//! A lock in MariaDB beside bare commits of a row, over the same client crate. The server waits for its disk, as it does in
//! earnest.

use std::time::Duration;

use leasehold::Locks;
use leasehold_testbed::mysql::Server;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use crate::summary::{median, timed};

const TTL: Duration = Duration::from_secs(60);
const ROUNDS: usize = 7;
const PAIRS: usize = 200;

pub async fn run() {
    let server = Server::builder().durable(true).start().expect("a server of our own");
    println!("MariaDB on loopback, on disk, 1 task");
    let url = server.url();
    let locks = Locks::builder(&url).ttl(TTL).connect().await.expect("leasehold connects");
    let mutex = locks.mutex("k").expect("a name");
    let mut bare = Conn::new(Opts::from_url(&url).expect("a URL")).await.expect("bare connects");
    bare.query_drop("CREATE TABLE bare (id VARBINARY(64) PRIMARY KEY, at DATETIME(6) NOT NULL)").await.expect("a table");
    let take = bare.prep("INSERT IGNORE INTO bare VALUES (?, UTC_TIMESTAMP(6))").await.expect("prepared");
    let give = bare.prep("DELETE FROM bare WHERE id = ?").await.expect("prepared");
    let mut spans: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        spans[0]
            .push(timed(PAIRS, async || mutex.lock().await.expect("granted").release().await.expect("released")).await);
        let commits = async || {
            for statement in [&take, &give] {
                bare.exec_drop(statement, ("k",)).await.expect("committed");
                assert_eq!(bare.affected_rows(), 1);
            }
        };
        spans[1].push(timed(PAIRS, commits).await);
    }
    let two_commits = median(&mut spans[1].clone());
    for (name, spans) in ["leasehold", "two bare commits"].iter().zip(&mut spans) {
        let span = median(spans);
        println!("  {name:<18} {:>7.0} µs a pair  {:>5.2} x bare", span * 1e6, span / two_commits);
    }
}
