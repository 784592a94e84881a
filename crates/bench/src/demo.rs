//! The demo: TPC-H on four drive processes, with push-down and without, on loopback and on paced links.

use std::path::PathBuf;

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadReport, LoadSpec, Session};
use pithead_model::{Blame, Bytes, Fault, boxed};

use crate::answers::difference;
use crate::drives::DriveProcesses;
use crate::machine::Machine;
use crate::report::{megabytes, ratio, seconds, table};
use crate::tables::{TABLES, generate, io};
use crate::timing::{QueryRun, run};
use crate::{QUERIES, TpchQuery};

/// Drives of the demo.
const DRIVES: usize = 4;

/// What to show.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// TPC-H's scale, in gigabytes of text.
    pub scale: f64,
    /// Where tables and drives are kept.
    pub directory: PathBuf,
    /// The rate that links are paced to, as `--link` takes it.
    pub link: String,
}

/// A query in both ways.
struct Pair {
    query: &'static TpchQuery,
    on: QueryRun,
    off: QueryRun,
    difference: Option<String>,
}

/// One of a pair's runs.
type Way = fn(&Pair) -> &QueryRun;

/// Runs the demo and prints what stayed at the drives. A fault if an answer differs.
#[boxed]
pub async fn demo(options: &DemoOptions) -> Result<(), Fault> {
    let tables = options.directory.join(format!("tpch-{}", options.scale));
    println!("{}", Machine::here().line());
    println!("Making TPC-H at scale {} in {}", options.scale, tables.display());
    generate(&tables, options.scale)?;
    let drives = options.directory.join("drives");
    if drives.exists() {
        std::fs::remove_dir_all(&drives).map_err(|error| io(&drives, &error))?;
    }

    let processes = DriveProcesses::start(&drives, DRIVES, &[])?;
    println!("Started {DRIVES} drives: {}", processes.addresses().join(", "));
    let engine = at(&processes).await?;
    load(&engine, &tables, Layout::Keyed).await?;
    println!("\nLoopback");
    let plain = both_ways(&engine).await?;
    engine.shutdown().await;
    processes.stop()?;

    let processes = DriveProcesses::start(&drives, DRIVES, &["--link", &options.link])?;
    println!("\nThe same drives again, each paced to send at {}", options.link);
    let engine = at(&processes).await?;
    let paced = both_ways(&engine).await?;
    engine.shutdown().await;
    processes.stop()?;

    println!(
        "\nSeconds, and megabytes on the wire both ways, with push-down (on) and without (off); links paced to {}:",
        options.link
    );
    println!("{}", comparison(&plain, &paced));
    verdict(plain.iter().chain(&paced))
}

/// A host of four drives.
async fn at(processes: &DriveProcesses) -> Result<Engine, Fault> {
    connect(&Target::Drives(processes.addresses()), &EmbedOptions::default()).await
}

/// How tables are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// By their keys, so that large joins are co-partitioned, and lineitem by its date.
    Keyed,
    /// As they are without any option: rows in turn, in the files' order.
    Default,
}

impl Layout {
    /// What loads a table of TPC-H so, from what lays it out by its keys.
    pub(crate) fn of(self, spec: LoadSpec) -> LoadSpec {
        match self {
            Layout::Keyed => spec,
            Layout::Default => LoadSpec { partitioning: None, sort: vec![], ..spec },
        }
    }
}

/// Loads the eight tables.
pub(crate) async fn load(engine: &Engine, tables: &std::path::Path, layout: Layout) -> Result<LoadReport, Fault> {
    let mut total: Option<LoadReport> = None;
    for tpch_table in TABLES {
        let spec = layout.of(tpch_table.load_spec(tables)?);
        let report = engine.host.load(spec, std::sync::Arc::new(|_| {})).await?;
        let sums = match total {
            None => report,
            Some(sum) => LoadReport {
                rows: sum.rows + report.rows,
                source_bytes: sum.source_bytes + report.source_bytes,
                stored_bytes: sum.stored_bytes + report.stored_bytes,
                slices: sum.slices + report.slices,
                seconds: sum.seconds + report.seconds,
                ..sum
            },
        };
        total = Some(sums);
    }
    let report = total.ok_or_else(|| Fault::new(Blame::Bug, "TPC-H has no tables"))?;
    println!(
        "Loaded {} rows in {:.1} s ({:.0} MB/s of Parquet), {} as Parquet, {} in {} slices",
        report.rows,
        report.seconds,
        report.source_bytes as f64 / 1e6 / report.seconds,
        Bytes(report.source_bytes),
        Bytes(report.stored_bytes),
        report.slices
    );
    Ok(report)
}

