//! How the processes that share a file know of each other: who is alive, and who is to be woken.
//!
//! Each client has two named pipes beside the file. It holds `ID.alive` open and locked for as long as it lives; the
//! kernel closes it when the process dies, however it dies, and tells everybody who has it open for reading. A child
//! that inherits it keeps it open. Into `ID.wake` others write whom of that client they have granted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, mknodat};

use crate::backend::EntryId;
use crate::fence::Ticket;

/// A wake-up is one record of this size. Writes of less than `PIPE_BUF` bytes are not torn.
const RECORD: usize = 32;

/// Where the pipes of a file's clients are.
#[derive(Clone, Debug)]
pub(super) struct Room {
    folder: PathBuf,
    mode: u32,
}

/// What somebody is told through its pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// That entry of yours holds now, by that ticket.
    Granted(EntryId, Ticket),
    /// That entry of yours is not in line any more.
    Gone(EntryId),
    /// Somebody wants you to let go of that entry.
    YieldAsked(EntryId),
    /// A key that you follow has changed.
    Changed,
}

impl Room {
    /// The room beside the file. Whoever may use the file may use the room.
    pub(super) fn beside(file: &Path) -> io::Result<Self> {
        let mut folder = file.as_os_str().to_owned();
        folder.push("-clients");
        let (folder, mode) = (PathBuf::from(folder), fs::metadata(file)?.permissions().mode() & 0o666);
        match fs::create_dir(&folder) {
            // Who may read and write the file may look into the folder and make pipes there.
            Ok(()) => fs::set_permissions(&folder, fs::Permissions::from_mode(mode | (mode & 0o444) >> 2))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(Self { folder, mode })
    }

    /// Makes the pipes of a new client, and removes those of the dead: a process that was killed cannot, and one that
    /// simply ends does not wait for it. To be called behind the file's door, or a client that is just making its pipes
    /// would look dead.
    pub(super) fn join(&self, client: &str) -> io::Result<Presence> {
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some((other, _)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            if !self.is_alive(other) {
                self.sweep(other);
            }
        }
        let alive = self.make(client, "alive")?;
        flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
        let wake = self.make(client, "wake")?;
        Ok(Presence { room: self.clone(), client: client.into(), alive, wake })
    }

    fn make(&self, client: &str, what: &str) -> io::Result<File> {
        let path = self.path(client, what);
        mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::from_raw_mode(self.mode), 0)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(self.mode))?;
        // Both ends, so that it neither blocks without a partner nor ends when the last one leaves.
        OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
    }

    fn path(&self, client: &str, what: &str) -> PathBuf {
        self.folder.join(format!("{client}.{what}"))
    }

    /// Whether a client is still there. When in doubt it is: its lease will tell.
    pub(super) fn is_alive(&self, client: &str) -> bool {
        match self.open_alive(client) {
            Ok(alive) => flock(&alive, FlockOperation::NonBlockingLockShared).is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// The reading end of a client's `alive` pipe, which hangs up when the client is gone. `NotFound` if it is already.
    pub(super) fn open_alive(&self, client: &str) -> io::Result<File> {
        let flags = OFlags::NONBLOCK.bits() as i32;
        OpenOptions::new().read(true).custom_flags(flags).open(self.path(client, "alive"))
    }

    /// Tells a client. A pipe that is full or gone is no matter: the recheck will find out.
    pub(super) fn tell(&self, client: &str, news: News) {
        let flags = OFlags::NONBLOCK.bits() as i32;
        let wake = OpenOptions::new().write(true).custom_flags(flags).open(self.path(client, "wake"));
        let _ = wake.and_then(|mut wake| wake.write_all(&news.encode()));
    }

    /// Removes what a dead client has left here.
    pub(super) fn sweep(&self, client: &str) {
        for what in ["alive", "wake"] {
            let _ = fs::remove_file(self.path(client, what));
        }
    }
}

/// A client's own pipes. Dropping them says that it is gone.
#[derive(Debug)]
pub(super) struct Presence {
    room: Room,
    client: String,
    /// Held open and locked; whoever inherits it keeps the client alive in the eyes of others.
    alive: File,
    wake: File,
}

impl Presence {
    /// The `alive` pipe, to be inherited: whoever has it keeps the client alive in the eyes of others.
    pub(super) fn lend(&self) -> Option<OwnedFd> {
        // Unlike `try_clone`, a plain `dup` is not closed when a child starts.
        rustix::io::dup(&self.alive).ok()
    }

    /// The descriptor from which the client's news are read.
    pub(super) fn news(&self) -> io::Result<File> {
        self.wake.try_clone()
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.room.sweep(&self.client);
    }
}

impl News {
    fn encode(self) -> [u8; RECORD] {
        let (kind, entry, ticket) = match self {
            Self::Granted(entry, ticket) => (1, entry.0, ticket.0),
            Self::Gone(entry) => (2, entry.0, 0),
            Self::Changed => (3, 0, 0),
            Self::YieldAsked(entry) => (4, entry.0, 0),
        };
        let mut record = [0; RECORD];
        record[0] = kind;
        record[8..24].copy_from_slice(&entry.to_be_bytes());
        record[24..32].copy_from_slice(&ticket.to_be_bytes());
        record
    }

    fn decode(record: &[u8; RECORD]) -> Option<Self> {
        let entry = EntryId(u128::from_be_bytes(record[8..24].try_into().expect("16 bytes")));
        let ticket = Ticket(u64::from_be_bytes(record[24..32].try_into().expect("8 bytes")));
        match record[0] {
            1 => Some(Self::Granted(entry, ticket)),
            2 => Some(Self::Gone(entry)),
            3 => Some(Self::Changed),
            4 => Some(Self::YieldAsked(entry)),
            _ => None, // of a newer program: the recheck will find out
        }
    }

    /// Everything that is in the pipe now.
    pub(super) fn read_all(read: impl Fn(&mut [u8]) -> io::Result<usize>) -> Vec<Self> {
        let mut news = Vec::new();
        let mut records = [0; RECORD * 128];
        while let Ok(read) = read(&mut records) {
            news.extend(records[..read].as_chunks::<RECORD>().0.iter().filter_map(Self::decode));
            if read < records.len() {
                break;
            }
        }
        news
    }
}
