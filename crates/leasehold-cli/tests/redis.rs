//! The program on a real Redis server, beside programs of another kind.

use std::fs;
use std::process::{Command, Output, Stdio};

use leasehold_testbed::redis::Server;
use rustix::process::Signal;
use serde_json::{Value, json};

mod stage;

use stage::{Running, SECRET, Stage, until};

/// Programs on a server of their own.
struct World {
    server: Server,
    stage: Stage,
}

impl World {
    fn new() -> Self {
        Self { server: Server::start().unwrap(), stage: Stage::new() }
    }

    fn leasehold<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        on(&self.stage, &self.server.url(), arguments)
    }

    fn output<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Output {
        self.leasehold(arguments).output().unwrap()
    }

    fn stdout<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }

    fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        Running::start(self.leasehold(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }
}

/// The program with a URL that is in its environment alone.
fn on<'a>(stage: &Stage, url: &str, arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut program = stage.bare();
    program.env("LEASEHOLD_URL", url).args(arguments);
    program
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[test]
fn commands_under_one_lock_run_one_at_a_time_in_the_order_of_their_arrival() {
    let world = World::new();
    let mut holder = world.start([
        "run",
        "k",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_TOKEN > first; while [ ! -e go ]; do sleep 0.01; done",
    ]);
    until("it holds", || world.stage.line_in("first").is_some());
    let busy = world.output(["run", "-n", "k", "--", "true"]);
    assert_eq!(busy.status.code(), Some(75), "{busy:?}");
    assert!(text(&busy.stderr).contains("\"k\" is held by"), "{busy:?}");

    let mut waiter = world.start(["run", "k", "--", "sh", "-c", "[ -e go ] && echo $LEASEHOLD_TOKEN > second"]);
    until("it waits", || world.json(["--json", "show", "k"])["waiters"].as_array().is_some_and(|line| line.len() == 1));
    fs::write(world.stage.path("go"), "").unwrap();
    assert_eq!((holder.code(), waiter.code()), (Some(0), Some(0)));
    let token = |name| world.stage.line_in(name).unwrap().parse::<u64>().unwrap();
    assert!(token("first") < token("second"));
    assert_eq!(world.json(["--json", "ls"]), json!([]));
}

#[test]
fn a_holder_of_another_kind_keeps_us_out_and_is_shown_as_what_it_is() {
    let world = World::new();
    let value = "bull-\u{1b}[2J-4711";
    assert_eq!(world.server.cli(&["SET", "lock:k", value, "NX", "PX", "600000"]), "OK");
    let busy = world.output(["run", "-n", "k", "--", "true"]);
    assert_eq!(busy.status.code(), Some(75), "{busy:?}");
    assert!(text(&busy.stderr).contains("\"k\" is held by a program of another kind"), "{busy:?}");

    let keys = world.json(["--json", "ls"]);
    let holder = &keys[0]["holders"][0];
    assert_eq!((&keys[0]["key"], &holder["foreign"], &holder["owner"]), (&json!("k"), &json!(true), &json!(value)));
    assert_eq!(holder["token"], Value::Null);
    assert!(holder["lease_left_ms"].as_u64().unwrap() <= 600_000, "{holder}");

    for shown in [world.stdout(["ls"]), world.stdout(["show", "k"])] {
        let row = shown.lines().last().unwrap();
        assert!(row.contains("foreign \"bull-\\u{1b}[2J-4711\"") && !row.contains("0@"), "{shown}");
    }
    let change: Value = world.json(["watch", "--count", "1", "k"]);
    assert_eq!((&change["event"], &change["foreign"]), (&json!("holding"), &json!(true)));
}

#[test]
fn a_holder_of_another_kind_cannot_be_asked_but_evicted() {
    let world = World::new();
    world.server.cli(&["SET", "lock:k", "theirs"]);
    let asked = world.output(["yield", "k"]);
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
    assert!(
        text(&asked.stderr).contains("\"k\" is held by a program of another kind, which cannot be asked"),
        "{asked:?}"
    );
    let entry = world.json(["--json", "show", "k"])["holders"][0]["entry"].as_str().unwrap().to_owned();
    let evicted = world.stdout(["evict", "k", &entry]);
    assert!(evicted.ends_with("of foreign \"theirs\", which held \"k\" (lock)\n"), "{evicted}");
    assert_eq!(world.server.cli(&["EXISTS", "lock:k"]), "0");
}

#[test]
fn whoever_waits_for_a_holder_of_another_kind_is_told_so_and_gets_the_lock_when_it_is_gone() {
    let world = World::new();
    world.server.cli(&["SET", "lock:k", "theirs"]);
    let row = world.stdout(["ls"]).lines().last().unwrap().to_owned();
    assert!(row.contains("foreign \"theirs\"") && row.ends_with("for ever"), "{row}");
    assert_eq!(world.json(["--json", "ls"])[0]["holders"][0]["lease_left_ms"], Value::Null);

    let mut waiter = Running::start(
        world.leasehold(["-v", "run", "k", "--", "true"]).stderr(fs::File::create(world.stage.path("talk")).unwrap()),
    );
    let told = || fs::read_to_string(world.stage.path("talk")).unwrap();
    until("it says whom it waits for", || {
        told().contains("waiting for \"k\", held by foreign \"theirs\": 1st of 1 in line")
    });
    assert_eq!(world.json(["--json", "show", "k"])["waiters"][0]["foreign"], json!(false));
    world.server.cli(&["DEL", "lock:k"]);
    assert_eq!(waiter.code(), Some(0));
}

