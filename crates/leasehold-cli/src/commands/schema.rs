//! `leasehold schema STORE`: what a database needs, for somebody to apply who may.

use std::io::Write;

use leasehold::backend::postgres::Postgres;

use crate::args::Database;

pub(crate) fn run(database: Database, name: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let statements = match database {
        Database::Postgres => Postgres::schema(name)?,
    };
    out.write_all(statements.as_bytes())?;
    Ok(())
}
