//! Lines in a square, as SVG: what something costs against how much of it there is.

use std::fmt::Write as _;

/// What is drawn.
pub(crate) struct Plot {
    pub(crate) title: String,
    /// What the axes say.
    pub(crate) across: String,
    pub(crate) up: String,
    pub(crate) lines: Vec<Line>,
}

/// One of several that are compared.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// A median, and how far single rounds were from it.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub(crate) at: f64,
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;

/// Between the names of two lines.
const NAME_HEIGHT: f64 = 15.0;

/// Told apart by whoever sees few colours, too; the dashes say the same.
const LOOKS: [(&str, &str); 8] = [
    ("#0b6e4f", ""),
    ("#444444", "2 3"),
    ("#c2410c", "7 3"),
    ("#1d4ed8", "7 3 2 3"),
    ("#7e22ce", "12 4"),
    ("#b45309", "4 2"),
    ("#be185d", "1 3"),
    ("#0e7490", "9 2 1 2"),
];

/// An axis on which each power of ten is as long as the next, or one that begins with nothing.
enum Scale {
    Powers { marks: Vec<f64> },
    Even { last: f64, step: f64 },
}

/// More marks than these between the ends of an axis are too many.
const MARKS_MAX: usize = 8;

impl Scale {
    fn powers(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = span(values);
        let powers = (least.log10().floor() as i32..=most.log10().ceil() as i32).map(|power| 10_f64.powi(power));
        let fine: Vec<f64> = powers.clone().flat_map(|power| [power, 2.0 * power, 5.0 * power]).collect();
        let first = fine.iter().rposition(|mark| *mark <= least * 1.001).unwrap_or(0);
        let last = fine.iter().position(|mark| *mark >= most * 0.999).unwrap_or(fine.len() - 1).max(first + 1);
        let fine = &fine[first..=last];
        let marks = if fine.len() <= MARKS_MAX { fine.to_vec() } else { powers.collect() };
        Self::Powers { marks }
    }

    /// Powers if the values are further apart than ten to one.
    fn fitting(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) = span(values.clone());
        if least > 0.0 && most / least > 10.0 {
            return Self::powers(values);
        }
        let power = 10_f64.powf(most.max(f64::MIN_POSITIVE).log10().floor());
        let step = [0.2, 0.5, 1.0, 2.0].map(|part| part * power).into_iter().find(|step| most / step <= 6.0);
        let step = step.unwrap_or(power * 2.0);
        Self::Even { last: (most / step).ceil() * step, step }
    }

    /// Where a value lies, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        match self {
            Self::Powers { marks } => {
                let (first, last) = (marks[0].log10(), marks[marks.len() - 1].log10());
                ((value.max(f64::MIN_POSITIVE).log10() - first) / (last - first)).clamp(0.0, 1.0)
            }
            Self::Even { last, .. } => (value / last).clamp(0.0, 1.0),
        }
    }

    fn marks(&self) -> Vec<f64> {
        match self {
            Self::Powers { marks } => marks.clone(),
            Self::Even { last, step } => (0..=(last / step).round() as u32).map(|nth| f64::from(nth) * step).collect(),
        }
    }
}

fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, 0.0), |(least, most), value| (least.min(value), most.max(value)))
}

