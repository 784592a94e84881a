//! `pithead whatif`: what a query would take on drives that one does not have.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use pithead_emulate::{
    DRIVES_MAX, Fleet, Level, ModelError, Others, Patterns, Prediction, Profile, predict, predict_others, quantity_text,
};
use pithead_host::{Parameters, Session, SubPlanProfile, patterns_of};
use pithead_model::{Blame, ByLevel, Bytes, Counts, Fault};
use pithead_repro::{Chart, Line, svg};
use serde_json::json;

use crate::counting::{STORED, WHOLE, count_all, drain};
use crate::device;
use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::output::{Align, Grid, Sink};
use crate::repro::check_picture;
use crate::target::{TargetArgs, connected};

const EXAMPLES: &str = "\
Examples:
  pithead whatif --profile newport 'SELECT city, sum(fare) FROM trips GROUP BY city'
  pithead whatif --profile mine.toml --drives 24 --times 1000 'SELECT count(*) FROM trips WHERE fare > 90'
  pithead whatif --profile newport --drives 24 --copies 2 --failed 1 'SELECT max(fare) FROM trips'
  pithead whatif --profile smart-ssd --svg curves.svg 'SELECT max(fare) FROM trips'";

/// The rates of the link in the curves, over the profile's.
const LINKS: [f64; 9] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];
const CLOCK: &str = "emulated, virtual time";
/// The drives find the pages that may match.
const HINTED: &str = "SET pithead.level = '1'";
/// The drives filter.
const FILTERED: &str = "SET pithead.level = '2'";
/// Characters of the query in a picture.
const QUERY_CHARS: usize = 66;

/// Predict what a query would take on drives of a profile: time, bytes and joules, for each level of push-down.
///
/// The query runs three times, over the data of this directory: with everything pushed down, with the pages that may
/// match sent as they are stored, and with nothing pushed down; where drives join datasets, once more with the filters
/// only. What its sub-plans counted (rows and bytes read, passed and handed on) is spread over the drives of the profile,
/// and a model of them gives the times. What the host does above the sub-plans is not in them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhatifArgs {
    /// A profile that comes with the program, or a file
    #[arg(long, value_name = "PROFILE")]
    profile: String,
    /// Drives of this profile
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = RangedI64ValueParser::<u64>::new().range(1..=DRIVES_MAX as i64))]
    drives: u64,
    /// How many times an even share of the data the fullest drive has
    #[arg(long, value_name = "F", default_value_t = 1.0, allow_negative_numbers = true)]
    skew: f64,
    /// Drives that have each part of the data
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = RangedI64ValueParser::<u64>::new().range(1..=DRIVES_MAX as i64))]
    copies: u64,
    /// Drives that fail half-way, the fullest among them; the copies on others finish their work
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = RangedI64ValueParser::<u64>::new().range(0..=DRIVES_MAX as i64))]
    failed: u64,
    /// As if the data were so many times as large
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = RangedI64ValueParser::<u64>::new().range(1..=1_000_000))]
    times: u64,
    /// One JSON object a sub-plan and level
    #[arg(long)]
    json: bool,
    /// Write the times by the rate of the link to a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Directory whose drives run inside this process [default: $PITHEAD_DATA, else ./pithead-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The query
    #[arg(value_name = "QUERY")]
    query: String,
}

/// One sub-plan at one level.
struct Row {
    sub_plan: usize,
    part: Part,
    outcome: Result<Prediction, ModelError>,
}

/// What drives take to a level.
#[derive(Clone, Copy, Debug)]
struct Part {
    level: Level,
    counts: Counts,
    others: Others,
}

impl Part {
    /// What it would take: the datasets that are joined with the driving one first, and then that one.
    fn predict(&self, profile: &Profile, fleet: Fleet) -> Result<Prediction, ModelError> {
        let driving = predict(profile, &self.counts, self.level, fleet)?;
        let before = predict_others(profile, self.others, self.level, fleet)?;
        Ok(before.map_or(driving, |before| before.and(&driving)))
    }

