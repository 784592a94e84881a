//! [`Values`]: the rows of values that a client binds to a statement's placeholders.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pithead_door::compact;
use pithead_host::{Frames, Parameters};
use pithead_model::{Blame, Fault};

use crate::plain::plain_type;

/// Most bytes of values at a time.
pub(crate) const VALUES_BYTES_MAX: usize = 64 << 20;

/// What a column of a batch takes beside its values, about.
const COLUMN_BYTES: usize = 256;

/// Rows of values, the first column for `$1`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values {
    batches: Vec<RecordBatch>,
    /// Bytes that they hold in memory.
    bytes: usize,
}

impl Values {
    /// Adds rows, up to a bound, without what else was in their message.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = compact(batch);
        let bytes = self.bytes.saturating_add(held_bytes(&batch));
        if bytes > VALUES_BYTES_MAX {
            return Err(too_many());
        }
        self.bytes = bytes;
        self.batches.push(batch);
        Ok(())
    }

    /// Bytes that they hold in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A fault where a row cannot be given to a statement, before any is.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.each().try_for_each(|row| row.map(drop))
    }

    pub(crate) fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Each row as parameters of one run, made when it is asked for.
    pub(crate) fn each(&self) -> impl Iterator<Item = Result<Parameters, Fault>> + Send + 'static + use<> {
        let rows = self.batches.clone().into_iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| batch.slice(row, 1)));
        rows.map(|row| if row.num_columns() == 0 { Ok(Parameters::default()) } else { Parameters::by_place(&row) })
    }

    /// All rows as a table in memory under a name, whose columns are called as [`column_names`] says. None: there are no rows.
    pub(crate) fn as_table(&self, name: &str) -> Result<Option<Parameters>, Fault> {
        let Some(first) = self.batches.first() else { return Ok(None) };
        let names = column_names(first.num_columns());
        let fields = names
            .iter()
            .zip(first.schema_ref().fields())
            .map(|(name, field)| field.as_ref().clone().with_name(name).with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let renamed = |batch: &RecordBatch| {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(Arc::clone(&schema), batch.columns().to_vec(), &options)
                .map_err(|error| Fault::invalid(format!("the values have different types: {error}")))
        };
        let batches = self.batches.iter().map(renamed).collect::<Result<Vec<_>, _>>()?;
        let mut frames = Frames::default();
        frames.add(name, Arc::clone(&schema), &batches)?;
        Ok(Some(Parameters::default().with_frames(frames)))
    }

    /// How many values a row has; none: there are no rows.
    pub(crate) fn columns(&self) -> Option<usize> {
        self.batches.first().map(RecordBatch::num_columns)
    }
}

/// Bytes that a batch keeps in memory. All its columns may lie in one message, which is counted once.
fn held_bytes(batch: &RecordBatch) -> usize {
    let mut seen = HashSet::new();
    batch.columns().iter().map(|column| COLUMN_BYTES + held_by(&column.to_data(), &mut seen)).sum()
}

fn held_by(data: &ArrayData, seen: &mut HashSet<usize>) -> usize {
    let buffers = data.buffers().iter().chain(data.nulls().map(|nulls| nulls.buffer()));
    let own = buffers.filter(|buffer| seen.insert(buffer.data_ptr().as_ptr() as usize)).map(|buffer| buffer.capacity());
    own.sum::<usize>() + data.child_data().iter().map(|child| held_by(child, seen)).sum::<usize>()
}

/// What is said of values over the bound.
pub(crate) fn too_many() -> Fault {
    let fault = Fault::new(Blame::Limit, format!("the values have over {VALUES_BYTES_MAX} bytes, which is the bound"));
    fault.hint("load many rows by ingestion (adbc_ingest), which streams them, or in several calls")
}

/// The names of the values as columns.
pub(crate) fn column_names(count: usize) -> Vec<String> {
    (1..=count).map(|place| place.to_string()).collect()
}

/// The placeholders as a client is told of them. One of which nothing is known is a text.
pub(crate) fn parameter_schema(types: &[Option<DataType>]) -> SchemaRef {
    let field = |(place, known): (usize, &Option<DataType>)| {
        let data_type = known.as_ref().map_or(DataType::Utf8, plain_type);
        Field::new(format!("${place}"), data_type, true)
    };
    Arc::new(Schema::new((1..).zip(types).map(field).collect::<Vec<_>>()))
}

/// Values of the types that a statement wants, to plan it with before any are bound.
pub(crate) fn nulls(types: &[Option<DataType>]) -> Result<Parameters, Fault> {
    if types.is_empty() {
        return Ok(Parameters::default());
    }
    let of = |known: &Option<DataType>| new_null_array(known.as_ref().unwrap_or(&DataType::Utf8), 1);
    let columns: Vec<ArrayRef> = types.iter().map(of).collect();
    let names = column_names(types.len());
    let row =
        RecordBatch::try_from_iter_with_nullable(names.into_iter().zip(columns).map(|(name, column)| (name, column, true)));
    Parameters::by_place(&row.map_err(Fault::bug)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringViewArray, StructArray};

    use super::*;

    fn batch(values: Vec<i64>) -> RecordBatch {
        RecordBatch::try_from_iter([("x", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()
    }

    #[test]
    fn rows_are_bound_one_by_one_or_as_a_table() {
        let mut values = Values::default();
        assert!(values.as_table("t").unwrap().is_none());
        values.push(&batch(vec![1, 2])).unwrap();
        values.push(&batch(vec![])).unwrap();
        values.push(&batch(vec![3])).unwrap();
        assert_eq!((values.rows(), values.each().count(), values.columns()), (3, 3, Some(1)));
        assert!(values.check().is_ok() && values.each().all(|row| !row.unwrap().is_empty()));
        assert!(values.as_table("t").unwrap().is_some());
        assert_eq!(values.bytes(), 24 + 2 * COLUMN_BYTES);
        assert_eq!(values.push(&batch(vec![0; VALUES_BYTES_MAX / 8])).unwrap_err().blame, Blame::Limit);
    }

    /// A row was counted by what it needs, and kept the whole message that it came in.
    #[test]
    fn a_row_keeps_no_more_than_is_counted() {
        const ROWS: usize = 1 << 20;
        let texts = StringViewArray::from_iter_values((0..ROWS).map(|row| format!("text {row} is longer than a view")));
        let inner = Arc::new(Field::new("text", DataType::Utf8View, true));
        let nested: ArrayRef = Arc::new(StructArray::from(vec![(inner, Arc::new(texts) as ArrayRef)]));
        let mut values = Values::default();
        for large in [batch(vec![7; ROWS]), RecordBatch::try_from_iter([("x", nested)]).unwrap()] {
            let before = values.bytes();
            values.push(&large.slice(ROWS / 2, 1)).unwrap();
            let kept = values.batches.last().unwrap().get_array_memory_size();
            assert!(values.bytes() - before + 4 * COLUMN_BYTES >= kept, "{kept} bytes are kept");
        }
        let numbers = values.batches[0].get_array_memory_size();
        assert!(numbers < 1_000, "{numbers}");
    }

    #[test]
    fn placeholders_are_told_in_plain_types() {
        let types = [Some(DataType::Utf8View), None, Some(DataType::Int32)];
        let told: Vec<_> = parameter_schema(&types).fields().iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(told, [DataType::Utf8, DataType::Utf8, DataType::Int32]);
        assert!(nulls(&[]).unwrap().is_empty() && !nulls(&types).unwrap().is_empty());
    }
}
