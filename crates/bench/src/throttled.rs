//! `pithead bench throttled`: the two clocks of emulated devices side by side. A drive process that is slowed to a profile runs
//! queries in real time; the model takes what they counted, and predicts the same in virtual time.
//!
//! Cases are such in which the device or its link is what all wait for: the host is not slowed.

mod cases;
mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_emulate::{Fleet, Profile, parse, predict};
use pithead_host::Session;
use pithead_model::{Blame, ByLevel, Counts, Fault, boxed};

use crate::drives::DriveProcess;
use crate::machine::Machine;
use crate::tables::{fresh, io};
use crate::timing::{Spread, run, unhelped};
use cases::{DEVICES, Device, QUERIES, Question};
use report::{CaseReport, Report};

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
#[boxed(?Send)]
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
    let mut reports = Vec::new();
    for question in QUERIES.iter().filter(|question| device.asks(question)) {
        let case = case(device, &profile, question, &session, runs).await;
        reports.push(case.map_err(|fault| fault.at(question.name))?);
    }
    engine.shutdown().await;
    stopped(drive).await?;
    Ok(reports)
}

async fn case(
    device: &Device,
    profile: &Profile,
    question: &Question,
    session: &Session,
    runs: usize,
) -> Result<CaseReport, Fault> {
    run(session, &format!("SET pithead.level = {}", question.level.number())).await?;
    // The first one warms up.
    run(session, question.sql).await?;
    let (mut seconds, mut counts) = (Vec::new(), Counts::default());
    for _ in 0..runs.max(1) {
        let (took, counted) = counted(session, question.sql).await?;
        seconds.push(took);
        counts = counted;
    }
    let predicted = predict(profile, &counts, question.level, Fleet::even(1));
    let predicted = predicted.map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
    let report = CaseReport::of(device, question, Spread::of(seconds), &counts, &predicted);
    println!("{}", report.line());
    Ok(report)
}

/// Runs a statement to its last row: seconds, and what its rounds counted.
async fn counted(session: &Session, sql: &str) -> Result<(f64, Counts), Fault> {
    let started = Instant::now();
    let answer = session.run(sql).await?;
    let _rows: Vec<RecordBatch> = answer.rows.try_collect().await?;
    let seconds = started.elapsed().as_secs_f64();
    let sub_plans = answer.profile.sub_plans();
    let rounds: Vec<_> = sub_plans.iter().flat_map(|sub_plan| sub_plan.sessions()).flat_map(|it| it.annotations).collect();
    Ok((seconds, ByLevel::<Counts>::of(&rounds).sum()))
}
