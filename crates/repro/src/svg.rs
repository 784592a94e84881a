//! Charts as one SVG picture, two side by side, and the ratios of reports below them.

use std::fmt::Write;

use crate::figure::{Chart, Figure, FigureKind, Line, Report};

mod ratios;

const WIDTH: f64 = 470.0;
const HEIGHT: f64 = 346.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 78.0;
const COLUMNS: usize = 2;
const COLOURS: [&str; 6] = ["#555555", "#1f77b4", "#d9822b", "#2a9d4b", "#8e44ad", "#c0392b"];

/// A picture of these charts. `note`, of up to three lines, stands below the title of each.
pub fn svg(charts: &[Chart], note: &str) -> String {
    picture(charts, &[], note)
}

/// A picture of everything in these reports that can be drawn: their charts, and the ratios of their figures as bars. None where
/// there is nothing.
pub fn svg_of(reports: &[Report], note: &str) -> Option<String> {
    let charts: Vec<Chart> = reports.iter().flat_map(|report| report.charts.iter().cloned()).collect();
    let ratios: Vec<&Report> = reports.iter().filter(|report| !report.figures.is_empty()).collect();
    (!charts.is_empty() || !ratios.is_empty()).then(|| picture(&charts, &ratios, note))
}

fn picture(charts: &[Chart], reports: &[&Report], note: &str) -> String {
    let least = usize::from(reports.is_empty());
    let above = HEIGHT * charts.len().div_ceil(COLUMNS).max(least) as f64;
    let (width, height) = (WIDTH * COLUMNS as f64, above + reports.iter().map(|report| ratios::height(report)).sum::<f64>());
    let mut out = String::new();
    put(
        &mut out,
        format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif" font-size="11">"#
        ),
    );
    put(&mut out, format_args!(r#"<rect width="{width}" height="{height}" fill="white"/>"#));
    for (number, chart) in charts.iter().enumerate() {
        let (x, y) = ((number % COLUMNS) as f64 * WIDTH, (number / COLUMNS) as f64 * HEIGHT);
        put(&mut out, format_args!(r#"<g transform="translate({x} {y})">"#));
        panel(&mut out, chart, note);
        put(&mut out, format_args!("</g>"));
    }
    let mut y = above;
    for report in reports {
        put(&mut out, format_args!(r#"<g transform="translate(0 {y})">"#));
        ratios::panel(&mut out, report, note);
        put(&mut out, format_args!("</g>"));
        y += ratios::height(report);
    }
    put(&mut out, format_args!("</svg>"));
    out
}

/// A line. Writing to a string does not fail.
fn put(out: &mut String, line: std::fmt::Arguments) {
    let _ = writeln!(out, "{line}");
}

/// A logarithmic axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis for the values above 0, from one place of the picture to another.
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let least = positive.clone().fold(f64::INFINITY, f64::min);
        let most = positive.fold(0.0, f64::max);
        let (least, most) = if most > 0.0 { (least, most) } else { (1.0, 10.0) };
        let (least, most) = if most / least < 1.01 { (least / 2.0, most * 2.0) } else { (least, most) };
        Self { least, most, from, to }
    }

    /// With its ends at round numbers.
    fn widened(self) -> Self {
        let under = round_numbers().rfind(|number| *number <= self.least * 1.000_001).unwrap_or(self.least);
        let over = round_numbers().find(|number| *number >= self.most * 0.999_999).unwrap_or(self.most);
        Self { least: under, most: over, ..self }
    }

    /// Where a value stands; one that a logarithmic axis does not have is at its beginning.
    fn place(&self, value: f64) -> f64 {
        let value = if value > self.least { value } else { self.least };
        let share = (value / self.least).ln() / (self.most / self.least).ln();
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let inside = |number: &f64| *number >= self.least * 0.999_999 && *number <= self.most * 1.000_001;
        let ticks: Vec<f64> = round_numbers().filter(inside).collect();
        let tens: Vec<f64> = ticks.iter().copied().filter(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-9).collect();
        if ticks.len() > 9 { tens } else { ticks }
    }
}

/// 1, 2, 5, 10, 20, … in a wide range.
fn round_numbers() -> impl DoubleEndedIterator<Item = f64> {
    (-9..12).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)))
}

