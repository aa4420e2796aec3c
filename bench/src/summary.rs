//! What many measurements come to.

use std::time::{Duration, Instant};

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub fn percentile(spans: &mut [Duration], percent: usize) -> Duration {
    spans.sort();
    spans[(spans.len() * percent / 100).min(spans.len() - 1)]
}

pub fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// Seconds for each of so many.
pub async fn timed(times: usize, mut work: impl AsyncFnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..times {
        work().await;
    }
    began.elapsed().as_secs_f64() / times as f64
}
