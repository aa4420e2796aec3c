//! Which servers a URL names, and what else it asks for.

use std::time::Duration;

use crate::backend::redis::Redis;
use crate::backend::redis::scripts::Layout;
use crate::backend::redis::topology::{Login, Servers, Topology};
use crate::backend::tls::Tls;
use crate::error::{Error, Result};
use crate::url::Url;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// How long to wait for a connection or an answer unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

const OPTIONS: [&str; 8] =
    ["replicas", "layout", "eviction", "ca", "cert", "key", "sentinel-user", "sentinel-password"];

/// Settings for a [`Redis`] store.
#[derive(Debug)]
#[must_use = "nothing happens until `connect`"]
pub struct Builder {
    pub(super) name: String,
    pub(super) topology: Topology,
    pub(super) layout: Layout,
    pub(super) replicas: u32,
    pub(super) eviction_accepted: bool,
}

impl Builder {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (base, encrypted) = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("redis" | "redis+sentinel" | "redis+cluster") => ("redis", false),
            Some("rediss" | "rediss+sentinel" | "rediss+cluster") => ("rediss", true),
            _ => return Err(Error::option("url", "is not one of redis://, redis+sentinel:// and redis+cluster://")),
        };
        let sentinels = url.starts_with(&format!("{base}+sentinel:"));
        let mut url = Url::parse(url, if sentinels { SENTINEL_PORT } else { PORT })?;
        let name = url.to_string();
        let layout = match url.take("layout")?.as_deref() {
            None | Some("canonical") => Layout::Canonical,
            Some("redisson") => Layout::Redisson,
            Some(_) => return Err(Error::option("layout", "is neither \"canonical\" nor \"redisson\"")),
        };
        let eviction_accepted = match url.take("eviction")?.as_deref() {
            None => false,
            Some("accept") => true,
            Some(_) => return Err(Error::option("eviction", "can only be \"accept\"")),
        };
        let replicas = url.take_number("replicas")?.unwrap_or(0);
        let sentinel_login = Login { user: url.take("sentinel-user")?, password: url.take("sentinel-password")? };
        let tls = Tls::of(&mut url, encrypted, "rediss://")?;
        url.refuse_the_rest(&OPTIONS)?;
        let (servers, db) = servers(&url, base)?;
        let login = Login { user: url.user.clone(), password: url.password.clone() };
        let topology = Topology { servers, login, sentinel_login, db, tls, patience: PATIENCE };
        Ok(Self { name, topology, layout, replicas, eviction_accepted })
    }

    /// How a holder is written for other programs to see, as with `?layout=`.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// How many replicas must confirm a grant before it is believed, as with `?replicas=`.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Accepts a server that may throw locks out when its memory is full, as with `?eviction=accept`.
    pub fn accept_eviction(mut self) -> Self {
        self.eviction_accepted = true;
        self
    }

    /// How long a connection may take to be made or a request to be answered before the connection is replaced; 5 seconds
    /// by default. Locks made from a URL wait for as long as they wait for any answer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.topology.patience = patience;
        self
    }

    /// Connects, refusing a server on which locks could not be trusted.
    pub async fn connect(self) -> Result<Redis> {
        let name = self.name.clone().into();
        Redis::open(self).await.map_err(|error| error.on(&name).while_doing("connecting"))
    }
}

fn servers(url: &Url, base: &str) -> Result<(Servers, i64)> {
    let database = |text: &str| match text {
        "" => Ok(0),
        number => number.parse().map_err(|_| Error::option("url", "has a database that is not a number")),
    };
    match url.scheme.strip_prefix(base) {
        Some("+sentinel") => {
            let (master, db) = url.path.split_once('/').unwrap_or((&url.path, ""));
            if master.is_empty() {
                return Err(Error::option("url", "names no master: write redis+sentinel://HOST,HOST/NAME"));
            }
            Ok((Servers::Sentinels { at: url.hosts.clone(), master: master.into() }, database(db)?))
        }
        Some("+cluster") => match database(&url.path)? {
            0 => Ok((Servers::Cluster(url.hosts.clone()), 0)),
            _ => Err(Error::option("url", "names a database, and a cluster has but one")),
        },
        _ => match &url.hosts[..] {
            [host] => Ok((Servers::One(host.clone()), database(&url.path)?)),
            _ => Err(Error::option("url", "names several hosts: are they redis+sentinel:// or redis+cluster://?")),
        },
    }
}
