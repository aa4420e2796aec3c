//! One MariaDB server.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::daemon::{Daemon, Launched, on_a_free_port};
use crate::{Failure, PATIENCE, Result, Tls, folder, ports, process, tools, unprivileged};

/// The database that clients are led to.
const DATABASE: &str = "shop";

/// Whom everybody is let in as who comes from this machine.
const USER: &str = "locks";

/// For small servers, of which there may be many: the system has only so much room for asynchronous reads and writes.
const SMALL: [&str; 3] = ["--innodb-use-native-aio=0", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"];

/// A MariaDB server of its own, ended when dropped.
#[derive(Debug)]
pub struct Server {
    daemon: Daemon,
    plan: Builder,
}

/// What a server is to be. By default it asks for no password, and does not wait for the disk.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Vec<String>,
    password: Option<String>,
    tls: Option<Tls>,
    durable: bool,
}

impl Builder {
    /// An argument of the server, such as `("default-time-zone", "+05:30")`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push(format!("--{name}={value}"));
        self
    }

    /// Asks clients for this password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Speaks TLS with this certificate, and nothing else to clients.
    #[must_use]
    pub fn tls(mut self, tls: &Tls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// Whether a commit waits for the disk, as it does in earnest. A server that is killed forgets nothing either way.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Starts it, and returns when it answers.
    pub fn start(&self) -> Result<Server> {
        let server = on_a_free_port(|| {
            let folder = if self.durable { folder::make()? } else { folder::make_in_memory()? };
            unprivileged::give_folder(&folder)?;
            let server = Server { daemon: Daemon::new("mariadbd", ports::free()?, folder), plan: self.clone() };
            server.initialise()?;
            let launched = server.launch()?;
            Ok((server, launched))
        })?;
        let proof = self.password.as_ref().map(|password| format!(" IDENTIFIED BY '{password}'"));
        server.try_sql(&format!("CREATE DATABASE {DATABASE}"))?;
        server.try_sql(&format!("CREATE USER {USER}@'127.0.0.1'{}", proof.unwrap_or_default()))?;
        server.try_sql(&format!("GRANT ALL ON {DATABASE}.* TO {USER}@'127.0.0.1'"))?;
        Ok(server)
    }
}

impl Server {
    /// Starts a server that asks for no password.
    pub fn start() -> Result<Self> {
        Self::builder().start()
    }

    /// For a server that is different.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The one server that all tests of this process share, which tell themselves apart by their namespaces. It ends with
    /// the process.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().unwrap_or_else(|failure| panic!("{failure}")))
    }

    /// How a client reaches it, as a user who may do everything with one database.
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// How a client reaches it as that user, with the password of all.
    pub fn url_of(&self, user: &str) -> String {
        let password = self.plan.password.as_ref().map(|password| format!(":{password}")).unwrap_or_default();
        let options = match &self.plan.tls {
            Some(tls) => format!("?sslmode=verify-full&ca={}", tls.ca().display()),
            None => String::new(),
        };
        format!("mysql://{user}{password}@127.0.0.1:{}/{DATABASE}{options}", self.port())
    }

    /// Kills it if it runs, and starts it again on its port, with what it had on disk.
    pub fn restart(&self) -> Result {
        self.kill();
        self.came_back(&self.launch()?)
    }

    /// What the server answers to statements of a user who may do everything: a line for each row, tabs between columns.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(&format!("USE {DATABASE}; {statements}")).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn try_sql(&self, statements: &str) -> Result<String> {
        let mut command = process::tied(tools::program("mariadb")?);
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root", "--socket"]);
        command.arg(self.socket()).args(["-e", statements]);
        process::output(command, PATIENCE).map(|answer| answer.trim_end().to_owned())
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    fn scratch(&self) -> PathBuf {
        self.folder().join("scratch")
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }

    fn initialise(&self) -> Result {
        // One of its own: a server that starts removes what it finds in there, also what another is using.
        fs::create_dir(self.scratch()).map_err(Failure::during("cannot make the folder of a server"))?;
        unprivileged::give(&self.scratch())?;
        let mut command = unprivileged::tied(tools::program("mariadb-install-db")?);
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]).args(SMALL);
        command.arg(format!("--datadir={}", self.data().display()));
        command.arg(format!("--tmpdir={}", self.scratch().display())).current_dir(self.folder());
        process::output(command, PATIENCE).map(drop)
    }

    fn launch(&self) -> Result<Launched> {
        let mut command = unprivileged::tied(tools::program("mariadbd").or_else(|_| Ok(sbin("mariadbd")))?);
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=1000"]);
        command.args(SMALL).args(["--pid-file=pid", &format!("--port={}", self.port())]);
        command.arg(format!("--datadir={}", self.data().display()));
        command.arg(format!("--tmpdir={}", self.scratch().display()));
        command.arg(format!("--socket={}", self.socket().display()));
        if !self.plan.durable {
            command.args(["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"]);
        }
        if let Some(tls) = &self.plan.tls {
            for (name, file) in [("ssl-cert", tls.certificate()), ("ssl-key", tls.key()), ("ssl-ca", tls.ca())] {
                let own = self.folder().join(name);
                fs::copy(file, &own).map_err(Failure::during("cannot copy a certificate"))?;
                unprivileged::give(&own)?;
                command.arg(format!("--{name}={}", own.display()));
            }
        }
        command.args(&self.plan.settings);
        self.daemon.launch(command, || self.has_said("ready for connections"))
    }
}

impl Deref for Server {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// Where Debian puts servers, which is not on everybody's PATH.
fn sbin(name: &str) -> PathBuf {
    PathBuf::from("/usr/sbin").join(name)
}
