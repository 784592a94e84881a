//! What happens in a session: queries, one after another, and loads between them.

use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use pithead_host::LoadMode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::random::choices::Choices;
use crate::random::queries::{Query, query};
use crate::random::tables::{Database, Table};

/// Rows that one load adds at most.
const ROWS_ADDED_MAX: usize = 20;
/// Queries that are asked again after a load at most.
const REPEATS_MAX: usize = 3;
/// How far back they are looked for.
const REMEMBERED: usize = 8;

/// One thing that happens.
#[derive(Clone)]
pub(crate) enum Step {
    /// A query is asked in all of its ways.
    Ask(Query),
    /// Rows come to a table.
    Load(Load),
}

/// Rows that come to a table, or take the place of its rows.
#[derive(Clone)]
pub(crate) struct Load {
    /// The table's name.
    pub(crate) table: String,
    pub(crate) rows: RecordBatch,
    pub(crate) mode: LoadMode,
}

/// So many queries over a database, with loads between them, after which queries of before are asked again.
pub(crate) fn script(seed: u64, database: &Database, queries: usize) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut steps = Vec::new();
    let mut asked: Vec<Query> = Vec::new();
    for number in 0..queries {
        let choices = Choices::random(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let query = query(choices, database, number);
        steps.push(Step::Ask(query.clone()));
        asked.push(query);
        if random.random_bool(0.15) && database.without.makes("loads") {
            let load = Load::random(&mut random, table_of(asked.last(), database));
            let recent = asked.iter().rev().take(REMEMBERED).filter(|query| load.concerns(query));
            let again: Vec<Step> = recent.take(REPEATS_MAX).map(|query| Step::Ask(query.clone())).collect();
            steps.push(Step::Load(load));
            steps.extend(again);
        }
    }
    steps
}

/// A table that the query names.
fn table_of<'a>(query: Option<&Query>, database: &'a Database) -> &'a Table {
    let named = |table: &&Table| query.is_some_and(|query| table.is_named(&query.asks[0].sql));
    database.tables.iter().find(named).unwrap_or(&database.tables[0])
}

impl Load {
    /// Rows like those that the table has: some more, none, or others in their place.
    fn random(random: &mut StdRng, table: &Table) -> Load {
        let known = table.rows.num_rows();
        let (mode, count) = match random.random_range(0..6) {
            0 => (LoadMode::Append, 0),
            1 => (LoadMode::Replace, random.random_range(0..=known)),
            _ => (LoadMode::Append, random.random_range(1..=ROWS_ADDED_MAX)),
        };
        let count = if known == 0 { 0 } else { count };
        let places: UInt64Array = (0..count).map(|_| Some(random.random_range(0..known) as u64)).collect();
        let rows = take_record_batch(&table.rows, &places).expect("places are within the table");
        Load { table: table.name.clone(), rows, mode }
    }

    /// The same with the rows at these places only.
    pub(crate) fn with_rows(&self, places: &[u64]) -> Load {
        let rows = take_record_batch(&self.rows, &UInt64Array::from(places.to_vec())).expect("places are within the load");
        Load { rows, ..self.clone() }
    }

    /// It leaves all rows as they are.
    pub(crate) fn changes_nothing(&self) -> bool {
        self.mode == LoadMode::Append && self.rows.num_rows() == 0
    }

    /// A query's answer may change by it.
    fn concerns(&self, query: &Query) -> bool {
        query.asks.iter().any(|ask| ask.sql.contains(&format!("{} AS ", self.table)))
    }
}
