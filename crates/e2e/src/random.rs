//! Random queries: tables, data and SQL from one number, answered in several arrangements and by DuckDB.
//!
//! A database follows from a seed, and each of its queries from that seed and its number. All arrangements must say the
//! same, and so must DuckDB where it means the same. Two that differ are shrunk to a small query over few rows, which the
//! failure shows in full. `docs/internals/testing.md` says what is made and how to keep a failure.

mod aggregates;
mod arena;
mod choices;
mod expressions;
mod opinion;
mod queries;
mod scope;
mod shown;
mod shrink;
mod sources;
mod tables;
mod values;

use std::time::{Duration, Instant};

use arena::{Arena, Verdict};
use choices::Choices;
use opinion::Opinion;
use shrink::Failure;
use tables::Database;

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// So many databases.
    Databases(u64),
    /// So long; the last database is finished.
    Time(Duration),
}

/// What was asked.
#[derive(Debug, Default)]
pub struct Report {
    /// Queries.
    pub queries: usize,
    /// Queries that all answered alike.
    pub answered: usize,
    /// Of these, the ones that DuckDB was asked, and answered so, too.
    pub duckdb: usize,
    /// Why DuckDB has said nothing on the others, each with its number.
    pub silent: Vec<String>,
    /// What queries were refused with, each with its number.
    pub refused: Vec<String>,
    /// What differed, ready to be kept as a regression.
    pub failures: Vec<String>,
}

/// Asks so many queries of each database, from this seed on.
pub async fn run_random(seed: u64, extent: Extent, queries: u64) -> Report {
    let start = Instant::now();
    let mut opinion = Opinion::start();
    let mut report = Report::default();
    for number in 0.. {
        let done = match extent {
            Extent::Databases(count) => number >= count,
            Extent::Time(limit) => start.elapsed() >= limit,
        };
        if done {
            break;
        }
        one_database(seed + number, queries, &mut opinion, &mut report).await;
    }
    report
}

async fn one_database(seed: u64, queries: u64, opinion: &mut Option<Opinion>, report: &mut Report) {
    let database = Database::random(seed);
    let arena = match Arena::load(&database, seed, opinion.as_mut()).await {
        Ok(arena) => arena,
        Err(told) => return report.failures.push(format!("seed {seed}: {told}")),
    };
    for number in 0..queries {
        let query = queries::query(Choices::random(seed * 1_000_003 + number), &database);
        report.queries += 1;
        match arena.judge(&query, opinion.as_mut(), None).await {
            Verdict::Agreed { silent } => {
                report.answered += 1;
                match silent {
                    None => report.duckdb += 1,
                    Some(why) => report.silent.push(format!("seed {seed}, query {number}: {why}\n{}", query.sql)),
                }
            }
            Verdict::Refused(told) => report.refused.push(format!("seed {seed}, query {number}: {told}\n{}", query.sql)),
            Verdict::Differ(difference) => {
                let failure = Failure { database: database.clone(), query, difference };
                let shrunk = failure.shrink(&arena, seed, opinion).await;
                if let Some(opinion) = opinion.as_mut() {
                    // Shrinking has left other rows there.
                    reload(&database, opinion);
                }
                let told = shown::failure(&shrunk, seed, number);
                eprintln!("{told}");
                report.failures.push(told);
            }
        }
    }
    arena.shutdown().await;
}

/// Gives DuckDB the tables of a database again.
fn reload(database: &Database, opinion: &mut Opinion) {
    let files = tempfile::TempDir::new().expect("a temporary directory");
    for table in &database.tables {
        table.write(files.path());
    }
    opinion.load(database, files.path()).expect("DuckDB has read these tables before");
}
