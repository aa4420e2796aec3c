//! A PostgreSQL server for tests, and a pooler in front of it.

use std::path::Path;
use std::process::Command;

use crate::sh;

/// What of it is missing. Debian's package makes a service too, which tests do not use.
pub(super) fn packages() -> Vec<&'static str> {
    let runs = |program: &str| sh::succeeds(Command::new(program).arg("--version"));
    // Its programs are off the PATH, in a folder for each version.
    let has_server = runs("postgres") || Path::new("/usr/lib/postgresql").is_dir();
    let missing = [(has_server && runs("psql"), "postgresql"), (runs("pgbouncer"), "pgbouncer")];
    missing.into_iter().filter(|(is_there, _)| !is_there).map(|(_, package)| package).collect()
}
