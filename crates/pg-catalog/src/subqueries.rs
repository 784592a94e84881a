//! Subqueries of the catalogue's queries, as the engine runs them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CaseWhen, Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident,
    JoinOperator, OrderBy, OrderByExpr, OrderByKind, Query, SelectItem, SetExpr, TableFactor, TableWithJoins, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pithead_syntax::expressions;

use crate::factors::SERIES_COLUMN;
use crate::facts::ConnectionFacts;
use crate::sets::SERIES;
use crate::syntax::{called, is_placeholder, parts};
use crate::{PG_CATALOG, tables};

/// `ARRAY(SELECT a FROM …)` as an aggregate over the same rows; none of them is an empty array. `of_catalog`: the statement asks the
/// catalogue, whose rows are in the order of the items where it matters.
pub(crate) fn of_subquery(function: &mut Function, of_catalog: bool) -> Option<Expr> {
    if !function.name.to_string().eq_ignore_ascii_case("array") {
        return None;
    }
    let FunctionArguments::Subquery(query) = &function.args else { return None };
    let text = query.to_string();
    if is_of_no_row(&text) || is_of_members(&text) {
        // Never seen, so that only its type matters.
        return Some(called("make_array", vec![Expr::Value(Value::SingleQuotedString(String::new()).into())]));
    }
    if gives_nothing(query) && placeholders(query).is_empty() {
        return Some(called("make_array", Vec::new()));
    }
    let mut query: Query = (**query).clone();
    if !of_catalog {
        return Some(or_empty(aggregated(query)?));
    }
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] = select.projection.as_mut_slice()
    else {
        return None;
    };
    // The order is that of the items, in every query that asks so.
    query.order_by = None;
    *item = called("array_agg", vec![item.clone()]);
    Some(or_empty(query))
}

fn or_empty(query: Query) -> Expr {
    called("coalesce", vec![Expr::Subquery(Box::new(query)), called("make_array", Vec::new())])
}

/// The query of the array of a query's values, in its order. None: it has several columns, or an order that stays within it.
fn aggregated(mut query: Query) -> Option<Query> {
    const VALUE: &str = "array_value";
    let order = match query.order_by.as_ref().map(|order| &order.kind) {
        None => Vec::new(),
        Some(OrderByKind::Expressions(order)) => order.clone(),
        Some(OrderByKind::All(_)) => return None,
    };
    let name = |name: &str| Expr::Identifier(Ident::new(name));
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    if let ([SelectItem::Wildcard(_)], [from]) = (select.projection.as_slice(), select.from.as_slice()) {
        select.projection = vec![SelectItem::UnnamedExpr(only_column(from)?)];
    }
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] = select.projection.as_slice() else {
        return None;
    };
    let (item, alias) = (
        item.clone(),
        match &select.projection[0] {
            SelectItem::ExprWithAlias { alias, .. } => Some(Expr::Identifier(alias.clone())),
            _ => None,
        },
    );
    let is_item = |expr: &Expr| {
        let is_first = matches!(expr, Expr::Value(value) if matches!(&value.value, Value::Number(number, _) if number == "1"));
        is_first || *expr == item || Some(expr) == alias.as_ref()
    };
    // The rows and what they are sorted by, and then the array of them.
    let mut items = vec![SelectItem::ExprWithAlias { expr: item.clone(), alias: Ident::new(VALUE) }];
    let (mut outer, mut inner) = (Vec::new(), Vec::new());
    for by in order {
        if is_item(&by.expr) {
            outer.push(OrderByExpr { expr: name(VALUE), ..by.clone() });
            inner.push(OrderByExpr { expr: name(VALUE), ..by });
            continue;
        }
        if select.distinct.is_some() {
            return None;
        }
        let key = format!("array_key_{}", items.len());
        items.push(SelectItem::ExprWithAlias { expr: by.expr.clone(), alias: Ident::new(key.clone()) });
        outer.push(OrderByExpr { expr: name(&key), ..by.clone() });
        inner.push(OrderByExpr { expr: name(&key), ..by });
    }
    select.projection = items;
    query.order_by = (!inner.is_empty()).then_some(OrderBy { kind: OrderByKind::Expressions(inner), interpolate: None });
    let mut array = called("array_agg", vec![name(VALUE)]);
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut array
        && !outer.is_empty()
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(outer));
    }
    let text = format!("SELECT {array} FROM (SELECT 1) AS array_rows");
    let mut around = Parser::new(&GenericDialect {}).try_with_sql(&text).and_then(|mut parser| parser.parse_query()).ok()?;
    if let SetExpr::Select(select) = around.body.as_mut()
        && let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|from| &mut from.relation)
    {
        **subquery = query;
    }
    Some(*around)
}

