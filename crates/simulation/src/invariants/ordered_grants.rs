//! Grants are told in the order of their tokens, also those of attempts that overlap. It rests on clocks, as exclusion does:
//! while an answer is on its way, a clock that jumps can let somebody else in, with a higher token and a quicker answer.

use crate::invariants::exclusive_pairs;
use crate::record::Grant;

pub(super) fn broken_by(grants: &[Grant]) -> Option<String> {
    exclusive_pairs(grants)
        .find(|((one, token), (other, next))| other.granted > one.granted && next <= token)
        .map(|((one, _), (other, _))| format!("the later grant has no higher token:\n  {one:?}\n  {other:?}"))
}