    /// Bytes of the datasets as they are stored; 0 where they were not counted.
    fn stored_bytes(&self) -> u64 {
        if self.counts.stored_bytes == 0 { 0 } else { self.counts.stored_bytes.saturating_add(self.others.read_bytes) }
    }
}

/// Runs the command.
pub(crate) async fn run(args: WhatifArgs) -> Result<(), CliError> {
    let profile = device::modelled(&args.profile)?;
    let fleet = fleet(&args)?;
    args.svg.iter().try_for_each(|path| check_picture(path))?;
    let interrupts = Interrupts::listen();
    let target = TargetArgs { data: args.data.clone(), ..TargetArgs::default() };
    let counted =
        connected(&target, &interrupts, async |engine| interrupts.cancels(count(&engine.host.session(), &args.query)).await)
            .await?;
    let scaled: Vec<Scaled> = counted.iter().map(|counted| counted.of(args.times, args.drives)).collect();
    let rows = rows(&profile, &scaled, fleet);
    if let Some(path) = &args.svg {
        let picture = svg(&curves(&profile, &scaled, fleet), &note(&args, fleet));
        std::fs::write(path, picture).map_err(|error| CliError::file(path, error))?;
    }
    let mut sink = Sink::stdout();
    if args.json {
        for row in &rows {
            writeln!(sink, "{}", object(&profile, fleet, row))?;
        }
    } else {
        writeln!(sink, "{CLOCK}; profile {}, {}, {} times the data\n", profile.name, shown(fleet), args.times)?;
        grid(&rows).write(&mut sink)?;
        for sub_plan in only_filters(&rows) {
            writeln!(
                sink,
                "sub-plan {sub_plan} hands on as many rows as pass its filters, so level 3 is modelled as level 2 is: as filters"
            )?;
        }
    }
    sink.finish()
}

/// The sub-plans whose level 3 is no other work than level 2, as far as rows tell.
fn only_filters(rows: &[Row]) -> Vec<usize> {
    let at = |level: Level| rows.iter().filter(move |row| row.part.level == level);
    let both = at(Level::Whole).zip(at(Level::Filtered));
    let alike = both.filter(|(whole, filtered)| whole.outcome.is_ok() && whole.outcome == filtered.outcome);
    alike.map(|(whole, _)| whole.sub_plan).collect()
}

/// What a picture is of, below its titles.
fn note(args: &WhatifArgs, fleet: Fleet) -> String {
    let query = args.query.split_whitespace().collect::<Vec<_>>().join(" ");
    let query = match query.char_indices().nth(QUERY_CHARS) {
        Some((end, _)) => format!("{}…", &query[..end]),
        None => query,
    };
    format!("{CLOCK}\n{}, {} times the data\n{query}", shown(fleet), args.times)
}

/// What a sub-plan counted here.
#[derive(Clone, Copy, Debug)]
struct Counted {
    counts: Counts,
    /// At level 2, where joins leave rows out before they are read.
    filtered: Counts,
    /// The datasets that it joins with the driving one.
    others: Others,
    /// At level 1; none where drives do not take it there, or it joins several datasets.
    hints: Option<Hints>,
    /// Whether drives take it to level 0, and nothing else travels then than what is counted.
    can_travel: bool,
    /// The partitions that it ran over.
    partitions: u64,
    /// Whether no group is on two drives.
    groups_are_apart: bool,
}

fn fleet(args: &WhatifArgs) -> Result<Fleet, CliError> {
    let fleet = Fleet { drives: args.drives, skew: args.skew, copies: args.copies, failed: args.failed };
    fleet.check().map_err(CliError::user)?;
    Ok(fleet)
}

fn shown(fleet: Fleet) -> String {
    let mut text = if fleet.drives == 1 { "1 drive".to_owned() } else { format!("{} drives", fleet.drives) };
    if fleet.skew > 1.0 {
        text.push_str(&format!(", skew {}", fleet.skew));
    }
    if fleet.copies > 1 {
        text.push_str(&format!(", {} copies", fleet.copies));
    }
    if fleet.failed > 0 {
        text.push_str(&format!(", {} failed half-way", fleet.failed));
    }
    text
}

