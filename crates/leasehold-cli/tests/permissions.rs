//! A file or a folder that this user may read and not write.

mod stage;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use stage::*;

/// `nobody`, on every system that has one. Nothing is forbidden to the superuser, who must become somebody else.
const NOBODY: u32 = 65534;

/// A stage that anybody may look at, and a program that anybody may run.
struct Visited {
    stage: Stage,
    program: PathBuf,
}

impl Visited {
    fn new() -> Self {
        let stage = Stage::new();
        let program = stage.path("leasehold");
        // The build folder may be closed to others. Not copied by this very process: another thread might fork while the
        // copy is open for writing, and a program that somebody can write cannot be run.
        assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_leasehold")).arg(&program).status().unwrap().success());
        let visited = Self { stage, program };
        visited.set_mode("", 0o755);
        visited.set_mode("leasehold", 0o755);
        visited
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.stage.path(name), Permissions::from_mode(mode)).unwrap();
    }

    fn output(&self, file: &str, arguments: &[&str]) -> Output {
        let mut program = Command::new(&self.program);
        program.env_clear().env("PATH", std::env::var("PATH").unwrap()).env("HOME", self.stage.folder.path());
        program.current_dir(self.stage.folder.path());
        program.arg("--store").arg(format!("sqlite:{}", self.stage.path(file).display())).args(arguments);
        if rustix::process::geteuid().is_root() {
            program.uid(NOBODY).gid(NOBODY);
        }
        program.output().unwrap()
    }

    /// Every command says in one line why it cannot use the file, and ends with the code for that.
    fn refuses(&self, file: &str, why: &str) {
        let commands: [&[&str]; 4] =
            [&["run", "k", "--", "echo", "ran"], &["ls"], &["show", "k"], &["elect", "k", "v"]];
        for arguments in commands {
            let output = self.output(file, arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(69), "{arguments:?}: {said}");
            assert!(
                output.stdout.is_empty() && said.lines().count() == 1 && said.contains(why),
                "{arguments:?}: {said}"
            );
        }
        let doctor = self.output(file, &["doctor"]);
        let found = String::from_utf8(doctor.stdout).unwrap();
        assert_eq!(doctor.status.code(), Some(1), "{found}");
        let store = found.lines().next().unwrap();
        assert!(store.starts_with("bad   store ") && store.contains(why), "{found}");
        assert!(!found.contains("this one"), "we are no client of what we could not open: {found}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_by_name_and_nothing_is_run() {
    let visited = Visited::new();
    fs::create_dir(visited.stage.path("folder")).unwrap();
    visited.set_mode("folder", 0o555);
    visited.refuses("folder/locks.db", "cannot make the file");
    visited.refuses("folder/below/locks.db", "cannot make the folder");
    assert_eq!(fs::read_dir(visited.stage.path("folder")).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_written_is_refused_and_its_owner_goes_on_using_it() {
    let visited = Visited::new();
    let stage = &visited.stage;
    let (mut holder, _) = stage.start_holder(&[], "until [ -e go ]; do sleep 0.02; done");
    for (beside, mode) in [("-door", 0o444), ("-wal", 0o444), ("-shm", 0o444), ("", 0o444), ("-clients", 0o555)] {
        visited.set_mode(&format!("locks.db{beside}"), mode);
    }
    visited.refuses("locks.db", "locks.db-door");
    let found = visited.output("locks.db", &["doctor"]).stdout;
    assert!(String::from_utf8(found).unwrap().contains("and may not write it: ask its owner"));
    // Whoever gets through the door is refused by the file itself.
    visited.set_mode("locks.db-door", 0o666);
    visited.refuses("locks.db", "the file cannot be written: mind its owner, its mode and its disk");
    for (beside, mode) in [("-door", 0o600), ("-wal", 0o600), ("-shm", 0o600), ("", 0o600), ("-clients", 0o700)] {
        visited.set_mode(&format!("locks.db{beside}"), mode);
    }
    fs::write(stage.path("go"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
}
