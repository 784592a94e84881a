//! YourSQL's ablation over TPC-H with a link: what each step of early filtering is worth, one after the other.
//!
//! Four drive processes, whose sends they pace themselves, run every query in turns in all ways. The slides (Jo and others, YourSQL)
//! measured MariaDB over one SSD at scale 100; what they name stands beside what is here. Their matcher with bulk prefetch is the way
//! of match hints: drives find pages and send them as they are stored, and the host applies the exact predicate.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::Session;
use pithead_model::Fault;
use serde::Serialize;

use crate::QUERIES;
use crate::answers::difference;
use crate::demo::{Layout, load};
use crate::drives::DriveProcesses;
use crate::report::{megabytes, ratio, seconds, table};
use crate::tables::{generate, io};
use crate::timing::{Spread, best_gain, run, unhelped};

use super::memory::{self, MemoryReport, memory};

/// Drive processes.
const DRIVES: usize = 4;
/// What the slides tell: the speed-up of the best five queries and of all 22, of eight of which the filter was offloaded; read requests
/// of Q2 without early filter and with it.
const SLIDES: &str =
    "the slides, MariaDB over one SSD, scale 100: best five 15, all 3.6; Q2's read requests 3,531,060 and 144,453";

/// Settings of each way, the one without early filters first.
const WAYS: [(&str, &[&str]); 5] = [
    ("no early filter", &["pushdown = off", "zone_maps = off", "join_filters = off", "sample = off"]),
    (
        "match hints, prefetch",
        &[
            "level = 1",
            "pushdown_aggregates = off",
            "pushdown_joins = off",
            "pushdown_top_k = off",
            "join_filters = off",
            "sample = off",
        ],
    ),
    (
        "filter",
        &[
            "level = 2",
            "pushdown_aggregates = off",
            "pushdown_joins = off",
            "pushdown_top_k = off",
            "join_filters = off",
            "sample = off",
        ],
    ),
    ("sampler", &["level = 2", "pushdown_aggregates = off", "pushdown_joins = off", "pushdown_top_k = off", "sample = always"]),
    ("everything", &["sample = auto"]),
];
/// The ways that the summary tells of.
const SAMPLER: usize = 3;
const EVERYTHING: usize = 4;

/// What to measure.
pub(super) struct AblationOptions {
    pub(super) scale: f64,
    pub(super) runs: usize,
    pub(super) link: String,
    pub(super) directory: PathBuf,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Ablation {
    scale: f64,
    drives: usize,
    /// The drives pace what they send to this rate, each by itself: an emulated link.
    paced_link: String,
    slides: &'static str,
    ways: Vec<WayReport>,
    queries: Vec<QueryReport>,
    host_memory: Vec<MemoryReport>,
}

/// A way, and what it stands for.
#[derive(Debug, Serialize)]
struct WayReport {
    name: &'static str,
    settings: &'static [&'static str],
}

/// A query in all ways.
#[derive(Debug, Serialize)]
struct QueryReport {
    name: &'static str,
    ways: Vec<WayCost>,
    answers_equal: bool,
    #[serde(skip)]
    answer: Vec<RecordBatch>,
}

/// A query in one way.
#[derive(Clone, Copy, Debug, Serialize)]
struct WayCost {
    seconds: Spread,
    /// Over the link, both ways.
    link_bytes: u64,
    /// Read from the media, or from the drives' caches of them.
    medium_bytes: u64,
    slices_read: u64,
    /// Requests that open a sub-plan at a drive.
    sessions: u64,
}

/// What early filters are worth: seconds without them over seconds with them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct AblationSummary {
    /// Mean of the best five queries, and all queries added up, with filters at the drives and the sampler.
    top5_vs_no_early_filter: f64,
    total_vs_no_early_filter: f64,
    /// The same with everything that drives do by default.
    top5_everything_vs_no_early_filter: f64,
    total_everything_vs_no_early_filter: f64,
}

/// Measures all queries in all ways.
pub(super) async fn ablation(options: &AblationOptions) -> Result<Ablation, Fault> {
    let tables = options.directory.join(format!("tpch-{}", options.scale));
    generate(&tables, options.scale)?;
    let drives = options.directory.join("yoursql-drives");
    remove(&drives)?;
    let processes = DriveProcesses::start(&drives, DRIVES, &["--link", &options.link])?;
    let target = Target::Drives(processes.addresses());
    let engine = connect(&target, &EmbedOptions::default()).await?;
    load(&engine, &tables, Layout::Keyed).await?;
    let queries = all(&engine, options.runs).await?;
    engine.shutdown().await;
    let filtered: Vec<_> = queries.iter().map(|query| (query.ways[SAMPLER].seconds.median, query.answer.clone())).collect();
    let host_memory = memory(&target, options.runs, &filtered).await?;
    processes.stop()?;
    remove(&drives)?;
    let ways = WAYS.iter().map(|(name, settings)| WayReport { name, settings }).collect();
    let (scale, paced_link) = (options.scale, options.link.clone());
    Ok(Ablation { scale, drives: DRIVES, paced_link, slides: SLIDES, ways, queries, host_memory })
}

fn remove(directory: &Path) -> Result<(), Fault> {
    match directory.exists() {
        true => std::fs::remove_dir_all(directory).map_err(|error| io(directory, &error)),
        false => Ok(()),
    }
}

