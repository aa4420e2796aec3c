//! Temporary folders that are gone in the end, even if the process had no time to remove them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::statvfs;
use tempfile::TempDir;

use crate::{Failure, Result};

/// How many bytes of memory must be left for one more server.
const ROOM_MIN: u64 = 2 << 30;

const PREFIX: &str = "leasehold-testbed-";

/// Locked by the process that owns the folder, for as long as it lives.
const OWNER: &str = "owner";

/// A new folder, removed when dropped; or, if this process is killed first, by a later one.
pub(crate) fn make() -> Result<TempDir> {
    static MINE: OnceLock<(PathBuf, File)> = OnceLock::new();
    make_in(&std::env::temp_dir(), &MINE)
}

/// The same in memory, where there is room: for a server that has to answer in time while others keep the disk busy. What it
/// wrote survives its process.
pub(crate) fn make_in_memory() -> Result<TempDir> {
    static MINE: OnceLock<(PathBuf, File)> = OnceLock::new();
    let memory = Path::new("/dev/shm");
    let has_room = statvfs(memory).is_ok_and(|room| room.f_bavail * room.f_frsize > ROOM_MIN);
    if has_room { make_in(memory, &MINE) } else { make() }
}

fn make_in(all: &Path, mine: &OnceLock<(PathBuf, File)>) -> Result<TempDir> {
    let failed = || Failure::during("cannot make a temporary folder");
    let (mine, _owner) = match mine.get() {
        Some(mine) => mine,
        None => {
            remove_ownerless(all);
            let owned = own_a_folder(all).map_err(failed())?;
            mine.get_or_init(|| owned)
        }
    };
    TempDir::new_in(mine).map_err(failed())
}

/// A folder that stays, and the lock that says whose it is.
fn own_a_folder(all: &Path) -> io::Result<(PathBuf, File)> {
    let folder = TempDir::with_prefix_in(PREFIX, all)?;
    // Locked before it has its name, so that nobody finds it without an owner.
    let unnamed = folder.path().join("unnamed");
    let owner = File::create_new(&unnamed)?;
    owner.lock()?;
    fs::rename(unnamed, folder.path().join(OWNER))?;
    Ok((folder.keep(), owner))
}

/// Removes what killed processes left behind. What cannot be removed belongs to another user.
fn remove_ownerless(all: &Path) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let folder = entry.path();
        if is_ours && File::open(folder.join(OWNER)).is_ok_and(|owner| owner.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_once_its_owner_is_gone_and_not_before() {
        let all = TempDir::new().unwrap();
        let (folder, owner) = own_a_folder(all.path()).unwrap();
        fs::write(folder.join("data"), "x").unwrap();
        remove_ownerless(all.path());
        assert!(folder.join("data").exists(), "its owner lives");
        drop(owner);
        // A process that is just being started has the lock too, until it runs its program.
        let is_removed = || {
            remove_ownerless(all.path());
            !folder.exists()
        };
        crate::until("a folder whose owner is gone is removed", is_removed).unwrap();
    }
}
