//! Our figures beside those of the bare store and of other lock crates.

mod distributed_lock;
mod rslock;
mod zookeeper_client;

use std::process::ExitCode;

use futures_core::future::BoxFuture;
use leasehold_bench::Rival;

/// As many workers as `#[tokio::main]` starts on a small machine, so that nobody is measured on a runtime of its own.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    leasehold_bench::run(peers).await
}

/// The others on that store. One server, or several, are in our URL.
fn peers(store: &str, url: &str) -> BoxFuture<'static, Vec<Rival>> {
    let address = url.split("://").nth(1).unwrap_or(url);
    let hosts: Vec<String> = address.split(['/', '?']).next().unwrap_or(address).split(',').map(str::to_owned).collect();
    let store = store.to_owned();
    Box::pin(async move {
        match store.as_str() {
            "redis" | "redlock" => {
                let urls: Vec<String> = hosts.iter().map(|host| format!("redis://{host}")).collect();
                vec![rslock::rival(urls.clone()).await, distributed_lock::rival(urls).await]
            }
            "zookeeper" => vec![zookeeper_client::rival(hosts.join(",")).await],
            _ => Vec::new(),
        }
    })
}