async fn all(engine: &Engine, runs: usize) -> Result<Vec<QueryReport>, Fault> {
    let mut sessions = Vec::new();
    for (_, settings) in WAYS {
        let session = unhelped(engine).await?;
        session.run("SET pithead.drive_threads = 1").await?;
        for setting in settings {
            session.run(&format!("SET pithead.{setting}")).await?;
        }
        sessions.push(session);
    }
    let mut queries = Vec::new();
    for query in QUERIES {
        let measured = measured(&sessions, query, runs).await.map_err(|fault| fault.at(query.name))?;
        let taken: Vec<String> = measured.ways.iter().map(|way| seconds(way.seconds.median)).collect();
        println!("  {:<3} {} s", measured.name, taken.join(", "));
        queries.push(measured);
    }
    Ok(queries)
}

/// A query in all ways in turns, once before it counts.
async fn measured(sessions: &[Session], query: &'static crate::TpchQuery, runs: usize) -> Result<QueryReport, Fault> {
    let mut first: Option<Vec<RecordBatch>> = None;
    let mut answers_equal = true;
    let mut taken = vec![vec![]; sessions.len()];
    let mut last = vec![None; sessions.len()];
    for turn in 0..=runs {
        for (way, session) in sessions.iter().enumerate() {
            let ran = run(session, query.statement()).await.map_err(|fault| fault.at(WAYS[way].0))?;
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
    let ways = taken.into_iter().zip(last.into_iter().flatten()).map(|(runs, profile)| WayCost {
        seconds: Spread::of(runs),
        link_bytes: profile.link_bytes,
        medium_bytes: profile.medium_bytes,
        slices_read: profile.slices_read,
        sessions: profile.sessions,
    });
    Ok(QueryReport { name: query.name, ways: ways.collect(), answers_equal, answer: first.unwrap_or_default() })
}

impl Ablation {
    /// Queries whose answers hang on the way.
    pub(super) fn answers_differ(&self) -> usize {
        self.queries.iter().filter(|query| !query.answers_equal).count()
            + self.host_memory.iter().filter(|report| !report.answers_equal()).count()
    }

    /// The figures that later versions are compared by.
    pub(super) fn summary(&self) -> AblationSummary {
        let runs: Vec<Vec<f64>> =
            self.queries.iter().map(|query| query.ways.iter().map(|way| way.seconds.median).collect()).collect();
        AblationSummary::of(&runs)
    }

    /// Seconds, bytes and requests of each query in each way.
    pub(super) fn text(&self) -> String {
        let names = WAYS.iter().map(|(name, _)| *name);
        let header: Vec<&str> = ["query"].into_iter().chain(names).chain([""]).collect();
        let rows: Vec<Vec<String>> = self.queries.iter().map(row).collect();
        let told = format!(
            "seconds, speed-up, MB over the link, slices read, sessions; {DRIVES} drives, each pacing what it sends to {}; {}",
            self.paced_link, self.slides
        );
        let left_out = "not measured: match hints without prefetch (pages are sent as they are found)";
        [table(&header, &rows), told, left_out.to_owned(), memory::text(&self.host_memory)].join("\n")
    }
}

fn row(query: &QueryReport) -> Vec<String> {
    let first = query.ways.first().map_or(f64::NAN, |way| way.seconds.median);
    let cell = |way: &WayCost| {
        format!(
            "{} {} {} MB {} {}",
            seconds(way.seconds.median),
            ratio(first / way.seconds.median),
            megabytes(way.link_bytes),
            way.slices_read,
            way.sessions
        )
    };
    let differs = if query.answers_equal { "" } else { "DIFFER" };
    [query.name.to_owned()].into_iter().chain(query.ways.iter().map(cell)).chain([differs.to_owned()]).collect()
}

impl AblationSummary {
    /// Of each query's seconds in the order of [`WAYS`].
    fn of(queries: &[Vec<f64>]) -> Self {
        Self {
            top5_vs_no_early_filter: best(queries, SAMPLER),
            total_vs_no_early_filter: total(queries, SAMPLER),
            top5_everything_vs_no_early_filter: best(queries, EVERYTHING),
            total_everything_vs_no_early_filter: total(queries, EVERYTHING),
        }
    }
}

fn best(queries: &[Vec<f64>], way: usize) -> f64 {
    best_gain(queries.iter().map(|seconds| seconds[0] / seconds[way]))
}

fn total(queries: &[Vec<f64>], way: usize) -> f64 {
    let sum = |way: usize| queries.iter().map(|seconds| seconds[way]).sum::<f64>();
    sum(0) / sum(way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_five_are_a_mean_and_the_total_is_of_sums() {
        // Speed-ups with the sampler: 10, 8, 6, 4, 2, 1; with everything all are 2.
        let query = |gain: f64| vec![gain * 6.0, 0.0, 0.0, 6.0, gain * 3.0];
        let summary = AblationSummary::of(&[1.0, 4.0, 10.0, 8.0, 6.0, 2.0].map(query));
        assert!((summary.top5_vs_no_early_filter - 6.0).abs() < 1e-12, "{summary:?}");
        assert!((summary.total_vs_no_early_filter - 31.0 / 6.0).abs() < 1e-12, "{summary:?}");
        assert_eq!((summary.top5_everything_vs_no_early_filter, summary.total_everything_vs_no_early_filter), (2.0, 2.0));
    }
}
