//! What is asked of a server, and what it answers.

use crate::backend::zookeeper::jute::{Garbled, Reader, Stat, Writer};

/// One request, without the number by which its answer is known.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) op: i32,
    pub(super) body: Vec<u8>,
}

/// Operations, as ZooKeeper numbers them.
pub(super) mod op {
    pub(in super::super) const CREATE: i32 = 1;
    pub(in super::super) const DELETE: i32 = 2;
    pub(in super::super) const EXISTS: i32 = 3;
    pub(in super::super) const GET_DATA: i32 = 4;
    pub(in super::super) const SET_DATA: i32 = 5;
    pub(in super::super) const GET_CHILDREN: i32 = 8;
    pub(in super::super) const SYNC: i32 = 9;
    pub(in super::super) const PING: i32 = 11;
    pub(in super::super) const MULTI: i32 = 14;
    pub(in super::super) const CREATE2: i32 = 15;
    pub(in super::super) const REMOVE_WATCHES: i32 = 18;
    pub(in super::super) const CREATE_CONTAINER: i32 = 19;
    pub(in super::super) const AUTH: i32 = 100;
    pub(in super::super) const MULTI_READ: i32 = 22;
    pub(in super::super) const ADD_WATCH: i32 = 106;
    pub(in super::super) const CLOSE_SESSION: i32 = -11;
}

/// What a server refuses a request with.
pub(super) mod code {
    pub(in super::super) const UNIMPLEMENTED: i32 = -6;
    pub(in super::super) const BAD_ARGUMENTS: i32 = -8;
    pub(in super::super) const NO_NODE: i32 = -101;
    pub(in super::super) const NO_AUTH: i32 = -102;
    pub(in super::super) const BAD_VERSION: i32 = -103;
    pub(in super::super) const NODE_EXISTS: i32 = -110;
    pub(in super::super) const SESSION_EXPIRED: i32 = -112;
    pub(in super::super) const INVALID_ACL: i32 = -114;
    pub(in super::super) const AUTH_FAILED: i32 = -115;
    pub(in super::super) const SESSION_MOVED: i32 = -118;
    pub(in super::super) const NOT_READ_ONLY: i32 = -119;
    pub(in super::super) const THROTTLED: i32 = -127;
}

/// Who may do what with the nodes that we make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// Everybody, as most clients have it.
    Everybody,
    /// Whoever logged in as we did.
    OurUser,
}

const ALL: i32 = 31;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Persistent = 0,
    EphemeralSequential = 3,
    /// Removed by the server once it is empty.
    Container = 4,
}

impl Ask {
    fn new(op: i32, body: Writer) -> Self {
        Self { op, body: body.bytes() }
    }

    pub(super) fn create(path: &str, data: &[u8], mode: Mode, rights: Rights) -> Self {
        let (scheme, id) = match rights {
            Rights::Everybody => ("world", "anyone"),
            Rights::OurUser => ("auth", ""),
        };
        let body = Writer::default().text(path).buffer(data).int(1).int(ALL).text(scheme).text(id).int(mode as i32);
        Self::new(if mode == Mode::Container { op::CREATE_CONTAINER } else { op::CREATE2 }, body)
    }

    pub(super) fn delete(path: &str) -> Self {
        Self::delete_version(path, -1)
    }

    pub(super) fn delete_version(path: &str, version: i32) -> Self {
        Self::new(op::DELETE, Writer::default().text(path).int(version))
    }

    pub(super) fn exists(path: &str) -> Self {
        Self::new(op::EXISTS, Writer::default().text(path).flag(false))
    }

    pub(super) fn data(path: &str, watch: bool) -> Self {
        Self::new(op::GET_DATA, Writer::default().text(path).flag(watch))
    }

    pub(super) fn set_data(path: &str, data: &[u8], version: i32) -> Self {
        Self::new(op::SET_DATA, Writer::default().text(path).buffer(data).int(version))
    }

    pub(super) fn children(path: &str) -> Self {
        Self::new(op::GET_CHILDREN, Writer::default().text(path).flag(false))
    }

    /// Answered once this server has heard what its leader knew when it was asked. A server that has lost its leader cannot
    /// answer it.
    pub(super) fn sync(path: &str) -> Self {
        Self::new(op::SYNC, Writer::default().text(path))
    }

    /// Tells of every change of a node and of those below it, until it is taken back.
    pub(super) fn add_watch(path: &str) -> Self {
        const PERSISTENT_RECURSIVE: i32 = 1;
        Self::new(op::ADD_WATCH, Writer::default().text(path).int(PERSISTENT_RECURSIVE))
    }

    pub(super) fn remove_watches(path: &str) -> Self {
        const OF_ANY_KIND: i32 = 3;
        Self::new(op::REMOVE_WATCHES, Writer::default().text(path).int(OF_ANY_KIND))
    }

    /// Many reads in one request: each of many would take its own way through all of the server's threads.
    pub(super) fn read_together(reads: &[Self]) -> Self {
        Self::new(op::MULTI_READ, Self::many(reads))
    }

