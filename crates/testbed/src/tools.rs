//! Programs that somebody installed, on the PATH or for this repository alone.

use std::path::{Path, PathBuf};

use crate::{Failure, Result};

/// Where a program lies, or what installs it.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    on_path.or_else(|| beside_us(&format!("bin/{name}"))).ok_or_else(|| missing(name))
}

/// Where a file lies that `cargo xtask setup` installs for this repository alone.
pub(crate) fn installed(file: &str) -> Result<PathBuf> {
    beside_us(file).ok_or_else(|| missing(file))
}

fn missing(what: &str) -> Failure {
    Failure::new(format!("{what} is missing; `cargo xtask setup` installs it"))
}

fn beside_us(file: &str) -> Option<PathBuf> {
    beside(&std::env::current_exe().ok()?, file)
}

/// A tool in the folder that was built into, however deep the program lies in it.
fn beside(program: &Path, file: &str) -> Option<PathBuf> {
    program.ancestors().map(|folder| folder.join("tools").join(file)).find(|tool| tool.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_beside_whatever_was_built_there() {
        let target = tempfile::TempDir::new().unwrap();
        let tool = target.path().join("tools/bin/x");
        std::fs::create_dir_all(tool.with_file_name("")).unwrap();
        std::fs::write(&tool, "").unwrap();
        assert_eq!(beside(&target.path().join("debug/deps/test-01"), "bin/x"), Some(tool.clone()));
        assert_eq!(beside(&target.path().join("mutants/build/debug/deps/test-01"), "bin/x"), Some(tool));
        assert_eq!(beside(&target.path().join("debug/deps/test-01"), "bin/y"), None);
    }
}
