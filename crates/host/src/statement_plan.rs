//! [`plan_of`]: a statement's plan. What the engine's planner takes wrong is mended in the statement.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, SchemaError, not_impl_err, plan_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, BinaryOperator, CastKind, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint, JoinOperator, Query, Select,
    SelectItem, SetExpr, Statement as Sql, TableFactor, TypedString, Value, Visitor, VisitorMut,
};
use pithead_functions::{NAMED_CAST, with_merged_keys};
use pithead_model::RESERVED;
use pithead_syntax::{any_expression, expressions, expressions_at_mut, expressions_mut, walk, walk_mut};

use crate::ambiguous;
use crate::dialect::{binary, call, in_the_engines_words, normal, null};
use crate::lateral_aliases::{missing, plan_with_names};
use crate::writing::planned_by;
use crate::{ctes, order_columns, outer_names, unread_names, wide_rows};

/// The plan of a statement. Casts have names of their own where the planner would otherwise find two columns of one name.
pub(crate) async fn plan_of(state: &SessionState, statement: Statement) -> Result<LogicalPlan, DataFusionError> {
    let statement = order_columns::of_tables(statement, |it| plan_of_said(state, it)).await?;
    plan_of_said(state, statement).await
}

/// The same of one whose ORDER BYs [say](order_columns) of which table names are.
pub(crate) async fn plan_of_said(state: &SessionState, statement: Statement) -> Result<LogicalPlan, DataFusionError> {
    plan(state, statement, true).await
}

/// The same of one whose expressions read columns alone, and no names that its SELECT gives.
pub(crate) async fn plan_of_columns(state: &SessionState, statement: Statement) -> Result<LogicalPlan, DataFusionError> {
    plan(state, statement, false).await
}

async fn plan(state: &SessionState, mut statement: Statement, reads_names: bool) -> Result<LogicalPlan, DataFusionError> {
    let has_merged_keys = in_the_engines_words(state, &mut statement)?;
    let plan = plan_of_known(state, &statement, reads_names).await?;
    ambiguous::refuse(&statement, &plan)?;
    if has_merged_keys { with_merged_keys(plan) } else { Ok(plan) }
}

/// The plan of a statement that has nothing that the planner does not know.
async fn plan_of_known(state: &SessionState, statement: &Statement, reads_names: bool) -> Result<LogicalPlan, DataFusionError> {
    refuse_null_treatment(state, statement)?;
    refuse_dropped(state, statement)?;
    ctes::refuse_drawn_again(state, statement)?;
    if let Some(wide) = wide_rows::plan(state, statement).await {
        return wide;
    }
    match plan_named(state, statement, reads_names).await.and_then(outer_names::checked) {
        Err(error) if outer_names::hides(&error) => {
            let plan = |named| async move { plan_named(state, &named, reads_names).await.and_then(outer_names::checked) };
            outer_names::plan_again(statement, error, |named| planned_by(named, plan)).await
        }
        plan => plan,
    }
}

/// The plan of a statement, with other names where the planner refuses those that it has.
async fn plan_named(state: &SessionState, statement: &Statement, reads_names: bool) -> Result<LogicalPlan, DataFusionError> {
    let refused = match state.statement_to_plan(statement.clone()).await {
        Err(error) if is_refused(&error) => error,
        Err(error) if reads_names && missing(&error).is_some() => {
            return plan_with_names(state, statement.clone(), error).await;
        }
        plan => return plan,
    };
    // Some functions take literals alone, and no casts that have a name.
    for casts in [Casts::OfColumns, Casts::All] {
        let Some(named) = with_names_apart(statement.clone(), casts) else { continue };
        match state.statement_to_plan(named).await {
            Err(error) if outer_names::hides(&error) => return Err(error),
            Err(_) => {}
            plan => return plan,
        }
    }
    Err(refused)
}

/// Whether the planner refused a statement for names that come again.
pub(crate) fn is_refused(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => !matches!(**error, SchemaError::FieldNotFound { .. }),
        DataFusionError::Plan(text) => text.contains("require unique expression names"),
        _ => false,
    }
}

/// Which casts get a name of their own.
#[derive(Clone, Copy)]
enum Casts {
    OfColumns,
    All,
}

