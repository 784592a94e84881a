//! `pithead bench yoursql`: plans under uncertainty. Queries whose predicates bounds mislead about, with the sampler and without, beside
//! the best order of their joins, found by trying all, and beside DuckDB; what each step of early filtering gives TPC-H on a link; and
//! what match hints give on a weak drive.

mod ablation;
mod films;
mod memory;
mod pages;
mod questions;

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use futures::future::LocalBoxFuture;
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadMode, LoadSpec, Session};
use pithead_model::{Blame, Fault};
use serde::Serialize;

use crate::answers::difference;
use crate::duckdb::{duckdb, missing};
use crate::machine::Machine;
use crate::report::{ratio, seconds, table};
use crate::tables::io;
use crate::timing::{Spread, geometric_mean, run, unhelped};
use ablation::{Ablation, AblationOptions, AblationSummary, ablation};
use films::{TABLES, generate};
use pages::{Pages, PagesOptions, PagesSummary, pages};
use questions::{Question, questions};

/// Threads of DuckDB and of Pithead in-process.
const THREADS: usize = 2;
/// What the 90th percentile is.
const P90: f64 = 0.9;

/// What to measure.
#[derive(Clone, Debug)]
pub struct YourSqlOptions {
    /// 1 for 2.5 million rows in the largest table.
    pub scale: f64,
    /// Runs of each query; their median counts.
    pub runs: usize,
    /// Where tables and drives are kept.
    pub directory: PathBuf,
    /// TPC-H's scale, in gigabytes of text, of the ablation.
    pub tpch_scale: f64,
    /// The rate that links are paced to in the ablation, as `--link` takes it.
    pub link: String,
    /// Only these parts; none: all.
    pub only: Vec<YourSqlPart>,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Parts that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YourSqlPart {
    /// Plans under uncertainty.
    Plans,
    /// The ablation over TPC-H.
    Ablation,
    /// Match hints on a weak drive.
    Pages,
}

/// The rate of the link in the part about match hints.
const PAGES_LINK: &str = "1gbit";

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    scale: f64,
    runs: usize,
    threads: usize,
    duckdb: Option<String>,
    queries: Vec<QueryReport>,
    ablation: Option<Ablation>,
    pages: Option<Pages>,
    summary: YoursqlSummary,
}

/// The figures that later versions are compared by, of the parts that were measured.
#[derive(Debug, Serialize)]
struct YoursqlSummary {
    #[serde(flatten)]
    plans: Option<PlansSummary>,
    #[serde(flatten)]
    ablation: Option<AblationSummary>,
    #[serde(flatten)]
    pages: Option<PagesSummary>,
    answers_differ: usize,
}

#[derive(Debug, Serialize)]
struct QueryReport {
    name: String,
    sql: String,
    orders: usize,
    /// Each run samples anew: no predicate was seen before.
    sampled_seconds: Spread,
    unsampled_seconds: Spread,
    /// Without the sampler, and planned anew in the middle where that looks better.
    replanned_seconds: Spread,
    /// In the best order of all.
    best_seconds: Spread,
    worst_order_seconds: f64,
    duckdb_seconds: Option<Spread>,
    answers_equal: bool,
}

#[derive(Debug, Serialize)]
struct PlansSummary {
    /// Seconds with the sampler over those of the best order: the 90th percentile, and the middle.
    regret_p90: f64,
    regret_median: f64,
    /// The same without the sampler.
    unsampled_regret_p90: f64,
    unsampled_regret_median: f64,
    /// The same without the sampler, planned anew in the middle.
    replanned_regret_p90: f64,
    replanned_regret_median: f64,
    /// Seconds without the sampler over those with it, geometric mean.
    geomean_vs_unsampled: f64,
    /// Seconds over DuckDB's on tables of its own, geometric mean.
    geomean_vs_duckdb: Option<f64>,
}

impl YourSqlOptions {
    fn has(&self, part: YourSqlPart) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Measures, prints tables and writes the JSON.
pub fn yoursql(options: &YourSqlOptions) -> LocalBoxFuture<'_, Result<(), Fault>> {
    Box::pin(measure_all(options))
}

async fn measure_all(options: &YourSqlOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let runs = options.runs.max(1);
    let (queries, duckdb) = match options.has(YourSqlPart::Plans) {
        true => plans(options, runs).await?,
        false => (vec![], None),
    };
    let AblationParts { measured, summary } = match options.has(YourSqlPart::Ablation) {
        true => AblationParts::measure(options, runs).await?,
        false => AblationParts::default(),
    };
    let hinted = match options.has(YourSqlPart::Pages) {
        true => {
            let directory = options.directory.clone();
            Some(pages(&PagesOptions { runs, link: PAGES_LINK.to_owned(), directory }).await?)
        }
        false => None,
    };
    let own = queries.iter().filter(|query| !query.answers_equal).count();
    let answers_differ =
        own + measured.as_ref().map_or(0, Ablation::answers_differ) + hinted.as_ref().map_or(0, Pages::answers_differ);
    let plans = (!queries.is_empty()).then(|| plans_summary(&queries));
    let summary = YoursqlSummary { plans, ablation: summary, pages: hinted.as_ref().map(Pages::summary), answers_differ };
    let (scale, ablation, pages) = (options.scale, measured, hinted);
    let report = Report { machine, scale, runs, threads: THREADS, duckdb, queries, ablation, pages, summary };
    print(&report);
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    match answers_differ {
        0 => Ok(()),
        count => Err(Fault::new(Blame::Bug, format!("the answers of {count} queries hang on how they are run"))),
    }
}