/// The column of what is seen to have one: a series, or a table that names it.
fn only_column(from: &TableWithJoins) -> Option<Expr> {
    if !from.joins.is_empty() {
        return None;
    }
    let named = |name: &Ident| Some(Expr::Identifier(name.clone()));
    match &from.relation {
        TableFactor::Table { name, args: Some(_), alias: None, .. } if parts(name) == [SERIES] => {
            named(&Ident::new(SERIES_COLUMN))
        }
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => match alias.columns.as_slice() {
            [column] => named(&column.name),
            _ => None,
        },
        _ => None,
    }
}

/// The entries of a search path, where a subquery makes rows of it, as Grafana does: `x IN (SELECT …)`. The engine has no subqueries in
/// ORDER BY, and it is known what these rows are.
pub(crate) fn of_path(subquery: &Query, connection: &dyn ConnectionFacts) -> Option<Vec<Expr>> {
    let SetExpr::Select(select) = subquery.body.as_ref() else { return None };
    // Most subqueries read tables alone, and the text of one may be long.
    if select.from.iter().all(|from| matches!(from.relation, TableFactor::Table { args: None, .. })) {
        return None;
    }
    let text = subquery.to_string();
    let is_of_path = text.contains("generate_series(") && text.contains("string_to_array(current_setting('search_path'), ',')");
    let entry = |entry: &str| Expr::Value(Value::SingleQuotedString(entry.trim().to_owned()).into());
    is_of_path.then(|| connection.show("search_path").unwrap_or_default().split(',').map(entry).collect())
}

/// NULL for a subquery that has no rows for certain. Its placeholders stay in the statement, since clients give values for them.
pub(crate) fn without_rows(query: &Query) -> Option<Expr> {
    if !gives_nothing(query) {
        return None;
    }
    let null = || Expr::Value(Value::Null.into());
    let kept = placeholders(query);
    if kept.is_empty() {
        return Some(null());
    }
    let never = kept.into_iter().fold(Expr::Value(Value::Boolean(false).into()), |left, placeholder| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(Expr::IsNull(Box::new(placeholder))),
    });
    let conditions = vec![CaseWhen { condition: never, result: null() }];
    let (case_token, end_token) = (AttachedToken::empty(), AttachedToken::empty());
    Some(Expr::Case { case_token, end_token, operand: None, conditions, else_result: None })
}

