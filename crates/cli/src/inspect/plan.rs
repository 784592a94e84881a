//! `pithead inspect plan`: what an annotated sub-plan says was executed of it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use pithead_model::{Bytes, Fault, Level};
use pithead_plan::{Progress, Round, Rounds, Span, annotation_of};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{Align, Grid, Sink};
use crate::terminal::grouped;

const EXAMPLES: &str = "\
Examples:
  pithead sql --plans plans -c 'SELECT city, sum(fare) FROM trips GROUP BY city'
  pithead inspect plan plans/1-sub-plan-1-partition-0.binpb
  pithead inspect plan plans/1-sub-plan-1-partition-0.binpb --json | jq .left";
const CAUSES: [&str; 6] = ["", "asked", "memory", "busy", "sooner", "held"];

/// Show what of a sub-plan was executed: which slices are done, to which level, at what cost, and which are left.
///
/// The file is a Substrait plan as `pithead sql --plans` writes it, or as any CSE has annotated it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// A sub-plan, as protobuf
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The annotation as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PlanArgs) -> Result<(), CliError> {
    let bytes = std::fs::read(&args.file).map_err(|error| CliError::file(&args.file, error))?;
    let annotation = annotation_of(&bytes).map_err(Fault::from)?;
    let mut sink = Sink::stdout();
    match &annotation {
        Some((progress, rounds)) => {
            // Says what does not add up before anything of it is believed.
            progress.done().map_err(Fault::from)?;
            match args.json {
                true => writeln!(sink, "{}", as_json(progress, rounds))?,
                false => write(progress, rounds, &mut sink)?,
            }
        }
        None if args.json => writeln!(sink, "null")?,
        None => writeln!(sink, "{} has no annotation: nothing of it was executed", args.file.display())?,
    }
    sink.finish()
}

fn write(progress: &Progress, rounds: &Rounds, out: &mut dyn Write) -> Result<(), CliError> {
    let count = |spans: &[Span]| spans.iter().map(|span| u64::from(span.count)).sum::<u64>();
    let done: u64 = progress.executed.iter().map(|executed| count(&executed.slices)).sum();
    writeln!(
        out,
        "{}.{}, incarnation {:016x}, partition {}, by manifest version {}: {} of {} slices done{}",
        progress.domain,
        progress.dataset,
        progress.incarnation,
        progress.partition,
        progress.manifest_version,
        grouped(done),
        grouped(done + count(&progress.left)),
        if progress.whole_partition { ", all in one round" } else { "" },
    )?;
    let mut grid = Grid::of(&[("slices", Align::Left), ("level", Align::Left), ("operators", Align::Left)]);
    for executed in &progress.executed {
        let operators = spans_of(executed.operators.iter().copied());
        grid.push(vec![spans(&executed.slices), executed.level.map_or("done elsewhere".to_owned(), level), operators]);
    }
    if !progress.left.is_empty() {
        grid.push(vec![spans(&progress.left), "left".to_owned(), String::new()]);
    }
    grid.write(out)?;
    if !rounds.rounds.is_empty() {
        writeln!(out, "\nrounds at {}:", rounds.cse)?;
        rounds_grid(&rounds.rounds).write(out)?;
    }
    Ok(())
}

fn rounds_grid(rounds: &[Round]) -> Grid {
    use Align::{Left, Right};
    let mut grid = Grid::of(&[
        ("round", Right),
        ("slices", Left),
        ("level", Left),
        ("skipped", Right),
        ("rows in", Right),
        ("rows out", Right),
        ("medium", Right),
        ("CPU ms", Right),
        ("cause", Left),
    ]);
    for round in rounds {
        grid.push(vec![
            round.round.to_string(),
            spans(&round.slices),
            level(round.level),
            grouped(round.slices_skipped.into()),
            grouped(round.rows_in),
            grouped(round.rows_out),
            Bytes(round.medium_bytes).to_string(),
            format!("{:.1}", round.cpu_ns as f64 / 1e6),
            cause(round.cause).to_owned(),
        ]);
    }
    grid
}

