//! EXPLAIN: the super-plan and the sub-plans, where each operator runs and why, and with ANALYZE what it cost.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use pithead_device::PackageMeter;
use pithead_emulate::Profile;
use pithead_functions::{SessionCalls, fault_from_datafusion};
use pithead_model::{Annotation, Bytes, CallShare, Fault, Level, PushBackCause, ScanShare, SliceSpan};
use pithead_plan::{Decomposition, Estimate, INPUT_SCHEMA, RemoteScan, ReplanPoint, SubPlan, shown, shown_merge};

use crate::Answer;
use crate::energy;
use crate::figures::{PlanLine, SubPlanFigures};
use crate::query::{Mode, Prepared, PreparedInput, Query};
use crate::sampler::{SampleReport, counted};
use pithead_remote::{PartitionProfile, SubPlanProfile};

/// The plan of a query as rows of text. Uncorrelated scalar subqueries are run, since the plan hangs on their values;
/// with `analyze` all of it is run, and its rows are dropped.
pub(crate) async fn explain(query: &Query, plan: LogicalPlan, analyze: bool) -> Result<Answer, Fault> {
    let lines = lines(query, plan, analyze).await?;
    let lines = StringArray::from_iter_values(lines.iter().map(PlanLine::to_string));
    let batch = RecordBatch::try_new(schema(), vec![Arc::new(lines)]).map_err(Fault::bug)?;
    Ok(Answer::of(batch, Arc::clone(&query.profile)))
}

/// The same, line by line.
pub(crate) async fn lines(query: &Query, plan: LogicalPlan, analyze: bool) -> Result<Vec<PlanLine>, Fault> {
    let mode = if analyze { Mode::Run } else { Mode::Explain };
    let meter = PackageMeter::start();
    let prepared = query.prepare(plan, mode).await?;
    let mut rows = 0;
    if analyze {
        let mut stream = query.execute(&prepared).await?;
        while let Some(batch) = stream.next().await {
            rows += batch.map_err(fault_from_datafusion)?.num_rows() as u64;
        }
    }
    Ok(match analyze {
        true => {
            let mut lines = annotated(query, &prepared, rows);
            lines.extend(meter.joules().map(|joules| {
                let text = format!("{joules:.3} J in this machine's packages (RAPL), whatever ran there");
                PlanLine { site: "", depth: 0, text, figures: None }
            }));
            lines
        }
        false => {
            // What it says is in the plan; a drive that is away is told of when the query runs.
            if let Err(fault) = query.place(&prepared).await {
                tracing::debug!(%fault, "where the query would run is not known");
            }
            let mut text = Text { lines: vec![], analyze: false, shown: vec![], device: None };
            text.query(&prepared, 0);
            text.lines
        }
    })
}

/// Columns of what [`explain`] gives.
pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)]))
}

/// The plan of a query that has run, with what it cost.
pub(crate) fn annotated(query: &Query, prepared: &Prepared, rows: u64) -> Vec<PlanLine> {
    let mut text = Text::analyzed(query, prepared);
    text.totals(query, rows);
    text.lines
}

/// The plan of a query that runs or has run, with what it has cost so far.
pub(crate) fn so_far(query: &Query, prepared: &Prepared) -> Vec<PlanLine> {
    Text::analyzed(query, prepared).lines
}

/// Lines so far.
struct Text {
    lines: Vec<PlanLine>,
    analyze: bool,
    /// Tables of which it was said how they were computed.
    shown: Vec<*const PreparedInput>,
    /// The drives that it is told of what they would have taken.
    device: Option<Profile>,
}

impl Text {
    fn analyzed(query: &Query, prepared: &Prepared) -> Text {
        let device = energy::profile(&query.settings.device).ok().flatten();
        let mut text = Text { lines: vec![], analyze: true, shown: vec![], device };
        text.query(prepared, 0);
        text
    }

    fn line(&mut self, site: &'static str, depth: usize, text: impl Into<String>) {
        self.lines.push(PlanLine { site, depth, text: text.into(), figures: None });
    }

