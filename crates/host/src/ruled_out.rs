//! [`partitions_left`]: the partitions that may have rows of a sub-plan's answer. The others need not be asked.
//!
//! A partition is ruled out where no row of a dataset can be in it that passes the filters over its scan: by the bounds that the manifest
//! has of each partition's columns, or since the filters give the columns by whose hash rows are placed few values. Of no rows comes at
//! most what an aggregate without groups says of none, which one partition says for all.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::{JoinType, ScalarValue, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, TableScan};
use pithead_exec::RowConditions;
use pithead_load::Partitioner;
use pithead_model::{Dataset, Partitioning};
use pithead_plan::{DatasetFacts, SubPlan};

/// Most combinations of values for which the places of rows are looked up.
const KEYS_MAX: usize = 1_024;

/// For each partition, whether the sub-plan may have rows from it. It is true of one at least.
pub(crate) fn partitions_left(sub_plan: &SubPlan, state: &SessionState) -> Vec<bool> {
    let partitions = sub_plan.copies.len();
    if partitions < 2 {
        return vec![true; partitions];
    }
    let mut left = Looking { sub_plan, state, partitions }.at_the_top(&sub_plan.plan);
    if !left.contains(&true) {
        left[0] = true;
    }
    left
}

struct Looking<'a> {
    sub_plan: &'a SubPlan,
    state: &'a SessionState,
    partitions: usize,
}

impl Looking<'_> {
    fn all(&self) -> Vec<bool> {
        vec![true; self.partitions]
    }

    /// Where operators are left out that do not matter if there are no rows, an aggregate without groups among them: it is the last that
    /// a sub-plan does, and the host puts the parts together.
    fn at_the_top(&self, node: &LogicalPlan) -> Vec<bool> {
        match node {
            LogicalPlan::Projection(projection) => self.at_the_top(&projection.input),
            LogicalPlan::SubqueryAlias(alias) => self.at_the_top(&alias.input),
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => self.below(&aggregate.input),
            node => self.below(node),
        }
    }

    /// The partitions in which an operator may have rows.
    fn below(&self, node: &LogicalPlan) -> Vec<bool> {
        self.filtered(node, &mut Vec::new())
    }

    /// The same of rows that must pass filters, too.
    fn filtered(&self, node: &LogicalPlan, filters: &mut Vec<Expr>) -> Vec<bool> {
        match node {
            LogicalPlan::TableScan(scan) => self.scanned(scan, filters),
            LogicalPlan::Filter(filter) => {
                filters.push(filter.predicate.clone());
                self.filtered(&filter.input, filters)
            }
            LogicalPlan::SubqueryAlias(alias) => self.filtered(&alias.input, filters),
            // Filters above these are over other columns, or over others of their rows.
            LogicalPlan::Projection(projection) => self.below(&projection.input),
            LogicalPlan::Sort(sort) => self.below(&sort.input),
            LogicalPlan::Limit(limit) => self.below(&limit.input),
            LogicalPlan::Window(window) => self.below(&window.input),
            LogicalPlan::Aggregate(aggregate) if has_groups(&aggregate.group_expr) => self.below(&aggregate.input),
            LogicalPlan::Join(join) => self.joined(join),
            _ => self.all(),
        }
    }

    fn joined(&self, join: &Join) -> Vec<bool> {
        let both = || {
            let (left, right) = (self.below(&join.left), self.below(&join.right));
            left.into_iter().zip(right).map(|(left, right)| left && right).collect()
        };
        match join.join_type {
            JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => both(),
            JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => self.below(&join.left),
            JoinType::Right | JoinType::RightAnti | JoinType::RightMark => self.below(&join.right),
            JoinType::Full => self.all(),
        }
    }

    fn scanned(&self, scan: &TableScan, filters: &[Expr]) -> Vec<bool> {
        let Some(facts) = self.sub_plan.datasets.iter().find(|facts| is_of(scan, facts)) else { return self.all() };
        let dataset = &facts.dataset;
        let filters = [filters, &scan.filters].concat();
        if filters.is_empty() || dataset.partitions.len() != self.partitions {
            return self.all();
        }
        let conditions = RowConditions::new(&filters, &dataset.schema, self.state.execution_props());
        if conditions.is_empty() {
            return self.all();
        }
        let places = places(&conditions, dataset);
        let columns = dataset.schema.fields().len();
        let left = dataset.partitions.iter().enumerate().map(|(number, partition)| {
            let is_placed = places.as_ref().is_none_or(|places| places.contains(&number));
            is_placed && (partition.columns.len() != columns || conditions.may_match(&partition.columns))
        });
        left.collect()
    }
}

/// Whether an aggregate has no row where it is given none. Of GROUPING SETS, one may be of all rows.
fn has_groups(by: &[Expr]) -> bool {
    !by.is_empty() && !by.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)))
}

fn is_of(scan: &TableScan, facts: &DatasetFacts) -> bool {
    match &scan.table_name {
        TableReference::Partial { schema, table } => **schema == facts.name.domain && **table == facts.name.dataset,
        _ => false,
    }
}

/// The partitions of rows that satisfy the conditions, by the hash of their key; none: they may be in any.
fn places(conditions: &RowConditions, dataset: &Dataset) -> Option<Vec<usize>> {
    let Partitioning::Hash { columns } = &dataset.partitioning else { return None };
    let indices: Vec<usize> = columns.iter().map(|name| dataset.schema.index_of(name).ok()).collect::<Option<_>>()?;
    let values: Vec<Vec<ScalarValue>> = indices.iter().map(|index| conditions.values(*index)).collect::<Option<_>>()?;
    let keys = combinations(&values)?;
    if keys.is_empty() {
        return Some(Vec::new());
    }
    let schema = Schema::new(indices.iter().map(|index| dataset.schema.field(*index).clone()).collect::<Vec<_>>());
    let column = |place: usize| ScalarValue::iter_to_array(keys.iter().map(|key| key[place].clone())).ok();
    let arrays = (0..indices.len()).map(column).collect::<Option<Vec<_>>>()?;
    let batch = RecordBatch::try_new(schema.into(), arrays).ok()?;
    let partitioner = Partitioner::new(&dataset.partitioning, batch.schema_ref(), dataset.partitions.len()).ok()?;
    let split = partitioner.split(&batch).ok()?;
    Some(split.into_iter().map(|(partition, _)| partition).collect())
}

/// One of each of the values, in each way; none: there are too many ways.
fn combinations(values: &[Vec<ScalarValue>]) -> Option<Vec<Vec<ScalarValue>>> {
    let ways = values.iter().try_fold(1usize, |ways, values| ways.checked_mul(values.len()))?;
    if ways > KEYS_MAX {
        return None;
    }
    let add = |keys: Vec<Vec<ScalarValue>>, values: &Vec<ScalarValue>| {
        let with = |key: &Vec<ScalarValue>| {
            let key = key.clone();
            values.iter().map(move |value| [key.as_slice(), std::slice::from_ref(value)].concat())
        };
        keys.iter().flat_map(with).collect()
    };
    Some(values.iter().fold(vec![Vec::new()], add))
}
