//! Ingestion: rows from a client into a dataset, by a load. They become visible together at the end, or not at all.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use futures::StreamExt;
use pithead_host::{Host, LoadMode, LoadSpec, Right, Session, converted};
use pithead_model::{DatasetName, Fault, FaultKind};

use crate::error::Refused;
use crate::flight::CATALOG;
use crate::plain::plain_type;
use crate::put::Put;

/// Loads the rows of a put. How many there were.
pub(crate) async fn ingest(
    host: &Host,
    session: &Session,
    command: CommandStatementIngest,
    mut put: Put,
) -> Result<u64, Refused> {
    let name = target(session, &command)?;
    session.check(Right::Write, &name.domain)?;
    let present = host.fleet().snapshot().await?.dataset(&name).map(|(_, dataset)| Arc::new(dataset.clone()));
    let mode = mode(&command, &name, present.is_some())?;
    let schema = put.schema().await?;
    let schema = schema.ok_or_else(|| Refused::invalid("rows to load, which begin with their schema, did not come"))?;
    let spec = LoadSpec { mode, ..LoadSpec::new(name, vec![]) };
    let report = match present.filter(|_| mode == LoadMode::Append) {
        Some(present) => {
            let columns = Arc::clone(&present.schema);
            let places = ColumnPlaces::new(&schema, &columns)?;
            let rows = put.rows().map(move |batch| places.conform(&batch?)).boxed();
            host.load_batches(LoadSpec { over: Some(present), ..spec }, columns, rows).await?
        }
        None => host.load_batches(spec, schema, put.rows()).await?,
    };
    Ok(report.rows)
}

fn target(session: &Session, command: &CommandStatementIngest) -> Result<DatasetName, Refused> {
    if command.temporary {
        return Err(Refused::unimplemented("temporary tables are not kept here; load into a dataset, and drop it afterwards"));
    }
    if let Some(name) = command.options.keys().min() {
        return Err(Refused::unimplemented(format!("the option {name:?} is not known; expected none")));
    }
    if let Some(catalog) = command.catalog.as_ref().filter(|catalog| !catalog.is_empty() && *catalog != CATALOG) {
        return Err(Refused::not_found(format!("there is no catalog {catalog:?}; the only one is {CATALOG}")));
    }
    let domain = command.schema.clone().filter(|schema| !schema.is_empty()).unwrap_or_else(|| session.domain());
    Ok(DatasetName::new(domain, command.table.clone())?)
}

/// What is done with a dataset that is there, or that is not.
fn mode(command: &CommandStatementIngest, name: &DatasetName, is_there: bool) -> Result<LoadMode, Refused> {
    let options = command.table_definition_options.unwrap_or_default();
    match (is_there, options.if_exists(), options.if_not_exist()) {
        (true, TableExistsOption::Append, _) => Ok(LoadMode::Append),
        (true, TableExistsOption::Replace, _) => Ok(LoadMode::Replace),
        (true, TableExistsOption::Fail | TableExistsOption::Unspecified, _) => {
            let fault = Fault::invalid(format!("dataset {name} exists already")).of_kind(FaultKind::Exists);
            Err(fault.hint("append to it, or replace it").into())
        }
        (false, _, TableNotExistOption::Create) => Ok(LoadMode::Create),
        (false, _, TableNotExistOption::Fail | TableNotExistOption::Unspecified) => {
            let fault = Fault::invalid(format!("there is no dataset {name}")).of_kind(FaultKind::NoTable);
            Err(fault.hint("create it with this load").into())
        }
    }
}

/// Where the columns of a dataset are among those of the rows.
struct ColumnPlaces {
    schema: SchemaRef,
    /// None: the rows do not have it, and it is NULL.
    places: Vec<Option<usize>>,
}