    fn query(&mut self, prepared: &Prepared, depth: usize) {
        for part in &prepared.shared {
            let rows: usize = part.batches.iter().map(RecordBatch::num_rows).sum();
            self.once(part, depth, &format!("computed first, {rows} rows, for the query and a scalar subquery"));
        }
        for (scalar, value) in &prepared.scalars {
            self.line("", depth, format!("scalar subquery, run first: {value}"));
            self.query(scalar, depth + 1);
        }
        for part in &prepared.first {
            let rows: usize = part.batches.iter().map(RecordBatch::num_rows).sum();
            let actual = if self.analyze { format!(", {rows} rows") } else { String::new() };
            self.once(part, depth, &format!("computed first{actual}, for its keys"));
        }
        for table in &prepared.kept {
            let rows: usize = table.batches.iter().map(RecordBatch::num_rows).sum();
            self.line("", depth, format!("computed first, {rows} rows, too many to ship:"));
            self.query(&table.prepared, depth + 1);
        }
        for told in prepared.placed.lock().iter() {
            self.line("host", depth, format!(" {told}"));
        }
        self.samples(prepared, depth);
        self.host(&prepared.decomposition, &prepared.decomposition.super_plan, prepared, depth);
    }

    /// A part that is computed first, and how, where it was not said yet.
    fn once(&mut self, part: &Arc<PreparedInput>, depth: usize, text: &str) {
        if self.shown.contains(&Arc::as_ptr(part)) {
            return self.line("", depth, format!("{text}, as above"));
        }
        self.shown.push(Arc::as_ptr(part));
        self.line("", depth, format!("{text}:"));
        self.query(&part.prepared, depth + 1);
    }

    /// What samples told of predicates, the most restrictive first, beside what bounds alone would, and what turned out.
    fn samples(&mut self, prepared: &Prepared, depth: usize) {
        let counted: Vec<_> = match self.analyze {
            true => prepared.profiles.iter().filter_map(|profile| counted(profile)).collect(),
            false => vec![],
        };
        for SampleReport { question, answer, took } in &prepared.samples {
            let share = question.share(answer);
            let actual = counted.iter().find(|(key, _)| *key == question.key).map(|(_, counted)| counted.share(1.0));
            let actual = actual.map(|share| format!(", {} did", percent(share))).unwrap_or_default();
            let of = match (answer.is_exact, took) {
                (true, _) => "as a query has counted".to_owned(),
                (false, Some(took)) => format!("of {} rows sampled in {:.1} ms", answer.rows, took.as_secs_f64() * 1e3),
                (false, None) => format!("of {} rows sampled before", answer.rows),
            };
            let text = format!(
                "{}: {} pass {of}, {} by bounds{actual}, limiting score {:.1}: {}",
                question.facts.name,
                percent(share),
                percent(question.by_bounds),
                question.limiting_score(share),
                question.shown(),
            );
            self.line("sample", depth, format!(" {text}"));
        }
    }

    fn host(&mut self, cut: &Decomposition, node: &LogicalPlan, prepared: &Prepared, depth: usize) {
        if let Some(scan) = RemoteScan::of(node) {
            return self.sub_plan(&scan.sub_plan, prepared, depth);
        }
        if let Some(point) = ReplanPoint::of(node) {
            for replanned in prepared.replans.lock().iter() {
                self.line("", depth, format!("planned anew {}:", replanned.why));
                self.query(&replanned.prepared, depth + 1);
                self.line("", depth, "until then:");
            }
            return self.host(cut, &point.input, prepared, depth);
        }
        let because = cut.reason(node).map(|reason| format!("  -- {reason}")).unwrap_or_default();
        if let Some((text, parts)) = shown_merge(node) {
            self.line("host", depth, format!("{text}{because}"));
            return self.host(cut, parts, prepared, depth + 1);
        }
        self.line("host", depth, format!("{}{because}", shown(node)));
        for input in node.inputs() {
            self.host(cut, input, prepared, depth + 1);
        }
    }

