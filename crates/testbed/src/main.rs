//! Starts servers for a person to try things on, until it is killed or its input ends.

use std::io::Read;
use std::process::ExitCode;

use leasehold_testbed::Result;
use leasehold_testbed::etcd;
use leasehold_testbed::redis::{Cluster, Sentinel, Server};
use leasehold_testbed::{mysql, postgres, zookeeper};

const HELP: &str = "\
testbed <servers>

  etcd        one etcd server
  mysql       one MariaDB server
  postgres    one PostgreSQL server
  redis       one Redis server
  cluster     a Redis Cluster of three masters
  sentinel    a Redis master, two replicas and three sentinels
  zookeeper   one ZooKeeper server
  ensemble    three ZooKeeper servers

Prints where they are, and ends them when its input ends or it is killed.
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["etcd"] => run(etcd::Cluster::start, |cluster| vec![cluster.url()]),
        ["mysql"] => run(mysql::Server::start, |server| vec![server.url()]),
        ["postgres"] => run(postgres::Server::start, |server| vec![server.url()]),
        ["redis"] => run(Server::start, |server| vec![server.url()]),
        ["cluster"] => run(|| Cluster::start(3, 0), Cluster::urls),
        ["sentinel"] => run(Sentinel::start, Sentinel::sentinel_addresses),
        ["zookeeper"] => run(zookeeper::Server::start, |server| vec![server.url()]),
        ["ensemble"] => run(|| zookeeper::Ensemble::start(3), |ensemble| vec![ensemble.url()]),
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("testbed: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run<T>(start: impl FnOnce() -> Result<T>, addresses: impl FnOnce(&T) -> Vec<String>) -> Result {
    let servers = start()?;
    for address in addresses(&servers) {
        println!("{address}");
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new()); // an input that cannot be read has ended
    Ok(())
}
