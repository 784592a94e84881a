//! EXPLAIN PUSHDOWN: runs a query, and tells of each operator where it ran, why there, and what that saved.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Fault, Level, total};
use pithead_plan::{RemoteScan, ReplanPoint, SubPlan, shown, shown_merge};

use crate::Answer;
use crate::query::{Mode, Prepared, Query};
use pithead_remote::{PartitionProfile, SubPlanProfile};

/// One line: an operator.
#[derive(Default)]
struct Line {
    operator: String,
    site: String,
    reason: String,
    predicted_bytes: Option<u64>,
    actual_bytes: Option<u64>,
    predicted_s: Option<f64>,
    saved_s: Option<f64>,
}

/// Runs the query, drops its rows, and tells where its operators ran.
///
/// Bytes are those that an operator hands on, as Arrow; seconds are what the link would have taken for the bytes that an operator kept
/// from it, at the rate that drives measured or are paced to. Nothing is said where nothing was measured.
pub(crate) async fn explain_pushdown(query: &Query, plan: LogicalPlan) -> Result<Answer, Fault> {
    let prepared = query.prepare(plan, Mode::Run).await?;
    let mut stream = query.execute(&prepared).await?;
    while let Some(batch) = stream.next().await {
        batch.map_err(fault_from_datafusion)?;
    }
    let mut lines = Vec::new();
    walk(&prepared, &prepared.decomposition.super_plan, 0, &mut lines);
    for table in prepared.tables.iter().chain(&prepared.first) {
        lines.push(Line { operator: "computed first:".to_owned(), ..Line::default() });
        walk(&table.prepared, &table.prepared.decomposition.super_plan, 1, &mut lines);
    }
    Ok(Answer::of(batch_of(lines)?, Arc::clone(&query.profile)))
}

fn walk(prepared: &Prepared, node: &LogicalPlan, depth: usize, lines: &mut Vec<Line>) {
    if let Some(scan) = RemoteScan::of(node) {
        let profile = scan.sub_plan.number.checked_sub(1).and_then(|index| prepared.profiles.get(index));
        if let Some(profile) = profile {
            sub_plan(&scan.sub_plan, profile, depth, lines);
        }
        return;
    }
    if let Some(point) = ReplanPoint::of(node) {
        for replanned in prepared.replans.lock().iter() {
            lines.push(Line { operator: format!("planned anew {}:", replanned.why), ..Line::default() });
            walk(&replanned.prepared, &replanned.prepared.decomposition.super_plan, depth + 1, lines);
        }
        return walk(prepared, &point.input, depth, lines);
    }
    let merge = shown_merge(node);
    let (text, inputs) = merge.map_or_else(|| (shown(node), node.inputs()), |(text, parts)| (text, vec![parts]));
    let reason = prepared.decomposition.reason(node).unwrap_or("over rows of several drives").to_owned();
    lines.push(Line { operator: indented(depth, &text), site: "host".to_owned(), reason, ..Line::default() });
    inputs.into_iter().for_each(|input| walk(prepared, input, depth + 1, lines));
}

/// What was measured of a sub-plan, over all of its partitions.
#[derive(Default)]
struct Measured {
    slices: [u64; 3],
    skipped: u64,
    kept: u64,
    rows_in: u64,
    scan_rows: u64,
    scan_bytes: u64,
    out_rows: u64,
    out_bytes: u64,
    predicted_scan: Option<f64>,
    bytes_per_s: Option<f64>,
}

fn measured(sessions: &[PartitionProfile]) -> Measured {
    let mut sums = Measured::default();
    for session in sessions {
        sums.kept += session.recalled + session.summarised();
        for annotation in &session.annotations {
            let count = total(annotation.slices.iter().map(|span| u64::from(span.count)));
            let place = match annotation.level {
                Level::Whole => 0,
                Level::Filtered => 1,
                Level::Hints | Level::Bytes => 2,
            };
            sums.slices[place] += count.saturating_sub(u64::from(annotation.slices_skipped) + u64::from(annotation.summarised));
            sums.skipped += u64::from(annotation.slices_skipped);
            sums.rows_in = sums.rows_in.saturating_add(annotation.rows_in);
            sums.scan_rows = sums.scan_rows.saturating_add(annotation.scan.rows);
            sums.scan_bytes = sums.scan_bytes.saturating_add(annotation.scan.bytes);
            sums.out_rows = sums.out_rows.saturating_add(annotation.rows_out);
            if annotation.level == Level::Whole {
                sums.out_bytes = sums.out_bytes.saturating_add(annotation.batch_bytes);
            }
        }
        let Some(report) = &session.session else { continue };
        if let Some(predicted) = &report.predicted {
            let slices = f64::from(report.slices_total);
            sums.predicted_scan = Some(sums.predicted_scan.unwrap_or(0.0) + predicted.link_bytes.filtered * slices);
        }
        if let Some(rate) = report.link_bytes_per_s {
            sums.bytes_per_s = Some(sums.bytes_per_s.map_or(rate, |known| known.min(rate)));
        }
    }
    sums
}

