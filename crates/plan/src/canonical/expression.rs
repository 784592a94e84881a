//! Expressions whose columns are replaced by the expressions that compute these. Of several forms with the same meaning
//! they have one.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_datafusion_err};
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, Like, Operator, TryCast, binary_expr};

/// An expression over a relation whose columns are `columns`, named as in `schema`.
pub(super) fn expression(expr: &Expr, schema: &DFSchema, columns: &[Expr]) -> Result<Expr> {
    let resolved = expr.clone().transform_up(|expr| match &expr {
        Expr::Column(column) => {
            let index = schema.index_of_column(column)?;
            let origin = columns.get(index).ok_or_else(|| internal_datafusion_err!("{column} has no origin"))?;
            Ok(Transformed::yes(origin.clone()))
        }
        _ => plain(expr),
    })?;
    Ok(resolved.data)
}

/// The form that represents all expressions with the same meaning that travelling may exchange for each other. The
/// operands have that form already.
fn plain(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Alias(alias) => Transformed::yes(*alias.expr),
        Expr::Literal(value, _) => Transformed::yes(Expr::Literal(plain_value(value)?, None)),
        Expr::Cast(cast) => Transformed::yes(Expr::Cast(Cast::new(cast.expr, plain_type(cast.field.data_type())))),
        Expr::TryCast(cast) => Transformed::yes(Expr::TryCast(TryCast::new(cast.expr, plain_type(cast.field.data_type())))),
        Expr::Between(between) if !between.negated => {
            let [low, high] = bounds(between);
            Transformed::yes(chained(low, Operator::And, high))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            Transformed::yes(chained(*left, op, *right))
        }
        Expr::Not(inner) => match *inner {
            Expr::Like(like) => Transformed::yes(Expr::Like(Like { negated: !like.negated, ..like })),
            Expr::InList(mut list) => {
                list.negated = !list.negated;
                Transformed::yes(Expr::InList(list))
            }
            Expr::IsNull(inner) => Transformed::yes(Expr::IsNotNull(inner)),
            inner => Transformed::no(Expr::Not(Box::new(inner))),
        },
        other => Transformed::no(other),
    })
}

/// A chain of AND or OR, nested to the left, because travelling may balance it.
fn chained(left: Expr, op: Operator, right: Expr) -> Expr {
    match right {
        Expr::BinaryExpr(inner) if inner.op == op => binary_expr(chained(left, op, *inner.left), op, *inner.right),
        right => binary_expr(left, op, right),
    }
}

/// A condition, or the two conditions that BETWEEN consists of.
pub(super) fn split_between(condition: Expr) -> Vec<Expr> {
    match condition {
        Expr::Between(between) if !between.negated => bounds(between).into(),
        condition => vec![condition],
    }
}

fn bounds(between: Between) -> [Expr; 2] {
    let Between { expr, low, high, .. } = between;
    [binary_expr((*expr).clone(), Operator::GtEq, *low), binary_expr(*expr, Operator::LtEq, *high)]
}

/// The value under its [`plain_type`].
fn plain_value(value: ScalarValue) -> Result<ScalarValue> {
    let data_type = value.data_type();
    match plain_type(&data_type) {
        plain if plain == data_type => Ok(value),
        plain => value.cast_to(&plain),
    }
}

/// The type without the names and the nullability of the fields within lists. No query can ask for these, and Substrait
/// does not carry them.
pub(super) fn plain_type(data_type: &DataType) -> DataType {
    let item = |field: &FieldRef| -> FieldRef { Arc::new(Field::new_list_field(plain_type(field.data_type()), true)) };
    match data_type {
        DataType::List(field) => DataType::List(item(field)),
        DataType::LargeList(field) => DataType::LargeList(item(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(item(field), *size),
        DataType::Struct(fields) => {
            let plain = |field: &FieldRef| Field::new(field.name(), plain_type(field.data_type()), true);
            DataType::Struct(fields.iter().map(plain).collect())
        }
        other => other.clone(),
    }
}
