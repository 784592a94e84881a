//! The engine's filter expressions as predicates that slices understand.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use pithead_functions::before_one_value;
use pithead_model::Value;
use pithead_slice::{Compare, Predicate};

use crate::scalar::value_of;

/// Longest NOT IN that is worth a chain of comparisons.
const NOT_IN_MAX: usize = 16;

/// A predicate that holds wherever an expression is true.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Converted {
    pub(crate) predicate: Predicate,
    /// Whether it holds nowhere else, so that it can stand for the expression.
    pub(crate) exact: bool,
}

/// The expression, whose columns are those of `schema`, as a predicate. None: it has none.
pub(crate) fn convert(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Converted> {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return convert_binary(expr, binary, schema);
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        return convert_in(list, schema);
    }
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        return convert_like(like, schema);
    }
    if let Some(null) = expr.downcast_ref::<IsNullExpr>() {
        return exact(Predicate::IsNull(column(null.arg())?));
    }
    if let Some(not_null) = expr.downcast_ref::<IsNotNullExpr>() {
        return exact(Predicate::IsNotNull(column(not_null.arg())?));
    }
    if let Some(not) = expr.downcast_ref::<NotExpr>() {
        return exact(truth(column(not.arg())?, false, schema)?);
    }
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return match literal.value() {
            ScalarValue::Boolean(Some(true)) => exact(Predicate::All(vec![])),
            ScalarValue::Boolean(_) => exact(nowhere()),
            _ => None,
        };
    }
    exact(truth(column(expr)?, true, schema)?)
}

/// A predicate that holds nowhere.
pub(crate) fn nowhere() -> Predicate {
    Predicate::In { column: 0, values: vec![] }
}

fn exact(predicate: Predicate) -> Option<Converted> {
    Some(Converted { predicate, exact: true })
}

fn column(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    before_one_value(expr).downcast_ref::<Column>().map(Column::index)
}

fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    before_one_value(expr).downcast_ref::<Literal>().map(Literal::value)
}

fn truth(column: usize, wanted: bool, schema: &Schema) -> Option<Predicate> {
    let value = value_of(&ScalarValue::Boolean(Some(wanted)), schema.field(column).data_type())?;
    Some(Predicate::Compare { column, op: Compare::Eq, value })
}

fn convert_binary(expr: &Arc<dyn PhysicalExpr>, binary: &BinaryExpr, schema: &Schema) -> Option<Converted> {
    match binary.op() {
        Operator::And => {
            let parts = split_conjunction(expr);
            let converted: Vec<Converted> = parts.iter().filter_map(|part| convert(part, schema)).collect();
            if converted.is_empty() {
                return None;
            }
            let exact = converted.len() == parts.len() && converted.iter().all(|part| part.exact);
            Some(Converted { predicate: Predicate::All(converted.into_iter().map(|part| part.predicate).collect()), exact })
        }
        Operator::Or => {
            let parts = [convert(binary.left(), schema)?, convert(binary.right(), schema)?];
            let exact = parts.iter().all(|part| part.exact);
            let flat = parts.into_iter().flat_map(|part| match part.predicate {
                Predicate::Any(parts) => parts,
                part => vec![part],
            });
            Some(Converted { predicate: Predicate::Any(flat.collect()), exact })
        }
        op => {
            let (column, op, value) = match (column(binary.left()), column(binary.right())) {
                (Some(column), _) => (column, compare(op)?, literal(binary.right())?),
                (_, Some(column)) => (column, swapped(compare(op)?), literal(binary.left())?),
                _ => return None,
            };
            exact(Predicate::Compare { column, op, value: value_of(value, schema.field(column).data_type())? })
        }
    }
}

fn compare(op: &Operator) -> Option<Compare> {
    match op {
        Operator::Eq => Some(Compare::Eq),
        Operator::NotEq => Some(Compare::Ne),
        Operator::Lt => Some(Compare::Lt),
        Operator::LtEq => Some(Compare::Le),
        Operator::Gt => Some(Compare::Gt),
        Operator::GtEq => Some(Compare::Ge),
        _ => None,
    }
}

fn swapped(op: Compare) -> Compare {
    match op {
        Compare::Lt => Compare::Gt,
        Compare::Le => Compare::Ge,
        Compare::Gt => Compare::Lt,
        Compare::Ge => Compare::Le,
        same => same,
    }
}

