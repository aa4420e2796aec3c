//! A wall clock for one program, which the test sets.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::{Failure, PATIENCE, Result, folder, process};

/// Put between a program and libc. Debian's `libfaketime` cannot be: `redis-server` does not start under it.
const SHIM: &str = include_str!("../shim/clock.c");

/// The clock of programs that are started with it, and how far it is ahead of the machine's.
#[derive(Debug)]
pub(crate) struct WallClock {
    shim: PathBuf,
    ahead: PathBuf,
    _folder: TempDir, // removed with it
}

impl WallClock {
    /// Needs a C compiler.
    pub(crate) fn new() -> Result<Self> {
        let folder = folder::make()?;
        let [source, shim, ahead] = ["clock.c", "clock.so", "clock"].map(|name| folder.path().join(name));
        let written = fs::write(&source, SHIM).and_then(|()| fs::write(&ahead, 0i64.to_ne_bytes()));
        written.map_err(Failure::during("cannot make a clock"))?;
        let mut cc = process::tied("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).args([&shim, &source]);
        process::output(cc, PATIENCE)?;
        Ok(Self { shim, ahead, _folder: folder })
    }

    /// The program goes by this clock.
    pub(crate) fn rule(&self, program: &mut Command) {
        program.env("LD_PRELOAD", &self.shim).env("LEASEHOLD_CLOCK", &self.ahead);
    }

    /// Sets how far it is ahead of the machine's, or behind it.
    pub(crate) fn set_ahead(&self, micros: i64) -> Result {
        // In place: whoever goes by it has the file mapped.
        let file = OpenOptions::new().write(true).open(&self.ahead);
        let set = file.and_then(|file| file.write_all_at(&micros.to_ne_bytes(), 0));
        set.map_err(Failure::during("cannot set a clock"))
    }
}
