//! Whether the servers are such that locks on them can be trusted.

use futures_util::future::join_all;

use crate::backend::redlock::core::Core;
use crate::backend::redlock::node::{Ask, Memory, Reply};
use crate::backend::{Finding, Verdict};
use crate::error::Result;

impl Core {
    pub(super) async fn checkup(&self) -> Vec<Finding> {
        let (memories, health) = (self.survey().await, self.health().await);
        let mut findings = vec![self.quorum(&memories)];
        for ((member, memory), health) in self.members.iter().zip(&memories).zip(health) {
            let of_this = [vec![self.memory(memory)], health].concat();
            findings.extend(of_this.into_iter().map(|finding| finding.of(&member.node)));
        }
        findings
    }

    /// What each server says of itself. What it keeps on disk matters less here than alone: one that was restarted stays out
    /// for a while whatever it remembers, unless it loses nothing at all.
    async fn health(&self) -> Vec<Vec<Finding>> {
        let asked = join_all(self.members.iter().map(|member| member.ask(Ask::Health))).await;
        let found = asked.into_iter().map(|reply| match reply {
            Ok(Reply::Health(findings)) => {
                findings.into_iter().filter(|finding| finding.check != "persistence").collect()
            }
            Ok(_) | Err(_) => Vec::new(), // whether it answers is told elsewhere
        });
        found.collect()
    }

    /// How many servers take part.
    fn quorum(&self, memories: &[Result<Memory>]) -> Finding {
        const CHECK: &str = "quorum";
        let ready = memories.iter().filter(|memory| matches!(memory, Ok(Memory::Ready { .. }))).count();
        let (servers, needed) = (memories.len(), self.majority());
        let finding = format!("{ready} of {servers} servers take part, and {needed} are needed");
        match ready {
            _ if ready == servers => Finding::fine(CHECK, finding),
            _ if ready >= needed => {
                Finding::warning(CHECK, finding, format!("{} more may fail: bring the others back", ready - needed))
            }
            _ => Finding::fault(CHECK, finding, "nothing can be locked: see the servers below"),
        }
    }

    fn memory(&self, memory: &Result<Memory>) -> Finding {
        const CHECK: &str = "memory";
        match memory {
            Ok(Memory::Ready { longest, .. }) if *longest < self.longest => Finding::warning(
                CHECK,
                format!("it grants leases of {longest:?} at most, and we were told {:?}", self.longest),
                "name the same ?longest= everywhere",
            ),
            Ok(Memory::Ready { longest, .. }) => {
                Finding::fine(CHECK, format!("it remembers its fences, and grants leases of {longest:?} at most"))
            }
            Ok(Memory::Blank { .. }) => Finding::warning(
                CHECK,
                "it has forgotten what it knew, or never knew anything, and grants nothing",
                format!("it takes part again once some client has been connected for {:?}", self.longest),
            ),
            Err(error) => Finding { check: CHECK, verdict: Verdict::Warning, finding: error.to_string(), advice: None },
        }
    }
}