/// The statement with a name for each of these casts and each predicate of a subquery, for each column of a later branch of a
/// UNION, for each that nobody reads by its own name, and for each that comes again within a query; none where there are none.
fn with_names_apart(mut statement: Statement, casts: Casts) -> Option<Statement> {
    let Statement::Statement(sql) = &mut statement else { return None };
    let mut found = false;
    if matches!(casts, Casts::All) {
        found |= unread_names::give(sql);
    }
    let is_result = matches!(sql.as_ref(), Sql::Query(_));
    let _ = walk_mut(sql, &mut Again { found: &mut found, depth: usize::from(!is_result) });
    let _ = walk_mut(sql, &mut LaterBranches { found: &mut found });
    let _ = expressions_mut(sql, |expr| {
        if let Expr::Function(Function { filter: Some(filter), .. }) = expr {
            tell_by_text(filter);
        }
        let Some(name) = name_apart(expr, casts) else { return ControlFlow::<()>::Continue(()) };
        found = true;
        let named = std::mem::replace(expr, null());
        *expr = call(NAMED_CAST, [named, Expr::Value(Value::SingleQuotedString(name).into())]);
        ControlFlow::<()>::Continue(())
    });
    found.then_some(statement)
}

/// What tells an expression from others that the planner gives the same name.
fn name_apart(expr: &Expr, casts: Casts) -> Option<String> {
    match expr {
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon | CastKind::TryCast, expr: of, data_type, .. }
            if matches!(casts, Casts::All) || reads_columns(of) =>
        {
            Some(data_type.to_string())
        }
        Expr::TypedString(TypedString { data_type, .. }) if matches!(casts, Casts::All) => Some(data_type.to_string()),
        Expr::InSubquery { .. } | Expr::Exists { .. } => Some(expr.to_string()),
        _ => None,
    }
}

/// Tells FILTERs with subqueries apart by a text in them, and takes names of casts out: an aggregate is named after its FILTER
/// as that is shown, with its casts and without its subqueries, and not by the names of what is in it.
fn tell_by_text(filter: &mut Expr) {
    let mut texts = Vec::new();
    expressions_at_mut(filter, |part, depth| {
        let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = part else { return };
        let is_named =
            depth == 0 && matches!(name.0.as_slice(), [name] if name.as_ident().is_some_and(|it| it.value == NAMED_CAST));
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(of)), FunctionArg::Unnamed(FunctionArgExpr::Expr(text))] =
            list.args.as_slice()
        else {
            return;
        };
        if is_named {
            if matches!(of, Expr::InSubquery { .. } | Expr::Exists { .. }) {
                texts.push(text.clone());
            }
            *part = of.clone();
        }
    });
    for text in texts {
        let condition = Expr::Nested(Box::new(std::mem::replace(filter, null())));
        *filter = binary(condition, BinaryOperator::And, Expr::IsNotNull(Box::new(text)));
    }
}

/// Names columns that come again within one query as DuckDB does, `a_1` after `a`. Those of a result keep their name.
struct Again<'a> {
    found: &'a mut bool,
    /// How many queries are around; more for one whose rows are no result.
    depth: usize,
}

impl VisitorMut for Again<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.depth > 0
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            self.name(&mut select.projection);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

impl Again<'_> {
    fn name(&mut self, items: &mut [SelectItem]) {
        for place in 1..items.len() {
            let (before, rest) = items.split_at_mut(place);
            let SelectItem::UnnamedExpr(expr) = &rest[0] else { continue };
            let times = before.iter().filter(|item| matches!(item, SelectItem::UnnamedExpr(other) if other == expr)).count();
            let times = times + before.iter().filter(|item| named_after(item, expr)).count();
            if times > 0 {
                *self.found = true;
                let alias = Ident::with_quote('"', format!("{expr}_{times}"));
                rest[0] = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
    }
}

/// Whether an item is an expression that came again, under the name that it was given.
fn named_after(item: &SelectItem, expr: &Expr) -> bool {
    matches!(item, SelectItem::ExprWithAlias { expr: other, alias } if other == expr && alias.value.starts_with(&format!("{expr}_")))
}

/// Names the columns of the later branches of set operations, which have the names of the first one.
struct LaterBranches<'a> {
    found: &'a mut bool,
}

impl VisitorMut for LaterBranches<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.name_later(&mut query.body);
        ControlFlow::Continue(())
    }
}

