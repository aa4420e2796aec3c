//! A Redis Cluster.

use std::sync::OnceLock;

use super::Server;
use crate::{PATIENCE, Result, process, until};

/// Nodes that share the sixteen thousand slots, with or without replicas, ended when dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

/// A master that is silent for so long is replaced by its replica, in milliseconds.
const NODE_TIMEOUT_MS: &str = "1000";

impl Cluster {
    /// Starts at least three masters with so many replicas each, and returns when every node serves every slot.
    pub fn start(masters: usize, replicas_each: usize) -> Result<Self> {
        let node = Server::builder()
            .setting("cluster-enabled", "yes")
            .setting("cluster-node-timeout", NODE_TIMEOUT_MS)
            .setting("repl-diskless-sync-delay", "0");
        let nodes = (0..masters * (1 + replicas_each)).map(|_| node.start()).collect::<Result<Vec<_>>>()?;
        let mut join = nodes[0].redis_cli();
        join.args(["--cluster", "create"]).args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
        join.args(["--cluster-replicas", &replicas_each.to_string(), "--cluster-yes"]);
        process::output(join, PATIENCE)?;
        let cluster = Self { nodes };
        for node in &cluster.nodes {
            until("every node of the cluster serves every slot", || cluster.is_whole_for(node))?;
        }
        Ok(cluster)
    }

    /// The one cluster that all tests of this process share: three masters without replicas. It ends with the process.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(3, 0).unwrap_or_else(|failure| panic!("{failure}")))
    }

    /// How a client reaches each node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The masters first, then the replicas.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// Kills a node.
    pub fn kill(&self, node: usize) {
        self.nodes[node].kill();
    }

    /// Whether the cluster is complete in the eyes of this node, and its data too if it is a replica.
    fn is_whole_for(&self, node: &Server) -> bool {
        let says = |info: &str, line: &str| info.lines().any(|it| it.trim_end() == line);
        let all_known = format!("cluster_known_nodes:{}", self.nodes.len());
        let cluster = node.cli(&["CLUSTER", "INFO"]);
        let replication = node.cli(&["INFO", "replication"]);
        says(&cluster, "cluster_state:ok")
            && says(&cluster, &all_known)
            && (says(&replication, "role:master") || says(&replication, "master_link_status:up"))
    }
}