impl ColumnPlaces {
    fn new(rows: &Schema, dataset: &SchemaRef) -> Result<ColumnPlaces, Fault> {
        let names = || dataset.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
        if let Some(extra) = rows.fields().iter().find(|field| dataset.index_of(field.name()).is_err()) {
            let fault = Fault::invalid(format!("no column {}; the columns are {}", extra.name(), names()));
            return Err(fault.of_kind(FaultKind::NoColumn));
        }
        let is_again = |(place, field): &(usize, &Arc<Field>)| rows.index_of(field.name()).is_ok_and(|first| first < *place);
        if let Some((_, again)) = rows.fields().iter().enumerate().find(is_again) {
            return Err(Fault::invalid(format!("the rows have two columns with the name {}", again.name())));
        }
        let mut places = Vec::with_capacity(dataset.fields().len());
        for field in dataset.fields() {
            let place = rows.index_of(field.name()).ok();
            if place.is_none() && !field.is_nullable() {
                let fault = Fault::invalid(format!("column {} is NOT NULL, and the rows do not have it", field.name()));
                return Err(fault.of_kind(FaultKind::NotNull));
            }
            if let Some(found) = place.map(|place| rows.field(place).data_type())
                && is_of_another_kind(found, field.data_type())
            {
                return Err(Fault::invalid(differs(field, found)).hint("convert the column before it is sent"));
            }
            places.push(place);
        }
        Ok(ColumnPlaces { schema: Arc::clone(dataset), places })
    }

    fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch, Fault> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.places.len());
        for (field, place) in self.schema.fields().iter().zip(&self.places) {
            let Some(column) = place.map(|place| batch.column(place)) else {
                columns.push(new_null_array(field.data_type(), batch.num_rows()));
                continue;
            };
            if column.logical_null_count() > 0 && !field.is_nullable() {
                let fault = Fault::invalid(format!("column {} is NOT NULL, and a row has NULL there", field.name()));
                return Err(fault.of_kind(FaultKind::NotNull));
            }
            columns.push(match column.data_type() == field.data_type() {
                true => Arc::clone(column),
                // What is stored is what was sent, or nothing is.
                false => unaltered(column, field.data_type()).ok_or_else(|| {
                    let differs = differs(field, column.data_type());
                    Fault::invalid(format!("{differs}, and a value cannot be kept there as it is"))
                        .hint("convert the column before it is sent")
                })?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(Fault::bug)
    }
}

/// Whether values of one type are never those of another, whichever they are: texts would have to be read, and numbers and moments say
/// nothing of each other without a unit.
fn is_of_another_kind(from: &DataType, to: &DataType) -> bool {
    let from = plain_type(from);
    match to.is_string() || from.is_null() {
        true => false,
        false => from.is_string() || from.is_temporal() != to.is_temporal(),
    }
}

fn differs(field: &Field, found: &DataType) -> String {
    format!("column {} is {found}, in the dataset it is {}", field.name(), field.data_type())
}

/// A column as another type, if all its values are the same there.
fn unaltered(column: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    if column.data_type().is_null() {
        return Some(new_null_array(to, column.len()));
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |column: &ArrayRef, to: &DataType| cast_with_options(column, to, &strict).ok();
    // Views, dictionaries and runs stand for what they have.
    let plain = plain_type(column.data_type());
    let column = if plain == *column.data_type() { Arc::clone(column) } else { cast(column, &plain)? };
    match plain.is_string() && to.is_string() || plain.is_binary() && to.is_binary() {
        true => cast(&column, to),
        false => converted(&column, to),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        AsArray, Date32Array, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int64Array, NullArray, StringArray,
        TimestampNanosecondArray,
    };
    use arrow::datatypes::{Int8Type, Int32Type, TimeUnit};
    use arrow_flight::sql::TableDefinitionOptions;

    use super::*;

    #[test]
    fn columns_are_found_by_name_and_brought_to_their_types() {
        let nullable = |name, data_type| Field::new(name, data_type, true);
        let dataset = Arc::new(Schema::new(vec![
            nullable("a", DataType::Int32),
            nullable("b", DataType::Utf8View),
            Field::new("c", DataType::Int64, true),
        ]));
        let of = |a: Vec<i64>| {
            let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; a.len()]));
            RecordBatch::try_from_iter([("b", texts), ("a", Arc::new(Int64Array::from(a)) as ArrayRef)]).unwrap()
        };
        let places = ColumnPlaces::new(&of(vec![]).schema(), &dataset).unwrap();
        let batch = places.conform(&of(vec![1, 2])).unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int32Type>().values(), &[1, 2]);
        assert!(batch.column(1).as_string_view().value(1) == "x" && batch.column(2).null_count() == 2);
        assert!(places.conform(&of(vec![1 << 40])).unwrap_err().message.contains("column a"));
        assert!(ColumnPlaces::new(&Schema::new(vec![nullable("d", DataType::Int32)]), &dataset).is_err());
    }

    /// What would be stored of a column in another type.
    fn stored(column: ArrayRef, data_type: DataType) -> Result<ArrayRef, Fault> {
        let rows = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap();
        let places = ColumnPlaces::new(&rows.schema(), &Arc::new(Schema::new(vec![Field::new("a", data_type, true)])))?;
        places.conform(&rows).map(|batch| Arc::clone(batch.column(0)))
    }

    /// A regression: 1.7 became 1, and a moment lost its time of day.
    #[test]
    fn no_value_becomes_another_one() {
        use DataType::{BinaryView, Date32, Decimal128, FixedSizeBinary, Float32, Int32, Int64, Timestamp, Utf8View};
        let floats = |value: f64| Arc::new(Float64Array::from(vec![None, Some(value)])) as ArrayRef;
        let moment = |nanos: i64| Arc::new(TimestampNanosecondArray::from(vec![nanos])) as ArrayRef;
        let bytes = Arc::new(FixedSizeBinaryArray::try_from_iter([[1, 2], [3, 4]].into_iter()).unwrap()) as ArrayRef;
        let texts = || Arc::new(StringArray::from(vec!["2024-02-29"])) as ArrayRef;
        let words = Arc::new(["x", "y", "x"].into_iter().collect::<DictionaryArray<Int8Type>>()) as ArrayRef;
        let micros = || Timestamp(TimeUnit::Microsecond, None);
        for (column, data_type) in [
            (floats(1.5), Int64),
            (floats(1.005), Decimal128(9, 2)),
            (floats(0.1), Float32),
            (moment(1_709_168_523_000_000_000), Date32),
            (moment(1_709_168_523_000_000_001), micros()),
            (texts(), Date32),
            (texts(), Int32),
            (Arc::new(Int64Array::from(vec![1_709_168_523])), micros()),
            (Arc::new(Date32Array::from(vec![19_782])), Int64),
            (Arc::clone(&bytes), FixedSizeBinary(3)),
        ] {
            let found = column.data_type().clone();
            let fault = stored(column, data_type.clone()).unwrap_err();
            assert_eq!(fault.blame, pithead_model::Blame::User);
            for part in ["column a".to_owned(), found.to_string(), data_type.to_string()] {
                assert!(fault.message.contains(&part), "{}", fault.message);
            }
        }
        for (column, data_type) in [
            (floats(2.0), Int64),
            (floats(1.25), Decimal128(9, 2)),
            (floats(0.5), Float32),
            (moment(1_709_164_800_000_000_000), Date32),
            (moment(1_709_168_523_000_001_000), micros()),
            (Arc::new(Date32Array::from(vec![19_782])), micros()),
            (texts(), Utf8View),
            (words, Utf8View),
            (bytes, BinaryView),
            (Arc::new(NullArray::new(2)), Int64),
        ] {
            let rows = column.len();
            let kept = stored(column, data_type.clone()).unwrap();
            assert_eq!((kept.len(), kept.data_type()), (rows, &data_type));
        }
    }

    #[test]
    fn a_name_that_rows_have_twice_is_refused() {
        let field = |name| Field::new(name, DataType::Int64, true);
        let dataset = Arc::new(Schema::new(vec![field("a"), field("b")]));
        let fault = ColumnPlaces::new(&Schema::new(vec![field("b"), field("a"), field("a")]), &dataset).err().unwrap();
        assert!(fault.message.contains("two columns with the name a"), "{}", fault.message);
    }

    #[test]
    fn what_is_there_decides_with_the_options() {
        let name = DatasetName::new("main", "t").unwrap();
        let mode = |if_not_exist: TableNotExistOption, if_exists: TableExistsOption, is_there| {
            let options = TableDefinitionOptions { if_not_exist: if_not_exist.into(), if_exists: if_exists.into() };
            let command = CommandStatementIngest { table_definition_options: Some(options), ..Default::default() };
            mode(&command, &name, is_there).ok()
        };
        use {TableExistsOption as Exists, TableNotExistOption as Absent};
        assert_eq!(mode(Absent::Create, Exists::Fail, false), Some(LoadMode::Create));
        assert_eq!(mode(Absent::Create, Exists::Fail, true), None);
        assert_eq!(mode(Absent::Fail, Exists::Append, false), None);
        assert_eq!(mode(Absent::Fail, Exists::Append, true), Some(LoadMode::Append));
        assert_eq!(mode(Absent::Create, Exists::Replace, true), Some(LoadMode::Replace));
    }
}
