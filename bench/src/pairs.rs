//! How many times a second a lock is taken and given back.

use std::time::{Duration, Instant};

use crate::contender::Contender;
use crate::summary::median;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(600);

/// So many tasks on so many keys.
struct Work {
    name: &'static str,
    tasks: usize,
    keys: usize,
}

const WORKS: [Work; 3] = [
    Work { name: "1 task, 1 key", tasks: 1, keys: 1 },
    Work { name: "64 tasks, 64 keys", tasks: 64, keys: 64 },
    Work { name: "16 tasks, 1 key", tasks: 16, keys: 1 },
];

pub async fn run(contenders: &[(&'static str, Contender)]) {
    for work in &WORKS {
        println!("{}", work.name);
        let mut rates = vec![Vec::new(); contenders.len()];
        let mut fairness = vec![Vec::new(); contenders.len()];
        for _ in 0..ROUNDS {
            for (nth, (_, contender)) in contenders.iter().enumerate() {
                let (rate, fair) = round(contender, work).await;
                rates[nth].push(rate);
                fairness[nth].push(fair);
            }
        }
        let bare = median(&mut rates[1].clone());
        for (nth, (name, _)) in contenders.iter().enumerate() {
            let mut ratios: Vec<f64> = rates[nth].iter().zip(&rates[1]).map(|(rate, bare)| rate / bare).collect();
            let rate = median(&mut rates[nth].clone());
            println!(
                "  {name:<18} {rate:>9.0} pairs/s  {:>5.2} x bare  ({:.2}..{:.2})  {:>6.1} µs  slowest/fastest task {:.2}",
                rate / bare,
                ratios.iter().copied().fold(f64::MAX, f64::min),
                ratios.iter().copied().fold(0.0, f64::max),
                1e6 / rate * work.tasks as f64,
                median(&mut fairness[nth]),
            );
            ratios.clear();
        }
    }
}

async fn round(contender: &Contender, work: &Work) -> (f64, f64) {
    let began = Instant::now();
    let tasks: Vec<_> = (0..work.tasks)
        .map(|nth| {
            let mut lock = contender.lock(&format!("k{}", nth % work.keys));
            tokio::spawn(async move {
                let mut pairs = 0u64;
                while began.elapsed() < ROUND {
                    lock.pair(async || ()).await;
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    let mut pairs = Vec::new();
    for task in tasks {
        pairs.push(task.await.expect("no panic"));
    }
    let rate = pairs.iter().sum::<u64>() as f64 / began.elapsed().as_secs_f64();
    let (least, most) = (pairs.iter().min().copied(), pairs.iter().max().copied());
    (rate, least.unwrap_or(0) as f64 / most.unwrap_or(1).max(1) as f64)
}
