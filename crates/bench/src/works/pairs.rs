//! How many times a second locks are taken and given back.

use std::sync::Arc;

use leasehold::clock::Clock;

use super::{Bench, timed_by_peer};
use crate::contender::{Contender, Lock, Place, Rival};
use crate::sample::Work;

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
        for _ in 0..bench.plan.rounds {
            for rival in rivals {
                let Some((client, _)) = rival.client() else { continue };
                bench.progress(Work::Crowd, rival.name, tasks);
                let had = hammer(bench, client, tasks, |_| "crowd".to_owned()).await;
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

async fn all_at_once(bench: &Bench<'_>, locks: Vec<Box<dyn Lock>>) -> Vec<f64> {
    let (clock, round) = (Clock::boot(), bench.plan.round);
    let ends = clock.now().after(round);
    let tasks: Vec<_> = locks
        .into_iter()
        .map(|mut lock| {
            let clock = clock.clone();
            tokio::spawn(async move {
                let (began, mut pairs) = (clock.now(), 0u32);
                // One at least, however slow the store is.
                while pairs == 0 || clock.now() < ends {
                    lock.take().await;
                    lock.give().await;
                    pairs += 1;
                }
                f64::from(pairs) / began.until(clock.now()).as_secs_f64()
            })
        })
        .collect();
    let mut had = Vec::new();
    for task in tasks {
        had.push(task.await.expect("no panic"));
    }
    had
}
