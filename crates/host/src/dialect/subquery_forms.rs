//! Subqueries in forms that the planner does not know: `x IN (VALUES (1), (2))`, and `ARRAY(SELECT …)`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, Ident, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, Statement as Sql, TableAlias, TableAliasColumnDef, TableFactor,
};
use pithead_syntax::expressions_mut;

use super::macros::parsed;
use super::{call, normal, null, query_over};

/// The column of an `ARRAY(SELECT …)`. After it come those that say in which order.
const VALUE: &str = "value";

/// Writes them in forms that it knows.
pub(super) fn expand(sql: &mut Sql) {
    let _ = expressions_mut(sql, |expr| {
        match expr {
            Expr::InSubquery { subquery: query, .. } => select_values(query),
            Expr::Function(Function { name, args: FunctionArguments::Subquery(query), .. })
                if name.to_string().eq_ignore_ascii_case("ARRAY") =>
            {
                *expr = array_of(query.as_ref().clone());
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
}

/// VALUES become what is selected from them.
fn select_values(query: &mut Query) {
    if matches!(query.body.as_ref(), SetExpr::Values(_)) {
        *query = query_over(derived(query.clone(), vec![]));
    }
}

fn derived(query: Query, columns: Vec<Ident>) -> TableFactor {
    let column = |name| TableAliasColumnDef { name, data_type: None };
    let columns = columns.into_iter().map(column).collect();
    let alias = TableAlias { explicit: true, name: Ident::with_quote('"', "listed"), columns, at: None };
    TableFactor::Derived { lateral: false, subquery: Box::new(query), alias: Some(alias), sample: None }
}

/// The rows of a subquery as an array, which is empty where it has none.
fn array_of(mut query: Query) -> Expr {
    let keys = order_columns(&mut query);
    let mut columns = vec![Ident::with_quote('"', VALUE)];
    columns.extend(keys.iter().filter_map(|key| match &key.expr {
        Expr::Identifier(name) if name.value != VALUE => Some(name.clone()),
        _ => None,
    }));
    let mut listed = call("array_agg", [Expr::Identifier(columns[0].clone())]);
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut listed
        && !keys.is_empty()
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(keys));
    }
    let mut over = query_over(derived(query, columns));
    if let SetExpr::Select(select) = over.body.as_mut() {
        select.projection = vec![SelectItem::UnnamedExpr(listed)];
    }
    call("coalesce", [Expr::Subquery(Box::new(over)), parsed("make_array()")])
}

/// The order of a query's rows as one of columns: that of its value, and others, which it gets behind that.
fn order_columns(query: &mut Query) -> Vec<OrderByExpr> {
    let is_cut = query.limit_clause.is_some() || query.fetch.is_some();
    let order = if is_cut { query.order_by.clone() } else { query.order_by.take() };
    let Some(OrderByKind::Expressions(mut keys)) = order.map(|order| order.kind) else { return vec![] };
    let mut select = match query.body.as_mut() {
        SetExpr::Select(select) if select.distinct.is_none() => Some(select),
        _ => None,
    };
    for (place, key) in keys.iter_mut().enumerate() {
        let name = match select.as_mut().filter(|select| !is_of_item(&key.expr, select)) {
            None => Ident::with_quote('"', VALUE),
            Some(select) => {
                let alias = Ident::with_quote('"', format!("key{place}"));
                let expr = std::mem::replace(&mut key.expr, null());
                select.projection.push(SelectItem::ExprWithAlias { expr, alias: alias.clone() });
                alias
            }
        };
        key.expr = Expr::Identifier(name);
    }
    keys
}

/// Whether ORDER BY says the one item that is selected, by its place or its name.
fn is_of_item(key: &Expr, select: &Select) -> bool {
    match (key, select.projection.first()) {
        (Expr::Value(value), _) => value.to_string() == "1",
        (Expr::Identifier(name), Some(SelectItem::ExprWithAlias { alias, .. })) => normal(name) == normal(alias),
        (key, Some(SelectItem::UnnamedExpr(item))) => key == item,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn forms_are_written_out() {
        for (written, expected) in [
            ("a IN (VALUES (1), (2))", "a IN (SELECT * FROM (VALUES (1), (2)) AS \"listed\")"),
            ("a IN (SELECT 1)", "a IN (SELECT 1)"),
            (
                "ARRAY(SELECT b FROM u)",
                "\"coalesce\"((SELECT \"array_agg\"(\"value\") FROM (SELECT b FROM u) AS \"listed\" (\"value\")), make_array())",
            ),
            (
                "ARRAY(SELECT b AS c FROM u ORDER BY c, d DESC LIMIT 2)",
                "\"coalesce\"((SELECT \"array_agg\"(\"value\" ORDER BY \"value\", \"key1\" DESC) FROM \
                 (SELECT b AS c, d AS \"key1\" FROM u ORDER BY c, d DESC LIMIT 2) AS \"listed\" (\"value\", \"key1\")), make_array())",
            ),
            (
                "ARRAY(SELECT DISTINCT b FROM u ORDER BY 1)",
                "\"coalesce\"((SELECT \"array_agg\"(\"value\" ORDER BY \"value\") FROM \
                 (SELECT DISTINCT b FROM u) AS \"listed\" (\"value\")), make_array())",
            ),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, &format!("SELECT {written}")).unwrap().remove(0);
            expand(&mut statement);
            assert_eq!(statement.to_string(), format!("SELECT {expected}"), "{written}");
        }
    }
}
