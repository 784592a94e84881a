//! Days beside moments, and times of day in several units, as one type.
//!
//! DataFusion 55.2 compares a day with a moment in nanoseconds, which reach from 1677 to 2262 only, and finds no common type for times
//! of day in two units, such as the milliseconds of a Parquet file and the nanoseconds of `TIME '12:00'`.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{Between, Case, InList, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast};

use crate::one_value::compares;

/// Functions that give one of their arguments, or compare them.
pub(crate) const CHOOSING: [&str; 7] = ["coalesce", "greatest", "ifnull", "least", "nullif", "nvl", "nvl2"];

/// An expression whose operands, where they are compared or one of them is chosen, are moments or times of day of one type.
pub(crate) fn of_one_type(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) || op == Operator::Minus => {
            let (sides, changed) = alike([*left, *right], schema);
            let [left, right] = sides.map(Box::new);
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (parts, changed) = alike([*expr, *low, *high], schema);
            let [expr, low, high] = parts.map(Box::new);
            Transformed::new_transformed(Expr::Between(Between { expr, negated, low, high }), changed)
        }
        Expr::InList(InList { expr, list, negated }) => {
            let (mut all, changed) = alike(std::iter::once(*expr).chain(list).collect::<Vec<_>>(), schema);
            let expr = Box::new(all.remove(0));
            Transformed::new_transformed(Expr::InList(InList { expr, list: all, negated }), changed)
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if CHOOSING.contains(&func.name()) => {
            let (args, changed) = alike(args, schema);
            Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), changed)
        }
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let (whens, thens): (Vec<_>, Vec<_>) = when_then_expr.into_iter().unzip();
            let has_else = else_expr.is_some();
            let (results, changed) =
                alike(thens.into_iter().chain(else_expr).map(|result| *result).collect::<Vec<_>>(), schema);
            let mut results = results.into_iter().map(Box::new);
            let when_then_expr = whens.into_iter().zip(results.by_ref()).collect();
            let else_expr = if has_else { results.next() } else { None };
            Transformed::new_transformed(Expr::Case(Case { expr, when_then_expr, else_expr }), changed)
        }
        expr => Transformed::no(expr),
    }
}

/// Operands of one type, where they are days and moments or times of day. Whether one was changed.
fn alike<E: AsMut<[Expr]>>(mut operands: E, schema: &DFSchema) -> (E, bool) {
    let types: Vec<Option<DataType>> = operands.as_mut().iter().map(|operand| operand.get_type(schema).ok()).collect();
    let changed = same(operands.as_mut(), &types);
    (operands, changed)
}

/// The same of operands whose types are known.
pub(crate) fn same(operands: &mut [Expr], types: &[Option<DataType>]) -> bool {
    let has = |is: fn(&DataType) -> bool| types.iter().flatten().any(is);
    let is_time = |of: &DataType| matches!(of, DataType::Time32(_) | DataType::Time64(_));
    let finest = types.iter().flatten().filter(|of| is_time(of)).max_by_key(|of| fineness(of)).cloned();
    let has_moments = has(|of| matches!(of, DataType::Timestamp(..)));
    let mut changed = false;
    for (operand, of) in operands.iter_mut().zip(types) {
        let target = match of {
            Some(DataType::Date32) if has_moments => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
            Some(of) if is_time(of) => finest.clone().filter(|finest| finest != of),
            _ => None,
        };
        if let Some(target) = target {
            *operand = cast(operand.clone(), target);
            changed = true;
        }
    }
    changed
}

fn fineness(time: &DataType) -> u8 {
    match time {
        DataType::Time32(TimeUnit::Second) => 0,
        DataType::Time32(_) => 1,
        DataType::Time64(TimeUnit::Microsecond) => 2,
        _ => 3,
    }
}