/// A NULL in the list makes `IN` true nowhere else, and `NOT IN` true nowhere at all.
fn convert_in(list: &InListExpr, schema: &Schema) -> Option<Converted> {
    let column = column(list.expr())?;
    let data_type = schema.field(column).data_type();
    let literals: Vec<&ScalarValue> = list.list().iter().map(literal).collect::<Option<_>>()?;
    if list.negated() && literals.iter().any(|literal| literal.is_null()) {
        return exact(nowhere());
    }
    let wanted = literals.into_iter().filter(|literal| !literal.is_null());
    let values: Vec<Value> =
        wanted.map(|literal| value_of(literal, data_type).filter(in_every_order)).collect::<Option<_>>()?;
    if !list.negated() {
        return exact(Predicate::In { column, values });
    }
    let others = |value| Predicate::Compare { column, op: Compare::Ne, value };
    (!values.is_empty() && values.len() <= NOT_IN_MAX)
        .then(|| Predicate::All(values.into_iter().map(others).collect()))
        .and_then(exact)
}

/// Lists of floats are looked up by hash, where the two zeros may be one.
fn in_every_order(value: &Value) -> bool {
    !matches!(value, Value::Float(value) if *value == 0.0)
}

fn convert_like(like: &LikeExpr, schema: &Schema) -> Option<Converted> {
    let column = column(like.expr())?;
    let Value::Text(pattern) = value_of(literal(like.pattern())?, schema.field(column).data_type())? else { return None };
    // The backslash is the engine's escape, which predicates do not have.
    let plain = !like.case_insensitive() && !pattern.contains('\\');
    plain.then(|| Predicate::Like { column, pattern, negated: like.negated() }).and_then(exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};
    use datafusion::common::DFSchema;
    use datafusion::logical_expr::{Expr, col, lit};
    use datafusion::prelude::SessionContext;

    fn schema() -> Schema {
        let field = |name, data_type| Field::new(name, data_type, true);
        Schema::new(vec![
            field("i", DataType::Int64),
            field("t", DataType::Utf8View),
            field("b", DataType::Boolean),
            field("f", DataType::Float64),
        ])
    }

    fn converted(expr: Expr) -> Option<Converted> {
        let schema = schema();
        let expr = SessionContext::new().create_physical_expr(expr, &DFSchema::try_from(schema.clone()).unwrap()).unwrap();
        convert(&expr, &schema)
    }

    fn is(expr: Expr, predicate: Predicate) {
        assert_eq!(converted(expr.clone()), exact(predicate), "{expr}");
    }

    fn at(column: usize, op: Compare, value: Value) -> Predicate {
        Predicate::Compare { column, op, value }
    }

    #[test]
    fn comparisons_lists_and_patterns_are_exact() {
        let text = |text: &str| lit(ScalarValue::Utf8View(Some(text.into())));
        is(col("i").lt(lit(5i64)), at(0, Compare::Lt, Value::Int(5)));
        is(lit(5i64).lt(col("i")), at(0, Compare::Gt, Value::Int(5)));
        is(
            col("i").in_list(vec![lit(1i64), lit(ScalarValue::Int64(None))], false),
            Predicate::In { column: 0, values: vec![Value::Int(1)] },
        );
        is(col("i").in_list(vec![lit(1i64), lit(ScalarValue::Int64(None))], true), nowhere());
        is(col("i").in_list(vec![lit(1i64)], true), Predicate::All(vec![at(0, Compare::Ne, Value::Int(1))]));
        is(col("t").not_like(text("a%_")), Predicate::Like { column: 1, pattern: "a%_".into(), negated: true });
        is(col("t").is_null(), Predicate::IsNull(1));
        is(col("b"), at(2, Compare::Eq, Value::Int(1)));
        is(Expr::Not(Box::new(col("b"))), at(2, Compare::Eq, Value::Int(0)));
        let either = col("i").eq(lit(1i64)).or(col("i").eq(lit(2i64))).or(col("t").is_not_null());
        let parts = vec![at(0, Compare::Eq, Value::Int(1)), at(0, Compare::Eq, Value::Int(2)), Predicate::IsNotNull(1)];
        is(either, Predicate::Any(parts));
    }

    #[test]
    fn what_means_something_else_to_a_slice_stays_with_the_engine() {
        let text = |text: &str| lit(ScalarValue::Utf8View(Some(text.into())));
        assert_eq!(converted(col("t").like(text(r"50\%"))), None);
        assert_eq!(converted(col("t").ilike(text("a%"))), None);
        assert_eq!(converted(col("f").in_list(vec![lit(0.0), lit(1.0)], false)), None);
        assert_eq!(converted(col("f").gt(lit(f64::NAN))), None);
        assert_eq!(converted((col("i") + lit(1i64)).gt(lit(1i64))), None);
        assert_eq!(converted(col("i").gt(lit(1i64)).or((col("i") + lit(1i64)).gt(lit(1i64)))), None);
    }

    #[test]
    fn a_part_of_a_conjunction_is_weaker() {
        let part = converted(col("i").gt(lit(1i64)).and((col("i") + lit(1i64)).gt(lit(1i64)))).unwrap();
        assert_eq!(part, Converted { predicate: Predicate::All(vec![at(0, Compare::Gt, Value::Int(1))]), exact: false });
    }
}
