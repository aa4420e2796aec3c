//! A lock that is asked for after another was granted gets a higher token. No clock has a say: this is what the quorum's
//! token adds to one made from the time.

use crate::invariants::exclusive_pairs;
use crate::record::Grant;

pub(super) fn broken_by(grants: &[Grant]) -> Option<String> {
    exclusive_pairs(grants)
        .find(|((one, token), (other, next))| other.asked > one.granted && next <= token)
        .map(|((one, _), (other, _))| format!("the later one did not get a higher token:\n  {one:?}\n  {other:?}"))
}
