//! The tables: made on first use, refused when newer than this program.

use std::fmt;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error as MyError};

use super::fault;
use crate::backend::sql::spring::{Layout, Spring};
use crate::error::{Error, ErrorKind, Result};

/// What this program writes. Tables with a larger number were made by a newer one, and those with a smaller one before the
/// first release.
const VERSION: i32 = 2;

const TABLES: &str = include_str!("schema.sql");

/// What of it is for the layout of Spring alone.
const SPRING: &str = include_str!("spring.sql");

/// What names begin with in the texts above.
const WRITTEN: &str = "leasehold_";

/// Who makes the tables has this lock meanwhile, and how long the others wait for it.
const DOOR: &str = "SELECT GET_LOCK('leasehold_schema', 20)";

/// The longest name of ours, `delete_foreign`, and this prefix still make a name that the server takes.
const PREFIX_BYTES_MAX: usize = 48;

/// What the names of our tables and procedures begin with, and how they look. It is put into statements, so it has nothing in it
/// that could end one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Unless it is the layout's own.
    text: Option<String>,
    pub(super) layout: Layout,
}

impl Prefix {
    pub(super) fn new(text: Option<&str>, layout: Layout) -> Result<Self> {
        let ordinary = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let starts = |text: &str| text.starts_with(|c: char| c.is_ascii_lowercase());
        if text.is_some_and(|text| !starts(text) || text.len() > PREFIX_BYTES_MAX || !text.chars().all(ordinary)) {
            let why = format!("must be a letter and up to {PREFIX_BYTES_MAX} of a to z, 0 to 9 and _ in all");
            return Err(Error::option("prefix", why));
        }
        Ok(Self { text: text.map(Into::into), layout })
    }

    /// The same tables under that prefix.
    pub(super) fn renamed(self, text: &str) -> Result<Self> {
        Self::new(Some(text), self.layout)
    }

    fn text(&self) -> &str {
        match (&self.text, &self.layout) {
            (Some(text), _) => text,
            (None, Layout::Canonical) => WRITTEN,
            (None, Layout::Spring(_)) => "leasehold_spring_",
        }
    }

    /// That text with our prefix in place of the default one.
    pub(super) fn named(&self, statement: &str) -> String {
        statement.replace(WRITTEN, self.text())
    }

    /// Everything that has to be there, for the program `mysql`.
    pub(super) fn tables(&self) -> String {
        self.layout.statements(&self.named(TABLES), &self.named(SPRING))
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
        let asked: std::result::Result<Option<i32>, _> =
            conn.query_first(self.named("SELECT version FROM leasehold_store")).await;
        let known = self.layout.numbered(VERSION);
        let why = match asked {
            Ok(Some(number)) if number == known => {
                return match self.layout.spring() {
                    Some(spring) => self.agrees(spring, conn).await.map(|()| true),
                    None => Ok(true),
                };
            }
            Ok(None) => return Ok(false),
            Err(MyError::Server(complaint)) if fault::is_missing(complaint.code) => return Ok(false),
            // Whoever may not read a table is not told that there is none.
            Err(error) => return Err(self.cannot_make(&error)),
            Ok(Some(other)) if self.layout.is_other(other) => {
                format!(
                    "the tables with the prefix {self} have another ?layout= than this client: name another ?prefix="
                )
            }
            Ok(Some(older)) if older < known => format!(
                "the tables with the prefix {self} have layout {older}, which was never released: drop them and their \
                 procedures, or name another ?prefix="
            ),
            Ok(Some(other)) => format!(
                "the tables have layout {other}, and this program knows {known} at most: use the newer program here too"
            ),
        };
        Err(Error::new(ErrorKind::Unusable, why))
    }

    /// Refuses tables that others use for another region, or with another time to live: the same line would have two rows,
    /// or its row two ends.
    async fn agrees(&self, spring: &Spring, conn: &mut Conn) -> Result<()> {
        let asked = conn.query_first(self.named("SELECT region, ttl_ms FROM leasehold_store")).await;
        let asked: Option<(String, i64)> = asked.map_err(|error| fault::of_request(&error).with_no_effect())?;
        match asked {
            Some((region, ttl_ms)) if region != spring.region || ttl_ms != spring.ttl_ms() => {
                let why = format!(
                    "the tables with the prefix {self} are for region {region:?}, time to live {ttl_ms} ms, and this client is \
                     for {spring}: name another ?prefix="
                );
                Err(Error::new(ErrorKind::Unusable, why))
            }
            _ => Ok(()),
        }
    }

    fn cannot_make(&self, error: &MyError) -> Error {
        if let MyError::Server(complaint) = error
            && fault::is_denied(complaint.code)
        {
            let why = format!(
                "there are no tables with the prefix {self} that this user may use, and it may not make them: have somebody who \
                 may apply what `leasehold schema mysql{}` prints, and see docs/backends/mysql.md for the rights",
                if self.layout.spring().is_some() { " --layout spring" } else { "" }
            );
            return Error::new(ErrorKind::Unusable, why);
        }
        fault::of_request(error).with_no_effect()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_comes_apart_into_statements() {
        for (layout, tables, procedures) in [(Layout::Canonical, 3, 10), (Layout::Spring(Spring::default()), 4, 20)] {
            let statements = Prefix::new(Some("locks_"), layout).unwrap().statements();
            let beginnings: Vec<String> =
                statements.iter().map(|statement| statement.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
            assert_eq!(beginnings.iter().filter(|beginning| *beginning == "CREATE TABLE").count(), tables);
            assert_eq!(beginnings.iter().filter(|beginning| *beginning == "CREATE PROCEDURE").count(), procedures);
            let last: Vec<&str> = beginnings[beginnings.len() - 4..].iter().map(String::as_str).collect();
            assert_eq!(last, ["START TRANSACTION", "CALL locks_fill()", "COMMIT", "DROP PROCEDURE"]);
            assert!(
                statements.iter().all(|statement| !statement.contains("leasehold") && !statement.contains("DELIMITER"))
            );
        }
    }

    #[test]
    fn tables_that_only_we_read_say_nothing_of_spring() {
        let tables = Prefix::default().tables().to_lowercase();
        assert!(!tables.contains("spring") && !tables.contains("int_lock") && !tables.contains("_row("));
    }

    #[test]
    fn a_prefix_that_could_end_a_name_is_refused() {
        for prefix in ["", "a`b", "a b", "1a", "_a", "A", &"a".repeat(49)] {
            let refused = Prefix::new(Some(prefix), Layout::Canonical).unwrap_err();
            assert!(refused.to_string().contains("prefix"), "{prefix}");
        }
    }
}
