//! Whether a server is set up so that locks on it can be trusted.

use std::collections::HashMap;
use std::sync::Arc;

use super::pool::{Pool, Question};
use super::reply::column;
use crate::backend::sql::spring::Spring;
use crate::backend::{Finding, Verdict};
use crate::error::{Error, ErrorKind, Result};

const QUESTION: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'read_only', 'wsrep_on', \
    'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'rpl_semi_sync_master_enabled', \
    'rpl_semi_sync_source_enabled', 'group_replication_group_name', 'group_replication_single_primary_mode')";

/// What the server says of itself.
pub(super) struct Health {
    variables: HashMap<String, String>,
    replicas: usize,
    galera_accepted: bool,
}

/// What Spring's table has.
const SPRING_QUESTION: &str = "SELECT COLUMN_NAME AS name, DATETIME_PRECISION AS digits FROM information_schema.COLUMNS \
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'INT_LOCK' AND COLUMN_NAME IN ('CREATED_DATE', 'EXPIRED_AFTER')";

/// Everything that was looked at.
pub(super) async fn look(pool: &Arc<Pool>) -> Result<Vec<Finding>> {
    let mut findings = Health::of(pool).await?.findings();
    if let Some(spring) = pool.settings.prefix.layout.spring() {
        let answer = pool.ask(Question::Plain(vec![SPRING_QUESTION.into()])).await?;
        let columns = answer.rows.iter().map(|row| Ok((column(row, "name")?, column(row, "digits")?)));
        findings.push(layout(&columns.collect::<Result<_>>()?, spring));
    }
    Ok(findings)
}

/// The columns that are times, and how many digits of a second they have.
fn layout(times: &HashMap<String, u64>, spring: &Spring) -> Finding {
    const CHECK: &str = "layout";
    if times.is_empty() {
        let advice = "let Spring's own script make it";
        return Finding::fault(CHECK, "there is no table INT_LOCK that the user may read", advice);
    }
    let version = if times.contains_key("EXPIRED_AFTER") { "7 or newer" } else { "6" };
    let finding = format!("locks are rows of INT_LOCK too, as Spring Integration {version} writes them: {spring}");
    if times.values().any(|digits| *digits < 6) {
        let advice =
            "make its times DATETIME(6): they are rounded, and Spring takes a lock over up to half a second early";
        return Finding::warning(CHECK, finding, advice);
    }
    Finding::fine(CHECK, finding)
}

impl Health {
    pub(super) async fn of(pool: &Arc<Pool>) -> Result<Self> {
        let answer = pool.ask(Question::Plain(vec![QUESTION.into()])).await?;
        let variables = answer.rows.iter().map(|row| Ok((column(row, "Variable_name")?, column(row, "Value")?)));
        let variables = variables.collect::<Result<_>>()?;
        // A user without the right to ask is not told of any.
        let listed = "SELECT COMMAND FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
        let replicas = pool.ask(Question::Plain(vec![listed.into()])).await.map_or(0, |answer| answer.rows.len());
        Ok(Self { variables, replicas, galera_accepted: pool.settings.galera_accepted })
    }

