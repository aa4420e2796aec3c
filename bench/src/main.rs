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

use std::process::ExitCode;

use leasehold_testbed::redis::Server;

/// All that is measured, in this order unless told otherwise.
const STORES: [&str; 6] = ["redis", "redlock", "etcd", "mysql", "postgres", "zookeeper"];

/// As many workers as `#[tokio::main]` starts on a small machine, so that nobody is measured on a runtime of its own.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(other) = asked.iter().find(|asked| !STORES.contains(&asked.as_str())) {
        eprintln!("there is no store {other:?}: name some of {}, or none for all", STORES.join(", "));
        return ExitCode::from(2);
    }
    for store in STORES.into_iter().filter(|store| asked.is_empty() || asked.iter().any(|asked| asked == store)) {
        match store {
            "redis" => redis().await,
            "redlock" => redlock::run().await,
            "etcd" => etcd::run().await,
            "mysql" => mysql::run().await,
            "postgres" => postgres::run().await,
            _ => zookeeper::run().await,
        }
    }
    ExitCode::SUCCESS
}

async fn redis() {
    let server = Server::start().expect("a server of our own");
    println!("Redis on loopback, {} cores", std::thread::available_parallelism().map_or(1, usize::from));
    let contenders = contender::Contender::all(&server.url()).await;
    pairs::run(&contenders).await;
    drop(contenders);
    hand_over::run(&server).await;
    held::run(&server).await;
}
