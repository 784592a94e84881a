//! Types of columns that Parquet has no types for: moments and times of day in seconds, and dates in milliseconds. Without a
//! type, other readers take them for whole numbers, so they are written as milliseconds, and as days. A note at each such field
//! says what it was, and our own reader gives it back so.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, make_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Date64Type, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

/// The note of a field, and what it says.
const NOTE: &str = "pithead:was";
const SECONDS: &str = "seconds";
const DATE64: &str = "date64";

const MILLISECONDS_A_DAY: i64 = 86_400_000;

/// What a date in milliseconds is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dates {
    /// As a day.
    Days,
    /// As a moment, since it has a time of day.
    Moments,
}

/// The columns as they are written, where `dates` says what dates in each of them are. The same ones, if Parquet has types for
/// all of them.
pub(crate) fn written(schema: &SchemaRef, dates: &dyn Fn(usize) -> Dates) -> SchemaRef {
    let fields = schema.fields().iter().enumerate();
    let fields: Vec<FieldRef> = fields.map(|(column, field)| written_field(field, dates(column))).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn written_field(field: &FieldRef, dates: Dates) -> FieldRef {
    let (data_type, note) = match (field.data_type(), dates) {
        (DataType::Timestamp(TimeUnit::Second, zone), _) => {
            (DataType::Timestamp(TimeUnit::Millisecond, zone.clone()), Some(SECONDS))
        }
        (DataType::Time32(TimeUnit::Second), _) => (DataType::Time32(TimeUnit::Millisecond), Some(SECONDS)),
        (DataType::Date64, Dates::Days) => (DataType::Date32, Some(DATE64)),
        (DataType::Date64, Dates::Moments) => (DataType::Timestamp(TimeUnit::Millisecond, None), Some(DATE64)),
        (other, dates) => (of_members(other, &|member| written_field(member, dates)), None),
    };
    // Rows that come from a file without being loaded may have its notes, which hold no longer.
    let field = without_note(field);
    let mut metadata = field.metadata().clone();
    metadata.extend(note.map(|note| (NOTE.to_owned(), note.to_owned())));
    match data_type == *field.data_type() {
        true => Arc::new(field.with_metadata(metadata)),
        // A field that was a dictionary must not stay marked as one.
        false => Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(metadata)),
    }
}

