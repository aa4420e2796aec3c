//! Job control: `leasehold run` in an interactive shell, on a terminal whose other end is ours.

mod stage;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcgetpgrp, tcsetwinsize};

use stage::*;

const INTERRUPT: &str = "\x03";
const END_OF_INPUT: &str = "\x04";
const STOP: &str = "\x1a";

/// What the shell says when it is ready. Not a text that anybody types.
const PROMPT: &str = "ready> ";

/// A shell on a terminal of its own, in which `leasehold` is the program on the stage's store.
struct Shell<'a> {
    stage: &'a Stage,
    ours: File,
    /// Everything that was ever shown.
    shown: Vec<u8>,
    bash: Running,
}

impl<'a> Shell<'a> {
    fn on(stage: &'a Stage) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options().read(true).write(true).open(OsStr::from_bytes(theirs.to_bytes())).unwrap();
        tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        fcntl_setfl(&ours, OFlags::NONBLOCK).unwrap();
        // The terminal becomes that of a new session, whose leader is the shell.
        let mut bash = minding_signals("setsid");
        bash.args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
        let folder = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        bash.env("PATH", path).env("LEASEHOLD_URL", format!("sqlite:{}", stage.path("locks.db").display()));
        bash.env("HOME", stage.folder.path()).env_remove("XDG_CONFIG_HOME").current_dir(stage.folder.path());
        bash.env("PS1", PROMPT).env_remove("PROMPT_COMMAND");
        bash.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let bash = Running::start(&mut bash);
        let mut shell = Self { stage, ours: ours.into(), shown: Vec::new(), bash };
        shell.await_prompt();
        shell
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits until that has been shown since the last time something was waited for, and returns all up to there.
    fn await_text(&mut self, text: &str) -> String {
        let mut found = None;
        until(&format!("{text:?} is shown"), || {
            let mut more = [0; 4096];
            while let Ok(read @ 1..) = self.ours.read(&mut more) {
                self.shown.extend(&more[..read]);
            }
            found = self.shown.windows(text.len()).position(|shown| shown == text.as_bytes());
            found.is_some()
        });
        let rest = self.shown.split_off(found.unwrap() + text.len());
        String::from_utf8(std::mem::replace(&mut self.shown, rest)).unwrap()
    }

    fn await_prompt(&mut self) -> String {
        self.await_text(PROMPT)
    }

    /// Waits until the shell has noticed that its job is stopped: until then it would not let it go on.
    fn await_stop(&mut self) {
        until("the shell knows of the stop", || {
            self.enter("jobs");
            self.await_prompt().contains("Stopped")
        });
    }

    /// The exit code of the last command, which must have ended.
    fn code(&mut self) -> String {
        self.enter("echo \"code=$?.\"");
        self.await_text("code=$?");
        let shown = self.await_text(".\r\n");
        self.await_prompt();
        shown.rsplit_once("code=").unwrap().1.trim_end_matches(".\r\n").into()
    }

    /// Whether the shell has the terminal, in the modes that it began with.
    fn is_sane(&self) -> bool {
        use rustix::termios::LocalModes;
        let modes = tcgetattr(&self.ours).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
            && tcgetpgrp(&self.ours).unwrap() == self.bash.pid()
    }

    fn holder(&self) -> Pid {
        let pid = self.stage.view()["holders"][0]["pid"].as_i64().unwrap();
        Pid::from_raw(pid.try_into().unwrap()).unwrap()
    }

    fn command(&self) -> Pid {
        until("the command runs", || self.stage.line_in("pid").is_some());
        Pid::from_raw(self.stage.line_in("pid").unwrap().parse().unwrap()).unwrap()
    }
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
}

#[test]
fn an_interrupt_while_waiting_leaves_the_line_at_once_and_the_terminal_as_it_was() {
    let stage = Stage::new();
    let (_holder, _) = stage.start_holder(&["--label", "worker-7"], "exec sleep 1000");
    let mut shell = Shell::on(&stage);
    shell.enter("leasehold run k -- touch ran");
    let shown = shell.await_text("in line\x1b[K");
    assert!(shown.contains("\rwaiting for \"k\", held by worker-7 "), "{shown:?}");
    shell.press(INTERRUPT);
    let shown = shell.await_prompt();
    assert!(shown.contains("\r\x1b[K"), "nothing of the line remains: {shown:?}");
    assert!(shell.is_sane());
    assert_eq!(stage.waiting(), 0);
    assert_eq!(shell.code(), "130");
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_stop_stops_the_command_and_us_and_both_go_on_in_the_foreground() {
    let stage = Stage::new();
    let mut shell = Shell::on(&stage);
    shell.enter("leasehold run k -- sh -c 'echo $$ > pid; exec cat'");
    let command = shell.command();
    let holder = shell.holder();
    shell.enter("before");
    shell.await_text("before\r\nbefore\r\n");
    shell.press(STOP);
    let shown = shell.await_prompt();
    assert!(shown.contains("Stopped"), "{shown:?}");
    assert!(is_stopped(holder) && is_stopped(command));
    assert!(shell.is_sane());
    assert_eq!(stage.code(["run", "-n", "k", "--", "true"]), Some(75), "it is still ours");
    shell.enter("fg");
    until("both go on", || !is_stopped(holder) && !is_stopped(command));
    shell.enter("after");
    shell.await_text("after\r\nafter\r\n");
    shell.press(END_OF_INPUT);
    shell.await_prompt();
    assert_eq!(shell.code(), "0");
    assert!(shell.is_sane());
}

#[test]
fn a_stop_while_waiting_stops_us_and_we_wait_on_in_the_foreground() {
    let stage = Stage::new();
    let (holder, _) = stage.start_holder(&[], "exec sleep 1000");
    let mut shell = Shell::on(&stage);
    shell.enter("leasehold run k -- echo mine");
    shell.await_text("in line\x1b[K");
    shell.press(STOP);
    let shown = shell.await_prompt();
    assert!(shown.contains("Stopped") && shell.is_sane(), "{shown:?}");
    shell.enter("fg");
    shell.await_text("in line\x1b[K");
    holder.signal(Signal::TERM);
    let shown = shell.await_prompt();
    assert!(shown.ends_with(&format!("\r\x1b[Kmine\r\n{PROMPT}")), "{shown:?}");
    assert_eq!(shell.code(), "0");
}

#[test]
fn a_command_in_the_background_stops_when_it_reads_and_goes_on_in_the_foreground() {
    let stage = Stage::new();
    let mut shell = Shell::on(&stage);
    shell.enter("leasehold run k -- sh -c 'echo $$ > pid; exec cat' &");
    shell.await_prompt();
    let command = shell.command();
    until("it is stopped", || is_stopped(command) && is_stopped(shell.holder()));
    shell.await_stop();
    shell.enter("fg");
    until("it goes on", || !is_stopped(command));
    shell.enter("typed");
    shell.await_text("typed\r\ntyped\r\n");
    shell.press(INTERRUPT);
    shell.await_prompt();
    assert_eq!(shell.code(), "130");
    assert!(shell.is_sane());
}

#[test]
fn a_job_in_a_pipeline_prints_and_reads_and_is_interrupted_as_any_other() {
    let stage = Stage::new();
    let mut shell = Shell::on(&stage);
    shell.enter("leasehold run k -- echo hi | cat");
    let shown = shell.await_prompt();
    assert!(shown.ends_with(&format!("\r\nhi\r\n{PROMPT}")), "{shown:?}");
    assert_eq!(shell.code(), "0");

    shell.enter("leasehold run k -- cat | tr a-z A-Z");
    shell.await_text("A-Z\r\n");
    shell.enter("typed");
    shell.press(END_OF_INPUT);
    let shown = shell.await_prompt();
    assert!(shown.contains("TYPED\r\n"), "{shown:?}");

    shell.enter("echo piped | leasehold run k -- cat");
    let shown = shell.await_prompt();
    assert!(shown.ends_with(&format!("\r\npiped\r\n{PROMPT}")), "{shown:?}");

    shell.enter("leasehold run k -- sh -c 'echo $$ > pid; exec sleep 1000' | cat");
    let command = shell.command();
    let holder = shell.holder();
    shell.press(STOP);
    let shown = shell.await_prompt();
    assert!(shown.contains("Stopped") && is_stopped(holder) && is_stopped(command), "{shown:?}");
    shell.enter("fg");
    until("it goes on", || !is_stopped(holder) && !is_stopped(command));
    shell.press(INTERRUPT);
    shell.await_prompt();
    until("the command ends", || is_dead(command));
    assert!(shell.is_sane());
    assert_eq!(stage.code(["run", "-n", "k", "--", "true"]), Some(0));
}

#[test]
fn a_bench_shows_how_far_it_is_and_ends_with_a_table() {
    let stage = Stage::new();
    let mut shell = Shell::on(&stage);
    shell.enter("leasehold bench --time 8s");
    let shown = shell.await_text("4 tasks hand one lock on\x1b[K");
    assert!(shown.contains("\r[------------------------]   8s left, one task locks and releases\x1b[K"), "{shown:?}");
    let shown = shell.await_prompt();
    let table = shown.rsplit_once("\r\x1b[Kstore  sqlite:").expect("nothing of the bar is left before the table").1;
    assert!(table.contains("MEASURED") && table.contains("LOCKS HELD") && !table.contains('#'), "{table}");
    assert_eq!(shell.code(), "0");
}

#[test]
fn an_interrupted_bench_leaves_nothing_on_the_store_nor_of_its_bar() {
    let stage = Stage::new();
    let mut shell = Shell::on(&stage);
    shell.enter("leasehold bench");
    shell.await_text("one task locks and releases\x1b[K");
    shell.press(INTERRUPT);
    let shown = shell.await_prompt();
    assert!(
        shown.ends_with(&format!("\r\x1b[Kleasehold: interrupted, so there is nothing to show\r\n{PROMPT}")),
        "{shown:?}"
    );
    assert_eq!(shell.code(), "130");
    assert_eq!(stage.output(["ls", "--json"]).stdout, b"[]\n");
    assert!(shell.is_sane());
}

#[test]
fn a_terminal_that_is_closed_ends_the_command_and_frees_the_lock() {
    let stage = Stage::new();
    let mut shell = Shell::on(&stage);
    shell.enter("leasehold run k -- sh -c 'echo $$ > pid; exec sleep 1000'");
    let command = shell.command();
    drop(shell.ours);
    until("the command ends", || is_dead(command));
    until("the lock is free", || stage.view().is_null());
}
