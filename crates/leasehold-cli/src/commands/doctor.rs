//! `leasehold doctor`: whether the store and this machine are fit for locks.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::Locks;
use leasehold::backend::{self, Finding};
use leasehold::clock::Clock;
use rustix::fs::{Access, OFlags, access, statfs, statvfs};
use rustix::io::Errno;
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::output::json::write_line;
use crate::output::{Look, escaped, on_one_line, span};

/// Less than this may not last for the log of the database, which is folded back at 16 MiB.
const SPACE_BAD: u64 = 16 << 20;
const SPACE_LOW: u64 = 128 << 20;

/// A lock that takes longer than this is felt by whoever waits for it.
const ROUND_TRIP_SLOW: Duration = Duration::from_millis(250);

/// How long a round trip may take at all.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);

/// So many pipes of dead processes are no longer a matter of chance.
const LEFTOVERS_MANY: usize = 100;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Bad,
}

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    check: &'static str,
    verdict: Verdict,
    finding: String,
    /// What to do about it.
    advice: Option<String>,
}

impl Check {
    fn ok(check: &'static str, finding: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, finding: finding.into(), advice: None }
    }

    fn warn(check: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, finding: finding.into(), advice: Some(advice.into()) }
    }

    fn bad(check: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Bad, finding: finding.into(), advice: Some(advice.into()) }
    }
}

impl From<Finding> for Check {
    fn from(Finding { check, verdict, finding, advice }: Finding) -> Self {
        let verdict = match verdict {
            backend::Verdict::Fine => Verdict::Ok,
            backend::Verdict::Warning => Verdict::Warn,
            // Whatever else there will be is worse.
            _ => Verdict::Bad,
        };
        Self { check, verdict, finding, advice }
    }
}

/// Checks the store of that URL, which was opened or not. Fails if anything is bad.
pub(crate) async fn run(
    opened: anyhow::Result<Locks>,
    url: &str,
    look: Look,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let checks = check(opened, url).await;
    if look.json {
        write_line(out, &checks)?;
    } else {
        for check in &checks {
            write(check, look, out)?;
        }
    }
    if checks.iter().any(|check| check.verdict == Verdict::Bad) {
        // Everything was said.
        return Err(Failure::new(exit::NOTHING, "").into());
    }
    Ok(())
}

fn write(check: &Check, look: Look, out: &mut impl Write) -> io::Result<()> {
    let Check { check, verdict, finding, advice } = check;
    let (word, color) = match verdict {
        Verdict::Ok => ("ok", 32),
        Verdict::Warn => ("warn", 33),
        Verdict::Bad => ("bad", 31),
    };
    let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
    let word = format!("{word:<4}");
    let word = if look.color { format!("\x1b[{color}m{word}\x1b[0m") } else { word };
    writeln!(out, "{word}  {check:<11}  {}", on_one_line(&format!("{finding}{advice}")))
}

async fn check(opened: anyhow::Result<Locks>, url: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    let file = file_of(url, opened.as_ref().ok());
    match &opened {
        Ok(locks) => checks.push(Check::ok("store", format!("{locks} is open, and can be used"))),
        Err(error) => {
            let finding = exit::without_secrets(&format!("{error:#}"));
            checks.push(Check::bad("store", finding, "nothing can be locked here"));
        }
    }
    if let Some(file) = file.filter(|file| file.is_file()) {
        checks.extend([owner(&file), file_system(&file), space(&file), clients(&file, opened.is_ok())]);
    }
    if let Ok(locks) = opened {
        match locks.checkup().await {
            Ok(findings) => checks.extend(findings.into_iter().map(Check::from)),
            Err(error) => {
                let finding = exit::without_secrets(&error.to_string());
                checks.push(Check::bad("checkup", finding, "see why the store does not answer"));
            }
        }
        checks.push(round_trip(&locks).await);
        locks.close().await;
    }
    checks
}

/// The file that an `sqlite:` URL names.
///
/// What the store calls itself is escaped for a reader, so it is asked only if the URL leaves the file open.
fn file_of(url: &str, locks: Option<&Locks>) -> Option<PathBuf> {
    let path = url.strip_prefix("sqlite:")?;
    match path.strip_prefix("//").unwrap_or(path) {
        "" => locks.and_then(|locks| locks.to_string().strip_prefix("sqlite:").map(PathBuf::from)),
        path => std::path::absolute(path).ok(),
    }
}

fn shown(path: &Path) -> String {
    escaped(path.as_os_str().as_encoded_bytes())
}

fn owner(file: &Path) -> Check {
    let found = match fs::metadata(file) {
        Ok(found) => found,
        Err(error) => return Check::bad("owner", format!("{}: {error}", shown(file)), "see who may look there"),
    };
    let (mode, owner, us) = (found.mode() & 0o777, found.uid(), rustix::process::geteuid().as_raw());
    let finding = format!("{} belongs to user {owner} with mode {mode:03o}", shown(file));
    if access(file, Access::READ_OK | Access::WRITE_OK).is_err() {
        let advice = format!("we are user {us} and may not write it: ask its owner, or name another file");
        Check::bad("owner", finding, advice)
    } else if mode & 0o077 != 0 {
        let advice = format!("others may use its locks or break them; if that is not meant: chmod 600 {}", shown(file));
        Check::warn("owner", finding, advice)
    } else if owner != us {
        Check::warn("owner", finding, format!("we are user {us}: what we make beside it may be closed to its owner"))
    } else {
        Check::ok("owner", finding)
    }
}

