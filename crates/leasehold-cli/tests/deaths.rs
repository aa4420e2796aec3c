//! What becomes of a lock and of the command under it when a process is killed, stopped or evicted.

mod stage;

use std::fs;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::fence::{FencingToken, Gate};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use stage::*;

#[test]
fn the_next_in_line_runs_at_once_when_the_holder_and_its_command_are_killed() {
    let stage = Stage::new();
    let (holder, command) = stage.start_holder(&[], "exec sleep 1000");
    let mut waiter = stage.start_waiter("echo mine > next", 1);
    let killed_at = now();
    holder.signal(Signal::KILL);
    kill_process_group(command, Signal::KILL).unwrap();
    until("the waiter's command runs", || stage.line_in("next").is_some());
    let took = killed_at.until(now());
    println!("a kill of holder and command handed over in {took:?}");
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(waiter.code(), Some(0));
}

#[test]
fn a_command_dies_with_its_parent_and_only_then_the_next_one_runs() {
    let stage = Stage::new();
    let (holder, command) = stage.start_holder(&[], STUBBORN);
    let pid = command.as_raw_nonzero();
    let look = format!("if [ -e /proc/{pid} ]; then grep State /proc/{pid}/status; fi > next; echo end >> next");
    let mut waiter = stage.start_waiter(&look, 1);
    let killed_at = now();
    holder.signal(Signal::KILL);
    until("the waiter's command runs", || stage.line_in("next").is_some_and(|seen| seen.ends_with("end")));
    let took = killed_at.until(now());
    println!("a kill of the holder alone handed over in {took:?}");
    assert!(took < AT_ONCE, "{took:?}");
    let seen = stage.line_in("next").unwrap();
    assert!(seen == "end" || seen.contains("zombie") || seen.contains("dead"), "it was still there: {seen}");
    assert!(!stage.path("asked").exists(), "it was killed, not asked");
    assert_eq!(waiter.code(), Some(0));
}

#[test]
fn a_dead_holder_is_not_in_the_way_of_whoever_only_tries() {
    let stage = Stage::new();
    let (holder, command) = stage.start_holder(&[], "exec sleep 1000");
    holder.signal(Signal::KILL);
    until("the command dies", || is_dead(command));
    assert_eq!(stage.code(["run", "-n", "k", "--", "true"]), Some(0));
}

#[test]
fn the_dead_are_not_shown() {
    let stage = Stage::new();
    let (mut holder, command) = stage.start_holder(&[], "exec sleep 1000");
    let mut watch = stage.start(["watch", "k", "--every", "50ms"]);
    let mut events = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut event = || -> Value { serde_json::from_str(&events.next().unwrap().unwrap()).unwrap() };
    assert_eq!(event()["event"], "holding");
    let mut waiter = stage.start_waiter("true", 1);
    assert_eq!(event()["event"], "waiting");
    waiter.signal(Signal::KILL);
    until("the waiter dies", || waiter.has_ended());
    assert_eq!(stage.waiting(), 0);
    let left = event();
    assert_eq!((&left["event"], &left["was"]), (&"left".into(), &"waiting".into()));
    holder.signal(Signal::KILL);
    kill_process_group(command, Signal::KILL).unwrap();
    until("the holder and its command die", || holder.has_ended() && is_dead(command));
    let listed = stage.output(["ls", "--json"]);
    assert_eq!(listed.stdout, b"[]\n", "{listed:?}");
    assert_eq!(event()["was"], "holding");
}

#[test]
fn a_listener_hears_at_once_that_the_leader_was_killed() {
    let stage = Stage::new();
    let mut listener = stage.start(["--json", "elect", "--listen", "k"]);
    let mut sights = BufReader::new(listener.0.stdout.take().unwrap()).lines();
    let mut leader = || serde_json::from_str::<Value>(&sights.next().unwrap().unwrap()).unwrap()["leader"].clone();
    assert_eq!(leader(), Value::Null);
    let candidate = stage.start(["elect", "k", "a:1"]);
    assert_eq!(leader()["value"], "a:1");
    let killed_at = now();
    candidate.signal(Signal::KILL);
    assert_eq!(leader(), Value::Null);
    let took = killed_at.until(now());
    assert!(took < AT_ONCE, "{took:?}");
}

#[test]
fn what_the_command_left_running_keeps_the_lock_of_a_killed_holder() {
    let stage = Stage::new();
    let (holder, command) = stage.start_holder(&[], "sleep 1000 & echo $! > left; wait");
    until("its own child runs", || stage.line_in("left").is_some());
    let left = Pid::from_raw(stage.line_in("left").unwrap().parse().unwrap()).unwrap();
    holder.signal(Signal::KILL);
    until("the command dies", || is_dead(command));
    assert_eq!(stage.code(["run", "-w", "300ms", "k", "--", "true"]), Some(75));
    let mut waiter = stage.start_waiter("true", 1);
    let killed_at = now();
    kill_process(left, Signal::KILL).unwrap();
    assert_eq!(waiter.code(), Some(0));
    let took = killed_at.until(now());
    assert!(took < AT_ONCE, "{took:?}");
}

