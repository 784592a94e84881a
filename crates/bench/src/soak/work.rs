//! What one client does, and what its answers must be.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::{StreamExt, TryStreamExt, stream};
use pithead_embed::Engine;
use pithead_host::{LoadMode, LoadSpec, PartitionBy, Session};
use pithead_model::{Blame, DatasetName, Fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use super::clients::Answers;
use super::report::ClientReport;
use crate::QUERIES;
use crate::answers::difference;
use crate::timing::unhelped;

/// Rows of one load at most.
const LOAD_ROWS_MAX: i64 = 2_000;
/// Every so many loads the dataset is replaced, so that it does not grow for ever.
const LOADS_A_GENERATION: u64 = 12;
/// Errors and wrong answers that a client tells in words.
const TOLD_MAX: usize = 5;
/// Pause after an error, so that a drive that is away is not asked in a tight loop.
const ERROR_PAUSE: Duration = Duration::from_millis(200);

/// What a client has loaded into its dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Loaded {
    /// Grows when a load that replaces everything begins; 0: nothing was loaded.
    pub(super) generation: u64,
    /// Rows and their sum that were acknowledged.
    pub(super) rows: i64,
    pub(super) sum: i64,
    /// Rows of loads that were begun, those that were acknowledged among them.
    pub(super) rows_begun: i64,
    /// Loads of this generation.
    pub(super) loads: u64,
    /// A load failed, and whether it is visible is not known for sure.
    pub(super) uncertain: bool,
}

impl Loaded {
    /// What is wrong with the answer to [`count_statement`], while nothing is being loaded.
    pub(super) fn difference(&self, batches: &[RecordBatch]) -> Option<String> {
        let Some((rows, sum)) = counted(batches) else { return Some("expected one row of two numbers".to_owned()) };
        let is_right = if self.uncertain { rows >= self.rows } else { (rows, sum) == (self.rows, self.sum) };
        (!is_right).then(|| format!("{rows} rows of sum {sum}, and {} of sum {} were acknowledged", self.rows, self.sum))
    }
}

/// Counts what a client has loaded.
pub(super) fn count_statement(client: usize) -> String {
    format!("SELECT count(*), coalesce(sum(v), 0) FROM soak_{client}")
}

fn counted(batches: &[RecordBatch]) -> Option<(i64, i64)> {
    let batch = batches.iter().find(|batch| batch.num_rows() == 1 && batch.num_columns() == 2)?;
    let number = |index: usize| batch.column(index).as_primitive_opt::<Int64Type>().map(|column| column.value(0));
    Some((number(0)?, number(1)?))
}

/// What the clients of one process know of each other's loads.
pub(super) type Board = Arc<Vec<Mutex<Loaded>>>;

/// One client.
pub(super) struct Client {
    pub(super) number: usize,
    /// Its place on the board.
    pub(super) place: usize,
    pub(super) first: usize,
    pub(super) engine: Engine,
    pub(super) answers: Arc<Answers>,
    pub(super) board: Board,
    pub(super) copies: usize,
    pub(super) random: StdRng,
    pub(super) report: ClientReport,
}

/// How a piece of work ended.
enum Ended {
    Right,
    Wrong(String),
    /// What it read was replaced meanwhile; then it need not have an answer.
    Overtaken,
}

