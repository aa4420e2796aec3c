//! How many times a second locks are taken and given back.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{Clock, Timer};
use tokio::task::JoinSet;

use super::{Bench, timed_by_peer};
use crate::contender::{Contender, Lock, Place, Rival};
use crate::sample::Work;

/// How long a round goes on for tasks that have not had the lock once: many times as long as any round is meant to take.
pub(super) const STARVED_AFTER: Duration = Duration::from_secs(10);

/// So many tasks, each a lock of its own.
pub(super) async fn pairs(bench: &mut Bench<'_>, rivals: &mut [Rival]) {
    for tasks in bench.plan.tasks.iter().copied() {
        for _ in 0..bench.plan.rounds {
            for rival in rivals.iter_mut() {
                bench.progress(Work::Pairs, rival.name, tasks);
                let rate = match &mut rival.place {
                    Place::Here(client, _) => {
                        let had = hammer(bench, client, tasks, |task| format!("pair-{task}")).await;
                        had.iter().sum::<f64>()
                    }
                    Place::Elsewhere(peer, prefix) if tasks == 1 => timed_by_peer(bench, peer, prefix),
                    Place::Elsewhere(..) => continue,
                };
                bench.add(Work::Pairs, rival.name, tasks, rate);
            }
        }
    }
}

/// So many tasks, all on one lock, and how fair that is.
pub(super) async fn crowd(bench: &mut Bench<'_>, rivals: &[Rival]) {
    for tasks in bench.plan.crowds.iter().copied() {
        for round in 0..bench.plan.rounds {
            for rival in rivals {
                let Some((client, _)) = rival.client() else { continue };
                bench.progress(Work::Crowd, rival.name, tasks);
                // Another lock each time: whoever was left without one may have died holding it.
                let had = hammer(bench, client, tasks, |_| format!("crowd-{round}")).await;
                let starved = had.iter().filter(|had| **had == 0.0).count();
                if starved > 0 {
                    bench.note(&format!(
                        "{}: {starved} of {tasks} tasks never had the lock in {STARVED_AFTER:?}",
                        rival.name
                    ));
                }
                let (least, most) =
                    had.iter().fold((f64::MAX, 0.0_f64), |(least, most), had| (least.min(*had), most.max(*had)));
                bench.add(Work::Crowd, rival.name, tasks, had.iter().sum());
                bench.add(Work::Fairness, rival.name, tasks, if most > 0.0 { least / most } else { 0.0 });
            }
        }
    }
}

/// The same by many clients that each have a connection.
pub(super) async fn clients(bench: &mut Bench<'_>, ours: &Rival) {
    let Some((_, connect)) = ours.client() else { return };
    for count in bench.plan.clients.iter().copied() {
        bench.progress(Work::Clients, ours.name, count);
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(connect().await);
        }
        for _ in 0..bench.plan.rounds {
            let locks = clients.iter().enumerate().map(|(nth, client)| client.lock(&format!("client-{nth}")));
            let had = all_at_once(bench, locks.collect()).await;
            bench.add(Work::Clients, ours.name, count, had.iter().sum());
        }
    }
}

/// The same by one task, on names of so many bytes.
pub(super) async fn names(bench: &mut Bench<'_>, ours: &Rival) {
    let Some((client, _)) = ours.client() else { return };
    for _ in 0..bench.plan.rounds {
        for bytes in bench.plan.names.iter().copied() {
            bench.progress(Work::NameLength, ours.name, bytes);
            let had = hammer(bench, client, 1, |_| "n".repeat(bytes)).await;
            bench.add(Work::NameLength, ours.name, bytes, 1e6 / had[0]);
        }
    }
}

/// How many pairs a second each of so many tasks had, on the keys that they are given.
pub(super) async fn hammer(
    bench: &Bench<'_>,
    client: &Arc<dyn Contender>,
    tasks: usize,
    key: impl Fn(usize) -> String,
) -> Vec<f64> {
    all_at_once(bench, (0..tasks).map(|task| client.lock(&key(task))).collect()).await
}

/// Each task has one pair at least, however slow the store is, unless even that takes far longer than the round: there are
/// locks that nobody gets once many want them.
async fn all_at_once(bench: &Bench<'_>, locks: Vec<Box<dyn Lock>>) -> Vec<f64> {
    let (clock, round) = (Clock::boot(), bench.plan.round);
    let (began, ends) = (clock.now(), clock.now().after(round));
    let timer = Timer::on_callers_runtime(clock.clone());
    let mut tasks = JoinSet::new();
    let mut had = vec![0.0; locks.len()];
    for (nth, mut lock) in locks.into_iter().enumerate() {
        let clock = clock.clone();
        tasks.spawn(async move {
            let (began, mut pairs) = (clock.now(), 0u32);
            while pairs == 0 || clock.now() < ends {
                lock.take().await;
                lock.give().await;
                pairs += 1;
            }
            (nth, f64::from(pairs) / began.until(clock.now()).as_secs_f64())
        });
    }
    let gives_up = began.after(STARVED_AFTER);
    while let Some(Some(ended)) = timer.within(clock.now().until(gives_up), tasks.join_next()).await {
        let (nth, rate) = ended.expect("no panic");
        had[nth] = rate;
    }
    tasks.shutdown().await;
    had
}
