//! The program on a real ZooKeeper server, beside whatever else locks there.

use std::process::{Command, Stdio};

use leasehold_testbed::interop::{Answer, ZookeeperLibrary};
use leasehold_testbed::zookeeper::Server;
use rustix::process::Signal;
use serde_json::{Value, json};

mod stage;

use stage::{PATIENCE, Running, SECRET, Stage, until};

struct World {
    url: String,
    stage: Stage,
}

impl World {
    fn new(test: &str) -> Self {
        let server = Server::shared().address();
        Self { url: format!("zookeeper://al:{SECRET}@{server}/{test}?acl=open"), stage: Stage::new() }
    }

    fn leasehold<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut program = self.stage.bare();
        program.env("LEASEHOLD_URL", &self.url).args(arguments);
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
}

#[test]
fn a_command_under_a_lock_keeps_others_out_and_is_shown_and_evicted() {
    let world = World::new("run");
    world.stdout(["run", "k", "--", "true"]);
    let run = ["run", "k", "--", "sh", "-c", "echo > first; exec sleep 600"];
    let mut holder = Running::start(world.leasehold(run).stdout(Stdio::piped()).stderr(Stdio::piped()));
    until("it holds", || world.stage.line_in("first").is_some());
    let refused = world.leasehold(["run", "-n", "k", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let keys = world.json(["--json", "ls"]);
    assert_eq!((keys.as_array().map(Vec::len), &keys[0]["key"]), (Some(1), &json!("k")), "{keys}");
    assert!(!world.stdout(["show", "k"]).contains(SECRET));
    let entry = world.json(["show", "--json", "k"])["holders"][0]["entry"].as_str().unwrap().to_owned();
    world.stdout(["evict", "k", &entry]);
    assert_eq!(holder.code(), Some(76), "it is told that it lost the lock");
    world.stdout(["run", "-n", "k", "--", "true"]);
}

#[test]
fn a_lock_of_curators_is_shown_and_keeps_us_out() {
    let world = World::new("curator");
    world.stdout(["run", "k", "--", "true"]);
    let mut peer = ZookeeperLibrary::Curator.start(&Server::shared().address()).unwrap();
    assert_eq!(peer.lock("mutex:/curator/lock/k", PATIENCE, PATIENCE).unwrap(), Answer::Held);
    let refused = world.leasehold(["run", "-n", "k", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let shown = world.json(["show", "--json", "k"]);
    assert_eq!(shown["holders"].as_array().map(Vec::len), Some(1), "{shown}");
    let run = ["run", "k", "--", "sh", "-c", "echo > first"];
    let mut waiter = Running::start(world.leasehold(run).stdout(Stdio::piped()).stderr(Stdio::piped()));
    until("we wait", || world.json(["show", "--json", "k"])["waiters"].as_array().map(Vec::len) == Some(1));
    assert_eq!(peer.unlock("mutex:/curator/lock/k").unwrap(), Answer::Released);
    assert_eq!(waiter.code(), Some(0));
    assert!(world.stage.line_in("first").is_some());
}

#[test]
fn the_doctor_says_what_was_agreed_with_the_server() {
    let world = World::new("doctor");
    let checks = world.json(["doctor", "--json"]);
    let verdict = |check: &str| {
        checks.as_array().unwrap().iter().find(|found| found["check"] == check).map(|found| found["verdict"].clone())
    };
    for check in ["store", "session", "leader", "version", "round trip"] {
        assert_eq!(verdict(check), Some(json!("ok")), "{check}: {checks}");
    }
    assert_eq!(verdict("mode"), Some(json!("warn")), "it stands alone: {checks}");
    let wrong =
        world.stage.bare().env("LEASEHOLD_URL", format!("zookeeper://{SECRET}@host")).arg("ls").output().unwrap();
    assert!(!String::from_utf8_lossy(&wrong.stderr).contains(SECRET), "{wrong:?}");
}

/// Whoever is stopped gives its place up.
#[test]
fn a_waiter_that_is_stopped_leaves_the_line() {
    let world = World::new("stopped");
    let hold = ["run", "k", "--", "sh", "-c", "echo > first; exec sleep 600"];
    let mut holder = Running::start(world.leasehold(hold).stdout(Stdio::piped()).stderr(Stdio::piped()));
    until("it holds", || world.stage.line_in("first").is_some());
    let mut waiter = Running::start(world.leasehold(["run", "k", "--", "true"]).stderr(Stdio::piped()));
    let waiting = || world.json(["show", "--json", "k"])["waiters"].as_array().map_or(0, Vec::len);
    until("it waits", || waiting() == 1);
    waiter.signal(Signal::TERM);
    waiter.code();
    until("it has left", || waiting() == 0);
    holder.signal(Signal::TERM);
    holder.code();
}
