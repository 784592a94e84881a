//! What DuckDB and PostgreSQL know and the engine's planner does not, written in what it knows.

mod any_of_list;
mod chains;
mod column_lists;
mod fields;
mod formats;
mod group_all;
mod inner_with;
mod intervals;
mod laterals;
mod literals;
mod macros;
mod members;
mod misfits;
mod order_names;
mod order_subqueries;
mod ordinals;
mod postgres_names;
mod powers;
mod result_names;
mod row_sets;
mod spellings;
mod struct_packs;
mod subquery_forms;
mod subquery_names;
mod using;
mod windows;

use std::ops::ControlFlow;

use datafusion::common::{Result, not_impl_err, plan_err};
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Fetch, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    LimitClause, ObjectName, Query, SetExpr, TableFactor, Value, VisitorMut,
};
use pithead_syntax::walk_mut;

pub(crate) use result_names::{PostgresNames, name_as_postgres, name_results, result_names, view_names};

/// A statement in the engine's words, and whether its plan has [merged keys](pithead_functions::with_merged_keys) to be resolved.
pub(crate) fn in_the_engines_words(state: &SessionState, statement: &mut Statement) -> Result<bool> {
    let Statement::Statement(sql) = statement else { return Ok(false) };
    chains::balance(sql.as_mut());
    inner_with::name_apart(sql.as_mut());
    subquery_forms::expand(sql.as_mut());
    result_names::give(sql.as_mut());
    order_subqueries::compute_before(sql.as_mut());
    laterals::join_to_what_is_before(sql.as_mut());
    spellings::replace(sql.as_mut()).or_else(|refused| not_impl_err!("{refused}"))?;
    ordinals::write_out(sql.as_mut()).or_else(|refused| plan_err!("{refused}"))?;
    order_names::write_out(sql.as_mut());
    subquery_names::give(sql.as_mut());
    column_lists::name(sql.as_mut());
    struct_packs::expand(state, sql.as_mut()).or_else(|refused| plan_err!("{refused}"))?;
    fields::in_brackets(sql.as_mut());
    powers::expand(sql.as_mut());
    row_sets::expand(state, sql.as_mut());
    intervals::expand(sql.as_mut());
    literals::expand(sql.as_mut());
    macros::expand(state, sql.as_mut());
    misfits::refuse(state, sql)?;
    members::expand(sql.as_mut());
    any_of_list::expand(sql.as_mut());
    group_all::without_constants(state, sql.as_mut());
    windows::expand(sql.as_mut()).or_else(|refused| not_impl_err!("{refused}"))?;
    if let ControlFlow::Break(refused) = walk_mut(sql, &mut FetchFirst) {
        return not_impl_err!("{refused}");
    }
    using::mark(sql.as_mut()).or_else(|refused| not_impl_err!("{refused}"))
}

/// FETCH FIRST, which is LIMIT.
struct FetchFirst;

impl VisitorMut for FetchFirst {
    type Break = &'static str;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<&'static str> {
        let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return ControlFlow::Continue(()) };
        if with_ties || percent {
            return ControlFlow::Break("FETCH … PERCENT and FETCH … WITH TIES are not supported; use LIMIT, or rank()");
        }
        let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
        let (limit, none) =
            (Some(quantity.unwrap_or_else(one)), || LimitClause::LimitOffset { limit: None, offset: None, limit_by: vec![] });
        match query.limit_clause.take().unwrap_or_else(none) {
            LimitClause::LimitOffset { limit: None, offset, limit_by } => {
                query.limit_clause = Some(LimitClause::LimitOffset { limit, offset, limit_by });
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break("LIMIT and FETCH FIRST in one query are not supported; use one"),
        }
    }
}

/// A call of a function.
pub(crate) fn call(name: &str, args: impl IntoIterator<Item = Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::with_quote('"', name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: vec![] }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// Two operands and the operator between them.
pub(crate) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// The name as names are compared.
pub(crate) fn normal(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

/// The query of all that a table has.
pub(crate) fn query_over(table: TableFactor) -> Query {
    let Expr::Subquery(mut query) = macros::parsed("(SELECT * FROM t)") else { unreachable!("a query is written there") };
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from[0].relation = table;
    }
    *query
}

/// NULL, which stands where an expression was taken away.
pub(crate) fn null() -> Expr {
    Expr::Value(Value::Null.into())
}
