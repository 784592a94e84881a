//! The places where the engine distinguishes values.

use std::sync::Arc;

use arrow::datatypes::{DataType, Fields};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, InList, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator, SortExpr, Window, when,
};

use crate::kept_names::{map_named, named};
use crate::nested_order::{is_order, nested_order};

use super::canonical::{another_value, canonical, has_synonyms, one_value};

/// The plan, and the plans of its subqueries, with one value for all that are equal wherever it groups, joins,
/// sorts or compares by them.
pub(crate) fn with_one_value(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = found || has_ambiguous(node);
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

/// Whether the rows of the node, the filters of a scan, or a step of an expression contain floats, intervals or nested values.
fn has_ambiguous(node: &LogicalPlan) -> bool {
    let is_in_rows = match node {
        LogicalPlan::TableScan(scan) if !scan.filters.is_empty() => hold_synonyms(scan.source.schema().fields()),
        node => hold_synonyms(node.schema().fields()),
    };
    is_in_rows || makes_ambiguous(node)
}

fn hold_synonyms(fields: &Fields) -> bool {
    fields.iter().any(|field| may_be_ambiguous(field.data_type()))
}

fn may_be_ambiguous(data_type: &DataType) -> bool {
    data_type.is_nested() || has_synonyms(data_type)
}

/// Whether an expression of the node may come by such a value on its way, as `(a, b) < (c, d)` of integers does.
fn makes_ambiguous(node: &LogicalPlan) -> bool {
    let mut makes = false;
    let looked = node.apply_expressions(|expr| {
        makes = expr.exists(|part| {
            Ok(match part {
                Expr::Literal(value, _) => may_be_ambiguous(&value.data_type()),
                Expr::Cast(cast) => may_be_ambiguous(cast.field.data_type()),
                Expr::TryCast(cast) => may_be_ambiguous(cast.field.data_type()),
                Expr::ScalarFunction(_) | Expr::ScalarSubquery(_) => true,
                _ => false,
            })
        })?;
        Ok(if makes { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    looked.is_err() || makes
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
        node if !has_ambiguous(node) && !node.inputs().into_iter().any(has_ambiguous) => return Ok(None),
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
            let sorted = sort.expr.into_iter().flat_map(|key| sorted(key, schema));
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
    if params.distinct || sorts(function.func.name(), &params.args, schema) {
        params.args = std::mem::take(&mut params.args).into_iter().map(|arg| plain(arg, schema)).collect();
    }
    params.order_by = std::mem::take(&mut params.order_by).into_iter().flat_map(|key| sorted(key, schema)).collect();
    Ok(Transformed::yes(Expr::AggregateFunction(function)))
}

/// Whether an aggregate orders its argument as the engine does: ours are those of floats and nested values.
fn sorts(name: &str, args: &[Expr], schema: &DFSchema) -> bool {
    let is_interval = |arg: &Expr| arg.get_type(schema).is_ok_and(|data_type| matches!(data_type, DataType::Interval(_)));
    match name {
        "min" | "max" => args.iter().any(is_interval),
        name => SORTING.contains(&name),
    }
}

/// The engine's aggregates that sort the values themselves.
const SORTING: [&str; 5] =
    ["approx_median", "approx_percentile_cont", "approx_percentile_cont_with_weight", "median", "percentile_cont"];

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
    if params.distinct || sorts(function.fun.name(), &params.args, schema) {
        all(&mut params.args);
    }
    all(&mut params.partition_by);
    params.order_by = std::mem::take(&mut params.order_by).into_iter().flat_map(|key| sorted(key, schema)).collect();
    Ok(Transformed::yes(Expr::WindowFunction(function)))
}

fn joined(join: Join) -> Result<Transformed<LogicalPlan>> {
    let left_schema = Arc::clone(join.left.schema());
    let pair = |(left, right): (Expr, Expr)| match is_ambiguous(&left, &left_schema) {
        true => (another_value(left), another_value(right)),
        false => (left, right),
    };
    let on = join.on.into_iter().map(pair).collect();
    Ok(Transformed::yes(LogicalPlan::Join(Join { on, ..join })))
}

/// Whether an expression compares constants, so that the optimiser may compute it.
pub(crate) fn compares_constants(expr: &Expr) -> bool {
    let all = |operands: &[&Expr]| operands.iter().all(|operand| is_constant(operand));
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => compares(*op) && all(&[left, right]),
        Expr::Between(Between { expr, low, high, .. }) => all(&[expr, low, high]),
        Expr::InList(InList { expr, list, .. }) => is_constant(expr) && list.iter().all(is_constant),
        Expr::Case(case) => {
            case.expr.as_deref().is_some_and(is_constant) && case.when_then_expr.iter().all(|(when, _)| is_constant(when))
        }
        Expr::ScalarFunction(function) => {
            let name = function.func.name();
            (name == "nullif" || COMPARING.contains(&name)) && function.args.iter().all(is_constant)
        }
        _ => false,
    }
}

/// Whether an expression has one value, whatever the row.
pub(crate) fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Column(_) => false,
        expr => !expr.is_volatile() && expr.exists(|part| Ok(is_of_row(part))).is_ok_and(|is_of_row| !is_of_row),
    }
}

fn is_of_row(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::AggregateFunction(_)
        | Expr::WindowFunction(_)
        | Expr::Placeholder(_)
        | Expr::LambdaVariable(_) => true,
        expr => matches!(expr, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)),
    }
}

