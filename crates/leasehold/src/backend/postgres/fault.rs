//! What a server's or a connection's complaint means to us: what sort of failure it is, and whether anything happened.

use tokio_postgres::Error as PgError;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::{Error, ErrorKind};
use crate::key::Escaped;

/// Raised by our own functions where the isolation level is not the one that they need.
const WRONG_ISOLATION: &str = "LH001";

/// A request failed that had been sent, or may have been.
pub(super) fn of_request(error: &PgError) -> Error {
    match error.as_db_error() {
        // A statement that fails is undone, and the server says so. One whose session is ended may have been done before.
        Some(complaint) if is_final(complaint) => of_server(complaint),
        Some(complaint) => of_server(complaint).with_unknown_fate(),
        None => Error::new(ErrorKind::Unreachable, "the connection broke").caused_by(plain(error)).with_unknown_fate(),
    }
}

/// A connection could not be made, so nothing can have happened.
pub(super) fn of_connecting(error: &PgError) -> Error {
    match error.as_db_error() {
        Some(complaint) => of_server(complaint),
        None => Error::new(ErrorKind::Unreachable, "no connection could be made").caused_by(plain(error)),
    }
}

/// Whether the connection is gone, whoever ended it.
pub(super) fn is_break(error: &PgError) -> bool {
    error.as_db_error().is_none_or(|complaint| !is_final(complaint))
}

/// Whether two transactions got into each other's way, and the server undid this one.
pub(super) fn is_collision(error: &PgError) -> bool {
    error.as_db_error().is_some_and(|complaint| {
        let code = complaint.code();
        is_final(complaint)
            && (*code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE)
    })
}

fn is_final(complaint: &DbError) -> bool {
    complaint.parsed_severity() == Some(Severity::Error)
}

fn of_server(complaint: &DbError) -> Error {
    let unreachable = |why: &str| Error::new(ErrorKind::Unreachable, why).caused_by(words(complaint));
    let unusable = |why: &str| Error::new(ErrorKind::Unusable, why).caused_by(words(complaint));
    let code = complaint.code();
    match code.code() {
        "40001" | "40P01" => unreachable("other transactions are in the way"),
        "55P03" | "57014" => unreachable("the server gave the statement up, because of a timeout of its own"),
        "25006" => unreachable("the server is a standby, which cannot be written to"),
        "53300" => unreachable("the server has no connection left"),
        "57P01" | "57P02" | "57P03" | "57P05" => {
            unreachable("the server is shutting down, starting, or ended the session")
        }
        "08P01" if complaint.message().contains("server") => unreachable("the pooler has no server"),
        code if code.starts_with("08") || code.starts_with("58") => unreachable("the server has trouble of its own"),
        code if code.starts_with("28") => unusable("the server refused the user or the password of the URL"),
        "3D000" => unusable("there is no such database"),
        "42501" => unusable("the user may not do what locks need: see docs/backends/postgres.md for the rights"),
        "3F000" | "42P01" | "42883" => unusable("the tables or functions are not there, or not all of them"),
        code if code.starts_with("53") => unusable("the server has run out of memory or disk"),
        WRONG_ISOLATION => unusable(
            "the database or the user has a default isolation level other than read committed: set \
             default_transaction_isolation for the user",
        ),
        _ => Error::new(ErrorKind::Protocol, "the server complains").caused_by(words(complaint)),
    }
}

fn words(complaint: &DbError) -> std::io::Error {
    let said = Escaped(complaint.message().as_bytes()).to_string();
    std::io::Error::other(format!("{} ({})", said, complaint.code().code()))
}

/// Its text alone: as a chain it would say the same twice.
fn plain(error: &PgError) -> std::io::Error {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let said = cause.unwrap_or_else(|| error.to_string());
    std::io::Error::other(Escaped(said.as_bytes()).to_string())
}
