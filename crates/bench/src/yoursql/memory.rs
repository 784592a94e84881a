//! The ablation once more, with a host that keeps a part of the data: the less memory it has, the more early filters are worth.
//!
//! Without early filters drives hand slices over as they are stored, and the host keeps what it has room for. All queries run one
//! after the other, so that each finds what the others have left; the first pass fills the memory, and the next ones count.

use arrow::array::RecordBatch;
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_model::{Fault, total};
use serde::Serialize;

use crate::QUERIES;
use crate::answers::difference;
use crate::report::{megabytes, ratio, seconds, table};
use crate::timing::{Spread, best_gain, run, unhelped};

/// The host's memory, as one of so many parts of what is stored.
const PARTS: [u64; 3] = [8, 4, 2];
const WITHOUT: [&str; 7] = [
    "level = 0",
    "pushdown_aggregates = off",
    "pushdown_joins = off",
    "pushdown_top_k = off",
    "zone_maps = off",
    "join_filters = off",
    "sample = off",
];

/// A host with some memory, without early filters.
#[derive(Debug, Serialize)]
pub(super) struct MemoryReport {
    /// One of so many parts of the stored bytes.
    part: u64,
    memory_bytes: u64,
    /// Over the link in one pass, both ways.
    link_bytes: u64,
    queries: Vec<QueryTaken>,
    /// Seconds without early filters, the host keeping slices, over seconds with filters at the drives and the sampler: mean of the best
    /// five queries, and all added up.
    top5_vs_no_early_filter: f64,
    total_vs_no_early_filter: f64,
    answers_equal: bool,
}

#[derive(Debug, Serialize)]
struct QueryTaken {
    name: &'static str,
    seconds: Spread,
    link_bytes: u64,
}

/// Measures with each size of memory. `filtered`: each query's seconds with early filters, and its answer.
pub(super) async fn memory(
    target: &Target,
    runs: usize,
    filtered: &[(f64, Vec<RecordBatch>)],
) -> Result<Vec<MemoryReport>, Fault> {
    let told = pithead_embed::status(target, &EmbedOptions::default()).await?;
    let stored = total(told.iter().filter_map(|(_, status)| Some(status.as_ref().ok()?.stored_bytes)));
    let mut reports = Vec::new();
    for part in PARTS {
        let report = one(target, runs, part, stored / part, filtered).await?;
        println!("  host memory 1/{part}: {} in all", ratio(report.total_vs_no_early_filter));
        reports.push(report);
    }
    Ok(reports)
}

async fn one(
    target: &Target,
    runs: usize,
    part: u64,
    memory_bytes: u64,
    filtered: &[(f64, Vec<RecordBatch>)],
) -> Result<MemoryReport, Fault> {
    // A host of its own, which keeps nothing yet.
    let engine = connect(target, &EmbedOptions::default()).await?;
    let session = unhelped(&engine).await?;
    for setting in WITHOUT {
        session.run(&format!("SET pithead.{setting}")).await?;
    }
    session.run(&format!("SET pithead.slice_cache = {memory_bytes}")).await?;
    session.run("SET pithead.drive_threads = 1").await?;
    let mut taken = vec![(vec![], 0); QUERIES.len()];
    let mut answers_equal = true;
    for pass in 0..=runs {
        for ((query, taken), (_, answer)) in QUERIES.iter().zip(&mut taken).zip(filtered) {
            let ran = run(&session, query.statement()).await.map_err(|fault| fault.at(query.name))?;
            if pass > 0 {
                taken.0.push(ran.seconds);
            }
            taken.1 = ran.profile.link_bytes;
            answers_equal &= difference(answer, &ran.batches)?.is_none();
        }
    }
    engine.shutdown().await;
    let queries: Vec<QueryTaken> = QUERIES
        .iter()
        .zip(taken)
        .map(|(query, (runs, link_bytes))| QueryTaken { name: query.name, seconds: Spread::of(runs), link_bytes })
        .collect();
    let pairs: Vec<(f64, f64)> = queries.iter().zip(filtered).map(|(query, (with, _))| (query.seconds.median, *with)).collect();
    Ok(MemoryReport {
        part,
        memory_bytes,
        link_bytes: total(queries.iter().map(|query| query.link_bytes)),
        top5_vs_no_early_filter: best_gain(pairs.iter().map(|(without, with)| without / with)),
        total_vs_no_early_filter: sum(&pairs),
        queries,
        answers_equal,
    })
}

fn sum(pairs: &[(f64, f64)]) -> f64 {
    let (without, with): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    without.iter().sum::<f64>() / with.iter().sum::<f64>()
}

/// For people.
pub(super) fn text(reports: &[MemoryReport]) -> String {
    let row = |report: &MemoryReport| {
        vec![
            format!("1/{}", report.part),
            megabytes(report.memory_bytes),
            seconds(report.queries.iter().map(|query| query.seconds.median).sum()),
            megabytes(report.link_bytes),
            ratio(report.top5_vs_no_early_filter),
            ratio(report.total_vs_no_early_filter),
            if report.answers_equal { String::new() } else { "DIFFER".to_owned() },
        ]
    };
    let header = ["host memory", "MB", "s without early filter", "MB over the link", "five best gain", "all gain", ""];
    table(&header, &reports.iter().map(row).collect::<Vec<_>>())
}

impl MemoryReport {
    pub(super) fn answers_equal(&self) -> bool {
        self.answers_equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_of_seconds_without_over_with() {
        let pairs = [(10.0, 1.0), (8.0, 1.0), (6.0, 1.0), (4.0, 1.0), (2.0, 1.0), (1.0, 1.0)];
        assert_eq!(sum(&pairs), 31.0 / 6.0);
    }
}
