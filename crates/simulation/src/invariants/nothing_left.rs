//! When nobody wants anything any more, no server has a lock: what was given up while a server was away ends with its lease
//! at the latest.

/// How such a complaint begins.
pub(crate) const LEFT: &str = "left behind: ";

pub(super) fn broken_by(complaints: &[String]) -> Option<String> {
    complaints.iter().find(|complaint| complaint.starts_with(LEFT)).cloned()
}
