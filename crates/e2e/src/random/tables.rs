//! Tables of a random database.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use pithead_host::{Format, LoadMode, LoadSpec, PartitionBy};
use pithead_model::SortKey;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::random::altered::{Before, as_if_added};
use crate::random::layout::{Arrival, Layout};
use crate::random::marked::with_others;
use crate::random::values::{self, TypeKind, Values};
use crate::random::without::Without;

/// Names of columns. Tables share them, with other types: names are what engines confuse.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Names that plans are known to make up.
const OURS: [&str; 10] =
    ["value_0", "value_1", "distinct_1", "part_0", "merged_0", "c0", "k0", "group_0", "computed", "rounds"];
/// Names of tables that plans are known to make up; `input` is also a domain.
const TABLES_OF_OURS: [&str; 5] = ["input", "rounds", "table_1", "computed", "drive0"];

/// A database, made from one number.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) tables: Vec<Table>,
    pub(crate) without: Without,
}

/// A table.
#[derive(Clone)]
pub(crate) struct Table {
    /// With its domain, if that is not `main`.
    pub(crate) name: String,
    pub(crate) columns: Vec<ColumnFacts>,
    pub(crate) rows: RecordBatch,
    pub(crate) layout: Layout,
}

/// What the generator of queries knows of a column.
#[derive(Clone)]
pub(crate) struct ColumnFacts {
    pub(crate) name: String,
    pub(crate) kind: TypeKind,
    pub(crate) tame: bool,
    pub(crate) distinct: usize,
    pub(crate) samples: Vec<String>,
}

/// A file of rows, and what a load does with it.
pub(crate) struct LoadStep {
    pub(crate) path: PathBuf,
    pub(crate) mode: LoadMode,
    /// What is said after it.
    pub(crate) then: Vec<String>,
}

impl Database {
    /// From a seed.
    pub(crate) fn random(seed: u64, without: &Without) -> Database {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(2..=4);
        let mut tables: Vec<Table> = (0..count).map(|number| Table::random(&mut random, number, without)).collect();
        if random.random_bool(0.35) {
            // Rows of one key are on one drive, whatever their table.
            for table in &mut tables {
                (table.layout.partitioning, table.layout.partitions) = (PartitionBy::Hash(vec!["k".to_owned()]), None);
            }
        }
        Database { tables, without: without.clone() }
    }

    /// The same with another table at a place.
    pub(crate) fn with(&self, place: usize, table: Table) -> Database {
        let mut tables = self.tables.clone();
        tables[place] = table;
        Database { tables, without: self.without.clone() }
    }
}

impl Table {
    fn random(random: &mut StdRng, number: usize, without: &Without) -> Table {
        let rows = match random.random_range(0..20) {
            0 => 0,
            1 => 1,
            2..12 => random.random_range(2..40),
            12..19 => random.random_range(60..250),
            _ => random.random_range(800..2_500),
        };
        let (key_type, keys) = keys(random, rows, without);
        let mut columns = vec![("id".to_owned(), DataType::Int64, ids(random, rows)), ("k".to_owned(), key_type, keys)];
        let types = values::types(without);
        let mut names = [&NAMES[..], if without.makes("names") { &OURS[..] } else { &[] }].concat();
        names.shuffle(random);
        for name in &names[..random.random_range(2..=6)] {
            let data_type = types[random.random_range(0..types.len())].clone();
            let values = values::column(random, &data_type, rows, without);
            columns.push(((*name).to_owned(), data_type, values));
        }
        let fields: Vec<Field> =
            columns.iter().map(|(name, data_type, _)| Field::new(name, data_type.clone(), name != "id")).collect();
        let arrays = columns.iter().map(|(.., values)| Arc::clone(&values.array)).collect();
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("columns are as the schema says");
        let layout = Layout::random(random, &columns, rows.num_rows());
        let rows = if layout.arrival == Arrival::Altered { as_if_added(random, &rows, &layout) } else { rows };
        let columns = columns.into_iter().map(|(name, data_type, values)| ColumnFacts::new(name, &data_type, values)).collect();
        Table { name: table_name(random, number, without), columns, rows, layout }
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

    /// Its name within its domain.
    pub(crate) fn bare_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Whether a query names it.
    pub(crate) fn is_named(&self, sql: &str) -> bool {
        sql.contains(&format!("{} AS ", self.name))
    }

    /// Writes its rows to the files that are loaded one after another.
    pub(crate) fn write(&self, directory: &Path) -> Vec<LoadStep> {
        let total = self.rows.num_rows();
        let half = total / 2;
        let parts = match self.layout.arrival {
            Arrival::Whole => vec![(0, total, LoadMode::Create)],
            Arrival::Appended => vec![(0, half, LoadMode::Create), (half, total - half, LoadMode::Append)],
            Arrival::Replaced => vec![(half, total - half, LoadMode::Create), (0, total, LoadMode::Replace)],
            Arrival::Altered => return self.write_altered(directory),
            Arrival::Marked => return self.write_marked(directory),
        };
        let write = |(number, (start, length, mode)): (usize, &(usize, usize, LoadMode))| {
            let path = self.file(directory, number);
            write_rows(&path, &self.rows.slice(*start, *length));
            LoadStep { path, mode: *mode, then: Vec::new() }
        };
        parts.iter().enumerate().map(write).collect()
    }

    /// The first rows as they are loaded, the others, and the first rows as they are in the end.
    fn write_altered(&self, directory: &Path) -> Vec<LoadStep> {
        let (total, half) = (self.rows.num_rows(), self.rows.num_rows() / 2);
        let first = self.rows.slice(0, half);
        let before = Before::of(&self.name, &first, &self.layout);
        let files = [0, 1, 2].map(|number| self.file(directory, number));
        write_rows(&files[0], &before.rows);
        write_rows(&files[1], &self.rows.slice(half, total - half));
        write_rows(&files[2], &first);
        let [first, second, _] = files;
        vec![
            LoadStep { path: first, mode: LoadMode::Create, then: before.statements },
            LoadStep { path: second, mode: LoadMode::Append, then: Vec::new() },
        ]
    }

    /// All rows as they are loaded, and those that are there in the end.
    fn write_marked(&self, directory: &Path) -> Vec<LoadStep> {
        let (all, then) = with_others(&self.name, &self.rows);
        let path = self.file(directory, 0);
        write_rows(&path, &all);
        write_rows(&self.file(directory, 1), &self.rows);
        vec![LoadStep { path, mode: LoadMode::Create, then }]
    }

    /// Those of its files whose rows it has in the end.
    pub(crate) fn files(&self, directory: &Path) -> Vec<PathBuf> {
        let numbers = match self.layout.arrival {
            Arrival::Whole => 0..1,
            Arrival::Appended => 0..2,
            Arrival::Replaced | Arrival::Marked => 1..2,
            Arrival::Altered => 1..3,
        };
        numbers.map(|number| self.file(directory, number)).collect()
    }

    fn file(&self, directory: &Path, number: usize) -> PathBuf {
        directory.join(format!("{}-{number}.parquet", self.name))
    }

    /// How a file of it is loaded.
    pub(crate) fn spec(&self, part: &LoadStep, encoding: &str, drives: usize) -> LoadSpec {
        let name = self.name.parse().expect("a valid name");
        let laid_out = part.mode != LoadMode::Append;
        // Vortex is the default, and not every column can be in it.
        let encoding = if encoding == "vortex" { None } else { Some(encoding.to_owned()) };
        LoadSpec {
            format: Some(Format::Parquet),
            mode: part.mode,
            partitioning: laid_out.then(|| self.layout.partitioning.clone()),
            partitions: self.layout.partitions.filter(|_| laid_out),
            sort: self.layout.sort.iter().map(|column| SortKey { column: column.clone(), descending: false }).collect(),
            encoding,
            slice_rows: Some(self.layout.slice_rows),
            copies: laid_out.then(|| self.layout.copies.min(drives)),
            ..LoadSpec::new(name, vec![part.path.display().to_string()])
        }
    }
}

/// Writes rows to a Parquet file.
pub(crate) fn write_rows(path: &Path, rows: &RecordBatch) {
    let file = File::create(path).expect("a file for a table");
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).expect("a Parquet writer");
    // Parquet's writer takes no slices of nested columns.
    let rows = concat_batches(&rows.schema(), [rows]).expect("one schema");
    writer.write(&rows).expect("rows are written");
    writer.close().expect("a Parquet file is closed");
}

