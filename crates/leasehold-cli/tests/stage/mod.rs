//! A folder with a store of its own, and programs that run on it.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold::clock::{Clock, Moment};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take on a busy machine. No test waits that long unless it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a hand-over after a death may take. The promise is a tenth of it; a busy machine needs room.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

pub(crate) const SECRET: &str = "hunter2";

pub(crate) fn now() -> Moment {
    Clock::boot().now()
}

/// Looks again until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up_at = now().after(PATIENCE);
    while !condition() {
        assert!(now() < give_up_at, "in vain: {what}");
        #[expect(clippy::disallowed_methods, reason = "between two looks at the condition itself")]
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A folder with a store of its own.
pub(crate) struct Stage {
    pub(crate) folder: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a command has written there, once it has written a whole line.
    pub(crate) fn line_in(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(name)).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    }

    /// The program without a store, in an environment of which nothing can leak in.
    pub(crate) fn bare(&self) -> Command {
        let mut program = minding_signals(env!("CARGO_BIN_EXE_leasehold"));
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"LEASEHOLD_") || name.as_encoded_bytes().starts_with(b"XDG_") {
                program.env_remove(name);
            }
        }
        program.env("HOME", self.folder.path()).env("SHELL", "/bin/sh").current_dir(self.folder.path());
        program.stdin(Stdio::null());
        program
    }

    pub(crate) fn leasehold<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut program = self.bare();
        program.arg("--store").arg(format!("sqlite:{}", self.path("locks.db").display())).args(arguments);
        program
    }

    pub(crate) fn output<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Output {
        self.leasehold(arguments).output().unwrap()
    }

    pub(crate) fn code<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Option<i32> {
        self.output(arguments).status.code()
    }

    pub(crate) fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        Running::start(self.leasehold(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Starts a holder whose command writes its number into the file `pid`, and waits until it runs.
    pub(crate) fn start_holder(&self, options: &[&str], script: &str) -> (Running, Pid) {
        let script = format!("echo $$ > pid; {script}");
        let _ = fs::remove_file(self.path("pid"));
        let holder = self.start(["run"].iter().chain(options).copied().chain(["k", "--", "sh", "-c", &script]));
        until("the command runs", || self.line_in("pid").is_some());
        let command = Pid::from_raw(self.line_in("pid").unwrap().parse().unwrap()).unwrap();
        (holder, command)
    }

    pub(crate) fn start_waiter(&self, script: &str, place: usize) -> Running {
        let waiter = self.start(["run", "k", "--", "sh", "-c", script]);
        until("it waits in line", || self.waiting() == place);
        waiter
    }

    pub(crate) fn view(&self) -> Value {
        let shown = self.output(["--json", "show", "k"]);
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_slice(&shown.stdout).unwrap()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.view()["waiters"].as_array().map_or(0, Vec::len)
    }

    pub(crate) fn holder_entry(&self) -> String {
        self.view()["holders"][0]["entry"].as_str().unwrap().to_owned()
    }
}

/// A program that minds the signals which whoever runs the tests may ignore: `nohup`, or a shell that has them in the background.
pub(crate) fn minding_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", program]);
    command
}

/// A program that runs; a test that fails leaves none behind.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(program: &mut Command) -> Self {
        Self(program.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        until("it ends", || self.has_ended());
        self.0.wait().unwrap().code()
    }

    pub(crate) fn talk(&mut self) -> String {
        let mut talk = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut talk).unwrap();
        talk
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process is no more, reaped or not.
pub(crate) fn is_dead(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

/// Runs as long as the stage is there, whatever it is asked, and notes that it was asked.
pub(crate) const STUBBORN: &str = "trap 'echo asked >> asked' TERM; while [ -e pid ]; do sleep 0.02; done";
