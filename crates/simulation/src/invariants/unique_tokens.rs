//! No token is handed out twice. A resource that takes the highest token it has seen would take both. No clock has a say.

use std::collections::BTreeMap;

use crate::record::Grant;

pub(super) fn broken_by(grants: &[Grant]) -> Option<String> {
    let mut seen: BTreeMap<(usize, u64), &Grant> = BTreeMap::new();
    for grant in grants {
        let Some(token) = grant.token else { continue };
        if let Some(former) = seen.insert((grant.key, token), grant) {
            return Some(format!("both got token {token}:\n  {former:?}\n  {grant:?}"));
        }
    }
    None
}
