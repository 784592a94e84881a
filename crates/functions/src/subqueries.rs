//! `IN (subquery)` with SQL's three truth values, and comparisons with `ALL` and `ANY` over the table of the query
//! itself.

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, ScalarValue, Spans, not_impl_err};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::exists_limits::refuse_lost_limits;

/// Gives the column of a comparison with ALL or ANY a name of its own.
///
/// DataFusion compares a column of the query with one of the subquery by name. Over the same table both have the same
/// name, and the comparison would become one of the subquery's column with itself.
#[derive(Debug)]
pub(crate) struct NamedSetComparisons;

impl OptimizerRule for NamedSetComparisons {
    fn name(&self) -> &'static str {
        "pithead_named_set_comparisons"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut found = false;
        plan.apply_expressions(|expr| {
            found = found || expr.exists(|part| Ok(matches!(part, Expr::SetComparison(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(Transformed::no(plan));
        }
        let is_condition = matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
        plan.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::SetComparison(_) if !is_condition => refused(),
                Expr::SetComparison(comparison) => {
                    refuse_lost_limits(&comparison.subquery)?;
                    let subquery = renamed(comparison.subquery, config.alias_generator())?;
                    Ok(Transformed::yes(Expr::SetComparison(SetComparison { subquery, ..comparison })))
                }
                expr => Ok(Transformed::no(expr)),
            })
        })
    }
}

/// Rewrites `x IN (subquery)` wherever a condition distinguishes NULL from false, or negates the result.
///
/// DataFusion turns it into a mark join, whose mark is true or false. That is enough where the value is itself a
/// condition, or a part of one by AND and OR, because NULL and false both drop the row. Elsewhere it becomes `CASE WHEN
/// EXISTS (… = x) THEN true WHEN x IS NULL AND EXISTS (…) THEN NULL WHEN EXISTS (… IS NULL) THEN NULL ELSE false END`.
#[derive(Debug)]
pub(crate) struct ThreeValuedIn;

impl OptimizerRule for ThreeValuedIn {
    fn name(&self) -> &'static str {
        "pithead_three_valued_in"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) if has_in_subquery(&filter.predicate)? => {
                let context = Context { schema: Arc::clone(filter.input.schema()), names: config.alias_generator() };
                let predicate = context.condition(filter.predicate, true)?;
                Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?)))
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// Whether the engine has a join for `x NOT IN (subquery)`. It has none if the subquery is correlated by other columns. Where `x` has
/// no column, it looks for `x` in the subquery alone, and forgets the NULLs there.
fn is_joined(query: &InSubquery) -> bool {
    query.subquery.outer_ref_columns.is_empty() && query.expr.any_column_refs()
}

fn has_in_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(matches!(part, Expr::InSubquery(_))))
}

/// An error if there is still a subquery of a kind that the engine runs as a join: outside of conditions it makes no
/// join.
pub(crate) fn refuse_subqueries(plan: &LogicalPlan) -> Result<()> {
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            let left = expr.exists(|part| Ok(is_predicate(part) || matches!(part, Expr::SetComparison(_))))?;
            if left { refused() } else { Ok(TreeNodeRecursion::Continue) }
        })
    })?;
    Ok(())
}

fn refused<T>() -> Result<T> {
    not_impl_err!(
        "IN (subquery) and EXISTS are supported in WHERE, HAVING, SELECT and GROUP BY, and ALL and ANY in WHERE and HAVING, not \
         everywhere else; put the condition there, or join with the subquery"
    )
}

/// What a subquery's predicate stands in.
pub(crate) struct Context<'a> {
    /// The columns that a row has outside of the subquery.
    pub(crate) schema: Arc<DFSchema>,
    pub(crate) names: &'a Arc<AliasGenerator>,
}