impl Plot {
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = Scale::powers(points().map(|point| point.at));
        let up = Scale::fitting(points().flat_map(|point| [point.least, point.most]));
        let x = |at: f64| LEFT + across.place(at) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - up.place(value) * (HEIGHT - TOP - BOTTOM);
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut svg = String::new();
        let mut draw = |element: String| svg.push_str(&(element + "\n"));
        draw(format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{}">"#,
            escaped(&self.title)
        ));
        draw(format!(r##"<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>"##));
        draw(r##"<g font-family="system-ui, sans-serif" font-size="12" fill="#333333">"##.into());
        draw(format!(r#"<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{}</text>"#, escaped(&self.title)));
        for mark in across.marks() {
            let x = x(mark);
            draw(format!(r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}" stroke="#e5e7eb"/>"##));
            draw(format!(r#"<text x="{x:.1}" y="{}" text-anchor="middle">{}</text>"#, bottom + 18.0, number(mark)));
        }
        for mark in up.marks() {
            let y = y(mark);
            draw(format!(r##"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="#e5e7eb"/>"##));
            draw(format!(r#"<text x="{}" y="{:.1}" text-anchor="end">{}</text>"#, LEFT - 8.0, y + 4.0, number(mark)));
        }
        let middle = (LEFT + right) / 2.0;
        let across_at = HEIGHT - 14.0;
        draw(format!(r#"<text x="{middle}" y="{across_at}" text-anchor="middle">{}</text>"#, escaped(&self.across)));
        let middle = (TOP + bottom) / 2.0;
        draw(format!(
            r#"<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">{}</text>"#,
            escaped(&self.up)
        ));
        let ends = self.lines.iter().map(|line| line.points.last().map_or(bottom, |last| y(last.value)));
        let names = apart(&ends.collect::<Vec<_>>(), bottom);
        for ((line, (color, dashes)), name_at) in self.lines.iter().zip(LOOKS.iter().cycle()).zip(names) {
            let mut path = String::new();
            for point in &line.points {
                let (x, y, least, most) = (x(point.at), y(point.value), y(point.least), y(point.most));
                let _ = write!(path, "{x:.1},{y:.1} ");
                draw(format!(
                    r#"<line x1="{x:.1}" y1="{least:.1}" x2="{x:.1}" y2="{most:.1}" stroke="{color}" stroke-opacity="0.35" stroke-width="3"/>"#
                ));
                draw(format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{color}"/>"#));
            }
            draw(format!(
                r#"<polyline points="{}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dashes}"/>"#,
                path.trim_end()
            ));
            if let Some(last) = line.points.last() {
                let (from, at) = (x(last.at) + 5.0, right + 18.0);
                draw(format!(
                    r#"<line x1="{from:.1}" y1="{:.1}" x2="{at}" y2="{name_at:.1}" stroke="{color}" stroke-opacity="0.4"/>"#,
                    y(last.value)
                ));
                draw(format!(
                    r#"<text x="{}" y="{:.1}" fill="{color}">{}</text>"#,
                    at + 4.0,
                    name_at + 4.0,
                    escaped(&line.name)
                ));
            }
        }
        svg + "</g></svg>\n"
    }
}

/// Heights for names that stand beside the ends of their lines, none upon another, and none below the bottom.
fn apart(ends: &[f64], bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|one, other| ends[*one].total_cmp(&ends[*other]));
    let mut at = ends.to_vec();
    for pair in order.windows(2) {
        at[pair[1]] = at[pair[1]].max(at[pair[0]] + NAME_HEIGHT);
    }
    let mut highest = bottom;
    for nth in order.iter().rev() {
        at[*nth] = at[*nth].min(highest);
        highest = at[*nth] - NAME_HEIGHT;
    }
    at
}

/// `0.5`, `20`, `1,000`
fn number(value: f64) -> String {
    if value.fract().abs() > 1e-9 {
        return format!("{value}");
    }
    grouped(value)
}

/// A whole number with a comma behind the thousands.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(lines: &[(&str, &[(f64, f64)])]) -> Plot {
        let point = |&(at, value): &(f64, f64)| Point { at, value, least: value, most: value };
        let lines = lines
            .iter()
            .map(|(name, points)| Line { name: (*name).into(), points: points.iter().map(point).collect() });
        Plot { title: "a < b".into(), across: "tasks".into(), up: "µs".into(), lines: lines.collect() }
    }

    #[test]
    fn more_is_further_right_and_higher_up() {
        let drawn = plot(&[("one", &[(1.0, 5.0), (100.0, 50_000.0)])]).svg();
        let circles: Vec<Vec<f64>> = drawn
            .lines()
            .filter(|line| line.starts_with("<circle"))
            .map(|line| line.split('"').filter_map(|word| word.parse().ok()).collect())
            .collect();
        assert!(circles[1][0] > circles[0][0] && circles[1][1] < circles[0][1], "{circles:?}");
    }

    #[test]
    fn values_of_one_size_are_drawn_from_nothing_on_and_others_by_powers_of_ten() {
        assert_eq!(Scale::fitting([2.0, 3.0].into_iter()).marks(), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
        assert_eq!(Scale::fitting([2.0, 40.0].into_iter()).marks(), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(Scale::fitting([2.0, 3e5].into_iter()).marks(), [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6]);
    }

    #[test]
    fn names_do_not_stand_upon_each_other() {
        assert_eq!(apart(&[50.0, 10.0, 12.0, 99.0], 100.0), [50.0, 10.0, 25.0, 99.0]);
        assert_eq!(apart(&[99.0, 100.0], 100.0), [85.0, 100.0]);
    }

    #[test]
    fn what_is_special_in_a_picture_is_escaped() {
        assert!(plot(&[("x", &[(1.0, 1.0)])]).svg().contains("a &lt; b"));
        assert_eq!((grouped(1_234_567.0), grouped(12.0), number(0.5)), ("1,234,567".into(), "12".into(), "0.5".into()));
    }
}