/// The ablation, where it is asked for.
#[derive(Default)]
struct AblationParts {
    measured: Option<Ablation>,
    summary: Option<AblationSummary>,
}

impl AblationParts {
    async fn measure(options: &YourSqlOptions, runs: usize) -> Result<Self, Fault> {
        let YourSqlOptions { tpch_scale: scale, link, directory, .. } = options.clone();
        let measured = ablation(&AblationOptions { scale, runs, link, directory }).await?;
        Ok(Self { summary: Some(measured.summary()), measured: Some(measured) })
    }
}

/// Every question in all ways, and in DuckDB, whose version comes with them.
async fn plans(options: &YourSqlOptions, runs: usize) -> Result<(Vec<QueryReport>, Option<String>), Fault> {
    let tables = options.directory.join(format!("films-{}", options.scale));
    generate(&tables, options.scale)?;
    let engine = films_loaded(options, &tables).await?;
    let mut queries = Vec::new();
    for question in questions() {
        let measured = measured(&engine, &question, runs).await.map_err(|fault| fault.at(&question.name))?;
        println!(
            "  {:<3} {} s sampled, {} s without, {} s in the best of {} orders",
            measured.name,
            seconds(measured.sampled_seconds.median),
            seconds(measured.unsampled_seconds.median),
            seconds(measured.best_seconds.median),
            measured.orders
        );
        queries.push(measured);
    }
    engine.shutdown().await;
    let statements: Vec<(&str, &str)> = queries.iter().map(|query| (query.name.as_str(), query.sql.as_str())).collect();
    let own = options.directory.join(format!("duckdb-films-{}", options.scale));
    let duck = duckdb(&tables, &own, THREADS, runs, &statements)?;
    if duck.is_none() {
        println!("{}", missing());
    }
    for query in &mut queries {
        let taken = duck.as_ref().and_then(|duck| duck.native.get(&query.name));
        query.duckdb_seconds = taken.map(|taken| Spread::of(taken.clone()));
    }
    Ok((queries, duck.map(|duck| duck.version)))
}

/// A new engine in this process with the films' tables.
async fn films_loaded(options: &YourSqlOptions, tables: &Path) -> Result<Engine, Fault> {
    let directory = options.directory.join("films-local");
    if directory.exists() {
        std::fs::remove_dir_all(&directory).map_err(|error| io(&directory, &error))?;
    }
    let embed = EmbedOptions { threads: Some(THREADS), drives: Some(THREADS), ..EmbedOptions::default() };
    let engine = connect(&Target::Data(directory), &embed).await?;
    for name in TABLES {
        let source = tables.join(format!("{name}.parquet")).display().to_string();
        let spec = LoadSpec { mode: LoadMode::Replace, ..LoadSpec::new(name.parse()?, vec![source]) };
        engine.host.load(spec, std::sync::Arc::new(|_| {})).await?;
    }
    Ok(engine)
}

async fn session(engine: &Engine, settings: &[&str]) -> Result<Session, Fault> {
    let session = unhelped(engine).await?;
    session.run("SET pithead.drive_threads = 1").await?;
    for setting in settings {
        session.run(&format!("SET pithead.{setting}")).await?;
    }
    Ok(session)
}

