//! Which database a URL names, and what else it asks for.

use std::time::Duration;

use mysql_async::{Opts, OptsBuilder, SslOpts};

use super::MySql;
use super::schema::Prefix;
use crate::backend::sql::spring::Layout;
use crate::backend::tls::Tls;
use crate::error::{Error, Result};
use crate::url::Url;

const PORT: u16 = 3306;

/// How long to wait for a connection or an answer unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// Each connection has one request under way. Commits of several reach the disk together, so that a few do for many tasks.
const CONNECTIONS: usize = 8;
const CONNECTIONS_MAX: usize = 64;

/// The most that is asked or answered in one packet: what every server allows.
const PACKET_MAX: usize = 4 << 20;

/// What the server is told first, whatever its own settings are. A statement sees what was committed before it began, and locks no
/// gaps between keys; what is not a procedure commits by itself; and nobody waits for a row long after we have given up.
const GREETING: [&str; 2] = [
    "SET SESSION autocommit = 1, completion_type = 0, innodb_lock_wait_timeout = 5",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
];

const OPTIONS: [&str; 7] = ["prefix", "connections", "galera", "sslmode", "ca", "cert", "key"];

/// Settings for a [`MySql`] store.
#[derive(Debug)]
#[must_use = "nothing happens until `connect`"]
pub struct Builder {
    pub(super) name: String,
    pub(super) settings: Settings,
}

/// What connections are made with.
pub(super) struct Settings {
    pub(super) opts: Opts,
    pub(super) prefix: Prefix,
    pub(super) connections: usize,
    /// Whether a Galera cluster is accepted.
    pub(super) galera_accepted: bool,
    /// How long a connection may take to be made, and a request to be answered, before the connection counts as broken.
    pub(super) patience: Duration,
}

impl Builder {
    pub(super) fn parse(url: &str) -> Result<Self> {
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("mysql" | "mariadb") => {}
            _ => return Err(Error::option("url", "does not begin with mysql://")),
        }
        let mut url = Url::parse(url, PORT)?;
        let name = url.to_string();
        let prefix = Prefix::new(url.take("prefix")?.as_deref(), Layout::of(&mut url)?)?;
        let connections = url.take_number("connections")?.unwrap_or(CONNECTIONS);
        let galera_accepted = match url.take("galera")?.as_deref() {
            None => false,
            Some("accept") => true,
            Some(_) => return Err(Error::option("galera", "can only be \"accept\"")),
        };
        let tls = Tls::of_sslmode(&mut url)?;
        url.refuse_the_rest(&[&OPTIONS[..], &Layout::OPTIONS].concat())?;
        let [host] = &url.hosts[..] else {
            return Err(Error::option("url", "names several hosts, and one is asked"));
        };
        if url.path.is_empty() {
            return Err(Error::option("url", "names no database: write mysql://HOST/DATABASE"));
        }
        let opts = OptsBuilder::default()
            .ip_or_hostname(&host.name)
            .tcp_port(host.port)
            .user(url.user.clone())
            .pass(url.password.clone())
            .db_name(Some(&url.path))
            .prefer_socket(false)
            // So that it need not be asked for.
            .max_allowed_packet(Some(PACKET_MAX))
            .wait_timeout(Some(28_800))
            .init(GREETING.to_vec())
            .ssl_opts(tls.as_ref().map(encryption));
        let settings = Settings { opts: opts.into(), prefix, connections, galera_accepted, patience: PATIENCE };
        Self { name, settings }.checked()
    }

    fn checked(self) -> Result<Self> {
        match self.settings.connections {
            1..=CONNECTIONS_MAX => Ok(self),
            other => Err(Error::option("connections", format!("is {other}, and must be from 1 to {CONNECTIONS_MAX}"))),
        }
    }

    /// What the names of the tables begin with, as with `?prefix=`. By default `leasehold_`, or `leasehold_spring_` in that
    /// layout.
    pub fn prefix(mut self, prefix: &str) -> Result<Self> {
        self.settings.prefix = self.settings.prefix.renamed(prefix)?;
        Ok(self)
    }

    /// How a holder is written for other programs to see, as with `?layout=`.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.settings.prefix.layout = layout;
        self
    }

    /// How many connections there are at most, 8 by default, as with `?connections=`.
    pub fn connections(mut self, connections: usize) -> Result<Self> {
        self.settings.connections = connections;
        self.checked()
    }

    /// Accepts a Galera cluster, as with `?galera=accept`.
    pub fn accept_galera(mut self) -> Self {
        self.settings.galera_accepted = true;
        self
    }

    /// How long a connection may take to be made or a request to be answered before the connection is replaced; 5 seconds
    /// by default. Locks made from a URL wait for as long as they wait for any answer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Connects, and makes the tables if they are not there.
    pub async fn connect(self) -> Result<MySql> {
        let name = self.name.clone().into();
        MySql::open(self).await.map_err(|error| error.on(&name).while_doing("connecting"))
    }
}

/// As the client library wants it.
#[cfg(feature = "tls")]
fn encryption(tls: &Tls) -> SslOpts {
    use mysql_async::ClientIdentity;
    let roots: Vec<Vec<u8>> = match &tls.pem.ca {
        Some(pem) => vec![pem.clone()],
        None => rustls_native_certs::load_native_certs().certs.iter().map(|root| root.to_vec()).collect(),
    };
    let identity =
        tls.pem.identity.as_ref().map(|(cert, key)| ClientIdentity::new(cert.clone().into(), key.clone().into()));
    let options = SslOpts::default().with_disable_built_in_roots(true);
    options.with_root_certs(roots.into_iter().map(Into::into).collect()).with_client_identity(identity)
}

#[cfg(not(feature = "tls"))]
fn encryption(_tls: &Tls) -> SslOpts {
    unreachable!("an encrypted address is refused without the feature")
}

// The options have the password.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_database_prefix_and_connections_and_shows_no_password() {
        let builder = Builder::parse("mysql://al:hunter2@db-1:3307/shop?prefix=locks_&connections=7").unwrap();
        assert_eq!(builder.name, "mysql://db-1:3307/shop");
        assert_eq!((builder.settings.connections, builder.settings.opts.db_name()), (7, Some("shop")));
        assert!(!format!("{builder:?}").contains("hunter2"));
    }

    #[test]
    fn an_address_that_makes_no_sense_is_refused() {
        for (url, why) in [
            ("mysql://h", "names no database"),
            ("mysql://h,i/d", "several hosts"),
            ("mysql://h/d?prefix=a`b", "prefix"),
            ("mysql://h/d?connections=0", "connections"),
            ("mysql://h/d?galera=no", "galera"),
            ("mysql://h/d?sslmode=prefer", "sslmode"),
            ("mysql://h/d?region=A", "layout=spring"),
            ("mysql://h/d?port=1", "unknown option"),
        ] {
            let error = Builder::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
