//! Match hints: a log of wide rows on one weak drive behind a link, asked with filters that few pages pass, at each level by itself and
//! as the drive decides. A slice is one day of the log in the order of its minutes, so the rows of an hour lie together in each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use futures::stream::{self, StreamExt};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadSpec, Session};
use pithead_model::{Blame, Fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use crate::answers::difference;
use crate::drives::DriveProcess;
use crate::report::{megabytes, ratio, seconds, table};
use crate::tables::io;
use crate::timing::{Spread, geometric_mean, run, unhelped};

/// Days of the log, each of them one slice, and its rows: sixteen pages.
const DAYS: usize = 8;
const DAY_ROWS: usize = 16 * 8_192;
const MINUTES: usize = 1_440;
/// Columns of text beside the message, of 24 characters that say nothing.
const FIELDS: usize = 6;
/// Rows of the incident that each day has, one after the other.
const INCIDENT_ROWS: usize = 300;
/// Share of a core's speed that the drive has.
const DRIVE_CPU: &str = "1/15";
const WORDS: [&str; 8] = ["accepted", "closed", "request", "answered", "timeout", "retried", "session", "granted"];

/// Levels, the one that sends pages first.
const WAYS: [&str; 5] = ["1", "3", "2", "0", "auto"];
/// The place of the drive's own choice in [`WAYS`].
const AUTO: usize = 4;

/// What is asked.
const QUERIES: [(&str, &str); 5] = [
    ("an expression", "SELECT minute, code, message FROM log WHERE minute BETWEEN 540 AND 719 AND md5(message) LIKE '00%'"),
    (
        "distinct values",
        "SELECT count(DISTINCT field_0), count(DISTINCT field_1), max(message) FROM log WHERE minute BETWEEN 540 AND 719",
    ),
    ("all columns", "SELECT * FROM log WHERE minute BETWEEN 540 AND 719"),
    ("an incident", "SELECT * FROM log WHERE message LIKE '%quartz%'"),
    ("few columns of all rows", "SELECT severity, count(*), sum(code) FROM log GROUP BY severity"),
];

/// What to measure.
pub(super) struct PagesOptions {
    pub(super) runs: usize,
    pub(super) link: String,
    pub(super) directory: PathBuf,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Pages {
    rows: usize,
    slices: usize,
    /// The drive's CPU and what it sends are paced: both are emulated.
    paced_cpu: &'static str,
    paced_link: String,
    levels: [&'static str; 5],
    queries: Vec<QueryReport>,
}

#[derive(Debug, Serialize)]
struct QueryReport {
    name: &'static str,
    sql: &'static str,
    levels: Vec<LevelCost>,
    answers_equal: bool,
}

/// A query at one level.
#[derive(Clone, Copy, Debug, Serialize)]
struct LevelCost {
    seconds: Spread,
    link_bytes: u64,
    drive_cpu_seconds: f64,
}

/// What level 1 is worth there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct PagesSummary {
    /// Seconds of the best other level over those of level 1: the best query, and the geometric mean.
    level_1_best_gain: f64,
    level_1_mean_gain: f64,
    /// Seconds of the drive's own choice over those of the best level, geometric mean.
    pages_auto_vs_best: f64,
}

/// Measures all queries at all levels.
pub(super) async fn pages(options: &PagesOptions) -> Result<Pages, Fault> {
    let directory = options.directory.join("yoursql-pages");
    remove(&directory)?;
    let program = std::env::current_exe().map_err(|error| io("pithead".as_ref(), &error))?;
    fill(&program, &directory).await?;
    let arguments = ["--cpu", DRIVE_CPU, "--link", &options.link];
    let drive = DriveProcess::start(&program, &directory, &arguments)?;
    let engine = connected(&drive).await?;
    let queries = all(&engine, options.runs).await?;
    engine.shutdown().await;
    drive.stop()?;
    remove(&directory)?;
    let paced_link = options.link.clone();
    Ok(Pages { rows: DAYS * DAY_ROWS, slices: DAYS, paced_cpu: DRIVE_CPU, paced_link, levels: WAYS, queries })
}

/// Loads the log into a drive that is not paced.
async fn fill(program: &Path, directory: &Path) -> Result<(), Fault> {
    let drive = DriveProcess::start(program, directory, &[])?;
    let engine = connected(&drive).await?;
    let schema = day(0)?.schema();
    let spec = LoadSpec { slice_rows: Some(DAY_ROWS), partitions: Some(1), ..LoadSpec::new("log".parse()?, vec![]) };
    let loaded = engine.host.load_batches(spec, schema, stream::iter(0..DAYS).map(day).boxed()).await;
    engine.shutdown().await;
    drive.stop()?;
    loaded.map(|_| ())
}

async fn connected(drive: &DriveProcess) -> Result<Engine, Fault> {
    connect(&Target::Drives(vec![drive.address().to_owned()]), &EmbedOptions::default()).await
}

fn remove(directory: &Path) -> Result<(), Fault> {
    match directory.exists() {
        true => std::fs::remove_dir_all(directory).map_err(|error| io(directory, &error)),
        false => Ok(()),
    }
}

/// The rows of a day, which follow from its number.
fn day(day: usize) -> Result<RecordBatch, Fault> {
    let mut rng = StdRng::seed_from_u64(day as u64);
    let incident = rng.random_range(0..DAY_ROWS - INCIDENT_ROWS);
    let rows = 0..DAY_ROWS;
    let minutes = Int32Array::from_iter_values(rows.clone().map(|row| (row * MINUTES / DAY_ROWS) as i32));
    let severities =
        StringArray::from_iter_values(rows.clone().map(|_| ["debug", "info", "warning", "error"][rng.random_range(0..4)]));
    let codes = Int64Array::from_iter_values(rows.clone().map(|_| rng.random_range(0..1_000_000)));
    let mut word = |row: usize| {
        let is_incident = (incident..incident + INCIDENT_ROWS).contains(&row);
        let words = [0; 3].map(|_| WORDS[rng.random_range(0..WORDS.len())]);
        let last = if is_incident { "quartz" } else { words[2] };
        format!("{} {} {last} {} by {:08x}", words[0], words[1], rng.random_range(0..2_000), rng.random::<u32>())
    };
    let messages = StringArray::from_iter_values(rows.clone().map(&mut word));
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("minute".to_owned(), Arc::new(minutes)),
        ("severity".to_owned(), Arc::new(severities)),
        ("code".to_owned(), Arc::new(codes)),
        ("message".to_owned(), Arc::new(messages)),
    ];
    for field in 0..FIELDS {
        let texts = rows.clone().map(|_| format!("{:024x}", rng.random::<u128>() >> 32));
        columns.push((format!("field_{field}"), Arc::new(StringArray::from_iter_values(texts))));
    }
    RecordBatch::try_from_iter(columns).map_err(|error| Fault::new(Blame::Bug, error.to_string()))
}

async fn all(engine: &Engine, runs: usize) -> Result<Vec<QueryReport>, Fault> {
    let mut sessions = Vec::new();
    for level in WAYS {
        let session = unhelped(engine).await?;
        session.run(&format!("SET pithead.level = {level}")).await?;
        sessions.push(session);
    }
    let mut queries = Vec::new();
    for (name, sql) in QUERIES {
        let measured = measured(&sessions, name, sql, runs).await.map_err(|fault| fault.at(name))?;
        let taken: Vec<String> = measured.levels.iter().map(|level| seconds(level.seconds.median)).collect();
        println!("  {name}: {} s at levels {}", taken.join(", "), WAYS.join(", "));
        queries.push(measured);
    }
    Ok(queries)
}

/// A query at all levels in turns, once before it counts.
async fn measured(sessions: &[Session], name: &'static str, sql: &'static str, runs: usize) -> Result<QueryReport, Fault> {
    let mut first: Option<Vec<RecordBatch>> = None;
    let mut answers_equal = true;
    let mut taken = vec![vec![]; sessions.len()];
    let mut last = vec![None; sessions.len()];
    for turn in 0..=runs {
        for (way, session) in sessions.iter().enumerate() {
            let ran = run(session, sql).await.map_err(|fault| fault.at(format!("level {}", WAYS[way])))?;
            last[way] = Some(ran.profile);
            if turn > 0 {
                taken[way].push(ran.seconds);
            }
            match &first {
                Some(first) => answers_equal &= difference(first, &ran.batches)?.is_none(),
                None => first = Some(ran.batches),
            }
        }
    }
    let levels = taken.into_iter().zip(last.into_iter().flatten()).map(|(runs, profile)| LevelCost {
        seconds: Spread::of(runs),
        link_bytes: profile.link_bytes,
        drive_cpu_seconds: profile.drive_cpu_ns as f64 / 1e9,
    });
    Ok(QueryReport { name, sql, levels: levels.collect(), answers_equal })
}

impl Pages {
    /// Queries whose answers hang on the level.
    pub(super) fn answers_differ(&self) -> usize {
        self.queries.iter().filter(|query| !query.answers_equal).count()
    }

    /// The figures that later versions are compared by.
    pub(super) fn summary(&self) -> PagesSummary {
        let medians = |query: &QueryReport| query.levels.iter().map(|level| level.seconds.median).collect();
        PagesSummary::of(&self.queries.iter().map(medians).collect::<Vec<Vec<f64>>>())
    }

    /// Seconds and bytes of each query at each level.
    pub(super) fn text(&self) -> String {
        let header: Vec<String> = ["query".to_owned()].into_iter().chain(WAYS.map(|level| format!("level {level}"))).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).chain([""]).collect();
        let rows: Vec<Vec<String>> = self.queries.iter().map(row).collect();
        let told = format!(
            "seconds, MB over the link; {} rows in {} slices on one drive, paced to {} of a core's speed and to {}",
            self.rows, self.slices, self.paced_cpu, self.paced_link
        );
        [table(&header, &rows), told].join("\n")
    }
}