impl Context<'_> {
    /// A condition of which only matters whether it is true. `is_whole`: it is one of the conditions that must all
    /// hold, which the engine turns into joins that handle NULLs correctly.
    fn condition(&self, expr: Expr, is_whole: bool) -> Result<Expr> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let is_whole = is_whole && op == Operator::And;
                let (left, right) = (self.condition(*left, is_whole)?, self.condition(*right, is_whole)?);
                Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
            }
            Expr::InSubquery(ref query) if !query.negated || is_whole && is_joined(query) => Ok(expr),
            Expr::Not(inner) if is_whole && matches!(&*inner, Expr::InSubquery(query) if is_joined(query)) => {
                Ok(Expr::Not(inner))
            }
            expr => Ok(expr.transform_up(|expr| self.value(expr))?.data),
        }
    }

    fn value(&self, expr: Expr) -> Result<Transformed<Expr>> {
        match expr {
            Expr::InSubquery(query) => self.case(query).map(Transformed::yes),
            expr => Ok(Transformed::no(expr)),
        }
    }

    /// `x IN (subquery)` by EXISTS.
    pub(crate) fn case(&self, query: InSubquery) -> Result<Expr> {
        let value = *query.expr;
        if value.exists(|part| Ok(is_subquery(part)))? {
            return not_impl_err!(
                "IN (subquery) on a value that is a subquery itself; put that one into a CTE and join with it"
            );
        }
        refuse_lost_limits(&query.subquery)?;
        let member_is_nullable = query.subquery.subquery.schema().field(0).is_nullable();
        let value_is_nullable = value.nullable(self.schema.as_ref())?;
        let unknown = || Box::new(Expr::Literal(ScalarValue::Boolean(None), None));
        let outer = self.seen_from_within(value.clone())?;
        let found = self.exists(&query.subquery, |member| Some(member.eq(outer.clone())))?;
        let mut when_then_expr = vec![(Box::new(found), Box::new(lit(!query.negated)))];
        if value_is_nullable {
            let any = self.exists(&query.subquery, |_| None)?;
            when_then_expr.push((Box::new(value.is_null().and(any)), unknown()));
        }
        if member_is_nullable {
            let null = self.exists(&query.subquery, |member| Some(member.is_null()))?;
            when_then_expr.push((Box::new(null), unknown()));
        }
        Ok(Expr::Case(Case { expr: None, when_then_expr, else_expr: Some(Box::new(lit(query.negated))) }))
    }

    /// Whether the subquery has a row whose value satisfies the condition.
    fn exists(&self, subquery: &Subquery, condition: impl FnOnce(Expr) -> Option<Expr>) -> Result<Expr> {
        let subquery = renamed(subquery.clone(), self.names)?;
        let member = Expr::Column(Column::from(subquery.subquery.schema().qualified_field(0)));
        let rows = LogicalPlanBuilder::from(Arc::unwrap_or_clone(subquery.subquery));
        let rows = match condition(member) {
            Some(condition) => rows.filter(condition)?,
            None => rows,
        };
        let plan = rows.build()?;
        let outer_ref_columns = plan.all_out_ref_exprs();
        // Without columns of the query, one row is enough.
        let plan = match outer_ref_columns.is_empty() {
            true => LogicalPlanBuilder::from(plan).limit(0, Some(1))?.build()?,
            false => plan,
        };
        let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() };
        Ok(Expr::Exists(Exists { subquery, negated: false }))
    }

    /// An expression of the query in the form in which its subquery refers to it.
    fn seen_from_within(&self, expr: Expr) -> Result<Expr> {
        let outer = expr.transform_up(|expr| match expr {
            Expr::Column(column) => {
                let field = self.schema.field_from_column(&column)?;
                Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
            }
            expr => Ok(Transformed::no(expr)),
        })?;
        Ok(outer.data)
    }
}

/// Whether an expression is EXISTS or IN over a subquery.
pub(crate) fn is_predicate(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_))
}

/// Whether any expression of a plan, or of its subqueries, has such a part.
pub(crate) fn has_part(plan: &LogicalPlan, is: fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found || expr.exists(|part| Ok(is(part)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

pub(crate) fn is_subquery(expr: &Expr) -> bool {
    is_predicate(expr) || matches!(expr, Expr::ScalarSubquery(_) | Expr::SetComparison(_))
}

/// The subquery with a name for its column that nothing else has. A projection gives the name: below an alias of the
/// whole subquery, DataFusion loses the columns by which it is correlated.
fn renamed(subquery: Subquery, names: &AliasGenerator) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    let plan = LogicalPlanBuilder::from(plan).project([column.alias(names.next("__compared"))])?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}