/// The columns of a file as they were before they were written: what notes say is taken where it can be so.
pub(crate) fn as_noted(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(noted_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn noted_field(field: &FieldRef) -> FieldRef {
    let data_type = match (field.metadata().get(NOTE).map(String::as_str), field.data_type()) {
        (Some(SECONDS), DataType::Timestamp(TimeUnit::Millisecond, zone)) => {
            DataType::Timestamp(TimeUnit::Second, zone.clone())
        }
        (Some(SECONDS), DataType::Time32(TimeUnit::Millisecond)) => DataType::Time32(TimeUnit::Second),
        (Some(DATE64), DataType::Date32 | DataType::Timestamp(TimeUnit::Millisecond, None)) => DataType::Date64,
        (_, other) => of_members(other, &noted_field),
    };
    Arc::new(without_note(field).with_data_type(data_type))
}

fn without_note(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(NOTE);
    field.clone().with_metadata(metadata)
}

/// A type with other members.
fn of_members(data_type: &DataType, member: &dyn Fn(&FieldRef) -> FieldRef) -> DataType {
    match data_type {
        DataType::List(item) => DataType::List(member(item)),
        DataType::LargeList(item) => DataType::LargeList(member(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(member(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(member).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(member(entries), *is_sorted),
        // Parquet writes no dictionaries of its own into the types of columns.
        DataType::Dictionary(_, value) => {
            let plain = member(&Arc::new(Field::new("", value.as_ref().clone(), true)));
            if plain.data_type() == value.as_ref() { data_type.clone() } else { plain.data_type().clone() }
        }
        other => other.clone(),
    }
}

/// The rows in the types that a schema has for the same columns. A value that does not fit is an error.
pub(crate) fn converted(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = || batch.columns().iter().zip(schema.fields());
    if columns().all(|(column, field)| column.data_type() == field.data_type()) {
        return Ok(batch);
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let converted = columns().map(|(column, field)| cast_with_options(column, field.data_type(), &options));
    let converted = converted.collect::<Result<Vec<ArrayRef>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), converted, &rows)
}

/// Whether there are dates in milliseconds in a column of a type.
pub(crate) fn has_dates(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date64 => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::Map(item, _) => {
            has_dates(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_dates(field.data_type())),
        DataType::Dictionary(_, value) => has_dates(value),
        _ => false,
    }
}

/// What the dates of a column are.
pub(crate) fn dates_of(column: &dyn Array) -> Dates {
    let has_time = match column.data_type() {
        DataType::Date64 => column.as_primitive::<Date64Type>().iter().flatten().any(|date| date % MILLISECONDS_A_DAY != 0),
        other if has_dates(other) => {
            let data = column.to_data();
            data.child_data().iter().any(|child| dates_of(&make_array(child.clone())) == Dates::Moments)
        }
        _ => false,
    };
    if has_time { Dates::Moments } else { Dates::Days }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Date64Array, FixedSizeListArray, ListArray, MapArray, StructArray, Time32MillisecondArray,
        Time32SecondArray, TimestampMillisecondArray, TimestampSecondArray,
    };
    use arrow::buffer::OffsetBuffer;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

    use super::*;
    use crate::input::Input;
    use crate::parquet::ParquetSource;
    use crate::source::Source;
    use crate::{Format, WriteError, WriteOptions, file_writer};

    const DAY: i64 = MILLISECONDS_A_DAY;

    fn file(batches: &[RecordBatch]) -> Result<Vec<u8>, WriteError> {
        let mut out = Vec::new();
        let mut writer = file_writer(&WriteOptions::new(Format::Parquet), &batches[0].schema(), &mut out)?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()?;
        Ok(out)
    }

    /// The rows as readers find them, that know Parquet's own types and no more.
    fn as_others_read(file: Vec<u8>) -> RecordBatch {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let mut reader = ParquetRecordBatchReaderBuilder::try_new_with_options(Bytes::from(file), options).unwrap();
        reader = reader.with_batch_size(100);
        reader.build().unwrap().next().unwrap().unwrap()
    }

    /// The rows as a load reads them.
    fn as_we_read(file: &[u8]) -> RecordBatch {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        std::fs::write(&path, file).unwrap();
        let source = ParquetSource::open(&Input::Local(path)).unwrap();
        let all = source.read(0, 100, None).unwrap().next().unwrap().unwrap().batch;
        assert_eq!(all.schema_ref(), source.schema());
        for column in 0..all.num_columns() {
            let alone = source.read(0, 100, Some(column)).unwrap().next().unwrap().unwrap().batch;
            assert_eq!(alone.column(0), all.column(column));
        }
        all
    }

    fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
    }

    /// A regression: these were whole numbers without a type to DuckDB and others.
    #[test]
    fn seconds_and_dates_have_types_that_all_readers_know() {
        let seconds = TimestampSecondArray::from(vec![Some(1_704_067_200), None, Some(-1)]);
        let batch = rows(vec![
            ("ts", Arc::new(seconds.clone())),
            ("tz", Arc::new(seconds.with_timezone("Europe/Berlin"))),
            ("t", Arc::new(Time32SecondArray::from(vec![Some(86_399), None, Some(0)]))),
            ("d", Arc::new(Date64Array::from(vec![Some(19_723 * DAY), None, Some(-DAY)]))),
        ]);
        let file = file(std::slice::from_ref(&batch)).unwrap();
        let milliseconds = TimestampMillisecondArray::from(vec![Some(1_704_067_200_000), None, Some(-1_000)]);
        let expected: Vec<ArrayRef> = vec![
            Arc::new(milliseconds.clone()),
            Arc::new(milliseconds.with_timezone("UTC")),
            Arc::new(Time32MillisecondArray::from(vec![Some(86_399_000), None, Some(0)])),
            Arc::new(Date32Array::from(vec![Some(19_723), None, Some(-1)])),
        ];
        assert_eq!(as_others_read(file.clone()).columns(), expected);
        assert_eq!(as_we_read(&file), batch);
    }

    #[test]
    fn members_of_columns_have_such_types_too() {
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![Some(1), None]));
        let dates: ArrayRef = Arc::new(Date64Array::from(vec![Some(DAY), None]));
        let member = |name: &str, of: &ArrayRef| Arc::new(Field::new(name, of.data_type().clone(), true));
        let offsets = || OffsetBuffer::from_lengths([1, 1]);
        let item = Arc::new(Field::new_list_field(seconds.data_type().clone(), true));
        let list: ArrayRef = Arc::new(ListArray::new(Arc::clone(&item), offsets(), Arc::clone(&seconds), None));
        let fixed: ArrayRef = Arc::new(FixedSizeListArray::new(item, 1, Arc::clone(&seconds), None));
        let fields = vec![member("s", &seconds), member("d", &dates), member("l", &list)];
        let columns = vec![Arc::clone(&seconds), dates, list.clone()];
        let rows_of = StructArray::new(fields.into(), columns, None);
        let keys: ArrayRef = Arc::new(arrow::array::StringViewArray::from(vec!["a", "b"]));
        let key = Arc::new(Field::new("keys", keys.data_type().clone(), false));
        let entries = StructArray::new(vec![key, member("values", &seconds)].into(), vec![keys, seconds], None);
        let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let map = MapArray::new(entry, offsets(), entries, None, false);
        let batch = rows(vec![("l", list), ("f", fixed), ("r", Arc::new(rows_of)), ("m", Arc::new(map))]);
        let file = file(std::slice::from_ref(&batch)).unwrap();
        assert_eq!(as_we_read(&file), batch);
        let types =
            as_others_read(file).schema().fields().iter().map(|field| field.data_type().to_string()).collect::<String>();
        assert_eq!((types.matches("Timestamp(ms)").count(), types.matches("Date32").count()), (5, 1), "{types}");
        assert!(!types.contains("Int"), "{types}");
    }

    #[test]
    fn dates_with_a_time_of_day_are_written_as_moments() {
        let dates = |dates: Vec<i64>| rows(vec![("d", Arc::new(Date64Array::from(dates)))]);
        let file_of = file(&[dates(vec![]), dates(vec![DAY, DAY + 1]), dates(vec![DAY])]).unwrap();
        let expected = TimestampMillisecondArray::from(vec![DAY, DAY + 1, DAY]);
        assert_eq!(as_others_read(file_of.clone()).column(0).as_ref(), &expected);
        assert_eq!(as_we_read(&file_of).column(0).as_ref(), &Date64Array::from(vec![DAY, DAY + 1, DAY]));
        // A note that rows have from another file says nothing of what is written.
        let noted = Field::new("d", DataType::Timestamp(TimeUnit::Millisecond, None), true);
        let noted = noted.with_metadata([(NOTE.to_owned(), SECONDS.to_owned())].into());
        let moments = TimestampMillisecondArray::from(vec![1]);
        let noted = RecordBatch::try_new(Arc::new(Schema::new(vec![noted])), vec![Arc::new(moments.clone())]).unwrap();
        assert_eq!(as_we_read(&file(&[noted]).unwrap()).column(0).as_ref(), &moments);
        let later = file(&[dates(vec![DAY]), dates(vec![DAY + 1])]).unwrap_err();
        assert!(later.to_string().starts_with("column d: a date has a time of day"), "{later}");
        let none = file(&[dates(vec![])]).unwrap();
        assert!(ParquetRecordBatchReaderBuilder::try_new(Bytes::from(none)).is_ok());
    }

    #[test]
    fn what_cannot_be_in_milliseconds_is_an_error() {
        let batch = rows(vec![("ts", Arc::new(TimestampSecondArray::from(vec![i64::MAX])))]);
        assert!(matches!(file(&[batch]), Err(WriteError::Rows(_))));
    }
}