fn level(level: i32) -> String {
    let known = u8::try_from(level).ok().and_then(|level| Level::try_from(level).ok());
    match known {
        Some(Level::Whole) => "3, whole".to_owned(),
        Some(Level::Filtered) => "2, filtered".to_owned(),
        Some(Level::Hints) => "1, match hints".to_owned(),
        Some(Level::Bytes) => "0, as stored".to_owned(),
        None => level.to_string(),
    }
}

fn cause(cause: i32) -> &'static str {
    usize::try_from(cause).ok().and_then(|cause| CAUSES.get(cause)).unwrap_or(&"other")
}

fn spans(spans: &[Span]) -> String {
    let text = |span: &Span| match span.count {
        1 => span.first.to_string(),
        count => format!("{}–{}", span.first, span.first.saturating_add(count.saturating_sub(1))),
    };
    spans.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Numbers that rise, as spans.
fn spans_of(numbers: impl Iterator<Item = u32>) -> String {
    let covered = pithead_model::SliceSpan::cover(numbers.collect());
    spans(&covered.iter().map(|span| Span { first: span.first, count: span.count }).collect::<Vec<_>>())
}

fn as_json(progress: &Progress, rounds: &Rounds) -> Value {
    let id = |id: u64| format!("{id:016x}");
    let spans = |spans: &[Span]| json!(spans.iter().map(|span| json!([span.first, span.count])).collect::<Vec<_>>());
    let executed = progress
        .executed
        .iter()
        .map(|executed| json!({ "level": executed.level, "slices": spans(&executed.slices), "operators": executed.operators }));
    let round = |round: &Round| {
        json!({
            "round": round.round,
            "level": round.level,
            "slices": spans(&round.slices),
            "slices_skipped": round.slices_skipped,
            "slices_from_kept_results": round.slices_from_kept_results,
            "rows_in": round.rows_in,
            "rows_out": round.rows_out,
            "medium_bytes": round.medium_bytes,
            "batch_bytes": round.batch_bytes,
            "stored_bytes": round.stored_bytes,
            "cpu_ns": round.cpu_ns,
            "wall_ns": round.wall_ns,
            "cause": Some(cause(round.cause)).filter(|cause| !cause.is_empty()),
            "queue_ms": round.queue_ms,
            "retry_after_ms": round.retry_after_ms,
        })
    };
    json!({
        "domain": progress.domain,
        "dataset": progress.dataset,
        "incarnation": id(progress.incarnation),
        "manifest_version": progress.manifest_version,
        "partition": progress.partition,
        "runs": progress.runs.iter().map(|run| json!({ "load": id(run.load), "slices": run.slices })).collect::<Vec<_>>(),
        "whole_partition": progress.whole_partition,
        "executed": executed.collect::<Vec<_>>(),
        "left": spans(&progress.left),
        "cse": rounds.cse,
        "rounds": rounds.rounds.iter().map(round).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use pithead_plan::{Executed, RunOfSlices};

    use super::*;

    #[test]
    fn an_annotation_is_shown_whole() {
        let span = |first, count| Span { first, count };
        let executed = |level, slices, operators| Executed { level, slices, operators };
        let progress = Progress {
            domain: "main".to_owned(),
            dataset: "t".to_owned(),
            incarnation: 7,
            manifest_version: 2,
            partition: 1,
            runs: vec![RunOfSlices { load: 5, slices: 6 }],
            whole_partition: false,
            executed: vec![executed(None, vec![span(0, 1)], vec![]), executed(Some(3), vec![span(1, 3)], vec![0, 1])],
            left: vec![span(4, 2)],
        };
        let round = Round { level: 0, slices: vec![span(1, 3)], rows_in: 8_192, cause: 4, ..Round::default() };
        let rounds = Rounds { cse: "disk1".to_owned(), rounds: vec![round] };
        let mut shown = Vec::new();
        write(&progress, &rounds, &mut shown).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        for part in
            ["partition 1", "4 of 6 slices done", "done elsewhere", "3, whole", "1–3", "left", "disk1", "sooner", "as stored"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let json = as_json(&progress, &rounds);
        assert_eq!((json["left"].clone(), json["executed"][1]["level"].clone()), (json!([[4, 2]]), json!(3)));
        assert_eq!(json["incarnation"], "0000000000000007");
    }
}
