//! MERGE INTO: what becomes of each row of a table, and which rows of the source are new, as two queries.
//!
//! The rows that a table has afterwards are those of its outer join with the source, each changed by the first clause that is about it,
//! and then those of the source that match none. A row of the table that several rows of the source would change is an error, as in
//! PostgreSQL: which of them came last would hang on where they lie.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DataFusionResult, TableReference};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoClause, MergeIntoClauseKind, MergeIntoOp};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    Case, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, TableSource, binary_expr, cast, lit,
};
use datafusion::scalar::ScalarValue;
use pithead_functions::{conjunction, fault_from_datafusion};
use pithead_model::{Blame, Fault, RESERVED};
use pithead_plan::{columns_around, is_volatile};

/// A MERGE, planned: the table, the source, and the clauses.
pub(super) struct Merge {
    target: LogicalPlan,
    source: LogicalPlan,
    schema: SchemaRef,
    op: MergeIntoOp,
}

/// What a MERGE did to how many rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Pairs that the outer join has. More than the table has rows: several rows of the source are about one of them.
    pub(super) joined: u64,
    pub(super) updated: u64,
    pub(super) deleted: u64,
}

impl Merge {
    /// `table` and `name` are the target's, `source` is what USING names.
    pub(super) fn new(
        name: &TableReference,
        table: Arc<dyn TableSource>,
        source: LogicalPlan,
        op: MergeIntoOp,
    ) -> Result<Self, Fault> {
        let schema = table.schema();
        let target = LogicalPlanBuilder::scan(name.clone(), table, None).and_then(LogicalPlanBuilder::build);
        let target = target.map_err(fault_from_datafusion)?;
        let merge = Self { target, source, schema, op };
        merge.check(name)?;
        Ok(merge)
    }

    /// The table's rows.
    pub(super) fn target(&self) -> &LogicalPlan {
        &self.target
    }

    /// What USING names.
    pub(super) fn source(&self) -> &LogicalPlan {
        &self.source
    }

    /// What a row of the table and one of the source have in common where the one is about the other.
    pub(super) fn on(&self) -> &Expr {
        &self.op.on
    }

    /// The same MERGE, with the rows of its source from elsewhere.
    pub(super) fn with_source(self, source: LogicalPlan) -> Merge {
        Merge { source, ..self }
    }

    /// The same MERGE, of the rows of the table that a condition holds for.
    pub(super) fn within(&self, condition: Expr) -> Result<Merge, Fault> {
        let target = built(LogicalPlanBuilder::from(self.target.clone()).filter(condition))?;
        Ok(Merge { target, source: self.source.clone(), schema: Arc::clone(&self.schema), op: self.op.clone() })
    }

    /// Whether a clause is about rows of the table that no row of the source is about.
    pub(super) fn is_about_unmatched(&self) -> bool {
        self.clauses(|kind| kind == MergeIntoClauseKind::NotMatchedBySource).next().is_some()
    }

    /// Whether rows of the source may be added.
    pub(super) fn inserts(&self) -> bool {
        self.clauses(|kind| kind.is_not_matched_by_target()).next().is_some()
    }

    /// One row with the figures of a [`Tally`], in its order.
    pub(super) fn tally(&self) -> Result<LogicalPlan, Fault> {
        let of = |is_it: fn(&MergeIntoAction) -> bool| {
            let chosen = self.choose(|clause| lit(is_it(&clause.action)), lit(false));
            count(case(vec![(chosen, lit(1_i64))], lit(ScalarValue::Int64(None))))
        };
        let updated = of(|action| matches!(action, MergeIntoAction::Update(_)));
        let deleted = of(|action| matches!(action, MergeIntoAction::Delete));
        let counts = [count(lit(1_i64)).alias("joined"), updated.alias("updated"), deleted.alias("deleted")];
        built(self.joined()?.aggregate(Vec::<Expr>::new(), counts))
    }

