//! When all is well again, everybody gets every lock within a few leases: nobody waits for a wake-up that never comes, and
//! no server is left out for good.

/// How such a complaint begins.
pub(crate) const STUCK: &str = "stuck: ";

pub(super) fn broken_by(complaints: &[String]) -> Option<String> {
    complaints.iter().find(|complaint| complaint.starts_with(STUCK)).cloned()
}
