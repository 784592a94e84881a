//! `pithead bench attach`: TPC-H over Parquet files that are attached where they lie, beside DuckDB and Polars over the same files; over
//! a link that the kernel shapes, beside DuckDB over HTTP; and how soon a drive that starts on a hundred files answers.

use std::path::{Path, PathBuf};
use std::time::Instant;

use arrow::array::RecordBatch;
use pithead_embed::{Attach, EmbedOptions, Engine, Target, connect};
use pithead_model::{Blame, Fault, Rate, boxed};
use serde::Serialize;

use crate::answers::{difference_between_engines, read_answer};
use crate::drives::DriveProcess;
use crate::duckdb::{self, DuckDb, duckdb};
use crate::machine::Machine;
use crate::neardata::{OverLink, attached_over_link};
use crate::polars::{self, Polars, polars};
use crate::report::{ratio, seconds, table};
use crate::tables::{fresh, generate, io};
use crate::timing::{ATTACHED_WARM_UPS, Spread, geometric_mean, run, unhelped};
use crate::{QUERIES, TABLES};

/// Threads of each engine.
const THREADS: usize = 2;
/// Files of the dataset whose first answer is waited for.
const FILES: usize = 100;
/// Times that a drive is started on them.
const STARTS: usize = 5;

/// What to measure.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// TPC-H's scale, in gigabytes of text.
    pub scale: f64,
    /// Runs of each query; their median counts.
    pub runs: usize,
    /// What the link is shaped to.
    pub rate: Rate,
    /// Where tables are kept.
    pub directory: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    scale: f64,
    runs: usize,
    threads: usize,
    duckdb: Option<String>,
    polars: Option<String>,
    queries: Vec<QueryReport>,
    /// From the start of a drive's process on a hundred files to the first answer of a host that connects to it.
    first_answer_seconds: Spread,
    /// None where the machine has not what it takes.
    over_link: Option<OverLink>,
    summary: AttachSummary,
}

#[derive(Debug, Serialize)]
struct QueryReport {
    name: &'static str,
    rows: usize,
    /// Of the first run, when nothing of its columns was kept unless an earlier query had read them twice.
    attached_first_seconds: f64,
    attached_seconds: Spread,
    duckdb_parquet_seconds: Option<Spread>,
    polars_seconds: Option<Spread>,
    /// Why there are none of Polars.
    polars_note: Option<String>,
}

/// The figures that later versions are compared by.
#[derive(Debug, Serialize)]
struct AttachSummary {
    geomean_vs_duckdb_parquet: Option<f64>,
    worst_vs_duckdb_parquet: Option<f64>,
    total_vs_duckdb_parquet: Option<f64>,
    geomean_first_vs_duckdb_parquet: Option<f64>,
    geomean_vs_polars_parquet: Option<f64>,
    polars_queries: usize,
    total_vs_duckdb_http: Option<f64>,
    attach_first_answer_s: f64,
}