/// A query in all ways, in turns.
async fn measured(engine: &Engine, question: &Question, runs: usize) -> Result<QueryReport, Fault> {
    let sampled = session(engine, &["sample = auto"]).await?;
    let unsampled = session(engine, &["sample = off", "replan = off"]).await?;
    let replanned = session(engine, &["sample = off", "replan = auto"]).await?;
    let as_written = session(engine, &["sample = off", "replan = off", "join_order = off"]).await?;
    // What is read is in memory from here on.
    let answer = run(&unsampled, &question.sql(0)).await?.batches;
    let mut equal = true;
    let mut orders = Vec::new();
    for order in question.orders() {
        let ran = run(&as_written, &question.in_order(&order, 0)).await?;
        equal &= difference(&answer, &ran.batches)?.is_none();
        orders.push((ran.seconds, order));
    }
    orders.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Those that were about the best, once more: one run says little.
    let worst = orders.last().map_or(f64::NAN, |(seconds, _)| *seconds);
    let count = orders.len();
    orders.truncate(3);
    let mut best: Vec<Vec<f64>> = vec![vec![]; orders.len()];
    let (mut with, mut without, mut anew) = (Vec::new(), Vec::new(), Vec::new());
    // What a query has counted is known to the next one, and drives keep what they have found out: each is another one.
    let mut numbers = 1..;
    let mut next = || numbers.next().unwrap_or_default();
    for _ in 0..runs {
        with.push(timed(&sampled, &question.sql(next()), &answer, &mut equal).await?);
        without.push(timed(&unsampled, &question.sql(next()), &answer, &mut equal).await?);
        anew.push(timed(&replanned, &question.sql(next()), &answer, &mut equal).await?);
        for ((_, order), taken) in orders.iter().zip(&mut best) {
            taken.push(timed(&as_written, &question.in_order(order, next()), &answer, &mut equal).await?);
        }
    }
    let best = best.into_iter().map(Spread::of).min_by(|a, b| a.median.total_cmp(&b.median));
    Ok(QueryReport {
        name: question.name.clone(),
        sql: question.sql(0),
        orders: count,
        sampled_seconds: Spread::of(with),
        unsampled_seconds: Spread::of(without),
        replanned_seconds: Spread::of(anew),
        best_seconds: best.unwrap_or_else(|| Spread::of(vec![])),
        worst_order_seconds: worst,
        duckdb_seconds: None,
        answers_equal: equal,
    })
}

async fn timed(session: &Session, sql: &str, answer: &[RecordBatch], equal: &mut bool) -> Result<f64, Fault> {
    let ran = run(session, sql).await?;
    *equal &= difference(answer, &ran.batches)?.is_none();
    Ok(ran.seconds)
}

fn plans_summary(queries: &[QueryReport]) -> PlansSummary {
    // The best way may also be one of those that were not tried by hand.
    let ways =
        |query: &QueryReport| [query.best_seconds, query.sampled_seconds, query.unsampled_seconds, query.replanned_seconds];
    let best = |query: &QueryReport| ways(query).iter().map(|way| way.median).fold(f64::INFINITY, f64::min);
    let sampled: Vec<f64> = queries.iter().map(|query| query.sampled_seconds.median / best(query)).collect();
    let unsampled: Vec<f64> = queries.iter().map(|query| query.unsampled_seconds.median / best(query)).collect();
    let replanned: Vec<f64> = queries.iter().map(|query| query.replanned_seconds.median / best(query)).collect();
    let against = |query: &QueryReport| Some(query.sampled_seconds.median / query.duckdb_seconds?.median);
    let duckdb: Option<Vec<f64>> = queries.iter().map(against).collect();
    PlansSummary {
        regret_p90: at(sampled.clone(), P90),
        regret_median: at(sampled, 0.5),
        unsampled_regret_p90: at(unsampled.clone(), P90),
        unsampled_regret_median: at(unsampled, 0.5),
        replanned_regret_p90: at(replanned.clone(), P90),
        replanned_regret_median: at(replanned, 0.5),
        geomean_vs_unsampled: geometric_mean(
            queries.iter().map(|query| query.unsampled_seconds.median / query.sampled_seconds.median),
        ),
        geomean_vs_duckdb: duckdb.map(geometric_mean),
    }
}

/// The value below which this share of the others lies.
fn at(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = ((values.len().saturating_sub(1)) as f64 * share).round() as usize;
    values.get(place).copied().unwrap_or(f64::NAN)
}

fn print(report: &Report) {
    if !report.queries.is_empty() {
        print_plans(report);
    }
    if let Some(ablation) = &report.ablation {
        println!("{}", ablation.text());
    }
    if let Some(pages) = &report.pages {
        println!("{}", pages.text());
    }
    println!("{}", serde_json::to_string_pretty(&report.summary).unwrap_or_default());
}

fn print_plans(report: &Report) {
    let row = |query: &QueryReport| {
        let beside = query.duckdb_seconds.map_or_else(|| "-".to_owned(), |duckdb| seconds(duckdb.median));
        vec![
            query.name.clone(),
            seconds(query.sampled_seconds.median),
            seconds(query.unsampled_seconds.median),
            seconds(query.replanned_seconds.median),
            seconds(query.best_seconds.median),
            seconds(query.worst_order_seconds),
            ratio(query.sampled_seconds.median / query.best_seconds.median),
            ratio(query.unsampled_seconds.median / query.best_seconds.median),
            ratio(query.replanned_seconds.median / query.best_seconds.median),
            beside,
            if query.answers_equal { String::new() } else { "DIFFER".to_owned() },
        ]
    };
    let header = [
        "query",
        "sampled s",
        "without s",
        "anew s",
        "best order s",
        "worst order s",
        "regret",
        "without",
        "anew",
        "DuckDB s",
        "",
    ];
    println!("{}", table(&header, &report.queries.iter().map(row).collect::<Vec<_>>()));
    println!("{} threads in-process and in DuckDB, warm; median of {}; each run samples anew", report.threads, report.runs);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!((at(values.clone(), P90), at(values, 0.5)), (90.0, 50.0));
        assert!(at(vec![], 0.5).is_nan());
    }
}
