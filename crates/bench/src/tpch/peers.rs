//! TPC-H's queries in other engines of this machine, in the same run.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::RecordBatch;
use pithead_model::Fault;

use super::{THREADS, TpchOptions};
use crate::QUERIES;
use crate::answers::{difference_between_engines, read_answer};
use crate::duckdb::{self, DuckDb, duckdb};
use crate::polars::{self, Polars, polars};
use crate::timing::Spread;

/// Those that are there.
pub(super) struct Peers {
    pub(super) duckdb: Option<DuckDb>,
    pub(super) polars: Option<Polars>,
    /// Where Polars answers something else, by the query's name.
    pub(super) polars_differs: BTreeMap<&'static str, String>,
}

impl Peers {
    /// Runs the queries in each, and compares Polars' answers with these, which are in the queries' order.
    pub(super) fn measure(options: &TpchOptions, tables: &Path, answers: &[Vec<RecordBatch>]) -> Result<Self, Fault> {
        let own = options.directory.join(format!("duckdb-{}", options.scale));
        let queries: Vec<(&str, &str)> = QUERIES.iter().map(|query| (query.name, query.statement())).collect();
        let duckdb = duckdb(tables, &own, THREADS, options.runs, &queries)?;
        if duckdb.is_none() {
            println!("{}", duckdb::missing());
        }
        let there = options.directory.join("polars-answers");
        let polars = match options.polars {
            true => polars(tables, &there, THREADS, options.runs.max(1), &queries)?,
            false => None,
        };
        let polars_differs = match &polars {
            Some(polars) => differing(polars, &there, answers)?,
            None => BTreeMap::new(),
        };
        match (&polars, options.polars) {
            (Some(polars), _) => tell(polars, &polars_differs),
            (None, true) => println!("{}", polars::missing()),
            (None, false) => println!("Polars was not asked for"),
        }
        Ok(Self { duckdb, polars, polars_differs })
    }

    /// What Polars took for a query. None: it did not run it, or its answer is another one.
    pub(super) fn polars_seconds(&self, name: &str) -> Option<Spread> {
        let seconds = self.polars.as_ref()?.seconds.get(name)?;
        (!self.polars_differs.contains_key(name)).then(|| Spread::of(seconds.clone()))
    }

    /// Why a query does not count for Polars.
    pub(super) fn polars_note(&self, name: &str) -> Option<String> {
        let refused = self.polars.as_ref()?.refused.get(name).map(|error| format!("refused: {error}"));
        refused.or_else(|| self.polars_differs.get(name).map(|difference| format!("another answer: {difference}")))
    }
}

fn differing(polars: &Polars, there: &Path, answers: &[Vec<RecordBatch>]) -> Result<BTreeMap<&'static str, String>, Fault> {
    let mut differing = BTreeMap::new();
    for (query, own) in QUERIES.iter().zip(answers).filter(|(query, _)| polars.seconds.contains_key(query.name)) {
        let theirs = read_answer(&there.join(format!("{}.arrow", query.name)))?;
        if let Some(difference) = difference_between_engines(own, &theirs)? {
            differing.insert(query.name, difference);
        }
    }
    Ok(differing)
}

/// Says which queries do not count, and why.
fn tell(polars: &Polars, differs: &BTreeMap<&'static str, String>) {
    for (name, error) in &polars.refused {
        println!("Polars does not run {name}: {error}");
    }
    for (name, difference) in differs {
        println!("Polars answers {name} otherwise: {difference}");
    }
}
