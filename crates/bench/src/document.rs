//! The page and the plots of everything that was measured.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::contender::OURS;
use crate::plot::{Line, Plot, Point};
use crate::sample::{BARE, Figures, Ratio, Sample, Work};
use crate::table::shown;

const HEAD: &str = "\
# Figures

Written by `cargo xtask bench`, which measures everything anew and writes this page; do not change it by hand. [What locks
cost](../performance.md) says what the figures mean, and which are not what they are meant to be.

Each work is done by everybody in turn, round after round, in one run. A figure is the median of the rounds. Behind it stands how
it compares with the bare store in the same round, the median and in brackets the least and the most of the rounds. *Bare* is the
least that such a lock can be made of, sent through the same client crate: it has no line, no token and no renewal, and who finds it
taken tries again every millisecond. More pairs a second are better, and so is less of everything else.
";

/// Works that are drawn for all stores at once, us alone.
const GROWING: [Work; 7] = [
    Work::HandOver,
    Work::HandOverRequests,
    Work::BesideHeld,
    Work::Renewals,
    Work::HeldMemory,
    Work::NameLength,
    Work::Clients,
];

/// Writes the page, and the plots beside it.
pub(crate) fn write(all: &[Figures], peers: &str, folder: &Path) -> io::Result<()> {
    let mut page = HEAD.to_owned();
    if !peers.is_empty() {
        let _ = write!(page, "\nThe others: {peers}.\n");
    }
    page.push_str("\n## All stores\n");
    for work in GROWING {
        let lines =
            all.iter().map(|figures| line(figures, work, OURS, &figures.store)).filter(|line| line.points.len() > 1);
        let plot = plot(work, work.title().into(), lines.collect());
        let file = format!("{}.svg", work.file());
        if keep(&plot, &folder.join(&file))? {
            let _ = write!(page, "\n![{}]({file})\n", plot.title);
        }
    }
    for figures in all {
        let _ = write!(page, "\n## {}\n\n{}. Measured on {}.\n", figures.store, figures.server, figures.machine);
        let names: Vec<&str> = contenders(figures);
        let lines =
            names.iter().map(|name| line(figures, Work::Pairs, name, name)).filter(|line| line.points.len() > 1);
        let plot = plot(Work::Pairs, format!("{}: {}", figures.store, Work::Pairs.title()), lines.collect());
        let file = format!("{}-{}.svg", figures.store, Work::Pairs.file());
        if keep(&plot, &folder.join(&file))? {
            let _ = write!(page, "\n![{}]({file})\n", plot.title);
        }
        page.push_str(&tables(figures, &names));
    }
    fs::write(folder.join("README.md"), page)
}

/// Whether there is anything to be drawn.
fn keep(plot: &Plot, file: &Path) -> io::Result<bool> {
    if plot.lines.is_empty() {
        return Ok(false);
    }
    fs::write(file, plot.svg())?;
    Ok(true)
}

fn plot(work: Work, title: String, lines: Vec<Line>) -> Plot {
    Plot { title, across: work.of_what().into(), up: work.unit().into(), lines }
}

fn line(figures: &Figures, work: Work, of: &str, name: &str) -> Line {
    let mut samples: Vec<&Sample> = figures.of(work).filter(|sample| sample.name == of).collect();
    samples.sort_by_key(|sample| sample.at);
    let point = |sample: &&Sample| {
        let (least, most) = sample.span();
        Point { at: sample.at as f64, value: sample.median(), least, most }
    };
    Line { name: name.into(), points: samples.iter().map(point).collect() }
}

/// Us and the bare store first, then the others as they came.
fn contenders(figures: &Figures) -> Vec<&str> {
    let mut names = Vec::new();
    for sample in &figures.samples {
        if !names.contains(&&*sample.name) {
            names.push(&*sample.name);
        }
    }
    names.sort_by_key(|name| match *name {
        OURS => 0,
        BARE => 1,
        _ => 2,
    });
    names
}

/// What several have done, side by side; then what was measured of us alone.
fn tables(figures: &Figures, names: &[&str]) -> String {
    let mut text = String::new();
    let all = Work::ALL.into_iter().flat_map(|work| {
        let at: BTreeSet<usize> = figures.of(work).map(|sample| sample.at).collect();
        at.into_iter().map(move |at| (work, at))
    });
    let compared = |&(work, at): &(Work, usize)| figures.of(work).any(|sample| sample.at == at && sample.name != OURS);
    let (compared, ours): (Vec<_>, Vec<_>) = all.partition(compared);
    for (rows, names) in [(compared, names), (ours, &[OURS])] {
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n| work | | {} |\n|---|---|{}", names.join(" | "), "---|".repeat(names.len()));
        let mut before = None;
        for (work, at) in rows {
            let cells: Vec<String> = names.iter().map(|name| cell(figures, work, name, at)).collect();
            let title = if before.replace(work) == Some(work) { "" } else { work.title() };
            let _ = writeln!(text, "| {title} | {} | {} |", work.amount(at), cells.join(" | "));
        }
    }
    text
}

fn cell(figures: &Figures, work: Work, name: &str, at: usize) -> String {
    let Some(sample) = figures.find(work, name, at) else { return String::new() };
    let mut cell = format!("{} {}", shown(sample.median()), work.unit());
    let bare = figures.find(work, BARE, at).filter(|_| name != BARE && work.has_ratio());
    if let Some(Ratio { median, least, most }) = bare.map(|bare| Ratio::of(sample, bare)) {
        let _ = write!(cell, ": {} × ({} to {})", shown(median), shown(least), shown(most));
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let sample =
            |work, name: &str, at, rounds: &[f64]| Sample { work, name: name.into(), at, rounds: rounds.to_vec() };
        Figures {
            store: "redis".into(),
            server: "Redis 7".into(),
            machine: "2 cores".into(),
            samples: vec![
                sample(Work::Pairs, "peer", 1, &[300.0, 300.0]),
                sample(Work::Pairs, OURS, 1, &[900.0, 1100.0]),
                sample(Work::Pairs, BARE, 1, &[1000.0, 1000.0]),
                sample(Work::Pairs, OURS, 4, &[3000.0]),
                sample(Work::HandOverRequests, OURS, 2, &[2.0]),
                sample(Work::HandOverRequests, OURS, 1000, &[2.0]),
            ],
        }
    }

    #[test]
    fn a_page_says_what_was_measured_where_and_beside_whom() {
        let folder = tempfile::TempDir::new().unwrap();
        write(&[figures()], "peer 1.2", folder.path()).unwrap();
        let page = fs::read_to_string(folder.path().join("README.md")).unwrap();
        assert!(page.contains("Redis 7. Measured on 2 cores.") && page.contains("The others: peer 1.2."), "{page}");
        assert!(page.contains("| work | | leasehold | bare | peer |"), "{page}");
        assert!(
            page.contains("| 1 task | 900 pairs/s: 0.90 × (0.90 to 1.10) | 1,000 pairs/s | 300 pairs/s: 0.30 ×"),
            "{page}"
        );
        assert!(page.contains("| 1,000 waiters | 2.00 requests |"), "{page}");
        for file in
            page.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|file| file.ends_with("svg"))
        {
            assert!(folder.path().join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn what_grows_is_drawn_for_all_stores_and_what_has_one_point_is_not() {
        let folder = tempfile::TempDir::new().unwrap();
        write(&[figures()], "peer 1.2", folder.path()).unwrap();
        assert!(folder.path().join("hand-over-requests.svg").is_file());
        assert!(folder.path().join("redis-pairs.svg").is_file());
        assert!(!folder.path().join("clients.svg").is_file());
    }
}