    /// The rows that stay, changed or not.
    pub(super) fn staying(&self) -> Result<LogicalPlan, Fault> {
        let is_deleted = self.choose(|clause| lit(clause.action == MergeIntoAction::Delete), lit(false));
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let own = self.own_column(field.name());
            let value = |clause: &MergeIntoClause| match &clause.action {
                MergeIntoAction::Update(assignments) => {
                    let assigned = assignments.iter().find(|(name, _)| name == field.name());
                    assigned.map_or_else(|| own.clone(), |(_, value)| cast(value.clone(), field.data_type().clone()))
                }
                _ => own.clone(),
            };
            columns.push(self.choose(value, own.clone()).alias(field.name()));
        }
        let joined = self.joined()?.filter(Expr::IsNotTrue(Box::new(is_deleted)));
        built(joined.and_then(|joined| joined.project(columns)))
    }

    /// The rows of the source that are added.
    pub(super) fn added(&self) -> Result<LogicalPlan, Fault> {
        let clauses: Vec<&MergeIntoClause> = self.clauses(|kind| kind.is_not_matched_by_target()).collect();
        let any = any_of(&clauses);
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for (place, field) in self.schema.fields().iter().enumerate() {
            let value = |clause: &MergeIntoClause| {
                let MergeIntoAction::Insert { columns, values } = &clause.action else { return None };
                let place = if columns.is_empty() { Some(place) } else { columns.iter().position(|it| it == field.name()) };
                values.get(place?).cloned()
            };
            let null = || lit(ScalarValue::Null);
            let whens = clauses.iter().map(|clause| {
                let value = value(clause).unwrap_or_else(null);
                (holds(clause.predicate.clone()), cast(value, field.data_type().clone()))
            });
            columns.push(case(whens.collect(), cast(null(), field.data_type().clone())).alias(field.name()));
        }
        let Sides { left, right, on } = Sides::new(self.source.clone(), self.target.clone(), self.op.on.clone())?;
        let new = LogicalPlanBuilder::from(left).join_on(right, JoinType::LeftAnti, [on]);
        built(new.and_then(|new| new.filter(any)).and_then(|new| new.project(columns)))
    }

    /// The table's rows, each beside the row of the source that is about it, or beside NULL.
    fn joined(&self) -> Result<LogicalPlanBuilder, Fault> {
        let mut marked: Vec<Expr> = self.source.schema().columns().into_iter().map(Expr::Column).collect();
        marked.push(lit(true).alias(mark_name()));
        let source = built(LogicalPlanBuilder::from(self.source.clone()).project(marked))?;
        let matched: Vec<&MergeIntoClause> = self.clauses(|kind| kind == MergeIntoClauseKind::Matched).collect();
        // Pairs that no clause is about change nothing, unless a clause is about rows that are in no pair.
        let on = match self.is_about_unmatched() {
            true => self.op.on.clone(),
            false => binary_expr(self.op.on.clone(), Operator::And, any_of(&matched)),
        };
        let Sides { left, right, on } = Sides::new(self.target.clone(), source, on)?;
        LogicalPlanBuilder::from(left).join_on(right, JoinType::Left, [on]).map_err(fault_from_datafusion)
    }

    /// What the first clause that is about a row of the outer join says, or else `otherwise`.
    fn choose(&self, says: impl Fn(&MergeIntoClause) -> Expr, otherwise: Expr) -> Expr {
        let mark = Expr::Column(Column::new_unqualified(mark_name()));
        let mut whens = Vec::new();
        for clause in self.clauses(|kind| !kind.is_not_matched_by_target()) {
            let is_pair = match clause.kind {
                MergeIntoClauseKind::Matched => Expr::IsNotNull(Box::new(mark.clone())),
                _ => Expr::IsNull(Box::new(mark.clone())),
            };
            whens.push((binary_expr(is_pair, Operator::And, holds(clause.predicate.clone())), says(clause)));
        }
        case(whens, otherwise)
    }

    fn clauses(&self, is_asked: impl Fn(MergeIntoClauseKind) -> bool) -> impl Iterator<Item = &MergeIntoClause> {
        self.op.clauses.iter().filter(move |clause| is_asked(clause.kind))
    }

    fn own_column(&self, name: &str) -> Expr {
        let qualifier = self.target.schema().qualified_field(0).0.cloned();
        Expr::Column(Column::new(qualifier, name))
    }

    /// Refuses what has no meaning, or another one each time that it is computed.
    fn check(&self, target: &TableReference) -> Result<(), Fault> {
        for clause in &self.op.clauses {
            let is_new = clause.kind.is_not_matched_by_target();
            if is_new != matches!(clause.action, MergeIntoAction::Insert { .. }) {
                return Err(Fault::invalid("a row that is not matched can be inserted, and only such a row")
                    .hint("WHEN MATCHED THEN UPDATE SET … or DELETE; WHEN NOT MATCHED THEN INSERT (…) VALUES (…)"));
            }
            let (has, lacks) = if is_new { ("the source", "the table") } else { ("the table", "the source") };
            let is_foreign = |column: &Column| match clause.kind {
                MergeIntoClauseKind::Matched => false,
                MergeIntoClauseKind::NotMatchedBySource => column.relation.as_ref() != Some(target),
                _ => column.relation.as_ref() == Some(target),
            };
            if let Some(column) = exprs(clause).flat_map(|expr| expr.column_refs()).find(|column| is_foreign(column)) {
                let message = format!("a row that only {has} has is to be changed by {column}, a column of {lacks}");
                return Err(Fault::invalid(message).hint(format!("use columns of {has}, or constants")));
            }
        }
        let asked = std::iter::once(&self.op.on).chain(self.op.clauses.iter().filter_map(|it| it.predicate.as_ref()));
        if asked.clone().any(Expr::is_volatile) || is_volatile(&self.source).map_err(fault_from_datafusion)? {
            return Err(Fault::new(Blame::Unsupported, "a MERGE whose source or conditions have random values")
                .hint("write the source's rows into a table first: CREATE TABLE … AS SELECT …"));
        }
        Ok(())
    }
}

