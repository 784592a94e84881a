//! [`Correlated`]: subqueries that refer to the query around them in ways in which DataFusion's rules give other rows, or none.
//!
//! DataFusion 55.2 looks for equalities in WHERE, takes them out of the subquery, and joins by them. It does so through outer joins,
//! windows, limits, and HAVING without groups, where the rows are others without the condition; and it refuses what is no condition.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, JoinType, Result, ScalarValue, not_impl_err};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Exists, InSubquery};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Join, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, SubqueryAlias, binary_expr, lit, not,
    when,
};
use datafusion::optimizer::AnalyzerRule;

use crate::dependent::{Around, Dependent, Names, joined_by, under_name};
use crate::exists_limits::skip_and_fetch;
use crate::kept_names::map_named;
use crate::only_row::only_value;
use crate::repeatable::is_the_same_again;
use crate::subqueries::is_subquery;
use crate::unnested::{add_outer_columns, hangs_on_another, takes};

/// The column of a subquery's value.
const VALUE: &str = "value";

/// Computes such subqueries for all rows of the query around at once, and joins these with what was found.
#[derive(Debug)]
pub(crate) struct Correlated;

impl AnalyzerRule for Correlated {
    fn name(&self) -> &'static str {
        "pithead_correlated"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_correlated(&plan)? {
            return Ok(plan);
        }
        let names = Names::default();
        Ok(plan.transform_up_with_subqueries(|node| rewritten(node, &names))?.data)
    }
}

/// Whether anything in a plan refers to a query around it.
fn has_correlated(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = found || node.expressions().iter().any(|expr| expr.contains_outer());
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn rewritten(node: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    match &node {
        LogicalPlan::Join(join) => Ok(match beside(join, names)? {
            Some(joined) => Transformed::yes(joined),
            None => Transformed::no(node),
        }),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Window(_) => with_values(node, names),
        _ => Ok(Transformed::no(node)),
    }
}

/// Where a subquery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// As a value.
    Scalar,
    /// In EXISTS.
    Exists,
    /// In IN.
    Member,
    /// In FROM.
    Lateral,
}

fn use_of(expr: &Expr) -> Option<(&Subquery, Use)> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some((subquery, Use::Scalar)),
        Expr::Exists(Exists { subquery, .. }) => Some((subquery, Use::Exists)),
        Expr::InSubquery(InSubquery { subquery, .. }) => Some((subquery, Use::Member)),
        _ => None,
    }
}

