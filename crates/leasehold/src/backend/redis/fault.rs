//! What a server's or a connection's complaint means to us: what sort of failure it is, and whether anything happened.

use redis::{RedisError, ServerErrorKind};

use crate::error::{Error, ErrorKind};
use crate::key::Escaped;

/// A request failed that had been sent, or may have been.
pub(in crate::backend) fn of_request(error: &RedisError) -> Error {
    match error.kind() {
        // A right may be found missing in the middle of a script, and what it did before stays done.
        redis::ErrorKind::Server(ServerErrorKind::NoPerm) => not_allowed(error).with_unknown_fate(),
        // The server refused it, and says so: nothing happened.
        redis::ErrorKind::Server(kind) => of_server(kind, error),
        redis::ErrorKind::Extension => of_code(error),
        redis::ErrorKind::AuthenticationFailed => login_refused(error),
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => {
            Error::new(ErrorKind::Protocol, "the server answered something that is no Redis protocol")
                .with_unknown_fate()
        }
        _ if error.is_timeout() => Error::new(ErrorKind::Unreachable, "no answer in time").with_unknown_fate(),
        _ => Error::new(ErrorKind::Unreachable, "the connection broke").caused_by(plain(error)).with_unknown_fate(),
    }
}

/// A connection could not be made, so nothing can have happened.
pub(super) fn of_connecting(error: &RedisError) -> Error {
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => login_refused(error),
        redis::ErrorKind::Server(ServerErrorKind::ResponseError) => {
            let why = "the server refused a connection as the URL asks for, with that user and that database";
            Error::new(ErrorKind::Unusable, why).caused_by(plain(error))
        }
        redis::ErrorKind::Server(kind) => of_server(kind, error),
        redis::ErrorKind::Extension => of_code(error),
        redis::ErrorKind::RESP3NotSupported => {
            Error::new(ErrorKind::Unusable, "the server does not speak RESP3: Redis 6 or newer is needed")
        }
        redis::ErrorKind::InvalidClientConfig => {
            Error::new(ErrorKind::InvalidOption, "the settings of the connection make no sense").caused_by(plain(error))
        }
        _ => Error::new(ErrorKind::Unreachable, "no connection could be made").caused_by(plain(error)),
    }
}

fn of_server(kind: ServerErrorKind, error: &RedisError) -> Error {
    use ServerErrorKind as Server;
    let unreachable = |why: &str| Error::new(ErrorKind::Unreachable, why);
    match kind {
        Server::ReadOnly => unreachable("the server is a read-only replica now"),
        Server::BusyLoading => unreachable("the server is still loading its data"),
        Server::MasterDown => unreachable("the server is a replica that has lost its master"),
        Server::ClusterDown => unreachable("the cluster is down"),
        Server::Moved | Server::Ask | Server::TryAgain => unreachable("the key is moving between the cluster's nodes"),
        // It was told the script just before, and had forgotten it again when it was asked to run it.
        Server::NoScript => unreachable("the server forgets the scripts that it is told"),
        Server::NoPerm => not_allowed(error),
        _ => of_code(error),
    }
}

fn of_code(error: &RedisError) -> Error {
    let unusable = |why: &str| Error::new(ErrorKind::Unusable, why).caused_by(plain(error));
    match error.code() {
        Some("NOAUTH" | "WRONGPASS") => login_refused(error),
        Some("NOPERM") => not_allowed(error),
        Some("OOM") => unusable("the server is out of memory: give it more, or remove something"),
        Some("MISCONF") => unusable("the server refuses to write because it cannot save to its disk"),
        Some("NOREPLICAS") => Error::new(ErrorKind::Unreachable, "the server has too few replicas to write"),
        Some("BUSY") => Error::new(ErrorKind::Unreachable, "the server is busy with somebody's script"),
        Some("NOPROTO") => {
            Error::new(ErrorKind::Unusable, "the server does not speak RESP3: Redis 6 or newer is needed")
        }
        _ => {
            let detail = error.detail().unwrap_or_default();
            let says = format!("the server says \"{}\"", Escaped(&detail.as_bytes()[..detail.len().min(200)]));
            Error::new(ErrorKind::Protocol, says).with_unknown_fate()
        }
    }
}

fn login_refused(error: &RedisError) -> Error {
    Error::new(ErrorKind::Unusable, "the server refused the user or the password of the URL").caused_by(plain(error))
}

fn not_allowed(error: &RedisError) -> Error {
    let why = "the user may not do what locks need: see docs/backends/redis.md for the rights";
    Error::new(ErrorKind::Unusable, why).caused_by(plain(error))
}

/// Its text alone: as a chain it would say the same twice.
fn plain(error: &RedisError) -> std::io::Error {
    std::io::Error::other(Escaped(error.to_string().as_bytes()).to_string())
}
