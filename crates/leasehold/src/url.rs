//! Addresses of stores on a network: `scheme://user:password@host:port,host:port/path?option=value`.
//!
//! Written by hand because lists of hosts are no URLs to the crates that parse those.

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::error::{Error, ErrorKind, Result};
use crate::key::Escaped;

/// The parts of an address. Its display form has no secrets.
#[derive(Clone)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) hosts: Vec<Host>,
    /// What follows the hosts, without its first slash.
    pub(crate) path: String,
    options: Vec<(String, String)>,
}

/// A server's name and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Url {
    /// Takes an address apart. Errors name a part of it and never show it: it may be a password in the wrong place.
    pub(crate) fn parse(url: &str, default_port: u16) -> Result<Self> {
        let invalid = |why: &str| Error::option("url", why);
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("has no \"://\" behind its scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The last `@`, so that one within a password that somebody forgot to encode does not cut it in two.
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (decoded(user, "user")?, decoded(password, "password")?),
            None => (None, None),
        };
        let hosts = hosts.split(',').map(|host| Host::parse(host, default_port)).collect::<Result<_>>()?;
        let mut options = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or_else(|| invalid("has an option without a \"=\""))?;
            options.push((name.to_owned(), decoded(value, "option")?.unwrap_or_default()));
        }
        let path = decoded(path, "path")?.unwrap_or_default();
        Ok(Self { scheme: scheme.into(), user, password, hosts, path, options })
    }

    /// Takes an option out, so that those left at the end are those that nobody knows.
    #[cfg(any(
        test,
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "tls",
        feature = "zookeeper"
    ))]
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<String>> {
        let Some(at) = self.options.iter().position(|(option, _)| option == name) else { return Ok(None) };
        let (_, value) = self.options.remove(at);
        if self.options.iter().any(|(option, _)| option == name) {
            return Err(Error::option(name, "is given twice in the URL"));
        }
        Ok(Some(value))
    }

    /// Takes an option out that has a number for its value.
    #[cfg(any(test, feature = "mysql", feature = "postgres", feature = "redis"))]
    pub(crate) fn take_number<N: std::str::FromStr>(&mut self, name: &str) -> Result<Option<N>> {
        let Some(value) = self.take(name)? else { return Ok(None) };
        value
            .parse()
            .map(Some)
            .map_err(|_| Error::option(name, format!("is {value:?}, which is not a number in its range")))
    }

    /// Refuses options that nobody took out.
    pub(crate) fn refuse_the_rest(&self, known: &[&str]) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => {
                let (name, known) = (Escaped(name.as_bytes()), known.join(", "));
                Err(Error::option("url", format!("has an unknown option \"{name}\"; there are {known}")))
            }
        }
    }
}

impl Host {
    fn parse(text: &str, default_port: u16) -> Result<Self> {
        let invalid = |why: &str| Error::option("url", why);
        // An IPv6 address stands in brackets, because it has colons of its own.
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, port) = rest.split_once(']').ok_or_else(|| invalid("has a \"[\" without a \"]\""))?;
                (name, port.strip_prefix(':'))
            }
            None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
        };
        if name.is_empty() {
            return Err(invalid("names no host"));
        }
        let port = match port {
            None => default_port,
            Some(port) => port.parse().map_err(|_| invalid("has a port that is no number from 0 to 65535"))?,
        };
        Ok(Self { name: name.into(), port })
    }
}

fn decoded(text: &str, part: &str) -> Result<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(Some(decoded.into_owned())),
        Err(_) => Err(Error::new(ErrorKind::InvalidOption, format!("url has a {part} that is not UTF-8 when decoded"))),
    }
}

/// `scheme://host:port,host:port/path`, without user, password and options.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", Escaped(self.scheme.as_bytes()))?;
        for (nth, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if nth == 0 { "" } else { "," })?;
        }
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", Escaped(self.path.as_bytes())) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Escaped(self.name.as_bytes());
        if self.name.contains(':') { write!(f, "[{name}]:{}", self.port) } else { write!(f, "{name}:{}", self.port) }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart_and_shown_without_its_secrets() {
        let mut url = Url::parse("rediss://al:p%40s%2Fs@[::1],h2:7/locks?replicas=2&ca=%2Fa.pem", 6379).unwrap();
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("al"), Some("p@s/s")));
        let hosts: Vec<String> = url.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["[::1]:6379", "h2:7"]);
        assert_eq!(url.take_number::<u32>("replicas").unwrap(), Some(2));
        assert_eq!(url.take("ca").unwrap().as_deref(), Some("/a.pem"));
        url.refuse_the_rest(&[]).unwrap();
        assert_eq!(url.to_string(), "rediss://[::1]:6379,h2:7/locks");
        assert_eq!(format!("{url:?}"), "\"rediss://[::1]:6379,h2:7/locks\"");
    }

    #[test]
    fn a_password_alone_needs_no_user_and_may_hold_an_at_sign() {
        let url = Url::parse("redis://:a@b@host", 1).unwrap();
        assert_eq!((url.user, url.password.as_deref()), (None, Some("a@b")));
        assert_eq!(url.hosts, [Host { name: "host".into(), port: 1 }]);
    }

    #[test]
    fn an_address_that_makes_no_sense_is_refused_without_being_shown() {
        for (url, why) in [
            ("redis:hunter2", "has no \"://\""),
            ("redis://", "names no host"),
            ("redis://a,,b", "names no host"),
            ("redis://:hunter2@", "names no host"),
            ("redis://a:hunter2", "port"),
            ("redis://[::1", "\"[\" without a \"]\""),
            ("redis://a/?hunter2", "without a \"=\""),
            ("redis://a:%ff@b", "password that is not UTF-8"),
        ] {
            let error = Url::parse(url, 1).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
        }
        let mut url = Url::parse("redis://a?x=hunter2&replicas=hunter2&replicas=1", 1).unwrap();
        assert!(url.take("replicas").unwrap_err().to_string().contains("replicas is given twice"));
        assert!(url.refuse_the_rest(&["ca"]).unwrap_err().to_string().contains("unknown option \"x\"; there are ca"));
    }
}
