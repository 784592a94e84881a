//! `x < ANY (list)`, which is NULL where no value of the list fits, and one of them is NULL. The planner's is false there.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Select, Statement as Sql, UnaryOperator, Value, ValueWithSpan, VisitorMut,
};
use pithead_syntax::{any_expression, expressions_mut, walk_mut};

use super::call;
use super::using::join_conditions;

/// Says it by ALL, which the planner knows with all three truth values.
pub(super) fn expand(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Conditions);
    let _ = expressions_mut(sql, |expr| {
        if let Expr::AnyOp { left, compare_op, right, .. } = expr
            && let Some(opposite) = opposite(compare_op)
            && !(*compare_op == BinaryOperator::Eq && is_column_in_constant(left, right))
            && !is_told_later(right)
        {
            let all = Expr::AllOp { left: left.clone(), compare_op: opposite, right: right.clone() };
            *expr =
                Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(all))) }));
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The conditions of WHERE and ON, of which only matters whether they are true: there the planner's function does, which drives know.
struct Conditions;

impl VisitorMut for Conditions {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Some(condition) = &mut select.selection {
            by_array_has(condition);
        }
        join_conditions(&mut select.from).for_each(by_array_has);
        ControlFlow::Continue(())
    }
}

fn by_array_has(condition: &mut Expr) {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            by_array_has(left);
            by_array_has(right);
        }
        Expr::Nested(inner) => by_array_has(inner),
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } if !is_told_later(right) => {
            *condition = call("array_has", [right.as_ref().clone(), left.as_ref().clone()]);
        }
        _ => {}
    }
}

/// Whether a column is looked for in a list that is written out, as by IN: the engine makes that of it.
fn is_column_in_constant(value: &Expr, list: &Expr) -> bool {
    let reads_columns =
        |expr: &Expr| any_expression(expr, |part| matches!(part, Expr::Identifier(_) | Expr::CompoundIdentifier(_)));
    reads_columns(value) && !reads_columns(list)
}

/// Whether a list has rows of a subquery, or what a parameter stands for, whose types the planner finds out in its own way.
fn is_told_later(list: &Expr) -> bool {
    let is_parameter = |value: &ValueWithSpan| matches!(value.value, Value::Placeholder(_));
    any_expression(list, |part| match part {
        Expr::Subquery(_) => true,
        Expr::Value(value) => is_parameter(value),
        _ => false,
    })
}

/// The comparison that is false where this one is true.
fn opposite(op: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match op {
        BinaryOperator::Eq => BinaryOperator::NotEq,
        BinaryOperator::NotEq => BinaryOperator::Eq,
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn any_is_what_all_is_not() {
        for (sql, expected) in [
            ("SELECT a = ANY(l), 2 > ANY([1, NULL])", "SELECT (NOT (a <> ALL(l))), (NOT (2 <= ALL([1, NULL])))"),
            ("SELECT a FROM t WHERE NOT (a = ANY(l))", "SELECT a FROM t WHERE NOT ((NOT (a <> ALL(l))))"),
            ("SELECT a FROM t WHERE (a = ANY(l) OR b) AND c", "SELECT a FROM t WHERE (\"array_has\"(l, a) OR b) AND c"),
            ("SELECT a FROM t LEFT JOIN u ON b = ANY(l)", "SELECT a FROM t LEFT JOIN u ON \"array_has\"(l, b)"),
            ("SELECT a = ANY([1, NULL])", "SELECT a = ANY([1, NULL])"),
            ("SELECT 2 < ANY($1) FROM t WHERE a = ANY($1)", "SELECT 2 < ANY($1) FROM t WHERE a = ANY($1)"),
            ("SELECT a = ANY(SELECT 1)", "SELECT a = ANY(SELECT 1)"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            expand(&mut statement);
            assert_eq!(statement.to_string(), expected, "{sql}");
        }
    }
}