fn sub_plan(sub_plan: &SubPlan, profile: &SubPlanProfile, depth: usize, lines: &mut Vec<Line>) {
    let sums = measured(&profile.sessions());
    let facts = &sub_plan.datasets[0];
    let mut operators = Vec::new();
    operators_of(&sub_plan.plan, depth, &mut operators);
    let seconds = |bytes: f64| sums.bytes_per_s.map(|rate| bytes.max(0.0) / rate);
    // The bytes that the columns would have had unfiltered, at the width that those had which passed.
    let width = if sums.scan_rows > 0 { sums.scan_bytes as f64 / sums.scan_rows as f64 } else { 0.0 };
    let unfiltered = width * sums.rows_in as f64;
    let predicted_unfiltered = width * facts.dataset.rows() as f64;
    let last = operators.len().saturating_sub(1);
    for (place, operator) in operators.into_iter().enumerate() {
        let mut line = Line { operator, ..Line::default() };
        if place == last {
            line.site = site(sums.slices[0] + sums.slices[1], sums.slices[2], &sums);
            line.reason = format!("{} of {} rows pass; {} slices ruled out unread", sums.scan_rows, sums.rows_in, sums.skipped);
            line.predicted_bytes = sums.predicted_scan.map(|bytes| bytes as u64);
            line.actual_bytes = Some(sums.scan_bytes);
            line.predicted_s = sums.predicted_scan.and_then(|bytes| seconds(predicted_unfiltered - bytes));
            line.saved_s = seconds(unfiltered - sums.scan_bytes as f64);
        } else {
            line.site = site(sums.slices[0], sums.slices[1] + sums.slices[2], &sums);
        }
        if place == 0 && last > 0 {
            line.reason = format!("{} rows become {}", sums.scan_rows, sums.out_rows);
            line.predicted_bytes = Some(sub_plan.estimate.bytes() as u64);
            line.actual_bytes = Some(sums.out_bytes);
            line.predicted_s = sums.predicted_scan.and_then(|bytes| seconds(bytes - sub_plan.estimate.bytes()));
            line.saved_s = seconds(sums.scan_bytes as f64 - sums.out_bytes as f64);
        }
        lines.push(line);
    }
}

fn site(drive: u64, host: u64, sums: &Measured) -> String {
    let kept = if sums.kept > 0 { format!(", {} slices from kept results", sums.kept) } else { String::new() };
    match (drive, host) {
        (_, 0) => format!("drive{kept}"),
        (0, _) => format!("host, handed back{kept}"),
        (drive, host) => format!("drive {drive} slices, host {host} slices{kept}"),
    }
}

/// The operators of a sub-plan from the top down to the driving scan, renamings aside.
fn operators_of(node: &LogicalPlan, depth: usize, operators: &mut Vec<String>) {
    if let LogicalPlan::SubqueryAlias(alias) = node {
        return operators_of(&alias.input, depth, operators);
    }
    operators.push(indented(depth, &shown(node)));
    // The driving side of a join comes last, so that its scan ends the list.
    for input in node.inputs().into_iter().rev() {
        operators_of(input, depth + 1, operators);
    }
}

fn indented(depth: usize, text: &str) -> String {
    format!("{}{text}", "  ".repeat(depth))
}

/// Columns of what [`explain_pushdown`] gives.
pub(crate) fn schema() -> Result<SchemaRef, Fault> {
    Ok(batch_of(vec![])?.schema())
}

fn batch_of(lines: Vec<Line>) -> Result<RecordBatch, Fault> {
    let texts = |of: fn(&Line) -> &String| -> ArrayRef { Arc::new(StringArray::from_iter_values(lines.iter().map(of))) };
    let bytes = |of: fn(&Line) -> Option<u64>| -> ArrayRef { Arc::new(UInt64Array::from_iter(lines.iter().map(of))) };
    let seconds = |of: fn(&Line) -> Option<f64>| -> ArrayRef {
        Arc::new(Float64Array::from_iter(lines.iter().map(|line| of(line).map(|s| (s * 1e6).round() / 1e6))))
    };
    let columns = [
        ("operator", texts(|line| &line.operator)),
        ("site", texts(|line| &line.site)),
        ("reason", texts(|line| &line.reason)),
        ("bytes_predicted", bytes(|line| line.predicted_bytes)),
        ("bytes", bytes(|line| line.actual_bytes)),
        ("seconds_saved_predicted", seconds(|line| line.predicted_s)),
        ("seconds_saved", seconds(|line| line.saved_s)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).map_err(Fault::bug)
}
