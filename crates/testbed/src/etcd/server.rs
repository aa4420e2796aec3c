//! One member of an etcd cluster, and the programs that ask it things.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Deref;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use rustix::process::Signal;

use crate::daemon::Daemon;
use crate::process::{self, Process};
use crate::{PATIENCE, Result, Tls, folder, ports, tools};

/// Short enough for tests that kill a leader, and long enough for a busy machine. One and a half of the longer one is the
/// shortest lease that the server grants.
const HEARTBEAT_MS: u32 = 50;
const ELECTION_MS: u32 = 600;

/// A member, ended when dropped.
#[derive(Debug)]
pub struct Server {
    daemon: Daemon,
    name: String,
    peer_port: u16,
    tls: Option<Tls>,
    flags: Vec<String>,
}

impl Server {
    pub(super) fn new(name: String, tls: Option<Tls>, flags: Vec<String>) -> Result<Self> {
        let daemon = Daemon::new("etcd", ports::free()?, folder::make_in_memory()?);
        Ok(Self { daemon, name, peer_port: ports::free()?, tls, flags })
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// How it is known to the others.
    pub(super) fn peer(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer_port)
    }

    /// Whether nobody else has taken its ports meanwhile.
    pub(super) fn has_its_ports(&self) -> bool {
        [self.port(), self.peer_port].iter().all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
    }

    pub(super) fn launch(&self, cluster: &str) -> Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let (client, peer) = (format!("{scheme}://{}", self.address()), format!("http://127.0.0.1:{}", self.peer_port));
        let mut command = process::tied(tools::program("etcd")?);
        command.args(["--name", &self.name, "--initial-cluster", cluster, "--initial-cluster-state", "new"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args([
            "--heartbeat-interval",
            &HEARTBEAT_MS.to_string(),
            "--election-timeout",
            &ELECTION_MS.to_string(),
        ]);
        command.args(["--log-level", "warn", "--logger", "zap"]).arg("--data-dir").arg(self.folder().join("data"));
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(tls.certificate()).arg("--key-file").arg(tls.key());
        }
        command.args(&self.flags);
        self.start(command)
    }

    /// What `etcdctl` prints for a command.
    ///
    /// # Panics
    /// If it fails or has no answer.
    #[track_caller]
    pub fn cli(&self, words: &[&str]) -> String {
        self.try_cli(words).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The same, for a command that may fail.
    pub fn try_cli(&self, words: &[&str]) -> Result<String> {
        let mut command = self.etcdctl();
        command.args(words);
        process::output(command, PATIENCE).map(|answer| answer.trim_end().to_owned())
    }

    /// The sum of those of its counters whose lines, names and labels, are wanted. Nothing if it cannot be reached.
    pub fn counted(&self, wanted: impl Fn(&str) -> bool) -> Option<u64> {
        let mut http = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).ok()?;
        http.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut page = String::new();
        http.read_to_string(&mut page).ok()?;
        let counters = page.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(counter, _)| wanted(counter));
        Some(counters.filter_map(|(_, count)| count.parse::<f64>().ok()).sum::<f64>() as u64)
    }

    /// An `etcdctl` that goes on, such as `lock` or `elect`.
    pub fn session(&self, words: &[&str]) -> Result<Session> {
        let mut command = self.etcdctl();
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::start(command)?;
        let stdout = process.child().stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Session { process, lines })
    }

    fn etcdctl(&self) -> Command {
        let mut command = process::tied("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--dial-timeout", "2s", "--command-timeout", "10s", "--endpoints"]);
        command.arg(self.address());
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(tls.ca());
        }
        command
    }
}

impl Deref for Server {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// A running `etcdctl`, killed when dropped.
#[derive(Debug)]
pub struct Session {
    process: Process,
    lines: mpsc::Receiver<String>,
}

impl Session {
    /// The next line that it prints.
    ///
    /// # Panics
    /// If there is none for too long.
    #[track_caller]
    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("etcdctl prints something")
    }

    /// What it has printed and nobody has read.
    pub fn has_printed(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Asks it to give up what it holds, and waits until it has ended.
    pub fn end(mut self) {
        self.process.signal(Signal::TERM);
        let _ = self.process.child().wait();
    }

    /// How it ended, once it has.
    pub fn wait(mut self) -> bool {
        self.process.child().wait().is_ok_and(|status| status.success())
    }
}
