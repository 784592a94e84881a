//! Tables of a random database, and how they are laid out over drives.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use pithead_host::{Format, LoadSpec, PartitionBy};
use pithead_model::SortKey;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::random::values::{self, Kind, Values};

/// Names of columns. Tables share them, with other types: names are what engines confuse.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A database, made from one number.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) tables: Vec<Table>,
}

/// A table.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<ColumnFacts>,
    pub(crate) rows: RecordBatch,
    pub(crate) layout: Layout,
}

/// What the generator of queries knows of a column.
#[derive(Clone)]
pub(crate) struct ColumnFacts {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) kind: Kind,
    pub(crate) tame: bool,
    pub(crate) negative_zero: bool,
    pub(crate) distinct: usize,
    pub(crate) samples: Vec<String>,
}

/// How a table is loaded.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) partitioning: PartitionBy,
    pub(crate) sort: Option<String>,
    pub(crate) slice_rows: usize,
    pub(crate) copies: usize,
    /// Loaded in two parts, the second one appended.
    pub(crate) appended: bool,
}

impl Database {
    /// From a seed.
    pub(crate) fn random(seed: u64) -> Database {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(2..=4);
        Database { tables: (0..count).map(|number| Table::random(&mut random, number)).collect() }
    }
}

impl Table {
    fn random(random: &mut StdRng, number: usize) -> Table {
        let rows = match random.random_range(0..10) {
            0 => 0,
            1 => 1,
            2..5 => random.random_range(2..40),
            5..9 => random.random_range(100..400),
            _ => random.random_range(800..2_500),
        };
        let mut columns =
            vec![("id".to_owned(), DataType::Int64, ids(random, rows)), ("k".to_owned(), DataType::Int64, keys(random, rows))];
        let types = values::types();
        let mut names = NAMES;
        names.shuffle(random);
        for name in &names[..random.random_range(2..=6)] {
            let data_type = types[random.random_range(0..types.len())].clone();
            let values = values::column(random, &data_type, rows);
            columns.push(((*name).to_owned(), data_type, values));
        }
        let fields: Vec<Field> =
            columns.iter().map(|(name, data_type, _)| Field::new(name, data_type.clone(), name != "id")).collect();
        let arrays = columns.iter().map(|(.., values)| Arc::clone(&values.array)).collect();
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("columns are as the schema says");
        let layout = Layout::random(random, &columns[2..]);
        let columns = columns.into_iter().map(|(name, data_type, values)| ColumnFacts::new(name, data_type, values)).collect();
        Table { name: format!("t{number}"), columns, rows, layout }
    }

    /// The same with other rows.
    pub(crate) fn with_rows(&self, places: &[u64]) -> Table {
        let rows = take_record_batch(&self.rows, &UInt64Array::from(places.to_vec())).expect("places are within the table");
        Table { rows, ..self.clone() }
    }

    /// The same without a column.
    pub(crate) fn without(&self, name: &str) -> Table {
        let kept: Vec<usize> = (0..self.columns.len()).filter(|place| self.columns[*place].name != name).collect();
        let columns = kept.iter().map(|place| self.columns[*place].clone()).collect();
        Table { rows: self.rows.project(&kept).expect("columns of the table"), columns, ..self.clone() }
    }

    /// Writes its rows to one file, or two where it is appended to. Returns their paths.
    pub(crate) fn write(&self, directory: &Path) -> Vec<PathBuf> {
        let total = self.rows.num_rows();
        let cut = if self.layout.appended { total / 2 } else { total };
        let parts = [(0, cut), (cut, total - cut)];
        let parts = parts.iter().enumerate().take(if self.layout.appended { 2 } else { 1 });
        let write = |(number, (start, length)): (usize, &(usize, usize))| {
            let path = directory.join(format!("{}-{number}.parquet", self.name));
            let file = File::create(&path).expect("a file for a table");
            let mut writer = ArrowWriter::try_new(file, self.rows.schema(), None).expect("a Parquet writer");
            let part = concat_batches(&self.rows.schema(), [&self.rows.slice(*start, *length)]).expect("one schema");
            writer.write(&part).expect("rows are written");
            writer.close().expect("a Parquet file is closed");
            path
        };
        parts.map(write).collect()
    }

    /// How a file of it is loaded.
    pub(crate) fn spec(&self, file: &Path, encoding: &str, drives: usize) -> LoadSpec {
        let name = self.name.parse().expect("a valid name");
        LoadSpec {
            format: Some(Format::Parquet),
            partitioning: Some(self.layout.partitioning.clone()),
            sort: self.layout.sort.iter().map(|column| SortKey { column: column.clone(), descending: false }).collect(),
            encoding: Some(encoding.to_owned()),
            slice_rows: Some(self.layout.slice_rows),
            copies: Some(self.layout.copies.min(drives)),
            ..LoadSpec::new(name, vec![file.display().to_string()])
        }
    }
}

impl ColumnFacts {
    fn new(name: String, data_type: DataType, values: Values) -> ColumnFacts {
        let Values { tame, negative_zero, distinct, samples, .. } = values;
        ColumnFacts { name, kind: Kind::of(&data_type), data_type, tame, negative_zero, distinct, samples }
    }
}

impl Layout {
    fn random(random: &mut StdRng, others: &[(String, DataType, Values)]) -> Layout {
        let partitioning = match random.random_range(0..6) {
            0 => PartitionBy::RoundRobin,
            1 => PartitionBy::Range("id".to_owned()),
            2 => PartitionBy::Hash(vec!["k".to_owned(), others[0].0.clone()]),
            _ => PartitionBy::Hash(vec!["k".to_owned()]),
        };
        let sort = match random.random_range(0..4) {
            0 => Some("k".to_owned()),
            1 => Some(others[random.random_range(0..others.len())].0.clone()),
            _ => None,
        };
        let slice_rows = [4, 16, 64, 1_000][random.random_range(0..4)];
        let copies = if random.random_bool(0.2) { 2 } else { 1 };
        Layout { partitioning, sort, slice_rows, copies, appended: random.random_bool(0.2) }
    }
}

/// Unique whole numbers, in order or not.
fn ids(random: &mut StdRng, rows: usize) -> Values {
    let mut ids: Vec<i64> = (0..i64::try_from(rows).expect("few rows")).collect();
    if random.random_bool(0.5) {
        ids.shuffle(random);
    }
    whole(random, Arc::new(Int64Array::from(ids)), rows)
}

/// Keys that tables share.
fn keys(random: &mut StdRng, rows: usize) -> Values {
    let distinct = [3, 20, 100, rows.max(1)][random.random_range(0..4)];
    let nulls = [0.0, 0.1][random.random_range(0..2)];
    let key = |random: &mut StdRng| {
        (!random.random_bool(nulls)).then(|| i64::try_from(random.random_range(0..distinct)).expect("few keys"))
    };
    let mut keys: Vec<Option<i64>> = (0..rows).map(|_| key(random)).collect();
    if random.random_bool(0.5) {
        keys.sort_unstable();
    }
    whole(random, Arc::new(Int64Array::from(keys)), distinct)
}

fn whole(random: &mut StdRng, array: ArrayRef, distinct: usize) -> Values {
    let samples = values::samples(random, &array, &DataType::Int64);
    Values { array, distinct, tame: true, negative_zero: false, samples }
}
