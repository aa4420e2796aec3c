//! One PostgreSQL server.

use std::fmt::Write as _;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::Signal;

use crate::clock::WallClock;
use crate::daemon::{Daemon, Launched, on_a_free_port};
use crate::{Failure, PATIENCE, Result, Tls, folder, ports, process, tools, unprivileged};

/// Who may do everything.
const ADMIN: &str = "postgres";

/// A PostgreSQL server of its own, ended when dropped.
#[derive(Debug)]
pub struct Server {
    daemon: Daemon,
    plan: Builder,
    clock: Option<WallClock>,
}

/// What a server is to be. By default it trusts everybody who comes from this machine, and does not wait for the disk.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Vec<(String, String)>,
    password: Option<String>,
    tls: Option<Tls>,
    own_clock: bool,
    durable: bool,
}

impl Builder {
    /// A line of `postgresql.conf`, such as `("synchronous_commit", "off")`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Asks everybody but the testbed for a password; this is that of the user `postgres`.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Speaks TLS with this certificate, and nothing else to anybody but the testbed.
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

    /// Gives it a wall clock of its own, for [`Server::set_clock_ahead`].
    #[must_use]
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Starts it, and returns when it answers.
    pub fn start(&self) -> Result<Server> {
        let server = on_a_free_port(|| {
            let folder = if self.durable { folder::make()? } else { folder::make_in_memory()? };
            unprivileged::give_folder(&folder)?;
            let daemon = Daemon::new("postgres", ports::free()?, folder);
            let clock = self.own_clock.then(WallClock::new).transpose()?;
            let server = Server { daemon, plan: self.clone(), clock };
            server.initialise()?;
            let launched = server.launch()?;
            Ok((server, launched))
        })?;
        if let Some(password) = &self.password {
            server.sql(&format!("ALTER USER {ADMIN} PASSWORD '{password}'"));
        }
        Ok(server)
    }

    /// What is added to `postgresql.conf`.
    fn text(&self, port: u16, folder: &Path) -> String {
        let mut text = format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\nmax_connections = 1000\n\
             shared_buffers = 32MB\nlog_timezone = 'UTC'\ndynamic_shared_memory_type = mmap\n",
            folder.display()
        );
        if !self.durable {
            let _ = writeln!(text, "fsync = off\nfull_page_writes = off");
        }
        if self.tls.is_some() {
            let _ = writeln!(text, "ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server.key'");
        }
        for (name, value) in &self.settings {
            let _ = writeln!(text, "{name} = '{value}'");
        }
        text
    }

    /// `pg_hba.conf`: the testbed comes through the socket file.
    fn doors(&self) -> String {
        let kind = if self.tls.is_some() { "hostssl" } else { "host" };
        let proof = if self.password.is_some() { "scram-sha-256" } else { "trust" };
        format!("local all all trust\n{kind} all all 127.0.0.1/32 {proof}\n")
    }
}

impl Server {
    /// Starts a server that trusts everybody who comes from this machine.
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

    /// How a client reaches it as the user who may do everything.
    pub fn url(&self) -> String {
        self.url_of(ADMIN)
    }

    /// How a client reaches it as that user, with the password of all.
    pub fn url_of(&self, user: &str) -> String {
        let password = self.plan.password.as_ref().map(|password| format!(":{password}")).unwrap_or_default();
        let options = match &self.plan.tls {
            Some(tls) => format!("?sslmode=verify-full&ca={}", tls.ca().display()),
            None => String::new(),
        };
        format!("postgres://{user}{password}@127.0.0.1:{}/{ADMIN}{options}", self.port())
    }

