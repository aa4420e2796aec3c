//! Running commands: each is shown before it runs, and one that fails says which it was.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// Where the workspace lies.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where everything that is built goes.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => std::path::absolute(dir).expect("the current directory is known"),
        None => root().join("target"),
    }
}

/// A command that runs in the workspace's root.
pub(crate) fn command<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// Cargo, with arguments that are separated by blanks.
pub(crate) fn cargo(args: &str) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args.split_whitespace())
}

/// Shows the command, runs it, and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result {
    let shown = show(command);
    let status = command.status().map_err(|error| format!("cannot run `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

/// As [`run`], and returns what the command wrote to its standard output, which is shown as it comes.
pub(crate) fn run_and_read(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let cannot = |error| format!("cannot run `{shown}`: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
        let line = line.map_err(cannot)?;
        println!("{line}");
        text += &line;
        text.push('\n');
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() { Ok(text) } else { Err(format!("`{shown}` failed ({status})")) }
}

/// Whether the command can be run and succeeds. Shows nothing.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Where a program lies on the PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn show(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> = [name].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    let shown = words.join(" ");
    eprintln!("  $ {shown}");
    shown
}

/// The tracked files and those that could be: everything that git does not ignore.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let output = command("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let listed = String::from_utf8(output.stdout).map_err(|_| "a file name is not UTF-8".to_owned())?;
    let mut files: Vec<PathBuf> = listed.split_terminator('\0').map(PathBuf::from).collect();
    files.retain(|file| root().join(file).is_file()); // one deleted since the last commit is still listed
    Ok(files)
}

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// How long something took.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a duration told to a person; no lease hangs on it")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
