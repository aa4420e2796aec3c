//! Which servers a URL names, and what else it asks for.

use std::time::Duration;

use crate::backend::etcd::Etcd;
use crate::backend::etcd::wire::Settings;
use crate::backend::tls::Tls;
use crate::error::{Error, Result};
use crate::url::Url;

const PORT: u16 = 2379;

/// How long to wait for a connection or an answer unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

const OPTIONS: [&str; 3] = ["ca", "cert", "key"];

/// Settings for an [`Etcd`] store.
#[derive(Debug)]
#[must_use = "nothing happens until `connect`"]
pub struct Builder {
    pub(super) name: String,
    pub(super) settings: Settings,
}

impl Builder {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let encrypted = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("etcd") => false,
            Some("etcds") => true,
            _ => return Err(Error::option("url", "is neither etcd:// nor etcds://")),
        };
        let mut url = Url::parse(url, PORT)?;
        let name = url.to_string();
        let tls = Tls::of(&mut url, encrypted, "etcds://")?.map(|tls| tls.speaking(b"h2"));
        url.refuse_the_rest(&OPTIONS)?;
        if !url.path.is_empty() {
            return Err(Error::option("url", "has a path; what stands before every name is the namespace"));
        }
        let login = match (url.user, url.password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            _ => return Err(Error::option("url", "names a user without a password, or a password without a user")),
        };
        let settings = Settings { hosts: url.hosts, login, tls, patience: PATIENCE };
        Ok(Self { name, settings })
    }

    /// How long a connection may take to be made or a request to be answered before the next server is tried; 5 seconds by
    /// default. Locks made from a URL wait for as long as they wait for any answer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// Connects to the first server that answers.
    pub async fn connect(self) -> Result<Etcd> {
        let name = self.name.clone().into();
        Etcd::open(self).await.map_err(|error| error.on(&name).while_doing("connecting"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_servers_a_user_and_nothing_that_is_shown() {
        let builder = Builder::parse("etcd://al:hunter2@h1,h2:7").unwrap();
        assert_eq!(builder.name, "etcd://h1:2379,h2:7");
        assert_eq!(builder.settings.login, Some(("al".into(), "hunter2".into())));
        assert!(!format!("{builder:?}").contains("hunter2"));
    }

    #[test]
    fn an_address_that_would_be_half_applied_is_refused() {
        for (url, why) in [
            ("etcd://al@h", "a user without a password"),
            ("etcd://:hunter2@h", "a password without a user"),
            ("etcd://h/lock", "the namespace"),
            ("etcd://h?x=1", "unknown option"),
            ("http://h", "neither etcd:// nor etcds://"),
        ] {
            let error = Builder::parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_file_for_an_encryption_that_was_not_asked_for_is_refused() {
        assert!(Builder::parse("etcd://h?ca=/x").unwrap_err().to_string().contains("write etcds://"));
        assert!(Builder::parse("etcds://h?cert=/dev/null").unwrap_err().to_string().contains("without its key"));
    }
}
