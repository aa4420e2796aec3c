//! One Redis server.

use std::fmt::Write as _;
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;

use crate::clock::WallClock;
use crate::daemon::{Daemon, Launched, on_a_free_port};
use crate::{Failure, PATIENCE, Result, Tls, folder, ports, process, tools};

/// How the testbed itself is let in, whatever the test does to the other users.
pub(super) const ADMIN: &str = "testbed";

/// How long a new server is looked at before it is looked at again: it may be somebody else who listens there, and is silent.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// A Redis server of its own, ended when dropped.
#[derive(Debug)]
pub struct Server {
    daemon: Daemon,
    plan: Builder,
    clock: Option<WallClock>,
}

/// What a server is to be. By default it keeps nothing on disk, and asks for no password.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Vec<(String, String)>,
    password: Option<String>,
    persistent: bool,
    tls: Option<Tls>,
    own_clock: bool,
    pub(super) is_sentinel: bool,
}

impl Builder {
    /// A line of `redis.conf`, such as `("maxmemory", "3mb")`. The value is written as it is, quotes included.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The password of the default user.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// One more user: a line of its access list, such as `alice on >secret ~jobs:* &* +@all`.
    #[must_use]
    pub fn user(self, rules: &str) -> Self {
        self.setting("user", rules)
    }

    /// Speaks TLS with this certificate, and nothing else. Clients need none.
    #[must_use]
    pub fn tls(mut self, tls: &Tls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// Whether each write is on disk before it is answered, so that a server that was killed comes back with it.
    #[must_use]
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.persistent = persistent;
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
        tools::program("redis-cli")?;
        on_a_free_port(|| {
            let daemon = Daemon::new("redis-server", ports::free()?, folder::make()?);
            let clock = self.own_clock.then(WallClock::new).transpose()?;
            let server = Server { daemon, plan: self.clone(), clock };
            server.write_settings()?;
            let launched = server.launch()?;
            Ok((server, launched))
        })
    }

    /// `redis.conf`, for a server on this port in this folder.
    fn text(&self, port: u16, folder: &Path) -> String {
        let mut text =
            format!("bind 127.0.0.1\ndir {}\ndaemonize no\nuser {ADMIN} on >{ADMIN} ~* &* +@all\n", folder.display());
        if !self.is_sentinel {
            // Replicas log in to their master as the testbed does, so that its password is free to change.
            let _ = writeln!(text, "masteruser {ADMIN}\nmasterauth {ADMIN}\nsave \"\"");
            let persistence = if self.persistent { "appendonly yes\nappendfsync always" } else { "appendonly no" };
            let _ = writeln!(text, "{persistence}");
        }
        match &self.tls {
            None => {
                let _ = writeln!(text, "port {port}");
            }
            Some(tls) => {
                let _ = writeln!(text, "port 0\ntls-port {port}\ntls-auth-clients no\ntls-replication yes");
                let _ = writeln!(text, "tls-ca-cert-file {}", tls.ca().display());
                let _ = writeln!(text, "tls-cert-file {}", tls.certificate().display());
                let _ = writeln!(text, "tls-key-file {}", tls.key().display());
            }
        }
        if let Some(password) = &self.password {
            let _ = writeln!(text, "requirepass \"{password}\"");
        }
        for (name, value) in &self.settings {
            let _ = writeln!(text, "{name} {value}");
        }
        text
    }
}

impl Server {
    /// Starts a server that keeps nothing on disk and asks for no password.
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

    /// How a client reaches it as the default user.
    pub fn url(&self) -> String {
        let login = self.plan.password.as_ref().map(|password| format!("default:{}@", percent_encoded(password)));
        let scheme = if self.plan.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}127.0.0.1:{}", login.unwrap_or_default(), self.port())
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

    /// Asks it to end, and returns when it has.
    pub fn shutdown(&self) -> Result {
        self.end(Signal::TERM)
    }

    /// Kills it if it runs, and starts it again on its port, with what it had on disk.
    pub fn restart(&self) -> Result {
        self.kill();
        self.came_back(&self.launch()?)
    }

    /// Kills it if it runs, removes what it had on disk, and starts it again on its port.
    pub fn restart_empty(&self) -> Result {
        self.kill();
        let emptied = fs::remove_dir_all(self.folder()).and_then(|()| fs::create_dir(self.folder()));
        emptied.map_err(Failure::during("cannot empty the folder of a server"))?;
        self.write_settings()?;
        self.restart()
    }

    /// What `redis-cli` prints for a command, sent by a user who may do everything. An error of the server is its text.
    ///
    /// # Panics
    /// If there is no answer.
    #[track_caller]
    pub fn cli(&self, words: &[&str]) -> String {
        self.try_cli(words).unwrap_or_else(|failure| panic!("{failure}"))
    }

    pub(super) fn try_cli(&self, words: &[&str]) -> Result<String> {
        self.cli_within(PATIENCE, words)
    }

    fn cli_within(&self, limit: Duration, words: &[&str]) -> Result<String> {
        let mut command = self.redis_cli();
        command.args(words);
        process::output(command, limit).map(|answer| answer.trim_end().to_owned())
    }

    /// `redis-cli`, logged in.
    pub(super) fn redis_cli(&self) -> Command {
        let mut command = process::tied("redis-cli");
        command.env("REDISCLI_AUTH", ADMIN).args(["-h", "127.0.0.1", "--user", ADMIN, "-p"]);
        command.arg(self.port().to_string());
        if let Some(tls) = &self.plan.tls {
            command.arg("--tls").arg("--cacert").arg(tls.ca());
            command.arg("--cert").arg(tls.certificate()).arg("--key").arg(tls.key());
        }
        command
    }

    fn write_settings(&self) -> Result {
        let text = self.plan.text(self.port(), self.folder());
        fs::write(self.folder().join("redis.conf"), text).map_err(Failure::during("cannot write redis.conf"))
    }

    fn launch(&self) -> Result<Launched> {
        let mut command = process::tied(tools::program("redis-server")?);
        command.arg(self.folder().join("redis.conf")).args(self.plan.is_sentinel.then_some("--sentinel"));
        if let Some(clock) = &self.clock {
            clock.rule(&mut command);
        }
        self.daemon.launch(command, || self.pid().is_some_and(|pid| self.is_answered_by(pid)))
    }

    /// Whether it is this process that answers, and not another on its port; and whether it has loaded its data.
    fn is_answered_by(&self, pid: u32) -> bool {
        let its_number = format!("process_id:{pid}");
        self.cli_within(LOOK_MAX, &["INFO"])
            .is_ok_and(|info| info.lines().any(|line| line.trim_end() == its_number) && !info.contains("loading:1"))
    }
}

impl Deref for Server {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// As the password of an URL.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
