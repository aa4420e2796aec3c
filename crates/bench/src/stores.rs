//! The stores, each a server of our own on this machine.

mod etcd;
mod mysql;
mod postgres;
mod redis;
mod redlock;
mod sqlite;
mod zookeeper;

use futures_core::future::BoxFuture;

use crate::contender::Rival;
use crate::sample::Sample;
use crate::works::Plan;

/// A server that runs, and whoever can be measured on it beside us.
pub(crate) trait Store: Send + Sync {
    /// The name by which it is asked for.
    fn name(&self) -> &'static str;

    /// What runs there, and its version.
    fn server(&self) -> String;

    /// How we reach it.
    fn url(&self) -> String;

    /// The least that a lock can be made of, through the same client crate.
    fn bare(&self) -> BoxFuture<'_, Rival>;

    /// Others that need no more than the store's own client crate, or processes of their own.
    fn peers(&self) -> BoxFuture<'_, Vec<Rival>>;

    /// How many requests it has had so far, by its own count.
    fn requests(&self) -> Option<u64>;

    /// Returns when it has cleaned up behind what was measured before, so that this is not measured along with what comes next.
    fn rest(&self) {}

    /// How many can wait in one line and still be answered in time.
    fn waiters_max(&self) -> usize {
        usize::MAX
    }

    /// What can be measured on this one alone.
    fn more<'a>(&'a self, _plan: &'a Plan) -> BoxFuture<'a, Vec<Sample>> {
        Box::pin(async { Vec::new() })
    }
}

/// All that there are.
pub(crate) const NAMES: [&str; 7] = ["sqlite", "redis", "redlock", "etcd", "zookeeper", "postgres", "mysql"];

/// Starts one of them.
pub(crate) fn start(name: &str) -> Box<dyn Store> {
    match name {
        "sqlite" => Box::new(sqlite::Sqlite::start()),
        "redis" => Box::new(redis::Redis::start()),
        "redlock" => Box::new(redlock::Redlock::start()),
        "etcd" => Box::new(etcd::Etcd::start()),
        "zookeeper" => Box::new(zookeeper::Zookeeper::start()),
        "postgres" => Box::new(postgres::Postgres::start()),
        "mysql" => Box::new(mysql::Mysql::start()),
        other => unreachable!("{other:?} is none of the names"),
    }
}
