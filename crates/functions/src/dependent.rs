//! [`Dependent`]: the rows of any subquery for all rows at once that the query around it has.
//!
//! The values that the query around has in the columns that the subquery reads go down with the subquery's rows, as columns of these. See
//! T. Neumann and A. Kemper, "Unnesting Arbitrary Queries", BTW 2015. What groups, numbers, limits or compares rows then does so for each
//! value by itself, so that an outer join, a window, a LIMIT, HAVING or a set operation means what it says.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result, TableReference, not_impl_err};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::{
    Aggregate, Distinct, EmptyRelation, Expr, Filter, Join, Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Sort,
    SortExpr, SubqueryAlias, Union, Unnest, Values, Window, binary_expr, builder, lit,
};
use pithead_model::RESERVED;

use crate::balanced::conjunction;
use crate::counted_rows::row_number;
use crate::exists_limits::skip_and_fetch;
use crate::kept_names::named;
use crate::unnested::{MARK, hangs_on_another, of_marked};

/// Names that nothing else in a plan has.
#[derive(Debug, Default)]
pub(crate) struct Names(Cell<usize>);

impl Names {
    pub(crate) fn next(&self) -> String {
        let number = self.0.get();
        self.0.set(number + 1);
        format!("{RESERVED}of_{number}")
    }
}

/// The rows of a subquery beside the values that they are of.
pub(crate) struct Dependent {
    pub(crate) plan: LogicalPlan,
    /// The columns of the values, one for each of [`Around::columns`].
    pub(crate) keys: Vec<Column>,
    /// The column that numbers the rows of each value, where they have an order.
    rank: Option<Column>,
}

impl Dependent {
    /// Rows in no order.
    pub(crate) fn new(plan: LogicalPlan, keys: Vec<Column>) -> Dependent {
        Dependent { plan, keys, rank: None }
    }
}

/// The query around a subquery.
pub(crate) struct Around<'a> {
    pub(crate) plan: &'a LogicalPlan,
    /// Its columns that the subquery reads, each once.
    pub(crate) columns: Vec<Column>,
    pub(crate) names: &'a Names,
}

