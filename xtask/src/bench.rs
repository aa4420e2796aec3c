//! Measures us beside the bare store and the peers. A workspace of its own, so that nobody builds the peers by accident.

use crate::{Result, sh};

pub(crate) fn run() -> Result {
    let mut bench = sh::cargo("run --release --locked --manifest-path bench/Cargo.toml");
    sh::run(bench.env("CARGO_TARGET_DIR", sh::target_dir().join("bench")))
}
