//! Our figures beside those of the bare store and of the peers: in one run, in turns, as ratios.

mod contender;
mod etcd;
mod hand_over;
mod held;
mod mysql;
mod pairs;
mod postgres;
mod redlock;
mod summary;
mod zookeeper;

use leasehold_testbed::redis::Server;

/// As many workers as `#[tokio::main]` starts on a small machine, so that nobody is measured on a runtime of its own.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // With a word, that store alone.
    match std::env::args().nth(1).as_deref() {
        Some("etcd") => return etcd::run().await,
        Some("mysql") => return mysql::run().await,
        Some("postgres") => return postgres::run().await,
        Some("redlock") => return redlock::run().await,
        Some("zookeeper") => return zookeeper::run().await,
        _ => {}
    }
    let server = Server::start().expect("a server of our own");
    println!("Redis on loopback, {} cores", std::thread::available_parallelism().map_or(1, usize::from));
    let contenders = contender::Contender::all(&server.url()).await;
    pairs::run(&contenders).await;
    drop(contenders);
    hand_over::run(&server).await;
    held::run(&server).await;
    redlock::run().await;
    etcd::run().await;
    mysql::run().await;
    postgres::run().await;
    zookeeper::run().await;
}
