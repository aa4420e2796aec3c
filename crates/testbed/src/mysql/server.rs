//! One MariaDB server.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{self, Process};
use crate::{Failure, PATIENCE, Result, Tls, folder, ports, tools, unprivileged, until};

/// How often another port is tried.
const PORTS_MAX: usize = 10;

/// The database that clients are led to.
const DATABASE: &str = "shop";

/// Whom everybody is let in as who comes from this machine.
const USER: &str = "locks";

/// A MariaDB server of its own, ended when dropped.
#[derive(Debug)]
pub struct Server {
    process: Mutex<Option<Process>>, // dropped before the folder that it writes to
    port: u16,
    plan: Builder,
    folder: TempDir,
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
        for _ in 0..PORTS_MAX {
            let (port, folder) = (ports::free()?, folder::make()?);
            let server = Server { process: Mutex::default(), port, plan: self.clone(), folder };
            server.initialise()?;
            if matches!(server.launch()?, Launched::Ready) {
                let proof = self.password.as_ref().map(|password| format!(" IDENTIFIED BY '{password}'"));
                server.try_sql(&format!("CREATE DATABASE {DATABASE}"))?;
                server.try_sql(&format!("CREATE USER {USER}@'127.0.0.1'{}", proof.unwrap_or_default()))?;
                server.try_sql(&format!("GRANT ALL ON {DATABASE}.* TO {USER}@'127.0.0.1'"))?;
                return Ok(server);
            }
        }
        Err(Failure::new(format!("somebody was quicker to take each of {PORTS_MAX} ports")))
    }
}

/// What became of a server that was launched.
enum Launched {
    Ready,
    PortTaken,
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

    /// Where it listens; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
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
        format!("mysql://{user}{password}@127.0.0.1:{}/{DATABASE}{options}", self.port)
    }

    /// Kills it: it has no time to write or to say anything (SIGKILL).
    pub fn kill(&self) {
        self.process().take();
    }

    /// Stops it until [`cont`](Self::cont): it keeps its connections, and answers nobody (SIGSTOP).
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Panics
    /// If it does not run.
    #[track_caller]
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it if it runs, and starts it again on its port, with what it had on disk.
    pub fn restart(&self) -> Result {
        self.kill();
        match self.launch()? {
            Launched::Ready => Ok(()),
            Launched::PortTaken => Err(self.failure("found its port taken when it came back")),
        }
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
        self.folder.path().join("data")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn initialise(&self) -> Result {
        unprivileged::give_folder(&self.folder)?;
        let mut command = unprivileged::tied(tools::program("mariadb-install-db")?);
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.arg(format!("--datadir={}", self.data().display())).current_dir(self.folder.path());
        process::output(command, PATIENCE).map(drop)
    }

    fn launch(&self) -> Result<Launched> {
        let log = File::create(self.log()).map_err(Failure::during("cannot write the log of a server"))?;
        let errors = log.try_clone().map_err(Failure::during("cannot write the log of a server"))?;
        let mut command = unprivileged::tied(tools::program("mariadbd").or_else(|_| Ok(sbin("mariadbd")))?);
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=1000"]);
        command.args(["--innodb-buffer-pool-size=32M", "--pid-file=pid", &format!("--port={}", self.port)]);
        command.arg(format!("--datadir={}", self.data().display()));
        command.arg(format!("--socket={}", self.socket().display()));
        if !self.plan.durable {
            command.arg("--innodb-flush-log-at-trx-commit=2");
        }
        if let Some(tls) = &self.plan.tls {
            for (name, file) in [("ssl-cert", tls.certificate()), ("ssl-key", tls.key()), ("ssl-ca", tls.ca())] {
                let own = self.folder.path().join(name);
                fs::copy(file, &own).map_err(Failure::during("cannot copy a certificate"))?;
                unprivileged::give(&own)?;
                command.arg(format!("--{name}={}", own.display()));
            }
        }
        command.args(&self.plan.settings);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(log).stderr(errors);
        let mut process = Process::start(command)?;
        let mut ended = false;
        until("it answers", || {
            ended = process.ended().is_some();
            ended || self.is_ready()
        })
        .map_err(|_| self.failure("does not answer"))?;
        if !ended {
            *self.process() = Some(process);
            return Ok(Launched::Ready);
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        if log.contains("Address already in use") {
            Ok(Launched::PortTaken)
        } else {
            Err(self.failure("ended at once"))
        }
    }

    /// Its own word. The log is its own, and begins anew with each start.
    fn is_ready(&self) -> bool {
        fs::read_to_string(self.log()).is_ok_and(|log| log.contains("ready for connections"))
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn failure(&self, what: &str) -> Failure {
        Failure::new(format!("mariadbd on port {} {what}; its log ends:\n  {}", self.port, process::tail(&self.log())))
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        self.process().as_ref().expect("the server runs").signal(signal);
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where Debian puts servers, which is not on everybody's PATH.
fn sbin(name: &str) -> PathBuf {
    PathBuf::from("/usr/sbin").join(name)
}
