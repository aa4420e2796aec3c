//! Measures us beside the bare store, and beside the peers, which nobody else builds.

use crate::{Result, setup, sh};

/// Where the figures are kept.
const FOLDER: &str = "docs/performance";

/// The workspace of the lock crates that are measured beside us, and those crates.
const WORKSPACE: &str = "crates/bench/peers";
const CRATES: [&str; 3] = ["rslock", "distributed-lock-redis", "zookeeper-client"];

/// Of these stores, or of all of them, whole; what was kept of others stays.
pub(crate) fn run(stores: &[&str]) -> Result {
    setup::run()?;
    sh::run(&mut sh::cargo("build --release --locked --package leasehold-cli"))?;
    let mut bench = sh::cargo(&format!("run --release --locked --manifest-path {WORKSPACE}/Cargo.toml -- --into"));
    bench.arg(FOLDER).args(stores);
    bench.env("LEASEHOLD_PEERS", versions(&sh::read(&sh::root().join(WORKSPACE).join("Cargo.lock"))?).join(", "));
    bench.env("LEASEHOLD_PROGRAM", sh::target_dir().join("release/leasehold"));
    sh::run(bench.env("CARGO_TARGET_DIR", sh::target_dir().join("bench")))
}

/// Everybody beside us, each with its version.
fn versions(locked: &str) -> Vec<String> {
    let version = |name: &&str| {
        let (_, after) = locked.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some(format!("{name} {}", after.split_once('"')?.0))
    };
    CRATES.iter().filter_map(version).chain(setup::peers()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_the_version_that_is_locked() {
        let locked = "[[package]]\nname = \"rslock-more\"\nversion = \"9.9.9\"\n\n[[package]]\nname = \"rslock\"\nversion = \"0.10.0\"\n";
        assert_eq!(versions(locked)[0], "rslock 0.10.0");
    }
}
