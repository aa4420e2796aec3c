//! Several ZooKeeper servers that decide together.

use std::sync::OnceLock;

use super::Server;
use crate::{Failure, Proxy, Result, ports, until};

/// How often other ports are tried.
const TRIES_MAX: usize = 5;

/// Servers of which a majority decides, ended when dropped.
///
/// Built so, each reaches the others through proxies of its own, and can be cut off from them while clients still reach it.
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<Server>,
    /// From each member to each other one, if there are any.
    links: Vec<Vec<Proxy>>,
}

impl Ensemble {
    /// Starts so many members, and returns when all of them serve.
    pub fn start(members: usize) -> Result<Self> {
        Self::start_linked(members, false)
    }

    /// The same, of members that can be [isolated](Self::isolate).
    pub fn start_isolable(members: usize) -> Result<Self> {
        Self::start_linked(members, true)
    }

    fn start_linked(members: usize, proxied: bool) -> Result<Self> {
        let mut failure = Failure::new("an ensemble has members");
        for _ in 0..TRIES_MAX {
            match Self::try_start(members, proxied) {
                Ok(ensemble) => return Ok(ensemble),
                Err(failed) => failure = failed, // somebody may have been quicker to take a port
            }
        }
        Err(failure)
    }

    /// The one ensemble of three that all tests of this process share. It ends with the process.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Ensemble> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(3).unwrap_or_else(|failure| panic!("{failure}")))
    }

    fn try_start(members: usize, proxied: bool) -> Result<Self> {
        let ports = (0..members).map(|_| Ok((ports::free()?, ports::free()?))).collect::<Result<Vec<_>>>()?;
        let (mut links, mut servers) = (Vec::new(), Vec::new());
        for own in 0..members {
            let mut builder = Server::builder();
            builder.number = Some(own + 1);
            let mut proxies = Vec::new();
            for (other, (peer, election)) in ports.iter().enumerate() {
                let address = if own == other || !proxied {
                    format!("127.0.0.1:{peer}:{election}")
                } else {
                    let to = |port: u16| Proxy::start(("127.0.0.1", port));
                    let (peer, election) = (to(*peer)?, to(*election)?);
                    let address = format!("127.0.0.1:{}:{}", peer.port(), election.port());
                    proxies.extend([peer, election]);
                    address
                };
                builder = builder.setting(&format!("server.{}", other + 1), &address);
            }
            links.push(proxies);
            servers.push(builder.prepare()?);
        }
        for server in &servers {
            server.launch()?;
        }
        let ensemble = Self { members: servers, links };
        for member in &ensemble.members {
            member.until_serving()?;
        }
        Ok(ensemble)
    }

    /// How a client of ours reaches all of them.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.members.iter().map(Server::address).collect();
        format!("zookeeper://{}", addresses.join(","))
    }

    /// The members.
    pub fn members(&self) -> &[Server] {
        &self.members
    }

    /// Which member leads; waits until one does.
    ///
    /// # Panics
    /// If none does for long.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let leading = || self.members.iter().position(Server::leads);
        until("a member leads", || leading().is_some()).unwrap_or_else(|failure| panic!("{failure}"));
        leading().expect("it leads")
    }

    /// Cuts a member that follows off from the others: whatever it and its leader send each other is swallowed. Clients still
    /// reach it. Not for a leader: members tell each other where to vote, past the proxies, and would elect it again.
    ///
    /// # Panics
    /// If it was not started so that this is possible.
    pub fn isolate(&self, member: usize) {
        assert!(!self.links[member].is_empty(), "it was started without proxies");
        for proxy in self.between(member) {
            proxy.blackhole();
        }
    }

    /// Lets a member speak with the others again.
    pub fn heal(&self, member: usize) {
        for proxy in self.between(member) {
            proxy.heal();
        }
    }

    /// The proxies of that member to the others, and of the others to it.
    fn between(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        let others = self.links.iter().enumerate().filter(move |(own, _)| *own != member);
        let to_it = others.filter(|(_, proxies)| !proxies.is_empty()).flat_map(move |(own, proxies)| {
            let nth = if member < own { member } else { member - 1 };
            proxies[nth * 2..nth * 2 + 2].iter()
        });
        self.links[member].iter().chain(to_it)
    }
}
