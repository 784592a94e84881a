//! Splits batches over the partitions of a dataset.

mod hash;
mod keys;
mod range;
mod sample;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Schema};
use parking_lot::Mutex;
use pithead_model::{Fault, FaultKind, PAGE_ROWS, Partitioning, near_names};

pub(crate) use range::Bounds;
pub(crate) use sample::Sample;

/// Fewest rows of a piece that round-robin cuts off.
const PIECE_ROWS_MIN: usize = 512;

/// Sends each row to its partition. Shared by the threads of a load.
#[derive(Debug)]
pub struct Partitioner {
    rule: Rule,
    partitions: usize,
}

#[derive(Debug)]
enum Rule {
    /// Rows that each partition got so far.
    RoundRobin(Mutex<Vec<u64>>),
    /// Indices of the key's columns.
    Hash(Vec<usize>),
    /// Index of the column, and where the partitions end.
    Range(usize, Bounds),
}

impl Partitioner {
    /// For rows of this schema. Unknown columns and those of types that have no hash or order are errors.
    pub fn new(partitioning: &Partitioning, schema: &Schema, partitions: usize) -> Result<Self, Fault> {
        let rule = match partitioning {
            Partitioning::RoundRobin => Rule::RoundRobin(Mutex::new(vec![0; partitions])),
            Partitioning::Hash { columns } if columns.is_empty() => {
                return Err(Fault::invalid("hash partitioning needs a column"));
            }
            Partitioning::Hash { columns } => {
                Rule::Hash(columns.iter().map(|column| key_column(column, schema)).collect::<Result<_, _>>()?)
            }
            Partitioning::Range { column, bounds } => {
                let index = key_column(column, schema)?;
                Rule::Range(index, Bounds::new(bounds, schema.field(index), partitions)?)
            }
        };
        Ok(Self { rule, partitions })
    }

    /// The batch's rows in pieces, each with its partition. Pieces keep the order of rows and hold no memory that is
    /// not theirs.
    pub fn split(&self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>, Fault> {
        if batch.num_rows() == 0 {
            return Ok(Vec::new());
        }
        if self.partitions == 1 {
            return Ok(vec![(0, batch.clone())]);
        }
        match &self.rule {
            Rule::RoundRobin(rows) => Ok(deal(batch, &mut rows.lock())),
            Rule::Hash(columns) => {
                let hashes = hash::hash_rows(columns.iter().map(|index| batch.column(*index)))?;
                gather(batch, hashes.into_iter().map(|hash| hash::place(hash, self.partitions)), self.partitions)
            }
            Rule::Range(column, bounds) => gather(batch, bounds.place(batch.column(*column))?.into_iter(), self.partitions),
        }
    }

    /// Rows that a reader should give at once, so that pieces come out about a page long, and yet bounded for wide rows.
    pub(crate) fn batch_rows(&self, columns: usize) -> usize {
        const CELLS_MAX: usize = 4 << 20;
        let pages = match self.rule {
            Rule::RoundRobin(_) => 1,
            Rule::Hash(_) | Rule::Range(..) => self.partitions.clamp(1, 8),
        };
        (PAGE_ROWS * pages).min((CELLS_MAX / columns.max(1)).max(1024))
    }
}

/// A column that the schema lacks, with the near ones, or all of a few.
pub(crate) fn unknown_column(wanted: &str, schema: &Schema) -> Fault {
    const SHOWN_MAX: usize = 12;
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let near = near_names(wanted, names.iter().copied());
    let rest = match (near.is_empty(), names.len()) {
        (false, _) => format!("near: {}", near.join(", ")),
        (true, count) if count <= SHOWN_MAX => format!("the columns are {}", names.join(", ")),
        (true, count) => format!("there are {count}, the first {SHOWN_MAX} of them {}", names[..SHOWN_MAX].join(", ")),
    };
    Fault::invalid(format!("no column {wanted}; {rest}")).of_kind(FaultKind::NoColumn)
}

/// The index of a column that can be a partitioning key.
pub(crate) fn key_column(name: &str, schema: &Schema) -> Result<usize, Fault> {
    let index = schema.index_of(name).map_err(|_| unknown_column(name, schema))?;
    let data_type = schema.field(index).data_type();
    match keys::is_key(data_type) {
        true => Ok(index),
        false => Err(Fault::invalid(format!("cannot partition by column {name} of type {data_type}"))),
    }
}

/// The column that rows find their partition by where nobody says how: the first one, if its type is that of keys. Tables that are
/// joined by what is usually their first column then lie together.
pub(crate) fn likely_key(schema: &Schema) -> Option<&str> {
    let first = schema.fields().first()?;
    let is_text = matches!(first.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    (first.data_type().is_integer() || is_text).then_some(first.name().as_str())
}

/// The index of a column that rows can be sorted by: any but nested ones.
pub(crate) fn sort_column(name: &str, schema: &Schema) -> Result<usize, Fault> {
    let index = schema.index_of(name).map_err(|_| unknown_column(name, schema))?;
    let data_type = schema.field(index).data_type();
    let flat = !data_type.is_nested() && !matches!(data_type, DataType::Interval(_));
    match flat {
        true => Ok(index),
        false => Err(Fault::invalid(format!("cannot sort by column {name} of type {data_type}"))),
    }
}

/// Cuts the batch and gives each piece to the partition that has fewest rows. Pieces are small at first, so that
/// partitions are balanced even when there is only one batch, and whole pages once it no longer matters.
fn deal(batch: &RecordBatch, rows: &mut [u64]) -> Vec<(usize, RecordBatch)> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < batch.num_rows() {
        let so_far: u64 = rows.iter().sum();
        let share = usize::try_from(so_far).unwrap_or(usize::MAX) / (4 * rows.len());
        let length = share.clamp(PIECE_ROWS_MIN, PAGE_ROWS).min(batch.num_rows() - start);
        let partition = (0..rows.len()).min_by_key(|partition| rows[*partition]).unwrap_or(0);
        rows[partition] += length as u64;
        let piece = batch.slice(start, length);
        pieces.push((partition, if length == batch.num_rows() { piece } else { pithead_door::compact(&piece) }));
        start += length;
    }
    pieces
}

/// Collects each partition's rows. `places` gives one partition a row.
fn gather(
    batch: &RecordBatch,
    places: impl Iterator<Item = u32>,
    partitions: usize,
) -> Result<Vec<(usize, RecordBatch)>, Fault> {
    let mut rows_of: Vec<Vec<u32>> = vec![Vec::with_capacity(2 * batch.num_rows() / partitions + 16); partitions];
    for (row, place) in (0u32..).zip(places) {
        rows_of[place as usize].push(row);
    }
    let mut pieces = Vec::with_capacity(partitions);
    for (partition, rows) in rows_of.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        if rows.len() == batch.num_rows() {
            return Ok(vec![(partition, batch.clone())]);
        }
        let piece = take_record_batch(batch, &UInt32Array::from(rows)).map_err(Fault::bug)?;
        pieces.push((partition, pithead_door::compact(&piece)));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests;