fn panel(out: &mut String, chart: &Chart, note: &str) {
    let points = || chart.lines.iter().flat_map(|line| line.points.iter().copied());
    let x = Axis::new(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let y = Axis::new(points().map(|point| point.1), HEIGHT - BOTTOM, TOP).widened();
    text(out, LEFT, 20.0, r#"font-size="13" font-weight="bold""#, &chart.title);
    notes(out, LEFT, &noted(chart, note));
    axes(out, chart, x, y);
    for (line, colour) in chart.lines.iter().zip(COLOURS.iter().cycle()) {
        curve(out, line, colour, x, y);
    }
    legend(out, &chart.lines);
}

/// Lines below a title.
fn notes(out: &mut String, x: f64, note: &str) {
    for (number, line) in note.lines().enumerate() {
        text(out, x, 36.0 + 14.0 * number as f64, r##"fill="#555555""##, line);
    }
}

fn noted(chart: &Chart, note: &str) -> String {
    match chart.profiles.as_slice() {
        [] => note.to_owned(),
        profiles => format!("{note}; profiles {}", profiles.join(", ")),
    }
}

fn axes(out: &mut String, chart: &Chart, x: Axis, y: Axis) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in y.ticks() {
        let at = y.place(tick);
        put(out, format_args!(r##"<line x1="{LEFT}" y1="{at:.1}" x2="{right}" y2="{at:.1}" stroke="#dddddd"/>"##));
        text(out, LEFT - 6.0, at + 4.0, r#"text-anchor="end""#, &number(tick));
    }
    let mut marks: Vec<f64> = chart.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    for mark in marks {
        let at = x.place(mark);
        put(out, format_args!(r##"<line x1="{at:.1}" y1="{bottom}" x2="{at:.1}" y2="{}" stroke="#555555"/>"##, bottom + 4.0));
        text(out, at, bottom + 16.0, r#"text-anchor="middle""#, &number(mark));
    }
    put(out, format_args!(r##"<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#555555"/>"##));
    text(out, f64::midpoint(LEFT, right), bottom + 32.0, r#"text-anchor="middle""#, chart.x);
    text(out, LEFT - 6.0, TOP - 6.0, r#"text-anchor="end""#, chart.y);
}

fn curve(out: &mut String, line: &Line, colour: &str, x: Axis, y: Axis) {
    let places: Vec<(f64, f64)> = line.points.iter().map(|point| (x.place(point.0), y.place(point.1))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    put(out, format_args!(r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2"/>"#, path.join(" ")));
    for (x, y) in places {
        put(out, format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#));
    }
}

fn legend(out: &mut String, lines: &[Line]) {
    let mut at = LEFT;
    for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let y = HEIGHT - 22.0;
        put(out, format_args!(r#"<rect x="{at}" y="{}" width="10" height="10" fill="{colour}"/>"#, y - 9.0));
        text(out, at + 14.0, y, "", &line.name);
        at += 28.0 + line.name.chars().count() as f64 * 6.0;
    }
}

fn text(out: &mut String, x: f64, y: f64, style: &str, text: &str) {
    let safe = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    put(out, format_args!(r#"<text x="{x:.1}" y="{y:.1}" {style}>{safe}</text>"#));
}

fn number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        let lines = vec![Line { name: "a < b & c".into(), points }];
        Chart { title: "t".into(), profiles: vec!["smart-ssd"], x: "x", y: "y", lines }
    }

    #[test]
    fn a_picture_says_what_it_is_of() {
        let picture = svg(&[chart(vec![(0.1, 10.0), (100.0, 1000.0)])], "emulated, virtual time");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("emulated, virtual time; profiles smart-ssd"));
        assert!(picture.contains("a &lt; b &amp; c"));
        assert_eq!(picture.matches("<g ").count(), picture.matches("</g>").count());
        // From the left end of the axis to the right one, from its bottom to its top.
        assert!(picture.contains(r#"points="64.0,268.0 452.0,84.0""#), "{picture}");
    }

    #[test]
    fn charts_without_sense_are_still_pictures() {
        for points in [vec![], vec![(0.0, 0.0)], vec![(1.0, 5.0)], vec![(-1.0, f64::NAN), (2.0, f64::INFINITY)]] {
            let picture = svg(&[chart(points)], "note");
            assert!(picture.ends_with("</svg>\n") && !picture.contains("NaN"), "{picture}");
        }
        assert!(svg(&[], "note").contains("<rect"));
    }

    #[test]
    fn a_note_may_have_two_lines() {
        let picture = svg(&[chart(vec![(1.0, 5.0), (2.0, 6.0)])], "one\ntwo");
        assert!(
            picture.contains(r##"y="36.0" fill="#555555">one<"##) && picture.contains(">two; profiles smart-ssd<"),
            "{picture}"
        );
    }

    fn report(ratios: &[f64]) -> Report {
        let mut report = Report::new("biscuit", 1);
        for ratio in ratios {
            let how = crate::figure::How(FigureKind::Predicted, &["pm1725"]);
            report.figure("a figure whose name is < 4", "here", "×", (1.0, *ratio), how);
        }
        report
    }

    /// A regression: reports without charts became an empty picture.
    #[test]
    fn reports_without_charts_have_bars() {
        let picture = svg_of(&[report(&[1.0, 0.5]), report(&[])], "note").unwrap();
        assert_eq!(picture.matches(r#"class="bar""#).count(), 2, "{picture}");
        assert_eq!(picture.matches("biscuit: ").count(), 1, "a report without figures has no panel");
        assert!(picture.contains("a figure whose name is &lt; 4"), "{picture}");
        let widths: Vec<f64> = picture
            .lines()
            .filter(|line| line.contains(r#"class="bar""#))
            .map(|line| line.split(r#" width=""#).nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((widths[0] / widths[1] - 2.0).abs() < 0.01, "{widths:?}");
        for odd in [f64::NAN, f64::INFINITY, -1.0, 1e12] {
            assert!(!svg_of(&[report(&[odd])], "note").unwrap().contains("NaN"));
        }
        let both = Report { charts: vec![chart(vec![(1.0, 2.0)])], ..report(&[1.0]) };
        let picture = svg_of(&[both], "note").unwrap();
        assert!(picture.contains("polyline") && picture.contains(r#"class="bar""#), "{picture}");
        assert_eq!(svg_of(&[report(&[])], "note"), None);
    }
}