/// Measures, prints a table and writes the JSON.
#[boxed]
pub async fn attach(options: &AttachOptions) -> Result<(), Fault> {
    let tables = options.directory.join(format!("tpch-{}", options.scale));
    let machine = Machine::here();
    println!("{}", machine.line());
    generate(&tables, options.scale)?;
    let first_answer_seconds = first_answers(options, &tables).await?;
    let Asked { first, taken, answers } = attached(options, &tables).await?;
    let queries: Vec<(&str, &str)> = QUERIES.iter().map(|query| (query.name, query.statement())).collect();
    let own = options.directory.join(format!("duckdb-{}", options.scale));
    let duck = duckdb(&tables, &own, THREADS, options.runs, &queries)?;
    if duck.is_none() {
        println!("{}", duckdb::missing());
    }
    let there = options.directory.join("polars-answers");
    let polars = polars(&tables, &there, THREADS, options.runs.max(1), &queries)?;
    if polars.is_none() {
        println!("{}", polars::missing());
    }
    let mut reports = Vec::new();
    for (((query, attached_seconds), attached_first_seconds), answer) in QUERIES.iter().zip(taken).zip(first).zip(&answers) {
        let polars_note = polars.as_ref().map(|polars| note(polars, query.name, &there, answer)).transpose()?.flatten();
        let of_polars = polars.as_ref().filter(|_| polars_note.is_none()).and_then(|polars| polars.seconds.get(query.name));
        reports.push(QueryReport {
            name: query.name,
            rows: answer.iter().map(RecordBatch::num_rows).sum(),
            attached_first_seconds,
            attached_seconds,
            duckdb_parquet_seconds: duck.as_ref().and_then(|duck| Some(Spread::of(duck.parquet.get(query.name)?.clone()))),
            polars_seconds: of_polars.map(|seconds| Spread::of(seconds.clone())),
            polars_note,
        });
    }
    let over_link = match attached_over_link(&options.directory, &tables, options.runs, options.rate).await {
        Err(fault) if fault.blame == Blame::User => {
            println!("not measured over a link: {fault}");
            None
        }
        measured => Some(measured?),
    };
    let report = Report::of(options, machine, (reports, over_link), first_answer_seconds, (duck, polars));
    report.print();
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

/// Why a query does not count for Polars; none: it does.
fn note(polars: &Polars, name: &str, there: &Path, own: &[RecordBatch]) -> Result<Option<String>, Fault> {
    if let Some(error) = polars.refused.get(name) {
        return Ok(Some(format!("refused: {error}")));
    }
    let theirs = read_answer(&there.join(format!("{name}.arrow")))?;
    Ok(difference_between_engines(own, &theirs)?.map(|difference| format!("another answer: {difference}")))
}

/// What asking the files gave, by query.
struct Asked {
    /// Seconds of the first run of each.
    first: Vec<f64>,
    /// Those of the runs that count.
    taken: Vec<Spread>,
    answers: Vec<Vec<RecordBatch>>,
}

/// All queries in this process over the files.
async fn attached(options: &AttachOptions, tables: &Path) -> Result<Asked, Fault> {
    let data = fresh(&options.directory.join("attached-store"))?;
    let attach = vec![tables.display().to_string().parse::<Attach>()?];
    let embed = EmbedOptions { threads: Some(THREADS), drives: Some(THREADS), attach, ..EmbedOptions::default() };
    let engine = connect(&Target::Data(data.clone()), &embed).await?;
    let measured = queries(&engine, options.runs).await;
    engine.shutdown().await;
    fresh(&data)?;
    measured
}

async fn queries(engine: &Engine, runs: usize) -> Result<Asked, Fault> {
    let session = unhelped(engine).await?;
    session.run("SET pithead.drive_threads = 1").await?;
    let mut asked = Asked { first: vec![], taken: vec![], answers: vec![] };
    for pause in ATTACHED_WARM_UPS {
        for query in QUERIES {
            let warm_up = run(&session, query.statement()).await.map_err(|fault| fault.at(query.name))?;
            if asked.first.len() < QUERIES.len() {
                asked.first.push(warm_up.seconds);
            }
        }
        tokio::time::sleep(pause).await;
    }
    for query in QUERIES {
        asked.answers.push(run(&session, query.statement()).await.map_err(|fault| fault.at(query.name))?.batches);
        let mut seconds = Vec::new();
        for _ in 0..runs.max(1) {
            seconds.push(run(&session, query.statement()).await?.seconds);
        }
        asked.taken.push(Spread::of(seconds));
    }
    Ok(asked)
}

/// Starts of a drive on a hundred files, each until a host that connects has its first answer.
async fn first_answers(options: &AttachOptions, tables: &Path) -> Result<Spread, Fault> {
    let folder = fresh(&options.directory.join("attached-files"))?;
    std::fs::create_dir_all(&folder).map_err(|error| io(&folder, &error))?;
    let one = TABLES.iter().find(|table| table.name == "orders").map(|table| table.parquet(tables));
    let one = one.ok_or_else(|| Fault::new(Blame::Bug, "TPC-H has no orders"))?;
    for number in 0..FILES {
        let path = folder.join(format!("part-{number:03}.parquet"));
        std::fs::hard_link(&one, &path).map_err(|error| io(&path, &error))?;
    }
    let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
    let attach = format!("many={}", folder.display());
    let mut taken = Vec::new();
    for _ in 0..STARTS {
        let data = fresh(&options.directory.join("attached-store"))?;
        let started = Instant::now();
        let drive = DriveProcess::start(&program, &data, &["--attach", &attach])?;
        let engine = connect(&Target::Drives(vec![drive.address().to_owned()]), &EmbedOptions::default()).await?;
        let answer = run(&engine.host.session(), "SELECT count(*), max(o_orderdate) FROM many").await?;
        taken.push(started.elapsed().as_secs_f64());
        if answer.rows() != 1 {
            return Err(Fault::new(Blame::Bug, format!("{} rows for one", answer.rows())));
        }
        engine.shutdown().await;
        drive.stop()?;
        fresh(&data)?;
    }
    fresh(&folder)?;
    Ok(Spread::of(taken))
}

impl Report {
    fn of(
        options: &AttachOptions,
        machine: Machine,
        (queries, over_link): (Vec<QueryReport>, Option<OverLink>),
        first_answer_seconds: Spread,
        (duckdb, polars): (Option<DuckDb>, Option<Polars>),
    ) -> Report {
        let ratios = |other: fn(&QueryReport) -> Option<Spread>| -> Vec<f64> {
            queries.iter().filter_map(|query| Some(query.attached_seconds.median / other(query)?.median)).collect()
        };
        let (to_duckdb, to_polars) = (ratios(|query| query.duckdb_parquet_seconds), ratios(|query| query.polars_seconds));
        let firsts =
            queries.iter().filter_map(|query| Some(query.attached_first_seconds / query.duckdb_parquet_seconds?.median));
        let firsts: Vec<f64> = firsts.collect();
        let mean = |ratios: &[f64]| (!ratios.is_empty()).then(|| geometric_mean(ratios.iter().copied()));
        let totals =
            queries.iter().filter_map(|query| Some((query.attached_seconds.median, query.duckdb_parquet_seconds?.median)));
        let (own, theirs) = totals.fold((0.0, 0.0), |sum, query| (sum.0 + query.0, sum.1 + query.1));
        let summary = AttachSummary {
            geomean_vs_duckdb_parquet: mean(&to_duckdb),
            worst_vs_duckdb_parquet: to_duckdb.iter().copied().reduce(f64::max),
            total_vs_duckdb_parquet: (theirs > 0.0).then(|| own / theirs),
            geomean_first_vs_duckdb_parquet: mean(&firsts),
            geomean_vs_polars_parquet: mean(&to_polars),
            polars_queries: to_polars.len(),
            total_vs_duckdb_http: over_link.as_ref().map(OverLink::total_vs_duckdb_http),
            attach_first_answer_s: first_answer_seconds.median,
        };
        Report {
            machine,
            scale: options.scale,
            runs: options.runs,
            threads: THREADS,
            duckdb: duckdb.map(|duckdb| duckdb.version),
            polars: polars.map(|polars| polars.version),
            queries,
            first_answer_seconds,
            over_link,
            summary,
        }
    }

    fn print(&self) {
        let row = |query: &QueryReport| {
            let other = |spread: Option<Spread>| spread.map_or_else(|| "–".to_owned(), |spread| seconds(spread.median));
            let beside = query.duckdb_parquet_seconds.map(|theirs| query.attached_seconds.median / theirs.median);
            vec![
                query.name.to_owned(),
                other(query.duckdb_parquet_seconds),
                other(query.polars_seconds),
                seconds(query.attached_seconds.median),
                beside.map_or_else(|| "–".to_owned(), ratio),
            ]
        };
        let rows: Vec<Vec<String>> = self.queries.iter().map(row).collect();
        println!("{}", table(&["query", "DuckDB s", "Polars s", "attached s", "of DuckDB"], &rows));
        for query in self.queries.iter().filter(|query| query.polars_note.is_some()) {
            println!("Polars, {}: {}", query.name, query.polars_note.as_deref().unwrap_or_default());
        }
        println!("all over the same Parquet files, {} threads each, warm; median of {}", self.threads, self.runs);
        if let Some(over_link) = &self.over_link {
            println!("{}", over_link.text());
        }
        println!("{}", serde_json::to_string_pretty(&self.summary).unwrap_or_default());
    }
}
