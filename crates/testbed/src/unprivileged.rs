//! Servers that refuse to run as root: they run as nobody then, in a folder that is nobody's.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::{Failure, Result, process};

/// `nobody` and `nogroup`, on every Linux.
const NOBODY: u32 = 65_534;

/// A command tied to us as [`process::tied`] does it, and without the rights of root.
pub(crate) fn tied(program: impl AsRef<OsStr>) -> Command {
    if !rustix::process::geteuid().is_root() {
        return process::tied(program);
    }
    let id = NOBODY.to_string();
    process::tied_as(&["--reuid", &id, "--regid", &id, "--clear-groups"], program)
}

/// Gives it a file or a folder of its own.
pub(crate) fn give(path: &Path) -> Result {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let given = std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY));
    given.map_err(Failure::during(format!("cannot give {} away", path.display())))
}

/// Gives it a temporary folder: those of this process may be passed through from now on.
pub(crate) fn give_folder(folder: &TempDir) -> Result {
    let above = folder.path().parent().expect("a temporary folder is in another");
    let opened = fs::set_permissions(above, fs::Permissions::from_mode(0o711));
    opened.map_err(Failure::during(format!("cannot open {}", above.display())))?;
    give(folder.path())
}
