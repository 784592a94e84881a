//! `pithead repro`: the papers' experiments, run again on emulated devices.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use clap::Args;
use clap::builder::RangedI64ValueParser;
use pithead_model::{Blame, Fault};
use pithead_repro::{Figure, Report, ReproError, ReproSummary, about, chosen, svg_of, synthetic};
use serde::Serialize;

use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::output::{Align, Format, Grid, Sink, row_writer};
use crate::terminal;

const EXAMPLES: &str = "\
Experiments:
  smart-ssd  Do et al. 2013: scans in a Smart SSD, time and energy beside SSD and HDD
  biscuit    Gu et al. 2016: read latency, pointer chasing, and a filter over lineitem on the PM1725
  yoursql    Jo et al. 2016: early filters in MySQL
  skytether  Montana et al. 2023: Envoy, the processor of a Kinetic drive, beside its client
  bts        Park et al. 2022: put latency beside background work on a drive's cores

Examples:
  pithead repro all
  pithead repro smart-ssd --scale 1000 --svg smart-ssd.svg
  pithead repro smart-ssd,biscuit --json figures.json
  pithead repro --tables synthetic --scale 1000   # and then: pithead load s64 synthetic/synthetic64.parquet --encoding nsm";

/// Run the experiments of the papers again, in virtual time on emulated devices.
///
/// Tables are made and really scanned, and their pages, rows and bytes are counted; a model turns the counts into time and
/// joules. Each figure stands beside the paper's, and says whether it was predicted or the profile was calibrated on it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReproArgs {
    /// Experiments, or `all`
    #[arg(value_name = "LIST", value_delimiter = ',', required_unless_present = "tables")]
    names: Vec<String>,
    /// Run nothing, but write SYNTHETIC4, 16 and 64 of Do et al. 2013 to a folder, as Parquet files
    #[arg(long, value_name = "DIR", conflicts_with_all = ["names", "json", "svg"])]
    tables: Option<PathBuf>,
    /// Make tables of 1/N of the paper's rows
    #[arg(long, value_name = "N", default_value_t = 100, allow_negative_numbers = true, value_parser = RangedI64ValueParser::<u64>::new().range(1..=100_000))]
    scale: u64,
    /// Write everything to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the curves, and the figures as bars, to a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What is written to a file.
#[derive(Serialize)]
struct Written<'a> {
    reports: &'a [Report],
    summary: ReproSummary,
    /// Seconds of virtual time in a second of real time, with the making and counting of tables: those of the model alone.
    virtual_seconds_per_second: f64,
}

/// In smaller tables latencies, which do not become shorter with them, outweigh the rest.
const SCALE_FAIR_MAX: u64 = 1000;

/// How long the model has taken.
#[derive(Debug, Default)]
struct Speed {
    virtual_s: f64,
    real_s: f64,
}

impl Speed {
    /// Adds an experiment. One that the model has no part in says nothing of its speed.
    fn add(&mut self, report: &Report, real_s: f64) {
        if report.virtual_s > 0.0 {
            self.virtual_s += report.virtual_s;
            self.real_s += real_s;
        }
    }

    fn virtual_seconds_per_second(&self) -> f64 {
        self.virtual_s / self.real_s.max(1e-9)
    }
}

/// Runs the command.
pub(crate) async fn run(args: ReproArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    let work = tokio::task::spawn_blocking(move || reproduce(&args));
    let lost = |lost| CliError::from(Fault::new(Blame::Bug, format!("the experiment ended early: {lost}")));
    interrupts.cancels(async { work.await.unwrap_or_else(|error| Err(lost(error))) }).await
}

