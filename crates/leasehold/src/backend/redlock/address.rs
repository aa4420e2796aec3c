//! Which servers a URL names, and what else it asks for.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::io::IoThread;
use crate::backend::redis::topology::{Login, Servers, Topology};
use crate::backend::redlock::connection::Server;
use crate::backend::redlock::node::Node;
use crate::backend::redlock::ways::Neighbourhood;
use crate::backend::redlock::{LONGEST, PATIENCE, Redlock, Settings};
use crate::backend::tls::Tls;
use crate::error::{Error, Result};
use crate::lease::deadline;
use crate::url::Url;

const PORT: u16 = 6379;

const OPTIONS: [&str; 6] = ["longest", "blank", "eviction", "ca", "cert", "key"];

/// Settings for a [`Redlock`] store.
#[derive(Debug)]
#[must_use = "nothing happens until `connect`"]
pub struct Builder {
    name: String,
    servers: Vec<(crate::url::Host, Topology)>,
    longest: Duration,
    patience: Duration,
    blank_accepted: bool,
    eviction_accepted: bool,
}

impl Builder {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let encrypted = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("redlock") => false,
            Some("redlocks") => true,
            _ => return Err(Error::option("url", "is neither redlock:// nor redlocks://")),
        };
        let mut url = Url::parse(url, PORT)?;
        let name = url.to_string();
        let mut accepted = |name: &str| match url.take(name)?.as_deref() {
            None => Ok(false),
            Some("accept") => Ok(true),
            Some(_) => Err(Error::option(name, "can only be \"accept\"")),
        };
        let (blank_accepted, eviction_accepted) = (accepted("blank")?, accepted("eviction")?);
        let longest = url.take_number("longest")?.map_or(LONGEST, Duration::from_secs);
        let tls = Tls::of(&mut url, encrypted, "redlocks://")?;
        url.refuse_the_rest(&OPTIONS)?;
        let db = match &url.path[..] {
            "" => 0,
            number => number.parse().map_err(|_| Error::option("url", "has a database that is not a number"))?,
        };
        let login = Login { user: url.user.clone(), password: url.password.clone() };
        let servers = url.hosts.iter().map(|host| {
            let (servers, sentinel_login) = (Servers::One(host.clone()), Login::default());
            let topology =
                Topology { servers, login: login.clone(), sentinel_login, db, tls: tls.clone(), patience: PATIENCE };
            (host.clone(), topology)
        });
        let servers: Vec<_> = servers.collect();
        super::refuse_unless_odd(servers.len())?;
        Ok(Self { name, servers, longest, patience: PATIENCE, blank_accepted, eviction_accepted })
    }

    /// The longest lease, from one second to a day, as with `?longest=` in seconds; a minute by default. A server that has
    /// forgotten what it knew stays out for as long. All clients of a store must agree on it.
    pub fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Begins a store at once of which no server remembers anything, as with `?blank=accept`. Right for servers that have
    /// never been used for locks; wrong after all of them have lost their memory, when somebody may still hold one.
    pub fn accept_blank(mut self) -> Self {
        self.blank_accepted = true;
        self
    }

    /// Accepts servers that may throw locks out when their memory is full, as with `?eviction=accept`.
    pub fn accept_eviction(mut self) -> Self {
        self.eviction_accepted = true;
        self
    }

    /// How long a connection may take to be made or a request to be answered before it counts as unanswered; 5 seconds by
    /// default. Locks made from a URL wait for as long as they wait for any answer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Refuses leases that the store would not grant.
    pub(crate) fn grants(self, ttl: Duration) -> Result<Self> {
        let longest = self.longest;
        if ttl > longest {
            return Err(Error::option("ttl", format!("is {ttl:?}, and this store grants {longest:?}: see ?longest=")));
        }
        Ok(self)
    }

    /// Connects to a majority of the servers at least, refusing those on which locks could not be trusted.
    pub async fn connect(self) -> Result<Redlock> {
        let name: Arc<str> = self.name.clone().into();
        self.open().await.map_err(|error| error.on(&name).while_doing("connecting"))
    }

    async fn open(self) -> Result<Redlock> {
        let (longest, accept_blank) = (self.longest, self.blank_accepted);
        let longest = deadline::checked_ttl(longest)
            .map_err(|_| Error::option("longest", format!("is {longest:?}; it must be from 1 second to 24 hours")))?;
        let io = IoThread::start("leasehold-redlock")?;
        let settings = Settings { name: self.name.clone(), longest, accept_blank, ..Settings::default() };
        let mut store = io.run(Redlock::over(self.nodes(), settings)).await?;
        store.neighbourhood = Some(Neighbourhood::new(move || self.nodes()));
        store.io = Some(io);
        Ok(store)
    }

    /// The servers one by one, for tests of what each of them answers.
    #[doc(hidden)]
    pub fn nodes(&self) -> Vec<Arc<dyn Node>> {
        let nodes = self.servers.iter().map(|(host, topology)| {
            let topology = Topology { patience: self.patience, ..topology.clone() };
            Arc::new(Server::new(host.clone(), topology, self.eviction_accepted)) as Arc<dyn Node>
        });
        nodes.collect()
    }
}
