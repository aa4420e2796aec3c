//! The file itself: where it may be, who may have it, and one transaction at a time on it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags, Transaction, TransactionBehavior};
use rustix::fs::{FlockOperation, flock, statfs};
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};

use super::{fault, named, schema};

/// After how many commits of one client the log is folded back into the file: by the patient thread, since it waits for
/// the disk.
const COMMITS_BETWEEN_FOLDS: u32 = 1000;

/// How long the log may be when the file is opened. Programs that take one lock and end never get as far as the fold above,
/// and the first to open a file after the last has closed it reads the whole log: two milliseconds for each megabyte.
const LOG_BYTES_MAX: u64 = 256 * 1024;

/// How long to wait for another program that has the file open beside us and does not use the door.
const BUSY_MAX: Duration = Duration::from_secs(2);

/// The size of a page of the file. Small for the reason given at its use, and no smaller because a row of ours may take
/// three thousand bytes and should not be scattered over many.
const PAGE_BYTES: u32 = 1024;

/// A transaction's work, for the patient thread, or the reason why it has no desk.
type Job = Box<dyn FnOnce(Result<&mut Desk>) + Send>;

/// The file, open. Copies share it.
#[derive(Clone)]
pub(super) struct LockFile {
    /// For work that finds the file free, done by whoever asks: a few microseconds, and no other thread has to wake.
    quick: Arc<Mutex<Desk>>,
    /// For work that must wait for another process, done by a thread that may block.
    patient: mpsc::Sender<Job>,
    commits: Arc<AtomicU32>,
}

/// A connection, and the door through which one writer enters at a time.
///
/// SQLite's own lock makes the second writer poll. The door is a lock of the kernel's, which wakes exactly the next one.
pub(super) struct Desk {
    connection: Connection,
    door: Door,
    log: PathBuf,
}

/// A lock of the kernel's that one writer has at a time, of all processes that use the file.
struct Door(File);

impl Door {
    /// Goes in if nobody is inside.
    fn is_open(&self) -> bool {
        flock(&self.0, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    fn wait(&self) {
        while let Err(rustix::io::Errno::INTR) = flock(&self.0, FlockOperation::LockExclusive) {}
    }

    fn leave(&self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl LockFile {
    /// Opens the file, and makes it if it is not there.
    pub(super) fn open(path: &Path) -> Result<Self> {
        create(path)?;
        refuse_network(path)?;
        let mut quick = Desk::open(path)?;
        quick.prepare()?;
        let (jobs, queue) = mpsc::channel::<Job>();
        let path = path.to_owned();
        std::thread::Builder::new()
            .name("leasehold-file".into())
            .spawn(move || do_jobs(queue, &path))
            .map_err(|cause| unusable("the operating system refused a thread for the file").caused_by(cause))?;
        Ok(Self { quick: Arc::new(Mutex::new(quick)), patient: jobs, commits: Arc::default() })
    }

    /// Does something that must not happen in two processes at once. Blocks while others are inside.
    pub(super) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        let desk = self.quick.lock().expect("no panic under this lock");
        desk.door.wait();
        let done = work();
        desk.door.leave();
        done
    }

    /// Does the work in one write transaction. Once begun it is done to its end, also if nobody waits for it any more.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<(T, bool)> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T> {
        if self.commits.fetch_add(1, Relaxed) % COMMITS_BETWEEN_FOLDS == COMMITS_BETWEEN_FOLDS - 1 {
            let _ = self.patient.send(Box::new(|desk| _ = desk.map(Desk::fold_log)));
        }
        let work = match self.quick.try_lock() {
            Ok(mut desk) => match desk.door.is_open() {
                true => return desk.transact(work, then),
                false => work,
            },
            Err(_) => work,
        };
        let (answer, answered) = oneshot::channel();
        let job = Box::new(move |desk: Result<&mut Desk>| {
            let done = desk.and_then(|desk| {
                desk.door.wait();
                desk.transact(work, then)
            });
            let _ = answer.send(done);
        });
        let closed = || unusable("the file's thread has ended");
        self.patient.send(job).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

/// Does one job after the other, at a desk that is opened for the first of them: many a program ends without any.
fn do_jobs(jobs: mpsc::Receiver<Job>, path: &Path) {
    let mut desk = None;
    for job in jobs {
        match &mut desk {
            Some(desk) => job(Ok(desk)),
            None => match Desk::open(path) {
                Ok(opened) => job(Ok(desk.insert(opened))),
                Err(error) => job(Err(error)),
            },
        }
    }
}

impl Desk {
    /// Behind the door from the first moment: of several processes that open a new file at once, one makes it.
    fn open(path: &Path) -> Result<Self> {
        let door = beside(path, "-door");
        let door = open_door(&door, fs::metadata(path).map_or(0o600, |file| file.permissions().mode() & 0o666))
            .map_err(|cause| {
                let why = format!("cannot open {}, through which all who write the file go", named(&door));
                unusable(why).caused_by(cause)
            })?;
        let door = Door(door);
        door.wait();
        let opened = connect(path);
        door.leave();
        Ok(Self { connection: opened?, door, log: beside(path, "-wal") })
    }

    fn prepare(&mut self) -> Result<()> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(|cause| unusable("cannot tell one boot of this machine from another").caused_by(cause))?;
        self.door.wait();
        let prepared = schema::prepare(&mut self.connection, boot.trim()).and_then(|()| self.sync());
        if fs::metadata(&self.log).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
            self.empty_log();
        }
        self.door.leave();
        prepared
    }

    /// Through the door already: begins, works, commits, lets the next one in, and then tells whoever is to be told.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<(T, bool)>,
        then: impl FnOnce(&T),
    ) -> Result<T> {
        let done =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault).and_then(|tx| {
                let done = work(&tx)?;
                tx.commit().map_err(|error| fault(error).with_unknown_fate())?;
                Ok(done)
            });
        let done = done.and_then(|(output, sync)| if sync { self.sync().map(|()| output) } else { Ok(output) });
        self.door.leave();
        done.inspect(then)
    }

