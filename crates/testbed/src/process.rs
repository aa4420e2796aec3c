//! Processes that do not outlive us.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Failure, Result, tools};

/// Runs the rest of its arguments, unless whoever started it is gone already: then the signal of its death came before we
/// asked for it, and will not come again.
const UNLESS_ORPHANED: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// A command whose process is killed as soon as ours is gone, for whatever reason.
pub(crate) fn tied(program: impl AsRef<OsStr>) -> Command {
    tied_as(&[], program)
}

/// The same, as somebody else: arguments of `setpriv`.
pub(crate) fn tied_as(who: &[&str], program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(who).args(["--pdeathsig", "KILL", "sh", "-c", UNLESS_ORPHANED]).arg(std::process::id().to_string());
    command.arg(program);
    command
}

/// A running process, killed when dropped.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts a [`tied`] command.
    pub(crate) fn start(command: Command) -> Result<Self> {
        tools::program("setpriv").map_err(|_| Failure::new("setpriv is missing; it belongs to util-linux"))?;
        let shown = shown(&command);
        Ok(Self { child: spawn(command).map_err(Failure::during(format!("cannot run {shown}")))? })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child that is ours can be asked for")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.id().cast_signed()).expect("no process has the number 0");
        // It has no new owner while we have not reaped it, so the number is still its own.
        kill_process(pid, signal).expect("a child that is ours can be signalled");
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({})", self.id())
    }
}

/// What a [`tied`] command writes. One that fails, or does not end within the limit, is a failure that says so.
pub(crate) fn output(mut command: Command, limit: Duration) -> Result<String> {
    let shown = shown(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command)?;
    let stdout = collect(process.child().stdout.take().expect("it is piped"));
    let stderr = collect(process.child().stderr.take().expect("it is piped"));
    let silent = |_| Failure::new(format!("{shown} had no answer within {} s", limit.as_secs()));
    let stdout = stdout.recv_timeout(limit).map_err(silent)?;
    let stderr = stderr.recv_timeout(limit).map_err(silent)?;
    let status = process.child().wait().map_err(Failure::during(&shown))?;
    if status.success() {
        Ok(stdout)
    } else {
        Err(Failure::new(format!("{shown} failed ({status}): {stdout}{stderr}")))
    }
}

/// Reads to the end on a thread, so that whoever waits for it can stop waiting.
fn collect(mut from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes); // what came before an error is all there is to tell
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// The program and its arguments, without what ties it to us.
fn shown(command: &Command) -> String {
    let words: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    let own = words.iter().position(|word| word == UNLESS_ORPHANED).map_or(0, |at| at + 2);
    words[own.min(words.len())..].join(" ")
}

type Request = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts processes from a thread that ends only with our process: the kernel takes the end of the thread that started a
/// process for the end of its parent, and the thread of a test ends early.
fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: LazyLock<mpsc::Sender<Request>> = LazyLock::new(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        let run = move || {
            for (mut command, answer) in requests {
                let _ = answer.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("testbed-spawner".into()).spawn(run).expect("a thread can be started");
        sender
    });
    let (answer, child) = mpsc::channel();
    SPAWNER.send((command, answer)).expect("the spawner never ends");
    child.recv().expect("the spawner answers each request")
}

/// The last lines of a log, for a failure's message.
pub(crate) fn tail(log: &Path) -> String {
    const LINES: usize = 8;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n  ")
}