impl Client {
    pub(super) fn random(seed: u64, number: usize) -> StdRng {
        StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number as u64))
    }

    /// Works until it is time, then says how it went.
    pub(super) async fn work(mut self, until: Instant) -> ClientReport {
        // What was kept of earlier answers would leave the drives idle.
        let session = unhelped(&self.engine).await.unwrap_or_else(|_| self.engine.host.session());
        while Instant::now() < until {
            let started = Instant::now();
            let (kind, ended) = self.step(&session).await;
            let took_ms = started.elapsed().as_secs_f64() * 1e3;
            match ended {
                Ok(ended) => {
                    self.report.latencies.entry(kind.to_owned()).or_default().push(took_ms as f32);
                    match ended {
                        Ended::Right => self.report.answers += 1,
                        Ended::Overtaken => self.report.overtaken += 1,
                        Ended::Wrong(what) => {
                            self.report.wrong += 1;
                            tell(&mut self.report.told, format!("client {}, {kind}: wrong: {what}", self.number));
                        }
                    }
                }
                Err(fault) => {
                    self.report.errors += 1;
                    tell(&mut self.report.told, format!("client {}, {kind}: {} ({})", self.number, fault.message, fault.blame));
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        }
        self.report.loaded = self.loaded(self.place);
        self.engine.shutdown().await;
        self.report
    }

    async fn step(&mut self, session: &Session) -> (&'static str, Result<Ended, Fault>) {
        match self.random.random_range(0..100) {
            0..30 => ("tpch", self.tpch(session).await),
            30..65 => ("point", self.point(session).await),
            65..75 => ("load", self.load().await),
            75..90 => ("count", self.count(session).await),
            _ => ("cancel", self.cancel(session).await),
        }
    }

    async fn tpch(&mut self, session: &Session) -> Result<Ended, Fault> {
        let query = &QUERIES[self.random.random_range(0..QUERIES.len())];
        let batches = self.ask(session, query.statement()).await.map_err(|fault| fault.at(query.name))?;
        let expected = self.answers.queries.get(query.name).map_or(&[][..], Vec::as_slice);
        Ok(verdict(difference(&batches, expected)?.map(|what| format!("{}: {what}", query.name))))
    }

    async fn point(&mut self, session: &Session) -> Result<Ended, Fault> {
        let points = &self.answers.points;
        let row = points.slice(self.random.random_range(0..points.num_rows().max(1)), 1);
        let key = row.column(0).as_primitive_opt::<Int64Type>().map_or(0, |keys| keys.value(0));
        let statement = format!("SELECT {} FROM orders WHERE o_orderkey = {key}", super::expected::POINT_COLUMNS);
        let batches = self.ask(session, &statement).await?;
        Ok(verdict(difference(&batches, &[row])?.map(|what| format!("order {key}: {what}"))))
    }

    /// Drops a long answer after its first rows.
    async fn cancel(&mut self, session: &Session) -> Result<Ended, Fault> {
        let mut answer = session.run("SELECT * FROM lineitem").await?;
        let first = answer.rows.next().await.transpose()?;
        Ok(verdict(first.is_none_or(|batch| batch.num_rows() == 0).then(|| "lineitem has no rows".to_owned())))
    }

    async fn load(&mut self) -> Result<Ended, Fault> {
        let before = self.loaded(self.place);
        let anew = before.generation == 0 || before.loads >= LOADS_A_GENERATION || before.uncertain;
        let rows = self.random.random_range(1..=LOAD_ROWS_MAX);
        let (schema, batch) = rows_to_load(rows);
        let name: DatasetName = format!("soak_{}", self.number).parse()?;
        let mode = if anew { LoadMode::Replace } else { LoadMode::Append };
        let partitioning = anew.then(|| PartitionBy::Hash(vec!["k".to_owned()]));
        let copies = anew.then_some(self.copies);
        let spec = LoadSpec { mode, partitioning, copies, ..LoadSpec::new(name, vec![]) };
        self.change(|loaded| match anew {
            true => *loaded = Loaded { generation: loaded.generation + 1, rows_begun: rows, ..Loaded::default() },
            false => loaded.rows_begun += rows,
        });
        match self.engine.host.load_batches(spec, schema, stream::iter([Ok(batch)]).boxed()).await {
            Ok(report) => {
                self.change(|loaded| {
                    loaded.rows += rows;
                    loaded.sum += rows * (rows - 1) / 2;
                    loaded.loads += 1;
                });
                let wrong = report.rows != rows as u64;
                Ok(verdict(wrong.then(|| format!("{rows} rows were loaded, and {} were acknowledged", report.rows))))
            }
            Err(fault) => {
                self.change(|loaded| loaded.uncertain = true);
                Err(fault)
            }
        }
    }

    /// Counts its own rows, which must be exactly those acknowledged, or those of a client that may be loading.
    async fn count(&mut self, session: &Session) -> Result<Ended, Fault> {
        let place = if self.random.random_bool(0.5) { self.place } else { self.random.random_range(0..self.board.len()) };
        let before = self.loaded(place);
        if before.generation == 0 || before.loads == 0 {
            return Ok(Ended::Right);
        }
        let counted = self.ask(session, &count_statement(self.first + place)).await;
        let after = self.loaded(place);
        if place != self.place && after.generation != before.generation {
            return match counted {
                Err(fault) if !matches!(fault.blame, Blame::Conflict | Blame::User) => Err(fault),
                _ => Ok(Ended::Overtaken),
            };
        }
        let batches = counted?;
        if place == self.place {
            return Ok(verdict(after.difference(&batches)));
        }
        let rows = self::counted(&batches).map_or(-1, |(rows, _)| rows);
        let is_right = before.rows <= rows && rows <= after.rows_begun;
        Ok(verdict((!is_right).then(|| {
            format!("{rows} rows, and {} were acknowledged before and {} begun after", before.rows, after.rows_begun)
        })))
    }

    async fn ask(&mut self, session: &Session, statement: &str) -> Result<Vec<RecordBatch>, Fault> {
        let answer = session.run(statement).await?;
        let profile = Arc::clone(&answer.profile);
        let batches = answer.rows.try_collect().await;
        let sums = profile.snapshot();
        self.report.busy += sums.busy;
        self.report.busy_ms += sums.busy_us as f64 / 1e3;
        self.report.failovers += sums.failovers;
        batches
    }

    fn loaded(&self, place: usize) -> Loaded {
        self.board.get(place).map_or_else(Loaded::default, |loaded| *loaded.lock().unwrap_or_else(|lost| lost.into_inner()))
    }

    fn change(&self, change: impl FnOnce(&mut Loaded)) {
        if let Some(loaded) = self.board.get(self.place) {
            change(&mut loaded.lock().unwrap_or_else(|lost| lost.into_inner()));
        }
    }
}

fn verdict(wrong: Option<String>) -> Ended {
    wrong.map_or(Ended::Right, Ended::Wrong)
}

fn tell(told: &mut Vec<String>, what: String) {
    if told.len() < TOLD_MAX {
        told.push(what);
    }
}

/// Rows 0, 1, 2 and so on.
fn rows_to_load(rows: i64) -> (SchemaRef, RecordBatch) {
    let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int64, false));
    let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
    let column = || Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef;
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column(), column()]);
    (schema, batch.unwrap_or_else(|error| unreachable!("two columns of numbers: {error}")))
}

/// Latencies in milliseconds, by kind of work.
pub(super) type Latencies = BTreeMap<String, Vec<f32>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: i64, sum: i64) -> Vec<RecordBatch> {
        let number = |value| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
        vec![RecordBatch::try_from_iter([("c", number(rows)), ("s", number(sum))]).unwrap()]
    }

    #[test]
    fn counts_must_be_what_was_acknowledged() {
        let loaded = Loaded { generation: 1, rows: 10, sum: 45, rows_begun: 10, loads: 1, uncertain: false };
        assert_eq!(loaded.difference(&answer(10, 45)), None);
        assert!(loaded.difference(&answer(9, 36)).is_some() && loaded.difference(&answer(20, 90)).is_some());
        let uncertain = Loaded { uncertain: true, ..loaded };
        assert!(uncertain.difference(&answer(20, 90)).is_none() && uncertain.difference(&answer(9, 36)).is_some());
        assert!(loaded.difference(&[]).is_some());
    }

    #[test]
    fn what_is_loaded_adds_up() {
        let (_, batch) = rows_to_load(10);
        let sum: i64 = batch.column(1).as_primitive::<Int64Type>().values().iter().sum();
        assert_eq!((batch.num_rows(), sum), (10, 45));
    }
}
