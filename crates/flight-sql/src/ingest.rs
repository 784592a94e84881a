//! Ingestion: rows from a client into a dataset, by a load. They become visible together at the end, or not at all.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use futures::StreamExt;
use pithead_host::{Host, LoadMode, LoadSpec, Right, Session};
use pithead_model::{DatasetName, Fault, FaultKind};

use crate::error::Refused;
use crate::flight::CATALOG;
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
    let present = host.fleet().snapshot().await?.dataset(&name).map(|(_, dataset)| Arc::clone(&dataset.schema));
    let mode = mode(&command, &name, present.is_some())?;
    let schema = put.schema().await?;
    let schema = schema.ok_or_else(|| Refused::invalid("rows to load, which begin with their schema, did not come"))?;
    let spec = LoadSpec { mode, ..LoadSpec::new(name, vec![]) };
    let report = match present.filter(|_| mode == LoadMode::Append) {
        Some(present) => {
            let places = ColumnPlaces::new(&schema, &present)?;
            let rows = put.rows().map(move |batch| places.conform(&batch?)).boxed();
            host.load_batches(spec, present, rows).await?
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
        let mut places = Vec::with_capacity(dataset.fields().len());
        for field in dataset.fields() {
            let place = rows.index_of(field.name()).ok();
            if place.is_none() && !field.is_nullable() {
                let fault = Fault::invalid(format!("column {} is NOT NULL, and the rows do not have it", field.name()));
                return Err(fault.of_kind(FaultKind::NotNull));
            }
            places.push(place);
        }
        Ok(ColumnPlaces { schema: Arc::clone(dataset), places })
    }

    fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch, Fault> {
        // A value that does not fit is an error, and not NULL.
        let strict = CastOptions { safe: false, ..CastOptions::default() };
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
                false => cast_with_options(column, field.data_type(), &strict)
                    .map_err(|error| Fault::invalid(format!("column {}: {error}", field.name())))?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options).map_err(Fault::bug)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int32Type};
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