/// The pages that may match.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Hints {
    /// As [`Level::Hints`] has them.
    counts: Counts,
    /// The patterns that the drives searched texts for to find them; none where they looked for other things.
    patterns: Option<Patterns>,
}

/// What a sub-plan would count over other data, on other drives.
#[derive(Clone, Copy, Debug)]
struct Scaled {
    counts: Counts,
    filtered: Counts,
    others: Others,
    hints: Option<Hints>,
    can_travel: bool,
}

impl Scaled {
    /// The levels to which it can be taken, the highest first, each with its counts.
    fn levels(&self) -> Vec<Part> {
        let part = |level: Level, counts: Counts| Part { level, counts, others: self.others };
        let joined = [part(Level::Whole, self.counts), part(Level::Filtered, self.filtered)];
        let hints = self.hints.map(|Hints { counts, patterns }| part(Level::Hints { patterns }, counts));
        joined.into_iter().chain(hints).chain(self.can_travel.then(|| part(Level::Bytes, self.counts))).collect()
    }
}

/// Runs the query, and gives what each of its sub-plans counted.
async fn count(session: &Session, query: &str) -> Result<Vec<Counted>, CliError> {
    // It runs more than once, and must change nothing.
    let statement = session.prepare(query, &Parameters::default()).await?;
    if statement.explains() {
        let fault = Fault::new(Blame::User, "a query is predicted, and EXPLAIN gives its plan");
        return Err(fault.hint("name the query without EXPLAIN").into());
    }
    if statement.writes() || statement.schema().is_none() {
        let what = if statement.writes() { "changes data" } else { "gives no rows" };
        let fault = Fault::new(Blame::User, format!("only queries are predicted, and this statement {what}"));
        return Err(fault.hint("name a query; of a statement that changes data, the SELECT that finds its rows").into());
    }
    count_all(session).await?;
    drain(session, WHOLE).await?;
    let whole = work(drain(session, query).await?.sub_plans());
    drain(session, HINTED).await?;
    let hinted = work(drain(session, query).await?.sub_plans());
    drain(session, STORED).await?;
    let stored = work(drain(session, query).await?.sub_plans());
    if whole.is_empty() {
        let fault = Fault::new(Blame::User, "the query asks nothing of drives, so there is nothing to predict");
        return Err(fault.hint("name a query that reads a dataset; `pithead sql -c 'EXPLAIN …'` shows its sub-plans").into());
    }
    if whole.len() != stored.len() {
        let fault = Fault::new(Blame::Unsupported, "the query has other sub-plans when its work is done at the host");
        return Err(fault.hint("EXPLAIN ANALYZE with SET pithead.level = 3 and = 0 shows both").into());
    }
    let filtered = if whole.iter().any(|whole| joins(whole)) {
        drain(session, FILTERED).await?;
        work(drain(session, query).await?.sub_plans())
    } else {
        Vec::new()
    };
    let at = |place: usize| {
        let of = |run: &'_ [Arc<SubPlanProfile>]| (run.len() == whole.len()).then(|| Arc::clone(&run[place]));
        Runs { whole: &whole[place], filtered: of(&filtered), hinted: of(&hinted), stored: &stored[place] }
    };
    Ok((0..whole.len()).map(|place| at(place).counted()).collect())
}

/// A sub-plan's runs with everything pushed down, with filters, with pages that may match, and with nothing. None: the query has
/// other sub-plans then.
struct Runs<'a> {
    whole: &'a SubPlanProfile,
    filtered: Option<Arc<SubPlanProfile>>,
    hinted: Option<Arc<SubPlanProfile>>,
    stored: &'a SubPlanProfile,
}

/// Whether a sub-plan joins several datasets.
fn joins(profile: &SubPlanProfile) -> bool {
    profile.sub_plan.datasets.len() > 1
}