    fn says(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.says(name), "ON" | "1" | "YES")
    }

    /// Refuses a server on which exclusion would not hold.
    pub(super) fn refuse_if_unfit(&self) -> Result<()> {
        let galera = self.galera();
        if galera.verdict == Verdict::Fault {
            return Err(Error::new(ErrorKind::Unusable, galera.to_string()));
        }
        Ok(())
    }

    /// Everything that was looked at.
    pub(super) fn findings(&self) -> Vec<Finding> {
        vec![
            Finding::fine("version", format!("it is {}", self.says("version"))),
            self.role(),
            self.galera(),
            self.durability(),
            Finding::fine("time zone", "it plays no part: all times are UTC, on the server's clock"),
            Finding::warning(
                "notifications",
                "this store cannot tell waiters that it is their turn",
                "they look, and are up to a third of a second late; nothing is to be done",
            ),
        ]
    }

    fn role(&self) -> Finding {
        const CHECK: &str = "role";
        if self.is_on("read_only") {
            return Finding::fault(CHECK, "it is read-only", "name the primary");
        }
        let finding = format!("it can be written to, and has {} replicas that we may know of", self.replicas);
        let confirmed = self.is_on("rpl_semi_sync_master_enabled") || self.is_on("rpl_semi_sync_source_enabled");
        if self.replicas > 0 && !confirmed {
            let advice =
                "a replica that is promoted may not know the last grants: turn semi-synchronous replication on";
            return Finding::warning(CHECK, finding, advice);
        }
        Finding::fine(CHECK, finding)
    }

    fn galera(&self) -> Finding {
        const CHECK: &str = "galera";
        let writes_anywhere = !self.says("group_replication_group_name").is_empty()
            && !self.is_on("group_replication_single_primary_mode");
        let kind = match (self.is_on("wsrep_on"), writes_anywhere) {
            (true, _) => "Galera cluster",
            (false, true) => "replication group without a single primary",
            (false, false) => return Finding::fine(CHECK, "it is not a part of a cluster with several primaries"),
        };
        let finding = format!("it is a part of a {kind}, whose servers do not see each other's locks on rows");
        if self.galera_accepted {
            return Finding::warning(CHECK, finding, "let all clients use the same server; this was accepted");
        }
        let advice = "use another store, or the same server for all clients and ?galera=accept";
        Finding::fault(CHECK, finding, advice)
    }

    fn durability(&self) -> Finding {
        const CHECK: &str = "durability";
        let flushed = self.says("innodb_flush_log_at_trx_commit");
        let logged = !self.is_on("log_bin") || self.says("sync_binlog") == "1";
        let finding = format!("innodb_flush_log_at_trx_commit is {flushed}");
        match (flushed, logged) {
            ("1", true) => Finding::fine(CHECK, format!("{finding}: tokens survive a power cut")),
            ("1", false) => {
                let advice = "set sync_binlog to 1, or a replica may miss what this server has";
                Finding::warning(CHECK, format!("{finding}, and sync_binlog is not 1"), advice)
            }
            _ => {
                let advice = "a power cut forgets the last grants, and their tokens are handed out again: set it to 1";
                Finding::fault(CHECK, finding, advice)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(variables: &[(&str, &str)]) -> Health {
        let sound = [("innodb_flush_log_at_trx_commit", "1"), ("wsrep_on", "OFF"), ("read_only", "OFF")];
        let all = sound.iter().chain(variables).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Health { variables: all.collect(), replicas: 0, galera_accepted: false }
    }

    fn verdict(health: &Health, check: &str) -> Verdict {
        health.findings().iter().find(|finding| finding.check == check).unwrap().verdict
    }

    #[test]
    fn a_cluster_whose_servers_do_not_see_each_others_locks_is_refused_unless_that_is_accepted() {
        let mut galera = health(&[("wsrep_on", "ON")]);
        let refused = galera.refuse_if_unfit().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable);
        assert!(refused.to_string().contains("?galera=accept"), "{refused}");
        let group = [("group_replication_group_name", "g"), ("group_replication_single_primary_mode", "OFF")];
        health(&group).refuse_if_unfit().unwrap_err();
        health(&[group[0], ("group_replication_single_primary_mode", "ON")]).refuse_if_unfit().unwrap();
        galera.galera_accepted = true;
        galera.refuse_if_unfit().unwrap();
        assert_eq!(verdict(&galera, "galera"), Verdict::Warning);
        health(&[]).refuse_if_unfit().unwrap();
    }

    #[test]
    fn a_table_of_springs_that_rounds_times_is_a_warning_and_a_missing_one_a_fault() {
        let verdict = |times: &[(&str, u64)]| {
            let times = times.iter().map(|(name, digits)| ((*name).to_owned(), *digits)).collect();
            layout(&times, &Spring::default()).verdict
        };
        assert_eq!(verdict(&[("CREATED_DATE", 6), ("EXPIRED_AFTER", 6)]), Verdict::Fine);
        assert_eq!(verdict(&[("CREATED_DATE", 0)]), Verdict::Warning);
        assert_eq!(verdict(&[]), Verdict::Fault);
    }

    #[test]
    fn what_a_power_cut_would_forget_is_a_fault() {
        assert_eq!(verdict(&health(&[]), "durability"), Verdict::Fine);
        assert_eq!(verdict(&health(&[("log_bin", "ON"), ("sync_binlog", "0")]), "durability"), Verdict::Warning);
        assert_eq!(verdict(&health(&[("innodb_flush_log_at_trx_commit", "2")]), "durability"), Verdict::Fault);
        assert_eq!(verdict(&health(&[("read_only", "ON")]), "role"), Verdict::Fault);
        let replicated = Health { replicas: 1, ..health(&[]) };
        assert_eq!(verdict(&replicated, "role"), Verdict::Warning);
    }
}