impl Around<'_> {
    /// The rows of a part of the subquery; none: it has an operator for which this is not known.
    pub(crate) fn rows(&self, plan: &LogicalPlan) -> Result<Option<Dependent>> {
        if !hangs_on_another(plan)? {
            return self.beside(plan).map(Some);
        }
        match plan {
            LogicalPlan::Projection(projection) => self.projected(projection, false),
            LogicalPlan::SubqueryAlias(alias) => self.renamed(alias, false),
            LogicalPlan::Filter(filter) => self.filtered(filter),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some(rows) = self.rows(input)? else { return Ok(None) };
                let Dependent { plan, keys, .. } = exact(rows, input.schema())?;
                Ok(Some(Dependent { plan: LogicalPlan::Distinct(Distinct::All(Arc::new(plan))), keys, rank: None }))
            }
            // Of an order, only a limit says something.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.rows(&sort.input),
            LogicalPlan::Limit(limit) => self.limited(limit),
            LogicalPlan::Join(join) => self.joined(join),
            LogicalPlan::Union(union) => self.united(union),
            LogicalPlan::Window(window) => self.windowed(window),
            LogicalPlan::Values(values) => self.listed(values),
            LogicalPlan::Unnest(unnest) => self.unnested(unnest),
            _ => Ok(None),
        }
    }

    /// The values, each once.
    fn values(&self) -> Result<(LogicalPlan, Vec<Column>)> {
        let columns = || self.columns.iter().cloned().map(Expr::Column);
        let keys: Vec<Column> = self.columns.iter().map(|_| Column::from_name(self.names.next())).collect();
        let each = Aggregate::try_new(Arc::new(self.plan.clone()), columns().collect(), vec![])?;
        let renamed = columns().zip(&keys).map(|(column, key)| column.alias(&key.name));
        let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(each)).project(renamed)?.build()?;
        Ok((plan, keys))
    }

    /// Rows that hang on no value, beside each.
    fn beside(&self, plan: &LogicalPlan) -> Result<Dependent> {
        let (values, keys) = self.values()?;
        let plan = match plan {
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) => values,
            plan => LogicalPlanBuilder::from(values).cross_join(plan.clone())?.build()?,
        };
        Ok(Dependent { plan, keys, rank: None })
    }

    /// An expression with the keys in place of the columns of the query around.
    fn here(&self, expr: Expr, keys: &[Column]) -> Result<Transformed<Expr>> {
        expr.transform(|part| match &part {
            Expr::OuterReferenceColumn(_, column) => match self.columns.iter().position(|known| known == column) {
                Some(number) => Ok(Transformed::yes(Expr::Column(keys[number].clone()))),
                None => Ok(Transformed::no(part)),
            },
            _ => Ok(Transformed::no(part)),
        })
    }

    fn all_here(&self, exprs: &[Expr], keys: &[Column]) -> Result<Vec<Expr>> {
        exprs.iter().map(|expr| Ok(named(expr.clone(), |expr| self.here(expr, keys))?.data)).collect()
    }

    fn projected(&self, projection: &Projection, is_ordered: bool) -> Result<Option<Dependent>> {
        let Some(rows) = self.rows_in_order(&projection.input, is_ordered)? else { return Ok(None) };
        let mut exprs = Vec::with_capacity(projection.expr.len() + rows.keys.len() + 1);
        for (expr, (relation, field)) in projection.expr.iter().zip(projection.schema.iter()) {
            let expr = self.here(expr.clone(), &rows.keys)?;
            exprs.push(match expr.transformed {
                true => expr.data.unalias().alias_qualified(relation.cloned(), field.name()),
                false => expr.data,
            });
        }
        exprs.extend(rows.keys.iter().chain(&rows.rank).cloned().map(Expr::Column));
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows.plan))?);
        Ok(Some(Dependent { plan, ..rows }))
    }

    fn renamed(&self, alias: &SubqueryAlias, is_ordered: bool) -> Result<Option<Dependent>> {
        let Some(rows) = self.rows_in_order(&alias.input, is_ordered)? else { return Ok(None) };
        let Dependent { plan, keys, rank } = exact(rows, alias.input.schema())?;
        let of_alias = |column: Column| Column::new(Some(alias.alias.clone()), column.name);
        let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?);
        Ok(Some(Dependent { plan, keys: keys.into_iter().map(of_alias).collect(), rank: rank.map(of_alias) }))
    }

    fn filtered(&self, filter: &Filter) -> Result<Option<Dependent>> {
        let Some(rows) = self.rows(&filter.input)? else { return Ok(None) };
        let predicate = self.here(filter.predicate.clone(), &rows.keys)?.data;
        let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(rows.plan))?);
        Ok(Some(Dependent { plan, ..rows }))
    }

    /// Groups within each value. An aggregate over all rows has one where there is none.
    fn aggregated(&self, aggregate: &Aggregate) -> Result<Option<Dependent>> {
        if aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
            return not_impl_err!(
                "ROLLUP, CUBE and GROUPING SETS in a subquery that refers to the query around it; write a UNION of its groups"
            );
        }
        let Some(rows) = self.rows(&aggregate.input)? else { return Ok(None) };
        let by = self.all_here(&aggregate.group_expr, &rows.keys)?;
        let of = self.all_here(&aggregate.aggr_expr, &rows.keys)?;
        let (input, keys, of) = match by.is_empty() {
            false => (rows.plan, rows.keys, of),
            true => {
                let columns = rows.plan.schema().columns().into_iter().map(Expr::Column);
                let marked = LogicalPlanBuilder::from(rows.plan).project(columns.chain([lit(true).alias(MARK)]))?.build()?;
                let (values, keys) = self.values()?;
                let of = of.into_iter().map(|expr| Ok(named(expr, of_marked)?.data)).collect::<Result<Vec<Expr>>>()?;
                (joined_by(values, marked, JoinType::Left, (&keys, &rows.keys), None)?, keys, of)
            }
        };
        let groups = keys.iter().cloned().map(Expr::Column).chain(by).collect();
        let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, of)?);
        Ok(Some(Dependent { plan, keys, rank: None }))
    }

    /// The rows in an order that a limit asks for.
    fn rows_in_order(&self, plan: &LogicalPlan, is_ordered: bool) -> Result<Option<Dependent>> {
        match plan {
            LogicalPlan::Projection(projection) if is_ordered && hangs_on_another(plan)? => self.projected(projection, true),
            LogicalPlan::SubqueryAlias(alias) if is_ordered && hangs_on_another(plan)? => self.renamed(alias, true),
            LogicalPlan::Sort(Sort { expr, input, fetch: None }) if is_ordered && hangs_on_another(plan)? => {
                let Some(rows) = self.rows(input)? else { return Ok(None) };
                let mut order = Vec::with_capacity(expr.len());
                for by in expr {
                    order.push(SortExpr { expr: self.here(by.expr.clone(), &rows.keys)?.data, ..by.clone() });
                }
                self.ranked(rows, order).map(Some)
            }
            plan => self.rows(plan),
        }
    }

    /// Numbers the rows of each value.
    fn ranked(&self, rows: Dependent, order: Vec<SortExpr>) -> Result<Dependent> {
        let Dependent { plan, keys, .. } = rows;
        let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let mut number = row_number();
        if let Expr::WindowFunction(function) = &mut number {
            function.params.partition_by = keys.iter().cloned().map(Expr::Column).collect();
            function.params.order_by = order;
        }
        let (rank, name) = (Column::from_name(self.names.next()), number.schema_name().to_string());
        let numbered = LogicalPlanBuilder::from(plan).window([number])?;
        let number = Expr::Column(Column::from_name(name)).alias(&rank.name);
        let plan = numbered.project(columns.into_iter().chain([number]))?.build()?;
        Ok(Dependent { plan, keys, rank: Some(rank) })
    }

    fn limited(&self, limit: &Limit) -> Result<Option<Dependent>> {
        let Some((skip, fetch)) = skip_and_fetch(limit) else { return Ok(None) };
        let Some(rows) = self.rows_in_order(&limit.input, true)? else { return Ok(None) };
        let rows = if rows.rank.is_some() { rows } else { self.ranked(rows, Vec::new())? };
        let rank = || rows.rank.iter().cloned().map(Expr::Column);
        let after = rank().map(|rank| rank.gt(lit(skip)));
        let up_to = fetch.into_iter().flat_map(|fetch| rank().map(move |rank| rank.lt_eq(lit(skip.saturating_add(fetch)))));
        let Some(within) = conjunction(after.chain(up_to)) else { return Ok(None) };
        let plan = LogicalPlanBuilder::from(rows.plan).filter(within)?.build()?;
        exact(Dependent { plan, keys: rows.keys, rank: None }, limit.input.schema()).map(Some)
    }

    /// A join within each value. A side whose rows all stay has the values, whether or not it reads them.
    fn joined(&self, join: &Join) -> Result<Option<Dependent>> {
        use JoinType::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
        let reads = [hangs_on_another(&join.left)?, hangs_on_another(&join.right)?];
        let (needs_left, needs_right) = match join.join_type {
            Inner => (reads[0] || !reads[1], reads[1]),
            Left | LeftSemi | LeftAnti | LeftMark => (true, reads[1]),
            Right | RightSemi | RightAnti | RightMark => (reads[0], true),
            Full => (true, true),
        };
        let side = |plan: &Arc<LogicalPlan>, needs: bool| match needs {
            true => self.rows(plan),
            false => Ok(Some(Dependent { plan: plan.as_ref().clone(), keys: Vec::new(), rank: None })),
        };
        let (Some(left), Some(right)) = (side(&join.left, needs_left)?, side(&join.right, needs_right)?) else {
            return Ok(None);
        };
        // The keys of a side whose rows stay are there in each row.
        let is_of_right = matches!(join.join_type, Right | RightSemi | RightAnti | RightMark) || !needs_left;
        let keys = if is_of_right { right.keys.clone() } else { left.keys.clone() };
        let equal = join.on.iter().map(|(left, right)| match join.null_equality {
            NullEquality::NullEqualsNothing => left.clone().eq(right.clone()),
            NullEquality::NullEqualsNull => binary_expr(left.clone(), Operator::IsNotDistinctFrom, right.clone()),
        });
        let conditions: Vec<Expr> = equal.chain(join.filter.clone()).collect();
        let filter = conjunction(self.all_here(&conditions, &keys)?);
        if join.null_aware {
            return Ok(None);
        }
        let by = if needs_left && needs_right { (&left.keys[..], &right.keys[..]) } else { (&[][..], &[][..]) };
        let (left_keys, right_keys) = (left.keys.clone(), right.keys.clone());
        let plan = joined_by(left.plan, right.plan, join.join_type, by, filter)?;
        if join.join_type != Full {
            return exact(Dependent { plan, keys, rank: None }, &join.schema).map(Some);
        }
        let keys: Vec<Column> = keys.iter().map(|_| Column::from_name(self.names.next())).collect();
        let both = left_keys.into_iter().zip(right_keys).zip(&keys);
        let both = both.map(|((left, right), key)| coalesce(vec![Expr::Column(left), Expr::Column(right)]).alias(&key.name));
        let columns = join.schema.columns().into_iter().map(Expr::Column);
        let plan = LogicalPlanBuilder::from(plan).project(columns.chain(both))?.build()?;
        Ok(Some(Dependent { plan, keys, rank: None }))
    }

    fn united(&self, union: &Union) -> Result<Option<Dependent>> {
        let keys: Vec<Column> = self.columns.iter().map(|_| Column::from_name(self.names.next())).collect();
        let mut branches = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            let Some(rows) = self.rows(input)? else { return Ok(None) };
            let of_branch = rows.keys.into_iter().zip(&keys).map(|(old, key)| Expr::Column(old).alias(&key.name));
            let columns = input.schema().columns().into_iter().map(Expr::Column);
            branches.push(Arc::new(LogicalPlanBuilder::from(rows.plan).project(of_branch.chain(columns))?.build()?));
        }
        let all = LogicalPlan::Union(Union::try_new_with_loose_types(branches)?);
        let found = all.schema().columns();
        let (of_keys, of_columns) = found.split_at(keys.len());
        let renamed = of_keys.iter().zip(&keys).map(|(found, key)| Expr::Column(found.clone()).alias(&key.name));
        let columns = of_columns.iter().zip(union.schema.iter());
        let columns = columns
            .map(|(found, (relation, field))| Expr::Column(found.clone()).alias_qualified(relation.cloned(), field.name()));
        let plan = LogicalPlanBuilder::from(all).project(renamed.chain(columns).collect::<Vec<_>>())?.build()?;
        Ok(Some(Dependent { plan, keys, rank: None }))
    }

    fn windowed(&self, window: &Window) -> Result<Option<Dependent>> {
        let Some(rows) = self.rows(&window.input)? else { return Ok(None) };
        let within = |expr: Expr| {
            self.here(expr, &rows.keys)?.transform_data(|expr| {
                expr.transform_down(|part| match part {
                    Expr::WindowFunction(mut function) => {
                        function.params.partition_by.extend(rows.keys.iter().cloned().map(Expr::Column));
                        Ok(Transformed::yes(Expr::WindowFunction(function)))
                    }
                    part => Ok(Transformed::no(part)),
                })
            })
        };
        let exprs =
            window.window_expr.iter().map(|expr| Ok(named(expr.clone(), within)?.data)).collect::<Result<Vec<Expr>>>()?;
        let plan = LogicalPlan::Window(Window::try_new(exprs, Arc::new(rows.plan))?);
        Ok(Some(Dependent { plan, keys: rows.keys, rank: None }))
    }

    fn listed(&self, values: &Values) -> Result<Option<Dependent>> {
        let one =
            Arc::new(LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) }));
        let row = |row: &Vec<Expr>| {
            let named = row.iter().zip(values.schema.iter());
            let named = named.map(|(value, (relation, field))| value.clone().alias_qualified(relation.cloned(), field.name()));
            Projection::try_new(named.collect(), Arc::clone(&one)).map(|row| Arc::new(LogicalPlan::Projection(row)))
        };
        let rows = values.values.iter().map(row).collect::<Result<Vec<_>>>()?;
        match rows.as_slice() {
            [row] => self.rows(row),
            _ => self.united(&Union { inputs: rows, schema: Arc::clone(&values.schema) }),
        }
    }

    fn unnested(&self, unnest: &Unnest) -> Result<Option<Dependent>> {
        let Some(rows) = self.rows(&unnest.input)? else { return Ok(None) };
        let plan = builder::unnest_with_options(rows.plan, unnest.exec_columns.clone(), unnest.options.clone())?;
        exact(Dependent { plan, keys: rows.keys, rank: None }, &unnest.schema).map(Some)
    }
}

