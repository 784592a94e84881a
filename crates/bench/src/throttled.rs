//! `pithead bench throttled`: the two clocks of emulated devices side by side. A drive process that is slowed to a profile runs
//! queries in real time; the model takes what they counted, and predicts the same in virtual time.
//!
//! Cases are such in which the device or its link is what all wait for: the host is not slowed. The drive's cores take what it
//! counts, at the profile's cycles, in both. What is compared is how cores, medium and link, the pipeline between them, and the
//! drive's scheduling go together. Cores take whole slices in both.

mod cases;
mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_emulate::{Fleet, Profile, parse, predict_in_slices};
use pithead_host::Session;
use pithead_model::{Blame, ByLevel, Counts, Fault, SLICE_ROWS_DEFAULT, boxed};

use crate::drives::DriveProcess;
use crate::machine::Machine;
use crate::tables::{fresh, io};
use crate::timing::{Spread, run, unhelped};
use cases::{DEVICES, Device, QUERIES, Question};
use report::{CaseReport, Modelled, Report, Took};

/// What to measure.
#[derive(Clone, Debug)]
pub struct ThrottledOptions {
    /// Rows of the table.
    pub rows: u64,
    /// Runs of each query; their median counts.
    pub runs: usize,
    /// Where the drive and the profiles are kept while it runs.
    pub directory: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Measures, prints a table and writes the JSON.
#[boxed]
pub async fn throttled(options: &ThrottledOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let folder = fresh(&options.directory.join("throttled"))?;
    std::fs::create_dir_all(&folder).map_err(|error| io(&folder, &error))?;
    make_table(&folder, options.rows).await?;
    let mut reports = Vec::new();
    for device in DEVICES {
        reports.extend(on(&device, &folder, options.runs).await.map_err(|fault| fault.at(device.name))?);
    }
    fresh(&folder)?;
    let report = Report::of(machine, options, reports);
    report.print();
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

fn drive(folder: &Path, arguments: &[&str]) -> Result<DriveProcess, Fault> {
    let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
    DriveProcess::start(&program, &folder.join("drive"), arguments)
}

/// Makes the table on a drive that is not slowed.
async fn make_table(folder: &Path, rows: u64) -> Result<(), Fault> {
    let drive = drive(folder, &[])?;
    let engine = connect(&Target::Drives(vec![drive.address().to_owned()]), &EmbedOptions::default()).await?;
    let made = run(&engine.host.session(), &cases::table(rows)).await;
    engine.shutdown().await;
    stopped(drive).await?;
    made.map(drop)
}

async fn stopped(drive: DriveProcess) -> Result<(), Fault> {
    let stopped = tokio::task::spawn_blocking(move || drive.stop()).await;
    stopped.unwrap_or_else(|lost| Err(Fault::new(Blame::Bug, format!("stopping a drive ended early: {lost}"))))
}

/// All cases of one device.
async fn on(device: &Device, folder: &Path, runs: usize) -> Result<Vec<CaseReport>, Fault> {
    let text = device.text()?;
    let profile = parse(&text).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
    let file = folder.join(format!("{}.toml", device.name));
    std::fs::write(&file, text).map_err(|error| io(&file, &error))?;
    let costs = folder.join("drive/costs.json");
    if costs.exists() {
        std::fs::remove_file(&costs).map_err(|error| io(&costs, &error))?;
    }
    let drive = drive(folder, &["--slow-session-ms", "0", "--device", &file.display().to_string()])?;
    let engine = connect(&Target::Drives(vec![drive.address().to_owned()]), &EmbedOptions::default()).await?;
    let session = unhelped(&engine).await?;
    run(&session, "SET pithead.replan = off").await?;
    let status = engine.host.fleet().status().await;
    let cpu_share = status.into_iter().find_map(|(_, status)| Some(status.ok()?.cpu_share));
    let throttled = Throttled { device, profile, cpu_share };
    let mut reports = Vec::new();
    for question in QUERIES.iter().filter(|question| device.asks(question)) {
        let case = case(&throttled, question, &session, runs).await;
        reports.push(case.map_err(|fault| fault.at(question.name))?);
    }
    engine.shutdown().await;
    stopped(drive).await?;
    Ok(reports)
}

/// A drive that is slowed to a profile.
struct Throttled<'a> {
    device: &'a Device,
    profile: Profile,
    /// As the drive says.
    cpu_share: Option<f64>,
}

async fn case(drive: &Throttled<'_>, question: &Question, session: &Session, runs: usize) -> Result<CaseReport, Fault> {
    run(session, &format!("SET pithead.level = {}", question.level.number())).await?;
    // The first one warms up.
    run(session, question.sql).await?;
    let (mut seconds, mut cpu_seconds, mut counts) = (Vec::new(), Vec::new(), Counts::default());
    for _ in 0..runs.max(1) {
        let run = counted(session, question.sql).await?;
        seconds.push(run.seconds);
        cpu_seconds.push(run.cpu_ns as f64 / 1e9);
        counts = run.counts;
    }
    let predicted = |slice_rows: u64| {
        let predicted = predict_in_slices(&drive.profile, &counts, question.level, Fleet::even(1), slice_rows);
        predicted.map_err(|error| Fault::new(Blame::Bug, error.to_string()))
    };
    let model = Modelled { in_slices: predicted(SLICE_ROWS_DEFAULT as u64)?, by_pages: predicted(0)? };
    let took = Took { seconds: Spread::of(seconds), cpu_seconds: Spread::of(cpu_seconds), cpu_share: drive.cpu_share };
    let report = CaseReport::of(drive.device, question, took, &counts, &model);
    println!("{}", report.line());
    Ok(report)
}

/// One run of a statement.
struct CountedRun {
    seconds: f64,
    /// CPU time of the drive's rounds.
    cpu_ns: u64,
    /// What they counted.
    counts: Counts,
}

/// Runs a statement to its last row.
async fn counted(session: &Session, sql: &str) -> Result<CountedRun, Fault> {
    let started = Instant::now();
    let answer = session.run(sql).await?;
    let _rows: Vec<RecordBatch> = answer.rows.try_collect().await?;
    let seconds = started.elapsed().as_secs_f64();
    let sub_plans = answer.profile.sub_plans();
    let rounds: Vec<_> = sub_plans.iter().flat_map(|sub_plan| sub_plan.sessions()).flat_map(|it| it.annotations).collect();
    let cpu_ns = rounds.iter().map(|round| round.cpu_ns).sum();
    Ok(CountedRun { seconds, cpu_ns, counts: ByLevel::<Counts>::of(&rounds).sum() })
}
