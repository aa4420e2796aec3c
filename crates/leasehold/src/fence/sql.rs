//! Gates for data in tables: statements for a transaction of your own, with whatever client library you have.
//!
//! Where the lock protects one row, that row is its own gate: give it a column `fence BIGINT NOT NULL DEFAULT 0`, and write with
//! `UPDATE … SET …, fence = :token WHERE … AND fence <= :token`. No row changed: the token was stale.
//!
//! Where it protects more than a row, a table remembers the highest token of each resource. Show it the token in the
//! transaction that writes, before anything else, and roll back if no row comes back. The row stays locked until the
//! transaction ends, so that no other token can pass in between.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::fence::FencingToken;
//! use leasehold::fence::sql::sqlite;
//! use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};
//!
//! let mut db = Connection::open_in_memory()?;
//! db.execute_batch(sqlite::TABLE)?;
//! let mut closes_month = |token: FencingToken| -> rusqlite::Result<bool> {
//!     let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
//!     let values = ("ledger", token.get().cast_signed());
//!     let passes = transaction.query_row(sqlite::ADMIT, values, |_| Ok(())).optional()?.is_some();
//!     // … and here is what the lock protects …
//!     if passes { transaction.commit()? } // else it is rolled back
//!     Ok(passes)
//! };
//! let (older, newer) = (FencingToken::new(33).unwrap(), FencingToken::new(34).unwrap());
//! assert!(closes_month(older)? && closes_month(newer)? && closes_month(newer)?);
//! assert!(!closes_month(older)?); // it woke up too late
//! # Ok(()) }
//! ```

/// For PostgreSQL, under its default isolation level or a stricter one.
pub mod postgres {
    /// Makes the table.
    pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS leasehold_fence \
                             (resource text PRIMARY KEY, token bigint NOT NULL)";

    /// Shows it a token: `$1` is the resource, `$2` the token. One row if it passes, none if it is stale.
    pub const ADMIT: &str = "INSERT INTO leasehold_fence AS seen (resource, token) VALUES ($1, $2) \
                             ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token \
                             WHERE seen.token <= EXCLUDED.token RETURNING token";
}

/// For SQLite, from 3.35 on. Begin the transaction with `BEGIN IMMEDIATE`: one that finds out only now that others write too
/// cannot go on.
pub mod sqlite {
    /// Makes the table.
    pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS leasehold_fence \
                             (resource TEXT PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID";

    /// Shows it a token: `?1` is the resource, `?2` the token. One row if it passes, none if it is stale.
    pub const ADMIT: &str = "INSERT INTO leasehold_fence (resource, token) VALUES (?1, ?2) \
                             ON CONFLICT (resource) DO UPDATE SET token = excluded.token \
                             WHERE token <= excluded.token RETURNING token";
}

/// For MySQL and MariaDB. Two statements: they count a row that is set to what it is already as not changed, so that the number
/// of changed rows does not tell a token that passes again from a stale one.
pub mod mysql {
    /// Makes the table.
    pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS leasehold_fence \
                             (resource VARBINARY(512) PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB";

    /// Remembers the token if it is the highest, and locks the row: the values are the resource, the token and the token again.
    pub const REMEMBER: &str = "INSERT INTO leasehold_fence (resource, token) VALUES (?, ?) \
                                ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)";

    /// Asks whether it is the highest: the values are the resource and the token. One row if it passes, none if it is stale.
    pub const ADMIT: &str = "SELECT token FROM leasehold_fence WHERE resource = ? AND token = ? FOR UPDATE";
}
