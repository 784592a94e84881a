//! `pithead load`: files into a dataset.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use pithead_embed::EmbedOptions;
use pithead_host::{CsvOptions, Format, LoadMode, LoadProgress, LoadReport, LoadSpec, PartitionBy};
use pithead_model::{Bytes, DatasetName};

use crate::apart::apart;
use crate::error::CliError;
use crate::interrupt::Interrupts;
use crate::load_spec::{SortBy, parse_delimiter, parse_metadata, parse_partitioning};
use crate::target::{TargetArgs, connected_or_new};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  pithead load trips 'trips-2026-*.parquet' --sort-by pickup_time
  pithead load tpch.orders orders.parquet --partition-by hash:o_orderkey
  pithead load tpch.lineitem lineitem.parquet --partition-by hash:l_orderkey
  pithead load events 'events-*.jsonl.zst'
  pithead load trips https://example.org/trips.parquet
  pithead load trips 's3://lake/trips/2026-*.parquet'    # AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, …
  pithead load readings readings.csv.gz --csv-delimiter ';' --csv-null NA --append
  pithead load trips trips.parquet --copies 2 --partitions 16
  pithead load trips trips.parquet --drives server1:7433,server2:7433 --meta source=city-hall";

/// Load files into a dataset: Parquet, CSV, JSON lines, Arrow IPC.
///
/// The files are read by this command, also those at servers, for which the variables of the environment count that AWS's own tools
/// read. The rows of all files become visible together, or not at all. Hash partitioning by the same kind of key puts rows
/// that join on one drive.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadArgs {
    /// The dataset, as NAME or DOMAIN.NAME
    #[arg(value_name = "DATASET")]
    name: DatasetName,
    /// Files, or patterns such as 'part-*.parquet'; https://HOST/FILE, s3://BUCKET/KEY, or a pattern of keys
    #[arg(required = true, value_name = "FILES")]
    sources: Vec<String>,
    /// Add to the dataset, which has the same columns
    #[arg(long, conflicts_with = "replace")]
    append: bool,
    /// Replace the dataset if there is one
    #[arg(long)]
    replace: bool,
    /// How rows find their drive: hash:COLUMN[,COLUMN], range:COLUMN or round-robin [default: hash of the first column if it looks
    /// like a key, else round-robin]
    #[arg(long, value_name = "HOW", value_parser = parse_partitioning)]
    partition_by: Option<PartitionBy>,
    /// Drives that each partition is to be on, each with a copy of it [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    copies: Option<u16>,
    /// Partitions; more than drives, so that drives which join later have something to take over [default: one a drive]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    partitions: Option<u16>,
    /// Order of the rows on each drive: COLUMN[ desc][,COLUMN[ desc]]
    #[arg(long, value_name = "COLUMNS")]
    sort_by: Option<SortBy>,
    /// How slices are encoded [default: vortex, or arrow where Vortex cannot hold a column]
    #[arg(long, value_enum)]
    encoding: Option<Encoding>,
    /// Rows of a slice at most [default: 262144]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slice_rows: Option<u32>,
    /// Format of the files [default: by their endings]
    #[arg(long, value_enum)]
    format: Option<FileFormat>,
    /// What separates the values of a CSV file, or tab [default: a comma, in .tsv files a tab]
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter)]
    csv_delimiter: Option<u8>,
    /// The first line of a CSV file is a row; columns are called column_1, column_2, …
    #[arg(long)]
    csv_no_header: bool,
    /// What stands for NULL in a CSV file [default: nothing at all]
    #[arg(long, value_name = "TEXT")]
    csv_null: Option<String>,
    /// Application metadata, kept with the dataset (repeatable)
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = parse_metadata)]
    metadata: Vec<(String, String)>,
    /// Drives to make in a new --data directory [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), conflicts_with = "drives")]
    drives_new: Option<u16>,
    /// Show no progress and no summary
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

/// Encodings of slices.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Encoding {
    /// Compressed, for scans
    Vortex,
    /// Uncompressed Arrow IPC
    Arrow,
    /// A Parquet file of one row group
    Parquet,
    /// Slotted pages of 8 KiB, row by row
    Nsm,
    /// Pages of 8 KiB, column by column within each
    Pax,
}

/// Formats of files.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FileFormat {
    /// Parquet
    Parquet,
    /// Comma-separated values, plain or compressed with gzip or Zstandard
    Csv,
    /// JSON lines: one object a line, plain or compressed in the same ways
    Json,
    /// Arrow IPC, either format
    Arrow,
}

