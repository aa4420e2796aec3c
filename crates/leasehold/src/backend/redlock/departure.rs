//! Giving a lock up, on all servers at once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;

use crate::backend::redlock::alarm::Alarm;
use crate::backend::redlock::core::{Core, Ours};
use crate::backend::redlock::member;
use crate::backend::redlock::node::Reply;
use crate::backend::redlock::quorum::Tally;
use crate::backend::redlock::ways::Ways;
use crate::backend::{Departure, Place};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::lease::deadline;

/// What part of the lease the answer of a majority is waited for at most.
const LEASE_SHARE: u32 = 10;

/// Gives a lock up, by those ways. It goes on to its end even if nobody waits for the answer.
///
/// Whoever held it leaves a majority of the servers. The answer waits for the others for as long again as the majority
/// took, so that a program which ends right afterwards leaves nothing behind.
pub(super) async fn run(core: Arc<Core>, ways: Ways, place: Place, answer: oneshot::Sender<Result<Departure>>) {
    let began = core.timer.now();
    let is_way_back = |ours: &Ours| core.in_order && !ours.shared && ours.way == Some(ways.id());
    core.update(place.entry, |ours| ours.elsewhere.store(!is_way_back(ours), Release));
    let ours = core.forget(place.entry);
    let ttl = ours.as_ref().map_or(core.longest, |ours| ours.ttl);
    let alone = ours.as_ref().filter(|ours| !ours.shared).map(|ours| !ours.touched);
    let dead_after = deadline::dead_after(began, ttl);
    let mut asked = FuturesUnordered::new();
    // The same to all of them, but for the bar.
    let mut said = [None, None];
    let mut tally = Tally::new(core.members.len());
    for (server, member) in core.members.iter().enumerate() {
        if ours.as_ref().is_some_and(|ours| !ours.asked[server]) {
            // It was never there. One that fails is so left alone when locks are asked for, and needs not be when they go.
            tally.count(false);
            continue;
        }
        let unknown = ours.as_ref().is_some_and(|ours| ours.unknown[server]);
        let may_come = unknown && ours.as_ref().is_some_and(|ours| ours.briefly);
        // Somebody else's is barred everywhere, or its owner would plant it again where it is missed.
        let open = ours.as_ref().is_none_or(|ours| unknown || ours.open[server] > 0 && !is_way_back(ours));
        let bar = open.then_some(ttl);
        let departure = member::Departure { place: place.clone(), bar, held: true, alone, may_come, dead_after };
        let words = said[usize::from(open)].get_or_insert_with(|| core.release(&departure));
        let told = ways.ask(member, server, words.clone());
        asked.push(async move { (server, departure, told.await) });
    }
    let (mut alarm, mut failure) = (Alarm::new(core.timer.clone()), None);
    let mut answer = Some(answer);
    let mut until = began.after(ttl / LEASE_SHARE);
    loop {
        let Some((server, departure, reply)) = alarm.before(until, asked.next()).await.flatten() else {
            if let Some(answer) = answer.take() {
                let _ = answer.send(verdict(&core, tally, failure.clone()));
            }
            if asked.is_empty() {
                return;
            }
            until = Moment::FAR;
            continue;
        };
        match &reply {
            Ok(reply) => tally.count(matches!(reply, Reply::Done)),
            Err(error) => failure = Some(error.clone()),
        }
        core.settle(server, departure, &reply);
        if tally.verdict().is_some() && answer.is_some() {
            let now = core.timer.now();
            until = until.min(now.after(began.until(now)));
        }
    }
}

fn verdict(core: &Core, tally: Tally, failure: Option<Error>) -> Result<Departure> {
    match tally.verdict() {
        Some(true) => Ok(Departure::WasHolding),
        Some(false) => Ok(Departure::WasGone),
        None => {
            let (left, of) = (tally.yes(), core.members.len());
            let why = format!("{left} of {of} servers have confirmed it, and {} are needed", core.majority());
            let error = Error::new(ErrorKind::Unreachable, why).with_unknown_fate();
            Err(failure.into_iter().fold(error, Error::caused_by))
        }
    }
}
