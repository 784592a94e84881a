//! [`Unnested`]: scalar subqueries that are correlated by more than equalities, or give the first of rows in an order, as joins.

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullEquality, Result};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, FetchType, Filter, JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    SkipType, SortExpr, Subquery, lit, when,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::balanced::conjunction;
use crate::counted_rows::row_number;
use crate::kept_names::{map_named, named};
use crate::repeatable::is_the_same_again;
use crate::subqueries::is_subquery;

/// Computes an aggregate over a correlated subquery for all values at once that the query around it has: these values are joined with
/// the subquery's rows, which are grouped by them, and the result is joined with the query. See T. Neumann and A. Kemper, "Unnesting
/// Arbitrary Queries", BTW 2015.
///
/// DataFusion groups by columns of the subquery, for which its rows must be found by equality; and it looks into SELECT and WHERE only.
#[derive(Debug)]
pub(crate) struct Unnested;

/// Numbers the rows of a query around that has other rows each time it is computed.
const ROW: &str = "\u{0}row";
/// Marks the subquery's rows: a value without any has one row, without a mark.
pub(crate) const MARK: &str = "\u{0}mark";
/// The column of a subquery's values.
const VALUE: &str = "value";

impl OptimizerRule for Unnested {
    fn name(&self) -> &'static str {
        "pithead_unnested"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let is_left_to_others = match plan {
            LogicalPlan::Projection(_) | LogicalPlan::Filter(_) => true,
            LogicalPlan::Aggregate(_) => false,
            _ => return Ok(Transformed::no(plan)),
        };
        let input = plan.inputs()[0];
        let mut found: Vec<Unnesting> = Vec::new();
        for subquery in scalar_subqueries(&plan)? {
            match Unnesting::of(subquery, input.schema())? {
                Some(unnesting) if !(is_left_to_others && unnesting.is_known_to_others()) => found.push(unnesting),
                _ => {}
            }
        }
        if found.is_empty() || hangs_on_another(input)? {
            return Ok(Transformed::no(plan));
        }
        let is_repeatable = is_the_same_again(input)?;
        let columns = plan.schema().columns();
        let mut joined = if is_repeatable { input.clone() } else { numbered(input.clone())? };
        let mut values = Vec::with_capacity(found.len());
        for unnesting in found {
            let subquery = unnesting.subquery.clone();
            let (with_value, value) = match is_repeatable {
                true => unnesting.joined(input, joined, config.alias_generator())?,
                false => unnesting.joined_by_row(joined, config.alias_generator())?,
            };
            joined = with_value;
            values.push((subquery, value));
        }
        let plan = map_named(plan, |expr| {
            expr.transform_down(|part| {
                let Expr::ScalarSubquery(subquery) = &part else { return Ok(Transformed::no(part)) };
                Ok(match values.iter().find(|(known, _)| known == subquery) {
                    Some((_, value)) => Transformed::new(value.clone(), true, TreeNodeRecursion::Jump),
                    None => Transformed::no(part),
                })
            })
        })?;
        let exprs = plan.data.expressions();
        let plan = plan.data.with_new_exprs(exprs, vec![joined])?;
        Ok(Transformed::yes(match plan {
            LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => plan,
            // It has all columns of its input, and what is above knows those that were there.
            plan => LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()?,
        }))
    }
}

/// Whether the rule computes a subquery over rows with these columns, also where they are others each time.
pub(crate) fn takes(subquery: &Subquery, around: &DFSchema) -> Result<bool> {
    Ok(Unnesting::of(subquery.clone(), around)?.is_some_and(|unnesting| !unnesting.is_known_to_others()))
}