#[test]
fn a_holder_that_was_stopped_past_its_lease_stops_its_command_and_says_so() {
    let stage = Stage::new();
    let (mut holder, command) =
        stage.start_holder(&["--ttl", "1s"], "echo $LEASEHOLD_TOKEN > stopped; exec sleep 1000");
    until("it has its token", || stage.line_in("stopped").is_some());
    holder.signal(Signal::STOP);
    let next = ["run", "k", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN > next"];
    assert_eq!(stage.code(next), Some(0), "the lease ends and the next one has its turn");
    assert!(!is_dead(command), "nobody could stop it meanwhile");
    holder.signal(Signal::CONT);
    assert_eq!(holder.code(), Some(76));
    assert!(is_dead(command));
    assert!(holder.talk().contains("was lost"));

    // What it might still have written is refused by whoever has seen the next one's token.
    let [stopped, next]: [FencingToken; 2] =
        ["stopped", "next"].map(|file| stage.line_in(file).unwrap().parse().unwrap());
    let gate = Gate::new();
    gate.admit(next).unwrap();
    assert_eq!(gate.admit(stopped).unwrap_err().kind(), ErrorKind::Stale);
}

/// What is left of it keeps the pipe open by which others would know that it is gone.
#[test]
fn where_nobody_can_see_that_a_holder_is_gone_its_lease_bounds_the_wait() {
    let stage = Stage::new();
    let (holder, command) = stage.start_holder(&["--ttl", "1s"], "sleep 1000 & echo $! > left; wait");
    until("its own child runs", || stage.line_in("left").is_some());
    let left = Pid::from_raw(stage.line_in("left").unwrap().parse().unwrap()).unwrap();
    holder.signal(Signal::KILL);
    let killed_at = now();
    until("the command dies", || is_dead(command));
    assert_eq!(stage.code(["run", "k", "--", "true"]), Some(0));
    let took = killed_at.until(now());
    assert!(took <= Duration::from_secs(2), "a lease of 1 s kept it for {took:?}");
    assert!(!is_dead(left));
    kill_process(left, Signal::KILL).unwrap();
}

#[test]
fn a_lock_that_was_lost_while_the_command_ended_is_not_success() {
    let stage = Stage::new();
    let (mut holder, command) = stage.start_holder(&["--ttl", "1s"], "until [ -e go ]; do sleep 0.02; done");
    holder.signal(Signal::STOP);
    assert_eq!(stage.code(["run", "k", "--", "touch", "go"]), Some(0));
    until("the command ends", || is_dead(command));
    holder.signal(Signal::CONT);
    assert_eq!(holder.code(), Some(76));
}

#[test]
fn a_killed_waiter_does_not_stall_the_line() {
    let stage = Stage::new();
    let (mut holder, _) = stage.start_holder(&[], "exec sleep 1000");
    let first = stage.start_waiter("echo first > next", 1);
    let mut second = stage.start_waiter("echo second > next", 2);
    first.signal(Signal::KILL);
    let left_at = now();
    holder.signal(Signal::TERM);
    until("the second one runs", || stage.line_in("next").is_some());
    let took = left_at.until(now());
    println!("past a killed waiter, the lock was handed over in {took:?}");
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(stage.line_in("next").unwrap(), "second");
    assert_eq!((holder.code(), second.code()), (Some(128 + 15), Some(0)));
}

#[test]
fn an_evicted_command_that_ignores_term_is_killed_after_its_grace() {
    let stage = Stage::new();
    let (mut holder, command) = stage.start_holder(&["--grace", "300ms"], STUBBORN);
    let evicted_at = now();
    assert_eq!(stage.code(["evict", "k", &stage.holder_entry()]), Some(0));
    until("the command dies", || is_dead(command));
    let took = evicted_at.until(now());
    assert!(stage.path("asked").exists(), "it was asked first");
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert_eq!(holder.code(), Some(76));
}

#[test]
fn a_command_that_ignores_term_is_killed_before_the_lease_ends_when_renewals_fail() {
    let stage = Stage::new();
    let (mut holder, command) = stage.start_holder(&["--ttl", "3s"], STUBBORN);
    // Looked at from here: what a program needs to start on a busy machine would be taken off the lease.
    let locks = leasehold::blocking::connect(&format!("sqlite:{}", stage.path("locks.db").display())).unwrap();
    let (seen_at, view) = (now(), locks.inspect("k").unwrap().unwrap());
    let left = view.holders[0].lease_left;
    // From here on nobody can write the store. A renewal that still got through has only made the lease longer.
    let door = fs::File::open(stage.path("locks.db-door")).unwrap();
    door.lock().unwrap();
    until("the command dies", || is_dead(command));
    let died_after = seen_at.until(now());
    assert!(died_after < left, "{died_after:?} of {left:?}");
    assert!(stage.path("asked").exists(), "it was asked first");
    assert_eq!(holder.code(), Some(76));
    assert!(holder.talk().contains("cannot be renewed"));
}

#[test]
fn a_command_may_go_on_without_its_lock_if_told_so() {
    let stage = Stage::new();
    let ignoring = ["--on-lost", "ignore"];
    let (mut holder, command) = stage.start_holder(&ignoring, "until [ -e go ]; do sleep 0.02; done; echo done > end");
    assert_eq!(stage.code(["evict", "k", &stage.holder_entry()]), Some(0));
    let mut talk = BufReader::new(holder.0.stderr.take().unwrap());
    let mut said = String::new();
    talk.read_line(&mut said).unwrap();
    assert!(said.contains("was lost") && said.contains("goes on"), "{said}");
    assert!(!is_dead(command));
    fs::write(stage.path("go"), "").unwrap();
    assert_eq!(holder.code(), Some(76));
    assert_eq!(stage.line_in("end").unwrap(), "done");
}
