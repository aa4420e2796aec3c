//! The tables: made on first use, refused when newer than this program.

use std::fmt;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error as MyError};

use super::fault;
use crate::error::{Error, ErrorKind, Result};

/// What this program writes. Tables with a larger number were made by a newer one.
const VERSION: i64 = 1;

const TABLES: &str = include_str!("schema.sql");

/// Who makes the tables has this lock meanwhile, and how long the others wait for it.
const DOOR: &str = "SELECT GET_LOCK('leasehold_schema', 20)";

/// The longest name of ours, `ask_to_yield`, and this prefix still make a name that the server takes.
const PREFIX_BYTES_MAX: usize = 48;

/// What the names of our tables and procedures begin with. It is put into statements, so it has nothing in it that could end one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix(String);

impl Prefix {
    pub(super) const DEFAULT: &'static str = "leasehold_";

    pub(super) fn new(prefix: &str) -> Result<Self> {
        let ordinary = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts = prefix.starts_with(|c: char| c.is_ascii_lowercase());
        if !starts || prefix.len() > PREFIX_BYTES_MAX || !prefix.chars().all(ordinary) {
            let why = format!("must be a letter and up to {PREFIX_BYTES_MAX} of a to z, 0 to 9 and _ in all");
            return Err(Error::option("prefix", why));
        }
        Ok(Self(prefix.into()))
    }

    /// That text with our prefix in place of the default one.
    pub(super) fn named(&self, statement: &str) -> String {
        statement.replace(Self::DEFAULT, &self.0)
    }

    /// Everything that has to be there, for the program `mysql`.
    pub(super) fn tables(&self) -> String {
        self.named(TABLES)
    }

    /// The same as single statements.
    fn statements(&self) -> Vec<String> {
        let text: String =
            self.tables().lines().filter(|line| !line.starts_with("--")).fold(String::new(), |mut text, line| {
                text.push_str(line);
                text.push('\n');
                text
            });
        let mut statements = Vec::new();
        for (nth, part) in text.split("DELIMITER //").enumerate() {
            let (procedures, plain) =
                if nth == 0 { ("", part) } else { part.split_once("DELIMITER ;").unwrap_or((part, "")) };
            statements.extend(procedures.split("//").map(str::trim).map(ToOwned::to_owned));
            statements.extend(plain.split(";\n").map(str::trim).map(ToOwned::to_owned));
        }
        statements.retain(|statement| !statement.is_empty());
        statements
    }

    /// Looks whether the tables are there, and makes them otherwise. On a connection that is not used again: whatever happens
    /// in the middle of it, the lock goes with it.
    pub(super) async fn prepare(&self, conn: &mut Conn) -> Result<()> {
        if self.is_there(conn).await? {
            return Ok(());
        }
        // Several programs may come here at once: whoever is second finds the work done.
        let entered: Option<i64> = conn.query_first(DOOR).await.map_err(|error| self.cannot_make(&error))?;
        if entered != Some(1) {
            return Err(Error::new(ErrorKind::Unreachable, "somebody else is making the tables, and does not finish"));
        }
        if self.is_there(conn).await? {
            return Ok(());
        }
        for statement in self.statements() {
            conn.query_drop(statement).await.map_err(|error| self.cannot_make(&error))?;
        }
        Ok(())
    }

    async fn is_there(&self, conn: &mut Conn) -> Result<bool> {
        let asked: std::result::Result<Option<i64>, _> =
            conn.query_first(self.named("SELECT version FROM leasehold_store")).await;
        match asked {
            Ok(Some(VERSION)) => Ok(true),
            Ok(None) => Ok(false),
            Err(MyError::Server(complaint)) if fault::is_missing(complaint.code) => Ok(false),
            Ok(Some(other)) => {
                let why = format!(
                    "the tables have layout {other}, and this program knows {VERSION} at most: use the newer program here too"
                );
                Err(Error::new(ErrorKind::Unusable, why))
            }
            // Whoever may not read a table is not told that there is none.
            Err(error) => Err(self.cannot_make(&error)),
        }
    }

    fn cannot_make(&self, error: &MyError) -> Error {
        if let MyError::Server(complaint) = error
            && fault::is_denied(complaint.code)
        {
            let why = format!(
                "there are no tables with the prefix {self} that this user may use, and it may not make them: have somebody who \
                 may apply what `leasehold schema mysql` prints, and see docs/backends/mysql.md for the rights"
            );
            return Error::new(ErrorKind::Unusable, why);
        }
        fault::of_request(error).with_no_effect()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_comes_apart_into_statements() {
        let statements = Prefix::new("locks_").unwrap().statements();
        let beginnings: Vec<String> =
            statements.iter().map(|statement| statement.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(beginnings.iter().filter(|beginning| *beginning == "CREATE TABLE").count(), 3);
        assert_eq!(beginnings.iter().filter(|beginning| *beginning == "CREATE PROCEDURE").count(), 9);
        let last: Vec<&str> = beginnings[beginnings.len() - 4..].iter().map(String::as_str).collect();
        assert_eq!(last, ["START TRANSACTION", "CALL locks_fill()", "COMMIT", "DROP PROCEDURE"]);
        assert!(
            statements.iter().all(|statement| !statement.contains("leasehold") && !statement.contains("DELIMITER"))
        );
    }

    #[test]
    fn a_prefix_that_could_end_a_name_is_refused() {
        for prefix in ["", "a`b", "a b", "1a", "_a", "A", &"a".repeat(49)] {
            assert!(Prefix::new(prefix).unwrap_err().to_string().contains("prefix"), "{prefix}");
        }
    }
}
