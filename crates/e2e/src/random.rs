//! Random queries: tables, data and SQL from one number, answered in several arrangements and by DuckDB.
//!
//! A database follows from a seed, and so does its script: queries in one session, each in one or several ways, and loads
//! between them. All arrangements must say the same, and so must DuckDB where it means the same; and answers that follow
//! from each other must fit. Two that differ are shrunk to a small script over few rows, which the failure shows in full.
//! `docs/internals/testing.md` says what is made and how to keep a failure.

mod aggregates;
mod altered;
mod arena;
mod choices;
mod expressions;
mod layout;
mod marked;
mod nested;
mod opinion;
mod queries;
mod report;
mod scope;
mod script;
mod shown;
mod shrink;
mod sources;
mod spoken;
mod style;
mod tables;
mod tops;
mod twins;
mod values;
mod voices;
mod without;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arena::Arena;
use opinion::Opinion;
use report::Difference;
pub use report::Report;
use shrink::Failure;
use tables::Database;
use voices::Who;
pub use without::Without;

/// Differences of one database that are told of at most.
const DIFFERENCES_MAX: usize = 4;
/// Statements after which a long run says how far it is.
const TOLD_EVERY: usize = 1_000;

/// How long to go on; the last database is finished.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// So many databases.
    Databases(u64),
    /// At least so many statements.
    Statements(usize),
    /// So long.
    Time(Duration),
}

/// What to do.
#[derive(Clone, Debug)]
pub struct RandomOptions {
    /// The first database's; the next one has the next number.
    pub seed: u64,
    /// How long to go on.
    pub extent: Extent,
    /// Queries of each database, each of one statement or several.
    pub queries: usize,
    /// Differences that are made small; others are only named.
    pub shrunk_max: usize,
    /// Databases side by side.
    pub jobs: usize,
    /// What is not made.
    pub without: Without,
}

/// Databases that are to come, and what came of others.
struct Progress {
    options: RandomOptions,
    start: Instant,
    next: AtomicU64,
    shrunk: AtomicUsize,
    report: Mutex<Report>,
}

/// Runs scripts over databases. Must be called within a runtime of several threads.
pub async fn run_random(options: RandomOptions) -> Report {
    let (next, report, jobs) = (AtomicU64::new(0), Mutex::default(), options.jobs.max(1));
    let progress = Arc::new(Progress { options, start: Instant::now(), next, shrunk: AtomicUsize::new(0), report });
    let jobs: Vec<_> = (0..jobs).map(|_| tokio::spawn(job(Arc::clone(&progress)))).collect();
    for job in jobs {
        job.await.expect("a job ends");
    }
    let progress = Arc::into_inner(progress).expect("all jobs have ended");
    progress.report.into_inner().unwrap_or_else(PoisonError::into_inner)
}

async fn job(progress: Arc<Progress>) {
    let mut opinion = Opinion::start();
    while let Some(seed) = progress.seed() {
        let (mut report, failures) = one_database(seed, &progress.options, &mut opinion).await;
        for failure in failures {
            report.differ(&failure.difference);
            let place = failure.script.len() - 1;
            let failure = match progress.is_to_be_shrunk(&failure.difference) {
                true => failure.shrink(&mut opinion).await,
                false => failure,
            };
            let told = shown::failure(&failure, place);
            eprintln!("{told}");
            report.failures.push(told);
        }
        progress.add(report);
    }
}

impl Progress {
    /// The next database's; none if that was all.
    fn seed(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let more = match self.options.extent {
            Extent::Databases(count) => number < count,
            Extent::Statements(count) => self.report().statements < count,
            Extent::Time(limit) => self.start.elapsed() < limit,
        };
        more.then(|| self.options.seed + number)
    }

    /// Whether a difference is made small: there are not enough such yet, and errors of its kind are not known.
    fn is_to_be_shrunk(&self, difference: &Difference) -> bool {
        let known = self.report().differences.contains_key(&(difference.voice.clone(), difference.gist.clone()));
        let wanted = !known || difference.both_answer();
        wanted && self.shrunk.fetch_add(1, Ordering::Relaxed) < self.options.shrunk_max
    }

    /// Adds a database's report. A long run says how far it is.
    fn add(&self, report: Report) {
        let mut all = self.report();
        let before = all.statements / TOLD_EVERY;
        all.add(report);
        if all.statements / TOLD_EVERY > before {
            eprintln!("{} statements so far, {:.0} s", all.statements, self.start.elapsed().as_secs_f64());
        }
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the script of a database. Returns what came of it, and the differences.
async fn one_database(seed: u64, options: &RandomOptions, opinion: &mut Option<Opinion>) -> (Report, Vec<Failure>) {
    let database = Database::random(seed, &options.without);
    let script = script::script(seed, &database, options.queries);
    let mut report = Report { databases: 1, ..Report::default() };
    let mut failures = Vec::new();
    let mut arena = match Arena::load(&database, seed, opinion.as_mut(), Who::Turn(0)).await {
        Ok(arena) => arena,
        Err(told) => {
            report.failures.push(format!("seed {seed}: {told}"));
            return (report, failures);
        }
    };
    for (place, step) in script.iter().enumerate() {
        let known = |difference: &Difference| {
            let same = |failure: &Failure| failure.difference.sql == difference.sql && failure.difference.is_like(difference);
            failures.iter().any(same)
        };
        let told = arena.step(step, opinion.as_mut(), None, &mut report).await;
        if let Some(difference) = told.filter(|difference| !known(difference)) {
            let script = script[..=place].to_vec();
            failures.push(Failure { database: database.clone(), seed, script, difference, repeated: None });
        }
        if failures.len() >= DIFFERENCES_MAX {
            break;
        }
    }
    arena.shutdown().await;
    (report, failures)
}