/// An expression that compares constants, as the engine that runs compares them.
pub(crate) fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    comparison(expr, schema, false)
}

/// The operands of a comparison.
fn comparison(expr: Expr, schema: &DFSchema, is_scan: bool) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_order(op) && is_nested(&left, schema) => {
            Ok(Transformed::yes(nested_order(plain(*left, schema), op, plain(*right, schema))))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_nested(&expr, schema) => {
            let [expr, low, high] = [expr, low, high].map(|part| plain(*part, schema));
            Ok(Transformed::yes(match negated {
                false => nested_order(expr.clone(), Operator::GtEq, low).and(nested_order(expr, Operator::LtEq, high)),
                true => nested_order(expr.clone(), Operator::Lt, low).or(nested_order(expr, Operator::Gt, high)),
            }))
        }
        expr if is_scan && stays(&expr) => Ok(Transformed::no(expr)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) && is_ambiguous(&left, schema) => {
            let (left, right) = (Box::new(one_value(*left)), Box::new(one_value(*right)));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_ambiguous(&expr, schema) => {
            let [expr, low, high] = [expr, low, high].map(|expr| Box::new(one_value(*expr)));
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
        }
        Expr::InList(InList { expr, list, negated }) if is_ambiguous(&expr, schema) => {
            let list = list.into_iter().map(member).collect::<Result<_>>()?;
            Ok(Transformed::yes(Expr::InList(InList { expr: Box::new(one_value(*expr)), list, negated })))
        }
        Expr::Case(case) if case.expr.as_ref().is_some_and(|expr| is_ambiguous(expr, schema)) => chosen(case),
        // The type of a long chain of functions takes long to find, so names come first.
        Expr::ScalarFunction(function) if compares_arguments(&function) => {
            match function.args.iter().any(|arg| is_ambiguous(arg, schema)) {
                true => called(function, schema),
                false => Ok(Transformed::no(Expr::ScalarFunction(function))),
            }
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// A CASE that compares a float with other floats.
fn chosen(case: Case) -> Result<Transformed<Expr>> {
    let expr = case.expr.map(|expr| Box::new(one_value(*expr)));
    let branch = |(when, then): (Box<Expr>, Box<Expr>)| Ok((Box::new(member(*when)?), then));
    let when_then_expr = case.when_then_expr.into_iter().map(branch).collect::<Result<_>>()?;
    Ok(Transformed::yes(Expr::Case(Case { expr, when_then_expr, ..case })))
}

/// Whether a function compares its arguments or the values within them.
fn compares_arguments(function: &ScalarFunction) -> bool {
    let name = function.func.name();
    name == "nullif" || COMPARING.contains(&name)
}

/// A function that compares its arguments or the values within them.
fn called(function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let name = function.func.name();
    if name == "nullif" {
        return either(function, schema);
    }
    let args = function.args.into_iter().map(|arg| plain(arg, schema)).collect();
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { args, ..function })))
}

/// `nullif`, which returns its first argument unchanged.
fn either(function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match <[Expr; 2]>::try_from(function.args) {
        Ok([value, other]) if !value.is_volatile() => {
            let same = one_value(value.clone()).eq(one_value(other));
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

/// Whether the expression is a constant that is like no other, or one that stands for all that are equal to it.
fn is_plain_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => !value.is_nan() || value.to_bits() == f64::NAN.to_bits(),
        Expr::Literal(ScalarValue::Float32(Some(value)), _) => !value.is_nan() || value.to_bits() == f32::NAN.to_bits(),
        Expr::Literal(value, _) => !value.data_type().is_nested() && !matches!(value.data_type(), DataType::Interval(_)),
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
        Expr::Literal(value, _) => !has_synonyms(&value.data_type()),
        _ => false,
    })
}

/// A value of a list. A constant stays a constant.
fn member(expr: Expr) -> Result<Expr> {
    match expr {
        Expr::Literal(..) => Ok(canonical_constant(expr)?.data),
        expr => Ok(one_value(expr)),
    }
}

/// The constant that equals this one and that all equal ones become; anything else stays.
pub(crate) fn canonical_constant(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Literal(value, metadata) if has_synonyms(&value.data_type()) => {
            let one = ScalarValue::try_from_array(canonical(&value.to_array()?)?.as_ref(), 0)?;
            let is_new = one != value;
            Ok(Transformed::new_transformed(Expr::Literal(one, metadata), is_new))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// A key by which rows are sorted. The engine places a NULL within a list or struct where it places those that are NULL as a whole;
/// here it is larger than all values, so where the whole ones are to be elsewhere, a key before says so.
fn sorted(key: SortExpr, schema: &DFSchema) -> Vec<SortExpr> {
    let expr = plain(key.expr, schema);
    let is_split = key.nulls_first == key.asc && is_nested(&expr, schema) && !expr.is_volatile();
    let whole = is_split.then(|| SortExpr { expr: expr.clone().is_null(), asc: !key.nulls_first, nulls_first: false });
    let nulls_first = if is_split { !key.asc } else { key.nulls_first };
    whole.into_iter().chain([SortExpr { expr, asc: key.asc, nulls_first }]).collect()
}

fn plain(expr: Expr, schema: &DFSchema) -> Expr {
    if is_ambiguous(&expr, schema) { one_value(expr) } else { expr }
}

fn is_nested(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_nested())
}

/// Whether a value of the expression may be equal to another one without being the same.
fn is_ambiguous(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| has_synonyms(&data_type))
}
