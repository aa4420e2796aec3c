//! `leasehold schema STORE`: what a database needs, for somebody to apply who may.

use std::io::Write;

use leasehold::backend::mysql::MySql;
use leasehold::backend::postgres::Postgres;

use crate::args::Database;

/// The name is that of a schema, or a prefix of tables.
pub(crate) fn run(database: Database, name: Option<&str>, out: &mut impl Write) -> anyhow::Result<()> {
    let statements = match database {
        Database::Mysql => MySql::schema(name.unwrap_or("leasehold_"))?,
        Database::Postgres => Postgres::schema(name.unwrap_or("leasehold"))?,
    };
    out.write_all(statements.as_bytes())?;
    Ok(())
}