/// A node, in the place of whose subqueries are columns of what it reads.
fn with_values(node: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let input = node.inputs()[0].clone();
    // There, the engine looks for no such subquery, or for some alone.
    let least = |used: Use| match &node {
        LogicalPlan::Sort(_) => Others::Unable,
        LogicalPlan::Window(_) | LogicalPlan::Aggregate(_) if used == Use::Scalar => Others::Unable,
        _ => Others::Able,
    };
    let is_repeatable = is_the_same_again(&input)?;
    let mut found: Vec<(Expr, Around<'_>)> = Vec::new();
    node.apply_expressions(|expr| {
        expr.apply(|part| {
            if let Some((subquery, used)) = use_of(part)
                && !found.iter().any(|(known, _)| known == part)
                && others(&subquery.subquery, used)?.max(least(used)) >= least_taken(is_repeatable)
                && let Some(around) = around(&subquery.subquery, part, &input, names)?
            {
                found.push((part.clone(), around));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    let mut joined = input.clone();
    let mut values: Vec<(Expr, Expr)> = Vec::with_capacity(found.len());
    for (part, around) in found {
        if let (Expr::ScalarSubquery(subquery), false) = (&part, is_repeatable)
            && takes(subquery, input.schema())?
        {
            continue;
        }
        let Some(value) = value_of(&part, &around)? else { continue };
        let Some(rows) = around.rows(&value)? else { continue };
        refuse_unless(is_repeatable)?;
        let (with, column) = with_value(joined, rows, &value, &around)?;
        joined = with;
        values.push((part, column));
    }
    if values.is_empty() {
        return Ok(Transformed::no(node));
    }
    let columns = node.schema().columns();
    let node = map_named(node, |expr| {
        expr.transform_down(|part| {
            Ok(match values.iter().find(|(known, _)| *known == part) {
                Some((_, column)) => Transformed::new(column.clone(), true, TreeNodeRecursion::Jump),
                None => Transformed::no(part),
            })
        })
    })?;
    let exprs = node.data.expressions();
    let node = node.data.with_new_exprs(exprs, vec![joined])?;
    Ok(Transformed::yes(match node {
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => node,
        // It has all columns of its input, and what is above knows those that were there.
        node => LogicalPlanBuilder::from(node).project(columns.into_iter().map(Expr::Column))?.build()?,
    }))
}

/// What a subquery reads of the query around it; none: of a query further out, or nothing.
fn around<'a>(subquery: &LogicalPlan, part: &Expr, input: &'a LogicalPlan, names: &'a Names) -> Result<Option<Around<'a>>> {
    let mut columns: Vec<Column> = Vec::new();
    let mut is_plain = true;
    subquery.apply(|node| {
        for expr in node.expressions() {
            add_outer_columns(&expr, &mut columns)?;
            is_plain &= !reads_further(&expr, node)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if columns.is_empty() {
        return Ok(None);
    }
    if let Expr::InSubquery(InSubquery { expr, .. }) = part {
        is_plain &= !expr.exists(|part| Ok(is_subquery(part)))?;
        columns.extend(expr.column_refs().into_iter().filter(|column| !columns.contains(column)).cloned().collect::<Vec<_>>());
    }
    let is_around = columns.iter().all(|column| input.schema().has_column(column));
    Ok((is_plain && is_around).then_some(Around { plan: input, columns, names }))
}

/// Whether a subquery within an expression reads columns that what the node reads does not have.
fn reads_further(expr: &Expr, node: &LogicalPlan) -> Result<bool> {
    expr.exists(|part| {
        let nested = match part {
            Expr::SetComparison(comparison) => Some(&comparison.subquery),
            part => use_of(part).map(|(subquery, _)| subquery),
        };
        let Some(nested) = nested else { return Ok(false) };
        let is_own = |column: &Column| node.inputs().iter().any(|input| input.schema().has_column(column));
        let mut columns = Vec::new();
        for expr in &nested.outer_ref_columns {
            add_outer_columns(expr, &mut columns)?;
        }
        Ok(!columns.iter().all(is_own))
    })
}

/// Rows that may be others each time would find no value.
fn refuse_unless(is_repeatable: bool) -> Result<()> {
    match is_repeatable {
        true => Ok(()),
        false => not_impl_err!(
            "such a subquery over rows that may be others each time they are computed, as with random() or LIMIT; store these rows in \
             a table first"
        ),
    }
}

/// A plan with one row for each row of the query around, whose only column is what the part stands for; none: it is something else.
fn value_of(part: &Expr, around: &Around<'_>) -> Result<Option<LogicalPlan>> {
    Ok(match part {
        Expr::ScalarSubquery(subquery) => Some(only_row(&subquery.subquery)?),
        Expr::Exists(Exists { subquery, negated }) => {
            let any = counted(None).gt(lit(0_i64));
            Some(computed(&subquery.subquery, if *negated { not(any) } else { any })?)
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let of_query = expr.as_ref().clone().transform(|part| match part {
                Expr::Column(column) => {
                    let field = around.plan.schema().field_from_column(&column)?;
                    Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
                }
                part => Ok(Transformed::no(part)),
            })?;
            let member = Expr::Column(Column::from(subquery.subquery.schema().qualified_field(0)));
            let equal = binary_expr(of_query.data, Operator::Eq, member);
            let unknown = Expr::Literal(ScalarValue::Boolean(None), None);
            let found = when(counted(Some(equal.clone())).gt(lit(0_i64)), lit(!negated))
                .when(counted(Some(equal.is_null())).gt(lit(0_i64)), unknown)
                .otherwise(lit(*negated))?;
            Some(computed(&subquery.subquery, found)?)
        }
        _ => None,
    })
}

/// How many rows there are, or those of them for which a condition is true.
fn counted(condition: Option<Expr>) -> Expr {
    let filter = condition.map(Box::new);
    Expr::AggregateFunction(AggregateFunction::new_udf(count_udaf(), vec![lit(1_i64)], false, filter, vec![], None))
}

/// What is computed of aggregates over all rows.
fn computed(rows: &Arc<LogicalPlan>, of: Expr) -> Result<LogicalPlan> {
    let mut aggregates: Vec<Expr> = Vec::new();
    let above = of.transform_down(|part| match part {
        Expr::AggregateFunction(_) => {
            let column = Expr::Column(Column::from_name(part.schema_name().to_string()));
            if !aggregates.contains(&part) {
                aggregates.push(part);
            }
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        }
        part => Ok(Transformed::no(part)),
    })?;
    let aggregate = LogicalPlan::Aggregate(Aggregate::try_new(Arc::clone(rows), vec![], aggregates)?);
    LogicalPlanBuilder::from(aggregate).project([above.data.alias(VALUE)])?.build()
}

/// A subquery that has one row at most, or fails.
fn only_row(subquery: &Arc<LogicalPlan>) -> Result<LogicalPlan> {
    if has_one_at_most(subquery) {
        return Ok(subquery.as_ref().clone());
    }
    let value = Expr::Column(Column::from(subquery.schema().qualified_field(0)));
    let all = AggregateFunction::new_udf(array_agg_udaf(), vec![value], false, None, vec![], None);
    computed(subquery, only_value(Expr::AggregateFunction(all)))
}

fn has_one_at_most(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Limit(limit) if matches!(skip_and_fetch(limit), Some((_, Some(0 | 1)))) => true,
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_) => plan.inputs().into_iter().all(has_one_at_most),
        _ => false,
    }
}

/// The query with the value of each of its rows, and the column that this is.
fn with_value(query: LogicalPlan, rows: Dependent, value: &LogicalPlan, around: &Around<'_>) -> Result<(LogicalPlan, Expr)> {
    let relation = around.names.next();
    let value = Expr::Column(Column::from(value.schema().qualified_field(0))).alias(VALUE);
    let keys = rows.keys.iter().map(|key| Expr::Column(key.clone()).alias(&key.name));
    let plan = LogicalPlanBuilder::from(rows.plan).project([value].into_iter().chain(keys).collect::<Vec<_>>())?.build()?;
    let keys = rows.keys.into_iter().map(|key| Column::from_name(key.name)).collect();
    let found = under_name(Dependent::new(plan, keys), &relation)?;
    let joined = joined_by(query, found.plan, JoinType::Left, (&around.columns, &found.keys), None)?;
    Ok((joined, Expr::Column(Column::new(Some(relation), VALUE))))
}

/// A join whose right side refers to its left one, as one by the values of the left.
fn beside(join: &Join, names: &Names) -> Result<Option<LogicalPlan>> {
    let is_known = matches!(join.join_type, JoinType::Inner | JoinType::Left);
    let Some(right) = of_lateral(&join.right).filter(|_| is_known) else { return Ok(None) };
    let is_repeatable = is_the_same_again(&join.left)?;
    if others(&right, Use::Lateral)? < least_taken(is_repeatable) {
        return Ok(None);
    }
    let Some(around) = around(&right, &lit(true), &join.left, names)? else { return Ok(None) };
    let Some(rows) = around.rows(&right)? else { return Ok(None) };
    refuse_unless(is_repeatable)?;
    let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    let filter = crate::balanced::conjunction(equal.chain(join.filter.clone()));
    let left = join.left.as_ref().clone();
    let joined = joined_by(left, rows.plan, join.join_type, (&around.columns, &rows.keys), filter)?;
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(joined).project(columns)?.build().map(Some)
}

/// What a LATERAL computes; none: it is another relation.
fn of_lateral(plan: &LogicalPlan) -> Option<LogicalPlan> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some(subquery.subquery.as_ref().clone()),
        LogicalPlan::SubqueryAlias(alias) => {
            let input = of_lateral(&alias.input)?;
            SubqueryAlias::try_new(Arc::new(input), alias.alias.clone()).ok().map(LogicalPlan::SubqueryAlias)
        }
        _ => None,
    }
}

/// What DataFusion's rules, and those of ours that go by equalities, make of a subquery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Others {
    Able,
    /// They refuse it, or may.
    Unable,
    /// They may give other rows.
    Wrong,
}

/// What must be said of a subquery for it to be taken. Over rows that may be others each time it is refused instead.
fn least_taken(is_repeatable: bool) -> Others {
    if is_repeatable { Others::Unable } else { Others::Wrong }
}

fn others(subquery: &LogicalPlan, used: Use) -> Result<Others> {
    if used == Use::Lateral
        && !subquery.exists(|node| Ok(matches!(node, LogicalPlan::TableScan(_) | LogicalPlan::Values(_))))?
    {
        // Rows beside rows, without a join.
        return Ok(Others::Able);
    }
    below(subquery, used, true)
}

/// `is_top`: nothing but names is above.
fn below(node: &LogicalPlan, used: Use, is_top: bool) -> Result<Others> {
    if !hangs_on_another(node)? {
        return Ok(Others::Able);
    }
    let is_named = match node {
        LogicalPlan::Projection(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::Distinct(_) => true,
        LogicalPlan::Filter(filter) => matches!(filter.input.as_ref(), LogicalPlan::Aggregate(_)),
        _ => false,
    };
    let mut found = at(node, used, is_top)?;
    for input in node.inputs() {
        found = found.max(below(input, used, is_top && is_named)?);
    }
    Ok(found)
}

fn at(node: &LogicalPlan, used: Use, is_top: bool) -> Result<Others> {
    let reads = node.expressions().iter().any(Expr::contains_outer);
    let (is_wrong, is_refused) = match node {
        LogicalPlan::Filter(filter) => {
            let is_having = is_total(&filter.input) && (reads || hangs_on_another(&filter.input)?);
            let is_of_groups = matches!(filter.input.as_ref(), LogicalPlan::Aggregate(_));
            (is_having, reads && (is_of_groups || used == Use::Scalar && has_subquery(&filter.predicate)?))
        }
        LogicalPlan::Projection(projection) => {
            let is_null_of_total = is_total(&projection.input) && projection.expr.iter().any(asks_for_null);
            (is_null_of_total, reads && !(is_top && used == Use::Exists))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let has_sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
            let has_subqueries = aggregate.aggr_expr.iter().any(|expr| has_subquery(expr).unwrap_or(true));
            (has_sets, reads || !is_top || has_subqueries && used == Use::Scalar)
        }
        // What is correlated below a derived table.
        LogicalPlan::SubqueryAlias(alias) => {
            let is_table = matches!(alias.input.as_ref(), LogicalPlan::TableScan(_));
            (false, !(is_table || is_top && used == Use::Lateral))
        }
        LogicalPlan::Distinct(Distinct::All(_)) => (used == Use::Lateral, !is_top),
        LogicalPlan::Sort(_) => (false, reads),
        LogicalPlan::Limit(limit) => match (used, skip_and_fetch(limit)) {
            (Use::Scalar, limits) => (!is_top, limits != Some((0, Some(1)))),
            // One at the end of EXISTS says that there must be a row.
            (Use::Exists, Some((0, Some(1..) | None))) => (false, !is_top),
            (Use::Exists | Use::Member, _) => (false, true),
            (Use::Lateral, _) => (true, true),
        },
        LogicalPlan::Join(join) => (join.join_type != JoinType::Inner, reads),
        LogicalPlan::Window(_) => (true, true),
        LogicalPlan::Union(_) | LogicalPlan::Values(_) => (false, true),
        _ => (false, false),
    };
    Ok(match (is_wrong, is_refused) {
        (true, _) => Others::Wrong,
        (false, true) => Others::Unable,
        (false, false) => Others::Able,
    })
}

/// Whether a plan is an aggregate over all rows, under whatever names, or what HAVING leaves of it.
fn is_total(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(projection) => is_total(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_total(&alias.input),
        LogicalPlan::Filter(filter) => is_total(&filter.input),
        _ => false,
    }
}

fn asks_for_null(expr: &Expr) -> bool {
    let is_such = |part: &Expr| {
        let asks = matches!(
            part,
            Expr::IsNull(_)
                | Expr::IsNotNull(_)
                | Expr::IsTrue(_)
                | Expr::IsFalse(_)
                | Expr::IsUnknown(_)
                | Expr::IsNotTrue(_)
                | Expr::IsNotFalse(_)
                | Expr::IsNotUnknown(_)
        );
        Ok(asks)
    };
    expr.exists(is_such).unwrap_or(true)
}

fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(is_subquery(part)))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::compute::concat_batches;
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    /// The rows of a query over o (k): 1, 2; a (i, j): (1, 1), (2, 1); b (m, n): (1, 1); sorted.
    async fn rows(sql: &str) -> Result<String, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        for table in [
            "CREATE TABLE o AS SELECT column1 AS k FROM (VALUES (1), (2))",
            "CREATE TABLE a AS SELECT column1 AS i, column2 AS j FROM (VALUES (1, 1), (2, 1))",
            "CREATE TABLE b AS SELECT column1 AS m, column2 AS n FROM (VALUES (1, 1))",
        ] {
            context.sql(table).await.unwrap().collect().await.unwrap();
        }
        let batches = match context.sql(sql).await {
            Ok(frame) => frame.collect().await,
            Err(error) => Err(error),
        };
        let mut rows = Vec::new();
        for batch in batches.map_err(|error| error.to_string())? {
            for row in 0..batch.num_rows() {
                let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
                rows.push(values.collect::<Vec<_>>().join(" "));
            }
        }
        rows.sort();
        Ok(rows.join(", "))
    }

    async fn all(cases: &[(&str, &str)]) {
        let mut others = Vec::new();
        for (sql, expected) in cases {
            let found = rows(sql).await;
            if found.as_deref() != Ok(*expected) {
                others.push(format!("{sql}\n{found:?}, and not {expected}"));
            }
        }
        assert!(others.is_empty(), "{}", others.join("\n"));
    }

    #[tokio::test]
    async fn outer_joins_keep_their_rows() {
        all(&[
            ("SELECT k, (SELECT count(*) FROM a LEFT JOIN b ON b.m = a.i AND b.n = o.k) FROM o", "1 2, 2 2"),
            ("SELECT k, (SELECT count(b.m) FROM a LEFT JOIN b ON b.m = a.i AND b.n = o.k) FROM o", "1 1, 2 0"),
            ("SELECT k FROM o WHERE EXISTS (SELECT 1 FROM a LEFT JOIN b ON b.n = o.k)", "1, 2"),
            ("SELECT k FROM o WHERE NOT EXISTS (SELECT 1 FROM a LEFT JOIN b ON b.m = a.i AND b.n = o.k WHERE b.m IS NULL)", ""),
            (
                "SELECT k, (SELECT count(*) FROM a LEFT JOIN (SELECT * FROM b WHERE b.n = o.k) x ON x.m = a.i) FROM o",
                "1 2, 2 2",
            ),
            (
                "SELECT k, (SELECT count(*) FROM (SELECT * FROM b WHERE b.n = o.k) x RIGHT JOIN a ON x.m = a.i) FROM o",
                "1 2, 2 2",
            ),
            (
                "SELECT k, (SELECT count(*) FROM a FULL JOIN (SELECT * FROM b WHERE b.n = o.k) x ON x.m = a.i + 7) FROM o",
                "1 3, 2 2",
            ),
            ("SELECT k FROM o WHERE k IN (SELECT a.i FROM a LEFT JOIN b ON b.m = a.i AND b.n < o.k)", "1, 2"),
            ("SELECT k FROM o WHERE k NOT IN (SELECT b.m FROM a LEFT JOIN b ON b.m = a.i AND b.n = o.k)", ""),
            (
                "SELECT k, i, m FROM o, LATERAL (SELECT i, m FROM a LEFT JOIN b ON b.m = a.i AND b.n = o.k) l",
                "1 1 1, 1 2 , 2 1 , 2 2 ",
            ),
            ("SELECT k FROM o WHERE EXISTS (SELECT 1 FROM a LEFT SEMI JOIN b ON b.m = a.i AND b.n = o.k)", "1"),
            ("SELECT k FROM o WHERE EXISTS (SELECT 1 FROM a LEFT ANTI JOIN b ON b.m = a.i AND b.n = o.k WHERE a.i = 1)", "2"),
            ("SELECT k FROM o WHERE EXISTS (SELECT 1 FROM a JOIN b ON a.i = b.m OR b.n = o.k WHERE a.j = o.k)", "1"),
        ])
        .await;
    }

    #[tokio::test]
    async fn nothing_equals_null() {
        let rows_of = "(VALUES (1, 5), (2, NULL)) AS o (id, k)";
        let joined = "(VALUES (1, NULL), (2, 5)) AS x (i, j) RIGHT JOIN (VALUES (1), (2)) AS y (m) ON x.i = y.m AND x.j = o.k";
        all(&[
            (&format!("SELECT id, (SELECT count(x.i) FROM {joined}) FROM {rows_of}"), "1 1, 2 0"),
            (&format!("SELECT id, (SELECT count(*) FROM {joined} WHERE o.k IS NULL) FROM {rows_of}"), "1 0, 2 2"),
        ])
        .await;
    }

    #[tokio::test]
    async fn derived_tables_are_correlated_too() {
        all(&[
            ("SELECT k, (SELECT max(x) FROM (SELECT i AS x FROM a WHERE a.j = o.k) q) FROM o", "1 2, 2 "),
            ("SELECT k FROM o WHERE EXISTS (SELECT x FROM (SELECT i AS x FROM a WHERE a.j = o.k) q WHERE x = 2)", "1"),
            ("SELECT k FROM o WHERE k NOT IN (SELECT x FROM (SELECT i AS x FROM a WHERE a.j < o.k) q)", "1"),
            ("SELECT k FROM o WHERE EXISTS (SELECT i FROM a GROUP BY i HAVING count(*) = o.k)", "1"),
            ("SELECT k FROM o WHERE EXISTS (SELECT i FROM a WHERE a.j <= o.k ORDER BY i OFFSET 1)", "1, 2"),
            ("SELECT k FROM o WHERE EXISTS (SELECT x FROM (SELECT count(*) AS x FROM a HAVING count(*) > 1) q WHERE x = o.k)", "2"),
        ])
        .await;
    }

    #[tokio::test]
    async fn windows_and_limits_are_of_each_value() {
        all(&[
            ("SELECT k, t FROM o, LATERAL (SELECT count(*) OVER () AS t FROM a WHERE a.i = o.k) u", "1 1, 2 1"),
            ("SELECT k FROM o WHERE 1 IN (SELECT row_number() OVER (ORDER BY i) FROM a WHERE a.i = o.k)", "1, 2"),
            (
                "SELECT k, i FROM o, LATERAL (SELECT i FROM a WHERE a.i = o.k QUALIFY row_number() OVER (ORDER BY i DESC) = 1) u",
                "1 1, 2 2",
            ),
            ("SELECT k, (SELECT i FROM a WHERE a.j = o.k ORDER BY i LIMIT 1 OFFSET 1) FROM o", "1 2, 2 "),
            (
                "SELECT k, i FROM o LEFT JOIN LATERAL (SELECT i FROM a WHERE a.j = o.k ORDER BY i DESC LIMIT 1) u ON true",
                "1 2, 2 ",
            ),
            ("SELECT k, (SELECT max(x) FROM (SELECT i AS x FROM a WHERE a.j = o.k ORDER BY i LIMIT 1) q) FROM o", "1 1, 2 "),
            ("SELECT k FROM o WHERE k IN (SELECT i FROM a WHERE a.j = o.k ORDER BY i DESC LIMIT 1)", ""),
            ("SELECT k, x FROM o, LATERAL (SELECT DISTINCT j AS x FROM a WHERE a.i <= o.k) t", "1 1, 2 1"),
        ])
        .await;
    }

    #[tokio::test]
    async fn aggregates_of_no_rows_have_their_row() {
        all(&[
            ("SELECT k, (SELECT 7 FROM a WHERE a.j = o.k HAVING count(*) = 0) FROM o", "1 , 2 7"),
            ("SELECT k, (SELECT max(i) FROM a WHERE a.j = o.k HAVING max(i) IS NULL) FROM o", "1 , 2 "),
            ("SELECT k, (SELECT count(*) FROM a WHERE a.j = o.k HAVING count(*) > o.k) FROM o", "1 2, 2 "),
            ("SELECT k, c FROM o, LATERAL (SELECT count(*) AS c FROM a WHERE a.j = o.k HAVING count(*) > 0) t", "1 2"),
            ("SELECT k FROM o WHERE EXISTS (SELECT count(*) FROM a WHERE a.j = o.k HAVING count(*) = 0)", "2"),
            ("SELECT k, (SELECT count(*) IS NULL FROM a WHERE a.j = o.k) FROM o", "1 false, 2 false"),
            ("SELECT k, (SELECT count(*) IS NOT NULL FROM a WHERE a.j = o.k) FROM o", "1 true, 2 true"),
            ("SELECT k, (SELECT x FROM (SELECT max(i) AS x FROM a WHERE a.j = o.k) t) FROM o", "1 2, 2 "),
            ("SELECT k, (SELECT count(*) FROM (SELECT DISTINCT j FROM a WHERE a.j = o.k) q) FROM o", "1 1, 2 0"),
            ("SELECT k, (SELECT sum(i + o.k) FROM a) FROM o", "1 5, 2 7"),
            ("SELECT k, (SELECT count(*) FILTER (WHERE a.j = o.k) FROM a) FROM o", "1 2, 2 0"),
            ("SELECT k, (SELECT max(i) FROM a WHERE a.i IN (SELECT m FROM b) AND a.j <> o.k) FROM o", "1 , 2 1"),
        ])
        .await;
        let refused = rows("SELECT k FROM o WHERE EXISTS (SELECT count(*) FROM a WHERE a.j = o.k GROUP BY ROLLUP (i))").await;
        assert!(
            refused.as_ref().is_err_and(|error| error.contains("ROLLUP, CUBE and GROUPING SETS in a subquery")),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn set_operations_and_lists_of_values_are_of_each_value() {
        all(&[
            ("SELECT k FROM o WHERE k IN (SELECT i FROM a WHERE a.j = o.k UNION SELECT 3)", "1"),
            (
                "SELECT k FROM o WHERE EXISTS (SELECT 1 FROM a WHERE a.j = o.k UNION ALL SELECT 1 FROM b WHERE b.n = o.k - 1)",
                "1, 2",
            ),
            ("SELECT k FROM o WHERE EXISTS (SELECT i FROM a WHERE a.j = o.k EXCEPT SELECT m FROM b)", "1"),
            ("SELECT k FROM o WHERE k IN (SELECT o.k FROM a)", "1, 2"),
            ("SELECT k, v FROM o CROSS JOIN LATERAL (VALUES (o.k), (o.k * 10)) t (v)", "1 1, 1 10, 2 2, 2 20"),
            ("SELECT k, x FROM o, LATERAL (SELECT i + o.k AS x FROM a) t", "1 2, 1 3, 2 3, 2 4"),
        ])
        .await;
    }

    #[tokio::test]
    async fn they_stand_in_order_by_and_group_by() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let sums = "SELECT sum(x) FROM (VALUES (1, 9), (2, 1), (3, 5)) AS a (k, x) WHERE a.k = o.k";
        let sql = format!("SELECT k FROM (VALUES (1), (2), (3)) AS o (k) ORDER BY ({sums})");
        let found = context.sql(&sql).await.unwrap().collect().await.unwrap();
        let found = concat_batches(&found[0].schema(), &found).unwrap();
        let order: Vec<String> = (0..3).map(|row| array_value_to_string(found.column(0), row).unwrap()).collect();
        assert_eq!(order, ["2", "3", "1"]);
        all(&[("SELECT (SELECT count(*) FROM a WHERE a.j = o.k) AS c, count(*) FROM o GROUP BY c", "0 1, 2 1")]).await;
    }

    #[tokio::test]
    async fn rows_that_change_are_refused() {
        let sql = "SELECT (SELECT count(*) FROM a LEFT JOIN b ON b.n = x.r) FROM (SELECT random() AS r FROM o) AS x";
        let refused = rows(sql).await;
        assert!(refused.as_ref().is_err_and(|error| error.contains("store these rows in a table first")), "{refused:?}");
        // These need the rows once.
        let few = "(VALUES (1, 10), (2, NULL), (3, 30)) AS f (id, v)";
        let chosen = "(SELECT id FROM (VALUES (1), (2), (3)) AS g (id) ORDER BY id LIMIT 2) AS o";
        all(&[
            (&format!("SELECT id, (SELECT count(*) FROM {few} WHERE f.id > o.id HAVING count(*) > 1) FROM {chosen}"), "1 2, 2 "),
            (
                &format!(
                    "SELECT id, (SELECT max(f.v) + 1 FROM {few} WHERE f.id > o.id HAVING count(*) > 1 AND max(f.v) > 0) FROM {chosen}"
                ),
                "1 31, 2 ",
            ),
            (
                &format!("SELECT id FROM {chosen} WHERE (SELECT count(*) FROM {few} WHERE f.id > o.id HAVING count(*) > 1) IS NULL"),
                "2",
            ),
            ("SELECT k, (SELECT count(*) FROM a WHERE a.i > o.k HAVING count(*) > 0) FROM o WHERE k IN (SELECT i FROM a)", "1 1, 2 "),
        ])
        .await;
    }
}