#[test]
fn a_holder_that_nobody_awaits_is_listed_without_a_namespace_too() {
    let world = World::new();
    let mut holder = world.start(["--namespace", "", "run", "k", "--", "sh", "-c", "echo > first; exec sleep 600"]);
    until("it holds", || world.stage.line_in("first").is_some());
    let keys = world.json(["--namespace", "", "--json", "ls"]);
    assert_eq!((&keys[0]["key"], keys[0]["holders"].as_array().map(Vec::len)), (&json!("k"), Some(1)), "{keys}");
    holder.signal(Signal::TERM);
    holder.code();
    assert_eq!(world.json(["--namespace", "", "--json", "ls"]), json!([]));
}

#[test]
fn a_user_with_the_rights_that_the_documentation_names_can_do_everything() {
    let world = World::new();
    let documented = include_str!("../../../docs/backends/redis.md");
    let recipe =
        documented.lines().skip_while(|line| !line.starts_with("ACL SETUSER")).take_while(|line| *line != "```");
    let recipe = recipe.collect::<Vec<_>>().join(" ").replace("SECRET", SECRET);
    let words: Vec<&str> = recipe.split([' ', '\\']).filter(|word| !word.is_empty()).collect();
    assert_eq!(world.server.cli(&words), "OK");
    world.server.cli(&["ACL", "LOG", "RESET"]);
    let as_user = |arguments: &[&str]| {
        let url = format!("redis://locks:{SECRET}@127.0.0.1:{}", world.server.port());
        on(&world.stage, &url, arguments.iter().copied())
    };
    let succeeds = |arguments: &[&str]| {
        let output = as_user(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let mut leader = Running::start(as_user(&["elect", "k", "me"]).stdout(Stdio::piped()).stderr(Stdio::piped()));
    until("it leads", || !world.json(["--json", "ls"]).as_array().unwrap().is_empty());
    let mut reader = Running::start(as_user(&["run", "-s", "k", "--", "true"]).stderr(Stdio::piped()));
    until("it waits", || world.json(["--json", "show", "k"])["waiters"].as_array().is_some_and(|line| line.len() == 1));
    for arguments in [&["ls"][..], &["yield", "k"], &["run", "--of", "3", "permits", "--", "true"], &["doctor"]] {
        succeeds(arguments);
    }
    leader.signal(Signal::TERM);
    assert_eq!((leader.code(), reader.code()), (Some(0), Some(0)));
    succeeds(&["run", "k", "--", "true"]);
    let refused = world.server.cli(&["ACL", "LOG"]);
    assert!(!refused.lines().any(|line| line == "command" || line == "key" || line == "channel"), "{refused}");
}

#[test]
fn the_doctor_says_what_the_server_says_of_itself() {
    let world = World::new();
    let checks = world.json(["doctor", "--json"]);
    let verdict = |name: &str| {
        checks.as_array().unwrap().iter().find(|check| check["check"] == name).map(|check| &check["verdict"])
    };
    for (check, expected) in [
        ("store", "ok"),
        ("version", "ok"),
        ("role", "ok"),
        ("eviction", "ok"),
        ("persistence", "warn"),
        ("round trip", "ok"),
    ] {
        assert_eq!(verdict(check), Some(&json!(expected)), "{check}: {checks}");
    }
    world.server.cli(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"]);
    let sick = world.output(["doctor"]);
    assert_eq!(sick.status.code(), Some(1), "{sick:?}");
    assert!(text(&sick.stdout).starts_with("bad   store") && text(&sick.stdout).contains("noeviction"), "{sick:?}");
}

#[test]
fn a_server_that_cannot_be_reached_or_does_not_let_us_in_is_code_69_and_no_password_is_shown() {
    let stage = Stage::new();
    let server = Server::builder().password("right").start().unwrap();
    let wrong = format!("redis://:{SECRET}@127.0.0.1:{}", server.port());
    let closed = server.port();
    for command in [&["run", "k", "--", "true"][..], &["ls"], &["--json", "show", "k"], &["-v", "ls"]] {
        let refused = on(&stage, &wrong, command.iter().copied()).output().unwrap();
        assert_eq!(refused.status.code(), Some(69), "{refused:?}");
        assert!(text(&refused.stderr).contains("refused the user or the password"), "{refused:?}");
        assert!(!format!("{refused:?}").contains(SECRET), "{refused:?}");
    }
    let sick = on(&stage, &wrong, ["doctor"]).output().unwrap();
    assert_eq!(sick.status.code(), Some(1), "{sick:?}");
    assert!(!format!("{sick:?}").contains(SECRET), "{sick:?}");

    server.kill();
    let away =
        on(&stage, &format!("redis://me:{SECRET}@127.0.0.1:{closed}"), ["run", "k", "--", "true"]).output().unwrap();
    assert_eq!(away.status.code(), Some(69), "{away:?}");
    assert!(!format!("{away:?}").contains(SECRET), "{away:?}");
}

#[test]
fn the_password_is_in_no_argument_and_in_no_environment_but_our_own() {
    let stage = Stage::new();
    let server = Server::builder().password(SECRET).start().unwrap();
    let mut holder = Running::start(
        on(&stage, &server.url(), ["run", "k", "--", "sh", "-c", "env > env; echo $$ > pid; exec sleep 600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    until("the command runs", || stage.line_in("pid").is_some());
    assert!(!fs::read_to_string(stage.path("env")).unwrap().contains(SECRET));
    for pid in [holder.0.id().to_string(), stage.line_in("pid").unwrap()] {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&arguments).contains(SECRET));
    }
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(128 + 15));
    assert!(!holder.talk().contains(SECRET));
}
