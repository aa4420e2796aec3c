//! Whether a server is set up so that locks on it can be trusted.

use std::sync::Arc;

use tokio_postgres::Row;

use super::pool::Pool;
use super::reply::{column, only};
use crate::backend::Finding;
use crate::backend::sql::spring::Spring;
use crate::error::Result;

/// What the server says of itself. Whether each of the standbys has to confirm a commit is in `pg_stat_replication`, which
/// shows a user without further rights at least that they are there.
const QUESTION: &str = "
    SELECT current_setting('server_version') AS version,
        pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only,
        current_setting('synchronous_commit') AS synchronous_commit,
        current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on' AS durable,
        current_setting('synchronous_standby_names') <> '' AS confirmed,
        (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS standbys,
        current_setting('default_transaction_isolation') AS isolation,
        has_schema_privilege($1, 'USAGE') AND has_sequence_privilege($4, 'USAGE')
            AND (SELECT bool_and(has_table_privilege(t, needed)) FROM unnest(ARRAY[$2, $3]) AS t,
                unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed) AS allowed";

/// Which table of Spring's it is, and what it has.
const SPRING_QUESTION: &str = "
    SELECT n.nspname || '.' || c.relname AS table, leasehold.rows_end() AS rows_end,
        has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
            AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') AS allowed
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = 'int_lock'::regclass";

struct Health {
    version: String,
    read_only: bool,
    synchronous_commit: String,
    durable: bool,
    /// Whether any standby has to confirm a commit.
    confirmed: bool,
    standbys: i64,
    isolation: String,
    allowed: bool,
    /// Whether the server's messages reach us.
    hears: bool,
}

/// Everything that was looked at.
pub(super) async fn look(pool: &Arc<Pool>, hears: bool) -> Result<Vec<Finding>> {
    let schema = &pool.settings.schema;
    let names = ["entry", "watcher", "ticket"].map(|name| schema.named(&format!("leasehold.{name}")));
    let values: Vec<_> = std::iter::once(schema.to_string()).chain(names).map(super::link::Value::Text).collect();
    let rows = pool.ask(QUESTION, &values).await?;
    let mut findings = Health::read(only(&rows)?, hears)?.findings();
    if let Some(spring) = schema.layout.spring() {
        let rows = pool.ask(&schema.named(SPRING_QUESTION), &[]).await?;
        findings.push(layout(only(&rows)?, spring)?);
    }
    Ok(findings)
}

fn layout(row: &Row, spring: &Spring) -> Result<Finding> {
    const CHECK: &str = "layout";
    let (table, rows_end): (String, bool) = (column(row, "table")?, column(row, "rows_end")?);
    let version = if rows_end { "7 or newer" } else { "6" };
    let finding = format!("locks are rows of {table} too, as Spring Integration {version} writes them: {spring}");
    if !column::<bool>(row, "allowed")? {
        let advice = "see docs/wire/sql-spring.md for the rights";
        return Ok(Finding::fault(CHECK, format!("{finding}; the user may not read and write them"), advice));
    }
    Ok(Finding::fine(CHECK, finding))
}

impl Health {
    fn read(row: &Row, hears: bool) -> Result<Self> {
        Ok(Self {
            version: column(row, "version")?,
            read_only: column(row, "read_only")?,
            synchronous_commit: column(row, "synchronous_commit")?,
            durable: column(row, "durable")?,
            confirmed: column(row, "confirmed")?,
            standbys: column(row, "standbys")?,
            isolation: column(row, "isolation")?,
            allowed: column(row, "allowed")?,
            hears,
        })
    }

    fn findings(&self) -> Vec<Finding> {
        vec![
            Finding::fine("version", format!("it is PostgreSQL {}", self.version)),
            self.role(),
            self.durability(),
            self.isolation(),
            self.notifications(),
            self.rights(),
        ]
    }

    fn role(&self) -> Finding {
        const CHECK: &str = "role";
        if self.read_only {
            return Finding::fault(CHECK, "it is a standby, or read-only: it cannot be written to", "name the primary");
        }
        let finding = format!("it is a primary with {} standbys", self.standbys);
        if self.standbys > 0 && !self.confirmed {
            let advice =
                "a standby that is promoted may not know the last grants: name one in synchronous_standby_names";
            return Finding::warning(CHECK, finding, advice);
        }
        Finding::fine(CHECK, finding)
    }

    fn durability(&self) -> Finding {
        const CHECK: &str = "durability";
        if !self.durable {
            let finding =
                "fsync or full_page_writes is off, so a power cut may forget grants and tokens, or the whole database";
            return Finding::fault(CHECK, finding, "turn both on");
        }
        if self.synchronous_commit == "off" {
            let finding =
                "synchronous_commit is off; locks turn it on for themselves, or a token could be handed out twice";
            return Finding::fine(CHECK, finding);
        }
        Finding::fine(CHECK, format!("synchronous_commit is {}: tokens survive a power cut", self.synchronous_commit))
    }

    fn isolation(&self) -> Finding {
        const CHECK: &str = "isolation";
        let finding = format!("default_transaction_isolation is {}", self.isolation);
        if self.isolation == "read committed" {
            return Finding::fine(CHECK, finding);
        }
        let advice = "every request is refused: ALTER ROLE … SET default_transaction_isolation = 'read committed'";
        Finding::fault(CHECK, finding, advice)
    }

    fn notifications(&self) -> Finding {
        const CHECK: &str = "notifications";
        if self.hears {
            return Finding::fine(CHECK, "they are heard, so waiters are told when it is their turn");
        }
        let advice = "waiters look for themselves, and are up to a quarter of a second late: \
            name the server itself, or a pooler in session mode";
        Finding::warning(CHECK, "a pooler is in between that does not pass them on", advice)
    }

    fn rights(&self) -> Finding {
        const CHECK: &str = "rights";
        if self.allowed {
            return Finding::fine(CHECK, "the user may do what locks need");
        }
        let advice = "see docs/backends/postgres.md for the rights";
        Finding::fault(CHECK, "the user may not read and write all of the tables", advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Verdict;

    fn sound() -> Health {
        Health {
            version: "15".into(),
            read_only: false,
            synchronous_commit: "on".into(),
            durable: true,
            confirmed: false,
            standbys: 0,
            isolation: "read committed".into(),
            allowed: true,
            hears: true,
        }
    }

    fn worst(health: &Health) -> Option<(&'static str, Verdict)> {
        let findings = health.findings().into_iter().map(|finding| (finding.check, finding.verdict));
        findings.filter(|(_, verdict)| *verdict > Verdict::Fine).max_by_key(|(_, verdict)| *verdict)
    }

    #[test]
    fn a_sound_server_is_found_sound_and_each_trouble_is_named() {
        assert_eq!(worst(&sound()), None);
        assert_eq!(worst(&Health { read_only: true, ..sound() }), Some(("role", Verdict::Fault)));
        assert_eq!(worst(&Health { standbys: 1, ..sound() }), Some(("role", Verdict::Warning)));
        assert_eq!(worst(&Health { standbys: 1, confirmed: true, ..sound() }), None);
        assert_eq!(worst(&Health { durable: false, ..sound() }), Some(("durability", Verdict::Fault)));
        assert_eq!(worst(&Health { synchronous_commit: "off".into(), ..sound() }), None);
        assert_eq!(worst(&Health { isolation: "serializable".into(), ..sound() }), Some(("isolation", Verdict::Fault)));
        assert_eq!(worst(&Health { hears: false, ..sound() }), Some(("notifications", Verdict::Warning)));
        assert_eq!(worst(&Health { allowed: false, ..sound() }), Some(("rights", Verdict::Fault)));
    }
}
