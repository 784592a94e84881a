//! Random queries in several arrangements, and by DuckDB.

use std::time::Duration;

use pithead_e2e::block_on;
use pithead_e2e::random::{Extent, run_random};

/// Databases, unless `PITHEAD_RANDOM_S` says for how many seconds to go on.
const DATABASES: u64 = 4;
/// Queries of each.
const QUERIES: u64 = 40;

#[test]
fn answers_do_not_hang_on_where_they_are_computed() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = variable("PITHEAD_RANDOM_SEED").unwrap_or(1);
    let seconds = variable("PITHEAD_RANDOM_S");
    let extent = seconds.map_or(Extent::Databases(DATABASES), |seconds| Extent::Time(Duration::from_secs(seconds)));
    let report = block_on(run_random(seed, extent, QUERIES));
    println!(
        "PITHEAD_RANDOM_SEED={seed}: {} queries, {} answered alike, {} of them by DuckDB, too; {} refused",
        report.queries,
        report.answered,
        report.duckdb,
        report.refused.len()
    );
    for refused in &report.refused {
        println!("refused: {refused}");
    }
    assert!(report.failures.is_empty(), "{} failures\n{}", report.failures.len(), report.failures.join("\n"));
    assert!(report.answered * 10 >= report.queries * 8, "too many queries are refused");
}