impl LaterBranches<'_> {
    fn name_later(&mut self, body: &mut SetExpr) {
        let SetExpr::SetOperation { left, right, .. } = body else { return };
        self.name_later(left);
        self.name_all(right);
    }

    fn name_all(&mut self, body: &mut SetExpr) {
        match body {
            SetExpr::SetOperation { left, right, .. } => {
                self.name_all(left);
                self.name_all(right);
            }
            SetExpr::Select(select) => {
                for (index, item) in select.projection.iter_mut().enumerate() {
                    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                        *self.found = true;
                        let alias = Ident::with_quote('"', format!("{RESERVED}branch_{index}"));
                        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                    }
                }
            }
            _ => {}
        }
    }
}

fn reads_columns(expr: &Expr) -> bool {
    any_expression(expr, |part| matches!(part, Expr::Identifier(_) | Expr::CompoundIdentifier(_)))
}

/// Hands IGNORE NULLS and RESPECT NULLS to the call that they belong to: the parser takes `first_value(nullif(x, 1) IGNORE NULLS)` for
/// one of `nullif`.
pub(crate) fn mend_null_treatment(statement: &mut Statement) {
    let Statement::Statement(sql) = statement else { return };
    // Inner calls come first.
    let _ = expressions_mut(sql, |expr| {
        if let Expr::Function(outer) = expr
            && let FunctionArguments::List(list) = &mut outer.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(inner)))) = list.args.last_mut()
            && inner.over.is_none()
            && let Some(treatment) = inner.null_treatment.take()
        {
            match outer.null_treatment.is_some() || list.clauses.iter().any(is_null_treatment) {
                // It says it twice, which is refused where it stands.
                true => inner.null_treatment = Some(treatment),
                false => list.clauses.insert(0, FunctionArgumentClause::IgnoreOrRespectNulls(treatment)),
            }
        }
        ControlFlow::<()>::Continue(())
    });
}

fn is_null_treatment(clause: &FunctionArgumentClause) -> bool {
    matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(_))
}

