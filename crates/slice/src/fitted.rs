//! [`FittedReader`]: a slice with the columns that its dataset has by now.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::{cast, take};
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use pithead_model::PageSet;

use crate::fit::{Fit, Origin};
use crate::guard::check_columns;
use crate::stored::SliceParts;
use crate::{Predicate, Scan, ScanRequest, Search, SliceError, SliceReader};

/// Over a slice as it is stored. Conditions on columns that are not stored as they are wanted are left to whoever asks.
#[derive(Debug)]
struct FittedReader {
    fit: Arc<Fit>,
    slice: Arc<dyn SliceReader>,
}

/// A slice as it is stored with the columns that are wanted.
pub fn fitted(fit: &Arc<Fit>, slice: Arc<dyn SliceReader>) -> Arc<dyn SliceReader> {
    Arc::new(FittedReader { fit: Arc::clone(fit), slice })
}

impl FittedReader {
    /// The place of a column in what is stored, if it is stored as it is wanted.
    fn place(&self, column: usize) -> Option<usize> {
        match self.fit.origin(column)? {
            Origin::Stored(place) => Some(*place),
            Origin::Widened(_) | Origin::Filled(_) => None,
        }
    }

    /// The stored columns that these come from, each once.
    fn stored(&self, columns: &[usize]) -> Vec<usize> {
        let mut stored = Vec::new();
        for column in columns {
            if let Some(Origin::Stored(place) | Origin::Widened(place)) = self.fit.origin(*column)
                && !stored.contains(place)
            {
                stored.push(*place);
            }
        }
        stored
    }

    /// The conditions on stored columns, and which of all they are.
    fn predicates(&self, predicates: &[Predicate]) -> (Vec<Predicate>, Vec<usize>) {
        let place = |column| self.place(column);
        let moved = predicates.iter().enumerate().filter_map(|(index, predicate)| Some((predicate.among(&place)?, index)));
        moved.unzip()
    }

    /// The request to what is stored, how its rows become those that are wanted, and which conditions it has.
    fn request(&self, request: &ScanRequest) -> Result<(ScanRequest, Made, Vec<usize>), SliceError> {
        check_columns(self.fit.wanted(), request)?;
        let columns = self.stored(&request.columns);
        let (predicates, indices) = self.predicates(&request.predicates);
        let keys = request.keys.iter().filter_map(|(column, keys)| Some((self.place(*column)?, Arc::clone(keys)))).collect();
        let made = Made {
            schema: Arc::new(self.fit.wanted().project(&request.columns).map_err(arrow)?),
            fit: Arc::clone(&self.fit),
            columns: request.columns.clone(),
            stored: columns.clone(),
        };
        Ok((ScanRequest { columns, predicates, keys, ..request.clone() }, made, indices))
    }
}

impl SliceReader for FittedReader {
    fn rows(&self) -> u64 {
        self.slice.rows()
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        let (request, made, indices) = self.request(&request)?;
        let Scan { stream, applied } = self.slice.scan(request)?;
        let stream = stream.map(move |batch| batch.and_then(|batch| made.of(&batch))).boxed();
        Ok(Scan { stream, applied: among(&applied, &indices) })
    }

    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError> {
        self.slice.may_match(&self.predicates(predicates).0)
    }

    fn rows_of(&self, pages: &PageSet) -> u64 {
        self.slice.rows_of(pages)
    }

    fn search(&self, request: ScanRequest) -> Result<Search, SliceError> {
        let (request, made, indices) = self.request(&request)?;
        let Search { windows, stream, applied } = self.slice.search(request)?;
        let stream = stream.map(move |batch| batch.and_then(|batch| batch.map(|batch| made.of(&batch)).transpose())).boxed();
        Ok(Search { windows, stream, applied: among(&applied, &indices) })
    }

    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
        self.slice.parts(&self.stored(columns), pages)
    }

    fn is_far(&self) -> bool {
        self.slice.is_far()
    }
}

/// The conditions that were applied, as they were asked for.
fn among(applied: &[usize], indices: &[usize]) -> Vec<usize> {
    applied.iter().filter_map(|index| indices.get(*index).copied()).collect()
}

/// How rows of stored columns become rows that are wanted.
struct Made {
    fit: Arc<Fit>,
    schema: SchemaRef,
    columns: Vec<usize>,
    stored: Vec<usize>,
}

impl Made {
    fn of(&self, batch: &RecordBatch) -> Result<RecordBatch, SliceError> {
        let columns: Vec<ArrayRef> =
            (0..).zip(&self.columns).map(|(at, column)| self.column(at, *column, batch)).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(arrow)
    }

