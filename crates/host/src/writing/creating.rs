//! CREATE TABLE: a new dataset of the rows of a query, or of none.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::TableReference;
use datafusion::logical_expr::{CreateMemoryTable, LogicalPlan};
use pithead_fleet::{already_there, is_view};
use pithead_load::{LoadMode, LoadSpec};
use pithead_model::{Blame, Dataset, DatasetName, Fault, FaultKind};

use super::{Layout, Writer, unsupported};
use crate::query_plan::datasets_of;
use crate::schemas::CATALOG;

impl Writer<'_> {
    pub(super) async fn create(&self, create: CreateMemoryTable, layout: Layout) -> Result<u64, Fault> {
        if create.temporary {
            return Err(unsupported("CREATE TEMPORARY TABLE"));
        }
        if !create.constraints.is_empty() {
            return Err(unsupported("PRIMARY KEY or UNIQUE").hint("leave the constraint out; NOT NULL is kept"));
        }
        if let Some((column, _)) = create.column_defaults.first() {
            return Err(
                unsupported(&format!("DEFAULT (of column {column})")).hint("leave it out, and give the value with INSERT")
            );
        }
        let name = self.new_name(&create.name)?;
        let snapshot = self.query.host.fleet().snapshot().await?;
        if snapshot.view(&name).is_some() {
            return Err(is_view(&name));
        }
        let present = snapshot.dataset(&name).is_some();
        if present && !create.or_replace {
            return match create.if_not_exists {
                true => Ok(0),
                false => Err(Fault::new(Blame::User, format!("table {name} exists already"))
                    .of_kind(FaultKind::Exists)
                    .hint("CREATE OR REPLACE TABLE, CREATE TABLE IF NOT EXISTS, or INSERT INTO it")),
            };
        }
        let is_empty = matches!(*create.input, LogicalPlan::EmptyRelation(ref empty) if !empty.produce_one_row);
        let schema = stored(create.input.schema().inner(), is_empty);
        let mode = if create.or_replace { LoadMode::Replace } else { LoadMode::Create };
        let spec = layout.put_into(LoadSpec { mode, ..LoadSpec::new(name.clone(), vec![]) });
        // Rows that others add to it meanwhile would be lost with those that were read.
        let over = if create.or_replace { read_of(&create.input, &name)? } else { None };
        let rows = self.rows(LogicalPlan::clone(&create.input), &schema).await?;
        let made = match over {
            Some(over) => {
                let host = &self.query.host;
                host.load_batches_over(self.commitment, over, spec, (schema, rows)).await.map(|report| report.rows)
            }
            None => self.load(spec, schema, rows).await,
        };
        match made {
            // Another host was first with it.
            Err(fault) if create.if_not_exists && fault == already_there(&name) => Ok(0),
            made => made,
        }
    }

    fn new_name(&self, name: &TableReference) -> Result<DatasetName, Fault> {
        let domain = &self.query.state.config_options().catalog.default_schema;
        match name {
            TableReference::Bare { table } => DatasetName::new(domain.as_str(), table.as_ref()),
            TableReference::Partial { schema, table } => DatasetName::new(schema.as_ref(), table.as_ref()),
            TableReference::Full { catalog, schema, table } if catalog.as_ref() == CATALOG => {
                DatasetName::new(schema.as_ref(), table.as_ref())
            }
            full @ TableReference::Full { .. } => {
                Err(Fault::new(Blame::User, format!("expected [domain.]dataset, got {full}")))
            }
        }
    }
}

/// The dataset of this name as a query reads it; none: it does not, or what others add is not in the manifest.
fn read_of(plan: &LogicalPlan, name: &DatasetName) -> Result<Option<Arc<Dataset>>, Fault> {
    let read = datasets_of(plan)?.into_iter().find(|found| found.name() == name && !found.is_attached());
    Ok(read.map(|found| Arc::clone(found.dataset())))
}

/// The columns that a new table is to have. Those of a query may be NULL later, whatever its rows are.
fn stored(schema: &SchemaRef, as_told: bool) -> SchemaRef {
    let field = |field: &Arc<Field>| {
        let says_what_bytes_are = |(key, _): &(&String, &String)| key.starts_with("ARROW:extension:");
        let metadata = field.metadata().iter().filter(says_what_bytes_are).map(|(key, value)| (key.clone(), value.clone()));
        let column = Field::new(field.name(), with_values(field.data_type()), field.is_nullable() || !as_told);
        column.with_metadata(metadata.collect())
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

/// A type with text for what is NULL in all rows that a query has, as PostgreSQL and loads of files have it: as NULL's own
/// type, later rows could not have anything else there.
fn with_values(data_type: &DataType) -> DataType {
    let part = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(with_values(field.data_type())));
    match data_type {
        DataType::Null => DataType::Utf8View,
        DataType::List(item) => DataType::List(part(item)),
        DataType::LargeList(item) => DataType::LargeList(part(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(part(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(part).collect()),
        other => other.clone(),
    }
}