    fn sub_plan(&mut self, sub_plan: &SubPlan, prepared: &Prepared, depth: usize) {
        let driving = &sub_plan.datasets[0].dataset;
        let unit = if sub_plan.whole_partition { "whole partitions" } else { "slices" };
        let level = if sub_plan.level_max == Level::Whole { "" } else { ", filters only rule out slices and pages" };
        let profile = sub_plan.number.checked_sub(1).and_then(|index| prepared.profiles.get(index));
        let ruled_out = profile.map(|profile| ruled_out(&profile.partitions_left)).unwrap_or_default();
        let head = format!(
            "sub-plan {} at {} drives, {} slices of {} in {unit}{level}{ruled_out}: {}",
            sub_plan.number,
            distinct(&sub_plan.copies),
            driving.slices(),
            sub_plan.driving(),
            expected(&sub_plan.estimate),
        );
        let profile = profile.filter(|_| self.analyze);
        let figures = profile.map(|profile| SubPlanFigures::of(profile));
        self.lines.push(PlanLine { site: "link", depth, text: head, figures });
        self.drive(&sub_plan.plan, depth + 1);
        for input in &sub_plan.inputs {
            let Some(found) = prepared.table(input) else { continue };
            let rows: usize = found.batches.iter().map(RecordBatch::num_rows).sum();
            let actual = if self.analyze { format!(", {rows} rows") } else { String::new() };
            let how = if input.spread.is_some() { "spreads" } else { "ships" };
            let to = if input.spread.is_some() { "over the drives by its key" } else { "to each drive" };
            let again = self.shown.contains(&std::ptr::from_ref(found));
            let again = if again { ", computed above" } else { "" };
            let size = expected(&input.estimate);
            self.line("link", depth + 1, format!("{how} {INPUT_SCHEMA}.{} {to}: {size}{actual}{again}", input.name));
            if again.is_empty() {
                self.shown.push(found);
                self.query(&found.prepared, depth + 2);
            }
        }
        if let Some(profile) = profile {
            self.sessions(profile, depth + 1);
            self.emulated(profile, depth + 1);
        }
    }

    /// What the drives' part would have taken on drives of a profile, where one was asked for.
    fn emulated(&mut self, profile: &SubPlanProfile, depth: usize) {
        if let Some(text) = self.device.as_ref().and_then(|device| energy::emulated(device, [profile])) {
            self.line("", depth, text);
        }
    }

    fn drive(&mut self, node: &LogicalPlan, depth: usize) {
        // Renamings are no work.
        if let LogicalPlan::SubqueryAlias(alias) = node {
            return self.drive(&alias.input, depth);
        }
        let columns = match node {
            LogicalPlan::TableScan(scan) => {
                let names: Vec<&str> = scan.projected_schema.fields().iter().map(|field| field.name().as_str()).collect();
                let more = names.len().saturating_sub(12);
                let rest = if more > 0 { format!(", … {more} more") } else { String::new() };
                format!(" [{}{rest}]", names[..names.len() - more].join(", "))
            }
            _ => String::new(),
        };
        self.line("drive", depth, format!("{}{columns}", shown(node)));
        for input in node.inputs() {
            self.drive(input, depth + 1);
        }
    }

    fn sessions(&mut self, profile: &SubPlanProfile, depth: usize) {
        for session in profile.sessions() {
            if session.recalled > 0 {
                self.line("", depth, format!("{} slices from partial results that the host has kept", session.recalled));
            }
            if session.annotations.is_empty() && session.label.is_empty() {
                continue;
            }
            let text = session_text(&session);
            self.line("", depth, text);
            for text in adapted(&session) {
                self.line("", depth + 1, text);
            }
            for failover in &session.failovers {
                self.line("", depth + 1, failover.as_str());
            }
        }
    }

    fn totals(&mut self, query: &Query, rows: u64) {
        let sums = query.profile.snapshot();
        self.line("", 0, "");
        let text = format!(
            "{rows} rows in {:.1} ms; {} rows from drives in {} rounds of {} sessions, {:.1} ms CPU at drives, {} slices read, {} skipped, {} from the medium, {} over the link",
            sums.elapsed_us as f64 / 1e3,
            sums.rows_from_drives,
            sums.rounds,
            sums.sessions,
            sums.drive_cpu_ns as f64 / 1e6,
            sums.slices_read,
            sums.slices_skipped,
            Bytes(sums.medium_bytes),
            Bytes(sums.link_bytes),
        );
        self.line("", 0, text);
        let sub_plans = query.profile.sub_plans();
        if let Some(device) = self.device.as_ref().filter(|_| sub_plans.len() > 1)
            && let Some(text) = energy::emulated(device, sub_plans.iter().map(|sub_plan| &**sub_plan))
        {
            self.line("", 0, format!("all sub-plans, one after the other, {text}"));
        }
        for call in SessionCalls::of(query.state.config_options()).sums() {
            self.line("", 0, called(&call, "at the host"));
        }
        let (slices, bytes) = query.host.remote().slices_held();
        if slices > 0 {
            self.line("", 0, format!("the host holds {slices} slices, {}", Bytes(bytes)));
        }
        if sums.failovers > 0 {
            self.line("", 0, format!("sessions that went on at another copy: {}", sums.failovers));
        }
        let drives = query.host.fleet().drives();
        let mut profiles: Vec<&str> = drives.iter().filter_map(|drive| drive.welcome.profile.as_deref()).collect();
        if !profiles.is_empty() {
            let count = profiles.len();
            profiles.sort_unstable();
            profiles.dedup();
            let (all, profiles) = (drives.len(), profiles.join(", "));
            self.line("", 0, format!("throttled, as by the profile {profiles}: {count} of {all} drives"));
        }
        let paced: Vec<f64> = drives.iter().filter_map(|drive| drive.welcome.link_bits_per_second).collect();
        if let Some(rate) = paced.first() {
            self.line(
                "",
                0,
                format!("sends of {} drives are paced, to {}", paced.len(), pithead_model::Rate { bits_per_second: *rate }),
            );
        }
    }
}