/// The correlated scalar subqueries of a node's expressions, each once.
fn scalar_subqueries(plan: &LogicalPlan) -> Result<Vec<Subquery>> {
    let mut found: Vec<Subquery> = Vec::new();
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            if let Expr::ScalarSubquery(subquery) = part
                && !subquery.outer_ref_columns.is_empty()
                && !found.contains(subquery)
            {
                found.push(subquery.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Adds the columns of the query around that an expression of a subquery reads, each once.
pub(crate) fn add_outer_columns(expr: &Expr, outer: &mut Vec<Column>) -> Result<()> {
    expr.apply(|part| {
        if let Expr::OuterReferenceColumn(_, column) = part
            && !outer.contains(column)
        {
            outer.push(column.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether a plan reads columns of a query around it.
pub(crate) fn hangs_on_another(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(node.expressions().iter().any(|expr| has(expr, is_outer))))
}

/// A plan with a number for each row, by which rows are told from each other.
fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let number = row_number();
    let name = number.schema_name().to_string();
    let number = Expr::Column(Column::from_name(name)).alias(ROW);
    LogicalPlanBuilder::from(plan).window([row_number()])?.project(columns.into_iter().chain([number]))?.build()
}

fn has(expr: &Expr, is: fn(&Expr) -> bool) -> bool {
    expr.exists(|part| Ok(is(part))).unwrap_or(true)
}

fn is_outer(expr: &Expr) -> bool {
    matches!(expr, Expr::OuterReferenceColumn(..))
}

/// A subquery that is an aggregate over rows of a condition.
struct Unnesting {
    subquery: Subquery,
    /// What is computed of the aggregate, the highest first.
    above: Vec<LogicalPlan>,
    aggregate: Aggregate,
    rows: Arc<LogicalPlan>,
    /// Conditions that hang on the query around.
    correlated: Vec<Expr>,
    /// The others.
    own: Vec<Expr>,
    /// Columns of the query around.
    outer: Vec<Column>,
    /// It is the first of the rows in an order.
    is_first: bool,
}

impl Unnesting {
    /// Of a subquery of this form; none: it has another. `around`: the columns of the query around.
    fn of(subquery: Subquery, around: &DFSchema) -> Result<Option<Unnesting>> {
        let (mut above, mut node, mut is_first) = (Vec::new(), Arc::clone(&subquery.subquery), false);
        let aggregate = loop {
            if node.expressions().iter().any(|expr| has(expr, is_outer) || has(expr, is_subquery)) {
                return Ok(None);
            }
            let next = match node.as_ref() {
                LogicalPlan::Projection(Projection { input, .. }) | LogicalPlan::Filter(Filter { input, .. }) => {
                    Arc::clone(input)
                }
                LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => break aggregate.clone(),
                LogicalPlan::Limit(limit) => {
                    let Some((first, named)) = first_of(limit)? else { return Ok(None) };
                    above.push(named);
                    is_first = true;
                    break first;
                }
                _ => return Ok(None),
            };
            above.push(Arc::unwrap_or_clone(node));
            node = next;
        };
        let LogicalPlan::Filter(Filter { predicate, input: rows, .. }) = aggregate.input.as_ref() else { return Ok(None) };
        let (correlated, own): (Vec<Expr>, Vec<Expr>) =
            split_conjunction_owned(predicate.clone()).into_iter().partition(|condition| has(condition, is_outer));
        let mut outer: Vec<Column> = Vec::new();
        for condition in &correlated {
            add_outer_columns(condition, &mut outer)?;
        }
        let stands_alone = !rows
            .exists(|node| Ok(node.expressions().iter().any(|expr| has(expr, is_outer) || has(expr, is_subquery))))?
            && !correlated.iter().chain(&own).any(|condition| has(condition, is_subquery));
        let is_around = !outer.is_empty() && outer.iter().all(|column| around.has_column(column));
        let rows = Arc::clone(rows);
        Ok((stands_alone && is_around).then_some(Unnesting {
            subquery,
            above,
            aggregate,
            rows,
            correlated,
            own,
            outer,
            is_first,
        }))
    }

    /// Whether DataFusion's own rule takes it: each condition finds the subquery's rows by a column that equals what hangs on the query
    /// around.
    fn is_known_to_others(&self) -> bool {
        let is_column = |expr: &Expr| match expr {
            Expr::Column(_) => true,
            Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::Column(_)),
            _ => false,
        };
        let is_equality = |condition: &Expr| match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                is_column(left) && !right.any_column_refs() || is_column(right) && !left.any_column_refs()
            }
            _ => false,
        };
        !self.is_first && self.correlated.iter().all(is_equality)
    }

    /// `query`, which has the rows of `around` and may have more columns, with the subquery's value, and the column that this is.
    fn joined(self, around: &LogicalPlan, query: LogicalPlan, names: &AliasGenerator) -> Result<(LogicalPlan, Expr)> {
        let results = names.next("__unnested");
        let outer = || self.outer.iter().cloned().map(Expr::Column);
        let each_value = LogicalPlanBuilder::from(around.clone()).aggregate(outer(), Vec::<Expr>::new())?.build()?;
        let keys = self.outer.clone();
        // A value whose group HAVING drops has no row, and is NULL by the join.
        let (plan, value, values) = self.of_each(each_value, &keys, true, names)?;
        let numbers = || 0..keys.len();
        let value_keys = numbers().map(|number| Expr::Column(key(&values, number)).alias(format!("key_{number}")));
        let results_plan = plan.project([value].into_iter().chain(value_keys))?.alias(results.as_str())?.build()?;
        let right_keys: Vec<Column> = numbers().map(|number| key(&results, number)).collect();
        let joined = LogicalPlanBuilder::from(query).join_detailed(
            results_plan,
            JoinType::Left,
            (keys, right_keys),
            None,
            NullEquality::NullEqualsNull,
        )?;
        Ok((joined.build()?, Expr::Column(Column::new(Some(results), VALUE))))
    }

    /// `query`, each of whose rows is another, with the subquery's value, and the column that this is.
    fn joined_by_row(self, query: LogicalPlan, names: &AliasGenerator) -> Result<(LogicalPlan, Expr)> {
        let columns = query.schema().columns();
        let (plan, value, values) = self.of_each(query, &columns, false, names)?;
        let old = columns.iter().enumerate().map(|(number, column)| {
            Expr::Column(key(&values, number)).alias_qualified(column.relation.clone(), column.name.clone())
        });
        let name = names.next("__unnested");
        let value = value.alias(name.clone());
        Ok((plan.project(old.chain([value]))?.build()?, Expr::Column(Column::from_name(name))))
    }

    /// The subquery's value for each row of `keyed`, by these columns, which all rows together have each once; the name of the relation
    /// in which they are, one after another ([`key`]). `drops`: rows whose group HAVING drops are left out; else they have NULL.
    fn of_each(
        self,
        keyed: LogicalPlan,
        keys: &[Column],
        drops: bool,
        names: &AliasGenerator,
    ) -> Result<(LogicalPlanBuilder, Expr, String)> {
        let values = names.next("__unnested");
        let by_number = keys.iter().enumerate();
        let columns = by_number.map(|(number, column)| Expr::Column(column.clone()).alias(format!("key_{number}")));
        let each_value = LogicalPlanBuilder::from(keyed).project(columns)?.alias(values.as_str())?;
        let conditions = self.correlated.iter().cloned().map(|condition| {
            let by_key = condition.transform(|part| match &part {
                Expr::OuterReferenceColumn(_, column) => {
                    let number = keys.iter().position(|known| known == column);
                    Ok(number
                        .map_or_else(|| Transformed::no(part.clone()), |number| Transformed::yes(key(&values, number).into())))
                }
                _ => Ok(Transformed::no(part)),
            });
            Ok(by_key?.data)
        });
        let conditions = conditions.collect::<Result<Vec<Expr>>>()?;
        let columns = self.rows.schema().columns().into_iter().map(Expr::Column);
        let mut rows = LogicalPlanBuilder::from(Arc::unwrap_or_clone(self.rows));
        if let Some(own) = conjunction(self.own) {
            rows = rows.filter(own)?;
        }
        let marked = rows.project(columns.chain([lit(true).alias(MARK)]))?;
        let value_keys = || (0..keys.len()).map(|number| Expr::Column(key(&values, number)));
        let aggregates = self.aggregate.aggr_expr.iter().map(|expr| Ok(named(expr.clone(), of_marked)?.data));
        let mut plan = each_value
            .join_on(marked.build()?, JoinType::Left, conditions)?
            .aggregate(value_keys(), aggregates.collect::<Result<Vec<Expr>>>()?)?;
        let mut holds: Vec<Column> = Vec::new();
        for node in self.above.into_iter().rev() {
            plan = match node {
                LogicalPlan::Projection(projection) => {
                    let kept = value_keys().chain(holds.iter().cloned().map(Expr::Column));
                    plan.project(projection.expr.into_iter().chain(kept))?
                }
                LogicalPlan::Filter(filter) if drops => plan.filter(filter.predicate)?,
                LogicalPlan::Filter(filter) => {
                    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
                    let name = names.next("__having");
                    holds.push(Column::from_name(name.as_str()));
                    plan.project(columns.into_iter().chain([filter.predicate.alias(name)]))?
                }
                _ => plan,
            };
        }
        let value = Expr::Column(Column::from(self.subquery.subquery.schema().qualified_field(0)));
        let value = match conjunction(holds.into_iter().map(Expr::Column)) {
            Some(holds) => when(holds, value).end()?,
            None => value,
        };
        let value = value.alias(VALUE);
        Ok((plan, value, values))
    }
}

/// `SELECT x … ORDER BY y LIMIT 1` as an aggregate over the rows of its WHERE, and the projection above that which gives the result its
/// name; none: it has another form.
fn first_of(limit: &Limit) -> Result<Option<(Aggregate, LogicalPlan)>> {
    let (SkipType::Literal(0), FetchType::Literal(Some(1))) = (limit.get_skip_type()?, limit.get_fetch_type()?) else {
        return Ok(None);
    };
    let columns = limit.input.schema().columns();
    let [column] = columns.as_slice() else { return Ok(None) };
    let (mut value, mut order) = (Expr::Column(column.clone()), Vec::new());
    let mut node = limit.input.as_ref();
    loop {
        node = match node {
            LogicalPlan::Projection(projection) => {
                value = computed_below(value, projection)?;
                for by in &mut order {
                    let SortExpr { expr, .. } = by;
                    *expr = computed_below(std::mem::take(expr), projection)?;
                }
                projection.input.as_ref()
            }
            LogicalPlan::Sort(sort) if order.is_empty() && sort.fetch.is_none() => {
                order.clone_from(&sort.expr);
                sort.input.as_ref()
            }
            LogicalPlan::Filter(_) => break,
            _ => return Ok(None),
        };
    }
    if order.iter().map(|by| &by.expr).chain([&value]).any(|expr| has(expr, is_outer) || has(expr, is_subquery)) {
        return Ok(None);
    }
    let first = Expr::AggregateFunction(AggregateFunction::new_udf(first_value_udaf(), vec![value], false, None, order, None));
    let result = Expr::Column(Column::from_name(first.schema_name().to_string()));
    let aggregate = Aggregate::try_new(Arc::new(node.clone()), vec![], vec![first])?;
    let named = result.alias_qualified(column.relation.clone(), column.name.clone());
    let named = Projection::try_new(vec![named], Arc::new(LogicalPlan::Aggregate(aggregate.clone())))?;
    Ok(Some((aggregate, LogicalPlan::Projection(named))))
}

/// An expression over a projection's columns, over those of its input.
fn computed_below(expr: Expr, projection: &Projection) -> Result<Expr> {
    let columns = projection.schema.columns();
    let below = expr.transform(|part| {
        let Expr::Column(column) = &part else { return Ok(Transformed::no(part)) };
        Ok(match columns.iter().position(|known| known == column) {
            Some(place) => {
                let computed = projection.expr[place].clone().unalias_nested().data;
                Transformed::new(computed, true, TreeNodeRecursion::Jump)
            }
            None => Transformed::no(part),
        })
    });
    Ok(below?.data)
}

/// The column of a key in the relation of all of them.
fn key(relation: &str, number: usize) -> Column {
    Column::new(Some(relation), format!("key_{number}"))
}

/// An aggregate over rows with a mark.
pub(crate) fn of_marked(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_down(|part| match part {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let is_marked = Expr::Column(Column::new_unqualified(MARK)).is_not_null();
            params.filter = Some(Box::new(match params.filter.take() {
                Some(filter) => filter.and(is_marked),
                None => is_marked,
            }));
            Ok(Transformed::new(Expr::AggregateFunction(AggregateFunction { func, params }), true, TreeNodeRecursion::Jump))
        }
        part => Ok(Transformed::no(part)),
    })
}