/// Runs the command.
pub(crate) async fn run(args: LoadArgs) -> Result<(), CliError> {
    let interrupts = Interrupts::listen();
    let options = EmbedOptions { drives: args.drives_new.map(usize::from), ..args.target.options()? };
    connected_or_new(&args.target, options, &interrupts, async |engine| {
        let bar = progress_bar(args.quiet);
        let shown = bar.clone();
        let progress = Arc::new(move |progress: LoadProgress| show(&shown, &progress));
        let (host, spec, changing) = (engine.host.clone(), spec(&args), interrupts.changing()?);
        let commitment = changing.commitment();
        let load = apart(async move { host.load_until(&commitment, spec, progress).await });
        let result = interrupts.cancels(async { Ok(load.await?) }).await;
        drop(changing);
        bar.finish_and_clear();
        let report = result?;
        if !args.quiet {
            let paced = engine.pacing().map(|pacing| format!(" ({pacing})")).unwrap_or_default();
            terminal::tell(format_args!("{}: {}{paced}", args.name, summary(&report)));
            if let Some(note) = &report.note {
                terminal::tell(format_args!("note: {note}"));
            }
        }
        interrupts.told();
        Ok(())
    })
    .await
}

fn spec(args: &LoadArgs) -> LoadSpec {
    LoadSpec {
        name: args.name.clone(),
        sources: args.sources.clone(),
        format: args.format.map(|format| match format {
            FileFormat::Parquet => Format::Parquet,
            FileFormat::Csv => Format::Csv,
            FileFormat::Json => Format::Json,
            FileFormat::Arrow => Format::ArrowIpc,
        }),
        over: None,
        shape: None,
        mode: match (args.append, args.replace) {
            (true, _) => LoadMode::Append,
            (_, true) => LoadMode::Replace,
            _ => LoadMode::Create,
        },
        partitioning: args.partition_by.clone(),
        sort: args.sort_by.clone().map(|SortBy(keys)| keys).unwrap_or_default(),
        encoding: args.encoding.map(|encoding| match encoding {
            Encoding::Vortex => "vortex".to_owned(),
            Encoding::Arrow => "arrow".to_owned(),
            Encoding::Parquet => "parquet".to_owned(),
            Encoding::Nsm => "nsm".to_owned(),
            Encoding::Pax => "pax".to_owned(),
        }),
        partitions: args.partitions.map(usize::from),
        copies: args.copies.map(usize::from),
        slice_rows: args.slice_rows.map(|rows| rows as usize),
        slice_bytes: None,
        metadata: args.metadata.iter().cloned().collect::<BTreeMap<_, _>>(),
        csv: CsvOptions {
            delimiter: args.csv_delimiter,
            header: !args.csv_no_header,
            null: args.csv_null.clone(),
            ..CsvOptions::default()
        },
    }
}

fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet || !terminal::lively() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = "{bar:30} {decimal_bytes}/{decimal_total_bytes}, {msg}, {decimal_bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn show(bar: &ProgressBar, progress: &LoadProgress) {
    bar.set_length(progress.bytes_total);
    bar.set_position(progress.bytes_done.min(progress.bytes_total));
    bar.set_message(terminal::counted(progress.rows, "row"));
}

fn summary(report: &LoadReport) -> String {
    let rate = report.source_bytes as f64 / 1e6 / report.seconds.max(1e-9);
    let ratio = match report.source_bytes {
        0 => String::new(),
        source => format!(" ({:.2} of the source's {})", report.stored_bytes as f64 / source as f64, Bytes(source)),
    };
    format!(
        "{} in {} ({rate:.0} MB/s of source), {} stored as {} in {}{ratio}",
        terminal::counted(report.rows, "row"),
        terminal::seconds(report.seconds),
        Bytes(report.stored_bytes),
        report.encoding,
        terminal::counted(report.slices, "slice"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(line: &str) -> Result<LoadArgs, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Command::Load(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_become_the_spec() {
        let args = parsed(
            "pithead load lab.t a.csv b*.csv --append --partition-by hash:k --csv-no-header --meta who=me --slice-rows 9",
        );
        let spec = spec(&args.unwrap());
        assert_eq!((spec.name.to_string(), spec.sources), ("lab.t".to_owned(), vec!["a.csv".to_owned(), "b*.csv".to_owned()]));
        assert!(matches!(spec.mode, LoadMode::Append));
        assert!(!spec.csv.header && spec.csv.delimiter.is_none() && spec.slice_rows == Some(9));
        assert_eq!(spec.metadata["who"], "me");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            "load t",
            "load t a --append --replace",
            "load a/b a.csv",
            "load t a --slice-rows 0",
            "load t a --drives-new 2 --drives h:1",
        ] {
            assert!(parsed(&format!("pithead {line}")).is_err(), "{line}");
        }
    }

    #[test]
    fn the_summary_has_rows_rate_and_ratio() {
        let report = LoadReport {
            rows: 6_000_000,
            source_bytes: 200_000_000,
            stored_bytes: 150_000_000,
            slices: 24,
            seconds: 4.0,
            encoding: "vortex".into(),
            note: None,
        };
        let rows = "6,000,000 rows in 4.0 s (50 MB/s of source)";
        let stored = "150 MB stored as vortex in 24 slices (0.75 of the source's 200 MB)";
        assert_eq!(summary(&report), format!("{rows}, {stored}"));
    }
}
