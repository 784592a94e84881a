//! [`NamedCasts`]: a cast that is told from what it casts by its name, too, and one subquery's predicate from another's.
//!
//! The planner names `CAST(x AS T)` as `x`, and `x IN (…)` as `IN` whatever the subquery is. It refuses a statement in which two columns
//! of one relation have one name: `SELECT sum(x), sum(CAST(x AS double))`. Where it does, the statement is planned again with each of
//! them in this function, which has a name of its own. The first rule of the optimiser takes the function away, and leaves the name.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, internal_err};
use datafusion::logical_expr::expr::{InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, LogicalPlan, Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Subquery, Volatility, Window,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use pithead_model::RESERVED;

use crate::kept_names::map_named;

/// The function's name, which no SQL text can spell: its arguments are the cast, and the type as a text; or the predicate, and its
/// text.
pub const NAMED_CAST: &str = "\u{0}cast";

/// The function itself.
pub(crate) fn named_cast_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(NamedCast { signature: Signature::any(2, Volatility::Immutable) })
}

/// The rule.
#[derive(Debug)]
pub(crate) struct NamedCasts;

impl OptimizerRule for NamedCasts {
    fn name(&self) -> &'static str {
        "pithead_named_casts"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                found = found || expr.exists(|part| Ok(cast_of(part).is_some() || matches!(part, Expr::InSubquery(_))))?;
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        if !found {
            return Ok(Transformed::no(plan));
        }
        plan.transform_down_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) => over_casts(aggregate),
            LogicalPlan::Window(window) => windows_over_casts(window),
            node => map_named(node, |expr| expr.transform_down(plain)),
        })
    }
}

/// An expression without the function, and a subquery whose column has a name of its own.
fn plain(expr: Expr) -> Result<Transformed<Expr>> {
    if let Some(cast) = cast_of(&expr) {
        return Ok(Transformed::yes(plain(cast.clone())?.data));
    }
    match expr {
        Expr::InSubquery(query) => named_apart(query),
        expr => Ok(Transformed::no(expr)),
    }
}

/// The subquery of an IN, whose column is a cast of a column that it also compares with the query around it.
fn named_apart(query: InSubquery) -> Result<Transformed<Expr>> {
    match query.subquery.subquery.as_ref() {
        LogicalPlan::Projection(projection)
            if !query.subquery.outer_ref_columns.is_empty() && projection.expr.iter().any(of_column) =>
        {
            let name = |(index, expr): (usize, &Expr)| match of_column(expr) {
                true => expr.clone().alias(format!("{RESERVED}cast_{index}")),
                false => expr.clone(),
            };
            let named = projection.expr.iter().enumerate().map(name).collect();
            let plan = LogicalPlan::Projection(Projection::try_new(named, Arc::clone(&projection.input))?);
            let subquery = Subquery { subquery: Arc::new(plan), ..query.subquery };
            Ok(Transformed::yes(Expr::InSubquery(InSubquery { subquery, ..query })))
        }
        _ => Ok(Transformed::no(Expr::InSubquery(query))),
    }
}

/// Whether an expression casts a column, perhaps more than once.
fn of_column(expr: &Expr) -> bool {
    let inner = match expr {
        Expr::Cast(cast) => &cast.expr,
        Expr::TryCast(cast) => &cast.expr,
        _ => return false,
    };
    matches!(inner.as_ref(), Expr::Column(_)) || of_column(inner)
}

/// An aggregate whose casts are columns of a projection below it.
fn over_casts(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let casts = Casts::of(aggregate.group_expr.iter().chain(&aggregate.aggr_expr))?;
    let Some(input) = casts.below(&aggregate.input)? else { return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))) };
    let groups = casts.columns(aggregate.group_expr)?;
    let aggregates = casts.columns(aggregate.aggr_expr)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, aggregates)?)))
}

fn windows_over_casts(window: Window) -> Result<Transformed<LogicalPlan>> {
    let casts = Casts::of(window.window_expr.iter())?;
    let Some(input) = casts.below(&window.input)? else { return Ok(Transformed::no(LogicalPlan::Window(window))) };
    let outer = Window::try_new(casts.columns(window.window_expr)?, Arc::new(input))?;
    // What is above knows the columns that were there.
    let columns = window.schema.columns().into_iter().map(Expr::Column).collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(LogicalPlan::Window(outer)))?)))
}

/// The casts of some expressions, by name.
struct Casts(Vec<(String, Expr)>);

impl Casts {
    fn of<'e>(expressions: impl Iterator<Item = &'e Expr>) -> Result<Self> {
        let mut found: Vec<(String, Expr)> = Vec::new();
        for expr in expressions {
            expr.apply(|part| {
                let Some(cast) = cast_of(part) else { return Ok(TreeNodeRecursion::Continue) };
                let name = part.schema_name().to_string();
                if found.iter().all(|(known, _)| *known != name) {
                    found.push((name, cast.clone().transform_down(plain)?.data));
                }
                Ok(TreeNodeRecursion::Jump)
            })?;
        }
        Ok(Self(found))
    }

    /// The input with a column for each cast; none where there are none.
    fn below(&self, input: &Arc<LogicalPlan>) -> Result<Option<LogicalPlan>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let own = input.schema().columns().into_iter().map(Expr::Column);
        let casts = self.0.iter().map(|(name, cast)| cast.clone().alias(name.clone()));
        Ok(Some(LogicalPlan::Projection(Projection::try_new(own.chain(casts).collect(), Arc::clone(input))?)))
    }

    /// The expressions over those columns.
    fn columns(&self, expressions: Vec<Expr>) -> Result<Vec<Expr>> {
        let column = |part: Expr| match cast_of(&part) {
            Some(_) => {
                let name = part.schema_name().to_string();
                Ok(Transformed::new(Expr::Column(Column::from_name(name)), true, TreeNodeRecursion::Jump))
            }
            None => Ok(Transformed::no(part)),
        };
        expressions.into_iter().map(|expr| Ok(expr.transform_down(column)?.data)).collect()
    }
}

/// The cast within the function.
fn cast_of(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.inner().is::<NamedCast>() => args.first(),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedCast {
    signature: Signature,
}

impl ScalarUDFImpl for NamedCast {
    fn name(&self) -> &'static str {
        NAMED_CAST
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let [cast, Expr::Literal(to, _)] = arguments else { return internal_err!("expected a cast and its type") };
        Ok(match cast {
            Expr::TryCast(cast) => format!("TRY_CAST({} AS {to})", cast.expr.schema_name()),
            Expr::Cast(cast) => format!("CAST({} AS {to})", cast.expr.schema_name()),
            Expr::InSubquery(_) | Expr::Exists(_) => to.to_string(),
            other => format!("CAST({} AS {to})", other.schema_name()),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type, _] => Ok(data_type.clone()),
            _ => internal_err!("expected a cast and its type"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [field, _] => Ok(Arc::new(Field::new(self.name(), field.data_type().clone(), field.is_nullable()))),
            _ => internal_err!("expected a cast and its type"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("expected a cast and its type"),
        }
    }
}
