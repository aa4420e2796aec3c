//! What can be said about the code without running it. `run` only reads; `fix` rewrites.

use crate::{Result, mutants, setup, sh, tidy};

pub(crate) fn run() -> Result {
    sh::run(&mut sh::cargo("fmt --all --check"))?;
    // The lints include `incompatible_msrv`: a call of std that is newer than the workspace's `rust-version` is found
    // here, with whichever newer toolchain.
    sh::run(&mut sh::cargo("clippy --workspace --all-targets --all-features --locked -- -D warnings"))?;
    sh::run(&mut sh::cargo("clippy --package leasehold --all-targets --no-default-features --locked -- -D warnings"))?;
    for feature in features(&sh::read(&sh::root().join("crates/leasehold/Cargo.toml"))?) {
        sh::run(&mut sh::cargo(&format!(
            "clippy --package leasehold --all-targets --no-default-features --features {feature} --locked -- -D warnings"
        )))?;
    }
    let deny = setup::cargo_deny().ok_or("cargo-deny is missing: run `cargo xtask setup`")?;
    // Without `advisories`: they are fetched from the network, and a check must give the same answer twice.
    sh::run(&mut sh::command(deny, "--offline --locked check bans licenses sources".split(' ')))?;
    tidy::run()?;
    mutants::refuse_stale()
}

pub(crate) fn fix() -> Result {
    sh::run(&mut sh::cargo("clippy --workspace --all-targets --all-features --fix --allow-dirty --allow-staged"))?;
    sh::run(&mut sh::cargo("fmt --all"))
}

/// The features that a manifest declares, but for the default ones and for those that only others ask for.
fn features(manifest: &str) -> Vec<&str> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let names = section
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim());
    names.filter(|name| *name != "default" && !name.starts_with(['#', '_'])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_features_of_a_manifest_are_those_of_its_section() {
        let manifest = "[package]\nname = \"x\"\n\n[features]\ndefault = [\"a\"]\na = [\"_e\"]\n_e = []\n# b = []\nc = [\"dep:c\"]\n\n[dependencies]\nd = \"1\"\n";
        assert_eq!(features(manifest), ["a", "c"]);
    }
}
