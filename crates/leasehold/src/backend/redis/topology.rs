//! Which servers there are, and which of them has a key: one, the master that sentinels name, or a cluster's.

use std::fmt;
use std::time::Duration;

use futures_util::future::join4;
use redis::{RedisResult, ServerErrorKind, Value};

use crate::backend::redis::command::Command;
use crate::backend::redis::fault;
use crate::backend::redis::pipe::{Hear, Pipe};
use crate::backend::socket;
use crate::backend::tls::Tls;
use crate::clock::{Clock, Timer};
use crate::error::{Error, ErrorKind, Result};
use crate::url::Host;

/// What connections are made with.
#[derive(Clone)]
pub(in crate::backend) struct Topology {
    pub(in crate::backend) servers: Servers,
    pub(in crate::backend) login: Login,
    /// For the sentinels themselves, which have users of their own.
    pub(in crate::backend) sentinel_login: Login,
    pub(in crate::backend) db: i64,
    pub(in crate::backend) tls: Option<Tls>,
    /// How long a connection may take to make, and a request to be answered, before the connection counts as broken.
    pub(in crate::backend) patience: Duration,
}

#[derive(Clone)]
pub(in crate::backend) enum Servers {
    One(Host),
    Sentinels { at: Vec<Host>, master: String },
    Cluster(Vec<Host>),
}

/// A user and a password, never shown.
#[derive(Clone, Default)]
pub(in crate::backend) struct Login {
    pub(in crate::backend) user: Option<String>,
    pub(in crate::backend) password: Option<String>,
}

/// Who has which keys, as far as we know.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// One server has them all.
    One(Host),
    /// The first slots of ranges, in order, and who has them up to the next.
    Slots(Vec<(u16, Host)>),
}

impl Route {
    pub(super) fn host(&self, slot: u16) -> &Host {
        match self {
            Self::One(host) => host,
            Self::Slots(ranges) => {
                let behind = ranges.partition_point(|(first, _)| *first <= slot);
                &ranges[behind.saturating_sub(1)].1
            }
        }
    }

    /// Every server that has keys, once.
    pub(super) fn hosts(&self) -> Vec<Host> {
        match self {
            Self::One(host) => vec![host.clone()],
            Self::Slots(ranges) => {
                let mut hosts: Vec<Host> = Vec::new();
                for (_, host) in ranges {
                    if !hosts.contains(host) {
                        hosts.push(host.clone());
                    }
                }
                hosts
            }
        }
    }
}

impl Topology {
    /// Asks who has which keys. One trip to a sentinel or to a node of a cluster; none with one server.
    pub(super) async fn route(&self) -> Result<Route> {
        // The first to answer is believed; if none does, it is said why the last did not.
        let mut failure = Error::new(ErrorKind::Unreachable, "no server is known");
        for host in self.seeds() {
            let answer = match &self.servers {
                Servers::One(host) => Ok(Route::One(host.clone())),
                Servers::Sentinels { master, .. } => self.ask_sentinel(host, master).await.map(Route::One),
                Servers::Cluster(_) => self.ask_node(host).await,
            };
            match answer {
                Ok(route) => return Ok(route),
                Err(error) => failure = error,
            }
        }
        // However it failed, it was a question, and nothing happened.
        Err(failure.with_no_effect())
    }

    /// The servers that can be asked for others.
    fn seeds(&self) -> &[Host] {
        match &self.servers {
            Servers::One(host) => std::slice::from_ref(host),
            Servers::Sentinels { at, .. } | Servers::Cluster(at) => at,
        }
    }

    async fn ask_sentinel(&self, sentinel: &Host, master: &str) -> Result<Host> {
        let connection = self.open(sentinel, &self.sentinel_login, 0, None).await?;
        let asked = Command::of(3).part(b"SENTINEL").part(b"GET-MASTER-ADDR-BY-NAME").part(master.as_bytes());
        let answer = connection.ask(&asked).await.map_err(|error| fault::of_request(&error))?;
        let address: Option<(String, u16)> =
            redis::from_redis_value(answer).map_err(|_| nonsense("a master's address"))?;
        match address {
            Some((name, port)) => Ok(Host { name, port }),
            None => {
                let unknown = format!("sentinel {sentinel} knows no master of the name \"{master}\"");
                Err(Error::new(ErrorKind::Unusable, unknown))
            }
        }
    }

