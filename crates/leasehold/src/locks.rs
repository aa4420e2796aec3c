//! The front door: a store, and the locks on it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "etcd")]
use crate::backend::etcd::{self, Etcd};
use crate::backend::memory::Memory;
#[cfg(feature = "mysql")]
use crate::backend::mysql::{self, MySql};
#[cfg(feature = "postgres")]
use crate::backend::postgres::{self, Postgres};
#[cfg(feature = "redis")]
use crate::backend::redis::{self, Redis};
#[cfg(feature = "redis")]
use crate::backend::redlock::{self, Redlock};
#[cfg(feature = "sqlite")]
use crate::backend::sqlite::Sqlite;
#[cfg(feature = "zookeeper")]
use crate::backend::zookeeper::{self, Zookeeper};
use crate::backend::{Backend, Capabilities, NOTE_BYTES_MAX, Note};
use crate::claim::Claim;
use crate::client::{Client, Settings};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Namespace;
use crate::lease::deadline;
use crate::lease::driver::Driver;
use crate::primitive::Access;
use crate::primitive::election::Election;
use crate::primitive::multi::AllOf;
use crate::primitive::mutex::Mutex;
use crate::primitive::reentrant::Reentrant;
use crate::primitive::rwlock::RwLock;
use crate::primitive::semaphore::Semaphore;

/// How long a lease lives without renewal unless told otherwise.
const TTL_DEFAULT: Duration = Duration::from_secs(30);

/// Locks on one store. Copies are cheap and share one keeper, which renews everything they hold.
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) client: Arc<Client>,
}

/// Opens the locks on the store that `url` names, with default settings.
///
/// ```
/// # pollster::block_on(async {
/// let locks = leasehold::connect("memory:").await?;
/// let guard = locks.mutex("billing/close")?.lock().await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this process's memory, reached through these locks only |
/// | `memory:NAME` | this process's memory, shared by all who use that name |
/// | `sqlite:` | a file of this user's, `$XDG_STATE_HOME/leasehold/leasehold.db` (feature `sqlite`) |
/// | `sqlite:PATH` | that file, shared by all processes of this machine that may write it (feature `sqlite`) |
/// | `mysql://user:password@HOST:3306/DATABASE` | tables of a MySQL or MariaDB database (feature `mysql`) |
/// | `postgres://user:password@HOST:5432/DATABASE` | tables of a PostgreSQL database (feature `postgres`) |
/// | `redis://user:password@HOST:6379/0` | a Redis server, shared by all machines that reach it (feature `redis`) |
/// | `redis+sentinel://HOST:26379,HOST/NAME` | the master that these sentinels know by that name (feature `redis`) |
/// | `redis+cluster://HOST:6379,HOST` | a Redis Cluster (feature `redis`) |
/// | `redlock://HOST:6379,HOST,HOST` | a majority of independent Redis servers (feature `redis`) |
/// | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…`, `redlocks://…` | the same, encrypted (feature `tls`) |
/// | `etcd://user:password@HOST:2379,HOST,HOST` | an etcd cluster (feature `etcd`); `etcds://…` is the same, encrypted (feature `tls`) |
/// | `zookeeper://user:password@HOST:2181,HOST,HOST/folder` | a ZooKeeper ensemble (feature `zookeeper`); `zookeepers://…` is the same, encrypted (feature `tls`) |
///
/// What a URL may ask for behind a `?` is told by the store's own builder, such as `backend::redis::Redis::builder`.
pub async fn connect(url: &str) -> Result<Locks> {
    Locks::builder(url).connect().await
}

impl Locks {
    /// Settings for the locks on the store that `url` names. See [`connect`] for the URLs.
    pub fn builder(url: &str) -> Builder {
        Builder::new(Store::Url(url.into()))
    }

    /// Settings for the locks on a store of your own.
    pub fn on(backend: impl Backend) -> Builder {
        Builder::new(Store::Backend(Arc::new(backend)))
    }

    /// A lock that one holder has at a time.
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Result<Mutex> {
        Ok(Mutex { access: self.exclusive(name)? })
    }

    /// A lock that many readers share or one writer has alone.
    pub fn rw_lock(&self, name: impl AsRef<[u8]>) -> Result<RwLock> {
        let exclusive = self.exclusive(name)?;
        let shared = Access::new(&self.client, exclusive.key().clone(), Claim::Shared)?;
        Ok(RwLock { shared, exclusive })
    }

