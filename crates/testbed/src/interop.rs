//! Lock libraries of other languages, each in a process of its own that a test drives.
//!
//! A line is asked and a line is answered:
//!
//! | asked | answered |
//! |---|---|
//! | `lock KEY TTL_MS TIMEOUT_MS` | `held`, `busy` |
//! | `extend KEY TTL_MS` | `ok`, `lost` |
//! | `unlock KEY` | `released`, `lost` |
//! | `hammer KEY FILE TIMES` | `done TIMES` |
//!
//! They can be timed too, by themselves, so that nothing of this is in the spans, which are in nanoseconds:
//!
//! | asked | answered |
//! |---|---|
//! | `pairs KEY TIMES`: take and give back | `spent SPAN` in all |
//! | `turns KEY TIMES`: from giving back to the next holder, of another session or connection | `spent SPAN SPAN …` |
//!
//! A waiter of redis-py or node-redlock polls: every 2 ms for `lock`, as often as it does by default for `turns`.
//!
//! Curator's mutex also knows `revoke FOLDER`, and says `lost` to `extend` once it has been asked to let go.
//!
//! Whatever else went wrong is `error` and a text. Before the first line a peer says `ready`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{self, Process};
use crate::{Failure, PATIENCE, Result, folder, tools};

/// A lock library of another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `redis.lock` of redis-py: the key is the name as it is.
    RedisPy,
    /// python-redis-lock: the key is `lock:` and the name, leases and limits count in whole seconds, rounded up, and a
    /// waiter is woken by the list `lock-signal:` and the name. It waits for no longer than it would hold.
    PythonRedisLock,
    /// redlock for Node.js, on one server: the key is the name as it is.
    NodeRedlock,
}

/// A process that uses such a library, ended when dropped.
#[derive(Debug)]
pub struct Peer {
    library: String,
    process: Process, // dropped before the folder with its log
    questions: ChildStdin,
    answers: mpsc::Receiver<String>,
    folder: TempDir,
}

/// What a peer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has the lock.
    Held,
    /// Somebody else has it, and had it until the limit was over.
    Busy,
    /// Its lock lives longer.
    Extended,
    /// It gave the lock back.
    Released,
    /// It no longer had the lock.
    Lost,
}

/// How long one turn under the hammer may take on a busy machine, with a handful of others in line.
const TURN_MAX: Duration = Duration::from_millis(100);

/// How long a peer may take to time itself.
const TIMING_MAX: Duration = Duration::from_secs(120);

impl Library {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RedisPy, Self::PythonRedisLock, Self::NodeRedlock];

    /// Starts a process that uses the library on this server, and returns when it has reached it.
    pub fn start(self, url: &str) -> Result<Peer> {
        Peer::start(format!("{self:?}"), self.command()?, url)
    }

    fn command(self) -> Result<Command> {
        match self {
            Self::RedisPy => python("redis_py.py"),
            Self::PythonRedisLock => python("python_redis_lock.py"),
            Self::NodeRedlock => {
                let libraries = tools::installed("node/node_modules/redlock/package.json")?;
                let mut command = process::tied(tools::program("node")?);
                command.arg(script("node_redlock.mjs"));
                command.env("NODE_PATH", libraries.ancestors().nth(2).expect("it lies in node_modules"));
                Ok(command)
            }
        }
    }
}

/// A lock library of another language, on ZooKeeper. A key is a kind of lock and a folder: `mutex:/lock/name`. The kinds are
/// `mutex`, `read`, `write` and `election`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZookeeperLibrary {
    /// Apache Curator, for Java.
    Curator,
    /// kazoo, for Python.
    Kazoo,
}

