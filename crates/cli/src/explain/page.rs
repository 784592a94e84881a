//! One page of HTML with a plan as a picture: a box for each step, coloured by where it runs, an edge for what one hands to the next.

use std::fmt::Write;

use pithead_host::{PlanLine, SubPlanFigures};
use pithead_model::Bytes;

/// Sizes of the picture, in its own units.
const BOX_WIDTH: usize = 270;
const BOX_GAP: usize = 22;
const LINE_HEIGHT: usize = 15;
const PADDING: usize = 9;
const LEVEL_GAP: usize = 40;
/// Characters in a line of a box, and lines; the rest is shown when the pointer rests on it.
const LINE_CHARS: usize = 38;
const LINES_MAX: usize = 4;

const STYLE: &str = "\
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
pre { background: #f4f4f2; padding: 1em; overflow-x: auto; }
svg { max-width: 100%; height: auto; }
svg text { font: 12px ui-monospace, monospace; fill: #222; }
svg .edge { stroke: #999; fill: none; }
svg .cost { fill: #666; font-size: 11px; }
rect { stroke: #555; rx: 5; }
.host { fill: #dce9f7; } .link { fill: #fbe8c8; } .drive { fill: #dcf0dc; } .note { fill: #eee; stroke-dasharray: 4; }
li span { display: inline-block; width: 1em; height: 1em; border: 1px solid #555; vertical-align: -2px; margin-right: .5em; }
ul { list-style: none; padding: 0; } li { display: inline-block; margin-right: 2em; }
li .host { background: #dce9f7; } li .link { background: #fbe8c8; } li .drive { background: #dcf0dc; }";

/// A step of the plan, and those whose rows it takes.
struct Step<'a> {
    line: &'a PlanLine,
    depth: usize,
    inputs: Vec<usize>,
    /// Of its middle.
    x: usize,
    y: usize,
    text: Vec<String>,
}

/// The page.
pub(super) fn page(sql: &str, lines: &[PlanLine]) -> String {
    let (mut steps, roots) = steps(lines);
    let (width, height) = place(&mut steps, &roots);
    let mut svg = String::new();
    // A String takes all that is written to it.
    let _ = write!(svg, "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" aria-label=\"the plan\">");
    steps.iter().for_each(|step| edges(&mut svg, step, &steps));
    steps.iter().for_each(|step| boxed(&mut svg, step));
    svg.push_str("</svg>");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Plan</title><style>{STYLE}</style></head>\n<body>\n\
         <pre>{}</pre>\n<ul><li><span class=\"host\"></span>at the host</li><li><span class=\"link\"></span>crosses the link</li>\
         <li><span class=\"drive\"></span>at the drives</li></ul>\n{svg}\n<h2>Line by line</h2>\n<pre>{}</pre>\n</body></html>\n",
        escaped(sql),
        escaped(&text)
    )
}

/// The lines that are steps, as trees. A remark is one where steps stand below it.
fn steps(lines: &[PlanLine]) -> (Vec<Step<'_>>, Vec<usize>) {
    let (mut steps, mut roots, mut above): (Vec<Step<'_>>, Vec<usize>, Vec<usize>) = (vec![], vec![], vec![]);
    for (place, line) in lines.iter().enumerate() {
        let is_step = matches!(line.site, "host" | "link" | "drive");
        let has_below = lines.get(place + 1).is_some_and(|next| next.depth > line.depth && !next.site.is_empty());
        if !(is_step || line.site.is_empty() && has_below) {
            continue;
        }
        above.truncate(above.iter().take_while(|step| steps[**step].depth < line.depth).count());
        let number = steps.len();
        match above.last() {
            Some(parent) => steps[*parent].inputs.push(number),
            None => roots.push(number),
        }
        above.push(number);
        steps.push(Step { line, depth: line.depth, inputs: vec![], x: 0, y: 0, text: wrapped(&line.text) });
    }
    (steps, roots)
}

/// Gives each step its place: leaves side by side, all others in the middle above what they take. The size of the picture.
fn place(steps: &mut [Step<'_>], roots: &[usize]) -> (usize, usize) {
    let mut next = BOX_GAP;
    let mut level_heights = Vec::new();
    for root in roots {
        level(steps, *root, 0, &mut level_heights);
    }
    let tops: Vec<usize> = level_heights
        .iter()
        .scan(PADDING, |top, height| {
            let here = *top;
            *top += height + LEVEL_GAP;
            Some(here)
        })
        .collect();
    for root in roots {
        across(steps, *root, 0, &tops, &mut next);
    }
    let height = tops.last().zip(level_heights.last()).map_or(0, |(top, height)| top + height);
    (next.max(BOX_GAP + BOX_WIDTH), height + PADDING)
}

fn level(steps: &[Step<'_>], step: usize, at: usize, heights: &mut Vec<usize>) {
    if heights.len() <= at {
        heights.push(0);
    }
    heights[at] = heights[at].max(box_height(&steps[step]));
    steps[step].inputs.iter().for_each(|input| level(steps, *input, at + 1, heights));
}

fn across(steps: &mut [Step<'_>], step: usize, at: usize, tops: &[usize], next: &mut usize) {
    let inputs = steps[step].inputs.clone();
    inputs.iter().for_each(|input| across(steps, *input, at + 1, tops, next));
    steps[step].x = match (inputs.first(), inputs.last()) {
        (Some(first), Some(last)) => usize::midpoint(steps[*first].x, steps[*last].x),
        _ => {
            *next += BOX_WIDTH + BOX_GAP;
            *next - BOX_GAP - BOX_WIDTH / 2
        }
    };
    steps[step].y = tops.get(at).copied().unwrap_or(0);
}

fn box_height(step: &Step<'_>) -> usize {
    step.text.len() * LINE_HEIGHT + 2 * PADDING
}

fn boxed(svg: &mut String, step: &Step<'_>) {
    let class = if step.line.site.is_empty() { "note" } else { step.line.site };
    let (left, height) = (step.x.saturating_sub(BOX_WIDTH / 2), box_height(step));
    let _ = write!(
        svg,
        "<g><title>{}</title><rect class=\"{class}\" x=\"{left}\" y=\"{}\" width=\"{BOX_WIDTH}\" height=\"{height}\"/>",
        escaped(&step.line.text),
        step.y
    );
    for (row, text) in step.text.iter().enumerate() {
        let (x, y) = (left + PADDING, step.y + PADDING + row * LINE_HEIGHT + 11);
        let _ = write!(svg, "<text x=\"{x}\" y=\"{y}\">{}</text>", escaped(text));
    }
    svg.push_str("</g>");
}

/// What the step takes from others. An edge is the wider, the more bytes it has.
fn edges(svg: &mut String, step: &Step<'_>, steps: &[Step<'_>]) {
    let from = step.y + box_height(step);
    for input in step.inputs.iter().map(|input| &steps[*input]) {
        let figures = input.line.figures.as_ref();
        let bytes = figures.map_or(0, |figures| figures.handed_bytes.max(figures.link_bytes));
        let width = 1.0 + (bytes.max(1) as f64).log10() / 2.0;
        let middle = usize::midpoint(from, input.y);
        let _ = write!(
            svg,
            "<path class=\"edge\" stroke-width=\"{width:.1}\" d=\"M{} {from} V{middle} H{} V{}\"/>",
            step.x, input.x, input.y
        );
        if let Some(figures) = figures {
            let _ = write!(
                svg,
                "<text class=\"cost\" x=\"{}\" y=\"{}\">{}</text>",
                input.x + 6,
                input.y - 6,
                escaped(&cost(figures))
            );
        }
    }
}

/// What a sub-plan handed over, and what it took.
fn cost(figures: &SubPlanFigures) -> String {
    let link = if figures.link_bytes > 0 { format!(", {} on the link", Bytes(figures.link_bytes)) } else { String::new() };
    format!(
        "{} rows, {}{link}, {:.1} ms CPU",
        crate::terminal::grouped(figures.rows),
        Bytes(figures.handed_bytes),
        figures.cpu_ns as f64 / 1e6
    )
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line =
            lines.last_mut().filter(|line| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= LINE_CHARS);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    let more = lines.len() > LINES_MAX;
    lines.truncate(LINES_MAX);
    for (place, line) in lines.iter_mut().enumerate() {
        let is_cut = line.chars().count() > LINE_CHARS || (more && place + 1 == LINES_MAX);
        if is_cut {
            *line = line.chars().take(LINE_CHARS - 2).chain(" …".chars()).collect();
        }
    }
    lines
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(site: &'static str, depth: usize, text: &str) -> PlanLine {
        PlanLine { site, depth, text: text.to_owned(), figures: None }
    }

    #[test]
    fn steps_stand_above_what_they_take() {
        let figures = SubPlanFigures {
            number: 1,
            dataset: "t".into(),
            drives: 2,
            rows: 1_234,
            read_bytes: 9,
            link_bytes: 2_000_000,
            handed_bytes: 1_000_000,
            cpu_ns: 1_500_000,
            slices_read: 1,
            slices_skipped: 0,
            levels: None,
        };
        let lines = [
            line("", 0, "computed first, for its keys:"),
            line("host", 1, "TableScan: small"),
            line("sample", 0, " t: 1 % pass"),
            line("host", 0, "Join: a < b"),
            PlanLine { figures: Some(figures), ..line("link", 1, "sub-plan 1") },
            line("drive", 2, "TableScan: t"),
            line("", 2, "at here: 5 rows"),
            line("link", 1, "sub-plan 2"),
        ];
        let (mut steps, roots) = steps(&lines);
        let inputs: Vec<&[usize]> = steps.iter().map(|step| step.inputs.as_slice()).collect();
        assert_eq!((inputs, roots.as_slice()), (vec![&[1][..], &[], &[3, 5], &[4], &[], &[]], &[0, 2][..]));
        let (width, height) = place(&mut steps, &roots);
        assert!(steps[2].x > steps[3].x && steps[2].x < steps[5].x && steps[3].y > steps[2].y && steps[4].y > steps[3].y);
        assert!(steps.iter().all(|step| step.x + BOX_WIDTH / 2 <= width && step.y + box_height(step) <= height));
        let page = page("SELECT '<b>'", &lines);
        for expected in
            ["SELECT '&lt;b&gt;'", "Join: a &lt; b", "1,234 rows", "1.5 ms CPU", "at here: 5 rows", "class=\"note\""]
        {
            assert!(page.contains(expected), "{expected}: {page}");
        }
    }

    #[test]
    fn long_texts_are_cut_in_the_picture() {
        let long = wrapped(&"aggregate ".repeat(60));
        assert!(long.len() == LINES_MAX && long[LINES_MAX - 1].ends_with('…'), "{long:?}");
        assert!(wrapped(&"x".repeat(99))[0].chars().count() <= LINE_CHARS);
        assert_eq!(wrapped(""), [""]);
    }
}
