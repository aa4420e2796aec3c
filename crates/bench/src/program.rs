//! The program beside others that run a command under a lock. Each of them starts anew for every command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold::clock::Clock;
use leasehold_testbed::etcd::Cluster;
use tempfile::TempDir;

use crate::contender::OURS;
use crate::sample::{BARE, Figures, Sample, Work, median};
use crate::{machine, progress};

pub(crate) const NAME: &str = "program";

/// Where the program lies that is measured.
const PROGRAM: &str = "LEASEHOLD_PROGRAM";

const ROUNDS: usize = 7;
const TIMES: usize = 20;

pub(crate) fn measure() -> Figures {
    let program = std::env::var_os(PROGRAM).map(PathBuf::from);
    let program = program.unwrap_or_else(|| panic!("{PROGRAM} must say where the program lies"));
    let (folder, etcd) = (TempDir::new().expect("a folder"), Cluster::start().expect("a server of our own"));
    let file = folder.path().join("locks.db");
    let mut flock = Command::new("flock");
    flock.arg(folder.path().join("flock")).arg("true");
    let mut etcdctl = Command::new("etcdctl");
    etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.servers()[0].address(), "lock", "k", "true"]);
    let mut commands = [
        (OURS, ours(&program, &format!("sqlite:{}", file.display()))),
        (BARE, Command::new("true")),
        ("flock", flock),
        ("leasehold on etcd", ours(&program, &etcd.url())),
        ("etcdctl lock", etcdctl),
    ];
    let clock = Clock::boot();
    let mut samples: Vec<Sample> = commands
        .iter()
        .map(|(name, _)| Sample { work: Work::Program, name: (*name).into(), at: 1, rounds: Vec::new() })
        .collect();
    for _ in 0..ROUNDS {
        for ((name, command), sample) in commands.iter_mut().zip(&mut samples) {
            progress::show(&format!("program: {name}"));
            let mut took = Vec::new();
            for _ in 0..TIMES {
                let began = clock.now();
                let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("it starts");
                took.push(began.until(clock.now()).as_secs_f64() * 1e3);
                assert!(ended.success(), "{name} failed");
            }
            sample.rounds.push(median(&took));
        }
    }
    progress::clear();
    let server = "processes on this machine; the file of the embedded store is on disk, etcd in memory".into();
    Figures { store: NAME.into(), server, machine: machine::describe(), samples }
}

fn ours(program: &Path, url: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LEASEHOLD_URL", url).args(["run", "k", "--", "true"]);
    command
}
