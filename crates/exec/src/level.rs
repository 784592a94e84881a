//! [`Filtered`]: a sub-plan's driving scan by itself, which is what level 2 runs, and what tells the carrier of level 0 which
//! slices need not travel.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr_rewriter::{unnormalize_col, unnormalize_cols};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, TableScan, TableSource, lit};
use pithead_functions::ready_to_run;
use pithead_model::{SliceEntry, SliceSpan};

use crate::SliceRef;
use crate::pruning::{Conjunct, columns_of, conjuncts, slice_may_match};
use crate::table::{Feed, SliceTable, TablePart};

/// The driving scan of an optimised sub-plan, with its filters and its projection.
#[derive(Debug)]
pub(crate) struct Filtered {
    /// Ready to run: each round makes a physical plan of it.
    pub(crate) ready: LogicalPlan,
    /// Its columns, under the names that they have in the dataset.
    pub(crate) schema: SchemaRef,
    pub(crate) conditions: Vec<Conjunct>,
    /// Whether the sub-plan does anything besides.
    pub(crate) is_part: bool,
    zone_maps: bool,
}

impl Filtered {
    /// None: the optimiser found that nothing needs to be read, or all of the partition is needed for each slice.
    pub(crate) fn of(plan: &LogicalPlan, part: &TablePart, state: &SessionState) -> Result<Option<Filtered>> {
        let mut found: Option<TableScan> = None;
        let mut others = false;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                match feed_of(&scan.source, part) {
                    Some(Feed::Round) => found = Some(scan.clone()),
                    Some(Feed::All) => others = true,
                    None => {}
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        // Where the driving dataset is also read whole, one who has only some of its slices cannot go on.
        let Some(scan) = found.filter(|_| !others) else { return Ok(None) };
        let columns = scan.projection.clone().unwrap_or_else(|| (0..part.schema.fields().len()).collect());
        let schema = Arc::new(part.schema.project(&columns)?);
        let names = DFSchema::try_from(Arc::clone(&part.schema))?;
        let mut conditions = Vec::new();
        for filter in unnormalize_cols(scan.filters.iter().cloned()) {
            conditions.extend(conjuncts(&state.create_physical_expr(filter, &names)?, &part.schema));
        }
        let is_part = !matches!(renamed(plan), LogicalPlan::TableScan(_));
        // A limit that the optimiser put into the scan counts rows of a round, not of a slice.
        let plan = LogicalPlan::TableScan(TableScan { fetch: None, ..scan });
        Ok(Some(Filtered { ready: ready_to_run(plan)?, schema, conditions, is_part, zone_maps: part.zone_maps }))
    }

    /// The columns that are read: those of the output, and those that filters need.
    pub(crate) fn columns(&self, all: &SchemaRef) -> Vec<usize> {
        let output = self.schema.fields().iter().filter_map(|field| all.index_of(field.name()).ok());
        let mut columns: Vec<usize> =
            output.chain(self.conditions.iter().flat_map(|condition| columns_of(&condition.expr))).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Whether any row of a slice may pass the filters.
    pub(crate) fn may_match(&self, entry: &SliceEntry) -> bool {
        !self.zone_maps || slice_may_match(&self.conditions, entry)
    }
}

/// Conditions that all hold where the only column of a plan is true; no condition where that is nothing that the driving scan's
/// rows alone say.
pub(crate) fn truth_of(plan: &LogicalPlan, part: &TablePart, state: &SessionState) -> Vec<Conjunct> {
    let LogicalPlan::Projection(projection) = plan else { return Vec::new() };
    let ([expr], LogicalPlan::TableScan(scan)) = (&projection.expr[..], renamed(&projection.input)) else { return Vec::new() };
    if feed_of(&scan.source, part) != Some(Feed::Round) || !scan.filters.is_empty() {
        return Vec::new();
    }
    let expr = unnormalize_col(true_where(expr).clone());
    let physical = DFSchema::try_from(Arc::clone(&part.schema)).and_then(|names| state.create_physical_expr(expr, &names));
    physical.map(|expr| conjuncts(&expr, &part.schema)).unwrap_or_default()
}

/// What an expression is true for, where that is all that it says.
fn true_where(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => true_where(&alias.expr),
        Expr::IsTrue(inner) => true_where(inner),
        Expr::BinaryExpr(binary) if binary.op == Operator::IsNotDistinctFrom && *binary.right == lit(true) => {
            true_where(&binary.left)
        }
        expr => expr,
    }
}

/// Slices that nobody has taken yet, those aside that their bounds rule out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many.
    pub slices: u32,
    /// Of them, those that the host holds.
    pub held: u32,
    /// Their rows.
    pub rows: u64,
    /// Their bytes as stored.
    pub bytes: u64,
}

/// Sums over the first slices of a queue, so that those over any run of them are at hand.
#[derive(Debug)]
pub(crate) struct Sums(Vec<Waiting>);

impl Sums {
    pub(crate) fn new(slices: &[SliceRef], held: &[SliceSpan], filtered: Option<&Filtered>) -> Sums {
        let mut sums = Vec::with_capacity(slices.len() + 1);
        let mut sum = Waiting::default();
        sums.push(sum);
        for slice in slices {
            if filtered.is_none_or(|filtered| filtered.may_match(&slice.entry)) {
                sum.slices += 1;
                sum.held += u32::from(is_in(held, slice.ordinal));
                sum.rows = sum.rows.saturating_add(slice.entry.rows);
                sum.bytes = sum.bytes.saturating_add(slice.entry.bytes);
            }
            sums.push(sum);
        }
        Sums(sums)
    }

    pub(crate) fn over(&self, range: &Range<usize>) -> Waiting {
        match (self.0.get(range.start), self.0.get(range.end)) {
            (Some(before), Some(to)) => Waiting {
                slices: to.slices.saturating_sub(before.slices),
                held: to.held.saturating_sub(before.held),
                rows: to.rows.saturating_sub(before.rows),
                bytes: to.bytes.saturating_sub(before.bytes),
            },
            _ => Waiting::default(),
        }
    }
}

/// Whether a slice is in one of the spans, which rise.
pub(crate) fn is_in(spans: &[SliceSpan], slice: u32) -> bool {
    let after = spans.partition_point(|span| span.first <= slice);
    after.checked_sub(1).and_then(|last| spans.get(last)).is_some_and(|span| slice - span.first < span.count)
}

/// What the carrier of level 0 takes from a session's slices.
#[derive(Clone, Debug)]
pub struct Carried {
    /// The slice.
    pub slice: SliceRef,
    /// Whether any of its rows may pass the filters. If not, nothing of it needs to travel.
    pub may_match: bool,
    /// Whether the host holds it.
    pub held: bool,
}

fn renamed(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => renamed(&alias.input),
        plan => plan,
    }
}

/// How a scan reads this part of its session; none: it reads another part.
fn feed_of(source: &Arc<dyn TableSource>, part: &TablePart) -> Option<Feed> {
    let table: Arc<dyn TableProvider> = source_as_provider(source).ok()?;
    let table = table.downcast_ref::<SliceTable>()?;
    (table.part.number == part.number).then_some(table.feed)
}
