//! [`by_moment`]: sums of days, and of moments in coarse units, with intervals and whole numbers.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, cast, lit};

/// A sum that is a moment where the interval has hours, and a day some whole days later.
pub(crate) fn by_moment(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) = expr else {
        return Transformed::no(expr);
    };
    let is_day = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
    let has_hours = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => interval.nanoseconds != 0,
        Expr::Literal(ScalarValue::IntervalDayTime(Some(interval)), _) => interval.milliseconds != 0,
        Expr::Literal(..) => false,
        other => matches!(other.get_type(schema), Ok(DataType::Interval(_))),
    };
    let moment = |day: Box<Expr>| Box::new(cast(*day, DataType::Timestamp(TimeUnit::Microsecond, None)));
    let is_coarse =
        |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, _)));
    let micros = |moment: Box<Expr>| {
        let of = moment.get_type(schema).map_or(DataType::Timestamp(TimeUnit::Microsecond, None), |of| in_micros(&of));
        Box::new(cast(*moment, of))
    };
    let counts_days = |expr: &Expr| expr.get_type(schema).is_ok_and(|of| of.is_integer());
    if is_day(&left) && counts_days(&right) {
        return Transformed::yes(days_later(*left, op, *right));
    }
    if op == Operator::Plus && is_day(&right) && counts_days(&left) {
        return Transformed::yes(days_later(*right, op, *left));
    }
    let (left, right, changed) = if is_coarse(&left) && is_interval(&right, schema) {
        (micros(left), right, true)
    } else if op == Operator::Plus && is_coarse(&right) && is_interval(&left, schema) {
        (left, micros(right), true)
    } else if is_day(&left) && has_hours(&right) {
        (moment(left), right, true)
    } else if op == Operator::Plus && is_day(&right) && has_hours(&left) {
        (left, moment(right), true)
    } else {
        (left, right, false)
    };
    let sum = Expr::BinaryExpr(BinaryExpr { left, op, right });
    if changed { Transformed::yes(sum) } else { Transformed::no(sum) }
}

/// The day so many days later or sooner. DataFusion makes an interval of the number, in hours, by which a day would become a moment.
fn days_later(day: Expr, op: Operator, count: Expr) -> Expr {
    let sum = |left, right| Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) });
    let days = match &count {
        Expr::Literal(count, _) => count.cast_to(&DataType::Int32),
        _ => Ok(ScalarValue::Null),
    };
    if let Ok(ScalarValue::Int32(Some(days))) = days {
        return sum(day, lit(ScalarValue::new_interval_mdn(0, days, 0)));
    }
    let number = sum(cast(cast(day, DataType::Int32), DataType::Int64), cast(count, DataType::Int64));
    cast(cast(number, DataType::Int32), DataType::Date32)
}

/// Moments of a type in microseconds.
pub(crate) fn in_micros(of: &DataType) -> DataType {
    match of {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        other => other.clone(),
    }
}

pub(crate) fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}