    /// Writes what is in the log into the file, as far as nobody reads it, so that the log can begin anew. Another process
    /// that does the same at this moment is no error.
    fn fold_log(&mut self) {
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }

    /// Writes the whole log into the file and begins it anew. Only behind the door; if another program reads the file at
    /// this moment, somebody does it another time.
    fn empty_log(&mut self) {
        let _ = self.connection.busy_timeout(Duration::ZERO);
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = self.connection.busy_timeout(BUSY_MAX);
    }

    /// Waits until the disk has everything that was committed so far.
    fn sync(&self) -> Result<()> {
        // The log's own descriptor: closing one of the file itself would drop the locks that SQLite has on it.
        match File::open(&self.log).and_then(|log| log.sync_data()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(unusable("the disk did not take the log").caused_by(error).with_unknown_fate())
            }
            _ => Ok(()),
        }
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    // SQLite opens what cannot be written for reading, and would fail only when somebody wants a lock.
    if connection.is_readonly(MAIN_DB).map_err(fault)? {
        return Err(unusable("the file cannot be written: mind its owner, its mode and its disk"));
    }
    // For whoever comes past the door: another program that looks at the file.
    connection.busy_timeout(BUSY_MAX).map_err(fault)?;
    // Counts only for a file that is still empty. Every commit writes whole pages, and ours change a row in each of
    // three: the smaller a page, the less there is to write.
    connection.pragma_update(None, "page_size", PAGE_BYTES).map_err(fault)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(fault)?;
    // What must survive a power cut is synced by hand, in `transact`.
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(fault)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Otherwise a statement is planned anew whenever its parameters are bound to other values: a third of the time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fault)?;
    Ok(connection)
}

/// Whoever may use the file may use its door, whatever the mask of whoever made it.
fn open_door(path: &Path, mode: u32) -> io::Result<File> {
    match OpenOptions::new().read(true).append(true).create_new(true).mode(mode).open(path) {
        Ok(door) => {
            door.set_permissions(fs::Permissions::from_mode(mode))?;
            Ok(door)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().read(true).append(true).open(path)
        }
        Err(error) => Err(error),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn unusable(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unusable, why)
}

/// Makes an empty file, private to its owner. One that is there is not touched, not even opened: closing a descriptor of
/// a file drops the locks that SQLite has on it in the same process.
fn create(path: &Path) -> Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|cause| unusable(format!("cannot make the folder {}", named(folder))).caused_by(cause))?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
            Err(unusable("this is a folder: name a file in it"))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(cause) => Err(unusable(format!("cannot make the file {}", named(path))).caused_by(cause)),
    }
}

/// Kinds of network file system, by their magic numbers in `statfs(2)`. The log needs memory that all processes share,
/// and the kernel's locks must mean something: neither is so across machines.
const NETWORK: [(u32, &str); 10] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
    (0x6573_5546, "FUSE"),
];

fn refuse_network(path: &Path) -> Result<()> {
    let kind = statfs(path)
        .map_err(|cause| unusable(format!("cannot tell where {} is", named(path))).caused_by(cause))?
        .f_type;
    match network(kind as u32) {
        Some(name) => Err(unusable(format!(
            "{} is on a {name} file system, where a lock of this kind does not hold: name a file on a local disk",
            named(path)
        ))),
        None => Ok(()),
    }
}

fn network(kind: u32) -> Option<&'static str> {
    NETWORK.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk(name: &str) -> (PathBuf, Desk) {
        let folder = std::env::temp_dir().join(format!("leasehold-{name}-{:016x}", fastrand::u64(..)));
        let path = folder.join("locks.db");
        create(&path).unwrap();
        let mut desk = Desk::open(&path).unwrap();
        desk.prepare().unwrap();
        (folder, desk)
    }

    #[test]
    fn a_network_file_system_is_known_by_its_number_and_a_local_one_is_not_mistaken_for_one() {
        assert_eq!(network(0x6969), Some("NFS"));
        assert_eq!(network(0xff53_4d42), Some("CIFS"));
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994] {
            assert_eq!(network(local), None);
        }
        refuse_network(&std::env::temp_dir()).unwrap();
    }

    #[test]
    fn a_full_disk_is_an_error_that_says_so_and_nothing_is_half_done() {
        let (folder, mut desk) = desk("full");
        let pages: i64 = desk.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        desk.connection.pragma_update(None, "max_page_count", pages).unwrap();
        let count = "SELECT count(*) FROM sighting";
        desk.door.wait();
        let filled = desk.transact(
            |tx| {
                let row = "INSERT INTO sighting (namespace, name, version, nth, value) VALUES ('', x'', ?1, 0, zeroblob(4000))";
                for version in 0..100 {
                    tx.execute(row, [version]).map_err(fault)?;
                }
                Ok(((), false))
            },
            |()| panic!("nobody is told of what was not done"),
        );
        let error = filled.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unusable);
        assert!(error.to_string().contains("disk is full"), "{error}");
        assert_eq!(desk.connection.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
        assert!(desk.door.is_open(), "the next one can come in");
        fs::remove_dir_all(folder).unwrap();
    }
}
