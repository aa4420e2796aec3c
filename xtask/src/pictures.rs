//! The pictures of the guide: what the real program shows on a terminal, drawn anew.

use std::path::Path;
use std::process::Stdio;

use crate::{Result, sh};

/// Where the locks are while the pictures are drawn: they show its name. One that is there already is somebody else's.
const FOLDER: &str = "/tmp/leasehold-guide";

/// What every picture begins with. `show` shows a command and runs it, or another in its place.
const SCENE: &str = r#"
stty cols 96 rows 40
show() { printf '$ %s\n' "$1"; eval "${2-$1}"; }
leasehold -q run --label nightly report -- sleep 60 &
until leasehold --json show report | grep -q nightly; do sleep 0.1; done
leasehold -q run --label import report -- true &
leasehold -q run --label api-3 --permits 2 --of 3 payment-api -- sleep 60 &
until leasehold --json show report | grep -q import && leasehold --json ls | grep -q api-3; do sleep 0.1; done
sleep 3
"#;

/// Ends what the scene has begun. The programs that were shown are killed, so that what they showed stays.
const END: &str = "kill $(jobs -p); wait";

struct Picture {
    file: &'static str,
    label: &'static str,
    script: &'static str,
}

const PICTURES: [Picture; 2] = [
    Picture {
        file: "docs/guide/program.svg",
        label: "leasehold run, ls and show in a terminal",
        script: r#"
show "leasehold run backup -- echo 'one at a time'"
show 'leasehold run -n report -- ./report; echo "exit code $?"'
show "leasehold ls"
show "leasehold show report"
show "leasehold run report -- ./report" "timeout --foreground -s KILL 1 leasehold run report -- ./report"
"#,
    },
    Picture {
        file: "docs/guide/watch.svg",
        label: "leasehold watch in a terminal",
        script: r#"show "leasehold watch" "timeout --foreground -s KILL 1 leasehold watch""#,
    },
];

pub(crate) fn run() -> Result {
    sh::run(&mut sh::cargo("build --package leasehold-cli --locked"))?;
    std::fs::create_dir(FOLDER).map_err(|error| format!("cannot make {FOLDER}: {error}"))?;
    let drawn = PICTURES.iter().try_for_each(|picture| {
        let screen = Screen::showing(&on_terminal(picture.script)?);
        std::fs::write(sh::root().join(picture.file), svg(&screen, picture.label))
            .map_err(|error| format!("cannot write {}: {error}", picture.file))
    });
    drawn.and(std::fs::remove_dir_all(FOLDER).map_err(|error| format!("cannot remove {FOLDER}: {error}")))
}

/// Everything that a terminal is sent while the script runs on it.
fn on_terminal(script: &str) -> Result<String> {
    let programs = sh::target_dir().join("debug");
    let path = std::env::var("PATH").unwrap_or_default();
    let file = Path::new(FOLDER).join("script");
    std::fs::write(&file, format!("{SCENE}{script}\n{END}\n"))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let mut terminal = sh::command("script", ["-qec", &format!("bash {}", file.display()), "/dev/null"]);
    terminal.env("PATH", format!("{}:{path}", programs.display())).env("HOME", FOLDER).env("TERM", "xterm");
    terminal
        .env("LEASEHOLD_URL", format!("sqlite:{FOLDER}/locks.db"))
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("NO_COLOR");
    let output = terminal.stdin(Stdio::null()).output().map_err(|error| format!("cannot run script: {error}"))?;
    String::from_utf8(output.stdout).map_err(|_| "the terminal was sent no text".into())
}

/// What is seen on a terminal: lines of characters, each bold or not.
struct Screen {
    lines: Vec<Vec<(char, bool)>>,
}

impl Screen {
    /// Knows the few sequences that the program uses: bold, up, clear to the end of the line or of the screen.
    fn showing(sent: &str) -> Self {
        let (mut lines, mut row, mut column, mut bold) = (vec![Vec::new()], 0, 0, false);
        let mut rest = sent.chars();
        while let Some(c) = rest.next() {
            match c {
                '\n' => {
                    row += 1;
                    lines.resize_with(lines.len().max(row + 1), Vec::new);
                }
                '\r' => column = 0,
                '\x1b' => {
                    let mut sequence = String::new();
                    for c in rest.by_ref() {
                        sequence.push(c);
                        if c.is_ascii_alphabetic() {
                            break;
                        }
                    }
                    match sequence.as_str() {
                        "[1m" => bold = true,
                        "[0m" => bold = false,
                        "[K" => lines[row].truncate(column),
                        "[J" => {
                            lines.truncate(row + 1);
                            lines[row].truncate(column);
                        }
                        other => {
                            let up = other.strip_prefix('[').and_then(|other| other.strip_suffix('A'));
                            row -= up.and_then(|up| up.parse().ok()).unwrap_or(0);
                        }
                    }
                }
                c => {
                    let width = lines[row].len().max(column + 1);
                    lines[row].resize(width, (' ', false));
                    lines[row][column] = (c, bold);
                    column += 1;
                }
            }
        }
        lines.truncate(lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
        Self { lines }
    }
}

/// The width of a character and the height of a line, in points, and what is left free around them.
const WIDTH: f64 = 8.43;
const HEIGHT: usize = 19;
const MARGIN: usize = 16;

fn svg(screen: &Screen, label: &str) -> String {
    let points = |characters: usize| (characters as f64 * WIDTH).round() as usize;
    let longest = screen.lines.iter().map(Vec::len).max().unwrap_or_default();
    let (width, height) = (points(longest) + 2 * MARGIN, screen.lines.len() * HEIGHT + 2 * MARGIN - 2);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{label}">
<rect width="{width}" height="{height}" rx="8" fill="#1b1f27"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" fill="#d7dce2" xml:space="preserve">
"##
    );
    for (nth, line) in screen.lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let words: String = line.iter().map(|(c, _)| escaped(*c)).collect();
        let fill = match line[..] {
            [(_, true), ..] => r##" font-weight="bold" fill="#ffffff""##,
            [('$', _), (' ', _), ..] => r##" fill="#8fd0a5""##,
            _ => "",
        };
        let (y, length) = (MARGIN + 13 + nth * HEIGHT, points(line.len()));
        svg += &format!(
            r#"<text x="{MARGIN}" y="{y}" textLength="{length}" lengthAdjust="spacingAndGlyphs"{fill}>{words}</text>"#
        );
        svg.push('\n');
    }
    svg + "</g></svg>\n"
}

fn escaped(c: char) -> String {
    match c {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        c => c.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sent: &str) -> Vec<String> {
        Screen::showing(sent).lines.iter().map(|line| line.iter().map(|(c, _)| c).collect()).collect()
    }

    #[test]
    fn a_line_that_is_written_over_shows_what_was_written_last() {
        assert_eq!(shown("$ a\r\nwaiting\x1b[K\rmine\x1b[K\r\n"), ["$ a", "mine"]);
        assert_eq!(shown("\x1b[?25lone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J\x1b[2A\rONE\x1b[K\r\n\x1b[J"), ["ONE"]);
    }

    #[test]
    fn titles_are_bold_and_what_is_special_in_a_picture_is_escaped() {
        let drawn = svg(&Screen::showing("\x1b[1mKEY\x1b[0m\r\na<b>&c\r\n"), "it");
        assert!(drawn.contains(r##"font-weight="bold" fill="#ffffff">KEY</text>"##), "{drawn}");
        assert!(drawn.contains(">a&lt;b&gt;&amp;c</text>"), "{drawn}");
    }
}
