//! Nobody believes to have a key while somebody else believes to have it alone. This is what a lock is for. It rests on
//! clocks that run at about the same rate, and on at most a minority of the servers forgetting at a time.

use crate::record::Grant;

pub(super) fn broken_by(grants: &[Grant]) -> Option<String> {
    for (nth, one) in grants.iter().enumerate() {
        for other in grants[nth + 1..].iter().filter(|other| other.key == one.key) {
            // Beliefs that touch are fine: the last look of one may be the first moment of the other.
            let overlap = one.granted < other.believed && other.granted < one.believed;
            if overlap && !(one.shared && other.shared) {
                return Some(format!("both believed to have it at a time:\n  {one:?}\n  {other:?}"));
            }
        }
    }
    None
}