    /// So many permits. Everybody who uses the key must name the same number.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Result<Semaphore> {
        Semaphore::new(&self.client, self.client.key(name)?, permits)
    }

    /// An office that one candidate holds at a time.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Result<Election> {
        Election::new(&self.client, self.client.key(name)?)
    }

    /// A mutex that its owner may take again while holding it.
    pub fn reentrant(&self, name: impl AsRef<[u8]>) -> Result<Reentrant> {
        Ok(Reentrant { access: self.exclusive(name)? })
    }

    /// Several mutexes that are taken together or not at all.
    pub fn all_of<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Result<AllOf> {
        AllOf::new(names.into_iter().map(|name| self.exclusive(name)).collect::<Result<_>>()?)
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.client.capabilities
    }

    /// How many leases are being renewed now, those of waiters included.
    pub fn leases_kept(&self) -> usize {
        self.client.kept()
    }

    /// What a child process has to inherit so that our locks are not handed over while it lives, should we die before it:
    /// keep it open until the child has started. `None` on stores where only the lease counts. The lease still bounds it:
    /// a child cannot renew.
    pub fn liveness(&self) -> Option<OwnedFd> {
        self.client.backend.liveness()
    }

    /// Takes no more locks, and waits until everything that was dropped or cancelled so far has left the store.
    ///
    /// A program that ends right after dropping a guard should call this: the departure is on its way in the background
    /// and would die with the process, leaving the lock taken until its lease runs out. Guards that are still held stay
    /// held and are renewed.
    ///
    /// ```
    /// # leasehold::doc_test(async |locks| {
    /// drop(locks.mutex("billing/close")?.lock().await?);
    /// locks.close().await;
    /// # assert!(locks.mutex("billing/close")?.lock().await.is_err());
    /// # Ok(()) });
    /// ```
    pub async fn close(&self) {
        self.client.close();
        self.client.parting.idle().await;
    }

    fn exclusive(&self, name: impl AsRef<[u8]>) -> Result<Access> {
        Access::new(&self.client, self.client.key(name)?, Claim::Exclusive)
    }
}

/// The store's name, without its secrets.
impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.client.store)
    }
}

/// Settings for [`Locks`].
///
/// ```
/// # pollster::block_on(async {
/// # use std::time::Duration;
/// use leasehold::Locks;
///
/// let locks = Locks::builder("memory:shop")
///     .namespace("shop")
///     .ttl(Duration::from_secs(10))
///     .label("worker-7")
///     .connect()
///     .await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "nothing happens until `connect`"]
pub struct Builder {
    store: Store,
    namespace: Option<String>,
    ttl: Duration,
    label: String,
    clock: Clock,
    seed: Option<u64>,
}

enum Store {
    Url(String),
    Backend(Arc<dyn Backend>),
}

// A URL may hold a password, so it is never shown.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(f, "{}:…", scheme(url).unwrap_or_default()),
            Self::Backend(backend) => write!(f, "{backend}"),
        }
    }
}

impl Builder {
    fn new(store: Store) -> Self {
        Self { store, namespace: None, ttl: TTL_DEFAULT, label: String::new(), clock: Clock::boot(), seed: None }
    }

