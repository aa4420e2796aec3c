//! What a server's complaint means: whether it acted, and whether asking again makes sense.

use crate::backend::etcd::grpc::{Code, Status};
use crate::error::{Error, ErrorKind};

/// What came of a request that failed so. One that only read has no effect, whatever became of it.
pub(super) fn of(status: &Status) -> Error {
    let text = &status.message;
    let definite = |kind| Error::new(kind, text.clone());
    match status.code {
        // The lease that an entry was to live on: nothing was written.
        Code::NotFound => definite(ErrorKind::Lost),
        // Said of what fills the store too, which is done all the same.
        Code::ResourceExhausted if text.contains("space exceeded") => definite(ErrorKind::Unusable).with_unknown_fate(),
        Code::PermissionDenied | Code::Unauthenticated | Code::ResourceExhausted => definite(ErrorKind::Unusable),
        Code::InvalidArgument if text.contains("authentication failed") => definite(ErrorKind::Unusable),
        Code::FailedPrecondition if text.contains("authentication is not enabled") => {
            definite(ErrorKind::InvalidOption)
        }
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition | Code::Unimplemented => {
            definite(ErrorKind::Protocol)
        }
        Code::Other | Code::Unavailable => definite(ErrorKind::Unreachable).with_unknown_fate(),
    }
}

/// Whether the server has forgotten who we are. It did nothing then.
pub(super) fn forgot_us(status: &Status) -> bool {
    status.code == Code::Unauthenticated && status.message.contains("invalid auth token")
}

/// Whether another server may be of more use than this one.
pub(super) fn of_this_server(status: &Status) -> bool {
    status.code == Code::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fate;

    fn status(code: Code, message: &str) -> Status {
        Status { code, message: message.into() }
    }

    #[test]
    fn only_what_the_server_itself_refused_is_known_not_to_have_happened() {
        for (code, kind, fate) in [
            (Code::NotFound, ErrorKind::Lost, Fate::NotApplied),
            (Code::PermissionDenied, ErrorKind::Unusable, Fate::NotApplied),
            (Code::ResourceExhausted, ErrorKind::Unusable, Fate::NotApplied),
            (Code::InvalidArgument, ErrorKind::Protocol, Fate::NotApplied),
            (Code::Unavailable, ErrorKind::Unreachable, Fate::Unknown),
            (Code::Other, ErrorKind::Unreachable, Fate::Unknown),
        ] {
            let error = of(&status(code, "etcdserver: something"));
            assert_eq!((error.kind(), error.fate()), (kind, fate), "{code:?}");
            assert!(error.to_string().contains("etcdserver: something"), "{error}");
        }
        let full = of(&status(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"));
        assert_eq!((full.kind(), full.fate()), (ErrorKind::Unusable, Fate::Unknown));
        assert!(forgot_us(&status(Code::Unauthenticated, "etcdserver: invalid auth token")));
    }
}