fn reproduce(args: &ReproArgs) -> Result<(), CliError> {
    if let Some(folder) = &args.tables {
        return write_tables(folder, args.scale);
    }
    let names = chosen(&args.names).map_err(|error| refused(&error))?;
    args.json.iter().try_for_each(|path| check_folder(path))?;
    args.svg.iter().try_for_each(|path| check_picture(path))?;
    let mut speed = Speed::default();
    let mut sink = Sink::stdout();
    let mut reports = Vec::new();
    for name in names {
        if terminal::lively() {
            terminal::tell(format_args!("running {name} …"));
        }
        let began = Instant::now();
        let report = pithead_repro::run(name, args.scale).map_err(|error| refused(&error))?;
        speed.add(&report, began.elapsed().as_secs_f64());
        show(&report, &mut sink)?;
        reports.push(report);
    }
    let virtual_seconds_per_second = speed.virtual_seconds_per_second();
    let summary = ReproSummary::of(&reports);
    if let Some(path) = &args.json {
        let written = Written { reports: &reports, summary, virtual_seconds_per_second };
        let text = serde_json::to_string_pretty(&written).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
        write_file(path, &format!("{text}\n"))?;
    }
    writeln!(sink, "{}", serde_json::to_string_pretty(&summary).unwrap_or_default())?;
    sink.finish()?;
    if speed.real_s > 0.0 {
        let tables = "with the making and counting of tables";
        terminal::tell(format_args!(
            "the model ran through {virtual_seconds_per_second:.0} virtual seconds a second, {tables}"
        ));
    }
    args.svg.iter().try_for_each(|path| draw(&reports, path))
}

/// Writes the tables of whole numbers that the experiments of Do et al. 2013 scan.
fn write_tables(folder: &Path, scale: u64) -> Result<(), CliError> {
    std::fs::create_dir_all(folder).map_err(|error| CliError::file(folder, error))?;
    for columns in [4, 16, 64] {
        let path = folder.join(format!("synthetic{columns}.parquet"));
        let fields = (1..=columns).map(|column| Field::new(format!("column_{column}"), DataType::Int32, false));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut sink = Sink::file(&path)?;
        let mut writer = row_writer(Format::Parquet, &schema, &mut sink)?;
        let mut rows = 0;
        for values in synthetic(columns, scale) {
            let column = |column: usize| -> ArrayRef {
                Arc::new(values.iter().skip(column).step_by(columns).copied().collect::<Int32Array>())
            };
            let batch = RecordBatch::try_new(Arc::clone(&schema), (0..columns).map(column).collect());
            let batch = batch.map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
            writer.write(&batch)?;
            rows += batch.num_rows() as u64;
        }
        writer.finish()?;
        sink.finish()?;
        terminal::tell(format_args!("{}: {} rows of {columns} columns", path.display(), terminal::grouped(rows)));
    }
    Ok(())
}

fn draw(reports: &[Report], path: &Path) -> Result<(), CliError> {
    let picture = svg_of(reports, "emulated, virtual time").ok_or_else(|| {
        let names: Vec<_> = reports.iter().map(|report| report.name).collect();
        CliError::user(format!("there is nothing to draw: no figure of {} is reproduced", names.join(", "))).at(path.display())
    })?;
    write_file(path, &picture)
}

/// Whether a picture can be written to a file: there is a folder for it, and its name says what it will be.
pub(crate) fn check_picture(path: &Path) -> Result<(), CliError> {
    if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("svg")) {
        let fault = Fault::new(Blame::User, "pictures are written as SVG, and the name of this file does not end in .svg");
        return Err(CliError::from(fault.hint("name one such as curves.svg")).at(path.display()));
    }
    check_folder(path)
}

/// Whether there is a folder for a file that is written once all has run.
pub(crate) fn check_folder(path: &Path) -> Result<(), CliError> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err(CliError::user(format!("there is no folder {}", folder.display())).at(path.display())),
        None => Ok(()),
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(|error| CliError::file(path, error))
}

fn refused(error: &ReproError) -> CliError {
    match error {
        ReproError::Unknown { .. } => CliError::user(error.to_string()),
        _ => Fault::new(Blame::Bug, error.to_string()).into(),
    }
}

fn show(report: &Report, sink: &mut Sink) -> Result<(), CliError> {
    writeln!(sink, "{}: {}", report.name, about(report.name))?;
    if !report.figures.is_empty() {
        writeln!(sink, "{}{}\n", report.clock, scaled(report.scale))?;
        figures(&report.figures).write(sink)?;
        writeln!(sink)?;
    }
    for claim in &report.claims {
        let holds = if claim.holds { "holds" } else { "does not hold" };
        writeln!(sink, "{holds}: {} ({}): {}", claim.what, claim.place, claim.ours)?;
    }
    for missing in &report.not_reproduced {
        writeln!(sink, "not reproduced: {}: {}", missing.what, missing.reason)?;
    }
    writeln!(sink)?;
    Ok(())
}

