//! Runs `.slt` files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pithead_host::Session;
use pithead_model::Blame;
use sqllogictest::{Condition, ExpectedError, QueryExpect, Record, SortMode, StatementExpect, parse_file};

use crate::compare::{Column, Table, bag_difference, row_difference};
use crate::data::TestDataset;
use crate::{Setup, collect};

/// The label of this runner in `onlyif` and `skipif`; DuckDB's is `duckdb`.
const LABEL: &str = "pithead";

/// Records whose time is told, with `--nocapture`.
const SLOWEST: usize = 8;

/// Runs all suites. Says what is not as written.
pub async fn run_suites(setup: &Setup) -> Vec<String> {
    let (mut failures, mut taken) = (Vec::new(), Vec::new());
    for path in files() {
        let session = setup.session().await;
        for record in read(&path) {
            let started = Instant::now();
            let told = record.run(&session).await;
            let place = format!("{}:{}", path.file_name().unwrap_or_default().display(), record.line);
            if let Some(told) = told {
                failures.push(format!("{place}: {}\n{told}\n", record.sql));
            }
            taken.push((started.elapsed(), place));
        }
    }
    taken.sort_by(|one, other| other.cmp(one));
    println!("{}: {} records in {:.1?}", setup.mode.name, taken.len(), taken.iter().map(|(time, _)| *time).sum::<Duration>());
    taken.iter().take(SLOWEST).for_each(|(time, place)| println!("{time:10.1?} {place}"));
    failures
}

fn files() -> Vec<PathBuf> {
    let directory = TestDataset::suites();
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a directory entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "slt"));
    files.sort();
    assert!(!files.is_empty(), "there are no suites in {}", directory.display());
    files
}

/// One record that this runner is to run.
struct Case {
    line: u32,
    sql: String,
    expect: Expect,
}

enum Expect {
    Success,
    Failure(ExpectedError),
    Rows { table: Table, ordered: bool },
}

impl Case {
    /// Says what is not as expected.
    async fn run(&self, session: &Session) -> Option<String> {
        match (collect(session, &self.sql).await, &self.expect) {
            (Ok(_), Expect::Success) => None,
            (Ok(got), Expect::Rows { table, ordered: true }) => row_difference(&got, table),
            (Ok(got), Expect::Rows { table, ordered: false }) => bag_difference(&got, table),
            (Ok(got), Expect::Failure(_)) => Some(format!("an error is expected; there were {} rows", got.rows.len())),
            (Err(fault), Expect::Failure(_)) if fault.blame == Blame::Bug => Some(format!("not a clear error: {fault}")),
            (Err(fault), Expect::Failure(expected)) if expected.is_match(&fault.to_string(), None) => None,
            (Err(fault), Expect::Failure(expected)) => Some(format!("the error should say {expected:?}: {fault}")),
            (Err(fault), _) => Some(format!("{}: {fault}", fault.blame)),
        }
    }
}

fn read(path: &Path) -> Vec<Case> {
    let records = parse_file::<Letter>(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    records.into_iter().filter_map(case).collect()
}

fn case(record: Record<Letter>) -> Option<Case> {
    let (loc, conditions, sql, expect) = match record {
        Record::Statement { loc, conditions, sql, expected, .. } => (loc, conditions, sql, statement(expected)),
        Record::Query { loc, conditions, sql, expected, .. } => (loc, conditions, sql, query(expected)),
        _ => return None,
    };
    let skipped = |condition: &Condition| match condition {
        Condition::OnlyIf { label } => label != LABEL,
        Condition::SkipIf { label } => label == LABEL,
    };
    (!conditions.iter().any(skipped)).then(|| Case { line: loc.line(), sql, expect })
}

fn statement(expected: StatementExpect) -> Expect {
    match expected {
        StatementExpect::Error(error) => Expect::Failure(error),
        StatementExpect::Ok | StatementExpect::Count(_) => Expect::Success,
    }
}

fn query(expected: QueryExpect<Letter>) -> Expect {
    match expected {
        QueryExpect::Error(error) => Expect::Failure(error),
        QueryExpect::Results { types, sort_mode, results, .. } => {
            let rows = results.iter().map(|line| line.split('\t').map(str::to_owned).collect()).collect();
            let columns = types.iter().map(|Letter(letter)| Column::lettered(*letter)).collect();
            Expect::Rows { table: Table { columns, rows }, ordered: !matches!(sort_mode, Some(SortMode::RowSort)) }
        }
    }
}

/// A type letter of `crates/e2e/suites/render.py`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Letter(char);

impl sqllogictest::ColumnType for Letter {
    fn from_char(value: char) -> Option<Self> {
        "IDRTB?".contains(value).then_some(Self(value))
    }

    fn to_char(&self) -> char {
        self.0
    }
}
