//! SUMMARIZE: a row for each column of a dataset or a query, with what DuckDB's statement of that name tells and drives can compute in
//! parts. Quantiles and distinct values would bring all rows to the host, so they are left out.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{Column, DFSchema};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::COUNT_STAR_EXPANSION;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use futures::TryStreamExt;
use pithead_functions::fault_from_datafusion;
use pithead_model::Fault;

use crate::Answer;
use crate::query::{Mode, Query};

/// The columns of a summary.
pub(crate) fn schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, true);
    let number = |name| Field::new(name, DataType::Float64, true);
    Arc::new(Schema::new(vec![
        Field::new("column_name", DataType::Utf8, false),
        Field::new("column_type", DataType::Utf8, false),
        text("min"),
        text("max"),
        number("avg"),
        number("std"),
        Field::new("count", DataType::Int64, false),
        number("null_percentage"),
    ]))
}

/// Where the row of all aggregates has those of one column.
struct Places {
    count: usize,
    /// Of types that have an order.
    bounds: Option<(usize, usize)>,
    /// Of numbers: the mean and the deviation of a sample.
    moments: Option<(usize, usize)>,
}

/// Runs the query as one aggregate over all its columns.
pub(crate) async fn summarize(query: &Query, plan: LogicalPlan) -> Result<Answer, Fault> {
    let described = Arc::clone(plan.schema());
    let mut aggregates = vec![function(query, "count", Expr::Literal(COUNT_STAR_EXPANSION, None))?];
    let mut add = |name: &str, argument: Expr| {
        aggregates.push(function(query, name, argument)?);
        Ok::<_, Fault>(aggregates.len() - 1)
    };
    let mut places = Vec::new();
    for (qualifier, field) in described.iter() {
        let column = Expr::Column(Column::from((qualifier, field)));
        let data_type = field.data_type();
        let ordered = !data_type.is_nested() && !matches!(data_type, DataType::Null);
        let float = || cast(column.clone(), DataType::Float64);
        places.push(Places {
            count: add("count", column.clone())?,
            bounds: if ordered { Some((add("min", column.clone())?, add("max", column.clone())?)) } else { None },
            moments: match data_type.is_numeric() {
                true => Some((add("avg", float())?, add("stddev", float())?)),
                false => None,
            },
        });
    }
    let aggregates = aggregates.into_iter().enumerate().map(|(place, expr)| expr.alias(format!("summary {place}")));
    let plan = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), aggregates.collect::<Vec<_>>());
    let plan = plan.and_then(LogicalPlanBuilder::build).map_err(fault_from_datafusion)?;
    let prepared = query.prepare(plan, Mode::Run).await?;
    let batches: Vec<RecordBatch> = query.execute(&prepared).await?.map_err(fault_from_datafusion).try_collect().await?;
    let row = batches.into_iter().find(|batch| batch.num_rows() == 1);
    let row = row.ok_or_else(|| Fault::bug("an aggregate without groups gave no row"))?;
    Ok(Answer::of(summary(&described, &places, &row)?, Arc::clone(&query.profile)))
}

fn function(query: &Query, name: &str, argument: Expr) -> Result<Expr, Fault> {
    let function = query.state.udaf(name).map_err(fault_from_datafusion)?;
    Ok(Expr::AggregateFunction(AggregateFunction::new_udf(function, vec![argument], false, None, vec![], None)))
}

fn summary(described: &DFSchema, places: &[Places], row: &RecordBatch) -> Result<RecordBatch, Fault> {
    let text = |place: usize| -> Result<Option<String>, Fault> {
        let column = row.column(place);
        let formatter = ArrayFormatter::try_new(column, &FormatOptions::default()).map_err(Fault::bug)?;
        (!column.is_null(0)).then(|| formatter.value(0).try_to_string()).transpose().map_err(Fault::bug)
    };
    let float = |place: usize| {
        let column = row.column(place).as_primitive_opt::<Float64Type>();
        column.filter(|column| !column.is_null(0)).map(|column| column.value(0))
    };
    let count = |place: usize| row.column(place).as_primitive_opt::<Int64Type>().map_or(0, |column| column.value(0));
    let bound = |of: fn((usize, usize)) -> usize| -> Result<ArrayRef, Fault> {
        let texts = places.iter().map(|place| place.bounds.map(|bounds| text(of(bounds))).transpose().map(Option::flatten));
        Ok(Arc::new(texts.collect::<Result<StringArray, Fault>>()?))
    };
    let moment = |of: fn((usize, usize)) -> usize| -> ArrayRef {
        Arc::new(places.iter().map(|place| place.moments.and_then(|moments| float(of(moments)))).collect::<Float64Array>())
    };
    let rows = count(0);
    let nulls = |place: &Places| (rows > 0).then(|| (rows - count(place.count)) as f64 * 100.0 / rows as f64);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(described.fields().iter().map(|field| Some(field.name())).collect::<StringArray>()),
        Arc::new(described.fields().iter().map(|field| Some(field.data_type().to_string())).collect::<StringArray>()),
        bound(|bounds| bounds.0)?,
        bound(|bounds| bounds.1)?,
        moment(|moments| moments.0),
        moment(|moments| moments.1),
        Arc::new(Int64Array::from_value(rows, places.len())),
        Arc::new(places.iter().map(nulls).collect::<Float64Array>()),
    ];
    RecordBatch::try_new(schema(), columns).map_err(Fault::bug)
}
