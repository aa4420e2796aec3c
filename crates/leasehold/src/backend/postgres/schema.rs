//! The tables: made on first use, refused when newer than this program.

use std::fmt;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::fault;
use crate::backend::sql::spring::{Layout, Spring};
use crate::error::{Error, ErrorKind, Result};

/// What this program writes. A schema with a larger number was made by a newer one, and one with a smaller before the first
/// release.
const VERSION: i32 = 2;

const TABLES: &str = include_str!("schema.sql");

/// What of it is for the layout of Spring alone.
const SPRING: &str = include_str!("spring.sql");

/// Who makes or migrates the tables has this lock until it commits.
const DOOR: i64 = 0x4c65_6173_6568_6f6c;

/// PostgreSQL cuts longer names off.
const NAME_BYTES_MAX: usize = 63;

/// The schema that the tables are in, and how they look. Its name is put into statements, so it has nothing in it that could
/// end one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Schema {
    /// Unless it is the layout's own.
    name: Option<String>,
    pub(super) layout: Layout,
}

impl Schema {
    pub(super) fn new(name: Option<&str>, layout: Layout) -> Result<Self> {
        let ordinary = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_some_and(|name| name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(ordinary)) {
            let why = format!("must be 1 to {NAME_BYTES_MAX} of a to z, 0 to 9 and _");
            return Err(Error::option("schema", why));
        }
        Ok(Self { name: name.map(Into::into), layout })
    }

    /// The same tables under that name.
    pub(super) fn renamed(self, name: &str) -> Result<Self> {
        Self::new(Some(name), self.layout)
    }

    fn name(&self) -> &str {
        match (&self.name, &self.layout) {
            (Some(name), _) => name,
            (None, Layout::Canonical) => "leasehold",
            (None, Layout::Spring(_)) => "leasehold_spring",
        }
    }

    /// That text with our schema in place of the default one.
    pub(super) fn named(&self, statement: &str) -> String {
        let name = self.name();
        statement
            .replace("leasehold.", &format!("\"{name}\"."))
            .replace("SCHEMA IF NOT EXISTS leasehold;", &format!("SCHEMA IF NOT EXISTS \"{name}\";"))
    }

    /// Everything that has to be there, as statements.
    pub(super) fn tables(&self) -> String {
        self.layout.statements(&self.named(TABLES), &self.named(SPRING))
    }

    /// Looks whether the tables are there, and makes them otherwise. On a connection of its own: whatever happens in the
    /// middle of it, the connection is not used again.
    pub(super) async fn prepare(&self, client: &mut Client) -> Result<()> {
        if self.is_there(client).await? {
            return Ok(());
        }
        let failed = |error: tokio_postgres::Error| self.cannot_make(&error);
        let transaction = client.transaction().await.map_err(failed)?;
        // Several programs may come here at once: whoever is second finds the work done.
        transaction.batch_execute(&format!("SELECT pg_advisory_xact_lock({DOOR})")).await.map_err(failed)?;
        if !self.is_there(transaction.client()).await? {
            transaction.batch_execute(&self.tables()).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    async fn is_there(&self, client: &Client) -> Result<bool> {
        let known = self.layout.numbered(VERSION);
        let why = match self.version(client).await? {
            None => return Ok(false),
            Some(number) if number == known => {
                return match self.layout.spring() {
                    Some(spring) => self.agrees(spring, client).await.map(|()| true),
                    None => Ok(true),
                };
            }
            Some(other) if self.layout.is_other(other) => {
                format!("the tables in the schema {self} have another ?layout= than this client: name another ?schema=")
            }
            Some(older) if older < known => format!(
                "the tables in the schema {self} have layout {older}, which was never released: drop the schema, or name \
                 another ?schema="
            ),
            Some(other) => format!(
                "the tables have layout {other}, and this program knows {known} at most: use the newer program here too"
            ),
        };
        Err(Error::new(ErrorKind::Unusable, why))
    }

    /// Refuses tables that others use for another region, or with another time to live: the same line would have two rows,
    /// or its row two ends.
    async fn agrees(&self, spring: &Spring, client: &Client) -> Result<()> {
        let asked = "SELECT region, ttl_ms, to_regclass('int_lock') IS NOT NULL FROM leasehold.store";
        let row = client.query_typed_one(&self.named(asked), &[]).await;
        let row = row.map_err(|error| fault::of_request(&error).with_no_effect())?;
        let read = |error| fault::of_request(&error);
        let (region, ttl_ms): (String, i64) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
        if region != spring.region || ttl_ms != spring.ttl_ms() {
            let why = format!(
                "the tables in the schema {self} are for region {region:?}, time to live {ttl_ms} ms, and this client is for \
                 {spring}: name another ?schema="
            );
            return Err(Error::new(ErrorKind::Unusable, why));
        }
        if !row.try_get::<_, bool>(2).map_err(read)? {
            let why = "there is no table int_lock on the search path of this user: make it by Spring's own script";
            return Err(Error::new(ErrorKind::Unusable, why));
        }
        Ok(())
    }

    /// The layout of the tables, if there are any.
    pub(super) async fn version(&self, client: &Client) -> Result<Option<i32>> {
        // Not by `to_regclass`: it may remember that there was none before we waited for whoever made it.
        let there = "SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relname = 'store'";
        let asked = client.query_typed(there, &[(&self.name(), Type::TEXT)]).await;
        if asked.map_err(|error| fault::of_request(&error).with_no_effect())?.is_empty() {
            return Ok(None);
        }
        let rows = client.query_typed(&self.named("SELECT version FROM leasehold.store"), &[]).await;
        let rows = rows.map_err(|error| fault::of_request(&error).with_no_effect())?;
        match rows.first() {
            Some(row) => Ok(Some(row.try_get(0).map_err(|error| fault::of_request(&error))?)),
            None => Ok(Some(0)),
        }
    }

    fn cannot_make(&self, error: &tokio_postgres::Error) -> Error {
        if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            let why = format!(
                "there are no tables in the schema {self}, and this user may not make them: have somebody who may apply \
                 what `leasehold schema postgres{}` prints",
                if self.layout.spring().is_some() { " --layout spring" } else { "" }
            );
            return Error::new(ErrorKind::Unusable, why);
        }
        fault::of_request(error).with_no_effect()
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_another_name_is_named_everywhere() {
        for layout in [Layout::Canonical, Layout::Spring(Spring::default())] {
            let tables = Schema::new(Some("locks_2"), layout).unwrap().tables();
            assert!(tables.contains("CREATE SCHEMA IF NOT EXISTS \"locks_2\";"));
            assert!(tables.contains("nextval('\"locks_2\".ticket')"));
            let statements = tables.lines().filter(|line| !line.trim_start().starts_with("--"));
            let left: Vec<&str> =
                statements.filter(|line| line.contains("leasehold") && !line.contains("'leasehold_'")).collect();
            assert_eq!(left, [""; 0]);
        }
    }

    #[test]
    fn tables_that_only_we_read_say_nothing_of_spring() {
        let tables = Schema::default().tables().to_lowercase();
        assert!(!tables.contains("spring") && !tables.contains("int_lock") && !tables.contains("_row("));
    }

    #[test]
    fn a_name_that_could_end_a_statement_is_refused() {
        for name in ["", "a\"b", "a b", "a;b", "A", "ä", &"a".repeat(64)] {
            let refused = Schema::new(Some(name), Layout::Canonical).unwrap_err();
            assert!(refused.to_string().contains("schema"), "{name}");
        }
    }
}