    async fn ask_node(&self, node: &Host) -> Result<Route> {
        let connection = self.open(node, &self.login, 0, None).await?;
        let asked = Command::of(2).part(b"CLUSTER").part(b"SLOTS");
        let answer = connection.ask(&asked).await.map_err(|error| fault::of_request(&error))?;
        let ranges: Vec<Vec<Value>> = redis::from_redis_value(answer).map_err(|_| nonsense("its slots"))?;
        let mut slots = Vec::with_capacity(ranges.len());
        for range in ranges {
            let mut parts = range.into_iter();
            let (Some(first), Some(_last), Some(master)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(nonsense("a range of slots"));
            };
            let first: u16 = redis::from_redis_value(first).map_err(|_| nonsense("a slot"))?;
            slots.push((first, address(master, node)?));
        }
        slots.sort_by_key(|(first, _)| *first);
        if slots.is_empty() {
            return Err(Error::new(ErrorKind::Unreachable, format!("node {node} serves no slots yet")));
        }
        Ok(Route::Slots(slots))
    }
}

impl Topology {
    /// A new connection to one server, which lives on the runtime that this is called on.
    pub(in crate::backend) async fn connect(&self, host: &Host, hear: Option<Hear>) -> Result<Pipe> {
        self.open(host, &self.login, self.db, hear).await
    }

    async fn open(&self, host: &Host, login: &Login, db: i64, hear: Option<Hear>) -> Result<Pipe> {
        let timer = Timer::on_callers_runtime(Clock::boot());
        // Boxed, or whoever connects would carry all of it along.
        let opened = timer.within(self.patience, Box::pin(self.dial(host, login, db, hear))).await;
        opened
            .unwrap_or_else(|| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
            .map_err(|error| fault::of_connecting(&error))
    }

    /// Two trips and those of the encryption: one to connect, one to say who we are.
    async fn dial(&self, host: &Host, login: &Login, db: i64, hear: Option<Hear>) -> RedisResult<Pipe> {
        let pipe = Pipe::over(socket::connect(host, self.tls.as_ref()).await?, hear, self.patience);
        let hello = match &login.password {
            None => Command::of(2).part(b"HELLO").part(b"3"),
            Some(password) => {
                let user = login.user.as_deref().unwrap_or("default");
                let hello = Command::of(5).part(b"HELLO").part(b"3").part(b"AUTH");
                hello.part(user.as_bytes()).part(password.as_bytes())
            }
        };
        let select = Command::of(2).part(b"SELECT").part(db.to_string().as_bytes());
        let own = |what: &[u8], value: &[u8]| Command::of(4).part(b"CLIENT").part(b"SETINFO").part(what).part(value);
        let (named, versioned) =
            (own(b"LIB-NAME", b"leasehold"), own(b"LIB-VER", env!("CARGO_PKG_VERSION").as_bytes()));
        let (welcome, selected, ..) = join4(
            pipe.ask(&hello),
            async { if db == 0 { Ok(Value::Okay) } else { pipe.ask(&select).await } },
            // Servers before 7.2 do not know it, and nobody depends on it.
            pipe.ask(&named),
            pipe.ask(&versioned),
        )
        .await;
        welcome.map_err(|error| match error.kind() {
            // It does not know the command.
            redis::ErrorKind::Server(ServerErrorKind::ResponseError) => {
                (redis::ErrorKind::RESP3NotSupported, "HELLO is refused").into()
            }
            _ => error,
        })?;
        selected?;
        Ok(pipe)
    }
}

/// The address of a node, as another node tells it. One that does not know its own name has that of whom we asked.
fn address(node: Value, asked: &Host) -> Result<Host> {
    let parts: Vec<Value> = redis::from_redis_value(node).map_err(|_| nonsense("a node"))?;
    let mut parts = parts.into_iter();
    let (Some(name), Some(port)) = (parts.next(), parts.next()) else { return Err(nonsense("a node")) };
    let name: Option<String> = redis::from_redis_value(name).map_err(|_| nonsense("a node's name"))?;
    let port: u16 = redis::from_redis_value(port).map_err(|_| nonsense("a node's port"))?;
    let name = name.filter(|name| !name.is_empty() && name != "?").unwrap_or_else(|| asked.name.clone());
    Ok(Host { name, port })
}

fn nonsense(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("the server was asked for {what} and answered something else"))
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology").field("seeds", &self.seeds()).finish_non_exhaustive()
    }
}
