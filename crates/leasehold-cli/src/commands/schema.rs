//! `leasehold schema STORE`: what a database needs, for somebody to apply who may.

use std::io::Write;

use leasehold::backend::mysql::MySql;
use leasehold::backend::postgres::{Layout, Postgres, Spring};

use crate::args::{Database, Schema, TableLayout};

pub(crate) fn run(args: &Schema, out: &mut impl Write) -> anyhow::Result<()> {
    let (name, layout) = (
        args.name.as_deref(),
        match args.layout {
            TableLayout::Canonical => Layout::Canonical,
            TableLayout::Spring => Layout::Spring(Spring::default()),
        },
    );
    let statements = match args.database {
        Database::Mysql => MySql::schema(name, layout)?,
        Database::Postgres => Postgres::schema(name, layout)?,
    };
    out.write_all(statements.as_bytes())?;
    Ok(())
}
