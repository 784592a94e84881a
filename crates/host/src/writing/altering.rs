//! ALTER TABLE: columns that are added, dropped, renamed, or get another type.
//!
//! Where what is stored can be read with the new columns, only the manifest is changed. Otherwise, as where a column's values are
//! computed anew or a NULL may be where none is allowed any more, the rows are written anew by one query, in the layout that the table
//! has, as those of an UPDATE are. Expressions use the columns as they were before the statement.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, CastKind, ColumnDef, ColumnOption, DataType, Expr, Ident,
    SelectItem, SetExpr, Statement as Sql, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use futures::TryStreamExt;
use pithead_functions::fault_from_datafusion;
use pithead_load::{AlteredColumn, AlteredFrom, LoadMode, LoadSpec};
use pithead_model::{Blame, Dataset, DatasetName, Fault, FaultKind, Partitioning, near_names};

use super::{Writer, unsupported};
use crate::Commitment;
use crate::query::Query;
use crate::statement::{Named, quoted};
use crate::statement_plan::plan_of_columns;
use crate::tokens::parts;

const CHANGES: &str = "ADD COLUMN, DROP COLUMN, RENAME COLUMN … TO, ALTER COLUMN … TYPE, and … SET or DROP NOT NULL run here";

/// An ALTER TABLE, read.
pub(crate) struct Altering {
    pub(crate) name: Named,
    /// Whether a table that is not there is no error.
    pub(crate) if_exists: bool,
    changes: Vec<Change>,
}

enum Change {
    Add { name: String, value: Expr, is_nullable: bool, if_not_exists: bool },
    Drop { names: Vec<String>, if_exists: bool },
    Rename { from: String, to: String },
    Retype { name: String, data_type: DataType, using: Option<Expr> },
    Nullable { name: String, is_nullable: bool },
}

/// A column of the table that is to be.
struct Column {
    name: String,
    value: Expr,
    /// The column that it is as it was; none: its values are computed.
    kept: Option<Arc<Field>>,
    /// The table's own column that it comes from; none: it is new.
    own: Option<String>,
    is_nullable: bool,
}

impl Altering {
    /// Reads the changes.
    pub(crate) fn of(alter: AlterTable) -> Result<Altering, Fault> {
        let AlterTable { name, if_exists, operations, location, on_cluster, table_type, .. } = alter;
        if location.is_some() || on_cluster.is_some() || table_type.is_some() {
            return Err(unsupported("this form of ALTER TABLE").hint(CHANGES));
        }
        let changes = operations.into_iter().map(Change::of).collect::<Result<_, _>>()?;
        Ok(Altering { name: Named::new(parts(&name)?), if_exists, changes })
    }

    /// Changes the types that it gives to columns.
    pub(crate) fn change_types(&mut self, change: impl Fn(&mut DataType)) {
        for one in &mut self.changes {
            match one {
                Change::Add { value: Expr::Cast { data_type, .. }, .. } | Change::Retype { data_type, .. } => change(data_type),
                _ => {}
            }
        }
    }

    /// Makes the changes to a dataset as it was read.
    pub(crate) async fn run(
        &self,
        query: Query,
        name: DatasetName,
        dataset: Arc<Dataset>,
        commitment: &Arc<Commitment>,
    ) -> Result<(), Fault> {
        let fields: Vec<Column> = dataset.schema.fields().iter().map(Column::of).collect();
        let columns = self.changes.iter().try_fold(fields, |columns, change| change.apply(columns, &name, &dataset))?;
        // A column that may be there, or may be gone, and is.
        if columns.len() == dataset.schema.fields().len() && columns.iter().all(Column::is_as_it_was) {
            return Ok(());
        }
        let plan = plan_of_columns(&query.state, rows_of(&name, &columns)?).await.map_err(fault_from_datafusion)?;
        query.host.functions().ready(&query.state, &plan).await?;
        let schema = schema(&columns, plan.schema().inner());
        let shape = reshaped(&dataset, &columns);
        let writer = Writer { query: &query, returned: None, commitment };
        if let Some(columns) = writer.altered(&columns, &schema).await
            && writer.query.host.alter(commitment, &name, &dataset, &shape, &columns).await?
        {
            return Ok(());
        }
        let rows = writer.rows(plan, &schema).await?;
        let spec = LoadSpec {
            mode: LoadMode::Replace,
            over: Some(dataset),
            shape: Some(Arc::new(shape)),
            ..LoadSpec::new(name, vec![])
        };
        writer.load(spec, schema, rows).await?;
        Ok(())
    }
}