    /// What stands before every name on the store, `lock` by default. It may be empty.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// How long a lock stays taken after its holder died, from one second to a day; 30 seconds by default. It is renewed
    /// every third of that while its holder lives.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Who we are, for whoever looks at the lock: at most [`NOTE_BYTES_MAX`] bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The clock that deadlines are counted on, [`Clock::boot`] by default. For tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes entry ids and jitter repeat themselves, so that a run can be replayed. For tests: ids can then be guessed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens the locks. Nothing is started if a setting is wrong.
    pub async fn connect(self) -> Result<Locks> {
        let ttl = deadline::checked_ttl(self.ttl)?;
        let namespace = self.namespace.as_deref().map_or_else(|| Ok(Namespace::default()), Namespace::new)?;
        if self.label.len() > NOTE_BYTES_MAX {
            let long = format!("has {} bytes, and {NOTE_BYTES_MAX} is the most", self.label.len());
            return Err(Error::option("label", long));
        }
        let store = match self.store {
            Store::Backend(backend) => Address::Backend(backend),
            Store::Url(url) => Address::parse(&url)?,
        };
        if ttl < deadline::TTL_COMFORTABLE {
            tracing::warn!(target: "leasehold", ?ttl, "a TTL this short is lost to a pause of a few seconds");
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into();
        let note = Note { owner: self.label.into(), host, pid: std::process::id(), value: None };
        let driver = Driver::start(self.clock)?;
        let backend = match store {
            Address::Backend(backend) => backend,
            Address::Memory(name) if name.is_empty() => Arc::new(Memory::new()),
            Address::Memory(name) => Arc::new(Memory::named(&name)),
            #[cfg(feature = "sqlite")]
            Address::Sqlite(path) => Arc::new(driver.open(move || Sqlite::open_named(&path)).await?),
            #[cfg(feature = "etcd")]
            Address::Etcd(builder) => Arc::new(builder.patience(deadline::attempt_limit(ttl)).connect().await?),
            #[cfg(feature = "mysql")]
            Address::MySql(builder) => Arc::new(builder.patience(deadline::attempt_limit(ttl)).connect().await?),
            #[cfg(feature = "postgres")]
            Address::Postgres(builder) => Arc::new(builder.patience(deadline::attempt_limit(ttl)).connect().await?),
            #[cfg(feature = "redis")]
            Address::Redis(builder) => Arc::new(builder.patience(deadline::attempt_limit(ttl)).connect().await?),
            #[cfg(feature = "redis")]
            Address::Redlock(builder) => {
                Arc::new(builder.grants(ttl)?.patience(deadline::attempt_limit(ttl)).connect().await?)
            }
            #[cfg(feature = "zookeeper")]
            Address::Zookeeper(builder) => {
                Arc::new(builder.session(ttl).patience(deadline::attempt_limit(ttl)).connect().await?)
            }
        };
        Ok(Locks { client: Client::start(driver, backend, Settings { namespace, note, ttl, seed: self.seed }) })
    }
}

/// What may be shown of a URL. `None` if what stands before its first colon is no scheme: it may be anything then.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    valid.then_some(scheme)
}

/// A store that can be opened, as far as its address goes.
enum Address {
    Backend(Arc<dyn Backend>),
    Memory(String),
    #[cfg(feature = "sqlite")]
    Sqlite(String),
    #[cfg(feature = "etcd")]
    Etcd(Box<etcd::Builder>),
    #[cfg(feature = "mysql")]
    MySql(Box<mysql::Builder>),
    #[cfg(feature = "postgres")]
    Postgres(Box<postgres::Builder>),
    #[cfg(feature = "redis")]
    Redis(Box<redis::Builder>),
    #[cfg(feature = "redis")]
    Redlock(Box<redlock::Builder>),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Box<zookeeper::Builder>),
}

impl Address {
    fn parse(url: &str) -> Result<Self> {
        let Some(scheme) = scheme(url) else {
            return Err(Error::option("url", "has no scheme; write \"memory:\" or \"sqlite:/path/to/file.db\""));
        };
        let unsupported = |why: String| Err(Error::new(ErrorKind::Unsupported, why));
        match (scheme, url[scheme.len() + 1..].to_owned()) {
            ("memory", name) => Ok(Self::Memory(name)),
            #[cfg(feature = "sqlite")]
            ("sqlite", path) => Ok(Self::Sqlite(path)),
            #[cfg(feature = "etcd")]
            ("etcd" | "etcds", _) => Ok(Self::Etcd(Box::new(Etcd::builder(url)?))),
            #[cfg(feature = "mysql")]
            ("mysql" | "mariadb", _) => Ok(Self::MySql(Box::new(MySql::builder(url)?))),
            #[cfg(feature = "postgres")]
            ("postgres" | "postgresql", _) => Ok(Self::Postgres(Box::new(Postgres::builder(url)?))),
            #[cfg(feature = "redis")]
            ("redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster" | "rediss+cluster", _) => {
                Ok(Self::Redis(Box::new(Redis::builder(url)?)))
            }
            #[cfg(feature = "redis")]
            ("redlock" | "redlocks", _) => Ok(Self::Redlock(Box::new(Redlock::builder(url)?))),
            #[cfg(feature = "zookeeper")]
            ("zookeeper" | "zookeepers", _) => Ok(Self::Zookeeper(Box::new(Zookeeper::builder(url)?))),
            #[cfg(not(feature = "sqlite"))]
            ("sqlite", _) => unsupported("this program was built without the feature \"sqlite\"".into()),
            _ => unsupported(format!(
                "no store is known by the scheme \"{scheme}:\"; there are \"memory:\" and \"sqlite:\""
            )),
        }
    }
}
