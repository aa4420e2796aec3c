//! The program measures a store, and leaves it as it was.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testbed::redis::Server;
use rustix::process::Signal;
use serde_json::{Value, json};

mod stage;

use stage::{Running, Stage, now, until};

/// The shortest that is allowed.
const TIME: &str = "8s";

/// How much longer than that it may take until everything is given back, and how long a busy machine needs to start it.
const AFTER: Duration = Duration::from_secs(10 + 5);

/// Only while locks are held for their own sake there are more keys: one for each of 16 tasks, and that of the bench itself.
const WHILE_HELD: usize = 17;

/// A store to measure.
struct World {
    stage: Stage,
    url: String,
}

impl World {
    fn in_a_file() -> Self {
        let stage = Stage::new();
        Self { url: format!("sqlite:{}", stage.path("locks.db").display()), stage }
    }

    fn on(server: &Server) -> Self {
        Self { stage: Stage::new(), url: server.url() }
    }

    fn leasehold<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut program = self.stage.bare();
        program.env("LEASEHOLD_URL", &self.url).args(arguments);
        program
    }

    fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        Running::start(self.leasehold(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// The names of all keys that somebody holds or awaits.
    fn keys(&self) -> Vec<String> {
        let listed = self.leasehold(["--json", "ls"]).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let keys: Value = serde_json::from_slice(&listed.stdout).unwrap();
        keys.as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect()
    }

    /// A bench whose result is what the documentation says, in the time that it promises.
    fn is_measured(&self, keys: u64) {
        let began = now();
        let bench = ["bench", "--time", TIME, "--keys", &keys.to_string(), "--json"];
        let output = self.leasehold(bench).output().unwrap();
        assert!(began.until(now()) < Duration::from_secs(8) + AFTER, "{:?}", began.until(now()));
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(self.keys(), [""; 0]);

        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&report["time_ms"], &report["keys"]), (&json!(8000), &json!(keys)), "{report}");
        assert!(self.url.starts_with(report["store"].as_str().unwrap()), "{report}");
        for (what, tasks, keys) in [("pairs", [1, 16], [1, 16]), ("hand_overs", [4, 16], [1, 1])] {
            let measured = report[what].as_array().unwrap();
            assert_eq!(measured.iter().map(|one| &one["tasks"]).collect::<Vec<_>>(), tasks, "{report}");
            assert_eq!(measured.iter().map(|one| &one["keys"]).collect::<Vec<_>>(), keys, "{report}");
            for one in measured {
                assert!(one["count"].as_u64() > Some(0) && one["per_second"].as_f64() > Some(0.0), "{report}");
                assert!(one["took_us_p50"].as_u64() > Some(0), "{report}");
                assert!(one["took_us_p50"].as_u64() <= one["took_us_p99"].as_u64(), "{report}");
            }
        }
        let held = &report["held"];
        assert_eq!((&held["lease_ms"], &held["error"]), (&json!(3000), &Value::Null), "{report}");
        // A machine that stands still for a lease loses some, and one that is slow takes fewer.
        assert!(["keys", "time", "lost"].contains(&held["ended"].as_str().unwrap()), "{report}");
        let steps = held["steps"].as_array().unwrap();
        assert!(!steps.is_empty(), "{report}");
        for step in steps {
            assert!((1..=keys).contains(&step["locks"].as_u64().unwrap()), "{report}");
            assert!(step["lease_left_us_min"].as_u64() < Some(3_000_000), "{report}");
            assert!(step["late_us_p50"].as_u64() <= step["late_us_p99"].as_u64(), "{report}");
        }
        let unharmed = steps.iter().filter(|step| step["lost"] == 0).filter_map(|step| step["locks"].as_u64()).max();
        assert_eq!(held["most"].as_u64(), Some(unharmed.unwrap_or(0)), "{report}");
    }

    /// A bench that a signal ends once it has more than so many keys.
    fn is_given_back_after(&self, signal: Signal, keys: usize) {
        let mut bench = self.start(["bench", "--time", "20s"]);
        until("it has keys", || self.keys().len() > keys);
        bench.signal(signal);
        assert_eq!(bench.code(), Some(128 + signal.as_raw()));
        assert_eq!(self.keys(), [""; 0]);
        assert!(bench.talk().contains("interrupted"));
    }
}

