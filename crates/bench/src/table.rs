//! What was measured, for a terminal.

use std::fmt::Write as _;

use crate::plot::grouped;
use crate::sample::{BARE, Figures, Ratio, Work};

/// All works of a store, a line for each contender.
pub(crate) fn of(figures: &Figures) -> String {
    let mut text = format!("\n{} ({})\n", figures.store, figures.server);
    for work in Work::ALL {
        let mut samples: Vec<_> = figures.of(work).collect();
        samples.sort_by_key(|sample| sample.at);
        if samples.is_empty() {
            continue;
        }
        let _ = writeln!(text, "  {}", work.title());
        for sample in samples {
            let (value, amount) = (shown(sample.median()), work.amount(sample.at));
            let _ = write!(text, "    {amount:<18} {:<18} {value:>10} {}", sample.name, work.unit());
            let bare = figures.find(work, BARE, sample.at).filter(|_| sample.name != BARE && work.has_ratio());
            if let Some(Ratio { median, least, most }) = bare.map(|bare| Ratio::of(sample, bare)) {
                let _ = write!(text, "  {median:.2} × bare ({least:.2} to {most:.2})");
            }
            text.push('\n');
        }
    }
    text
}

/// With as many digits as mean something.
pub(crate) fn shown(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => grouped(value),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
