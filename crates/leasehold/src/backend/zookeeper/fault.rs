//! What went wrong with a request, and what that means: what sort of failure it is, and whether anything happened.

use std::io;
use std::sync::Arc;

use crate::backend::zookeeper::jute::Garbled;
use crate::backend::zookeeper::request::code;
use crate::error::{Error, ErrorKind};

/// Why there is no answer, or none that one would like.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The server refused it, with this code: nothing happened.
    Refused(i32),
    /// The connection was broken before it was sent.
    NotSent,
    /// The server closed the connection.
    Closed,
    /// The connection broke.
    Broke(Arc<io::Error>),
    /// No answer came in time, and the connection was given up.
    Silent,
    /// The answer makes no sense.
    Garbled,
    /// The session has ended, and with it every entry that was made in it.
    Ended,
}

impl Trouble {
    pub(super) fn broke(error: io::Error) -> Self {
        Self::Broke(Arc::new(error))
    }

    /// Whether the session is over, and not just its connection.
    pub(super) fn ends_session(&self) -> bool {
        matches!(self, Self::Ended | Self::Refused(code::SESSION_EXPIRED))
    }

    /// Whether it is this complaint of the server.
    pub(super) fn is(&self, code: i32) -> bool {
        matches!(self, Self::Refused(refused) if *refused == code)
    }
}

impl From<Garbled> for Trouble {
    fn from(_: Garbled) -> Self {
        Self::Garbled
    }
}

/// Of a request that may have been sent.
impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        let unreachable = |why: &str| Self::new(ErrorKind::Unreachable, why);
        match trouble {
            Trouble::Refused(code) => of_code(code),
            Trouble::NotSent => unreachable("there is no connection"),
            Trouble::Closed => unreachable("the server closed the connection").with_unknown_fate(),
            Trouble::Broke(cause) => {
                unreachable("the connection broke").caused_by(io::Error::other(cause.to_string())).with_unknown_fate()
            }
            Trouble::Silent => unreachable("no answer in time").with_unknown_fate(),
            Trouble::Garbled => {
                Self::new(ErrorKind::Protocol, "the server answered something that is no ZooKeeper protocol")
                    .with_unknown_fate()
            }
            Trouble::Ended => unreachable("the session has ended"),
        }
    }
}

fn of_code(refused: i32) -> Error {
    let unusable = |why: &str| Error::new(ErrorKind::Unusable, why);
    let unreachable = |why: &str| Error::new(ErrorKind::Unreachable, why);
    match refused {
        code::SESSION_EXPIRED => unreachable("the session has ended"),
        code::SESSION_MOVED => unreachable("the session goes on at another server"),
        code::THROTTLED => unreachable("the server has too much to do"),
        code::NOT_READ_ONLY => unreachable("the server has lost its ensemble, and can only be read"),
        code::NO_NODE => unreachable("the folder of the lock goes as soon as it is made"),
        code::NO_AUTH => unusable("the user may not do what locks need: see docs/backends/zookeeper.md for the rights"),
        code::AUTH_FAILED => unusable("the server refused the user or the password of the URL"),
        code::INVALID_ACL => unusable("the server knows no user by whom nodes could be owned: name one in the URL"),
        code::UNIMPLEMENTED => unusable("the server is too old: ZooKeeper 3.6 or newer is needed"),
        code::BAD_ARGUMENTS => Error::new(ErrorKind::Protocol, "the server takes a path of ours for invalid"),
        other => {
            Error::new(ErrorKind::Protocol, format!("the server refused it with the code {other}")).with_unknown_fate()
        }
    }
}