/// The sub-plans of the query itself. What samples of tables have told the first run is known to the second one, which takes none.
fn work(all: Vec<Arc<SubPlanProfile>>) -> Vec<Arc<SubPlanProfile>> {
    all.into_iter().filter(|profile| !profile.is_sample).collect()
}

impl Runs<'_> {
    fn counted(&self) -> Counted {
        let Runs { whole, stored, .. } = self;
        let carried = by_level(stored);
        let counts = Counts { stored_bytes: carried.sum().stored_bytes, ..by_level(whole).sum() };
        let others = whole.sessions();
        // At lower levels the host gets other datasets by a way that sessions do not count.
        let alone = !joins(whole);
        Counted {
            counts,
            filtered: self.filtered.as_deref().filter(|_| !alone).map_or(counts, |run| filtered(counts, run)),
            others: Others::of(others.iter().filter_map(|session| session.session.as_ref())),
            hints: self.hinted.as_deref().filter(|_| alone).and_then(|hinted| hints(&counts, hinted)),
            can_travel: alone && carried.whole.rows == 0 && carried.filtered.rows == 0,
            partitions: whole.sessions().len().max(1) as u64,
            groups_are_apart: whole.sub_plan.whole_partition,
        }
    }
}

fn by_level(profile: &SubPlanProfile) -> ByLevel<Counts> {
    ByLevel::<Counts>::of(profile.sessions().iter().flat_map(|session| &session.annotations))
}

/// What of the driving dataset passes at level 2: at level 3, drives leave out rows that have no partner, too. Where they took no
/// slice to level 2, what was counted at level 3.
fn filtered(counts: Counts, run: &SubPlanProfile) -> Counts {
    match by_level(run).filtered {
        Counts { passed_rows: 0, .. } => counts,
        Counts { rows, read_bytes, passed_rows, passed_bytes, .. } => {
            Counts { rows, read_bytes, passed_rows, passed_bytes, ..counts }
        }
    }
}

/// What drives found at level 1; none where they took any slice to another level. All rows count as searched where any are.
fn hints(counts: &Counts, hinted: &SubPlanProfile) -> Option<Hints> {
    let sessions = hinted.sessions();
    let rounds = || sessions.iter().flat_map(|session| &session.annotations);
    let ByLevel { whole, filtered, hints: found, bytes } = ByLevel::<Counts>::of(rounds());
    if [whole, filtered, bytes].iter().any(|other| other.rows > 0 || other.read_bytes > 0) {
        return None;
    }
    let patterns = rounds().any(|round| round.scan.searched > 0).then(|| patterns_of(&hinted.sub_plan));
    let counts = Counts {
        read_bytes: found.read_bytes,
        passed_rows: found.rows,
        passed_bytes: found.stored_bytes,
        out_rows: counts.passed_rows,
        out_bytes: 0,
        ..*counts
    };
    Some(Hints { counts, patterns })
}

impl Counted {
    /// The same for so many times the data, on so many drives.
    fn of(&self, times: u64, drives: u64) -> Scaled {
        let counts = self.counts;
        let many = |count: u64| count.saturating_mul(times);
        // An aggregate or a top-k does not grow with the data: each drive hands on what a partition does here.
        let kept = |count: u64| match (counts.out_rows < counts.passed_rows, self.groups_are_apart) {
            (false, _) => many(count),
            (true, true) => count,
            (true, false) => count.div_ceil(self.partitions).saturating_mul(drives),
        };
        let grown = |counts: Counts| Counts {
            rows: many(counts.rows),
            read_bytes: many(counts.read_bytes),
            stored_bytes: many(counts.stored_bytes),
            passed_rows: many(counts.passed_rows),
            passed_bytes: many(counts.passed_bytes),
            out_rows: many(counts.out_rows),
            out_bytes: many(counts.out_bytes),
        };
        Scaled {
            counts: Counts { out_rows: kept(counts.out_rows), out_bytes: kept(counts.out_bytes), ..grown(counts) },
            filtered: grown(self.filtered),
            others: self.others.times(times),
            hints: self.hints.map(|hints| Hints { counts: grown(hints.counts), ..hints }),
            can_travel: self.can_travel,
        }
    }
}

