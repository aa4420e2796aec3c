//! The program on a majority of real Redis servers.

use std::process::{Command, Stdio};

use leasehold_testbed::redis::Server;
use rustix::process::Signal;
use serde_json::{Value, json};

mod stage;

use stage::{Running, Stage, until};

struct World {
    servers: Vec<Server>,
    stage: Stage,
}

impl World {
    fn new() -> Self {
        Self { servers: (0..3).map(|_| Server::start().unwrap()).collect(), stage: Stage::new() }
    }

    fn leasehold<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let hosts: Vec<String> = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        let mut program = self.stage.bare();
        program.env("LEASEHOLD_URL", format!("redlock://{}?blank=accept", hosts.join(","))).args(arguments);
        program
    }

    fn stdout<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> String {
        let output = self.leasehold(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }

    fn hold(&self, before: &[&str]) -> Running {
        let run = ["run", "k", "--", "sh", "-c", "echo > first; exec sleep 600"];
        let arguments = before.iter().copied().chain(run);
        let holder = Running::start(self.leasehold(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()));
        until("it holds", || self.stage.line_in("first").is_some());
        holder
    }
}

#[test]
fn a_command_under_a_lock_keeps_others_out_and_is_shown_with_its_servers() {
    let world = World::new();
    world.stdout(["run", "k", "--", "true"]);
    world.servers[2].kill();
    let mut holder = world.hold(&[]);
    let refused = world.leasehold(["run", "-n", "k", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let shown = world.json(["show", "--json", "k"]);
    assert_eq!(shown["holders"][0]["servers"], json!({"on": 2, "of": 3}), "{shown}");
    let table = world.stdout(["show", "k"]);
    assert!(table.contains("on 2 of 3 servers"), "{table}");
    holder.signal(Signal::TERM);
    holder.code();
    world.stdout(["run", "-n", "k", "--", "true"]);
}

#[test]
fn a_holder_is_listed_without_a_namespace_too_and_what_is_no_lock_is_not() {
    let world = World::new();
    world.servers.iter().for_each(|server| drop(server.cli(&["SET", "somebody", "else's"])));
    let mut holder = world.hold(&["--namespace", ""]);
    let keys = world.json(["--namespace", "", "--json", "ls"]);
    assert_eq!((keys.as_array().map(Vec::len), &keys[0]["key"]), (Some(1), &json!("k")), "{keys}");
    holder.signal(Signal::TERM);
    holder.code();
    assert_eq!(world.json(["--namespace", "", "--json", "ls"]), json!([]));
}

#[test]
fn the_doctor_says_how_many_servers_take_part() {
    let world = World::new();
    let verdict = |check: &str| {
        let checks = world.json(["doctor", "--json"]);
        checks.as_array().unwrap().iter().find(|found| found["check"] == check).map(|found| found["verdict"].clone())
    };
    for check in ["store", "quorum", "memory", "version", "role", "eviction", "round trip"] {
        assert_eq!(verdict(check), Some(json!("ok")), "{check}");
    }
    world.servers[0].restart_empty().unwrap();
    assert_eq!((verdict("quorum"), verdict("memory")), (Some(json!("warn")), Some(json!("warn"))));
    assert_eq!(verdict("round trip"), Some(json!("ok")));
}
