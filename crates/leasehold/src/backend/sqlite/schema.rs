//! The file's tables: made on first use, migrated when old, refused when newer than this program.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::error::{Error, ErrorKind, Result};

use super::fault;

/// What this program writes. A file with a larger number was written by a newer one.
const VERSION: i64 = 1;

/// `Lsh1`: tells a file of ours from any other SQLite database.
const APPLICATION: i64 = 0x4c73_6831;

/// How many tickets are handed out before the next one has to wait for the disk. See [`next_ticket`].
const TICKETS_AT_ONCE: i64 = 10_000;

// The line of a key is read in ticket order and no further than the first that does not hold, so it is the primary key.
// `entry_by_id` finds a place. There is no index by expiry, which every renewal would have to change: `quiet_until` says
// until when nothing can have run out, and only then is every entry looked at.
const TABLES: &str = "
    CREATE TABLE store (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        boot TEXT NOT NULL,
        ticket INTEGER NOT NULL,
        ceiling INTEGER NOT NULL,
        quiet_until INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE entry (
        namespace TEXT NOT NULL,
        name BLOB NOT NULL,
        ticket INTEGER NOT NULL,
        entry BLOB NOT NULL,
        client TEXT NOT NULL,
        weight INTEGER NOT NULL,
        capacity INTEGER NOT NULL,
        owner TEXT NOT NULL,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        value BLOB,
        entered_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        yield_asked INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (namespace, name, ticket)
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX entry_by_id ON entry (entry);
    CREATE TABLE watcher (
        namespace TEXT NOT NULL,
        name BLOB NOT NULL,
        client TEXT NOT NULL,
        PRIMARY KEY (namespace, name, client)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE sighting (
        namespace TEXT NOT NULL,
        name BLOB NOT NULL,
        version INTEGER NOT NULL,
        nth INTEGER NOT NULL,
        ticket INTEGER,
        entry BLOB,
        weight INTEGER,
        capacity INTEGER,
        owner TEXT,
        host TEXT,
        pid INTEGER,
        value BLOB,
        entered_at INTEGER,
        expires_at INTEGER,
        yield_asked INTEGER,
        PRIMARY KEY (namespace, name, version, nth)
    ) STRICT, WITHOUT ROWID;
";

/// Makes the tables if they are not there, and forgets every entry of an earlier boot: nobody lives through one.
pub(super) fn prepare(connection: &mut Connection, boot: &str) -> Result<()> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(fault)?;
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(fault)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fault)?;
    if tables > 0 && application != APPLICATION {
        return Err(unusable(
            "the file is an SQLite database of another program: name a file of its own for the locks",
        ));
    }
    if version > VERSION {
        return Err(unusable(format!(
            "the file has layout {version}, and this program knows {VERSION} at most: use the newer program here too"
        )));
    }
    if version == VERSION && this_boot(connection, boot).map_err(fault)? {
        return Ok(());
    }
    // Several processes may come here at once: whoever is second finds the work done.
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
    make(&tx, boot).map_err(fault)?;
    tx.commit().map_err(fault)
}

fn unusable(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unusable, why)
}

fn this_boot(connection: &Connection, boot: &str) -> rusqlite::Result<bool> {
    let stored = connection.query_row("SELECT boot FROM store", [], |row| row.get::<_, String>(0)).optional()?;
    Ok(stored.as_deref() == Some(boot))
}

fn make(tx: &Transaction<'_>, boot: &str) -> rusqlite::Result<()> {
    let version: i64 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        tx.execute_batch(TABLES)?;
        tx.pragma_update(None, "application_id", APPLICATION)?;
        tx.pragma_update(None, "user_version", VERSION)?;
        tx.execute("INSERT INTO store (one, boot, ticket, ceiling, quiet_until) VALUES (1, ?1, 0, 0, 0)", [boot])?;
    }
    if !this_boot(tx, boot)? {
        tx.execute("DELETE FROM entry", [])?;
        tx.execute("DELETE FROM watcher", [])?;
        tx.execute("DELETE FROM sighting", [])?;
        // After a power cut the file may lack the last tickets that were handed out. None was above the ceiling.
        tx.execute(
            "UPDATE store SET boot = ?1, ticket = max(ticket, ceiling), ceiling = max(ticket, ceiling)",
            [boot],
        )?;
    }
    Ok(())
}

/// The next ticket, for an entry that expires at that time, and whether the file must reach the disk before anybody may
/// learn of it.
///
/// Tickets are tokens, so one must never be handed out twice, not even after a power cut has undone the last commits.
/// Waiting for the disk on every lock would cost more than all the rest; instead the `ceiling` is written to disk once,
/// and any number up to it can be handed out without waiting. After a cut, counting goes on above the ceiling.
pub(super) fn next_ticket(tx: &Transaction<'_>, expires_at: i64) -> rusqlite::Result<(i64, bool)> {
    let (ticket, ceiling): (i64, i64) = tx
        .prepare_cached(
            "UPDATE store SET ticket = ticket + 1, quiet_until = min(quiet_until, ?1) RETURNING ticket, ceiling",
        )?
        .query_row([expires_at], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if ticket <= ceiling {
        return Ok((ticket, false));
    }
    tx.prepare_cached("UPDATE store SET ceiling = ?1")?.execute([ticket + TICKETS_AT_ONCE])?;
    Ok((ticket, true))
}
