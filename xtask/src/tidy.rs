//! House rules that no tool knows.

use std::path::Path;

use crate::{Result, sh};

/// A longer file is two subjects.
const LINES_MAX: usize = 700;

/// Put together here, so that this file does not break its own rule.
const UNWELCOME: [(&str, &str); 3] = [
    (concat!("to", "do!"), "is unfinished work"),
    (concat!("db", "g!"), "is a trace of debugging"),
    (concat!("#[ign", "ore"), "is a test that does not run"),
];

pub(crate) fn run() -> Result {
    let mut faults = Vec::new();
    for file in sh::files()? {
        let bytes = std::fs::read(sh::root().join(&file)).map_err(|error| format!("{}: {error}", file.display()))?;
        // What is not text has no lines to be tidy.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let mut found = untidy_lines(&text);
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => found.extend(untidy_code(&text)),
            Some("md") => found.extend(broken_links(&text, |target| {
                sh::root().join(file.parent().unwrap_or(Path::new(""))).join(target).exists()
            })),
            _ => {}
        }
        faults.extend(found.into_iter().map(|fault| format!("{}{fault}", file.display())));
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("untidy:\n  {}", faults.join("\n  "))) }
}

fn untidy_lines(text: &str) -> Vec<String> {
    let trailing = |line: &str| line.ends_with([' ', '\t', '\r']);
    let at = text.split('\n').enumerate().filter(|(_, line)| trailing(line)).map(|(at, _)| at + 1);
    at.map(|at| format!(":{at}: blanks at the end of the line")).collect()
}

fn untidy_code(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        faults.push(format!(": {lines} lines, and {LINES_MAX} is the most"));
    }
    for (at, line) in text.lines().enumerate() {
        for (word, why) in UNWELCOME.iter().filter(|(word, _)| line.contains(word)) {
            faults.push(format!(":{}: `{word}` {why}", at + 1));
        }
    }
    faults
}

/// The links to files that are not there. Addresses elsewhere are not looked at, nor is code.
fn broken_links(text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in links(line) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = file.is_empty() || file.contains("://") || file.starts_with("mailto:");
            if !elsewhere && !exists(file) {
                faults.push(format!(":{}: the link to {target} leads nowhere", at + 1));
            }
        }
    }
    faults
}

/// What stands in the round brackets of `[text](target "title")`, and behind the colon of `[name]: target`.
fn links(line: &str) -> Vec<&str> {
    let mut links = Vec::new();
    // What stands between backticks is code: every second piece.
    for prose in line.split('`').step_by(2) {
        let mut rest = prose;
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            links.extend(target.split_whitespace().next());
            rest = after;
        }
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        links.extend(target.split_whitespace().next());
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_at_the_end_of_a_line_are_found() {
        assert_eq!(untidy_lines("a\nb \n\tc\n"), [":2: blanks at the end of the line"]);
    }

    #[test]
    fn unfinished_work_is_found() {
        let code = format!("fn f() {{\n    {}()\n}}\n", UNWELCOME[0].0);
        assert_eq!(untidy_code(&code).len(), 1);
        assert_eq!(untidy_code("fn f() {}\n"), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_too_long_is_found() {
        assert_eq!(untidy_code(&"\n".repeat(LINES_MAX + 1)).len(), 1);
        assert_eq!(untidy_code(&"\n".repeat(LINES_MAX)).len(), 0);
    }

    #[test]
    fn links_are_found_and_code_is_not_taken_for_one() {
        assert_eq!(links("see [a](a.md), [b](b.md#part \"B\") and `[c](c.md)`"), ["a.md", "b.md#part"]);
        assert_eq!(links("[`d`](d.md) and [e `f`](e.md)"), ["d.md", "e.md"]);
        assert_eq!(links("[name]: g.md"), ["g.md"]);
    }

    #[test]
    fn a_link_to_a_missing_file_is_found() {
        let text = "[a](a.md) [b](b.md#part) [c](https://example.org) [d](#here)\n```\n[e](e.md)\n```\n";
        assert_eq!(broken_links(text, |file| file == "a.md"), [":1: the link to b.md#part leads nowhere"]);
    }
}