/// Kinds of file system by their magic numbers in `statfs(2)`. The store itself refuses those of other machines.
const FILE_SYSTEMS: [(u32, &str); 7] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x794c_7630, "overlay"),
    (TMPFS, "tmpfs"),
];

const TMPFS: u32 = 0x0102_1994;

const NETWORK: [u32; 10] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x0bd0_0bd0,
    0x5346_414f,
    0x7375_7245,
    0x6573_5546,
];

fn file_system(file: &Path) -> Check {
    const CHECK: &str = "file system";
    let magic = match statfs(file) {
        Ok(found) => found.f_type as u32,
        Err(error) => return Check::bad(CHECK, format!("{}: {error}", shown(file)), "name a file on a local disk"),
    };
    let name = FILE_SYSTEMS.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name);
    match name {
        _ if NETWORK.contains(&magic) => Check::bad(
            CHECK,
            format!("it may be on another machine (kind {magic:#x})"),
            "locks of this kind do not hold there: name a file on a local disk",
        ),
        Some(name) if magic == TMPFS => Check::warn(
            CHECK,
            format!("it is on {name}, which forgets everything when this machine stops"),
            "fencing tokens then begin again at 1: name a file on a disk if a resource remembers them",
        ),
        Some(name) => Check::ok(CHECK, format!("it is on {name}, on this machine")),
        None => Check::ok(CHECK, format!("it is on a kind that is not known for trouble ({magic:#x})")),
    }
}

fn space(file: &Path) -> Check {
    let free = match statvfs(file) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => return Check::warn("space", format!("{}: {error}", shown(file)), "see how full the disk is"),
    };
    let finding = format!("{} MiB are free", free >> 20);
    match free {
        0..SPACE_BAD => {
            Check::bad("space", finding, "make room: locks can neither be taken nor renewed on a full disk")
        }
        SPACE_BAD..SPACE_LOW => Check::warn("space", finding, "make room soon"),
        _ => Check::ok("space", finding),
    }
}

/// Who uses the file now, us among them or not, and what dead processes have left beside it.
fn clients(file: &Path, we_do: bool) -> Check {
    let mut folder = file.as_os_str().to_owned();
    folder.push("-clients");
    let folder = PathBuf::from(folder);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Check::ok("clients", "nobody uses it yet"),
        Err(error) => {
            let advice = "whoever may use the file must be able to use this folder";
            return Check::bad("clients", format!("{}: {error}", shown(&folder)), advice);
        }
    };
    let pipes: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    let alive: Vec<_> = pipes.iter().filter(|pipe| pipe.extension().is_some_and(|kind| kind == "alive")).collect();
    let dead = alive.iter().filter(|pipe| is_dead(pipe)).count();
    let used = match (alive.len() - dead, we_do) {
        (0, _) => "nobody uses it".to_owned(),
        (1, true) => "1 client uses it, this one".into(),
        (1, false) => "1 client uses it".into(),
        (many, true) => format!("{many} clients use it, this one included"),
        (many, false) => format!("{many} clients use it"),
    };
    // Whoever opens the file removes them, so only those are left that died since.
    let finding = if dead == 0 { used } else { format!("{used}; the pipes of {dead} that died are left") };
    if dead < LEFTOVERS_MANY {
        return Check::ok("clients", finding);
    }
    let advice = format!("once no process uses the file, {} may be removed", shown(&folder));
    Check::warn("clients", finding, advice)
}

/// Whether nobody has a client's pipe open any more. When in doubt it is in use.
///
/// Its lock is not tried: a client that is just about to take that would find it taken.
fn is_dead(pipe: &Path) -> bool {
    let opened = OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(pipe);
    opened.is_err_and(|error| error.raw_os_error() == Some(Errno::NXIO.raw_os_error()))
}

/// Takes a lock that nobody else wants and gives it back.
async fn round_trip(locks: &Locks) -> Check {
    const CHECK: &str = "round trip";
    let clock = Clock::boot();
    let began = clock.now();
    let work = async {
        let mutex = locks.mutex(format!("leasehold/doctor/{}", std::process::id()))?;
        let Some(guard) = mutex.lock_within(ROUND_TRIP_MAX).await? else { return Ok(false) };
        guard.release().await?;
        Ok::<_, leasehold::Error>(true)
    };
    let done = work.await;
    let took = began.until(clock.now());
    match done {
        Ok(true) if took > ROUND_TRIP_SLOW => {
            let advice = "everything that takes a lock waits as long: see what the disk or the network is busy with";
            Check::warn(CHECK, format!("a lock was taken and given back in {}", span(took)), advice)
        }
        Ok(true) => {
            let micros = took.as_micros();
            Check::ok(CHECK, format!("a lock was taken and given back in {}.{:03} ms", micros / 1000, micros % 1000))
        }
        Ok(false) => Check::bad(
            CHECK,
            format!("a lock that nobody else wants was not to be had within {}", span(ROUND_TRIP_MAX)),
            "see who holds it with leasehold ls leasehold/doctor",
        ),
        Err(error) => Check::bad(CHECK, exit::without_secrets(&error.to_string()), "nothing can be locked here"),
    }
}
