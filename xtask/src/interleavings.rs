//! Runs the tests that try the thread schedules of the lease machinery. They need the crate built on other locks and
//! atomics, hence a build of their own.

use std::path::Path;
use std::process::Command;

use crate::{Result, sh};

pub(crate) fn run() -> Result {
    let mut tests = sh::cargo("test --package leasehold --lib --locked interleavings::");
    let output = sh::run_and_read(build_for(&mut tests, &sh::target_dir().join("shuttle")))?;
    match passed(&output) {
        0 => Err("no test of the interleavings ran: were they renamed, or compiled out?".into()),
        _ => Ok(()),
    }
}

/// Lets cargo build for them, in a place of its own so that the flag does not rebuild everything else. Every copy of the
/// tree needs another place: cargo takes what it built from one copy for a build of the other.
pub(crate) fn build_for<'a>(cargo: &'a mut Command, place: &Path) -> &'a mut Command {
    cargo.env("RUSTFLAGS", "--cfg shuttle").env("CARGO_TARGET_DIR", place)
}

/// How many tests passed, going by the summary.
fn passed(output: &str) -> usize {
    let counts = output.lines().filter_map(|line| {
        let (before, _) = line.strip_prefix("test result: ")?.split_once(" passed")?;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_matches_nothing_is_told_from_tests_that_passed() {
        let none = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 71 filtered out\n";
        let some = "running 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 69 filtered out\n";
        assert_eq!((passed(none), passed(some), passed("")), (0, 2, 0));
    }
}
