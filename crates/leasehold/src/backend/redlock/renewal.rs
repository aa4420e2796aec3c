//! Keeping locks: each server is asked once for all of them, and a majority of all servers has to agree.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::backend::redlock::core::Core;
use crate::backend::redlock::node::{Ask, Extended, Extension, Grant, Reply, Spelled};
use crate::backend::redlock::quorum::Tally;
use crate::backend::{Lease, LeaseId, Place, Renewal};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind, Fate, Result};
use crate::lease::deadline;

/// The most leases in one request: it keeps the server from everybody else for about half a millisecond.
const TOGETHER_MAX: usize = 250;

/// What is known of one lease so far.
struct Kept {
    place: Place,
    ttl: Duration,
    tally: Tally,
    yield_asked: bool,
    /// Servers that do not have it.
    without: Vec<usize>,
    failure: Option<Error>,
}

/// Extends leases. Answers as soon as every one of them is decided; what is not is unknown, and not lost.
pub(super) async fn renew(core: Arc<Core>, leases: Vec<Lease>) -> Result<Vec<Renewal>> {
    let sent_at = core.timer.now();
    let mut kept: Vec<Kept> = leases
        .into_iter()
        .map(|Lease { id: LeaseId::Entry(place), ttl }| {
            let tally = Tally::new(core.members.len());
            core.update(place.entry, |ours| ours.touched = true);
            Kept { place, ttl, tally, yield_asked: false, without: Vec::new(), failure: None }
        })
        .collect();
    let mut asked = FuturesUnordered::new();
    for (nth, chunk) in kept.chunks(TOGETHER_MAX).enumerate() {
        let extensions: Arc<[Extension]> =
            chunk.iter().map(|kept| Extension { place: kept.place.clone(), ttl: kept.ttl }).collect();
        for (server, member) in core.members.iter().enumerate() {
            let answer = member.ask(Ask::Extend(extensions.clone()));
            let chunk = nth * TOGETHER_MAX..nth * TOGETHER_MAX + extensions.len();
            asked.push(async move { (server, chunk, answer.await) });
        }
    }
    while kept.iter().any(|kept| kept.tally.verdict().is_none()) {
        let Some((server, chunk, reply)) = asked.next().await else { break };
        note(&mut kept[chunk], server, reply);
    }
    let renewals = kept.iter().map(renewal).collect();
    let rest = core.clone();
    core.spawn(async move {
        while let Some((server, chunk, reply)) = asked.next().await {
            note(&mut kept[chunk], server, reply);
        }
        for kept in kept {
            plant(&rest, kept, sent_at);
        }
    });
    Ok(renewals)
}

/// Takes down what a server said of some leases.
fn note(kept: &mut [Kept], server: usize, reply: Result<Reply>) {
    let failure = match reply {
        Ok(Reply::Extended(answers)) if answers.len() == kept.len() => {
            for (kept, answer) in kept.iter_mut().zip(answers) {
                match answer {
                    Extended::Yes { yield_asked } => {
                        kept.tally.count(true);
                        kept.yield_asked |= yield_asked;
                    }
                    Extended::No => {
                        kept.tally.count(false);
                        kept.without.push(server);
                    }
                }
            }
            return;
        }
        Ok(_) => Error::new(ErrorKind::Protocol, "a server answered for another number of leases").with_unknown_fate(),
        Err(error) => error,
    };
    for kept in kept {
        kept.failure = Some(failure.clone());
    }
}

fn renewal(kept: &Kept) -> Renewal {
    match kept.tally.verdict() {
        Some(true) => Renewal::Renewed { ttl: kept.ttl, yield_asked: kept.yield_asked, waits: false },
        Some(false) => Renewal::Lost,
        None => {
            let why = format!("{} servers have extended it, which is no majority", kept.tally.yes());
            let error = Error::new(ErrorKind::Unreachable, why).with_unknown_fate();
            Renewal::Unknown(kept.failure.clone().into_iter().fold(error, Error::caused_by))
        }
    }
}

/// Puts a lock back where it is missing: on a server that was slow when it was taken, or has forgotten it. Only while a
/// majority still has it in time, and for no longer than that: it strengthens a lock and never makes one.
fn plant(core: &Arc<Core>, kept: Kept, sent_at: Moment) {
    let entry = kept.place.entry;
    let Some(ours) = core.recall(entry) else { return };
    if kept.tally.verdict() != Some(true) {
        return;
    }
    for server in kept.without {
        let now = core.timer.now();
        let Some(ttl) = kept.ttl.checked_sub(sent_at.until(now)).filter(|ttl| *ttl > Duration::ZERO) else { return };
        if now >= deadline::believe_until(sent_at, kept.ttl) || !core.members[server].is_worth_asking() {
            continue;
        }
        // Noted before it is sent: whoever gives the lock up meanwhile has to bar it.
        let noted = core.update(entry, |ours| {
            ours.asked[server] = true;
            ours.open[server] += 1;
            ours.way = None;
        });
        if !noted {
            return;
        }
        let (note, channel) = (ours.note.clone(), core.channel.clone());
        let (place, shared, guess, spelled) = (kept.place.clone(), ours.shared, ours.token, Spelled::default());
        let grant = Grant { place, shared, ttl, guess, channel, note, briefly: false, spelled };
        let (core, planted) = (core.clone(), core.members[server].ask(Ask::Grant(Arc::new(grant))));
        core.clone().spawn(async move {
            let planted = planted.await;
            if matches!(planted, Ok(Reply::NotReady)) {
                core.look_after(server);
            }
            if planted.is_ok() || planted.is_err_and(|error| error.fate() == Fate::NotApplied) {
                core.update(entry, |ours| ours.open[server] = ours.open[server].saturating_sub(1));
            }
        });
    }
}
