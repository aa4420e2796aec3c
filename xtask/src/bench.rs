//! Measures us beside the bare store, and beside the peers, which nobody else builds.

use crate::{Result, setup, sh};

/// Where the figures are kept.
const FOLDER: &str = "docs/performance";

/// Of these stores, or of all of them, whole; what was kept of others stays.
pub(crate) fn run(stores: &[&str]) -> Result {
    setup::run()?;
    sh::run(&mut sh::cargo("build --release --locked --package leasehold-cli"))?;
    let mut bench = sh::cargo("run --release --locked --manifest-path crates/bench/peers/Cargo.toml -- --into");
    bench.arg(FOLDER).args(stores);
    bench.env("LEASEHOLD_PROGRAM", sh::target_dir().join("release/leasehold"));
    sh::run(bench.env("CARGO_TARGET_DIR", sh::target_dir().join("bench")))
}