fn rows(profile: &Profile, scaled: &[Scaled], fleet: Fleet) -> Vec<Row> {
    let of = |(place, scaled): (usize, &Scaled)| {
        let row = |part: Part| Row { sub_plan: place + 1, outcome: part.predict(profile, fleet), part };
        scaled.levels().into_iter().map(row).collect::<Vec<_>>()
    };
    scaled.iter().enumerate().flat_map(of).collect()
}

fn grid(rows: &[Row]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("sub-plan", Right),
        ("level", Right),
        ("time", Right),
        ("from media", Right),
        ("over links", Right),
        ("system", Right),
        ("drives", Right),
        ("MB/s a W", Right),
        ("waits for", Left),
    ]);
    for row in rows {
        let mut texts = vec![row.sub_plan.to_string(), row.part.level.number().to_string()];
        match &row.outcome {
            Ok(predicted) => texts.extend([
                quantity_text("elapsed_s", predicted.elapsed_s),
                Bytes(predicted.medium_bytes).to_string(),
                Bytes(predicted.link_bytes).to_string(),
                format!("{:.3} J", predicted.system_j),
                format!("{:.3} J", predicted.drives_j),
                efficiency(row, predicted).map_or_else(String::new, |efficiency| format!("{efficiency:.3}")),
                predicted.bottleneck.name().to_owned(),
            ]),
            Err(error) => texts.extend([vec![String::new(); 6], vec![error.to_string()]].concat()),
        }
        grid.push(texts);
    }
    grid
}

/// Megabytes of the stored data that are gone through in a second, for each watt of the system. None where it draws nothing, or
/// where nothing was counted as it is stored.
fn efficiency(row: &Row, predicted: &Prediction) -> Option<f64> {
    let stored = row.part.stored_bytes();
    (predicted.system_j > 0.0 && stored > 0).then(|| stored as f64 / 1e6 / predicted.system_j)
}

fn object(profile: &Profile, fleet: Fleet, row: &Row) -> serde_json::Value {
    let mut object = json!({
        "clock": CLOCK,
        "profile": profile.name,
        "drives": fleet.drives,
        "skew": fleet.skew,
        "copies": fleet.copies,
        "failed": fleet.failed,
        "sub_plan": row.sub_plan,
        "level": row.part.level.number(),
        "rows": row.part.counts.rows.saturating_add(row.part.others.rows),
        "passed_rows": row.part.counts.passed_rows,
        "out_rows": row.part.counts.out_rows,
    });
    match &row.outcome {
        Ok(predicted) => {
            object["elapsed_s"] = json!(predicted.elapsed_s);
            object["medium_bytes"] = json!(predicted.medium_bytes);
            object["link_bytes"] = json!(predicted.link_bytes);
            object["system_joules"] = json!(predicted.system_j);
            object["drives_joules"] = json!(predicted.drives_j);
            object["megabytes_per_s_per_w"] = json!(efficiency(row, predicted));
            object["bottleneck"] = json!(predicted.bottleneck.name());
        }
        Err(error) => object["error"] = json!(error.to_string()),
    }
    object
}

