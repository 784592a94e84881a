//! What there is: catalogs, domains, datasets, keys and types, in the schemas that the specification gives.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{Command, CommandGetTableTypes};
use pithead_host::{Host, Right};
use pithead_model::Fault;

use crate::caller::Caller;
use crate::error::Refused;
use crate::flight::CATALOG;
use crate::info;
use crate::plain::plain_schema;

/// The type of datasets.
const TABLE: &str = "TABLE";
/// The type of views.
const VIEW: &str = "VIEW";

/// The columns of an answer about what there is; none: the command asks for something else.
pub(crate) fn schema(command: &Command) -> Result<Option<SchemaRef>, Refused> {
    Ok(Some(match command {
        Command::CommandGetCatalogs(command) => command.into_builder().schema(),
        Command::CommandGetDbSchemas(command) => command.clone().into_builder().schema(),
        Command::CommandGetTables(command) => command.clone().into_builder().schema(),
        Command::CommandGetTableTypes(command) => table_types(*command)?.schema(),
        Command::CommandGetSqlInfo(_) => info::sql_info()?.schema(),
        Command::CommandGetXdbcTypeInfo(_) => info::types()?.schema(),
        Command::CommandGetPrimaryKeys(_) => primary_keys(),
        Command::CommandGetExportedKeys(_) | Command::CommandGetImportedKeys(_) | Command::CommandGetCrossReference(_) => {
            foreign_keys()
        }
        _ => return Ok(None),
    }))
}

/// The answer to a command about what there is. A caller sees what it may read.
pub(crate) async fn batch(host: &Host, caller: &Caller, command: &Command) -> Result<RecordBatch, Refused> {
    let batch = match command {
        Command::CommandGetCatalogs(command) => {
            let mut builder = command.into_builder();
            builder.append(CATALOG);
            builder.build()
        }
        Command::CommandGetDbSchemas(command) => {
            let mut builder = command.clone().into_builder();
            let snapshot = host.fleet().snapshot().await?;
            snapshot.domains().filter(|(name, _)| caller.identity.may(Right::Read, name)).for_each(|(name, _)| {
                builder.append(CATALOG, name);
            });
            builder.build()
        }
        Command::CommandGetTables(command) => {
            let mut builder = command.clone().into_builder();
            let snapshot = host.fleet().snapshot().await?;
            for found in snapshot.datasets().filter(|found| caller.identity.may(Right::Read, &found.name().domain)) {
                let name = found.name();
                let schema = match command.include_schema {
                    true => plain_schema(&found.dataset().schema),
                    false => Schema::empty(),
                };
                builder.append(CATALOG, &name.domain, &name.dataset, TABLE, &schema).map_err(failed)?;
            }
            for (name, view) in snapshot.views().filter(|(name, _)| caller.identity.may(Right::Read, &name.domain)) {
                let schema = if command.include_schema { plain_schema(&view.schema) } else { Schema::empty() };
                builder.append(CATALOG, &name.domain, &name.dataset, VIEW, &schema).map_err(failed)?;
            }
            builder.build()
        }
        Command::CommandGetTableTypes(command) => Ok(table_types(*command)?),
        Command::CommandGetSqlInfo(command) => command.clone().into_builder(info::sql_info()?).build(),
        Command::CommandGetXdbcTypeInfo(command) => command.into_builder(info::types()?).build(),
        // There are no keys.
        other => {
            let schema = schema(other)?.ok_or_else(|| Refused::from(Fault::bug("no command about what there is")))?;
            Ok(RecordBatch::new_empty(schema))
        }
    };
    Ok(batch.map_err(failed)?)
}

fn failed(error: FlightError) -> Fault {
    match error {
        // A pattern that LIKE does not take.
        FlightError::Arrow(error) => Fault::invalid(error.to_string()),
        other => Fault::bug(other),
    }
}

fn table_types(command: CommandGetTableTypes) -> Result<RecordBatch, Refused> {
    let mut builder = command.into_builder();
    builder.append(TABLE);
    builder.append(VIEW);
    Ok(builder.build().map_err(failed)?)
}

fn text(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

fn primary_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        text("key_name", true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

fn foreign_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}