/// The placeholders of a query, with the types that they are cast to.
fn placeholders(query: &Query) -> Vec<Expr> {
    let (mut found, mut bare) = (Vec::new(), Vec::new());
    let _ = expressions(query, |expr| {
        match expr {
            Expr::Cast { expr: inner, .. } if is_placeholder(inner) => found.push(expr.clone()),
            expr if is_placeholder(expr) => bare.push(expr.clone()),
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    let typed: Vec<String> = found.iter().map(inner_name).collect();
    found.extend(bare.into_iter().filter(|expr| !typed.contains(&expr.to_string())));
    found
}

fn inner_name(expr: &Expr) -> String {
    match expr {
        Expr::Cast { expr, .. } => expr.to_string(),
        other => other.to_string(),
    }
}

/// A subquery for one value over tables of the catalogue as one that the engine sees to have at most one row: it looks something up by a
/// number, and there it has only one.
pub(crate) fn alone(query: &mut Query) {
    let is_plain = query.with.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty()) || select.having.is_some();
    let of_catalog = |factor: &TableFactor| match factor {
        TableFactor::Table { name, args: None, .. } => parts(name).first().is_some_and(|schema| schema == PG_CATALOG),
        _ => false,
    };
    let all_of_catalog = !select.from.is_empty()
        && select
            .from
            .iter()
            .all(|from| of_catalog(&from.relation) && from.joins.iter().all(|join| of_catalog(&join.relation)));
    if !is_plain || is_grouped || select.distinct.is_some() || !all_of_catalog {
        return;
    }
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] = select.projection.as_mut_slice()
    else {
        return;
    };
    if !aggregates(item) {
        query.order_by = None;
        *item = called("max", vec![item.clone()]);
    }
}

/// Whether an expression is made of several rows.
fn aggregates(item: &Expr) -> bool {
    const NAMES: [&str; 8] = ["count", "sum", "avg", "min", "max", "array_agg", "string_agg", "bool_or"];
    let found = expressions(item, |expr| match expr {
        Expr::Function(function) if function.over.is_some() => ControlFlow::Break(()),
        Expr::Function(function) if parts(&function.name).last().is_some_and(|name| NAMES.contains(&name.as_str())) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether a subquery has no rows for certain, since it reads a table of the catalogue that never has any, or is for the rows of one. The
/// engine cannot run all of these, correlated as they are.
fn gives_nothing(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let text = query.to_string();
    if text.to_lowercase().contains("count(") {
        return false;
    }
    is_of_no_row(&text) || select.from.iter().any(joins_nothing)
}

/// Whether psql asks so for columns of tables that never have rows, or that are always NULL.
fn is_of_no_row(query: &str) -> bool {
    let of_policy = query.contains("polroles") && query.contains("pg_catalog.pg_roles");
    let of_publication = query.contains("prattrs") && query.contains("pg_catalog.pg_attribute");
    const OF_NO_ROW: [&str; 3] = ["unnest(tc.reloptions)", "unnest(evttags)", "pg_options_to_table("];
    of_policy || of_publication || OF_NO_ROW.iter().any(|known| query.contains(known))
}

/// Whether pgAdmin asks so for the roles that a role is a member of, none of which is there.
fn is_of_members(query: &str) -> bool {
    query.starts_with("WITH RECURSIVE") && query.contains("pg_catalog.pg_auth_members")
}

fn joins_nothing(from: &TableWithJoins) -> bool {
    use JoinOperator::{CrossJoin, Inner, Join, Left, LeftOuter};
    let known = |join: &ast::Join| matches!(join.join_operator, Join(_) | Inner(_) | CrossJoin(_) | Left(_) | LeftOuter(_));
    let keeps_none =
        |join: &ast::Join| matches!(join.join_operator, Join(_) | Inner(_) | CrossJoin(_)) && is_empty(&join.relation);
    from.joins.iter().all(known) && (is_empty(&from.relation) || from.joins.iter().any(keeps_none))
}

/// Whether it is a table of the catalogue that never has rows; names were qualified before.
fn is_empty(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, args: None, .. } = factor else { return false };
    matches!(parts(name).as_slice(), [schema, table] if schema == PG_CATALOG && tables::is_empty(table))
}

#[cfg(test)]
mod tests {
    use crate::rewrite::rewritten;

    #[test]
    fn subqueries_over_tables_without_rows_are_not_run() {
        let sql = "SELECT (SELECT d.adbin FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND a.atthasdef) FROM a";
        assert_eq!(rewritten(sql), "SELECT NULL FROM a");
        let sql = "SELECT ARRAY(SELECT b.rolname FROM pg_auth_members m JOIN pg_roles b ON m.roleid = b.oid WHERE m.member = r.oid) FROM r";
        assert_eq!(rewritten(sql), "SELECT make_array() FROM r");
        for kept in [
            "SELECT (SELECT count(*) FROM pg_catalog.pg_attrdef) FROM a",
            "SELECT (SELECT a.x FROM a LEFT JOIN pg_catalog.pg_attrdef AS d ON a.x = d.oid) FROM b",
            "SELECT (SELECT lab.x FROM lab.pg_attrdef AS lab) FROM a",
        ] {
            assert_eq!(rewritten(kept), kept);
        }
    }

    #[test]
    fn options_of_what_is_not_there_are_not_asked_for() {
        let sql = "SELECT array(SELECT x FROM pg_catalog.unnest(evttags) AS t(x)) FROM pg_catalog.pg_event_trigger e";
        assert_eq!(rewritten(sql), "SELECT make_array('') FROM pg_catalog.pg_event_trigger e");
        let sql = "SELECT ARRAY(SELECT quote_ident(option_name) FROM pg_catalog.pg_options_to_table(srvoptions)) FROM a";
        assert_eq!(rewritten(sql), "SELECT make_array('') FROM a");
    }

    #[test]
    fn nobody_is_a_member_of_another_role() {
        let sql = "SELECT 'x' = ANY(ARRAY(WITH RECURSIVE cte AS (SELECT oid, rolname FROM pg_roles WHERE oid = r.oid UNION ALL \
            SELECT m.roleid, g.rolname FROM cte c JOIN pg_auth_members m ON m.member = c.oid JOIN pg_roles g ON g.oid = m.roleid) \
            SELECT rolname FROM cte)) FROM pg_roles r";
        assert_eq!(rewritten(sql), "SELECT 'x' IN ('') FROM pg_catalog.pg_roles r");
    }

    #[test]
    fn arrays_of_subqueries_become_aggregates() {
        let sql = "SELECT ARRAY(SELECT b.rolname FROM pg_roles b WHERE b.oid = r.oid ORDER BY 1) FROM r";
        let expected = "SELECT coalesce((SELECT array_agg(b.rolname) FROM pg_catalog.pg_roles b WHERE b.oid = r.oid), make_array()) FROM r";
        assert_eq!(rewritten(sql), expected);
    }

    #[test]
    fn arrays_of_all_columns_have_one() {
        let sql = "SELECT ARRAY(SELECT * FROM generate_series(0, 5, 1))";
        let expected = "SELECT coalesce((SELECT array_agg(array_value) FROM (SELECT value AS array_value FROM generate_series(0, 5, 1)) \
            AS array_rows), make_array())";
        assert_eq!(rewritten(sql), expected);
        assert!(rewritten("SELECT ARRAY(SELECT * FROM generate_series(0, n) AS s)").contains("SELECT s AS array_value"));
        let kept = "SELECT ARRAY(SELECT * FROM t)";
        assert_eq!(rewritten(kept), kept);
    }

    #[test]
    fn placeholders_of_subqueries_that_are_not_run_stay() {
        let sql = "SELECT (SELECT d.adbin FROM pg_attrdef d WHERE d.adnum = $2 AND d.adbin = $1::VARCHAR) FROM a";
        let expected = "SELECT CASE WHEN false AND $1::VARCHAR IS NULL AND $2 IS NULL THEN NULL END FROM a";
        assert_eq!(rewritten(sql), expected);
    }

    #[test]
    fn what_is_looked_up_is_seen_to_be_one_row() {
        let sql = "SELECT (SELECT c.relkind = 'c' FROM pg_class c WHERE c.oid = t.typrelid) FROM pg_type t";
        let expected = "SELECT (SELECT max(c.relkind = 'c') FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid) FROM pg_catalog.pg_type t";
        assert_eq!(rewritten(sql), expected);
        for kept in [
            "SELECT (SELECT count(*) FROM pg_catalog.pg_class c WHERE c.oid = t.a) FROM t",
            "SELECT (SELECT u.a FROM u WHERE u.a = t.a) FROM t",
            "SELECT (SELECT c.oid FROM pg_catalog.pg_class c LIMIT 1) FROM t",
        ] {
            assert_eq!(rewritten(kept), kept);
        }
    }
}
