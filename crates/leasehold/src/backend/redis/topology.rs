//! Which servers there are, and which of them has a key: one, the master that sentinels name, or a cluster's.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo, RedisConnectionInfo,
    Value, cmd,
};

use crate::backend::redis::fault;
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

/// PEM texts for an encrypted connection. Certificates are always verified; without a CA, by the system's.
#[derive(Clone, Default)]
pub(in crate::backend) struct Tls {
    #[cfg(feature = "tls")]
    pub(in crate::backend) ca: Option<Vec<u8>>,
    #[cfg(feature = "tls")]
    pub(in crate::backend) identity: Option<(Vec<u8>, Vec<u8>)>,
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
        let mut connection = self.open(sentinel, &self.sentinel_login, 0, None).await?;
        let asked = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master).to_owned();
        let answer = connection.send_packed_command(&asked).await.map_err(|error| fault::of_request(&error))?;
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
        let mut connection = self.open(node, &self.login, 0, None).await?;
        let asked = cmd("CLUSTER").arg("SLOTS").to_owned();
        let answer = connection.send_packed_command(&asked).await.map_err(|error| fault::of_request(&error))?;
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
    pub(in crate::backend) async fn connect(&self, host: &Host, hear: Option<Hear>) -> Result<MultiplexedConnection> {
        self.open(host, &self.login, self.db, hear).await
    }

    async fn open(&self, host: &Host, login: &Login, db: i64, hear: Option<Hear>) -> Result<MultiplexedConnection> {
        let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_db(db);
        settings = settings.set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let client = self.client(host, settings).map_err(|error| fault::of_connecting(&error))?;
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            .set_response_timeout(Some(self.patience))
            .set_pipeline_buffer_size(PIPELINE_MAX);
        if let Some(hear) = hear {
            config = config.set_push_sender(move |push| {
                hear(push);
                Ok::<(), std::convert::Infallible>(())
            });
        }
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        connecting.await.map_err(|error| fault::of_connecting(&error))
    }

    fn client(&self, host: &Host, settings: RedisConnectionInfo) -> redis::RedisResult<Client> {
        let (name, port) = (host.name.clone(), host.port);
        let prepare = |address: ConnectionAddr| {
            let tcp = TcpSettings::default().set_nodelay(true);
            let info = address.into_connection_info()?;
            Ok::<_, redis::RedisError>(info.set_tcp_settings(tcp).set_redis_settings(settings))
        };
        match &self.tls {
            None => Client::open(prepare(ConnectionAddr::Tcp(name, port))?),
            #[cfg(feature = "tls")]
            Some(tls) => {
                let address = ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None };
                let client_tls = tls
                    .identity
                    .clone()
                    .map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
                let certificates = redis::TlsCertificates { client_tls, root_cert: tls.ca.clone() };
                Client::build_with_tls(prepare(address)?, certificates)
            }
            #[cfg(not(feature = "tls"))]
            Some(Tls {}) => unreachable!("an encrypted address is refused without the feature"),
        }
    }
}

/// What is done with messages that a server sends by itself.
pub(in crate::backend) type Hear = std::sync::Arc<dyn Fn(PushInfo) + Send + Sync>;

/// How many requests may be on their way to the socket before a further one waits.
const PIPELINE_MAX: usize = 512;

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
