//! A MariaDB server for tests.

use std::path::Path;
use std::process::Command;

use crate::sh;

/// What of it is missing. Debian's package makes a service too, which tests do not use.
pub(super) fn packages() -> Vec<&'static str> {
    let runs = |program: &str| sh::succeeds(Command::new(program).arg("--version"));
    let has_server = runs("mariadbd") || Path::new("/usr/sbin/mariadbd").is_file();
    if has_server && runs("mariadb") { vec![] } else { vec!["mariadb-server"] }
}