    /// Sets its wall clock so many seconds ahead of the machine's, or behind it. It notices at once.
    ///
    /// # Panics
    /// If it has no clock of its own.
    #[track_caller]
    pub fn set_clock_ahead(&self, seconds: i64) {
        let clock = self.clock.as_ref().expect("the server was built with own_clock");
        clock.set_ahead(seconds * 1_000_000).unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Ends it as a crash would: nothing is written any more, and it has to recover when it comes back. Its children must be
    /// gone too, or it could not come back to its memory. They are, when it is.
    pub fn kill(&self) {
        let _ = self.end(Signal::QUIT); // one that does not end is killed
    }

    /// Ends it as a crash would if it runs, and starts it again on its port, with what it had on disk.
    pub fn restart(&self) -> Result {
        self.kill();
        self.came_back(&self.launch()?)
    }

    /// What the server answers to a statement of the user who may do everything: a line for each row, `|` between columns.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn sql(&self, statement: &str) -> String {
        self.try_sql(statement).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The same, or what the server complained of.
    pub fn try_sql(&self, statement: &str) -> Result<String> {
        let mut command = process::tied(program("psql")?);
        command.arg("-h").arg(self.folder()).args(["-p", &self.port().to_string(), "-U", ADMIN, "-X", "-q", "-At"]);
        command.args(["-v", "ON_ERROR_STOP=1", "-c", statement]);
        process::output(command, PATIENCE).map(|answer| answer.trim_end().to_owned())
    }

    /// How many statements it was asked to do since it started, if it was built with `("log_statement", "all")`.
    pub fn statements(&self) -> usize {
        self.statements_with("")
    }

    /// How many of them have those words in them.
    pub fn statements_with(&self, words: &str) -> usize {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let asked = |line: &&str| line.contains("LOG:  execute ") || line.contains("LOG:  statement: ");
        log.lines().filter(asked).filter(|line| line.contains(words)).count()
    }

    /// How many of them it knew by a name, and did not have to read again.
    pub fn statements_by_name(&self) -> usize {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().filter(|line| line.contains("LOG:  execute ") && !line.contains("execute <unnamed>")).count()
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    fn initialise(&self) -> Result {
        let folder = self.folder();
        let mut command = unprivileged::tied(program("initdb")?);
        command.arg("-D").arg(self.data()).args(["-U", ADMIN, "-A", "trust", "-N", "-E", "UTF8", "--locale", "C"]);
        command.current_dir(folder);
        process::output(command, PATIENCE)?;
        let failed = || Failure::during("cannot write the settings of a server");
        let settings = self.data().join("postgresql.conf");
        let before = fs::read_to_string(&settings).map_err(failed())?;
        fs::write(&settings, before + &self.plan.text(self.port(), folder)).map_err(failed())?;
        fs::write(self.data().join("pg_hba.conf"), self.plan.doors()).map_err(failed())?;
        if let Some(tls) = &self.plan.tls {
            for (from, to) in [(tls.certificate(), "server.pem"), (tls.key(), "server.key")] {
                let to = self.data().join(to);
                fs::copy(from, &to).map_err(failed())?;
                fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).map_err(failed())?;
                unprivileged::give(&to)?;
            }
        }
        Ok(())
    }

    fn launch(&self) -> Result<Launched> {
        let mut command = unprivileged::tied(program("postgres")?);
        command.arg("-D").arg(self.data());
        if let Some(clock) = &self.clock {
            clock.rule(&mut command);
        }
        self.daemon.launch(command, || self.pid().is_some_and(|pid| self.is_ready(pid)))
    }

    /// Its own word: the last line of the file in which it says who it is.
    fn is_ready(&self, pid: u32) -> bool {
        let said = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        said.lines().next() == Some(&pid.to_string()) && said.lines().last().is_some_and(|last| last.trim() == "ready")
    }
}

impl Deref for Server {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Debian keeps the programs of each version in a folder of its own, off the PATH.
fn program(name: &str) -> Result<PathBuf> {
    tools::program(name).or_else(|missing| {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let found = versions.map(|version| version.path().join("bin").join(name)).filter(|file| file.is_file()).max();
        found.ok_or(missing)
    })
}
