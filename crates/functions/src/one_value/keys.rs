//! The places where the engine distinguishes values.

use std::sync::Arc;

use arrow::datatypes::Fields;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, InList, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator, SortExpr, Window, when,
};

use crate::kept_names::{map_named, named};
use crate::nested_order::{is_order, nested_order};

use super::canonical::{another_float, canonical, holds_float, one_float};

/// The plan, and the plans of its subqueries, with one zero and one NaN wherever it groups, joins, sorts or compares by
/// floats.
pub(crate) fn with_one_float(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = found || has_float(node);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let plan = plan.transform_down_with_subqueries(|node| {
        let is_scan = matches!(node, LogicalPlan::TableScan(_));
        let Some(schema) = columns(&node)? else { return Ok(Transformed::no(node)) };
        let compared = map_named(node, |expr| expr.transform_up(|expr| comparison(expr, &schema, is_scan)))?;
        compared.transform_data(|node| keys(node, &schema))
    })?;
    Ok(plan.data)
}

/// Whether the rows of the node, or the filters of a scan, contain floats or nested values.
fn has_float(node: &LogicalPlan) -> bool {
    match node {
        LogicalPlan::TableScan(scan) if !scan.filters.is_empty() => holds_floats(scan.source.schema().fields()),
        node => holds_floats(node.schema().fields()),
    }
}

fn holds_floats(fields: &Fields) -> bool {
    fields.iter().any(|field| field.data_type().is_nested() || holds_float(field.data_type()))
}

/// The columns to which a node's expressions refer. None if the node needs no change.
fn columns(node: &LogicalPlan) -> Result<Option<Arc<DFSchema>>> {
    let schema = match node {
        LogicalPlan::TableScan(scan) => {
            // A table may have thousands of columns, and most filters compare one of them with a constant.
            let mut plain = true;
            for filter in &scan.filters {
                plain = plain && !filter.exists(|part| Ok(!stays(part) || orders_columns(part)))?;
            }
            if plain {
                return Ok(None);
            }
            Arc::new(DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?)
        }
        node if !has_float(node) && !node.inputs().into_iter().any(has_float) => return Ok(None),
        node => match node.inputs().as_slice() {
            [input] => Arc::clone(input.schema()),
            inputs => Arc::new(merge_schema(inputs)),
        },
    };
    Ok(Some(schema))
}

fn keys(plan: LogicalPlan, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate, schema),
        LogicalPlan::Window(window) => windowed(window, schema),
        LogicalPlan::Join(join) => joined(join),
        LogicalPlan::Sort(mut sort) => {
            let sorted = sort.expr.into_iter().map(|key| sorted(key, schema));
            sort.expr = sorted.collect();
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

fn grouped(aggregate: Aggregate, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let groups = aggregate.group_expr.into_iter().map(|expr| group(expr, schema)).collect::<Result<_>>()?;
    let aggregated = |expr| Ok(named(expr, |expr| expr.transform_up(|expr| aggregated(expr, schema)))?.data);
    let aggregates = aggregate.aggr_expr.into_iter().map(aggregated).collect::<Result<_>>()?;
    let aggregate = Aggregate::try_new_with_schema(aggregate.input, groups, aggregates, aggregate.schema)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// A group's key, under the key's old name.
fn group(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(named(expr, |expr| Ok(Transformed::yes(plain(expr, schema))))?.data)
}

/// The values that DISTINCT distinguishes, and those by which rows are sorted before they are aggregated.
fn aggregated(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::AggregateFunction(mut function) = expr else { return Ok(Transformed::no(expr)) };
    let params = &mut function.params;
    if params.distinct {
        params.args = std::mem::take(&mut params.args).into_iter().map(|arg| plain(arg, schema)).collect();
    }
    params.order_by = std::mem::take(&mut params.order_by).into_iter().map(|key| sorted(key, schema)).collect();
    Ok(Transformed::yes(Expr::AggregateFunction(function)))
}

fn windowed(window: Window, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    let over = |expr| Ok(named(expr, |expr| expr.transform_up(|expr| over(expr, schema)))?.data);
    let window_expr = window.window_expr.into_iter().map(over).collect::<Result<_>>()?;
    let window = Window { window_expr, ..window };
    Ok(Transformed::yes(LogicalPlan::Window(window)))
}

fn over(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(mut function) = expr else { return Ok(Transformed::no(expr)) };
    let params = &mut function.params;
    let all = |exprs: &mut Vec<Expr>| *exprs = std::mem::take(exprs).into_iter().map(|expr| plain(expr, schema)).collect();
    if params.distinct {
        all(&mut params.args);
    }
    all(&mut params.partition_by);
    params.order_by = std::mem::take(&mut params.order_by).into_iter().map(|key| sorted(key, schema)).collect();
    Ok(Transformed::yes(Expr::WindowFunction(function)))
}

fn joined(join: Join) -> Result<Transformed<LogicalPlan>> {
    let left_schema = Arc::clone(join.left.schema());
    let pair = |(left, right): (Expr, Expr)| match is_float(&left, &left_schema) {
        true => (another_float(left), another_float(right)),
        false => (left, right),
    };
    let on = join.on.into_iter().map(pair).collect();
    Ok(Transformed::yes(LogicalPlan::Join(Join { on, ..join })))
}

/// The operands of a comparison.
fn comparison(expr: Expr, schema: &DFSchema, is_scan: bool) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_order(op) && is_nested(&left, schema) => {
            Ok(Transformed::yes(nested_order(plain(*left, schema), op, plain(*right, schema))))
        }
        expr if is_scan && stays(&expr) => Ok(Transformed::no(expr)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) && is_float(&left, schema) => {
            let (left, right) = (Box::new(one_float(*left)), Box::new(one_float(*right)));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_float(&expr, schema) => {
            let [expr, low, high] = [expr, low, high].map(|expr| Box::new(one_float(*expr)));
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
        }
        Expr::InList(InList { expr, list, negated }) if is_float(&expr, schema) => {
            let list = list.into_iter().map(member).collect::<Result<_>>()?;
            Ok(Transformed::yes(Expr::InList(InList { expr: Box::new(one_float(*expr)), list, negated })))
        }
        Expr::Case(case) if case.expr.as_ref().is_some_and(|expr| is_float(expr, schema)) => chosen(case),
        Expr::ScalarFunction(function) if function.args.iter().any(|arg| is_float(arg, schema)) => called(function, schema),
        expr => Ok(Transformed::no(expr)),
    }
}

/// A CASE that compares a float with other floats.
fn chosen(case: Case) -> Result<Transformed<Expr>> {
    let expr = case.expr.map(|expr| Box::new(one_float(*expr)));
    let branch = |(when, then): (Box<Expr>, Box<Expr>)| Ok((Box::new(member(*when)?), then));
    let when_then_expr = case.when_then_expr.into_iter().map(branch).collect::<Result<_>>()?;
    Ok(Transformed::yes(Expr::Case(Case { expr, when_then_expr, ..case })))
}

/// A function that compares its arguments or the values within them, if it is one of those.
fn called(function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let name = function.func.name();
    if name == "nullif" {
        return either(function, schema);
    }
    if !COMPARING.contains(&name) {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    }
    let args = function.args.into_iter().map(|arg| plain(arg, schema)).collect();
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { args, ..function })))
}

