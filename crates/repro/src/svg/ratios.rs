//! The figures of a report as bars: ours over the paper's.

use super::{COLUMNS, Figure, FigureKind, Report, WIDTH, notes, put, text};

const TITLE: f64 = 62.0;
const ROW: f64 = 17.0;
const BELOW: f64 = 22.0;
/// Where bars begin, and what a ratio of 1 takes.
const FROM: f64 = 560.0;
const UNIT: f64 = 170.0;
/// The largest ratio that is drawn to its end.
const MOST: f64 = 2.0;
/// Characters of a figure's name.
const NAME_CHARS: usize = 102;
const NOTE: &str = "ours over the paper's, by how ours came to be; predictions within 20% are between the dashed lines";

pub(super) fn height(report: &Report) -> f64 {
    TITLE + ROW * report.figures.len() as f64 + BELOW
}

pub(super) fn panel(out: &mut String, report: &Report, note: &str) {
    let title = format!("{}: {} figures", report.name, report.figures.len());
    text(out, 16.0, 20.0, r#"font-size="13" font-weight="bold""#, &title);
    notes(out, 16.0, &format!("{}; {NOTE}", note.lines().next().unwrap_or_default()));
    let bottom = height(report) - BELOW;
    for (ratio, dashes) in [(0.8, "4 3"), (1.0, ""), (1.2, "4 3")] {
        let x = FROM + UNIT * ratio;
        let line = format_args!(
            r##"<line x1="{x:.1}" y1="{TITLE}" x2="{x:.1}" y2="{bottom}" stroke="#999999" stroke-dasharray="{dashes}"/>"##
        );
        put(out, line);
    }
    for (number, figure) in report.figures.iter().enumerate() {
        bar(out, figure, TITLE + ROW * number as f64);
    }
}

fn bar(out: &mut String, figure: &Figure, y: f64) {
    text(out, 16.0, y + 12.0, r#"font-size="10""#, &cut(&figure.what));
    let ratio = if figure.ratio > 0.0 { figure.ratio.min(MOST) } else { 0.0 };
    let (width, colour) = (UNIT * ratio, colour(figure.kind));
    put(
        out,
        format_args!(r#"<rect class="bar" x="{FROM}" y="{:.1}" width="{width:.1}" height="11" fill="{colour}"/>"#, y + 3.0),
    );
    let shown = if figure.ratio.is_finite() { format!("{:.2}", figure.ratio) } else { "no ratio".to_owned() };
    let said = format!("{shown} {}", figure.kind.name());
    text(out, (FROM + width + 6.0).min(WIDTH * COLUMNS as f64 - 74.0), y + 12.0, r#"font-size="10""#, &said);
}

fn colour(kind: FigureKind) -> &'static str {
    match kind {
        FigureKind::Predicted => "#1f77b4",
        FigureKind::Variant => "#d9822b",
        FigureKind::Input | FigureKind::Calibrated | FigureKind::Counted | FigureKind::Follows => "#bbbbbb",
    }
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
