//! What a server's or a connection's complaint means to us: what sort of failure it is, and whether anything happened.

use mysql_async::{Error as MyError, ServerError};

use crate::error::{Error, ErrorKind};
use crate::key::Escaped;

/// A request failed that had been sent, or may have been.
pub(super) fn of_request(error: &MyError) -> Error {
    match error {
        // A procedure or statement that fails undoes what it did. One whose session is ended may have been done before.
        MyError::Server(complaint) if is_break(error) || is_late(complaint.code) => {
            of_server(complaint).with_unknown_fate()
        }
        MyError::Server(complaint) => of_server(complaint),
        _ => Error::new(ErrorKind::Unreachable, "the connection broke").caused_by(plain(error)).with_unknown_fate(),
    }
}

/// A connection could not be made, so nothing can have happened.
pub(super) fn of_connecting(error: &MyError) -> Error {
    match error {
        MyError::Server(complaint) => of_server(complaint),
        _ => Error::new(ErrorKind::Unreachable, "no connection could be made").caused_by(plain(error)),
    }
}

/// Whether the connection is gone, whoever ended it.
pub(super) fn is_break(error: &MyError) -> bool {
    match error {
        MyError::Server(complaint) => is_end(complaint.code),
        _ => true,
    }
}

/// Whether two transactions got into each other's way, and the server undid this one.
pub(super) fn is_collision(error: &MyError) -> bool {
    matches!(error, MyError::Server(complaint) if matches!(complaint.code, 1205 | 1213))
}

/// A row was to be inserted, and there is one with its key: nothing has happened.
pub(super) fn is_there_already(error: &MyError) -> bool {
    matches!(error, MyError::Server(complaint) if complaint.code == 1062)
}

/// There is no such table or procedure.
pub(super) fn is_missing(code: u16) -> bool {
    matches!(code, 1146 | 1305)
}

pub(super) fn is_denied(code: u16) -> bool {
    matches!(code, 1044 | 1142 | 1143 | 1227 | 1370)
}

/// The procedure may have committed before: its time was up, or the commit itself failed.
fn is_late(code: u16) -> bool {
    matches!(code, 1026 | 1180 | 1969 | 3024)
}

/// The server is shutting down, or somebody ended the session or the statement.
fn is_end(code: u16) -> bool {
    matches!(code, 1053 | 1077 | 1079 | 1317 | 1927 | 4031)
}

fn of_server(complaint: &ServerError) -> Error {
    let unreachable = |why: &str| Error::new(ErrorKind::Unreachable, why).caused_by(words(complaint));
    let unusable = |why: &str| Error::new(ErrorKind::Unusable, why).caused_by(words(complaint));
    match complaint.code {
        1205 | 1213 => unreachable("other transactions are in the way"),
        1290 | 1792 | 1836 => unreachable("the server is a replica, or read-only"),
        1040 | 1203 | 1226 => unreachable("the server has no connection left"),
        1047 => unreachable("the server is not a part of its cluster"),
        1969 | 3024 => unreachable("the server gave the statement up, because of a timeout of its own"),
        code if is_end(code) => unreachable("the server is shutting down, or ended the session"),
        1045 | 1698 => unusable("the server refused the user or the password of the URL"),
        1049 => unusable("there is no such database"),
        code if is_denied(code) => {
            unusable("the user may not do what locks need: see docs/backends/mysql.md for the rights")
        }
        code if is_missing(code) => unusable("the tables or procedures are not there, or not all of them"),
        1021 | 1037 | 1041 | 1114 => unusable("the server has run out of memory or disk"),
        1665 => unusable(
            "the server writes its log as statements, which locks cannot be: set binlog_format to row or mixed",
        ),
        _ => Error::new(ErrorKind::Protocol, "the server complains").caused_by(words(complaint)),
    }
}

fn words(complaint: &ServerError) -> std::io::Error {
    let said = Escaped(complaint.message.as_bytes()).to_string();
    std::io::Error::other(format!("{said} ({})", complaint.code))
}

/// Its text alone: as a chain it would say the same twice.
fn plain(error: &MyError) -> std::io::Error {
    std::io::Error::other(Escaped(error.to_string().as_bytes()).to_string())
}