#[test]
fn a_file_is_measured_with_no_more_keys_than_allowed_and_nothing_is_left_in_it() {
    World::in_a_file().is_measured(100);
}

#[test]
fn a_redis_server_is_measured_in_no_more_time_than_allowed_and_no_lock_is_left_on_it() {
    let server = Server::start().unwrap();
    // More than there is time for.
    World::on(&server).is_measured(100_000);
    assert_eq!(server.cli(&["KEYS", "lock:*"]), "");
}

#[test]
fn an_interrupt_gives_everything_in_a_file_back() {
    let world = World::in_a_file();
    world.is_given_back_after(Signal::INT, 0);
    world.is_given_back_after(Signal::INT, WHILE_HELD);
}

#[test]
fn a_signal_gives_everything_on_a_redis_server_back() {
    let server = Server::start().unwrap();
    let world = World::on(&server);
    world.is_given_back_after(Signal::TERM, WHILE_HELD);
    assert_eq!(server.cli(&["KEYS", "lock:*"]), "");
}

#[test]
fn a_key_of_somebody_else_under_its_prefix_is_named_and_nothing_is_measured() {
    let world = World::in_a_file();
    let mut holder = world.start(["run", "leasehold-bench/theirs", "--label", "worker-7", "--", "sleep", "600"]);
    until("it holds", || world.keys().len() == 1);
    let refused = world.leasehold(["bench", "--time", TIME]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.stdout.is_empty() && said.lines().count() == 1, "{said}");
    assert!(said.contains("\"leasehold-bench/theirs\" is in use by worker-7 "), "{said}");
    assert!(said.contains("leasehold evict leasehold-bench/theirs "), "{said}");
    assert_eq!(world.keys(), ["leasehold-bench/theirs"], "theirs is untouched, and ours is given back");
    holder.signal(Signal::TERM);
    holder.code();
}

#[test]
fn a_value_that_another_program_has_written_under_its_prefix_is_not_measured_over() {
    let server = Server::start().unwrap();
    let world = World::on(&server);
    server.cli(&["SET", "lock:leasehold-bench/0", "theirs"]);
    let refused = world.leasehold(["bench", "--time", TIME]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("\"leasehold-bench/0\" is in use by foreign \"theirs\""), "{said}");
    assert_eq!(server.cli(&["GET", "lock:leasehold-bench/0"]), "theirs");
}

#[test]
fn one_bench_at_a_time_measures_a_store() {
    let world = World::in_a_file();
    let mut first = world.start(["bench", "--time", "30s"]);
    until("it measures", || !world.keys().is_empty());
    let second = world.leasehold(["bench", "--time", TIME]).output().unwrap();
    assert_eq!(second.status.code(), Some(75), "{second:?}");
    assert!(String::from_utf8_lossy(&second.stderr).contains("another bench runs on this store"), "{second:?}");
    assert!(!first.has_ended(), "the first one goes on");
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(143));
}

#[test]
fn what_cannot_be_measured_is_refused_before_the_store_is_opened() {
    let world = World::in_a_file();
    for (arguments, why) in [
        (&["--time", "2s"][..], "--time is 2.0s; it must be from 8.0s to 1h0m"),
        (&["--time", "0"], "--time is 0ms; it must be from"),
        (&["--time", "2h"], "--time is 2h0m; it must be from"),
        (&["--time", "soon"], "write seconds, such as 2.5"),
        (&["--keys", "0"], "0 is not in 16..=100000"),
        (&["--keys", "many"], "'many' for '--keys <N>'"),
        (&["--store", "memory:"], "name another"),
    ] {
        let refused = world.leasehold(["bench"]).args(arguments).output().unwrap();
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    }
    assert!(!world.stage.path("locks.db").exists());
}
