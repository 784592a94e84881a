//! Random queries in several arrangements, and by DuckDB.

use std::time::{Duration, Instant};

use pithead_e2e::block_on;
use pithead_e2e::random::{Extent, RandomOptions, Without, run_random};

/// Databases, unless `PITHEAD_RANDOM_S` says for how many seconds to go on, or `PITHEAD_RANDOM_STATEMENTS` how many statements to ask.
const DATABASES: u64 = 16;
/// Queries of each.
const QUERIES: usize = 40;
/// Differences that are made small, unless `PITHEAD_RANDOM_SHRUNK` says how many.
const SHRUNK_MAX: usize = 4;

#[test]
fn answers_do_not_hang_on_where_they_are_computed() {
    let variable = |name: &str| std::env::var(format!("PITHEAD_RANDOM_{name}")).ok().and_then(|text| text.parse::<u64>().ok());
    let count = |name: &str| variable(name).and_then(|count| usize::try_from(count).ok());
    let seed = variable("SEED").unwrap_or(1);
    let extent = match (variable("S"), count("STATEMENTS")) {
        (Some(seconds), _) => Extent::Time(Duration::from_secs(seconds)),
        (None, Some(statements)) => Extent::Statements(statements),
        (None, None) => Extent::Databases(DATABASES),
    };
    let shrunk_max = count("SHRUNK").unwrap_or(SHRUNK_MAX);
    let jobs = count("JOBS").unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let without = Without::parse(&std::env::var("PITHEAD_RANDOM_WITHOUT").unwrap_or_default());
    let start = Instant::now();
    let report = block_on(run_random(RandomOptions { seed, extent, queries: QUERIES, shrunk_max, jobs, without }));
    println!("PITHEAD_RANDOM_SEED={seed}, {:.0} s: {report}", start.elapsed().as_secs_f64());
    assert!(report.failures.is_empty(), "{} failures\n{}", report.failures.len(), report.failures.join("\n"));
    assert!(report.answered * 10 >= report.statements * 8, "too many statements are refused");
}
