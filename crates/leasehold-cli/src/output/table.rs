//! Tables of words, cut to the width of a terminal.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands between two columns.
const GAP: &str = "  ";

/// A column that may be cut is never narrower than this: less than that tells nothing.
const CUT_MIN: usize = 8;

/// What stands where something was cut out.
const ELLIPSIS: char = '…';

/// Where the cells of a column may be cut if the terminal is too narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nowhere.
    Never,
    /// In the middle: names often differ in their ends.
    Middle,
    /// At the end.
    End,
}

/// Rows under titles. Cells must not hold control characters.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Cut)>,
    rows: Vec<Vec<String>>,
    /// Columns from here on stand at the right: their digits line up.
    numbers_from: usize,
}

impl Table {
    pub(crate) fn new(columns: impl Into<Vec<(&'static str, Cut)>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new(), numbers_from: usize::MAX }
    }

    /// The columns from this one on hold numbers.
    pub(crate) fn with_numbers_from(mut self, nth: usize) -> Self {
        self.numbers_from = nth;
        self
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.columns.len(), "every row has one cell for each column");
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Leaves out the last column if there is nothing in it.
    pub(crate) fn without_empty_end(mut self) -> Self {
        if self.rows.iter().all(|row| row.last().is_some_and(String::is_empty)) {
            self.columns.pop();
            self.rows.iter_mut().for_each(|row| _ = row.pop());
        }
        self
    }

    /// The lines of the table, the titles first. No line is wider than `width`, if one is given.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let widths = self.widths(width);
        let titles = self.columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        std::iter::once(&titles).chain(&self.rows).map(|cells| self.line(cells, &widths, width)).collect()
    }

    /// Writes the table, its titles in bold if there may be colours.
    pub(crate) fn write(&self, out: &mut impl Write, width: Option<usize>, color: bool) -> io::Result<()> {
        for (nth, line) in self.lines(width).iter().enumerate() {
            if nth == 0 && color { writeln!(out, "{}", bold(line))? } else { writeln!(out, "{line}")? }
        }
        Ok(())
    }

    fn line(&self, cells: &[String], widths: &[usize], width: Option<usize>) -> String {
        let mut line = String::new();
        for (nth, (cell, (_, cut))) in cells.iter().zip(&self.columns).enumerate() {
            if nth > 0 {
                line.push_str(GAP);
            }
            let cell = shortened(cell, widths[nth], *cut);
            let blanks = " ".repeat(widths[nth].saturating_sub(cell.width()));
            let (before, after) = if nth < self.numbers_from { ("", blanks.as_str()) } else { (blanks.as_str(), "") };
            line.extend([before, &cell, after]);
        }
        line.truncate(line.trim_end_matches(' ').len());
        // A terminal narrower than even the shortest columns: a line that wraps would be worse.
        match width {
            Some(width) if line.width() > width => shortened(&line, width, Cut::End),
            _ => line,
        }
    }

    fn widths(&self, width: Option<usize>) -> Vec<usize> {
        let cells = |nth: usize| self.rows.iter().map(move |row| row[nth].width());
        let titles = self.columns.iter().enumerate();
        let mut widths: Vec<_> = titles.map(|(nth, (title, _))| cells(nth).fold(title.width(), usize::max)).collect();
        let Some(width) = width else { return widths };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            let least = |nth: usize| CUT_MIN.max(self.columns[nth].0.width());
            let cuttable =
                (0..widths.len()).filter(|&nth| self.columns[nth].1 != Cut::Never && widths[nth] > least(nth));
            let Some(widest) = cuttable.max_by_key(|&nth| widths[nth]) else { break };
            widths[widest] -= 1;
        }
        widths
    }
}

pub(crate) fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// The text in at most `width` columns, with an ellipsis where something is missing.
pub(crate) fn shortened(text: &str, width: usize, cut: Cut) -> String {
    if text.width() <= width || cut == Cut::Never {
        return text.into();
    }
    let room = width.saturating_sub(1);
    let behind = if cut == Cut::Middle { room / 2 } else { 0 };
    let mut short: String = within(text.chars(), room - behind);
    short.push(ELLIPSIS);
    let end: String = within(text.chars().rev(), behind);
    short.extend(end.chars().rev());
    short
}

fn within(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or_default();
            used <= room
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([("KEY", Cut::Middle), ("HELD BY", Cut::End), ("AGE", Cut::Never)]);
        table.row(["billing/close/2026/november".into(), "worker-7 4711@build-3".into(), "3m20s".into()]);
        table.row(["日本語の名前".into(), "4712@build-3".into(), "9.5s".into()]);
        table
    }

    #[test]
    fn without_a_terminal_nothing_is_cut_and_columns_line_up() {
        let lines = table().lines(None);
        assert_eq!(lines[0], "KEY                          HELD BY                AGE");
        assert_eq!(lines[1], "billing/close/2026/november  worker-7 4711@build-3  3m20s");
        assert_eq!(lines[2], "日本語の名前                 4712@build-3           9.5s");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_however_narrow_it_is() {
        for width in 1..80 {
            for line in table().lines(Some(width)) {
                assert!(line.width() <= width, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn numbers_stand_at_the_right_under_their_titles() {
        let mut table = Table::new([("WHAT", Cut::End), ("TIMES", Cut::Never)]).with_numbers_from(1);
        table.row(["lock".into(), "7".into()]);
        table.row(["release".into(), "1,234,567".into()]);
        assert_eq!(table.lines(None), ["WHAT         TIMES", "lock             7", "release  1,234,567"]);
    }

    #[test]
    fn a_name_is_cut_in_the_middle_and_a_holder_at_the_end() {
        let lines = table().lines(Some(40));
        assert_eq!(lines[1], "billing/…ovember  worker-7 4711@…  3m20s");
    }

    #[test]
    fn a_cut_never_splits_a_wide_character() {
        assert_eq!(shortened("日本語", 4, Cut::End), "日…");
        assert_eq!(shortened("日本語", 5, Cut::Middle), "日…語");
    }
}
