//! Whether a cluster is fit to keep locks.

use std::sync::Arc;

use crate::backend::etcd::fault;
use crate::backend::etcd::message::{Empty, Members, Status};
use crate::backend::etcd::wire::Wire;
use crate::backend::{Finding, Verdict};
use crate::error::{Error, ErrorKind, Result};
use crate::url::Host;

const VERSION: &str = "version";

/// The oldest server that lets a client number its watches.
const VERSION_MIN: (u32, u32) = (3, 4);

/// Looks at every server that the address names. A server that cannot be reached is a risk; that none can is an error.
pub(super) async fn findings(wire: &Arc<Wire>) -> Result<Vec<Finding>> {
    let mut findings = vec![of_cluster(&wire.read("/etcdserverpb.Cluster/MemberList", Empty {}).await?)];
    for host in &wire.settings.hosts {
        findings.extend(of_server(wire, host).await.into_iter().map(|finding| finding.of(host)));
    }
    Ok(findings)
}

async fn of_server(wire: &Wire, host: &Host) -> Vec<Finding> {
    let unreachable = |why: String| vec![Finding::warning("reach", why, "start it, or leave it out of the address")];
    let link = match wire.connect_to(host, 0).await {
        Ok(link) => link,
        Err(error) => return unreachable(error.to_string()),
    };
    let asked = link.unary::<_, Status>("/etcdserverpb.Maintenance/Status", Empty {});
    match wire.timer.within(wire.settings.patience, asked).await {
        Some(Ok(status)) => of_status(&status),
        Some(Err(status)) => unreachable(fault::of(&status).to_string()),
        None => unreachable("it does not answer".into()),
    }
}

fn of_cluster(members: &Members) -> Finding {
    let voters = members.members.iter().filter(|member| !member.is_learner).count();
    match voters {
        0 | 1 => Finding::warning("members", "there is one, and no lock while it is down", "run three"),
        even if even % 2 == 0 => {
            let finding = format!("there are {even}, which bear no more failures than {}", even - 1);
            Finding::warning("members", finding, "run an odd number")
        }
        odd => Finding::fine("members", format!("there are {odd}, of which {} may fail", odd / 2)),
    }
}

/// Refuses a server that is too old, and warns of whatever else is wrong with it.
pub(super) fn admit(status: &Status, host: &Host) -> Result<()> {
    for finding in of_status(status).into_iter().filter(|finding| finding.verdict > Verdict::Fine) {
        if finding.check == VERSION {
            return Err(Error::new(ErrorKind::Unusable, finding.of(host).to_string()));
        }
        tracing::warn!(target: "leasehold::etcd", server = %host, "{finding}");
    }
    Ok(())
}

fn of_status(status: &Status) -> Vec<Finding> {
    let version = match parsed(&status.version) {
        Some(version) if version < VERSION_MIN => {
            Finding::fault(VERSION, format!("it is etcd {}", status.version), "locks need etcd 3.4 or later")
        }
        _ => Finding::fine(VERSION, format!("it is etcd {}", status.version)),
    };
    let leader = match status.leader {
        0 => Finding::fault("leader", "it knows of none, so nothing can be locked", "see whether a majority is up"),
        _ => Finding::fine("leader", "there is one"),
    };
    let mut findings = vec![version, leader];
    if status.is_learner {
        findings.push(Finding::warning(
            "role",
            "it is a learner, which answers few requests",
            "name the voting members",
        ));
    }
    for error in &status.errors {
        let full = error.contains("NOSPACE");
        let advice = if full { "compact, defragment, and disarm the alarm" } else { "see the server's log" };
        findings.push(Finding::fault("alarm", error.clone(), advice));
    }
    findings
}

fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::etcd::message::Member;

    fn worst(findings: &[Finding]) -> Verdict {
        findings.iter().map(|finding| finding.verdict).max().unwrap()
    }

    #[test]
    fn an_old_server_one_without_a_leader_and_a_full_one_are_faults() {
        let fit = Status { version: "3.4.23".into(), leader: 1, ..Status::default() };
        assert_eq!(worst(&of_status(&fit)), Verdict::Fine);
        for unfit in [
            Status { version: "3.3.27".into(), ..fit.clone() },
            Status { leader: 0, ..fit.clone() },
            Status { errors: vec!["memberID:1 alarm:NOSPACE ".into()], ..fit.clone() },
        ] {
            assert_eq!(worst(&of_status(&unfit)), Verdict::Fault, "{unfit:?}");
        }
        let host = Host { name: "h".into(), port: 1 };
        admit(&fit, &host).unwrap();
        let refused = admit(&Status { version: "3.3.27".into(), ..fit }, &host).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unusable);
        assert!(refused.to_string().contains("h:1: it is etcd 3.3.27"), "{refused}");
    }

    #[test]
    fn a_cluster_of_one_and_an_even_one_are_risks() {
        let cluster = |voters| Members { members: vec![Member::default(); voters] };
        assert_eq!(of_cluster(&cluster(1)).verdict, Verdict::Warning);
        assert_eq!(of_cluster(&cluster(2)).verdict, Verdict::Warning);
        assert_eq!(of_cluster(&cluster(3)).verdict, Verdict::Fine);
        assert_eq!(of_cluster(&cluster(4)).verdict, Verdict::Warning);
    }
}