/// A join by keys of which two NULLs are one. Where there are none, conditions may become keys, of which no NULL is one.
pub(crate) fn joined_by(
    left: LogicalPlan,
    right: LogicalPlan,
    join_type: JoinType,
    (left_keys, right_keys): (&[Column], &[Column]),
    filter: Option<Expr>,
) -> Result<LogicalPlan> {
    let keys = (left_keys.to_vec(), right_keys.to_vec());
    let null_equality = if keys.0.is_empty() { NullEquality::NullEqualsNothing } else { NullEquality::NullEqualsNull };
    LogicalPlanBuilder::from(left).join_detailed(right, join_type, keys, filter, null_equality)?.build()
}

/// The rows with these columns, and with those of the values.
fn exact(rows: Dependent, schema: &DFSchema) -> Result<Dependent> {
    let Dependent { plan, keys, rank } = rows;
    let wanted = schema.columns().into_iter().chain(keys.iter().cloned()).chain(rank.clone());
    let plan = LogicalPlanBuilder::from(plan).project(wanted.map(Expr::Column))?.build()?;
    Ok(Dependent { plan, keys, rank })
}

/// The columns of a subquery under a relation's name, its values' columns among them.
pub(crate) fn under_name(rows: Dependent, relation: &str) -> Result<Dependent> {
    let of_relation = |column: Column| Column::new(Some(TableReference::bare(relation)), column.name);
    let plan = LogicalPlanBuilder::from(rows.plan).alias(relation)?.build()?;
    Ok(Dependent { plan, keys: rows.keys.into_iter().map(of_relation).collect(), rank: None })
}