/// `nullif`, which returns its first argument unchanged.
fn either(function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match <[Expr; 2]>::try_from(function.args) {
        Ok([value, other]) if !value.is_volatile() => {
            let same = one_float(value.clone()).eq(one_float(other));
            let none = Expr::Literal(ScalarValue::try_from(&value.get_type(schema)?)?, None);
            Ok(Transformed::yes(when(same, none).otherwise(value)?))
        }
        Ok(args) => Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { args: args.into(), ..function }))),
        Err(args) => Ok(Transformed::no(Expr::ScalarFunction(ScalarFunction { args, ..function }))),
    }
}

/// The engine's functions that distinguish or order values by their bits, except `nullif`.
const COMPARING: [&str; 20] = [
    "array_distinct",
    "array_except",
    "array_has",
    "array_has_all",
    "array_has_any",
    "array_intersect",
    "array_max",
    "array_min",
    "array_position",
    "array_positions",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_replace",
    "array_replace_all",
    "array_replace_n",
    "array_sort",
    "array_union",
    "greatest",
    "least",
];

/// Whether an expression in a scan's filter stays as it is: a comparison of a column with constants, so that the
/// slices' bounds can be used. There the engine takes both zeros as one, and stored data has one NaN. A list is
/// different, because its values are looked up by their bits.
fn stays(expr: &Expr) -> bool {
    let is_plain = |expr: &Expr| matches!(expr, Expr::Column(_)) || is_plain_constant(expr);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => !compares(*op) || is_plain(left) && is_plain(right),
        Expr::Between(Between { expr, low, high, .. }) => is_plain(expr) && is_plain(low) && is_plain(high),
        Expr::InList(InList { expr, list, .. }) => is_plain(expr) && all_differ(list),
        Expr::Case(case) => case.expr.is_none(),
        Expr::ScalarFunction(function) => function.func.name() != "nullif" && !COMPARING.contains(&function.func.name()),
        _ => true,
    }
}

/// Whether it compares two columns, perhaps nested ones, by order.
fn orders_columns(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return false };
    is_order(*op) && [left, right].iter().all(|side| matches!(side.as_ref(), Expr::Column(_)))
}

/// Whether the expression is a constant without floats, or with floats that are canonical already.
fn is_plain_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => !value.is_nan() || value.to_bits() == f64::NAN.to_bits(),
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => !value.is_nan() || value.to_bits() == f32::NAN.to_bits(),
        Expr::Literal(value, _) => !value.data_type().is_nested(),
        _ => false,
    }
}

/// Whether it compares two values of one type.
pub(crate) fn compares(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether no value of the list has an equal value with other bits, since the engine looks the values up by their bits.
fn all_differ(list: &[Expr]) -> bool {
    list.iter().all(|expr| match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => *value != 0.0 && !value.is_nan(),
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => *value != 0.0 && !value.is_nan(),
        Expr::Literal(value, _) => !holds_float(&value.data_type()),
        _ => false,
    })
}

/// A value of a list. A constant stays a constant.
fn member(expr: Expr) -> Result<Expr> {
    match expr {
        Expr::Literal(..) => Ok(canonical_constant(expr)?.data),
        expr => Ok(one_float(expr)),
    }
}

/// The constant that equals this one and that all equal ones become; anything else stays.
pub(crate) fn canonical_constant(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Literal(value, metadata) if holds_float(&value.data_type()) => {
            let one = ScalarValue::try_from_array(canonical(&value.to_array()?)?.as_ref(), 0)?;
            let is_new = one != value;
            Ok(Transformed::new_transformed(Expr::Literal(one, metadata), is_new))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

fn sorted(key: SortExpr, schema: &DFSchema) -> SortExpr {
    SortExpr { expr: plain(key.expr, schema), ..key }
}

fn plain(expr: Expr, schema: &DFSchema) -> Expr {
    if is_float(&expr, schema) { one_float(expr) } else { expr }
}

fn is_nested(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_nested())
}

/// Whether a value of the expression is or contains a float.
fn is_float(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| holds_float(&data_type))
}