impl Change {
    fn of(operation: AlterTableOperation) -> Result<Change, Fault> {
        Ok(match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
                Change::added(column_def, if_not_exists)?
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                Change::Drop { names: column_names.iter().map(named).collect(), if_exists }
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                Change::Rename { from: named(&old_column_name), to: named(&new_column_name) }
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                let name = named(&column_name);
                match op {
                    AlterColumnOperation::SetNotNull => Change::Nullable { name, is_nullable: false },
                    AlterColumnOperation::DropNotNull => Change::Nullable { name, is_nullable: true },
                    AlterColumnOperation::SetDataType { data_type, using, .. } => Change::Retype { name, data_type, using },
                    other => return Err(unsupported(&format!("ALTER COLUMN {name} {other}")).hint(CHANGES)),
                }
            }
            AlterTableOperation::RenameTable { .. } => {
                return Err(
                    unsupported("ALTER TABLE … RENAME TO beside other changes").hint("write two statements, one for the name")
                );
            }
            other => return Err(unsupported(&format!("ALTER TABLE … {other}")).hint(CHANGES)),
        })
    }

    fn added(column: ColumnDef, if_not_exists: bool) -> Result<Change, Fault> {
        let name = named(&column.name);
        let (mut default, mut is_nullable) = (None, true);
        for option in column.options {
            match option.option {
                ColumnOption::Null => is_nullable = true,
                ColumnOption::NotNull => is_nullable = false,
                ColumnOption::Default(value) => default = Some(value),
                other => {
                    return Err(unsupported(&format!("ADD COLUMN {name} … {other}")).hint("NOT NULL and DEFAULT are known"));
                }
            }
        }
        let value = default.unwrap_or_else(|| Expr::value(Value::Null));
        Ok(Change::Add { name, value: cast(value, column.data_type), is_nullable, if_not_exists })
    }

    fn apply(&self, mut columns: Vec<Column>, table: &DatasetName, dataset: &Dataset) -> Result<Vec<Column>, Fault> {
        match self {
            Change::Add { name, if_not_exists: true, .. } if find(&columns, name).is_some() => {}
            Change::Add { name, value, is_nullable, .. } => {
                refuse_present(&columns, name, table)?;
                let (name, value) = (name.clone(), value.clone());
                columns.push(Column { name, value, kept: None, own: None, is_nullable: *is_nullable });
            }
            Change::Drop { names, if_exists } => {
                for name in names {
                    let place = match find(&columns, name) {
                        None if *if_exists => continue,
                        None => return Err(unknown(&columns, name, table)),
                        Some(place) => place,
                    };
                    refuse_layout(&columns[place], dataset, "dropped")?;
                    columns.remove(place);
                }
                if columns.is_empty() {
                    return Err(Fault::invalid(format!("{table} would have no column left")).hint("DROP TABLE removes it"));
                }
            }
            Change::Rename { from, to } => {
                let place = find(&columns, from).ok_or_else(|| unknown(&columns, from, table))?;
                if from != to {
                    refuse_present(&columns, to, table)?;
                }
                columns[place].name.clone_from(to);
            }
            Change::Retype { name, data_type, using } => {
                let place = find(&columns, name).ok_or_else(|| unknown(&columns, name, table))?;
                refuse_layout(&columns[place], dataset, "given another type")?;
                let column = &mut columns[place];
                column.value = cast(using.clone().unwrap_or_else(|| column.value.clone()), data_type.clone());
                column.kept = None;
            }
            Change::Nullable { name, is_nullable } => {
                let place = find(&columns, name).ok_or_else(|| unknown(&columns, name, table))?;
                columns[place].is_nullable = *is_nullable;
            }
        }
        Ok(columns)
    }
}

impl Column {
    fn of(field: &Arc<Field>) -> Column {
        Column {
            name: field.name().clone(),
            value: Expr::Identifier(Ident::with_quote('"', field.name().as_str())),
            kept: Some(Arc::clone(field)),
            own: Some(field.name().clone()),
            is_nullable: field.is_nullable(),
        }
    }

    /// Whether its values are those that it has, if need be of another type.
    fn is_own(&self) -> bool {
        let is_name = |expr: &Expr| matches!(expr, Expr::Identifier(name) if Some(&name.value) == self.own.as_ref());
        is_name(&self.value) || matches!(&self.value, Expr::Cast { expr, .. } if is_name(expr))
    }

    fn is_as_it_was(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|field| *field.name() == self.name && field.is_nullable() == self.is_nullable)
    }
}

impl Writer<'_> {
    /// The columns as what is stored may be read with them; none: the values of one are computed for each row.
    async fn altered(&self, columns: &[Column], schema: &SchemaRef) -> Option<Vec<AlteredColumn>> {
        let mut altered = Vec::with_capacity(columns.len());
        for (column, field) in columns.iter().zip(schema.fields()) {
            let from = match &column.own {
                Some(own) if column.is_own() => AlteredFrom::Own(own.clone()),
                Some(_) => return None,
                None => AlteredFrom::Value(self.constant(&column.value, field).await?),
            };
            altered.push(AlteredColumn { field: Field::clone(field), from });
        }
        Some(altered)
    }

    /// The one value of an expression; none: it has another one for each row, or none, which is an error wherever there are rows.
    async fn constant(&self, value: &Expr, field: &Field) -> Option<ArrayRef> {
        let statement = select(None, vec![SelectItem::UnnamedExpr(value.clone())]).ok()?;
        let plan = plan_of_columns(&self.query.state, statement).await.ok()?;
        if has_volatile(&plan) {
            return None;
        }
        let schema = Arc::new(Schema::new(vec![field.clone().with_nullable(true)]));
        let batches: Vec<RecordBatch> = self.rows(plan, &schema).await.ok()?.try_collect().await.ok()?;
        let batch = batches.iter().find(|batch| batch.num_rows() > 0)?;
        batch.columns().first().cloned()
    }
}

