//! Rows of values: `(a, b) IN (subquery)`, which is EXISTS over the subquery's rows, and others, which are structs.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, Query, Select, SelectItem, SetExpr, Statement as Sql, TableAlias,
    TableAliasColumnDef, TableFactor, UnaryOperator, Value, VisitorMut,
};
use pithead_model::RESERVED;
use pithead_syntax::{expressions_mut, walk_mut};

use super::macros::{Naming, parsed};
use super::{binary, call, null};

/// Expands every one of a statement.
pub(super) fn expand(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Naming(&|expr| Members::of(expr).is_some()));
    let _ = walk_mut(sql, &mut Conditions);
    let _ = expressions_mut(sql, |expr| {
        if let Some(members) = Members::of(expr) {
            *expr = members.case();
        }
        ControlFlow::<()>::Continue(())
    });
    let _ = walk_mut(sql, &mut Naming(&|expr| computed_row(expr).is_some()));
    let _ = expressions_mut(sql, |expr| {
        if let Some(values) = computed_row(expr) {
            *expr = call(ROW, values.to_vec());
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The engine's function of a row.
const ROW: &str = "struct";

/// The values of a row that begins with an expression, which the planner does not take for one.
fn computed_row(expr: &Expr) -> Option<&[Expr]> {
    let Expr::Tuple(values) = expr else { return None };
    let is_computed = !matches!(values.first()?, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_));
    is_computed.then_some(values)
}

/// The conditions of WHERE that must all hold, of which only matters whether they are true.
struct Conditions;

impl VisitorMut for Conditions {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Some(condition) = &mut select.selection {
            each_that_must_hold(condition);
        }
        ControlFlow::Continue(())
    }
}

fn each_that_must_hold(condition: &mut Expr) {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            each_that_must_hold(left);
            each_that_must_hold(right);
        }
        Expr::Nested(inner) => each_that_must_hold(inner),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            if let Some(members) = Members::of(unnested(expr)) {
                *condition = Members { negated: !members.negated, ..members }.condition();
            }
        }
        _ => {
            if let Some(members) = Members::of(condition) {
                *condition = members.condition();
            }
        }
    }
}

fn unnested(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => unnested(inner),
        expr => expr,
    }
}

struct Members {
    values: Vec<Expr>,
    subquery: Query,
    negated: bool,
}

impl Members {
    fn of(expr: &Expr) -> Option<Members> {
        let Expr::InSubquery { expr, subquery, negated } = expr else { return None };
        let Expr::Tuple(values) = expr.as_ref() else { return None };
        Some(Members { values: values.clone(), subquery: subquery.as_ref().clone(), negated: *negated })
    }

    /// An expression that is true where the membership is true, and false where it is false or NULL.
    fn condition(&self) -> Expr {
        match self.negated {
            false => self.exists(equal, false),
            true => self.exists(perhaps_equal, true),
        }
    }

    /// An expression that has the membership's value everywhere, NULL among them.
    fn case(&self) -> Expr {
        let when = |condition, result| CaseWhen { condition, result };
        let truth = |value: bool| Expr::Value(Value::Boolean(value).into());
        let conditions =
            vec![when(self.exists(equal, false), truth(!self.negated)), when(self.exists(perhaps_equal, false), null())];
        let mut case = parsed("CASE WHEN true THEN true END");
        if let Expr::Case { conditions: all, else_result, .. } = &mut case {
            *all = conditions;
            *else_result = Some(Box::new(truth(self.negated)));
        }
        case
    }

    /// Whether the subquery has a row of which each value satisfies a condition. Its columns get names that nothing else has.
    fn exists(&self, condition: impl Fn(Expr, Expr) -> Expr, is_negated: bool) -> Expr {
        let names: Vec<Ident> =
            (0..self.values.len()).map(|index| Ident::with_quote('"', format!("{RESERVED}member_{index}"))).collect();
        let pairs = self.values.iter().zip(&names);
        let conditions = pairs.map(|(value, name)| condition(Expr::Identifier(name.clone()), nested(value.clone())));
        let all = conditions.reduce(|one, other| binary(one, BinaryOperator::And, other));
        let mut exists = parsed("EXISTS (SELECT 1 FROM (SELECT 1) AS members WHERE true)");
        if let Expr::Exists { subquery, negated } = &mut exists
            && let SetExpr::Select(select) = subquery.body.as_mut()
            && let Some(TableFactor::Derived { subquery, alias: Some(TableAlias { name, columns, .. }), .. }) =
                select.from.first_mut().map(|from| &mut from.relation)
        {
            *negated = is_negated;
            **subquery = self.subquery.clone();
            told_apart(&mut subquery.body, &names);
            *name = Ident::with_quote('"', format!("{RESERVED}members"));
            *columns = names.into_iter().map(|name| TableAliasColumnDef { name, data_type: None }).collect();
            select.selection = all;
        }
        exists
    }
}

/// Gives an expression that a query selects again a name of its own.
fn told_apart(body: &mut SetExpr, names: &[Ident]) {
    let SetExpr::Select(select) = body else { return };
    for (place, name) in names.iter().enumerate().take(select.projection.len()).skip(1) {
        let (before, rest) = select.projection.split_at_mut(place);
        let SelectItem::UnnamedExpr(expr) = &rest[0] else { continue };
        if before.iter().any(|item| matches!(item, SelectItem::UnnamedExpr(other) if other == expr)) {
            rest[0] = SelectItem::ExprWithAlias { expr: expr.clone(), alias: name.clone() };
        }
    }
}

fn equal(member: Expr, value: Expr) -> Expr {
    binary(member, BinaryOperator::Eq, value)
}

fn perhaps_equal(member: Expr, value: Expr) -> Expr {
    Expr::IsNotFalse(Box::new(nested(equal(member, value))))
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}