impl ZookeeperLibrary {
    /// Starts a process that uses the library on a server, such as `127.0.0.1:2181`, and returns when it has reached it.
    pub fn start(self, address: &str) -> Result<Peer> {
        let command = match self {
            Self::Kazoo => python("kazoo_locks.py")?,
            Self::Curator => {
                let mut command = process::tied(tools::program("java")?);
                let jars = ["curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute"];
                let jars = jars.iter().chain(&["slf4j-api", "slf4j-simple", "guava"]);
                let path: Vec<String> = jars.map(|jar| format!("/usr/share/java/{jar}.jar")).collect();
                command.args(["-XX:+UseSerialGC", "-cp", &path.join(":")]);
                command.arg(script("CuratorLocks.java"));
                command
            }
        };
        Peer::start(format!("{self:?}"), command, address)
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(name)
}

fn python(name: &str) -> Result<Command> {
    let mut command = process::tied(tools::installed("python/bin/python")?);
    command.arg("-B").arg(script(name)); // without leaving compiled files in the tree
    Ok(command)
}

impl Peer {
    fn start(library: String, mut command: Command, url: &str) -> Result<Self> {
        let folder = folder::make()?;
        let log = File::create(log_in(&folder)).map_err(Failure::during("cannot write the log of a peer"))?;
        command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = Process::start(command)?;
        let questions = process.child().stdin.take().expect("it is piped");
        let stdout = BufReader::new(process.child().stdout.take().expect("it is piped"));
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(std::io::Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut peer = Self { library, process, questions, answers, folder };
        match peer.hear(PATIENCE)?.as_str() {
            "ready" => Ok(peer),
            other => Err(peer.failure(&format!("said {other:?} before it was ready"))),
        }
    }

    /// Takes the lock, at once or within the limit.
    pub fn lock(&mut self, key: &str, ttl: Duration, timeout: Duration) -> Result<Answer> {
        self.ask(&format!("lock {key} {} {}", ttl.as_millis(), timeout.as_millis()), PATIENCE + timeout)
    }

    /// Has the lock it holds live for so long from now on.
    pub fn extend(&mut self, key: &str, ttl: Duration) -> Result<Answer> {
        self.ask(&format!("extend {key} {}", ttl.as_millis()), PATIENCE)
    }

    /// Asks whoever holds the lock in that folder to let go, as Curator does. It cannot be asked of any other library.
    pub fn revoke(&mut self, folder: &str) -> Result<Answer> {
        self.ask(&format!("revoke {folder}"), PATIENCE)
    }

    /// Gives the lock back.
    pub fn unlock(&mut self, key: &str) -> Result<Answer> {
        self.ask(&format!("unlock {key}"), PATIENCE)
    }

    /// Adds one to the number in a file, so many times, each under the lock: reads, pauses, writes. Whoever does the same
    /// at the same time without being excluded loses one of the additions.
    pub fn hammer(&mut self, key: &str, file: &Path, times: u32) -> Result {
        let words = format!("hammer {key} {} {times}", file.display());
        match self.say(&words, PATIENCE + TURN_MAX * times)?.as_str() {
            done if done == format!("done {times}") => Ok(()),
            other => Err(self.failure(&format!("was asked to {words:?} and said {other:?}"))),
        }
    }

    /// How long it takes to take a lock that nobody wants and give it back, so many times.
    pub fn pairs(&mut self, key: &str, times: usize) -> Result<Duration> {
        self.spent(&format!("pairs {key} {times}"))?.first().copied().ok_or_else(|| self.failure("has no span"))
    }

    /// How long it takes from giving a lock back until somebody has it who waits, each of so many times.
    pub fn turns(&mut self, key: &str, times: usize) -> Result<Vec<Duration>> {
        self.spent(&format!("turns {key} {times}"))
    }

    fn spent(&mut self, words: &str) -> Result<Vec<Duration>> {
        let said = self.say(words, TIMING_MAX)?;
        let span = |word: &str| word.parse().ok().map(Duration::from_nanos);
        let spans = said.strip_prefix("spent ").and_then(|spans| spans.split(' ').map(span).collect());
        spans.ok_or_else(|| self.failure(&format!("was asked to {words:?} and said {said:?}")))
    }

    fn ask(&mut self, words: &str, limit: Duration) -> Result<Answer> {
        match self.say(words, limit)?.as_str() {
            "held" => Ok(Answer::Held),
            "busy" => Ok(Answer::Busy),
            "ok" => Ok(Answer::Extended),
            "released" => Ok(Answer::Released),
            "lost" => Ok(Answer::Lost),
            other => Err(self.failure(&format!("was asked to {words:?} and said {other:?}"))),
        }
    }

    fn say(&mut self, words: &str, limit: Duration) -> Result<String> {
        let said = writeln!(self.questions, "{words}");
        said.map_err(|_| self.failure(&format!("has ended, and was asked to {words:?}")))?;
        self.hear(limit)
    }

    /// The next line. A peer that does not say it in time is killed, so that nobody takes a late answer for the next.
    fn hear(&mut self, limit: Duration) -> Result<String> {
        self.answers.recv_timeout(limit).map_err(|_| {
            self.process.kill();
            self.failure(&format!("said nothing for {} s, or has ended", limit.as_secs()))
        })
    }

    fn failure(&self, what: &str) -> Failure {
        let log = process::tail(&log_in(&self.folder));
        Failure::new(format!("{} {what}; its log ends:\n  {log}", self.library))
    }
}

fn log_in(folder: &TempDir) -> PathBuf {
    folder.path().join("log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::Server;

    #[test]
    fn a_peer_that_hangs_is_a_failure_and_is_killed() {
        let server = Server::start().unwrap();
        for library in Library::ALL {
            let mut peer = library.start(&server.url()).unwrap();
            server.stop();
            let failure = peer.say("lock k 1000 0", Duration::from_millis(200)).unwrap_err().to_string();
            assert!(failure.contains("said nothing"), "{failure}");
            assert!(peer.process.ended().is_some());
            assert!(peer.lock("k", PATIENCE, Duration::ZERO).unwrap_err().to_string().contains("has ended"));
            server.cont();
        }
    }

    #[test]
    fn a_peer_times_itself() {
        let (redis, zookeeper) = (Server::start().unwrap(), crate::zookeeper::Server::start().unwrap());
        for library in Library::ALL {
            times_itself(library.start(&redis.url()).unwrap(), "");
        }
        for library in [ZookeeperLibrary::Curator, ZookeeperLibrary::Kazoo] {
            times_itself(library.start(&zookeeper.address()).unwrap(), "mutex:/");
        }
    }

    fn times_itself(mut peer: Peer, prefix: &str) {
        assert!(peer.pairs(&format!("{prefix}pairs"), 3).unwrap() > Duration::ZERO, "{}", peer.library);
        let turns = peer.turns(&format!("{prefix}turns"), 2).unwrap();
        assert!(turns.len() == 2 && turns.iter().all(|turn| *turn > Duration::ZERO), "{}: {turns:?}", peer.library);
    }
}