/// Every query with push-down and without, one line each as they come.
async fn both_ways(engine: &Engine) -> Result<Vec<Pair>, Fault> {
    let session = engine.host.session();
    // A drive a core or more: each works with one thread.
    session.run("SET pithead.drive_threads = 1").await?;
    let mut pairs = Vec::new();
    for query in QUERIES {
        let on = switched(&session, query, "on").await?;
        let off = switched(&session, query, "off").await?;
        let difference = difference(&on.batches, &off.batches)?;
        println!(
            "  {:<4} {:>6} rows  {:>8} s, {:>8} MB at the drives  {:>8} s, {:>8} MB at the host{}",
            query.name,
            on.rows(),
            seconds(on.seconds),
            megabytes(on.profile.link_bytes),
            seconds(off.seconds),
            megabytes(off.profile.link_bytes),
            if difference.is_some() { "  ANSWERS DIFFER" } else { "" }
        );
        pairs.push(Pair { query, on, off, difference });
    }
    Ok(pairs)
}

async fn switched(session: &Session, query: &TpchQuery, pushdown: &str) -> Result<QueryRun, Fault> {
    session.run(&format!("SET pithead.pushdown = {pushdown}")).await?;
    run(session, query.statement()).await.map_err(|fault| fault.at(format_args!("{} with push-down {pushdown}", query.name)))
}

fn comparison(plain: &[Pair], paced: &[Pair]) -> String {
    let header = ["query", "rows", "MB on", "MB off", "less", "s on", "s off", "paced s on", "paced s off", "faster"];
    let row = |(plain, paced): (&Pair, &Pair)| line(plain.query.name, &plain.on.rows().to_string(), &[plain], &[paced]);
    let mut rows: Vec<Vec<String>> = plain.iter().zip(paced).map(row).collect();
    let (all_plain, all_paced): (Vec<&Pair>, Vec<&Pair>) = (plain.iter().collect(), paced.iter().collect());
    rows.push(line("total", "", &all_plain, &all_paced));
    table(&header, &rows)
}

fn line(name: &str, rows: &str, plain: &[&Pair], paced: &[&Pair]) -> Vec<String> {
    let bytes = |run: Way| plain.iter().map(|pair| run(pair).profile.link_bytes).sum::<u64>();
    let time = |pairs: &[&Pair], run: Way| pairs.iter().map(|pair| run(pair).seconds).sum::<f64>();
    let (on, off): (Way, Way) = (|pair| &pair.on, |pair| &pair.off);
    vec![
        name.to_owned(),
        rows.to_owned(),
        megabytes(bytes(on)),
        megabytes(bytes(off)),
        ratio(bytes(off) as f64 / bytes(on).max(1) as f64),
        seconds(time(plain, on)),
        seconds(time(plain, off)),
        seconds(time(paced, on)),
        seconds(time(paced, off)),
        ratio(time(paced, off) / time(paced, on)),
    ]
}

fn verdict<'a>(pairs: impl Iterator<Item = &'a Pair>) -> Result<(), Fault> {
    let differing: Vec<String> = pairs
        .filter_map(|pair| pair.difference.as_ref().map(|difference| format!("{}: {difference}", pair.query.name)))
        .collect();
    if differing.is_empty() {
        println!("\nAll 22 answers are the same wherever they were computed.");
        return Ok(());
    }
    Err(Fault::new(Blame::Bug, format!("answers differ with push-down on and off: {}", differing.join("; "))))
}