fn row(query: &QueryReport) -> Vec<String> {
    let cell = |level: &LevelCost| format!("{} {} MB", seconds(level.seconds.median), megabytes(level.link_bytes));
    let gain = gain(&query.levels.iter().map(|level| level.seconds.median).collect::<Vec<_>>());
    let last = if query.answers_equal { ratio(gain) } else { "DIFFER".to_owned() };
    [query.name.to_owned()].into_iter().chain(query.levels.iter().map(cell)).chain([last]).collect()
}

/// The best other level over level 1, from seconds in the order of [`WAYS`].
fn gain(seconds: &[f64]) -> f64 {
    seconds[1..AUTO].iter().copied().fold(f64::INFINITY, f64::min) / seconds[0]
}

impl PagesSummary {
    /// Of each query's seconds in the order of [`WAYS`].
    fn of(queries: &[Vec<f64>]) -> Self {
        let gains: Vec<f64> = queries.iter().map(|seconds| gain(seconds)).collect();
        let best = |seconds: &Vec<f64>| seconds[..AUTO].iter().copied().fold(f64::INFINITY, f64::min);
        Self {
            level_1_best_gain: gains.iter().copied().fold(0.0, f64::max),
            level_1_mean_gain: geometric_mean(gains),
            pages_auto_vs_best: geometric_mean(queries.iter().map(|seconds| seconds[AUTO] / best(seconds))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_against_the_best_other_level() {
        let summary = PagesSummary::of(&[vec![1.0, 4.0, 8.0, 16.0, 1.0], vec![4.0, 4.0, 1.0, 9.0, 2.0]]);
        assert_eq!(summary.level_1_best_gain, 4.0);
        assert!((summary.level_1_mean_gain - 1.0).abs() < 1e-12 && (summary.pages_auto_vs_best - 2f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_day_is_sorted_by_its_minutes_and_is_the_same_again() {
        let rows = day(3).unwrap();
        assert_eq!((rows.num_rows(), rows.num_columns()), (DAY_ROWS, 4 + FIELDS));
        assert_eq!(rows, day(3).unwrap());
    }
}
