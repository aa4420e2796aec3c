//! `leasehold run` and `elect`, with real processes on a file of their own.

mod stage;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use stage::*;

#[test]
fn fifty_processes_that_add_to_one_file_lose_no_update() {
    let stage = Stage::new();
    fs::write(stage.path("sum"), "0\n").unwrap();
    let add = "read n < sum; echo $((n + 1)) > sum";
    let mut all: Vec<_> = (0..50).map(|_| stage.start(["run", "k", "--", "sh", "-c", add])).collect();
    for one in &mut all {
        assert_eq!(one.code(), Some(0), "{}", one.talk());
    }
    assert_eq!(stage.line_in("sum").unwrap(), "50");
}

#[test]
fn exit_codes_are_those_of_the_command_or_ours() {
    let stage = Stage::new();
    fs::write(stage.path("text"), "no program").unwrap();
    assert_eq!(stage.code(["run", "k", "--", "true"]), Some(0));
    assert_eq!(stage.code(["run", "k", "--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(stage.code(["run", "k", "-c", "kill -TERM $$"]), Some(128 + 15));
    assert_eq!(stage.code(["run", "k", "--", "./text"]), Some(126));
    assert_eq!(stage.code(["run", "k", "--", "no-such-command"]), Some(127));
    for wrong in [
        &["run"] as &[_],
        &["run", "k"],
        &["run", "k", "--"],
        &["run", "", "--", "true"],
        &["run", "-w", "soon", "k", "--", "true"],
        &["run", "-n", "-w", "1", "k", "--", "true"],
        &["run", "--ttl", "1ms", "k", "--", "true"],
        &["run", "--of", "0", "k", "--", "true"],
        &["run", "--permits", "2", "k", "--", "true"],
        &["run", "-s", "--of", "2", "k", "--", "true"],
        &["run", "-c", "true", "k", "--", "true"],
        &["no-such-verb"],
    ] {
        let output = stage.output(wrong.iter().copied());
        assert_eq!(output.status.code(), Some(64), "{wrong:?}: {output:?}");
        assert!(output.stdout.is_empty() && output.stderr.starts_with(b"leasehold: "), "{wrong:?}: {output:?}");
        assert_eq!(output.stderr.iter().filter(|byte| **byte == b'\n').count(), 1, "{wrong:?}: {output:?}");
    }
    fs::write(stage.path("broken.db"), "no store, but a text that is long enough to be looked at".repeat(20)).unwrap();
    let broken = stage.bare().args(["--store", "sqlite:broken.db", "run", "k", "--", "true"]).output().unwrap();
    assert_eq!(broken.status.code(), Some(69), "{broken:?}");
    let elsewhere = stage.bare().args(["--store", "gopher://host", "run", "k", "--", "true"]).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(64), "{elsewhere:?}");
}

#[test]
fn a_taken_key_is_not_waited_for_longer_than_asked() {
    let stage = Stage::new();
    let (_holder, _) = stage.start_holder(&["--label", "\x1b[31mred"], "exec sleep 1000");
    let tried = stage.output(["run", "-n", "k", "--", "touch", "ran"]);
    assert_eq!(tried.status.code(), Some(75));
    let said = String::from_utf8(tried.stderr).unwrap();
    assert!(said.contains("is held by") && said.contains("red") && !said.contains('\x1b'), "{said}");
    let began_at = now();
    assert_eq!(stage.code(["run", "-w", "0.3", "-E", "9", "k", "--", "touch", "ran"]), Some(9));
    assert!(began_at.until(now()) >= Duration::from_millis(300));
    assert_eq!(stage.code(["run", "-w", "50ms", "k", "--", "touch", "ran"]), Some(75));
    assert!(stage.output(["-q", "run", "-n", "k", "--", "true"]).stderr.is_empty());
    assert!(!stage.path("ran").exists());
    assert_eq!(stage.waiting(), 0);
}

#[test]
fn shared_locks_and_permits_are_held_beside_each_other() {
    let stage = Stage::new();
    let (_reader, _) = stage.start_holder(&["-s"], "exec sleep 1000");
    let shown = "echo ${LEASEHOLD_TOKEN-none}";
    let reader = stage.leasehold(["run", "-n", "-s", "k", "-c", shown]).env("LEASEHOLD_TOKEN", "5").output().unwrap();
    assert_eq!(reader.stdout, b"none\n", "a share has no token, not even an inherited one");
    assert_eq!(stage.code(["run", "-n", "k", "--", "true"]), Some(75));

    let two = ["run", "-n", "--permits", "2", "--of", "3", "calls", "--"];
    let one = ["run", "-n", "--of", "3", "calls", "--", "true"];
    let program = env!("CARGO_BIN_EXE_leasehold");
    let store = format!("sqlite:{}", stage.path("locks.db").display());
    let inner = |arguments: &[&str]| {
        let nested = [program, "--store", &store].into_iter().chain(arguments.iter().copied());
        stage.code(two.iter().copied().chain(nested))
    };
    assert_eq!(inner(&one), Some(0));
    assert_eq!(inner(&["run", "-n", "--permits", "2", "--of", "3", "calls", "--", "true"]), Some(75));
    assert_eq!(inner(&["run", "-n", "--of", "4", "calls", "--", "true"]), Some(64), "others say it has 3");
}

#[test]
fn a_command_inside_another_sees_its_own_variables() {
    let stage = Stage::new();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let store = format!("sqlite:{}", stage.path("locks.db").display());
    let show = "echo $LEASEHOLD_KEY $LEASEHOLD_TOKEN $LEASEHOLD_DEADLINE ${LEASEHOLD_URL-none}";
    let script = format!("{show}; \"$0\" --store \"$1\" run inner -c '{show}'");
    let mut outer = stage.leasehold(["run", "outer", "--", "sh", "-c", &script, program, &store]);
    let output = outer.env("LEASEHOLD_URL", "memory:").env("LEASEHOLD_TOKEN", "999").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let [outer, inner] = &lines[..] else { panic!("{text}") };
    assert_eq!((outer[0], inner[0]), ("outer", "inner"));
    let number = |text: &str| text.parse::<f64>().unwrap();
    assert!(number(outer[1]) >= 1.0 && number(inner[1]) >= 1.0 && number(outer[1]) < 999.0, "{text}");
    assert!(number(outer[2]) <= number(inner[2]), "the inner lock was taken later: {text}");
    assert_eq!((outer[3], inner[3]), ("none", "none"));
}

#[test]
fn a_signal_while_waiting_leaves_the_line_at_once() {
    let stage = Stage::new();
    let (_holder, _) = stage.start_holder(&[], "exec sleep 1000");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut waiter = stage.start_waiter("touch ran", 1);
        waiter.signal(signal);
        assert_eq!(waiter.code(), Some(128 + signal.as_raw()));
        assert_eq!(stage.waiting(), 0, "it is gone from the line when it has ended");
    }
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_signal_ends_us_also_while_the_store_does_not_open() {
    let stage = Stage::new();
    assert_eq!(stage.code(["run", "k", "--", "true"]), Some(0));
    let door = fs::File::open(stage.path("locks.db-door")).unwrap();
    door.lock().unwrap();
    let mut waiter = stage.start(["run", "k", "--", "true"]);
    let caught = || {
        let status = fs::read_to_string(format!("/proc/{}/status", waiter.0.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&caught, 16).unwrap() >> (Signal::CONT.as_raw() - 1) & 1 == 1
    };
    until("it listens for signals", caught);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.code(), Some(128 + 15));
}

#[test]
fn signals_are_passed_on_to_the_whole_group_of_the_command() {
    let stage = Stage::new();
    let inner =
        "trap 'echo usr1 > inner' USR1; echo yes > trapped; while [ -e pid ] && [ ! -e inner ]; do sleep 0.02; done";
    let script = format!(
        "trap 'echo usr1 > heard' USR1; sh -c \"{inner}\" & while [ -e pid ] && [ ! -e heard ]; do sleep 0.02; done; wait; exit 3"
    );
    let (mut holder, _) = stage.start_holder(&[], &script);
    until("both have their traps", || stage.line_in("trapped").is_some());
    holder.signal(Signal::USR1);
    assert_eq!(holder.code(), Some(3), "{}", holder.talk());
    assert_eq!((stage.line_in("heard").unwrap(), stage.line_in("inner").unwrap()), ("usr1".into(), "usr1".into()));
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let stage = Stage::new();
    let script = "trap '' HUP; exec \"$@\"";
    let mut nohup = Command::new("sh");
    let inner = stage.leasehold(["run", "k", "--", "sh", "-c", "echo $$ > pid; until [ -e go ]; do sleep 0.02; done"]);
    // Behind the argument that lets it mind its signals.
    nohup.args(["-c", script, "sh"]).args(inner.get_args().skip(1)).current_dir(stage.folder.path());
    let mut holder = Running::start(&mut nohup);
    until("the command runs", || stage.line_in("pid").is_some());
    holder.signal(Signal::HUP);
    let command = Pid::from_raw(stage.line_in("pid").unwrap().parse().unwrap()).unwrap();
    kill_process(command, Signal::HUP).unwrap();
    fs::write(stage.path("go"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
}

#[test]
fn a_holder_that_is_asked_to_yield_does_what_it_was_told() {
    let stage = Stage::new();
    let quiet = "until [ -e go ]; do sleep 0.02; done";
    let (mut ignoring, _) = stage.start_holder(&[], quiet);
    assert_eq!(stage.code(["yield", "k"]), Some(0));
    let mut said = String::new();
    BufReader::new(ignoring.0.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("asks for \"k\""), "{said}");
    fs::write(stage.path("go"), "").unwrap();
    assert_eq!(ignoring.code(), Some(0));

    let (mut heeding, _) = stage.start_holder(&["--on-yield", "term"], "exec sleep 1000");
    assert_eq!(stage.code(["yield", "k"]), Some(0));
    assert_eq!(heeding.code(), Some(128 + 15));

    let trap = "trap 'exit 5' USR2; echo ready > ready; while [ -e pid ]; do sleep 0.02; done";
    let (mut trapping, _) = stage.start_holder(&["--on-yield", "signal=USR2"], trap);
    until("the trap is set", || stage.line_in("ready").is_some());
    assert_eq!(stage.code(["yield", "k"]), Some(0));
    assert_eq!(trapping.code(), Some(5));
}

#[test]
fn stdin_reaches_the_command() {
    let stage = Stage::new();
    let mut cat = stage.leasehold(["run", "k", "--", "cat"]);
    let mut cat = Running::start(cat.stdin(Stdio::piped()).stdout(Stdio::piped()));
    cat.0.stdin.take().unwrap().write_all(b"through and through").unwrap();
    let mut read = String::new();
    cat.0.stdout.take().unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, "through and through");
    assert_eq!(cat.code(), Some(0));
}

#[test]
fn arguments_reach_the_command_as_they_are() {
    let stage = Stage::new();
    let output = stage.output(["run", "k", "--", "printf", "[%s]", "a b", "$HOME", "; touch ran", "-n", "--", "*"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "[a b][$HOME][; touch ran][-n][--][*]");
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_secret_in_a_url_is_not_shown_or_handed_on() {
    let stage = Stage::new();
    // Nobody listens there.
    let url = format!("redis://me:{SECRET}@127.0.0.1:1/0");
    let silent = |output: Output, code: i32| {
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!text.contains(SECRET), "{text}");
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    };
    let with_url = |arguments: &[&str]| stage.bare().args(arguments).env("LEASEHOLD_URL", &url).output().unwrap();
    silent(with_url(&["--help"]), 0);
    silent(with_url(&["run", "--help"]), 0);
    silent(with_url(&["run", "k", "--", "true"]), 69);
    silent(with_url(&["run", "k", &url, "--", "true"]), 64);
    silent(with_url(&["run", "-w", &url, "k", "--", "true"]), 64);
    silent(with_url(&[&url]), 64);
    let warned = silent(stage.bare().args(["--store", &url, "run", "k", "--", "true"]).output().unwrap(), 69);
    assert!(warned.contains("LEASEHOLD_URL"), "{warned}");

    fs::create_dir_all(stage.path(".config/leasehold")).unwrap();
    fs::write(stage.path(".config/leasehold/config.toml"), format!("store = \"{url}\" oops")).unwrap();
    silent(stage.bare().args(["run", "k", "--", "true"]).output().unwrap(), 64);
    fs::remove_dir_all(stage.path(".config")).unwrap();

    // A store that works and whose URL holds the secret, named in each of the ways that keep it.
    let url = format!("sqlite:{}", stage.path(&format!("{SECRET}.db")).display());
    fs::write(stage.path("url"), format!("{url}\n")).unwrap();
    let look = "tr '\\0' '\\n' < /proc/self/environ; tr '\\0' '\\n' < /proc/self/cmdline; tr '\\0' '\\n' < /proc/$PPID/cmdline";
    let child = ["run", "k", "--", "sh", "-c", look];
    let seen = silent(stage.bare().args(child).env("LEASEHOLD_URL", &url).output().unwrap(), 0);
    assert!(seen.contains("LEASEHOLD_KEY=k"), "{seen}");
    silent(stage.bare().args(["--store-file", "url"]).args(child).output().unwrap(), 0);
    assert!(stage.path(&format!("{SECRET}.db")).exists());
}

#[test]
fn the_store_may_be_named_by_a_configuration_file() {
    let stage = Stage::new();
    fs::create_dir_all(stage.path(".config/leasehold")).unwrap();
    let config =
        format!("store = \"sqlite:{}\"\nttl = \"7s\"\nlabel = \"nightly\"\n", stage.path("named.db").display());
    fs::write(stage.path(".config/leasehold/config.toml"), config).unwrap();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let output = stage.bare().args(["run", "k", "--", program, "--json", "show", "k"]).output().unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(seen["holders"][0]["owner"], "nightly");
    assert!(seen["holders"][0]["lease_left_ms"].as_u64().unwrap() <= 7000);
    assert!(stage.path("named.db").exists());
}

#[test]
fn a_user_without_any_setting_has_a_store() {
    let stage = Stage::new();
    let output = stage.bare().args(["-v", "run", "demo", "--", "echo", "hello"]).output().unwrap();
    assert_eq!(output.stdout, b"hello\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("\"sqlite:\"").count(), 1, "{said}");
    assert!(stage.path(".local/state/leasehold/leasehold.db").exists());
}

#[test]
fn a_waiter_says_once_whom_it_waits_for_if_asked() {
    let stage = Stage::new();
    let (_holder, _) = stage.start_holder(&["--label", "worker-7"], "exec sleep 1000");
    let mut waiter = stage.start(["-v", "run", "k", "--", "true"]);
    let mut said = String::new();
    BufReader::new(waiter.0.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("leasehold: waiting for \"k\", held by worker-7 "), "{said}");
    assert!(said.ends_with(": 1st of 1 in line\n"), "{said}");
}

/// The same program on a terminal of its own, whose screen is our end of the pipe.
fn on_terminal(program: &Command) -> Running {
    let words = std::iter::once(program.get_program()).chain(program.get_args());
    let line = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ");
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).current_dir(program.get_current_dir().unwrap());
    Running::start(script.stdin(Stdio::piped()).stdout(Stdio::piped()))
}

#[test]
fn a_terminal_shows_one_line_while_waiting_and_nothing_of_it_remains() {
    let stage = Stage::new();
    let (holder, _) = stage.start_holder(&["--label", "worker-7"], "exec sleep 1000");
    let mut waiter = on_terminal(&stage.leasehold(["run", "k", "--", "echo", "mine"]));
    let mut screen = Vec::new();
    let mut read_until = |end: &str| {
        let out = waiter.0.stdout.as_mut().unwrap();
        let mut byte = [0];
        while !screen.ends_with(end.as_bytes()) && out.read(&mut byte).unwrap() == 1 {
            screen.push(byte[0]);
        }
        String::from_utf8_lossy(&screen).into_owned()
    };
    let shown = read_until("in line\x1b[K");
    assert!(shown.starts_with("\rwaiting for \"k\", held by worker-7 "), "{shown:?}");
    assert!(shown.ends_with("s: 1st of 1 in line\x1b[K"), "{shown:?}");
    holder.signal(Signal::TERM);
    let shown = read_until("mine\r\n");
    assert!(shown.ends_with("in line\x1b[K\r\x1b[Kmine\r\n"), "{shown:?}");
    assert_eq!(waiter.code(), Some(0));
}

#[test]
fn the_keys_of_a_terminal_reach_the_command_and_the_script_around_it() {
    let stage = Stage::new();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let store = format!("sqlite:{}", stage.path("locks.db").display());
    let inner = "echo ready > ready; read line; echo \\$line > read; echo again > again; exec sleep 1000";
    let script = format!("{program} --store {store} run k -- sh -c \"{inner}\"; echo after > after");
    fs::write(stage.path("script"), script).unwrap();
    let mut bash = minding_signals("bash");
    bash.arg("script").current_dir(stage.folder.path());
    let mut terminal = on_terminal(&bash);
    until("the command runs", || stage.line_in("ready").is_some());
    let mut keys = terminal.0.stdin.take().unwrap();
    keys.write_all(b"typed\n").unwrap();
    until("the command reads", || stage.line_in("again").is_some());
    assert_eq!(stage.line_in("read").unwrap(), "typed");
    keys.write_all(b"\x03").unwrap();
    assert_eq!(terminal.code(), Some(128 + 2));
    assert!(!stage.path("after").exists(), "the interrupt was for the script too");
    assert_eq!(stage.code(["run", "-n", "k", "--", "true"]), Some(0), "and the lock was given up");
}

#[test]
fn the_hidden_step_is_nobody_elses() {
    let stage = Stage::new();
    assert_eq!(stage.bare().args(["__exec", "--", "true"]).output().unwrap().status.code(), Some(64));
    let orphan = stage.bare().args(["__exec", "1", "--", "touch", "ran"]).process_group(0).output().unwrap();
    assert_eq!(orphan.status.signal(), Some(9), "whoever it was started for has gone");
    assert!(!stage.path("ran").exists());
}

#[test]
fn a_leader_says_so_and_resigns_when_it_is_asked_to_end() {
    let stage = Stage::new();
    let mut listener = stage.start(["--json", "elect", "--listen", "office"]);
    let mut sights = BufReader::new(listener.0.stdout.take().unwrap());
    let mut sight = || {
        let mut line = String::new();
        sights.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["leader"].clone()
    };
    assert_eq!(sight(), Value::Null);
    let mut first = stage.start(["--json", "elect", "office", "a:1"]);
    let mut line = String::new();
    BufReader::new(first.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let leading: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&leading["event"], &leading["value"]), (&"leading".into(), &"a:1".into()));
    let seen = sight();
    assert_eq!((&seen["value"], &seen["token"]), (&"a:1".into(), &leading["token"]));
    assert_eq!(stage.code(["elect", "-n", "office", "b:1"]), Some(75));
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(0));
    assert_eq!(sight(), Value::Null);
    let ran = stage.output(["elect", "office", "c:1", "--", "sh", "-c", "echo $LEASEHOLD_KEY; exit 4"]);
    assert_eq!((ran.status.code(), ran.stdout), (Some(4), b"office\n".to_vec()));
    assert_eq!(sight()["value"], "c:1");
    listener.signal(Signal::INT);
    assert_eq!(listener.code(), Some(0));
}

#[test]
fn a_leader_that_is_evicted_says_so_by_its_code() {
    let stage = Stage::new();
    let mut leader = stage.start(["elect", "k", "a:1"]);
    let mut line = String::new();
    BufReader::new(leader.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("leading \"k\" with token "), "{line}");
    assert_eq!(stage.code(["evict", "k", &stage.holder_entry()]), Some(0));
    assert_eq!(leader.code(), Some(76));
}
