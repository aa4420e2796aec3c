//! What held locks cost: those who use others meanwhile, the store, our processor and our memory.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use leasehold::clock::{Clock, Timer};
use leasehold::{Guard, Locks};

use super::Bench;
use super::pairs::hammer;
use crate::contender::Rival;
use crate::sample::Work;

/// The lease of what is held, and how long it is watched: each lock is renewed several times.
const TTL: Duration = Duration::from_secs(15);
const WATCHED: Duration = Duration::from_secs(10);

/// How many are asked for at once.
const AT_ONCE: usize = 64;

pub(super) async fn held(bench: &mut Bench<'_>, ours: &Rival) {
    let Some((client, _)) = ours.client() else { return };
    let clock = Clock::boot();
    let timer = Timer::on_callers_runtime(clock.clone());
    let locks = Locks::builder(&bench.url).ttl(TTL).connect().await.expect("leasehold connects");
    let mut guards: Vec<Guard> = Vec::new();
    let memory_before = resident_kib();
    for count in bench.plan.held.iter().copied() {
        bench.progress(Work::BesideHeld, ours.name, count);
        let began = clock.now();
        let more = stream::iter(guards.len()..count).map(|nth| take(&locks, nth)).buffer_unordered(AT_ONCE);
        guards.extend(more.collect::<Vec<_>>().await);
        let took = began.until(clock.now());
        for _ in 0..bench.plan.rounds {
            let had = hammer(bench, client, 1, |_| "beside".to_owned()).await;
            bench.add(Work::BesideHeld, ours.name, count, 1e6 / had[0]);
        }
        if count >= 1000 {
            bench.add(Work::HeldMemory, ours.name, count, (resident_kib() - memory_before).max(0.0) / count as f64);
            let (counted, load_before) = (bench.requests(), cpu_seconds());
            timer.sleep(WATCHED).await;
            let load = cpu_seconds() - load_before;
            if let Some(requests) = counted.since(bench) {
                bench.add(Work::Renewals, ours.name, count, requests / WATCHED.as_secs_f64());
            }
            bench.add(Work::RenewalLoad, ours.name, count, load / WATCHED.as_secs_f64() * 100.0);
        }
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
        assert_eq!(lost, 0, "of {count} locks some were lost");
        if took > bench.plan.step_max / 10 {
            bench.note(&format!("no more than {count} held locks: more would take too long"));
            break;
        }
    }
    stream::iter(guards).for_each_concurrent(AT_ONCE, async |guard| guard.release().await.expect("released")).await;
}

async fn take(locks: &Locks, nth: usize) -> Guard {
    locks.mutex(format!("held-{nth}")).expect("a name").lock().await.expect("granted")
}

fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

/// User and system time of this process, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks(11) + ticks(12)) / 100.0
}
