//! What many measurements come to.

use std::time::Duration;

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