impl ColumnFacts {
    fn new(name: String, data_type: &DataType, values: Values) -> ColumnFacts {
        let Values { tame, distinct, samples, .. } = values;
        ColumnFacts { name, kind: TypeKind::of(data_type), tame, distinct, samples }
    }
}

fn table_name(random: &mut StdRng, number: usize, without: &Without) -> String {
    match random.random_range(0..10) {
        _ if !without.makes("names") => format!("t{number}"),
        0 => format!("input.t{number}"),
        // No two tables have numbers of one remainder.
        1 => TABLES_OF_OURS[number % TABLES_OF_OURS.len()].to_owned(),
        _ => format!("t{number}"),
    }
}

/// Unique whole numbers, in order or not.
fn ids(random: &mut StdRng, rows: usize) -> Values {
    let mut ids: Vec<i64> = (0..i64::try_from(rows).expect("few rows")).collect();
    if random.random_bool(0.5) {
        ids.shuffle(random);
    }
    shared(random, Arc::new(Int64Array::from(ids)), rows)
}

/// Keys that tables share, in types that joins have to make equal.
fn keys(random: &mut StdRng, rows: usize, without: &Without) -> (DataType, Values) {
    let distinct = [3, 20, 100, rows.max(1)][random.random_range(0..4)];
    let nulls = [0.0, 0.1][random.random_range(0..2)];
    let key = |random: &mut StdRng| {
        (!random.random_bool(nulls)).then(|| i64::try_from(random.random_range(0..distinct)).expect("few keys"))
    };
    let mut keys: Vec<Option<i64>> = (0..rows).map(|_| key(random)).collect();
    if random.random_bool(0.5) {
        keys.sort_unstable();
    }
    let keys: ArrayRef = Arc::new(Int64Array::from(keys));
    let data_type = match random.random_range(0..20) {
        0..12 => DataType::Int64,
        12..15 => DataType::Int32,
        15 => DataType::Int16,
        16 => DataType::UInt32,
        18.. if without.makes("floats as keys") => DataType::Float64,
        _ => DataType::UInt64,
    };
    let mut keys = cast(&keys, &data_type).expect("keys are small");
    if data_type == DataType::Float64 && without.makes("zeros") {
        keys = with_both_zeros(random, &keys);
    }
    (data_type, shared(random, keys, distinct))
}

/// Some of the zeros become negative.
fn with_both_zeros(random: &mut StdRng, keys: &ArrayRef) -> ArrayRef {
    let keys = arrow::array::AsArray::as_primitive::<arrow::datatypes::Float64Type>(keys);
    let signed = |key: Option<f64>| key.map(|key| if key == 0.0 && random.random_bool(0.5) { -0.0 } else { key });
    Arc::new(keys.iter().map(signed).collect::<Float64Array>())
}

fn shared(random: &mut StdRng, array: ArrayRef, distinct: usize) -> Values {
    let samples = values::samples(random, &array, array.data_type());
    Values { array, distinct, tame: true, samples }
}
