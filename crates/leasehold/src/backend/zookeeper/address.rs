//! Which servers a URL names, and what else it asks for.

use std::time::Duration;

use crate::backend::tls::Tls;
use crate::backend::zookeeper::Zookeeper;
use crate::backend::zookeeper::names::{Layout, Paths};
use crate::backend::zookeeper::request::Rights;
use crate::backend::zookeeper::session::{Login, Servers};
use crate::error::{Error, Result};
use crate::url::Url;

const PORT: u16 = 2181;

/// How long to wait for a connection or an answer unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a session goes on without a sign of life until the first lock says how long.
const SESSION: Duration = Duration::from_secs(30);

const OPTIONS: [&str; 5] = ["layout", "acl", "ca", "cert", "key"];

/// Settings for a [`Zookeeper`] store.
#[derive(Debug)]
#[must_use = "nothing happens until `connect`"]
pub struct Builder {
    pub(super) name: String,
    pub(super) servers: Servers,
    pub(super) paths: Paths,
    pub(super) rights: Rights,
    pub(super) session: Duration,
}

impl Builder {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let encrypted = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("zookeeper") => false,
            Some("zookeepers") => true,
            _ => return Err(Error::option("url", "is neither zookeeper:// nor zookeepers://")),
        };
        let mut url = Url::parse(url, PORT)?;
        let name = url.to_string();
        let layout = match url.take("layout")?.as_deref() {
            None | Some("curator") => Layout::Curator,
            Some("curator-rw") => Layout::CuratorReadWrite,
            Some("kazoo") => Layout::Kazoo,
            Some(_) => return Err(Error::option("layout", "is none of \"curator\", \"curator-rw\" and \"kazoo\"")),
        };
        let login = match (&url.user, &url.password) {
            (Some(user), Some(password)) => Some(Login { user: user.clone(), password: password.clone() }),
            (None, None) => None,
            (Some(_), None) => return Err(Error::option("url", "names a user without a password")),
            (None, Some(_)) => return Err(Error::option("url", "has a password without a user")),
        };
        let rights = match (url.take("acl")?.as_deref(), &login) {
            (None, None) | (Some("open"), _) => Rights::Everybody,
            (None | Some("creator"), Some(_)) => Rights::OurUser,
            (Some("creator"), None) => return Err(Error::option("acl", "is for a user, and the URL names none")),
            (Some(_), _) => return Err(Error::option("acl", "is neither \"open\" nor \"creator\"")),
        };
        let tls = Tls::of(&mut url, encrypted, "zookeepers://")?;
        url.refuse_the_rest(&OPTIONS)?;
        let chroot = chroot(&url.path)?;
        let servers = Servers { hosts: url.hosts, login, tls, patience: PATIENCE };
        Ok(Self { name, servers, paths: Paths { chroot, layout }, rights, session: SESSION })
    }

    /// How nodes are named for other programs to see, as with `?layout=`.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.paths.layout = layout;
        self
    }

    /// How long the session may go without a sign of life before the servers end it, and with it every entry; 30 seconds by
    /// default. The first lock makes it its own TTL. Locks made from a URL begin with theirs.
    pub fn session(mut self, session: Duration) -> Self {
        self.session = session;
        self
    }

    /// How long a connection may take to be made or a request to be answered before another server is tried; 5 seconds by
    /// default. Locks made from a URL wait for as long as they wait for any answer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.servers.patience = patience;
        self
    }

    /// Connects to whichever server answers first.
    pub async fn connect(self) -> Result<Zookeeper> {
        let name = self.name.clone().into();
        Zookeeper::open(self).await.map_err(|error| error.on(&name).while_doing("connecting"))
    }
}

/// Empty, or with a slash before each part.
fn chroot(path: &str) -> Result<String> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(String::new());
    }
    let fits = |part: &str| {
        let odd = |c: char| c.is_control() || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}');
        !part.is_empty() && part != "." && part != ".." && !part.contains(odd)
    };
    if !path.split('/').all(fits) {
        return Err(Error::option("url", "has a path that is none to ZooKeeper"));
    }
    Ok(format!("/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_which_servers_where_and_how() {
        let builder = Builder::parse("zookeeper://al:p%40s@a,b:7,[::1]/app/locks?layout=kazoo").unwrap();
        let hosts: Vec<String> = builder.servers.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a:2181", "b:7", "[::1]:2181"]);
        assert_eq!((&*builder.paths.chroot, builder.paths.layout), ("/app/locks", Layout::Kazoo));
        assert_eq!(builder.rights, Rights::OurUser);
        assert_eq!(builder.name, "zookeeper://a:2181,b:7,[::1]:2181/app/locks");
        assert!(!format!("{builder:?}").contains("p@s"));
        assert_eq!(Builder::parse("zookeeper://al:b@a?acl=open").unwrap().rights, Rights::Everybody);
        assert_eq!(Builder::parse("zookeeper://a/").unwrap().paths.chroot, "");
    }

    #[test]
    fn a_url_that_makes_no_sense_is_refused_by_the_part_that_makes_none() {
        for (url, why) in [
            ("zk://a", "neither zookeeper:// nor zookeepers://"),
            ("zookeeper://al@a", "user without a password"),
            ("zookeeper://:b@a", "password without a user"),
            ("zookeeper://a?layout=x", "layout is none of"),
            ("zookeeper://a?acl=x", "acl is neither"),
            ("zookeeper://a?acl=creator", "acl is for a user"),
            ("zookeeper://a?ttl=5", "unknown option \"ttl\""),
            ("zookeeper://a/b//c", "path"),
            ("zookeeper://a/../c", "path"),
            ("zookeeper://a/%00", "path"),
        ] {
            let error = Builder::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
