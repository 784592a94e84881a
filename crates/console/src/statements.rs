//! Statements that run or ran lately, as JSON.

use std::time::UNIX_EPOCH;

use pithead_entry::Identity;
use pithead_host::{Followed, PlanLine, StatementFigures, SubPlanFigures};
use pithead_model::Level;
use serde_json::{Value as Json, json};

/// Characters of a text in a list.
const TEXT_CHARS_MAX: usize = 300;

/// A statement in a list: its text is shortened, and its plan left out.
pub(crate) fn listed(followed: &Followed, caller: &Identity) -> Json {
    let ending = followed.ending();
    let mut listed = figures_json(&followed.figures());
    let began = followed.began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let more = json!({
        "id": followed.id,
        "kind": followed.kind,
        "sql": shortened(&followed.sql),
        "user": followed.user,
        "may_cancel": ending.is_none() && followed.is_shown_to(caller),
        "is_cancelled": followed.is_cancelled(),
        "began_ms": began,
        "seconds": followed.took().as_secs_f64(),
        "rows": followed.rows(),
        "outcome": ending.as_ref().map(|ending| ending.outcome),
        "fault": ending.and_then(|ending| ending.fault).map(|fault| shortened(&fault)),
    });
    if let (Some(listed), Json::Object(more)) = (listed.as_object_mut(), more) {
        listed.extend(more);
    }
    listed
}

/// A statement with its whole text and its plan.
pub(crate) fn whole(followed: &Followed, caller: &Identity) -> Json {
    let mut whole = listed(followed, caller);
    whole["sql"] = json!(followed.sql);
    whole["fault"] = json!(followed.ending().and_then(|ending| ending.fault));
    whole["plan"] = followed.plan().iter().map(line_json).collect();
    whole
}

/// What a statement, or all of them, have cost.
pub(crate) fn figures_json(figures: &StatementFigures) -> Json {
    let sums = &figures.sums;
    json!({
        "read_bytes": sums.medium_bytes,
        "link_bytes": sums.link_bytes,
        "handed_bytes": figures.handed_bytes,
        "rows_from_drives": sums.rows_from_drives,
        "slices_read": sums.slices_read,
        "slices_skipped": sums.slices_skipped,
        "drive_cpu_s": sums.drive_cpu_ns as f64 / 1e9,
        "sub_plans": figures.sub_plans,
        "levels": figures.levels.map(levels_json),
        "joules": figures.joules,
    })
}

fn line_json(line: &PlanLine) -> Json {
    json!({
        "site": line.site,
        "depth": line.depth,
        "text": line.text,
        "figures": line.figures.as_ref().map(sub_plan_json),
    })
}

fn sub_plan_json(figures: &SubPlanFigures) -> Json {
    json!({
        "number": figures.number,
        "dataset": figures.dataset,
        "drives": figures.drives,
        "rows": figures.rows,
        "read_bytes": figures.read_bytes,
        "link_bytes": figures.link_bytes,
        "handed_bytes": figures.handed_bytes,
        "drive_cpu_s": figures.cpu_ns as f64 / 1e9,
        "slices_read": figures.slices_read,
        "slices_skipped": figures.slices_skipped,
        "levels": figures.levels.map(levels_json),
    })
}

fn levels_json((low, high): (Level, Level)) -> [u8; 2] {
    [low.into(), high.into()]
}

/// The beginning of a text, in one line.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_lists_are_one_short_line() {
        assert_eq!(shortened("SELECT\n  1 -- é"), "SELECT 1 -- é");
        assert_eq!(shortened(&"é".repeat(TEXT_CHARS_MAX + 9)), "é".repeat(TEXT_CHARS_MAX) + "…");
    }

    #[test]
    fn levels_are_numbers() {
        let figures = StatementFigures { levels: Some((Level::Bytes, Level::Whole)), ..StatementFigures::default() };
        let figures = figures_json(&figures);
        assert_eq!((&figures["levels"], &figures["joules"]), (&json!([0, 3]), &Json::Null));
    }
}
