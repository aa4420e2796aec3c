//! A master with replicas, and sentinels that replace it.

use std::sync::OnceLock;

use super::Server;
use super::server::ADMIN;
use crate::{Failure, Result, until};

/// One master, two replicas and three sentinels, ended when dropped. Two sentinels must agree that a master is down.
#[derive(Debug)]
pub struct Sentinel {
    nodes: Vec<Server>,
    sentinels: Vec<Server>,
}

/// What the data nodes are to be.
#[derive(Clone, Debug, Default)]
pub struct SentinelBuilder {
    password: Option<String>,
}

const MASTER_NAME: &str = "leasehold";
const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// A master that is silent for so long is down.
const DOWN_AFTER_MS: u64 = 500;
/// Short, because whoever lost the vote waits twice as long before the next.
const FAILOVER_TIMEOUT_MS: u64 = 2_000;

impl SentinelBuilder {
    /// The password of the default user on the data nodes. The sentinels themselves ask for none.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Starts them, and returns when every sentinel knows every other and every replica.
    pub fn start(&self) -> Result<Sentinel> {
        let mut node = Server::builder().setting("repl-diskless-sync-delay", "0");
        if let Some(password) = &self.password {
            node = node.password(password);
        }
        let master = node.start()?;
        let replica = node.setting("replicaof", &format!("127.0.0.1 {}", master.port()));
        let mut nodes = vec![master];
        for _ in 0..REPLICAS {
            nodes.push(replica.start()?);
        }
        // A sentinel asks a master for its replicas at once, and then every ten seconds.
        let attached = format!("connected_slaves:{REPLICAS}");
        until("the replicas are attached to their master", || {
            let in_step =
                nodes[1..].iter().all(|it| it.cli(&["INFO", "replication"]).contains("master_link_status:up"));
            in_step && nodes[0].cli(&["INFO", "replication"]).contains(&attached)
        })?;

        let mut sentinel = Server::builder()
            .setting("sentinel monitor", &format!("{MASTER_NAME} 127.0.0.1 {} {QUORUM}", nodes[0].port()))
            .setting("sentinel down-after-milliseconds", &format!("{MASTER_NAME} {DOWN_AFTER_MS}"))
            .setting("sentinel failover-timeout", &format!("{MASTER_NAME} {FAILOVER_TIMEOUT_MS}"))
            .setting("sentinel parallel-syncs", &format!("{MASTER_NAME} {REPLICAS}"))
            .setting("sentinel auth-user", &format!("{MASTER_NAME} {ADMIN}"))
            .setting("sentinel auth-pass", &format!("{MASTER_NAME} {ADMIN}"));
        sentinel.is_sentinel = true;
        let sentinels = (0..SENTINELS).map(|_| sentinel.start()).collect::<Result<Vec<_>>>()?;
        for sentinel in &sentinels {
            until("every sentinel knows every other", || {
                let known = |what| field(&sentinel.cli(&["SENTINEL", "MASTER", MASTER_NAME]), what);
                known("num-slaves") == Some(REPLICAS) && known("num-other-sentinels") == Some(SENTINELS - 1)
            })?;
        }
        Ok(Sentinel { nodes, sentinels })
    }
}

impl Sentinel {
    /// Starts them without a password.
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// For others.
    #[must_use]
    pub fn builder() -> SentinelBuilder {
        SentinelBuilder::default()
    }

    /// The ones that all tests of this process share. They end with the process. A test that kills a master wants its own.
    ///
    /// # Panics
    /// If they cannot be started.
    #[track_caller]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Sentinel> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().unwrap_or_else(|failure| panic!("{failure}")))
    }

    /// What the sentinels call the master.
    pub fn master_name(&self) -> &'static str {
        MASTER_NAME
    }

    /// Host and port of each sentinel.
    pub fn sentinel_addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The first master and its replicas.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The port of the master, as the first sentinel has it that is alive.
    ///
    /// # Panics
    /// If none is.
    #[track_caller]
    pub fn master_port(&self) -> u16 {
        master_port_according_to(self.living_sentinels().next().expect("a sentinel is alive"))
    }

    /// The master, as the first sentinel has it that is alive.
    ///
    /// # Panics
    /// If none is.
    #[track_caller]
    pub fn master(&self) -> &Server {
        self.node(self.master_port())
    }

    /// Kills the master, and returns its port.
    pub fn kill_master(&self) -> u16 {
        let master = self.master();
        master.kill();
        master.port()
    }

    /// Returns the port of the new master, once every living sentinel names it in place of the old one and it
    /// agrees.
    pub fn wait_for_failover(&self, old: u16) -> Result<u16> {
        let mut new = old;
        until("the sentinels agree on another master", || {
            new = self.master_port();
            new != old
                && self.living_sentinels().all(|sentinel| master_port_according_to(sentinel) == new)
                && self.node(new).try_cli(&["ROLE"]).is_ok_and(|role| role.starts_with("master"))
        })
        .map_err(Failure::during(format!("the master on port {old} was not replaced")))?;
        Ok(new)
    }

    fn node(&self, port: u16) -> &Server {
        self.nodes.iter().find(|node| node.port() == port).expect("the sentinels watch these nodes")
    }

    fn living_sentinels(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.pid().is_some())
    }
}

fn master_port_according_to(sentinel: &Server) -> u16 {
    let answer = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]);
    let port = answer.lines().nth(1).and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("a sentinel names a host and a port, and not {answer:?}"))
}

/// A number of `SENTINEL MASTER`, which prints a name and its value on a line each.
fn field(answer: &str, name: &str) -> Option<usize> {
    let mut lines = answer.lines();
    lines.find(|line| *line == name)?;
    lines.next()?.parse().ok()
}
