//! Finding out for all waiters of this client at once, where the server cannot tell them.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::select;

use super::waiters::{News, Waiters};
use crate::backend::EntryId;
use crate::clock::{Clock, Timer};
use crate::error::Result;
use crate::fence::Ticket;

/// How soon the server is asked after something has moved. It is asked half as often again each time that nothing has.
const SOON: Duration = Duration::from_millis(10);

/// How long at most until it is asked again, for the first in line; n times that for the n-th, as far as the fourth.
const FIRST_MAX: Duration = Duration::from_millis(300);
const FIRST_FEW: u32 = 4;

/// The same for the n-th of those behind.
const NTH_MAX: Duration = Duration::from_secs(1);

/// Where an entry stands.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Stand {
    pub(in crate::backend) entry: EntryId,
    pub(in crate::backend) ticket: Ticket,
    pub(in crate::backend) holds: bool,
    /// How many are ahead at most, as far as that matters.
    pub(in crate::backend) ahead: u32,
    /// The ticket of the first in its line whose lease is not over: another one whenever the line moves.
    pub(in crate::backend) first: Ticket,
}

/// Asks where the waiters stand until the runtime ends, and tells them. One question for all of them: what it costs depends
/// on how far from its turn the first of them is, and not on how many there are.
pub(in crate::backend) async fn poll(
    waiters: Arc<Waiters>,
    ask: impl Fn(Vec<EntryId>) -> BoxFuture<'static, Result<Vec<Stand>>>,
) {
    let timer = Timer::on_callers_runtime(Clock::boot());
    let mut pause = SOON;
    let mut nearest = None;
    let mut firsts = HashMap::new();
    loop {
        if waiters.in_line().is_empty() {
            (pause, nearest) = (SOON, None);
            waiters.joined.notified().await;
            continue;
        }
        let joined = async {
            waiters.joined.notified().await;
            timer.sleep(SOON).await;
        };
        // It is asked at once if one of ours has just left, and soon if one has joined.
        timer.within(pause, select(pin!(joined), pin!(waiters.stirred.notified()))).await;
        let waiting = waiters.in_line();
        let moved = match ask(waiting.clone()).await {
            Ok(stands) => {
                nearest = stands.iter().filter(|stand| !stand.holds).map(|stand| stand.ahead).min();
                let before = std::mem::replace(
                    &mut firsts,
                    stands.iter().map(|stand| (stand.entry, stand.first)).collect::<HashMap<_, _>>(),
                );
                let has_moved = |stand: &Stand| before.get(&stand.entry) != Some(&stand.first);
                tell(&waiters, &waiting, &stands, &before) || stands.iter().any(has_moved)
            }
            Err(error) => {
                tracing::debug!(target: "leasehold::sql", %error, "cannot ask where waiters stand");
                false
            }
        };
        pause = if moved { SOON } else { (pause * 3 / 2).min(pause_max(nearest.unwrap_or(1))) };
    }
}

fn pause_max(ahead: u32) -> Duration {
    if ahead <= FIRST_FEW { FIRST_MAX * ahead.max(1) } else { NTH_MAX * ahead }
}

/// Whether anybody had to be told anything. Whoever has become the first in line since it was last asked, and does not hold, is
/// behind somebody who is in no line of ours: from now on it looks for itself.
fn tell(waiters: &Waiters, asked: &[EntryId], stands: &[Stand], firsts: &HashMap<EntryId, Ticket>) -> bool {
    let stands: HashMap<EntryId, &Stand> = stands.iter().map(|stand| (stand.entry, stand)).collect();
    let mut told = false;
    for entry in asked {
        let news = match stands.get(entry) {
            None => News::Gone,
            Some(stand) if stand.holds => News::Granted(stand.ticket),
            Some(stand) if stand.ticket == stand.first && firsts.get(entry) != Some(&stand.first) => News::LookAgain,
            Some(_) => continue,
        };
        waiters.tell(*entry, news);
        told = true;
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_a_thousand_waiters_asks_three_times_a_second_and_one_far_from_its_turn_hardly_ever() {
        assert_eq!(pause_max(1), Duration::from_millis(300));
        assert_eq!(pause_max(4), Duration::from_millis(1200));
        assert_eq!(pause_max(16), Duration::from_secs(16));
    }

    #[test]
    fn whoever_becomes_the_first_in_line_looks_once_whatever_the_tickets_of_other_lines() {
        let waiters = Waiters::default();
        let (ours, other) = (EntryId(1), EntryId(2));
        let stand = Stand { entry: ours, ticket: Ticket(5), holds: false, ahead: 1, first: Ticket(5) };
        let told = |before: &[(EntryId, Ticket)]| tell(&waiters, &[ours], &[stand], &before.iter().copied().collect());
        assert!(told(&[(ours, Ticket(4)), (other, Ticket(5))]));
        assert!(!told(&[(ours, Ticket(5))]), "it has looked since");
    }
}
