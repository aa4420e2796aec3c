//! One ZooKeeper server.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use super::warming;
use crate::daemon::{Daemon, Launched, on_a_free_port};
use crate::{Failure, Result, Tls, folder, ports, process, until};

/// Where Debian puts it. Its manifest names everything else that it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// What it also needs: to write a log, and to speak TLS.
const BESIDE: [&str; 4] = ["slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common"];

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// Sessions are looked after once in a tick, so that one ends at most so much later than it should.
const TICK_MS: u32 = 200;

/// How long one answer of a server that is being started may take.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// A ZooKeeper server of its own, ended when dropped.
#[derive(Debug)]
pub struct Server {
    daemon: Daemon,
    plan: Builder,
}

/// What a server is to be.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Vec<(String, String)>,
    properties: Vec<(String, String)>,
    tls: Option<Tls>,
    /// Which member of an ensemble it is.
    pub(super) number: Option<usize>,
    /// A port that is known before it starts.
    pub(super) port: Option<u16>,
}

impl Builder {
    /// A line of `zoo.cfg`, such as `("maxSessionTimeout", "40000")`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A property of its Java machine, such as `("zookeeper.skipACL", "yes")`.
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Speaks TLS with this certificate, and nothing else. Clients need none.
    #[must_use]
    pub fn tls(mut self, tls: &Tls) -> Self {
        self.tls = Some(tls.clone());
        self
    }

    /// Starts it, and returns when it answers.
    pub fn start(&self) -> Result<Server> {
        let server = on_a_free_port(|| {
            let server = self.prepare()?;
            let launched = server.launch()?;
            Ok((server, launched))
        })?;
        server.until_serving()?;
        Ok(server)
    }

    /// Writes down what it is to be.
    pub(super) fn prepare(&self) -> Result<Server> {
        let port = self.port.map_or_else(ports::free, Ok)?;
        let server = Server { daemon: Daemon::new("zookeeper", port, folder::make()?), plan: self.clone() };
        let written = fs::write(server.folder().join("zoo.cfg"), self.text(port, server.folder()))
            .and_then(|()| fs::create_dir(server.folder().join("data")))
            .and_then(|()| match self.number {
                Some(number) => fs::write(server.folder().join("data/myid"), number.to_string()),
                None => Ok(()),
            });
        written.map_err(Failure::during("cannot write the settings of a server"))?;
        Ok(server)
    }

    fn text(&self, port: u16, folder: &Path) -> String {
        let mut text = format!(
            "tickTime={TICK_MS}\ninitLimit=150\nsyncLimit=25\ndataDir={}\n\
             maxClientCnxns=0\nmaxSessionTimeout=86400000\nadmin.enableServer=false\n4lw.commands.whitelist=*\n",
            folder.join("data").display()
        );
        match &self.tls {
            None => {
                let _ = writeln!(text, "clientPort={port}\nclientPortAddress=127.0.0.1");
            }
            Some(tls) => {
                let store = folder.join("server.pem");
                let _ = writeln!(text, "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1");
                let _ = writeln!(text, "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory");
                let _ = writeln!(text, "ssl.keyStore.location={}\nssl.keyStore.type=PEM", store.display());
                let _ = writeln!(text, "ssl.trustStore.location={}\nssl.trustStore.type=PEM", tls.ca().display());
                let _ = writeln!(text, "ssl.clientAuth=none");
            }
        }
        for (name, value) in &self.settings {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }
}

impl Server {
    /// Starts a server.
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

    /// Its address, as clients name it: `127.0.0.1:2181`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// How a client of ours reaches it.
    pub fn url(&self) -> String {
        let scheme = if self.plan.tls.is_some() { "zookeepers" } else { "zookeeper" };
        format!("{scheme}://{}", self.address())
    }

    /// Kills it if it runs, and starts it again on its port, with what it had on disk.
    pub fn restart(&self) -> Result {
        self.kill();
        self.came_back(&self.launch()?)?;
        self.until_serving()
    }

    /// What it says to one of its four-letter commands, such as `srvr`. Nothing if it cannot be reached.
    pub fn asked(&self, command: &str) -> String {
        let answer = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()))?;
            stream.set_read_timeout(Some(LOOK_MAX))?;
            stream.write_all(command.as_bytes())?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        answer().unwrap_or_default()
    }

    /// Whether it leads an ensemble.
    pub fn leads(&self) -> bool {
        self.asked("srvr").contains("Mode: leader")
    }

    pub(super) fn until_serving(&self) -> Result {
        until("it serves", || self.serves() || self.has_ended()).map_err(|_| self.failure("does not serve"))?;
        if self.has_ended() {
            return Err(self.failure("ended at once"));
        }
        if self.plan.tls.is_none() {
            let _ = warming::warm_up(self.port()); // one that has other things to do for now is warm enough
        }
        Ok(())
    }

    /// Whether it serves clients. One that speaks TLS alone is known by its log.
    fn serves(&self) -> bool {
        match self.plan.tls {
            None => self.asked("srvr").contains("Mode: "),
            Some(_) => TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).is_ok(),
        }
    }

    /// Starts its process. A member of an ensemble serves when there are enough of them.
    pub(super) fn launch(&self) -> Result<Launched> {
        if let Some(tls) = &self.plan.tls {
            self.write_key_store(tls)?;
        }
        let mut command = java()?;
        // What is written need not outlive the machine, and a small machine starts many of them.
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]);
        command.args(["-Dzookeeper.preAllocSize=1024", "-Dzookeeper.extendedTypesEnabled=true"]);
        command.args(self.plan.properties.iter().map(|(name, value)| format!("-D{name}={value}")));
        let jars = BESIDE.map(|jar| format!(":/usr/share/java/{jar}.jar")).concat();
        command.args(["-cp", &format!("{JAR}{jars}")]);
        command.arg(MAIN).arg(self.folder().join("zoo.cfg"));
        let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).is_ok() || self.plan.number.is_some();
        self.daemon.launch(command, listens)
    }

    /// It wants the key and the certificate in one file.
    fn write_key_store(&self, tls: &Tls) -> Result {
        let both = [tls.key(), tls.certificate()].iter().map(fs::read_to_string).collect::<std::io::Result<String>>();
        both.and_then(|pem| fs::write(self.folder().join("server.pem"), pem))
            .map_err(Failure::during("cannot write the certificate of a server"))
    }
}

impl Deref for Server {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// Java, if it and ZooKeeper are there.
fn java() -> Result<Command> {
    if !Path::new(JAR).is_file() {
        return Err(Failure::new("zookeeper is missing; `cargo xtask setup` installs it"));
    }
    Ok(process::tied(crate::tools::program("java")?))
}