    /// Writes that are carried out all or not at all.
    pub(super) fn together(writes: &[Self]) -> Self {
        Self::new(op::MULTI, Self::many(writes))
    }

    fn many(asks: &[Self]) -> Writer {
        let each = |body: Writer, ask: &Self| body.int(ask.op).flag(false).int(-1).raw(&ask.body);
        asks.iter().fold(Writer::default(), each).int(-1).flag(true).int(-1)
    }

    pub(super) fn ping() -> Self {
        Self::new(op::PING, Writer::default())
    }

    pub(super) fn login(user: &str, password: &str) -> Self {
        let body = Writer::default().int(0).text("digest").buffer(format!("{user}:{password}").as_bytes());
        Self::new(op::AUTH, body)
    }

    pub(super) fn close_session() -> Self {
        Self::new(op::CLOSE_SESSION, Writer::default())
    }

    /// Whether a majority of the servers, or their leader, has to take part in the answer. What a server answers by itself
    /// proves nothing: its leader may have given our session up long ago.
    pub(super) fn is_confirmed_by_leader(&self) -> bool {
        matches!(self.op, op::CREATE2 | op::CREATE_CONTAINER | op::DELETE | op::SET_DATA | op::SYNC | op::MULTI)
    }
}

/// `path`, and what the server knows of it.
pub(super) fn created(body: &[u8]) -> Result<(String, Stat), Garbled> {
    let mut reader = Reader::over(body);
    Ok((reader.text()?.to_owned(), reader.stat()?))
}

pub(super) fn children(body: &[u8]) -> Result<Vec<String>, Garbled> {
    Reader::over(body).texts()
}

pub(super) fn data(body: &[u8]) -> Result<(Vec<u8>, Stat), Garbled> {
    let mut reader = Reader::over(body);
    Ok((reader.buffer()?.to_vec(), reader.stat()?))
}

pub(super) fn stat(body: &[u8]) -> Result<Stat, Garbled> {
    Reader::over(body).stat()
}

/// The answers to reads that were sent together, one for each: its body, or the code it was refused with.
pub(super) fn read_together(reads: &[Ask], body: &[u8]) -> Result<Vec<Result<Vec<u8>, i32>>, Garbled> {
    let mut reader = Reader::over(body);
    let answers = reads.iter().map(|read| {
        let (op, _done, code) = (reader.int()?, reader.flag()?, reader.int()?);
        if op == -1 {
            return Ok(Err(reader.int()?.min(code)));
        }
        let start = reader.rest();
        match read.op {
            op::GET_CHILDREN => drop(reader.texts()?),
            _ => drop((reader.buffer()?, reader.stat()?)),
        }
        let length = start.len() - reader.rest().len();
        Ok(Ok(start[..length].to_vec()))
    });
    answers.collect()
}

/// What became of writes that were sent together: which of them was refused, and with which code, if one was.
pub(super) fn together(writes: &[Ask], body: &[u8]) -> Result<Result<(), (usize, i32)>, Garbled> {
    /// Said of those behind the one that was refused.
    const NOT_TRIED: i32 = -2;
    let mut reader = Reader::over(body);
    for nth in 0..writes.len() {
        let (op, _done, _code) = (reader.int()?, reader.flag()?, reader.int()?);
        match op {
            // Some servers answer as if the older request had been made, which says nothing but the path.
            op::CREATE => drop(reader.text()?),
            op::CREATE2 => drop((reader.text()?, reader.stat()?)),
            op::SET_DATA => drop(reader.stat()?),
            op::DELETE => {}
            -1 => match reader.int()? {
                0 | NOT_TRIED => {}
                refused => return Ok(Err((nth, refused))),
            },
            _ => return Err(Garbled),
        }
    }
    Ok(Ok(()))
}

/// A greeting: opens a session, or comes back to one.
#[derive(Clone, Debug)]
pub(super) struct Hello {
    pub(super) last_zxid: i64,
    pub(super) timeout_ms: i32,
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
}

impl Hello {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let body = Writer::default().int(0).long(self.last_zxid).int(self.timeout_ms).long(self.session);
        body.buffer(&self.password).flag(false).bytes()
    }
}

/// The answer to a greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    /// 0 if the session has ended.
    pub(super) timeout_ms: i32,
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
}

impl Welcome {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Garbled> {
        let mut reader = Reader::over(bytes);
        let _version = reader.int()?;
        Ok(Self { timeout_ms: reader.int()?, session: reader.long()?, password: reader.buffer()?.to_vec() })
    }
}

/// What a server says by itself of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) change: Change,
    pub(super) path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Deleted,
    Data,
    Other,
}

impl Event {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Garbled> {
        let mut reader = Reader::over(body);
        let change = match reader.int()? {
            1 => Change::Created,
            2 => Change::Deleted,
            3 => Change::Data,
            _ => Change::Other,
        };
        let _state = reader.int()?;
        Ok(Self { change, path: reader.text()?.to_owned() })
    }
}