    /// The column at a place of the output.
    fn column(&self, at: usize, column: usize, batch: &RecordBatch) -> Result<ArrayRef, SliceError> {
        let data_type = self.schema.field(at).data_type();
        let read = |place: &usize| {
            let found = self.stored.iter().position(|stored| stored == place);
            let found = found.and_then(|found| batch.columns().get(found));
            found.ok_or_else(|| SliceError::Corrupt("a column that was asked for did not come".into()))
        };
        match self.fit.origin(column) {
            Some(Origin::Stored(place)) => read(place).cloned(),
            Some(Origin::Widened(place)) => cast(read(place)?, data_type).map_err(arrow),
            Some(Origin::Filled(Some(value))) => {
                take(value, &UInt32Array::from(vec![0; batch.num_rows()]), None).map_err(arrow)
            }
            Some(Origin::Filled(None)) => Ok(new_null_array(data_type, batch.num_rows())),
            None => Err(SliceError::Schema(format!("there is no column {column}"))),
        }
    }
}

fn arrow(error: arrow::error::ArrowError) -> SliceError {
    SliceError::Schema(error.to_string())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, Float32Array, Int32Array, StringViewArray};
    use arrow::compute::concat_batches;
    use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
    use futures::TryStreamExt;
    use pithead_model::Value;
    use pithead_model::lasting::{added, renamed};

    use super::*;
    use crate::{Compare, encode_slice, encoding, encoding_names, open_parts, open_slice};

    const ROWS: i32 = 20_000;

    fn stored() -> RecordBatch {
        let numbers = Int32Array::from_iter((0..ROWS).map(|row| (row % 7 != 0).then_some(row)));
        let texts = StringViewArray::from_iter_values((0..ROWS).map(|row| format!("text {}", row % 100)));
        let floats = Float32Array::from_iter_values((0..ROWS).map(|row| row as f32 / 4.0));
        let fields = vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Utf8View, false),
            Field::new("c", DataType::Float32, false),
        ];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![Arc::new(numbers), Arc::new(texts), Arc::new(floats)]).unwrap()
    }

    /// The columns of `stored` in another order, under each other's names, wider, and two that were added.
    fn wanted(stored: &SchemaRef) -> SchemaRef {
        let float = renamed(stored.field(2).clone(), "a").with_data_type(DataType::Float64);
        let number = renamed(stored.field(0).clone(), "c").with_data_type(DataType::Int64);
        let seven = added(Field::new("n", DataType::Int64, false), "n#1".into(), Some(Value::Int(7)));
        let nothing = added(Field::new("m", DataType::Utf8View, true), "m#1".into(), None);
        Arc::new(Schema::new(vec![float, seven, number, nothing, stored.field(1).clone()]))
    }

    fn made(name: &str) -> (RecordBatch, Arc<Fit>, Arc<dyn SliceReader>) {
        let batch = stored();
        let slice = encode_slice(&*encoding(name).unwrap(), &batch.schema(), std::slice::from_ref(&batch)).unwrap();
        let fit = Fit::of(&batch.schema(), &wanted(&batch.schema())).unwrap().unwrap();
        let reader = open_slice(&batch.schema(), slice.bytes).unwrap();
        (batch, Arc::clone(&fit), fitted(&fit, reader))
    }

    fn rows(reader: &dyn SliceReader, request: ScanRequest) -> (RecordBatch, Vec<usize>) {
        let Scan { stream, applied } = reader.scan(request).unwrap();
        let batches: Vec<RecordBatch> = futures::executor::block_on(stream.try_collect()).unwrap();
        (concat_batches(&batches[0].schema(), &batches).unwrap(), applied)
    }

    #[test]
    fn rows_of_before_have_the_columns_of_now() {
        for name in encoding_names() {
            let (batch, _, reader) = made(name);
            let (found, _) = rows(&*reader, ScanRequest::all_rows(vec![0, 1, 2, 3, 4, 2]));
            assert_eq!(found.num_rows(), batch.num_rows(), "{name}");
            let names: Vec<_> = found.schema().fields().iter().map(|field| field.name().clone()).collect();
            assert_eq!(names, ["a", "n", "c", "m", "b", "c"]);
            assert_eq!(found.column(0), &cast(batch.column(2), &DataType::Float64).unwrap());
            assert!(found.column(1).as_primitive::<Int64Type>().values().iter().all(|value| *value == 7));
            assert_eq!(found.column(2), &cast(batch.column(0), &DataType::Int64).unwrap());
            assert_eq!(found.column(3).null_count(), batch.num_rows());
            assert_eq!((found.column(4), found.column(5)), (batch.column(1), found.column(2)));
        }
    }

    #[test]
    fn columns_that_are_not_stored_need_none_that_are() {
        for name in encoding_names() {
            let (batch, _, reader) = made(name);
            let (found, _) = rows(&*reader, ScanRequest::all_rows(vec![3, 1]));
            assert_eq!((found.num_rows(), found.num_columns()), (batch.num_rows(), 2), "{name}");
            let parts = reader.parts(&[1], &reader.may_match(&[]).unwrap()).unwrap();
            assert_eq!(parts.rows, u64::from(ROWS as u32));
        }
    }

    #[test]
    fn what_is_said_to_be_applied_is() {
        let texts = Predicate::Compare { column: 4, op: Compare::Eq, value: Value::Text("text 3".into()) };
        let predicates = vec![
            Predicate::Compare { column: 1, op: Compare::Eq, value: Value::Int(8) },
            texts,
            Predicate::Compare { column: 2, op: Compare::Lt, value: Value::Int(9_000) },
            Predicate::IsNull(3),
        ];
        for name in encoding_names() {
            let (_, _, reader) = made(name);
            let request = ScanRequest { predicates: predicates.clone(), ..ScanRequest::all_rows(vec![4, 0]) };
            let (found, applied) = rows(&*reader, request.clone());
            let texts = found.column(0).as_string_view();
            let kept = (0..found.num_rows()).filter(|row| texts.value(*row) == "text 3").count();
            assert_eq!(kept as i32, ROWS / 100, "{name}: no row is missing");
            assert!(applied.iter().all(|index| *index == 1), "{name}: {applied:?}");
            assert!(applied.is_empty() || kept == found.num_rows(), "{name}: what is applied leaves no other row");
            let search = reader.search(request).unwrap();
            let batches: Vec<Option<RecordBatch>> = futures::executor::block_on(search.stream.try_collect()).unwrap();
            assert_eq!((batches.len(), search.applied), (search.windows.len(), applied), "{name}");
        }
    }

    #[test]
    fn parts_are_of_what_is_stored() {
        for name in encoding_names() {
            let (batch, fit, reader) = made(name);
            let pages = reader.may_match(&[]).unwrap();
            let parts = reader.parts(&[0, 2], &pages).unwrap();
            let came = fitted(&fit, open_parts(fit.stored(), parts, pages.as_bytes()).unwrap());
            let (found, _) = rows(&*came, ScanRequest::all_rows(vec![0]));
            let expected = cast(batch.column(2), &DataType::Float64).unwrap();
            assert_eq!(found.column(0).as_primitive::<Float64Type>(), expected.as_primitive::<Float64Type>(), "{name}");
        }
    }

    #[test]
    fn summaries_follow_their_columns() {
        let batch = stored();
        let slice = encode_slice(&*encoding("arrow").unwrap(), &batch.schema(), std::slice::from_ref(&batch)).unwrap();
        let fit = Fit::of(&batch.schema(), &wanted(&batch.schema())).unwrap().unwrap();
        let columns = fit.entry(&slice.entry).columns;
        assert_eq!(
            (&columns[0], &columns[2], &columns[4]),
            (&slice.entry.columns[2], &slice.entry.columns[0], &slice.entry.columns[1])
        );
        assert_eq!(
            (columns[1].min.clone(), columns[1].max.clone(), columns[1].nulls),
            (Some(Value::Int(7)), Some(Value::Int(7)), 0)
        );
        assert_eq!((columns[3].min.clone(), columns[3].nulls, columns[3].exact), (None, u64::from(ROWS as u32), true));
        assert_eq!(fit.nulls(&[5, 0, 1], 9), [1, 0, 5, 9, 0]);
    }

    #[test]
    fn what_cannot_be_read_so_is_refused() {
        let number = |name: &str, data_type| Arc::new(Schema::new(vec![Field::new(name, data_type, true)]));
        let of = |stored: &SchemaRef, wanted: &SchemaRef| Fit::of(stored, wanted).map(|fit| fit.is_some());
        let long = number("a", DataType::Int64);
        assert_eq!(of(&long, &long), Ok(false));
        assert_eq!(of(&number("a", DataType::Int32), &long), Ok(true));
        assert_eq!(of(&number("a", DataType::UInt32), &long), Ok(true));
        for other in [number("b", DataType::Int64), number("a", DataType::UInt64), number("a", DataType::Utf8View)] {
            assert!(of(&other, &long).is_err(), "{other:?}");
        }
        // The column of this name was dropped, and the one that is wanted is another one.
        let again = added(Field::new("a", DataType::Int64, true), "a#1".into(), None);
        let fit = Fit::of(&long, &Arc::new(Schema::new(vec![again]))).unwrap().unwrap();
        assert!(matches!(fit.origin(0), Some(Origin::Filled(None))));
    }
}
