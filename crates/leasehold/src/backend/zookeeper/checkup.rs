//! Whether the servers are set up so that locks on them can be trusted.

use std::time::Duration;

use crate::backend::Finding;
use crate::backend::zookeeper::core::Core;
use crate::backend::zookeeper::request::Ask;
use crate::backend::zookeeper::session::Seat;
use crate::error::Result;
use crate::key::Escaped;

/// The longest that is read of what a server says of itself.
const SAID_MAX: usize = 4096;

impl Core {
    /// What can be said of the server that we are connected to.
    pub(super) async fn checkup(&self) -> Result<Vec<Finding>> {
        let seat = self.session.seat(true).await?;
        let asked_at = self.session.now();
        self.session.ask(&seat, &[Ask::sync("/")]).await.remove(0)?;
        let took = asked_at.until(self.session.now());
        let mut findings = vec![self.session_finding(&seat), round_trip(took, seat.timeout)];
        match self.session.said_by(&seat.host, "srvr", SAID_MAX).await {
            Some(said) if said.contains("Zookeeper version") => findings.extend(of_server(&said)),
            Some(_) => findings.push(Finding::fine(
                "version",
                "it does not say: the command srvr is not on its 4lw.commands.whitelist",
            )),
            None => findings.push(Finding::fine("version", "it does not say: connections are encrypted")),
        }
        Ok(findings.into_iter().map(|finding| finding.of(&seat.host)).collect())
    }

    fn session_finding(&self, seat: &Seat) -> Finding {
        let (asked, agreed) = (self.session.wish(), seat.timeout);
        let found = format!("a session ends after {agreed:?} without a sign of life, and {asked:?} was asked for");
        match agreed.cmp(&asked) {
            std::cmp::Ordering::Equal => Finding::fine("session", found),
            std::cmp::Ordering::Less => {
                let advice = "locks live no longer than that without renewal: raise maxSessionTimeout, or ask for less";
                Finding::warning("session", found, advice)
            }
            std::cmp::Ordering::Greater => {
                let advice =
                    "a lock stays taken for that long after its holder died: lower minSessionTimeout, or ask for more";
                Finding::warning("session", found, advice)
            }
        }
    }
}

fn round_trip(took: Duration, timeout: Duration) -> Finding {
    let found = format!("the leader answered after {took:?}");
    if took < timeout / 10 {
        return Finding::fine("leader", found);
    }
    Finding::warning(
        "leader",
        found,
        "renewals may come too late: find out what keeps it busy, or ask for longer sessions",
    )
}

fn of_server(said: &str) -> Vec<Finding> {
    let line = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let mut findings = Vec::new();
    if let Some(version) = line("Zookeeper version") {
        let version = version.split([',', '-']).next().unwrap_or_default();
        let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
        let shown = Escaped(version.as_bytes()).to_string();
        findings.push(if numbers >= vec![3, 6] {
            Finding::fine("version", shown)
        } else {
            Finding::warning("version", shown, "elections cannot be observed before ZooKeeper 3.6")
        });
    }
    if let Some(mode) = line("Mode") {
        let found = Escaped(mode.as_bytes()).to_string();
        findings.push(match mode {
            "leader" | "follower" | "observer" => Finding::fine("mode", found),
            "standalone" => Finding::warning("mode", found, "while this one server is down, nobody can take a lock"),
            _ => {
                Finding::fault("mode", found, "it has lost its ensemble: see to its network, and to the other servers")
            }
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Verdict;

    #[test]
    fn a_server_says_what_it_is() {
        let said =
            "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on 2022-02-25\nMode: follower\n";
        let findings = of_server(said);
        assert_eq!(findings[0], Finding::fine("version", "3.8.0"));
        assert_eq!(findings[1], Finding::fine("mode", "follower"));
        let old = of_server("Zookeeper version: 3.4.14, built\nMode: read-only\n");
        assert_eq!((old[0].verdict, old[1].verdict), (Verdict::Warning, Verdict::Fault));
        assert_eq!(of_server("Mode: standalone\n")[0].verdict, Verdict::Warning);
    }
}
