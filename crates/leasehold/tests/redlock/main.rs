//! The store on a majority of independent Redis servers, real ones with real faults, and beside the clients of others.

mod brief;
mod faults;
mod interop;
mod memory;
mod network;
mod rights;
mod secrets;
mod waiting;

use std::time::Duration;

use leasehold::Locks;
use leasehold::clock::{Clock, Timer};
use leasehold_testbed::redis::Server;
use leasehold_testbed::{PATIENCE, Proxy};

/// A lease that is renewed several times while a test runs.
const SHORT: Duration = Duration::from_secs(2);

/// Long enough that no lease runs out or is renewed while a test runs, so that what happens earlier has another reason.
const LONG: Duration = Duration::from_secs(600);

/// Servers of a test's own, each behind a proxy.
struct Quorum {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    longest: Duration,
}

impl Quorum {
    /// So many servers, of which none has been used before.
    fn of(servers: usize, longest: Duration) -> Self {
        let servers: Vec<Server> = (0..servers).map(|_| Server::start().unwrap()).collect();
        let proxies = servers.iter().map(|server| Proxy::start(("127.0.0.1", server.port())).unwrap()).collect();
        Self { servers, proxies, longest }
    }

    fn url(&self, options: &str) -> String {
        let hosts: Vec<String> = self.proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
        format!("redlock://{}?longest={}{options}", hosts.join(","), self.longest.as_secs())
    }

    /// A client, which begins at once if the servers have not been used before.
    async fn connect(&self, ttl: Duration) -> Locks {
        Locks::builder(&self.url("&blank=accept")).ttl(ttl).connect().await.unwrap()
    }

    /// On which servers something is stored at the lock's own key.
    fn holding(&self, name: &str) -> Vec<bool> {
        let key = format!("lock:{name}");
        self.servers.iter().map(|server| server.pid().is_some() && server.cli(&["EXISTS", &key]) == "1").collect()
    }
}

/// Puts all fences of a server there.
fn raise_fences(server: &Server, to: &str) {
    let members = server.cli(&["ZRANGE", "leasehold:redlock", "0", "-1"]);
    for fence in members.lines().filter(|member| member.starts_with('f')) {
        server.cli(&["ZADD", "leasehold:redlock", to, fence]);
    }
}

fn timer() -> Timer {
    Timer::on_callers_runtime(Clock::boot())
}

/// What comes of it, unless it takes longer than anything may take.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timer().within(PATIENCE, work).await.unwrap_or_else(|| panic!("waited in vain: {what}"))
}

/// Waits until it is so.
async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    soon(what, async {
        while !condition().await {
            timer().sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
