//! [`Conjunct`]s: a scan's filters as its slices see them.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use datafusion::physical_plan::joins::HashTableLookupExpr;
use pithead_model::SliceEntry;
use pithead_slice::{Predicate, may_match};

use crate::predicate::{Converted, convert, nowhere};
use crate::statistics::PartFacts;

/// A moving filter that is taken to let less than this share of the rows pass is worth applying while decoding.
const SELECTIVE_MAX: f64 = 0.3;

/// One condition of a scan, over the columns of its dataset.
#[derive(Clone, Debug)]
pub(crate) struct Conjunct {
    pub(crate) expr: Arc<dyn PhysicalExpr>,
    pub(crate) converted: Option<Converted>,
}

impl Conjunct {
    /// Its predicate, if that can stand for it.
    fn exact(&self) -> Option<&Predicate> {
        self.converted.as_ref().filter(|converted| converted.exact).map(|converted| &converted.predicate)
    }

    /// Whether an encoding could apply it.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact().is_some()
    }
}

/// The conditions that an expression is made of.
pub(crate) fn conjuncts(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Vec<Conjunct> {
    let part = |expr: &Arc<dyn PhysicalExpr>| Conjunct { expr: Arc::clone(expr), converted: convert(expr, schema) };
    split_conjunction(expr).into_iter().map(part).collect()
}

/// Whether any row of a slice may satisfy all the conditions.
pub(crate) fn slice_may_match<'a>(conditions: impl IntoIterator<Item = &'a Conjunct>, entry: &SliceEntry) -> bool {
    // A list of keys may be long, and is looked at for each slice: nothing is copied.
    let mut predicates = conditions.into_iter().filter_map(|condition| Some(&condition.converted.as_ref()?.predicate));
    predicates.all(|predicate| may_match(std::slice::from_ref(predicate), &entry.columns, entry.rows))
}

/// The predicate as a hint: bounds rule out what they do for the predicate itself, but no encoding evaluates it a row
/// at a time, because none has an expression for a list without values.
pub(crate) fn hint(predicate: &Predicate) -> Predicate {
    Predicate::Any(vec![nowhere(), predicate.clone()])
}

/// A filter that another operator keeps setting while the plan runs, as it is now.
#[derive(Debug)]
pub(crate) struct Moving {
    source: Arc<dyn PhysicalExpr>,
    generation: Option<u64>,
    now: Vec<Conjunct>,
    /// For each condition, what slices are told of it.
    told: Vec<Option<Predicate>>,
}

impl Moving {
    pub(crate) fn new(source: Arc<dyn PhysicalExpr>) -> Self {
        Self { source, generation: None, now: Vec::new(), told: Vec::new() }
    }

    /// Its present conditions, those aside that look up a hash table: the join does that again anyhow.
    pub(crate) fn now(&self) -> &[Conjunct] {
        &self.now
    }

    /// For each of them, the predicate that slices are told. Those that are taken to let few rows pass may be applied by
    /// the encoding, before it decodes other columns; the rest are hints.
    pub(crate) fn told(&self) -> &[Option<Predicate>] {
        &self.told
    }

    /// Takes note of what it is now; true if it is another than before.
    pub(crate) fn refresh(&mut self, schema: &Schema, facts: &PartFacts) -> Result<bool> {
        let generation = Some(snapshot_generation(&self.source));
        if self.generation == generation {
            return Ok(false);
        }
        let snapshot = snapshot_physical_expr(Arc::clone(&self.source))?;
        self.now = conjuncts(&snapshot, schema);
        self.now.retain(|condition| !looks_up(&condition.expr) && condition.converted != ALWAYS);
        let told = |condition: &Conjunct| match condition.exact().filter(|_| facts.selectivity(condition) < SELECTIVE_MAX) {
            Some(predicate) => Some(predicate.clone()),
            None => condition.converted.as_ref().map(|converted| hint(&converted.predicate)),
        };
        self.told = self.now.iter().map(told).collect();
        self.generation = generation;
        Ok(true)
    }
}

/// What `true` converts to.
const ALWAYS: Option<Converted> = Some(Converted { predicate: Predicate::All(vec![]), exact: true });

fn looks_up(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let mut found = false;
    // The closure gives no error.
    let _ = expr.apply(|expr| {
        found |= expr.downcast_ref::<HashTableLookupExpr>().is_some();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

/// Columns of the dataset that an expression reads, ascending.
pub(crate) fn columns_of(expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    let columns = datafusion::physical_expr::utils::collect_columns(expr);
    let mut columns: Vec<usize> = columns.iter().map(Column::index).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The expression with each column moved to where `place` says it is. None: a column has no place.
pub(crate) fn move_columns(
    expr: &Arc<dyn PhysicalExpr>,
    place: &dyn Fn(usize) -> Option<usize>,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let mut placed = true;
    let moved = Arc::clone(expr).transform_down(|expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        match place(column.index()) {
            Some(index) => Ok(Transformed::yes(Arc::new(Column::new(column.name(), index)) as Arc<dyn PhysicalExpr>)),
            None => {
                placed = false;
                Ok(Transformed::no(expr))
            }
        }
    })?;
    Ok(placed.then_some(moved.data))
}