fn session_text(session: &PartitionProfile) -> String {
    let (slices, skipped) = session.slices();
    let levels = match session.levels() {
        Some((low, high)) if low == high => format!("level {}", low as u8),
        Some((low, high)) => format!("levels {} to {}", low as u8, high as u8),
        None => "no round".to_owned(),
    };
    let busy = if session.busy > 0 { format!(", busy {} times", session.busy) } else { String::new() };
    let spilled = session.session.as_ref().map_or(0, |session| session.spilled_bytes);
    let spill = if spilled > 0 { format!(", {} spilled", Bytes(spilled)) } else { String::new() };
    format!(
        "at {}: {} rows, {:.1} ms CPU, {:.1} ms, {} slices read, {skipped} skipped, {} from the medium, {} over the link, {} rounds, {levels}{busy}{spill}",
        session.label,
        session.rows_out(),
        session.cpu_ns() as f64 / 1e6,
        session.wall_us as f64 / 1e3,
        slices - skipped.min(slices),
        Bytes(session.medium_bytes()),
        Bytes(session.link_bytes),
        session.annotations.len(),
    )
}

/// How far slices were taken, where not all were taken whole, and what was expected of it.
fn adapted(session: &PartitionProfile) -> Vec<String> {
    let mut lines = Vec::new();
    let at = |level: Level| -> Vec<&Annotation> { session.annotations.iter().filter(|a| a.level == level).collect() };
    let (filtered, hinted, stored) = (at(Level::Filtered), handed_pages(session), at(Level::Bytes));
    if !(filtered.is_empty() && hinted.is_empty() && stored.is_empty()) {
        let mut parts = Vec::new();
        let whole = at(Level::Whole);
        if !whole.is_empty() {
            parts.push(format!("slices {} at the drive", spans(&whole)));
        }
        let pages = pages_sent(&hinted);
        for (annotations, what) in
            [(filtered, "filtered at the drive, finished by the host"), (hinted, pages.as_str()), (stored, "pushed back")]
        {
            if let Some(last) = annotations.last() {
                parts.push(format!("{} {what}{}", spans(&annotations), cause(last)));
            }
        }
        lines.push(parts.join(", "));
    }
    let summarised = session.summarised();
    if summarised > 0 {
        lines.push(format!("{summarised} slices from partial results that the drive has kept"));
    }
    if !session.finished.is_empty() {
        let slices: u32 = session.finished.iter().map(|finished| finished.slices).sum();
        let cpu_ns: u64 = session.finished.iter().map(|finished| finished.cpu_ns).sum();
        lines.push(format!("{slices} slices finished at the host in {:.1} ms CPU", cpu_ns as f64 / 1e6));
    }
    lines.extend(searched(session));
    lines.extend(predicted(session));
    let at_drive = session.session.as_ref().map_or(&[][..], |report| &report.calls);
    lines.extend(at_drive.iter().map(|call| called(call, "at the drive")));
    lines.extend(session.calls.iter().map(|call| called(call, "at the host, of slices that came back")));
    lines
}

/// What a user's function took.
fn called(call: &CallShare, place: &str) -> String {
    let CallShare { function, rows, cpu_ns } = call;
    format!("{function} was called for {rows} rows {place}: {:.1} ms CPU", *cpu_ns as f64 / 1e6)
}