/// What a join that keeps rows of its left side is made of.
struct Sides {
    left: LogicalPlan,
    right: LogicalPlan,
    on: Expr,
}

impl Sides {
    /// Subqueries in the condition that are about rows of one side are computed as columns of that side: the engine makes joins of those
    /// in WHERE and SELECT. So it does of those about the right side alone, which it moves there.
    fn new(left: LogicalPlan, right: LogicalPlan, on: Expr) -> Result<Sides, Fault> {
        if !on.exists(|part| Ok(is_value(part))).map_err(fault_from_datafusion)? {
            return Ok(Sides { left, right, on });
        }
        let is_of_right = |condition: &Expr| is_about(condition, right.schema());
        let (moved, others): (Vec<Expr>, Vec<Expr>) = split_conjunction_owned(on).into_iter().partition(is_of_right);
        let others = conjunction(others).unwrap_or_else(|| lit(true));
        let (left, others) = with_values(left, others, "left").map_err(fault_from_datafusion)?;
        let (right, others) = with_values(right, others, "right").map_err(fault_from_datafusion)?;
        let on = conjunction(moved.into_iter().chain([others])).unwrap_or_else(|| lit(true));
        Ok(Sides { left, right, on })
    }
}

/// A side of a join with the values of subqueries that a condition asks about its rows, and the condition over these values.
fn with_values(side: LogicalPlan, condition: Expr, name: &str) -> DataFusionResult<(LogicalPlan, Expr)> {
    let mut values: Vec<Expr> = Vec::new();
    let named = |place: usize| format!("{RESERVED}{name}_{place}");
    let condition = condition.transform_down(|part| {
        if !is_value(&part) || !is_about(&part, side.schema()) {
            return Ok(Transformed::no(part));
        }
        let known = values.iter().position(|value| *value == part);
        let place = known.unwrap_or(values.len());
        if known.is_none() {
            values.push(part);
        }
        Ok(Transformed::new(Expr::Column(Column::new_unqualified(named(place))), true, TreeNodeRecursion::Jump))
    })?;
    if values.is_empty() {
        return Ok((side, condition.data));
    }
    let columns = side.schema().columns().into_iter().map(Expr::Column);
    let values = values.into_iter().enumerate().map(|(place, value)| value.alias(named(place)));
    let all: Vec<Expr> = columns.chain(values).collect();
    Ok((LogicalPlanBuilder::from(side).project(all)?.build()?, condition.data))
}

