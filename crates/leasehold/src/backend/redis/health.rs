//! What a server says of itself, and what of it should worry somebody who locks with it.

use redis::Value;

use crate::backend::redis::command::Command;
use crate::backend::redis::fault;
use crate::backend::redis::pipe::Pipe;
use crate::backend::{Finding, Verdict};
use crate::error::{Error, ErrorKind, Result};

/// `ZADD GT` and `ZMSCORE` came with it.
const OLDEST: (u32, u32) = (6, 2);

/// What `INFO` says, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct Health {
    pub(super) version: String,
    /// Another one after each restart.
    pub(in crate::backend) run_id: String,
    role: String,
    replicas: u32,
    memory_max: u64,
    eviction: String,
    appends: bool,
    /// How many changes have not been saved, or nothing if the server has no reason to count them.
    saved_at: u64,
}

impl Health {
    /// One trip for all of it.
    pub(in crate::backend) async fn of(pipe: &Pipe) -> Result<Self> {
        let answer = pipe.ask(&Command::of(1).part(b"INFO")).await.map_err(|error| fault::of_request(&error))?;
        let text: String = match answer {
            Value::VerbatimString { text, .. } => text,
            other => redis::from_redis_value(other).map_err(|_| Error::new(ErrorKind::Protocol, "INFO is no text"))?,
        };
        Ok(Self::read(&text))
    }

    pub(in crate::backend) fn read(info: &str) -> Self {
        let field = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        Self {
            version: field("redis_version"),
            run_id: field("run_id"),
            role: field("role"),
            replicas: field("connected_slaves").parse().unwrap_or_default(),
            memory_max: field("maxmemory").parse().unwrap_or_default(),
            eviction: field("maxmemory_policy"),
            appends: field("aof_enabled") == "1",
            saved_at: field("rdb_saves").parse().unwrap_or_default(),
        }
    }

    /// Refuses a server on which locks cannot be trusted.
    pub(in crate::backend) fn refuse_if_unfit(&self, eviction_accepted: bool) -> Result<()> {
        let unusable = |finding: Finding| {
            let advice = finding.advice.map(|advice| format!(": {advice}")).unwrap_or_default();
            Err(Error::new(ErrorKind::Unusable, format!("{}{advice}", finding.finding)))
        };
        let faults =
            self.findings(eviction_accepted, 0).into_iter().filter(|finding| finding.verdict == Verdict::Fault);
        faults.map(unusable).next().unwrap_or(Ok(()))
    }

    /// Everything that was looked at.
    pub(in crate::backend) fn findings(&self, eviction_accepted: bool, replicas_wanted: u32) -> Vec<Finding> {
        vec![self.version(), self.role(replicas_wanted), self.eviction(eviction_accepted), self.persistence()]
    }