/// The rounds to level 1 that sent stored pages, or would have. With push-down off, rows travel at that level.
fn handed_pages(session: &PartitionProfile) -> Vec<&Annotation> {
    let hinted = session.annotations.iter().filter(|a| a.level == Level::Hints);
    hinted.filter(|a| a.pages_sent > 0 || a.rows_in == 0 && a.pages_skipped > 0).collect()
}

fn pages_sent(hinted: &[&Annotation]) -> String {
    let sum = |of: fn(&Annotation) -> u64| -> u64 { hinted.iter().map(|annotation| of(annotation)).sum() };
    let (sent, ruled_out, bytes) = (sum(|a| a.pages_sent), sum(|a| a.pages_skipped), sum(|a| a.stored_bytes));
    format!("as pages that may match, {sent} of {}, {}, finished by the host", sent + ruled_out, Bytes(bytes))
}

/// What each step of a scan let through, where texts were searched as they are stored.
fn searched(session: &PartitionProfile) -> Option<String> {
    let mut scan = ScanShare::default();
    session.annotations.iter().for_each(|annotation| scan.add(annotation.scan));
    let rows_in: u64 = session.annotations.iter().map(|annotation| annotation.rows_in).sum();
    let text = || {
        format!(
            "of {rows_in} rows in slices, the texts of {} were searched, {} matched, {} passed all filters",
            scan.searched, scan.matched, scan.rows
        )
    };
    (scan.searched > 0).then(text)
}

/// What a slice was expected to cost, beside what it did.
fn predicted(session: &PartitionProfile) -> Option<String> {
    let predicted = session.session.as_ref()?.predicted.as_ref()?;
    let (mut slices, mut scan_ns, mut cpu_ns) = (0_u64, 0_u64, 0_u64);
    for a in session.annotations.iter().filter(|a| a.level == Level::Whole) {
        let count: u64 = a.slices.iter().map(|span| u64::from(span.count)).sum();
        slices += count.saturating_sub(u64::from(a.slices_skipped) + u64::from(a.summarised));
        (scan_ns, cpu_ns) = (scan_ns + a.scan.cpu_ns, cpu_ns + a.cpu_ns);
    }
    let ms = |ns: f64| format!("{:.1} ms", ns / 1e6);
    let (scan, whole) = (ms(predicted.drive_ns.filtered), ms(predicted.drive_ns.whole));
    let actual = match slices {
        0 => "none was".to_owned(),
        slices => format!("it took {} and {} CPU", ms(scan_ns as f64 / slices as f64), ms(cpu_ns as f64 / slices as f64)),
    };
    Some(format!("a slice was expected to take the drive {scan} to filter, {whole} whole; {actual}"))
}

fn cause(annotation: &Annotation) -> String {
    match (annotation.cause.as_ref(), annotation.queue_ms) {
        (Some(PushBackCause::Sooner), Some(ms)) => format!(": drive queue {ms} ms"),
        (Some(PushBackCause::Sooner), None) => ": sooner so".to_owned(),
        (Some(PushBackCause::Asked), _) => ": asked for".to_owned(),
        (Some(PushBackCause::Held), _) => ": the host holds them".to_owned(),
        _ => String::new(),
    }
}

/// How many partitions are not asked, in words; nothing where all are.
fn ruled_out(left: &[bool]) -> String {
    match left.iter().filter(|left| !**left).count() {
        0 => String::new(),
        ruled_out => format!(", {ruled_out} of {} partitions ruled out", left.len()),
    }
}

/// The slices of some rounds, as `0–7, 9`.
fn spans(annotations: &[&Annotation]) -> String {
    let slices = annotations.iter().flat_map(|a| &a.slices).flat_map(|span| span.first..span.first.saturating_add(span.count));
    let text = |span: SliceSpan| match span.count {
        1 => span.first.to_string(),
        count => format!("{}–{}", span.first, span.first + count - 1),
    };
    SliceSpan::cover(slices.collect()).into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Drives that are asked first.
fn distinct(copies: &[Vec<pithead_model::DriveId>]) -> usize {
    copies.iter().filter_map(|copies| copies.first()).collect::<std::collections::BTreeSet<_>>().len()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn expected(estimate: &Estimate) -> String {
    format!("{:.0} rows, {} expected", estimate.rows.ceil(), Bytes(estimate.bytes() as u64))
}