/// Whether an expression is a subquery that SELECT may have and ON may not. One that has the same value for all rows is a literal by then.
fn is_value(expr: &Expr) -> bool {
    match expr {
        Expr::InSubquery(_) | Expr::Exists(_) => true,
        Expr::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
        _ => false,
    }
}

/// Whether an expression and its subqueries read, of the rows around them, columns of a side alone.
fn is_about(expr: &Expr, side: &DFSchema) -> bool {
    let is_other = |part: &Expr| {
        let subquery = match part {
            Expr::Column(column) => return Ok(!side.has_column(column)),
            Expr::InSubquery(InSubquery { subquery, .. }) | Expr::Exists(Exists { subquery, .. }) => subquery,
            Expr::SetComparison(comparison) => &comparison.subquery,
            Expr::ScalarSubquery(subquery) => subquery,
            _ => return Ok(false),
        };
        let is_own = |outer: &Expr| matches!(outer, Expr::OuterReferenceColumn(_, column) if side.has_column(column));
        let of_others = subquery.outer_ref_columns.iter().any(|outer| !is_own(outer));
        Ok(of_others || !columns_around(&subquery.subquery)?.is_empty())
    };
    !expr.exists(is_other).unwrap_or(true)
}

/// What to say of a table that has rows which several rows of the source are about.
pub(super) fn matched_twice(name: &impl std::fmt::Display) -> Fault {
    Fault::new(Blame::User, format!("several rows say what the same row of {name} is to become"))
        .hint("make the keys of the table that has the new values distinct, or the condition narrower")
}

fn exprs(clause: &MergeIntoClause) -> impl Iterator<Item = &Expr> {
    let values: Vec<&Expr> = match &clause.action {
        MergeIntoAction::Update(assignments) => assignments.iter().map(|(_, value)| value).collect(),
        MergeIntoAction::Insert { values, .. } => values.iter().collect(),
        MergeIntoAction::Delete => vec![],
    };
    clause.predicate.iter().chain(values)
}

/// Whether any of the clauses is about a row. There is none: none is.
fn any_of(clauses: &[&MergeIntoClause]) -> Expr {
    let each = clauses.iter().map(|clause| holds(clause.predicate.clone()));
    each.reduce(|a, b| binary_expr(a, Operator::Or, b)).unwrap_or_else(|| lit(false))
}

/// A condition that is NULL does not hold.
fn holds(predicate: Option<Expr>) -> Expr {
    predicate.map_or_else(|| lit(true), |predicate| Expr::IsTrue(Box::new(predicate)))
}

fn case(whens: Vec<(Expr, Expr)>, otherwise: Expr) -> Expr {
    if whens.is_empty() {
        return otherwise;
    }
    let whens = whens.into_iter().map(|(when, then)| (Box::new(when), Box::new(then))).collect();
    Expr::Case(Case::new(None, whens, Some(Box::new(otherwise))))
}

fn built(builder: datafusion::error::Result<LogicalPlanBuilder>) -> Result<LogicalPlan, Fault> {
    builder.and_then(LogicalPlanBuilder::build).map_err(fault_from_datafusion)
}

/// The column that is true for each row of the source. No column of a query can have its name.
fn mark_name() -> String {
    format!("{RESERVED}matched")
}
