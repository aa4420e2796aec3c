//! How the program shows what it found: tables for people, JSON for programs.

pub(crate) mod json;
pub(crate) mod table;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use leasehold::backend::{EntryView, KeyView, Note};
use leasehold::{Capacity, Claim};

/// How many hexadecimal digits of an entry's id a table shows: more than enough to tell the entries of a store apart.
const ENTRY_DIGITS: usize = 12;

/// How wide a terminal is that does not say so.
const WIDTH_DEFAULT: usize = 80;

/// How the output is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// JSON instead of words.
    pub(crate) json: bool,
    /// No talk on stderr except errors.
    pub(crate) quiet: bool,
    /// Colours, which only repeat what the words say.
    pub(crate) color: bool,
    /// How wide the terminal is; `None` if stdout is none, and then nothing is cut.
    pub(crate) width: Option<usize>,
}

impl Look {
    /// Says something on stderr that is not data and not an error.
    pub(crate) fn say(self, talk: &str) {
        if !self.quiet {
            // Nobody is left to be told that stderr is gone.
            let _ = writeln!(io::stderr(), "leasehold: {}", on_one_line(talk));
        }
    }
}

/// How wide the terminal on stdout is, in columns; `None` if stdout is no terminal.
pub(crate) fn width() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

/// The columns and rows of the terminal on stdout; `None` if stdout is no terminal.
pub(crate) fn size() -> Option<(usize, usize)> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let told = rustix::termios::tcgetwinsize(&stdout).ok();
    let columns = told.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
    let rows = told.map(|size| usize::from(size.ws_row)).filter(|&rows| rows > 0);
    Some((columns.unwrap_or(WIDTH_DEFAULT), rows.unwrap_or(usize::MAX)))
}

/// Bytes shown to a person, by the rule that the library shows names by: what could fool a terminal is escaped.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if matches!(c, '\'' | '"') { shown.push(c) } else { shown.extend(c.escape_debug()) }
        }
        for byte in chunk.invalid() {
            write!(shown, "\\x{byte:02x}").expect("writing to a String does not fail");
        }
    }
    shown
}

/// Words in which names are escaped already, and what else was put in may not be: a path, or what another library says.
pub(crate) fn on_one_line(words: &str) -> String {
    let mut line = String::with_capacity(words.len());
    for c in words.chars() {
        if matches!(c, '\'' | '"' | '\\') { line.push(c) } else { line.extend(c.escape_debug()) }
    }
    line
}

/// `worker-7 4711@build-3`, or `4711@build-3` if there is no label.
pub(crate) fn whom(note: &Note) -> String {
    let process = format!("{}@{}", note.pid, escaped(note.host.as_bytes()));
    if note.owner.is_empty() { process } else { format!("{} {process}", escaped(note.owner.as_bytes())) }
}

/// Who made an entry. Of a program of another kind nothing is known but what it wrote at the key.
pub(crate) fn who(entry: &EntryView) -> String {
    match entry.foreign {
        true => format!("foreign \"{}\"", escaped(entry.note.owner.as_bytes())),
        false => whom(&entry.note),
    }
}

/// How long an entry has been in line, if that is known.
pub(crate) fn age(entry: &EntryView) -> String {
    if entry.foreign { "-".into() } else { span(entry.age) }
}

/// How long an entry's lease lives. That of a foreign one may have no end.
pub(crate) fn lease_left(entry: &EntryView) -> String {
    if entry.lease_left == Duration::MAX { "for ever".into() } else { span(entry.lease_left) }
}

/// The beginning of an entry's id, which the commands that take an entry understand.
pub(crate) fn short_id(entry: &EntryView) -> String {
    let mut id = entry.place.entry.to_string();
    id.truncate(ENTRY_DIGITS);
    id
}

/// What an entry wants of its key: `lock`, `shared lock`, `semaphore 1 of 3`.
pub(crate) fn kind(claim: Claim) -> String {
    match claim {
        Claim::Exclusive => "lock".into(),
        Claim::Shared => "shared lock".into(),
        Claim::Permits { .. } => format!("semaphore {claim}"),
    }
}

/// What a key is used as: `lock`, `semaphore 3`.
pub(crate) fn used_as(capacity: Option<Capacity>) -> String {
    match capacity {
        Some(Capacity::Permits(of)) => format!("semaphore {of}"),
        Some(Capacity::Whole) | None => "lock".into(),
    }
}

/// The entry's ticket, and its token where that is another number.
pub(crate) fn number(entry: &EntryView) -> String {
    match entry.token {
        _ if entry.foreign => "-".into(),
        Some(token) if token.get() != entry.ticket.0 => format!("{} (token {token})", entry.ticket),
        _ => entry.ticket.to_string(),
    }
}

/// Everybody in a key's line, holders first.
pub(crate) fn line(view: &KeyView) -> impl Iterator<Item = &EntryView> {
    view.holders.iter().chain(view.waiters.iter().flatten())
}

/// A span in at most two units: `850ms`, `9.5s`, `42s`, `3m20s`, `2h5m`, `3d4h`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..10 => format!("{seconds}.{}s", span.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_shown_in_at_most_two_units() {
        let shown = |millis| span(Duration::from_millis(millis));
        assert_eq!(shown(0), "0ms");
        assert_eq!(shown(999), "999ms");
        assert_eq!(shown(9_999), "9.9s");
        assert_eq!(shown(10_000), "10s");
        assert_eq!(shown(200_000), "3m20s");
        assert_eq!(shown(7_500_000), "2h5m");
        assert_eq!(shown(273_600_000), "3d4h");
    }

    #[test]
    fn labels_and_hosts_that_could_fool_a_terminal_are_escaped() {
        let note = Note { owner: "\u{1b}]0;x\u{7}".into(), host: "a\u{202e}b\u{9b}".into(), pid: 7, value: None };
        assert_eq!(whom(&note), "\\u{1b}]0;x\\u{7} 7@a\\u{202e}b\\u{9b}");
        assert_eq!(escaped(b"it's \"\xff\""), "it's \"\\xff\"");
        for sneaky in ["\u{200b}", "\u{2066}", "\u{feff}", "\u{61c}", "\u{2028}", "\u{e0041}"] {
            assert!(escaped(sneaky.as_bytes()).is_ascii(), "{sneaky:?}");
        }
    }
}
