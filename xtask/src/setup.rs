//! Installs what is missing, and says so. Where nothing is missing it changes nothing.

mod etcd;
mod mysql;
mod packages;
mod peers;
mod postgres;
mod redis;
mod zookeeper;

use std::path::PathBuf;
use std::process::Command;

use crate::{Result, sh};

/// Installed where it is missing; one that is on the PATH is used as it is.
const CARGO_DENY_VERSION: &str = "0.20.2";

pub(crate) fn run() -> Result {
    for component in ["rustfmt", "clippy"] {
        let subcommand = component.trim_start_matches("rust");
        if sh::succeeds(&mut sh::cargo(&format!("{subcommand} --version"))) {
            continue;
        }
        sh::run(&mut sh::command("rustup", ["component", "add", component])).map_err(|failure| {
            format!("{component} is missing: {failure}\ninstall the {component} that belongs to your Rust toolchain")
        })?;
    }
    // Every platform's dependencies, not only this one's: cargo-deny looks at all of them, and does so offline.
    sh::run(&mut sh::cargo("fetch --locked"))?;
    if cargo_deny().is_none() {
        // A debug build: it takes half as long, and looks at this workspace in seconds.
        let install = format!("install cargo-deny --version {CARGO_DENY_VERSION} --locked --debug --root");
        sh::run(sh::cargo(&install).arg(tools()))?;
    }
    let peers = peers::Missing::find();
    let packages = [
        etcd::packages(),
        mysql::packages(),
        postgres::packages(),
        redis::packages(),
        zookeeper::packages(),
        peers.packages(),
    ];
    packages::install(&packages.concat())?;
    redis::link_server()?;
    peers.install()
}

/// The lock libraries of other languages, each with its version.
pub(crate) fn peers() -> Vec<String> {
    peers::pinned().chain(zookeeper::curator()).collect()
}

/// The installed cargo-deny, if there is one.
pub(crate) fn cargo_deny() -> Option<PathBuf> {
    let ours = tools().join("bin/cargo-deny");
    [PathBuf::from("cargo-deny"), ours].into_iter().find(|at| sh::succeeds(Command::new(at).arg("--version")))
}

/// Where everything goes that is installed for this repository alone. The testbed looks for it there.
fn tools() -> PathBuf {
    sh::target_dir().join("tools")
}
