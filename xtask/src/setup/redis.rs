//! A Redis server for tests, which is not a service of the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tools;
use crate::{Result, sh};

/// Contains the server's program, but under another name and without the service on port 6379 that `redis-server` starts.
const PACKAGE: &str = "redis-tools";

/// The same program as the server: which of them it is, it takes from the name by which it is called.
const SERVER_BY_ANOTHER_NAME: &str = "redis-check-rdb";

/// What of it is missing.
pub(super) fn packages() -> Vec<&'static str> {
    let has_cli = sh::succeeds(Command::new("redis-cli").arg("--version"));
    let has_server = is_there() || sh::find(SERVER_BY_ANOTHER_NAME).is_some();
    if has_cli && has_server { vec![] } else { vec![PACKAGE] }
}

/// Gives the server its name, in a place of our own.
pub(super) fn link_server() -> Result {
    if is_there() {
        return Ok(());
    }
    if let Some(program) = sh::find(SERVER_BY_ANOTHER_NAME) {
        link(&program, &ours()).map_err(|error| format!("cannot make {}: {error}", ours().display()))?;
    }
    if is_there() { Ok(()) } else { Err("redis-server is missing: install Redis so that it is on the PATH".into()) }
}

fn link(program: &Path, name: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(name.with_file_name(""))?;
    if name.is_symlink() {
        std::fs::remove_file(name)?; // it led nowhere
    }
    std::os::unix::fs::symlink(program, name)
}

fn ours() -> PathBuf {
    tools().join("bin/redis-server")
}

fn is_there() -> bool {
    is_server(Path::new("redis-server")) || is_server(&ours())
}

fn is_server(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| output.stdout.starts_with(b"Redis server"))
}
