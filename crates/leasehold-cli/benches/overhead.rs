//! What a lock adds to a command, beside `flock(1)`: `cargo bench -p leasehold-cli --bench overhead`.
//!
//! The three take turns, so that noise hits all alike.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::clock::Clock;
use tempfile::TempDir;

const ROUNDS: usize = 150;

fn main() {
    let folder = TempDir::new().unwrap();
    let (file, store) = (folder.path().join("flock"), folder.path().join("locks.db"));
    let mut bare = Command::new("true");
    let mut flock = Command::new("flock");
    flock.arg(&file).arg("true");
    let mut ours = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    ours.env("LEASEHOLD_URL", format!("sqlite:{}", store.display())).args(["run", "k", "--", "true"]);
    let clock = Clock::boot();
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (took, command) in took.iter_mut().zip([&mut bare, &mut flock, &mut ours]) {
            let start = clock.now();
            let ended = command.stdin(Stdio::null()).status().unwrap();
            took.push(start.until(clock.now()));
            assert!(ended.success());
        }
    }
    let [bare, flock, ours] = took.map(median);
    println!("true: {bare:?}; under flock: {flock:?}; under leasehold: {ours:?}, which is {:?} more", ours - bare);
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
