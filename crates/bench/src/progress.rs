//! What is shown meanwhile: one line on a terminal that is written again and again, and nothing elsewhere.

use std::io::{IsTerminal, Write as _};

/// Longer lines would be broken, and not be written over.
const WIDTH: usize = 100;

pub(crate) fn show(doing: &str) {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let short: String = doing.chars().take(WIDTH).collect();
        let _ = write!(err, "\r\x1b[K{short}");
        let _ = err.flush();
    }
}

/// Something that stays.
pub(crate) fn say(text: &str) {
    clear();
    eprintln!("{text}");
}

pub(crate) fn clear() {
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K");
    }
}