/// The planner forgets IGNORE NULLS at calls that are no aggregates and no window functions.
fn refuse_null_treatment(state: &SessionState, statement: &Statement) -> Result<(), DataFusionError> {
    let Statement::Statement(sql) = statement else { return Ok(()) };
    let mut refused = None;
    let _ = expressions(sql, |expr| {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let has_clause = matches!(&function.args, FunctionArguments::List(list) if list.clauses.iter().any(is_null_treatment));
        let name = function.name.to_string().to_lowercase();
        let takes_it = function.over.is_some()
            || state.aggregate_functions().contains_key(&name)
            || state.window_functions().contains_key(&name);
        if (has_clause || function.null_treatment.is_some()) && !takes_it {
            refused = Some(name);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    match refused {
        Some(name) => plan_err!("IGNORE NULLS and RESPECT NULLS are of aggregates and window functions, and {name} is none"),
        None => Ok(()),
    }
}

/// The planner leaves out clauses that it does not know, and would give other rows than were asked for.
fn refuse_dropped(state: &SessionState, statement: &Statement) -> Result<(), DataFusionError> {
    let Statement::Statement(sql) = statement else { return Ok(()) };
    if let Sql::Update(update) = sql.as_ref() {
        let targets: Vec<String> = update.assignments.iter().filter_map(|one| column_set(&one.target)).collect();
        if let Some(twice) = targets.iter().enumerate().find(|(index, target)| targets[..*index].contains(target)) {
            return plan_err!("UPDATE sets column {} twice", twice.1);
        }
    }
    match walk(sql, &mut Dropped { state }) {
        ControlFlow::Break(what) => not_impl_err!("{what} is not supported"),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The column that UPDATE sets, whether or not the table is named before it; none: several at once, which the planner
/// refuses.
fn column_set(target: &AssignmentTarget) -> Option<String> {
    match target {
        AssignmentTarget::ColumnName(name) => name.0.last()?.as_ident().map(normal),
        AssignmentTarget::Tuple(_) => None,
    }
}

/// Looks for clauses that the planner leaves out.
struct Dropped<'a> {
    state: &'a SessionState,
}

impl Visitor for Dropped<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        first_of([
            (!query.locks.is_empty(), "FOR UPDATE and FOR SHARE"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
            (query.for_clause.is_some(), "FOR XML, FOR JSON or FOR BROWSE"),
        ])
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
        first_of([
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!modifiers.is_empty(), "WITH ROLLUP, WITH CUBE or WITH TOTALS; write GROUP BY ROLLUP (…): this"),
            (
                select.from.iter().flat_map(|from| &from.joins).any(joins_by_nothing),
                "JOIN without ON or USING; write CROSS JOIN to have each row with each: this",
            ),
        ])
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<String> {
        if let TableFactor::Table { with_ordinality: true, .. } | TableFactor::Function { with_ordinality: true, .. } = table {
            return ControlFlow::Break("WITH ORDINALITY; row_number() OVER () numbers rows: it".to_owned());
        }
        let TableFactor::Table { sample, partitions, with_hints, .. } = table else { return ControlFlow::Continue(()) };
        first_of([
            (sample.is_some(), "TABLESAMPLE"),
            (!partitions.is_empty(), "PARTITION in FROM"),
            (!with_hints.is_empty(), "WITH after a table"),
        ])
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let name = function.name.to_string().to_lowercase();
        if function.over.is_some() || !self.state.scalar_functions().contains_key(&name) {
            return ControlFlow::Continue(());
        }
        let is_distinct = matches!(&function.args, FunctionArguments::List(list)
            if matches!(list.duplicate_treatment, Some(DuplicateTreatment::Distinct)));
        let what = if function.filter.is_some() {
            "FILTER"
        } else if !function.within_group.is_empty() {
            "WITHIN GROUP"
        } else if is_distinct {
            "DISTINCT"
        } else {
            return ControlFlow::Continue(());
        };
        ControlFlow::Break(format!("{what} is of aggregates, and at {name}, which is none, it"))
    }
}

/// Whether a join says by nothing which rows belong together.
fn joins_by_nothing(join: &Join) -> bool {
    matches!(
        &join.join_operator,
        JoinOperator::Join(JoinConstraint::None)
            | JoinOperator::Inner(JoinConstraint::None)
            | JoinOperator::Left(JoinConstraint::None)
            | JoinOperator::LeftOuter(JoinConstraint::None)
            | JoinOperator::Right(JoinConstraint::None)
            | JoinOperator::RightOuter(JoinConstraint::None)
            | JoinOperator::FullOuter(JoinConstraint::None)
    )
}

fn first_of<const N: usize>(clauses: [(bool, &str); N]) -> ControlFlow<String> {
    match clauses.into_iter().find(|(is_there, _)| *is_there) {
        Some((_, what)) => ControlFlow::Break(what.to_owned()),
        None => ControlFlow::Continue(()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn parsed(sql: &str) -> Statement {
        let statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        Statement::Statement(Box::new(statement))
    }

    #[test]
    fn nulls_are_ignored_by_the_call_around() {
        for (sql, expected) in [
            ("SELECT first_value(nullif(x, 1) IGNORE NULLS) OVER ()", "SELECT first_value(nullif(x, 1) IGNORE NULLS) OVER ()"),
            ("SELECT first_value(x IGNORE NULLS)", "SELECT first_value(x IGNORE NULLS)"),
        ] {
            let mut statement = parsed(sql);
            mend_null_treatment(&mut statement);
            assert_eq!(statement.to_string(), expected);
            let Statement::Statement(sql) = &statement else { unreachable!("parsed above") };
            let _ = expressions(sql, |expr| {
                if let Expr::Function(function) = expr {
                    assert!(function.name.to_string() == "first_value" || function.null_treatment.is_none(), "{function}");
                }
                ControlFlow::<()>::Continue(())
            });
        }
    }

    #[test]
    fn filters_are_told_apart_by_what_is_written_in_them() {
        let sql = "SELECT sum(a), count(*) FILTER (WHERE a::int > 1 AND b IN (SELECT c::int FROM t)) FROM t";
        let named = with_names_apart(parsed(sql), Casts::OfColumns).unwrap().to_string();
        let (filter, query) = named.split_once("IN (SELECT").unwrap();
        assert!(!filter.contains(NAMED_CAST) && query.contains(NAMED_CAST), "{named}");
        assert!(query.contains("AND 'b IN (SELECT ") && query.contains(" IS NOT NULL)"), "{named}");
    }

    #[test]
    fn casts_get_names() {
        let sql = "SELECT sum(x::double), CAST('1' AS int), TRY_CAST(a.b + 1 AS int), DATE '2020-01-01' FROM a";
        let names = |sql, casts| with_names_apart(parsed(sql), casts).map(|it| it.to_string().matches(NAMED_CAST).count());
        assert_eq!((names(sql, Casts::OfColumns), names(sql, Casts::All)), (Some(2), Some(4)));
        let sql = "SELECT CAST('1' AS int)";
        assert_eq!((names(sql, Casts::OfColumns), names(sql, Casts::All)), (None, Some(1)));
    }
}