/// Whether a plan gives other rows each time.
fn has_volatile(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let looked = plan.apply_with_subqueries(|node| {
        found |= node.expressions().iter().any(|expr| expr.is_volatile());
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    looked.is_err() || found
}

/// The query that gives the rows.
fn rows_of(table: &DatasetName, columns: &[Column]) -> Result<Syntax, Fault> {
    let item = |column: &Column| SelectItem::ExprWithAlias {
        expr: column.value.clone(),
        alias: Ident::with_quote('"', column.name.as_str()),
    };
    select(Some(table), columns.iter().map(item).collect())
}

fn select(table: Option<&DatasetName>, items: Vec<SelectItem>) -> Result<Syntax, Fault> {
    let from = table.map(|table| format!(" FROM {}.{}", quoted(&table.domain), quoted(&table.dataset))).unwrap_or_default();
    let parsed =
        Parser::new(&GenericDialect {}).try_with_sql(&format!("SELECT 1{from}")).and_then(|mut parser| parser.parse_query());
    let mut query = parsed.map_err(|error| fault_from_datafusion(error.into()))?;
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(Fault::bug("the rows of a table are no SELECT")) };
    select.projection = items;
    Ok(Syntax::Statement(Box::new(Sql::Query(query))))
}

/// The columns' types: as they were, or as the query computes them.
fn schema(columns: &[Column], computed: &SchemaRef) -> SchemaRef {
    let field = |(column, computed): (&Column, &Arc<Field>)| {
        let field = column.kept.as_ref().unwrap_or(computed);
        Field::clone(field).with_name(&column.name).with_nullable(column.is_nullable)
    };
    Arc::new(Schema::new(columns.iter().zip(computed.fields()).map(field).collect::<Vec<_>>()))
}

/// The layout, under the columns' new names.
fn reshaped(dataset: &Dataset, columns: &[Column]) -> Dataset {
    let renamed = |name: &String| {
        let column = columns.iter().find(|column| column.own.as_ref() == Some(name));
        column.map_or_else(|| name.clone(), |column| column.name.clone())
    };
    let mut shape = dataset.clone();
    match &mut shape.partitioning {
        Partitioning::RoundRobin => {}
        Partitioning::Hash { columns } => columns.iter_mut().for_each(|name| *name = renamed(name)),
        Partitioning::Range { column, .. } => *column = renamed(column),
    }
    shape.sort.iter_mut().for_each(|key| key.column = renamed(&key.column));
    shape
}

/// Refuses a change of what rows are placed or ordered by.
fn refuse_layout(column: &Column, dataset: &Dataset, what: &str) -> Result<(), Fault> {
    let Some(own) = &column.own else { return Ok(()) };
    let is_key = match &dataset.partitioning {
        Partitioning::RoundRobin => false,
        Partitioning::Hash { columns } => columns.contains(own),
        Partitioning::Range { column, .. } => column == own,
    };
    let by = match (is_key, dataset.sort.iter().any(|key| key.column == *own)) {
        (true, _) => "partitioned",
        (false, true) => "sorted",
        (false, false) => return Ok(()),
    };
    let message = format!("column {} cannot be {what}: the table is {by} by it", column.name);
    Err(Fault::invalid(message).hint("make another table: CREATE TABLE … PARTITION BY … ORDER BY … AS SELECT …"))
}

fn refuse_present(columns: &[Column], name: &str, table: &DatasetName) -> Result<(), Fault> {
    match find(columns, name) {
        None => Ok(()),
        Some(_) => Err(Fault::new(Blame::User, format!("{table} has a column {name} already"))),
    }
}

fn find(columns: &[Column], name: &str) -> Option<usize> {
    columns.iter().position(|column| column.name == name)
}

fn unknown(columns: &[Column], name: &str, table: &DatasetName) -> Fault {
    let near = near_names(name, columns.iter().map(|column| column.name.as_str()));
    let near = if near.is_empty() { String::new() } else { format!("; near: {}", near.join(", ")) };
    Fault::invalid(format!("{table} has no column {name}{near}")).of_kind(FaultKind::NoColumn)
}

fn named(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

fn cast(value: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(value), data_type, array: false, format: None }
}
