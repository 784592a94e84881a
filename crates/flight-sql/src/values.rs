//! [`Values`]: the rows of values that a client binds to a statement's placeholders.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pithead_door::batch_bytes;
use pithead_host::{Frames, Parameters};
use pithead_model::{Blame, Fault};

use crate::plain::plain_type;

/// Most bytes of values at a time.
pub(crate) const VALUES_BYTES_MAX: usize = 64 << 20;

/// Rows of values, the first column for `$1`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(Vec<RecordBatch>);

impl Values {
    /// Adds rows, up to a bound.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<(), Fault> {
        let bytes = self.bytes() + batch_bytes(&batch);
        if bytes > VALUES_BYTES_MAX {
            let fault = Fault::new(Blame::Limit, format!("the values have over {VALUES_BYTES_MAX} bytes, which is the bound"));
            return Err(fault.hint("load many rows by ingestion (adbc_ingest), which streams them, or in several calls"));
        }
        if batch.num_rows() > 0 {
            self.0.push(batch);
        }
        Ok(())
    }

    /// Bytes that they take. All columns of a batch lie in one message, which each of their buffers would count whole.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(batch_bytes).sum()
    }

    pub(crate) fn rows(&self) -> usize {
        self.0.iter().map(RecordBatch::num_rows).sum()
    }

    /// Each row as parameters of one run, made when it is asked for.
    pub(crate) fn each(&self) -> impl Iterator<Item = Result<Parameters, Fault>> + Send + 'static + use<> {
        let rows = self.0.clone().into_iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| batch.slice(row, 1)));
        rows.map(|row| if row.num_columns() == 0 { Ok(Parameters::default()) } else { Parameters::by_place(&row) })
    }

    /// All rows as a table in memory under a name, whose columns are called as [`column_names`] says. None: there are no rows.
    pub(crate) fn as_table(&self, name: &str) -> Result<Option<Parameters>, Fault> {
        let Some(first) = self.0.first() else { return Ok(None) };
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
        let batches = self.0.iter().map(renamed).collect::<Result<Vec<_>, _>>()?;
        let mut frames = Frames::default();
        frames.add(name, Arc::clone(&schema), &batches)?;
        Ok(Some(Parameters::default().with_frames(frames)))
    }

    /// How many values a row has; none: there are no rows.
    pub(crate) fn columns(&self) -> Option<usize> {
        self.0.first().map(RecordBatch::num_columns)
    }
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
    use arrow::array::Int64Array;

    use super::*;

    fn batch(values: Vec<i64>) -> RecordBatch {
        RecordBatch::try_from_iter([("x", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()
    }

    #[test]
    fn rows_are_bound_one_by_one_or_as_a_table() {
        let mut values = Values::default();
        assert!(values.as_table("t").unwrap().is_none());
        values.push(batch(vec![1, 2])).unwrap();
        values.push(batch(vec![])).unwrap();
        values.push(batch(vec![3])).unwrap();
        assert_eq!((values.rows(), values.each().count(), values.columns()), (3, 3, Some(1)));
        assert!(values.each().all(|row| !row.unwrap().is_empty()));
        assert!(values.as_table("t").unwrap().is_some());
        assert_eq!(values.bytes(), 24);
        assert_eq!(values.push(batch(vec![0; VALUES_BYTES_MAX / 8])).unwrap_err().blame, Blame::Limit);
    }

    #[test]
    fn placeholders_are_told_in_plain_types() {
        let types = [Some(DataType::Utf8View), None, Some(DataType::Int32)];
        let told: Vec<_> = parameter_schema(&types).fields().iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(told, [DataType::Utf8, DataType::Utf8, DataType::Int32]);
        assert!(nulls(&[]).unwrap().is_empty() && !nulls(&types).unwrap().is_empty());
    }
}