/// How small the tables are, and whether that is too small.
fn scaled(scale: u64) -> String {
    match scale {
        1 => String::new(),
        2..=SCALE_FAIR_MAX => format!("; tables of 1/{scale} of the paper's rows"),
        _ => format!(
            "; tables of 1/{scale} of the paper's rows, which is too small to compare: latencies do not become shorter with \
             tables, so that calibrated figures are off, too (--scale {SCALE_FAIR_MAX} at most)"
        ),
    }
}

fn figures(figures: &[Figure]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("figure", Left),
        ("where", Left),
        ("paper", Right),
        ("ours", Right),
        ("ratio", Right),
        ("ours is", Left),
        ("emulated profiles", Left),
    ]);
    for figure in figures {
        let value = |value: f64| format!("{} {}", digits(value), figure.unit);
        grid.push(vec![
            figure.what.clone(),
            figure.place.to_owned(),
            value(figure.paper),
            value(figure.ours),
            format!("{:.2}", figure.ratio),
            figure.kind.name().to_owned(),
            figure.profiles.join(", "),
        ]);
    }
    grid
}

/// About three digits.
fn digits(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_tells_of_every_experiment() {
        for name in pithead_repro::NAMES {
            assert!(EXAMPLES.contains(&format!("  {name:<10} {}\n", about(name))), "{name}");
        }
    }

    #[test]
    fn a_file_needs_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        check_folder(&folder.path().join("figures.json")).unwrap();
        check_folder(Path::new("figures.json")).unwrap();
        let error = check_folder(&folder.path().join("nowhere/figures.json")).unwrap_err().to_string();
        assert!(error.contains("there is no folder"), "{error}");
    }

    #[test]
    fn a_picture_is_an_svg() {
        let folder = tempfile::tempdir().unwrap();
        check_picture(&folder.path().join("curves.svg")).unwrap();
        check_picture(Path::new("CURVES.SVG")).unwrap();
        for other in ["curves.png", "curves", "svg", "curves.svg.gz"] {
            let error = check_picture(Path::new(other)).unwrap_err().to_string();
            assert!(error.contains("does not end in .svg"), "{other}: {error}");
        }
        assert!(check_picture(&folder.path().join("nowhere/curves.svg")).is_err());
    }

    #[test]
    fn what_has_no_figures_is_not_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let report = |name| pithead_repro::run(name, 1000).unwrap();
        let file = folder.path().join("x.svg");
        let error = draw(&[report("yoursql")], &file).unwrap_err().to_string();
        assert!(error.contains("no figure of yoursql is reproduced") && !file.exists(), "{error}");
        draw(&[report("yoursql"), report("skytether")], &file).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().contains("skytether: "));
    }

    #[test]
    fn tables_that_are_too_small_are_said_to_be() {
        assert_eq!([scaled(1), scaled(1000)], [String::new(), "; tables of 1/1000 of the paper's rows".to_owned()]);
        assert!(scaled(1001).contains("1/1001 of the paper's rows, which is too small to compare"), "{}", scaled(1001));
    }

    #[test]
    fn speed_is_that_of_the_model_alone() {
        let mut speed = Speed::default();
        speed.add(&Report { virtual_s: 10.0, ..Report::default() }, 2.0);
        speed.add(&Report { simulated_s: 700.0, ..Report::default() }, 1.0);
        assert_eq!(speed.virtual_seconds_per_second(), 5.0);
    }

    #[test]
    fn values_have_about_three_digits() {
        assert_eq!([2.333, 15.53, 1560.4].map(digits), ["2.33", "15.5", "1560"]);
    }

    #[test]
    fn an_experiment_that_is_none_is_the_users_fault() {
        let error = chosen(&["ssd".to_owned()]).map_err(|error| refused(&error)).unwrap_err();
        assert!(matches!(&error, CliError::Fault(fault) if fault.blame == Blame::User), "{error}");
    }
}
