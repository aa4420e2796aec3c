//! Measures us beside the bare store and the peers. A workspace of its own, so that nobody builds the peers by accident.

use crate::{Result, setup, sh};

/// Of these stores, or of all of them.
pub(crate) fn run(stores: &[&str]) -> Result {
    setup::run()?;
    let mut bench = sh::cargo("run --release --locked --manifest-path bench/Cargo.toml --");
    bench.args(stores);
    sh::run(bench.env("CARGO_TARGET_DIR", sh::target_dir().join("bench")))
}
