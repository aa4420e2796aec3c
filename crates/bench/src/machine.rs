//! Where it was measured, and when.

use std::fs;

/// `2 cores of …, Linux 6.1, 2026-11-16`
pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let build = if cfg!(debug_assertions) { ", a build for debugging" } else { "" };
    format!(
        "{cores} cores of {}, Linux {}, {}{build}",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim(),
        today()
    )
}

/// The day, in UTC.
fn today() -> String {
    let seconds = leasehold::clock::unix_time_in(std::time::Duration::ZERO).as_secs();
    let (year, month, day) = date(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// The day so many days after the first of January 1970. Years begin in March here, so that the odd day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_across_leap_years() {
        assert_eq!([0, 59, 11_016, 20_773].map(date), [(1970, 1, 1), (1970, 3, 1), (2000, 2, 29), (2026, 11, 16)]);
    }
}
