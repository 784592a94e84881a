//! `SELECT CAST(t.b AS BIGINT) AS x, t.id AS b … GROUP BY … ORDER BY b`.
//!
//! The planner calls a cast by the name of what is cast, and once there are groups takes that for what an equal name in ORDER BY means,
//! also where an item of SELECT has it. It takes the item that is meant within an expression, which it simplifies later.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement as Sql, Value, VisitorMut,
};
use pithead_syntax::{any_expression, walk_mut};

use super::normal;

/// Writes names of ORDER BY out that the planner would take for a cast.
pub(super) fn write_out(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut OrderNames);
}

struct OrderNames;

impl VisitorMut for OrderNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_ref() else { return ControlFlow::Continue(()) };
        // GROUP BY ALL gives groups the names that SELECT does.
        let has_groups = matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if !groups.is_empty());
        let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
            return ControlFlow::Continue(());
        };
        for by in order.iter_mut().filter(|_| has_groups) {
            if let Expr::Identifier(name) = &by.expr
                && let Some(item) = mistaken(select, name)
            {
                let item = CaseWhen { condition: Expr::value(Value::Boolean(true)), result: item };
                by.expr = Expr::Case {
                    case_token: AttachedToken::empty(),
                    end_token: AttachedToken::empty(),
                    operand: None,
                    conditions: vec![item],
                    else_result: None,
                };
            }
        }
        ControlFlow::Continue(())
    }
}

/// The item of SELECT that has this name, if the planner would take a cast for it.
fn mistaken(select: &Select, name: &Ident) -> Option<Expr> {
    let name = normal(name);
    let item = select.projection.iter().find_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } if normal(alias) == name => Some(expr),
        _ => None,
    })?;
    let is_cast_of_it =
        |part: &Expr| matches!(part, Expr::Cast { expr, .. } if column(expr).is_some_and(|column| normal(column) == name));
    let is_computed =
        any_expression(item, |part| matches!(part, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_)));
    (is_computed && any_expression(select, is_cast_of_it)).then(|| item.clone())
}

/// The column that is cast, however often.
fn column(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => column(expr),
        _ => None,
    }
}
