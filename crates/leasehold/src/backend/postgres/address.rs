//! Which database a URL names, and what else it asks for.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use super::Postgres;
use super::schema::Schema;
use crate::backend::sql::spring::Layout;
use crate::backend::tls::Tls;
use crate::error::{Error, Result};
use crate::url::Url;

const PORT: u16 = 5432;

/// How long to wait for a connection or an answer unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// Commits of several connections reach the disk together, so that a few do for many tasks. More would take from others what
/// a server has to give: a hundred, by default.
const CONNECTIONS: usize = 4;
const CONNECTIONS_MAX: usize = 64;

const OPTIONS: [&str; 6] = ["schema", "connections", "sslmode", "ca", "cert", "key"];

/// Settings for a [`Postgres`] store.
#[derive(Debug)]
#[must_use = "nothing happens until `connect`"]
pub struct Builder {
    pub(super) name: String,
    pub(super) settings: Settings,
}

/// What connections are made with.
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) tls: Option<Tls>,
    pub(super) schema: Schema,
    /// How many connections at most carry requests. One more listens and renews.
    pub(super) connections: usize,
    /// How long a connection may take to be made, and a request to be answered, before the connection counts as broken.
    pub(super) patience: Duration,
}

impl Builder {
    pub(super) fn parse(url: &str) -> Result<Self> {
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {}
            _ => return Err(Error::option("url", "does not begin with postgres://")),
        }
        let mut url = Url::parse(url, PORT)?;
        let name = url.to_string();
        let schema = Schema::new(url.take("schema")?.as_deref(), Layout::of(&mut url)?)?;
        let connections = url.take_number("connections")?.unwrap_or(CONNECTIONS);
        let tls = Tls::of_sslmode(&mut url)?;
        url.refuse_the_rest(&[&OPTIONS[..], &Layout::OPTIONS].concat())?;
        let mut config = Config::new();
        for host in &url.hosts {
            config.host(&host.name).port(host.port);
        }
        if url.hosts.len() > 1 {
            // A standby cannot be written to; whichever of them is the primary now, it is the one.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if let Some(user) = &url.user {
            config.user(user);
        }
        if let Some(password) = &url.password {
            config.password(password);
        }
        if !url.path.is_empty() {
            config.dbname(&url.path);
        }
        config.application_name("leasehold");
        // Encrypted or not, as the URL says: nothing that somebody in between could talk us out of.
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        let settings = Settings { config, tls, schema, connections, patience: PATIENCE };
        Self { name, settings }.checked()
    }

    fn checked(self) -> Result<Self> {
        match self.settings.connections {
            1..=CONNECTIONS_MAX => Ok(self),
            other => Err(Error::option("connections", format!("is {other}, and must be from 1 to {CONNECTIONS_MAX}"))),
        }
    }

    /// The schema of the tables, as with `?schema=`. By default `leasehold`, or `leasehold_spring` in that layout.
    pub fn schema(mut self, schema: &str) -> Result<Self> {
        self.settings.schema = self.settings.schema.renamed(schema)?;
        Ok(self)
    }

    /// How a holder is written for other programs to see, as with `?layout=`.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.settings.schema.layout = layout;
        self
    }

    /// How many connections at most carry requests, 4 by default, as with `?connections=`. One more listens.
    pub fn connections(mut self, connections: usize) -> Result<Self> {
        self.settings.connections = connections;
        self.checked()
    }

    /// How long a connection may take to be made or a request to be answered before the connection is replaced; 5 seconds
    /// by default. Locks made from a URL wait for as long as they wait for any answer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Connects, and makes the tables if they are not there.
    pub async fn connect(self) -> Result<Postgres> {
        let name = self.name.clone().into();
        Postgres::open(self).await.map_err(|error| error.on(&name).while_doing("connecting"))
    }
}

// The configuration has the password.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_database_schema_and_connections_and_shows_no_password() {
        let url = "postgresql://al:hunter2@db-1,db-2:5433/shop?schema=locks&connections=7";
        let builder = Builder::parse(url).unwrap();
        assert_eq!(builder.name, "postgresql://db-1:5432,db-2:5433/shop");
        assert_eq!((builder.settings.connections, builder.settings.config.get_dbname()), (7, Some("shop")));
        assert_eq!(builder.settings.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert!(!format!("{builder:?}").contains("hunter2"));
    }

    #[test]
    fn an_address_that_makes_no_sense_is_refused() {
        for (url, why) in [
            ("postgres://h?schema=a;b", "schema"),
            ("postgres://h?schema=", "schema"),
            ("postgres://h?connections=0", "connections"),
            ("postgres://h?sslmode=prefer", "sslmode"),
            ("postgres://h?ca=/x", "ca"),
            ("postgres://h?region=A", "layout=spring"),
            ("postgres://h?port=1", "unknown option"),
        ] {
            let error = Builder::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
