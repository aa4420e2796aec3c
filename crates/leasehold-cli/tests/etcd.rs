//! The program on a real etcd cluster.

use std::process::{Command, Stdio};

use leasehold_testbed::etcd::Cluster;
use rustix::process::Signal;
use serde_json::{Value, json};

mod stage;

use stage::{Running, Stage, until};

struct World {
    stage: Stage,
    /// So that tests on the shared server do not meet.
    namespace: &'static str,
}

impl World {
    fn new(namespace: &'static str) -> Self {
        Self { stage: Stage::new(), namespace }
    }

    fn leasehold<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut program = self.stage.bare();
        program.env("LEASEHOLD_URL", Cluster::shared().url()).args(["--namespace", self.namespace]).args(arguments);
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
fn a_command_under_a_lock_keeps_others_out_and_is_shown_beside_what_etcdctl_holds() {
    let world = World::new("commands");
    let run = ["run", "k", "--", "sh", "-c", "echo > first; exec sleep 600"];
    let mut holder = Running::start(world.leasehold(run).stdout(Stdio::piped()).stderr(Stdio::piped()));
    until("it holds", || world.stage.line_in("first").is_some());
    let refused = world.leasehold(["run", "-n", "k", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let stranger = Cluster::shared().servers()[0].session(&["lock", "commands/theirs"]).unwrap();
    stranger.line();
    let keys = world.json(["--json", "ls"]);
    let seen: Vec<_> = keys.as_array().unwrap().iter().map(|key| &key["key"]).collect();
    assert_eq!(seen, [&json!("k"), &json!("theirs")], "{keys}");
    let theirs = world.json(["show", "--json", "theirs"]);
    assert_eq!(theirs["holders"][0]["foreign"], json!(true), "{theirs}");
    let refused = world.leasehold(["run", "-n", "theirs", "--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    stranger.end();
    holder.signal(Signal::TERM);
    holder.code();
    world.stdout(["run", "-n", "k", "--", "true"]);
    assert_eq!(world.json(["--json", "ls"]), json!([]));
}

#[test]
fn the_doctor_looks_at_the_cluster_and_locks_on_it() {
    let world = World::new("doctor");
    let checks = world.json(["doctor", "--json"]);
    let verdict = |check: &str| {
        checks.as_array().unwrap().iter().find(|found| found["check"] == check).map(|found| found["verdict"].clone())
    };
    for check in ["store", "version", "leader", "round trip"] {
        assert_eq!(verdict(check), Some(json!("ok")), "{check}: {checks}");
    }
    assert_eq!(verdict("members"), Some(json!("warn")), "one server is a risk: {checks}");
}