/// For each sub-plan, the time at each level by the rate of a drive's link.
fn curves(profile: &Profile, scaled: &[Scaled], fleet: Fleet) -> Vec<Chart> {
    let linked = |times: f64| {
        let mut profile = profile.clone();
        if let Some(parts) = &mut profile.parts {
            parts.link.bytes_per_s.value *= times;
        }
        profile
    };
    let profiles = LINKS.map(linked);
    let rate = |profile: &Profile| profile.parts.as_ref().map_or(0.0, |parts| parts.link.bytes_per_s.value / 1e6);
    let chart = |(place, scaled): (usize, &Scaled)| {
        let lines = scaled.levels().into_iter().map(|part| Line {
            name: format!("level {}", part.level.number()),
            points: profiles
                .iter()
                .filter_map(|profile| Some((rate(profile), part.predict(profile, fleet).ok()?.elapsed_s)))
                .collect(),
        });
        let lines = lines.filter(|line| !line.points.is_empty()).collect();
        let title = format!("Sub-plan {} on {}", place + 1, profile.name);
        Chart { title, profiles: vec![], x: "link of a drive (MB/s)", y: "seconds", lines }
    };
    scaled.iter().enumerate().map(chart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_embed::{EmbedOptions, Target, connect};
    use pithead_emulate::find;

    /// A pattern that any matcher takes.
    const ONE: Patterns = Patterns { count: 1, bytes_most: 3 };

    fn scaled() -> Scaled {
        counted(false).of(1, 1)
    }

    fn counted(groups_are_apart: bool) -> Counted {
        let counts = Counts {
            rows: 1_000_000,
            read_bytes: 8_000_000,
            stored_bytes: 40_000_000,
            passed_rows: 1000,
            passed_bytes: 8000,
            out_rows: 10,
            out_bytes: 160,
        };
        // 32 MB of pages are searched, and 2 MB of those travel.
        let found = Counts { read_bytes: 34_000_000, passed_rows: 50_000, passed_bytes: 2_000_000, out_rows: 1000, ..counts };
        let hints = Some(Hints { counts: found, patterns: Some(ONE) });
        Counted {
            counts,
            filtered: counts,
            others: Others::default(),
            hints,
            can_travel: true,
            partitions: 2,
            groups_are_apart,
        }
    }

    #[test]
    fn data_grows_and_groups_do_not() {
        let many = counted(false).of(100, 8).counts;
        assert_eq!((many.rows, many.stored_bytes, many.passed_bytes), (100_000_000, 4_000_000_000, 800_000));
        assert_eq!((many.out_rows, many.out_bytes), (5 * 8, 80 * 8));
        assert_eq!(counted(true).of(100, 8).counts.out_rows, 10);
        let mut filter = counted(false);
        filter.counts.out_rows = filter.counts.passed_rows;
        assert_eq!(filter.of(100, 8).counts.out_rows, 100_000);
        let hints = counted(false).of(100, 8).hints.unwrap();
        assert_eq!(hints.patterns, Some(ONE));
        assert_eq!(
            (hints.counts.read_bytes, hints.counts.passed_rows, hints.counts.out_rows),
            (3_400_000_000, 5_000_000, 100_000)
        );
    }

    #[test]
    fn every_level_has_a_row_or_a_reason() {
        let mut out = Vec::new();
        grid(&rows(&find("pm1725").unwrap(), &[scaled()], Fleet::even(2))).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("the device pm1725 has no cores for users' work").count(), 3, "{text}");
        let without = Scaled { hints: None, ..scaled() };
        let numbers = |scaled| {
            rows(&find("newport").unwrap(), &[scaled], Fleet::even(2)).iter().map(|row| row.part.level.number()).collect()
        };
        let joined = Scaled { can_travel: false, ..without };
        let all: [Vec<u8>; 3] = [scaled(), without, joined].map(numbers);
        assert_eq!(all, [vec![3, 2, 1, 0], vec![3, 2, 0], vec![3, 2]]);
        assert!(text.contains("40.0 MB"), "{text}");
    }

    #[test]
    fn stored_bytes_gain_most_from_a_faster_link() {
        let charts = curves(&find("newport").unwrap(), &[counted(false).of(100, 1)], Fleet::even(1));
        let gain = |line: &Line| line.points[0].1 / line.points[LINKS.len() - 1].1;
        let gains: Vec<f64> = charts[0].lines.iter().map(gain).collect();
        assert!(gains[3] > 10.0 * gains[0], "{gains:?}");
        assert!(gains[0] >= 1.0 && gains[2] > gains[0], "{gains:?}");
    }

    /// Of a profile with matchers, level 1 meets them, and no other level does.
    #[test]
    fn only_pages_that_may_match_meet_the_matchers() {
        let biscuit = find("pm1725-biscuit").unwrap();
        let mut without = biscuit.clone();
        without.parts.as_mut().unwrap().matcher = None;
        let times = |profile: &Profile| -> Vec<f64> {
            rows(profile, &[scaled()], Fleet::even(1)).iter().map(|row| row.outcome.as_ref().unwrap().elapsed_s).collect()
        };
        let (with, without) = (times(&biscuit), times(&without));
        assert!(with[2] < without[2], "{with:?} {without:?}");
        assert_eq!([with[0], with[1], with[3]], [without[0], without[1], without[3]]);
    }

    #[test]
    fn a_picture_says_what_it_is_of() {
        let args = |drives, query: &str| WhatifArgs {
            profile: "mine.toml".to_owned(),
            drives,
            skew: 1.0,
            copies: 1,
            failed: 0,
            times: 1000,
            json: false,
            svg: None,
            data: None,
            query: query.to_owned(),
        };
        let fleet = Fleet { copies: 2, failed: 1, skew: 2.0, ..Fleet::even(8) };
        let lines = note(&args(8, "SELECT  max(v)\n FROM t"), fleet);
        assert_eq!(
            lines,
            "emulated, virtual time\n8 drives, skew 2, 2 copies, 1 failed half-way, 1000 times the data\nSELECT max(v) FROM t"
        );
        let long = note(&args(1, &"é".repeat(100)), Fleet::even(1));
        assert!(long.contains("\n1 drive, 1000 times") && long.ends_with(&format!("\n{}…", "é".repeat(QUERY_CHARS))), "{long}");
        let charts = curves(&Profile { name: "mine.toml".to_owned(), ..find("newport").unwrap() }, &[scaled()], fleet);
        assert_eq!(charts[0].title, "Sub-plan 1 on mine.toml");
        assert_eq!(charts[0].lines.len(), 4);
    }

    /// 200,000 texts, of which one has the pattern, in one of the pages.
    #[tokio::test(flavor = "multi_thread")]
    async fn pages_that_may_match_are_those_that_drives_find() {
        let folder = tempfile::tempdir().unwrap();
        let options = EmbedOptions { drives: Some(1), ..EmbedOptions::default() };
        let engine = connect(&Target::Data(folder.path().join("data")), &options).await.unwrap();
        let session = engine.host.session();
        drain(&session, "CREATE TABLE n AS SELECT value AS k, 'note ' || value AS note FROM range(200000)").await.unwrap();
        let texts = count(&session, "SELECT count(*) FROM n WHERE note LIKE '%123456%'").await.unwrap()[0];
        let Hints { counts, patterns } = texts.hints.unwrap();
        assert_eq!(patterns, Some(Patterns { count: 1, bytes_most: 6 }));
        assert!(counts.passed_rows > 0 && counts.passed_rows < 100_000, "{counts:?}");
        assert!(counts.passed_bytes < counts.read_bytes / 2 && counts.rows == 200_000, "{counts:?}");
        assert_eq!((counts.out_rows, counts.stored_bytes), (1, texts.counts.stored_bytes));
        let numbers = count(&session, "SELECT count(*) FROM n WHERE k % 2 = 0").await.unwrap()[0].hints.unwrap();
        assert!(numbers.patterns.is_none() && numbers.counts.passed_rows == 200_000, "{numbers:?}");
        assert!(texts.can_travel);
        // A join of what each drive has is no work that pages or slices of one dataset are enough for.
        let join = "SELECT a.k FROM n a JOIN n b ON a.k = b.k WHERE a.note LIKE '%777%'";
        let joined = count(&session, join).await.unwrap();
        assert!(joined.iter().all(|counted| counted.hints.is_none() && !counted.can_travel), "{joined:?}");
        engine.shutdown().await;
    }

    /// Both are partitioned by what joins them, so drives join them, whichever of them drives.
    #[tokio::test(flavor = "multi_thread")]
    async fn all_datasets_of_a_join_are_counted_at_levels_3_and_2() {
        let folder = tempfile::tempdir().unwrap();
        let options = EmbedOptions { drives: Some(2), ..EmbedOptions::default() };
        let engine = connect(&Target::Data(folder.path().join("data")), &options).await.unwrap();
        let session = engine.host.session();
        for statement in [
            "CREATE TABLE a (id BIGINT, v BIGINT) PARTITION BY hash(id)",
            "CREATE TABLE b (id BIGINT, w BIGINT) PARTITION BY hash(id)",
            "INSERT INTO a SELECT value, value * 7 % 1009 FROM range(40000)",
            "INSERT INTO b SELECT value, value * 5 % 1009 FROM range(20000)",
        ] {
            drain(&session, statement).await.unwrap();
        }
        let query = "SELECT sum(v * w) FROM a JOIN b USING (id)";
        let all = count(&session, query).await.unwrap();
        let [counted] = all[..] else { panic!("{all:?}") };
        assert_eq!(counted.others.rows + counted.counts.rows, 60_000, "{counted:?}");
        assert!(counted.hints.is_none() && !counted.can_travel, "{counted:?}");
        drain(&session, WHOLE).await.unwrap();
        let read = drain(&session, query).await.unwrap().snapshot().medium_bytes;
        let rows = rows(&find("newport").unwrap(), &[counted.of(1, 2), counted.of(10, 2)], Fleet::even(2));
        let read_by: Vec<_> =
            rows.iter().map(|row| (row.part.level.number(), row.outcome.as_ref().unwrap().medium_bytes)).collect();
        assert_eq!(read_by, [(3, read), (2, read), (3, 10 * read), (2, 10 * read)]);
        // Level 2 sends all rows of the driving dataset, and the other one as it is read; level 3 a sum of each drive.
        let sent: Vec<_> = rows.iter().map(|row| row.outcome.as_ref().unwrap().link_bytes).collect();
        let passed = counted.filtered.passed_bytes;
        assert_eq!(counted.filtered.passed_rows, counted.counts.rows);
        assert_eq!(sent[..2], [counted.counts.out_bytes, passed + counted.others.read_bytes]);
        engine.shutdown().await;
    }

    #[test]
    fn a_sub_plan_whose_level_3_is_modelled_as_filters_is_told_of() {
        let filter = Scaled { counts: Counts { out_rows: 1000, out_bytes: 8000, ..scaled().counts }, ..scaled() };
        let rows = rows(&find("newport").unwrap(), &[scaled(), filter], Fleet::even(2));
        assert_eq!(only_filters(&rows), [2]);
    }

    /// The host keeps what samples have told: a query that sampled in its first run had fewer sub-plans in its second one.
    #[tokio::test(flavor = "multi_thread")]
    async fn samples_are_not_work_of_the_query() {
        let folder = tempfile::tempdir().unwrap();
        let options = EmbedOptions { drives: Some(1), ..EmbedOptions::default() };
        let engine = connect(&Target::Data(folder.path().join("data")), &options).await.unwrap();
        let session = engine.host.session();
        for statement in [
            "CREATE TABLE t AS SELECT value % 7 AS k, 'note ' || value AS note FROM range(20000)",
            "SET pithead.sample = always",
            "SET pithead.sample_ms = 60000",
        ] {
            drain(&session, statement).await.unwrap();
        }
        let query = |part: &str| format!("SELECT k, count(*) FROM t WHERE note LIKE '%{part}%' GROUP BY k");
        let all = drain(&session, &query("8")).await.unwrap().sub_plans();
        assert_eq!((all.len(), work(all).len()), (2, 1), "it has sampled");
        let counted = count(&session, &query("9")).await.unwrap();
        assert_eq!(counted.iter().map(|counted| counted.counts.rows).collect::<Vec<_>>(), [20_000]);
        engine.shutdown().await;
    }
}
