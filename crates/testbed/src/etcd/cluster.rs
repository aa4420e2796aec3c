//! Several members that agree, or one that agrees with itself.

use std::sync::OnceLock;

use crate::etcd::Server;
use crate::{Failure, Result, Tls, tools, until};

/// How often other ports are tried.
const PORTS_MAX: usize = 10;

/// What a cluster is to be: by default of one member, which asks nobody who they are.
#[derive(Clone, Debug)]
pub struct Builder {
    members: usize,
    tls: Option<Tls>,
    flags: Vec<String>,
}

impl Builder {
    /// One more flag of each member, such as `--quota-backend-bytes=1000000`.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// How many members it has.
    #[must_use]
    pub fn members(mut self, members: usize) -> Self {
        self.members = members;
        self
    }

    /// Speaks TLS with its clients, with this certificate. Clients need none.
    #[must_use]
    pub fn tls(mut self, tls: &Tls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// Starts it, and returns when every member answers.
    pub fn start(&self) -> Result<Cluster> {
        tools::program("etcdctl")?;
        for _ in 0..PORTS_MAX {
            let servers =
                (0..self.members).map(|nth| Server::new(format!("m{nth}"), self.tls.clone(), self.flags.clone()));
            let cluster = Cluster { servers: servers.collect::<Result<_>>()?, tls: self.tls.is_some() };
            if cluster.servers.iter().all(Server::has_its_ports) {
                for server in &cluster.servers {
                    server.launch(&cluster.peers())?;
                }
                cluster.until_ready()?;
                return Ok(cluster);
            }
        }
        Err(Failure::new(format!("somebody was quicker to take the ports {PORTS_MAX} times")))
    }
}

/// An etcd cluster of its own, ended when dropped.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
    tls: bool,
}

impl Cluster {
    /// For a cluster of one member, or one that is different.
    #[must_use]
    pub fn builder() -> Builder {
        Builder { members: 1, tls: None, flags: Vec::new() }
    }

    /// Starts a single server.
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// The one server that all tests of this process share.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().unwrap_or_else(|failure| panic!("{failure}")))
    }

    /// The cluster of three that all tests of this process share.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn shared_three() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::builder().members(3).start().unwrap_or_else(|failure| panic!("{failure}")))
    }

    /// Its members.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// How a client reaches it, whichever of its members is up.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.servers.iter().map(Server::address).collect();
        format!("{}://{}", if self.tls { "etcds" } else { "etcd" }, addresses.join(","))
    }

    /// Which of its members leads.
    ///
    /// # Panics
    /// If none does for too long.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let mut leader = None;
        let found = until("a member leads", || {
            leader = self.servers.iter().position(Self::leads);
            leader.is_some()
        });
        found.unwrap_or_else(|failure| panic!("{failure}"));
        leader.expect("it was found")
    }

    fn leads(server: &Server) -> bool {
        // The columns: endpoint, id, version, size, whether it leads, …
        !server.has_ended()
            && server
                .try_cli(&["endpoint", "status", "--write-out", "simple"])
                .is_ok_and(|status| status.split(", ").nth(4) == Some("true"))
    }

    /// Starts a member again that was killed, with what it had on disk, and returns when it answers.
    pub fn restart(&self, nth: usize) -> Result {
        self.servers[nth].launch(&self.peers())?;
        self.until_answers(&self.servers[nth])
    }

    fn peers(&self) -> String {
        self.servers.iter().map(Server::peer).collect::<Vec<_>>().join(",")
    }

    fn until_ready(&self) -> Result {
        self.servers.iter().try_for_each(|server| self.until_answers(server))
    }

    fn until_answers(&self, server: &Server) -> Result {
        let mut ended = false;
        until("it answers", || {
            ended = server.has_ended();
            ended || server.try_cli(&["endpoint", "health"]).is_ok()
        })
        .map_err(|_| server.failure("does not answer"))?;
        if ended { Err(server.failure("ended at once")) } else { Ok(()) }
    }
}
