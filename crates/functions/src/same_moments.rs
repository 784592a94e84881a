//! Days and texts beside moments, and times of day in several units, as one type.
//!
//! DataFusion 55.2 compares a day, or a text, with a moment in nanoseconds, which reach from 1677 to 2262 only, and finds no common type
//! for times of day in two units, such as the milliseconds of a Parquet file and the nanoseconds of `TIME '12:00'`.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{Between, Case, InList, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast};

use crate::one_value::compares;

/// Functions that give one of their arguments, or compare them.
pub(crate) const CHOOSING: [&str; 7] = ["coalesce", "greatest", "ifnull", "least", "nullif", "nvl", "nvl2"];

/// Digits of a second that a moment in microseconds has.
const MICROS_DIGITS: usize = 6;

/// An expression whose operands, where they are compared or one of them is chosen, are moments or times of day of one type.
pub(crate) fn of_one_type(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) || op == Operator::Minus => {
            let sides = [*left, *right];
            let (sides, changed) = if compares(op) { compared(sides, schema) } else { alike(sides, schema) };
            let [left, right] = sides.map(Box::new);
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (parts, changed) = compared([*expr, *low, *high], schema);
            let [expr, low, high] = parts.map(Box::new);
            Transformed::new_transformed(Expr::Between(Between { expr, negated, low, high }), changed)
        }
        Expr::InList(InList { expr, list, negated }) => {
            let (mut all, changed) = compared(std::iter::once(*expr).chain(list).collect::<Vec<_>>(), schema);
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

/// The same of operands that are compared: a text that the statement says is a moment beside moments.
fn compared<E: AsMut<[Expr]>>(operands: E, schema: &DFSchema) -> (E, bool) {
    let (mut operands, mut changed) = alike(operands, schema);
    let of = |operand: &Expr| operand.get_type(schema).ok().filter(|of| matches!(of, DataType::Timestamp(..)));
    let moments: Vec<DataType> = operands.as_mut().iter().filter_map(of).collect();
    // What is told in nanoseconds is compared in them.
    let is_fine = |of: &DataType| matches!(of, DataType::Timestamp(TimeUnit::Nanosecond, _));
    if let Some(DataType::Timestamp(_, zone)) = moments.first()
        && !moments.iter().any(is_fine)
    {
        for operand in operands.as_mut().iter_mut().filter(|operand| is_text_of_micros(operand)) {
            *operand = cast(operand.clone(), DataType::Timestamp(TimeUnit::Microsecond, zone.clone()));
            changed = true;
        }
    }
    (operands, changed)
}

/// Whether an expression is a text with no more than six digits behind a point.
fn is_text_of_micros(expr: &Expr) -> bool {
    let Expr::Literal(value, _) = expr else { return false };
    let is_fine = |text: &str| {
        text.split_once('.').is_some_and(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count() > MICROS_DIGITS)
    };
    matches!(value.try_as_str(), Some(Some(text)) if !is_fine(text))
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

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn texts_beside_moments_may_be_of_any_year() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let rows = "(SELECT arrow_cast(column1, 'Timestamp(Microsecond, None)') AS t, arrow_cast(column1, 'Timestamp(Second, \
                    Some(\"UTC\"))') AS z FROM (VALUES ('0001-01-01'), ('2024-02-29 10:00:00'), ('9999-12-31'))) AS m";
        for (condition, expected) in [
            ("t < '3000-01-01'", "2"),
            ("'9999-12-31' = t", "1"),
            ("z >= '9999-12-31'", "1"),
            ("t BETWEEN '0001-01-01' AND '3000-01-01 10:00'", "2"),
            ("t IN ('0001-01-01 00:00:00', '2024-02-29 10:00')", "2"),
            ("t IS DISTINCT FROM '9999-12-31'", "2"),
        ] {
            let sql = format!("SELECT count(*) FROM {rows} WHERE {condition}");
            let found = context.sql(&sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{condition}: {error}"));
            assert_eq!(array_value_to_string(found[0].column(0), 0).unwrap(), expected, "{condition}");
        }
    }
}