    fn version(&self) -> Finding {
        const CHECK: &str = "version";
        let finding = format!("it is Redis {}, or speaks like it", self.version);
        let mut numbers = self.version.split('.').map(|number| number.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) if (major, minor) < OLDEST => {
                let (major, minor) = OLDEST;
                let advice = format!("it lacks commands that locks are made of: use {major}.{minor} or newer");
                Finding::fault(CHECK, finding, advice)
            }
            _ => Finding::fine(CHECK, finding),
        }
    }

    fn role(&self, wanted: u32) -> Finding {
        const CHECK: &str = "role";
        if self.role == "slave" {
            let advice = "name its master, or its sentinels with redis+sentinel://";
            return Finding::fault(CHECK, "it is a replica, which cannot be written to", advice);
        }
        let finding = format!("it is a master with {} replicas", self.replicas);
        if self.replicas < wanted {
            let advice = format!("{wanted} must confirm every grant, so none can be had: start them, or ask for fewer");
            return Finding::fault(CHECK, finding, advice);
        }
        if self.replicas > 0 && wanted == 0 {
            let advice =
                "a replica that is promoted may not know the last grants; ?replicas=1 waits for one to confirm";
            return Finding::warning(CHECK, finding, advice);
        }
        Finding::fine(CHECK, finding)
    }

    fn eviction(&self, accepted: bool) -> Finding {
        const CHECK: &str = "eviction";
        let evicts = !self.eviction.is_empty() && self.eviction != "noeviction";
        let finding = format!("maxmemory is {}, maxmemory-policy is {}", self.memory_max, self.eviction);
        match (evicts, self.memory_max > 0) {
            (false, _) => Finding::fine(CHECK, finding),
            (true, false) => {
                Finding::warning(CHECK, finding, "locks would be thrown out if it had a limit: set it to noeviction")
            }
            (true, true) if accepted => {
                Finding::warning(CHECK, finding, "locks may be thrown out while they are held; this was accepted")
            }
            (true, true) => Finding::fault(
                CHECK,
                finding,
                "locks would be thrown out while they are held: set the policy to noeviction, or accept it with ?eviction=accept",
            ),
        }
    }

    fn persistence(&self) -> Finding {
        const CHECK: &str = "persistence";
        if self.appends {
            return Finding::fine(CHECK, "it writes an append-only file, so a restart keeps all but the last second");
        }
        let finding = match self.saved_at {
            0 => "it has saved nothing, so a restart forgets who holds what",
            _ => "it saves now and then, so a restart forgets the last grants",
        };
        let advice = "tokens go on growing with its clock all the same; appendonly yes keeps the locks";
        Finding::warning(CHECK, finding, advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(info: &str) -> Health {
        Health::read(&info.replace(' ', "\r\n"))
    }

    fn verdict(health: &Health, check: &str, replicas: u32) -> Verdict {
        health.findings(false, replicas).iter().find(|finding| finding.check == check).unwrap().verdict
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_with_what_is_wanted() {
        for (version, verdict_wanted) in
            [("6.0.16", Verdict::Fault), ("6.2.0", Verdict::Fine), ("10.1", Verdict::Fine), ("unstable", Verdict::Fine)]
        {
            let health = health(&format!("redis_version:{version} role:master maxmemory_policy:noeviction"));
            assert_eq!(verdict(&health, "version", 0), verdict_wanted, "{version}");
            let refused = health.refuse_if_unfit(false).err().map(|error| error.to_string());
            assert_eq!(refused.is_some_and(|why| why.contains("6.2")), verdict_wanted == Verdict::Fault, "{version}");
        }
    }

    #[test]
    fn a_server_that_throws_keys_out_is_refused_unless_that_is_accepted() {
        let evicting = health("role:master maxmemory:3000000 maxmemory_policy:volatile-lru");
        let refused = evicting.refuse_if_unfit(false).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable);
        assert!(refused.to_string().contains("?eviction=accept"), "{refused}");
        evicting.refuse_if_unfit(true).unwrap();
        let unlimited = health("role:master maxmemory:0 maxmemory_policy:allkeys-lru");
        unlimited.refuse_if_unfit(false).unwrap();
        assert_eq!(verdict(&unlimited, "eviction", 0), Verdict::Warning);
        assert_eq!(verdict(&health("maxmemory:1 maxmemory_policy:noeviction"), "eviction", 0), Verdict::Fine);
    }

    #[test]
    fn a_replica_is_refused_and_too_few_of_them_are_a_fault() {
        assert!(health("role:slave").refuse_if_unfit(false).unwrap_err().to_string().contains("is a replica"));
        let one = health("role:master connected_slaves:1");
        assert_eq!(
            [0, 1, 2].map(|wanted| verdict(&one, "role", wanted)),
            [Verdict::Warning, Verdict::Fine, Verdict::Fault]
        );
    }

    #[test]
    fn a_server_that_says_nothing_is_not_refused() {
        health("").refuse_if_unfit(false).unwrap();
        assert_eq!(verdict(&health("aof_enabled:1"), "persistence", 0), Verdict::Fine);
        assert_eq!(verdict(&health("aof_enabled:0"), "persistence", 0), Verdict::Warning);
    }
}
