//! Samples: what a few pages of a table tell of predicates that bounds cannot judge.
//!
//! Bounds and numbers of distinct values judge a column that is compared with a literal. They say nothing of LIKE, of functions, of
//! columns that are compared with each other, and of predicates over several columns that go together. For tables with such
//! predicates a [`SampleQuestion`] counts rows of a few pages at the drives (Jo et al. 2016, YourSQL; see `docs/bibliography.md`),
//! and the cut estimates with what was [`Sampled`].

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::utils::{COUNT_STAR_EXPANSION, split_conjunction};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, TableScan, lit, when};
use pithead_functions::conjunction;
use pithead_model::{DatasetId, LoadId};

use crate::cutter::unaliased;
use crate::expression::stays;
use crate::{Catalogue, DatasetFacts, Estimate, SubPlan};

/// Rows within bounds from which on the others of its conditions are judged by these rows alone.
const WITHIN_MIN: u64 = 512;

/// What a figure is of: conditions over the rows of a dataset as they are by now.
#[derive(Clone, Debug)]
pub struct SampleKey {
    dataset: DatasetId,
    /// Its columns: names may be others' by now.
    schema: SchemaRef,
    /// The loads that its slices come from, partition by partition.
    loads: Vec<Vec<LoadId>>,
    /// All of these hold, in any order. Columns have no qualifiers. None is there twice.
    conditions: Vec<Expr>,
}

impl PartialEq for SampleKey {
    fn eq(&self, other: &Self) -> bool {
        let (own, others) = (&self.conditions, &other.conditions);
        self.dataset == other.dataset
            && own.len() == others.len()
            && own.iter().all(|condition| others.contains(condition))
            && self.schema == other.schema
            && self.loads == other.loads
    }
}

impl Eq for SampleKey {}

impl Hash for SampleKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let hash = |condition: &Expr| {
            let mut own = DefaultHasher::new();
            condition.hash(&mut own);
            own.finish()
        };
        self.dataset.hash(state);
        // A sum, since their order does not count.
        self.conditions.iter().map(hash).fold(0, u64::wrapping_add).hash(state);
    }
}

impl SampleKey {
    fn new(facts: &DatasetFacts, all: Vec<Expr>) -> Self {
        let mut conditions: Vec<Expr> = Vec::with_capacity(all.len());
        for condition in all {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        let loads = |partition: &pithead_model::Partition| partition.runs.iter().map(|run| run.load).collect();
        let DatasetFacts { dataset, .. } = facts;
        let loads = dataset.partitions.iter().map(loads).collect();
        Self { dataset: dataset.id, schema: Arc::clone(&dataset.schema), loads, conditions }
    }
}

/// Rows that were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Rows that were looked at.
    pub rows: u64,
    /// Of them, those that pass the conditions on columns that the dataset is sorted by, which bounds judge better than a few pages.
    pub within: u64,
    /// Those that pass all other conditions.
    pub others: u64,
    /// Those that pass all conditions.
    pub passed: u64,
    /// Whether these are all rows of the dataset, as a query has counted them.
    pub is_exact: bool,
}

impl Sampled {
    /// What a query has counted: of all rows, those that pass.
    pub fn counted(rows: u64, passed: u64) -> Self {
        Self { rows, within: rows, others: passed, passed, is_exact: true }
    }

    /// The share of all rows that pass, where bounds alone say which share is `within` bounds.
    pub fn share(&self, within: f64) -> f64 {
        // Half a row more than was seen: a sample without any does not say that there is none.
        let ratio = |part: u64, of: u64| (part as f64 + 0.5) / (of as f64 + 1.0);
        match () {
            () if self.is_exact => self.passed as f64 / (self.rows as f64).max(1.0),
            () if self.within >= WITHIN_MIN => within * ratio(self.passed, self.within),
            () => within * ratio(self.others, self.rows),
        }
    }
}

/// What samples have told, for a cut.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<(SampleKey, Sampled)>);

impl Samples {
    /// Adds a figure.
    pub fn add(&mut self, key: SampleKey, sampled: Sampled) {
        self.0.push((key, sampled));
    }

    /// Puts a figure in the place of what was known of the same conditions.
    pub fn replace(&mut self, key: SampleKey, sampled: Sampled) {
        self.0.retain(|(known, _)| *known != key);
        self.0.push((key, sampled));
    }

    /// The estimate of a filter directly over a dataset's scan, if a sample told of it.
    pub(crate) fn estimate(&self, filter: &Filter, catalogue: &dyn Catalogue, input: &Estimate) -> Option<Estimate> {
        if self.0.is_empty() {
            return None;
        }
        let LogicalPlan::TableScan(scan) = unaliased(&filter.input) else { return None };
        let facts = catalogue.facts(scan)?;
        let share = self.share(filter, &facts, input)?;
        let narrowed = input.narrowed(&filter.predicate, filter.input.schema());
        Some(narrowed.with_rows(input.rows * share))
    }

    /// The share of a dataset's rows, of which `input` is the estimate, that pass a filter over its scan, if a sample told of it.
    fn share(&self, filter: &Filter, facts: &DatasetFacts, input: &Estimate) -> Option<f64> {
        let key = SampleKey::new(facts, conditions(&filter.predicate).ok()?);
        let (_, sampled) = self.0.iter().find(|(known, _)| *known == key)?;
        let sorted = split_conjunction(&filter.predicate).into_iter().filter(|part| is_sorted(part, facts)).cloned();
        let within = match conjunction(sorted) {
            Some(predicate) => input.filter(&predicate, filter.input.schema()).rows,
            None => input.rows,
        };
        Some(sampled.share(within / input.rows.max(1.0)).clamp(0.0, 1.0))
    }

    /// For each dataset of a sub-plan the share of its rows that pass the filter over its scan, if a sample told of it. Of a dataset
    /// that is scanned more than once, scans may have different filters: then nothing is said.
    pub(crate) fn passing(&self, sub_plan: &SubPlan) -> Vec<Option<f64>> {
        sub_plan.datasets.iter().map(|facts| self.passing_of(&sub_plan.plan, facts)).collect()
    }

    fn passing_of(&self, plan: &LogicalPlan, facts: &DatasetFacts) -> Option<f64> {
        let is_its = |scan: &TableScan| {
            let TableReference::Partial { schema, table } = &scan.table_name else { return false };
            **schema == facts.name.domain && **table == facts.name.dataset
        };
        let (mut scans, mut share) = (0, None);
        plan.apply(|node| {
            match node {
                LogicalPlan::TableScan(scan) if is_its(scan) => scans += 1,
                LogicalPlan::Filter(filter) => match unaliased(&filter.input) {
                    LogicalPlan::TableScan(scan) if is_its(scan) => {
                        let all = Estimate::scan(facts, filter.input.schema().as_arrow());
                        share = self.share(filter, facts, &all);
                    }
                    _ => {}
                },
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .ok()?;
        share.filter(|_| scans == 1)
    }
}

/// A question to a sample of a dataset.
#[derive(Clone, Debug)]
pub struct SampleQuestion {
    /// What the answer will be of.
    pub key: SampleKey,
    /// The dataset.
    pub facts: Arc<DatasetFacts>,
    /// The share of rows that would be expected by bounds alone.
    pub by_bounds: f64,
    /// The share of rows that conditions on sorted columns let through, by bounds.
    within: f64,
    /// Bytes of a row that the query reads, and of them those that the conditions need.
    row_bytes: (f64, f64),
    scan: TableScan,
}

impl SampleQuestion {
    /// The plan that counts rows. It is to be run over a few pages only.
    pub fn plan(&self) -> Result<LogicalPlan> {
        let schema = self.scan.source.schema();
        let named =
            |condition: &Expr| condition.column_refs().into_iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        let mut columns: Vec<usize> = Vec::new();
        for name in self.key.conditions.iter().flat_map(named) {
            let index = schema.index_of(&name)?;
            if !columns.contains(&index) {
                columns.push(index);
            }
        }
        columns.sort_unstable();
        let (sorted, others): (Vec<Expr>, Vec<Expr>) =
            self.key.conditions.iter().cloned().partition(|condition| is_sorted(condition, &self.facts));
        let passing = |conditions: Vec<Expr>| -> Result<Expr> {
            let all = conjunction(conditions).unwrap_or(lit(true));
            Ok(count(when(all, lit(1_i64)).end()?))
        };
        let counts = vec![
            count(Expr::Literal(COUNT_STAR_EXPANSION, None)).alias("rows"),
            passing(sorted)?.alias("within"),
            passing(others)?.alias("others"),
            passing(self.key.conditions.clone())?.alias("passed"),
        ];
        let scan = LogicalPlanBuilder::scan(self.scan.table_name.clone(), Arc::clone(&self.scan.source), Some(columns))?;
        scan.aggregate(Vec::<Expr>::new(), counts)?.build()
    }

    /// The answer in the rows of [`Self::plan`]; none if no row was looked at.
    pub fn answer(&self, batches: &[RecordBatch]) -> Option<Sampled> {
        let number = |column: usize| {
            let values =
                batches.iter().find(|batch| batch.num_rows() == 1)?.column(column).as_any().downcast_ref::<Int64Array>()?;
            u64::try_from(values.value(0)).ok()
        };
        let (rows, within, others, passed) = (number(0)?, number(1)?, number(2)?, number(3)?);
        (rows > 0).then_some(Sampled { rows, within, others, passed, is_exact: false })
    }

    /// The share of the dataset's rows that pass by an answer.
    pub fn share(&self, sampled: &Sampled) -> f64 {
        sampled.share(self.within).clamp(0.0, 1.0)
    }

    /// How restrictive the conditions are for what it costs to find out: bytes of rows that need not travel or be joined, for each
    /// byte that the conditions read (after YourSQL's limiting score).
    pub fn limiting_score(&self, share: f64) -> f64 {
        (1.0 - share) * self.row_bytes.0 / self.row_bytes.1.max(1.0)
    }

    /// Bytes of a row that a sample reads.
    pub fn read_bytes(&self) -> f64 {
        self.row_bytes.1
    }

    /// The conditions, for people.
    pub fn shown(&self) -> String {
        self.key.conditions.iter().map(|condition| condition.human_display().to_string()).collect::<Vec<_>>().join(" AND ")
    }
}

/// What may be asked before a plan's joins are ordered: the predicates of its tables that bounds do not judge, each once, and none where
/// nothing hangs on how many rows pass. With them come the rows that the plan reads.
pub fn sample_questions(plan: &LogicalPlan, catalogue: &dyn Catalogue) -> Result<(Vec<SampleQuestion>, u64)> {
    let mut questions: Vec<SampleQuestion> = Vec::new();
    let (mut matters, mut rows) = (false, 0_u64);
    plan.apply(|node| {
        match node {
            LogicalPlan::Join(_) => matters = true,
            LogicalPlan::TableScan(scan) => {
                let read = catalogue.facts(scan).map_or(0, |facts| facts.dataset.rows());
                rows = rows.saturating_add(read);
            }
            LogicalPlan::Aggregate(aggregate) => matters |= !aggregate.group_expr.is_empty(),
            LogicalPlan::Filter(filter) => {
                let question = question(filter, catalogue)?;
                questions.extend(question.filter(|new| questions.iter().all(|known| known.key != new.key)));
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok((if matters { questions } else { Vec::new() }, rows))
}

fn question(filter: &Filter, catalogue: &dyn Catalogue) -> Result<Option<SampleQuestion>> {
    let LogicalPlan::TableScan(scan) = unaliased(&filter.input) else { return Ok(None) };
    let Some(facts) = catalogue.facts(scan) else { return Ok(None) };
    let parts = split_conjunction(&filter.predicate);
    if parts.iter().any(|part| stays(part).is_some()) || are_judged(&parts) {
        return Ok(None);
    }
    let schema = filter.input.schema();
    let all = Estimate::scan(&facts, schema.as_arrow());
    let share = |predicate: Option<Expr>| {
        let rows = predicate.map_or(all.rows, |predicate| all.filter(&predicate, schema).rows);
        rows / all.rows.max(1.0)
    };
    let sorted = parts.iter().filter(|part| is_sorted(part, &facts)).map(|part| Expr::clone(part));
    let needed = filter.predicate.column_refs();
    let bytes = |is_needed: bool| {
        let columns = schema.columns().into_iter().zip(&all.columns);
        columns.filter(|(column, _)| !is_needed || needed.contains(column)).map(|(_, column)| column.bytes).sum::<f64>()
    };
    Ok(Some(SampleQuestion {
        key: SampleKey::new(&facts, conditions(&filter.predicate)?),
        by_bounds: share(Some(filter.predicate.clone())),
        within: share(conjunction(sorted)),
        row_bytes: (bytes(false), bytes(true)),
        facts,
        scan: scan.clone(),
    }))
}

/// The conditions of a predicate, without qualifiers.
fn conditions(predicate: &Expr) -> Result<Vec<Expr>> {
    let bare = |expr: Expr| match expr {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))),
        expr => Ok(Transformed::no(expr)),
    };
    split_conjunction(predicate).into_iter().map(|part| Ok(part.clone().transform_up(bare)?.data)).collect()
}

/// Whether a condition is about columns only by which the dataset is sorted: a few pages have few of their values.
fn is_sorted(condition: &Expr, facts: &DatasetFacts) -> bool {
    let is_sorted = |column: &&Column| facts.dataset.sort.iter().any(|key| key.column == column.name);
    let columns = condition.column_refs();
    is_judged(condition).is_some() && !columns.is_empty() && columns.iter().all(is_sorted)
}

/// Whether bounds and numbers of distinct values judge these conditions together: each is about one column, and all are about the same.
fn are_judged(conditions: &[&Expr]) -> bool {
    let mut columns = conditions.iter().map(|condition| is_judged(condition));
    let Some(first) = columns.next() else { return true };
    first.is_some() && columns.all(|column| column == first)
}

/// The column whose bounds judge a condition.
fn is_judged(condition: &Expr) -> Option<&Column> {
    match condition {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::And | Operator::Or) => {
            is_judged(&binary.left).filter(|left| Some(*left) == is_judged(&binary.right))
        }
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => match (&*binary.left, &*binary.right) {
            (Expr::Column(column), Expr::Literal(..)) | (Expr::Literal(..), Expr::Column(column)) => Some(column),
            _ => None,
        },
        Expr::Between(between) => match (&*between.expr, &*between.low, &*between.high) {
            (Expr::Column(column), Expr::Literal(..), Expr::Literal(..)) => Some(column),
            _ => None,
        },
        Expr::InList(list) => match &*list.expr {
            Expr::Column(column) if list.list.iter().all(|item| matches!(item, Expr::Literal(..))) => Some(column),
            _ => None,
        },
        Expr::Not(inner) => is_judged(inner),
        _ => None,
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// What the rows of a sub-plan are of, if it does no more than filter one dataset by what samples may be asked for: a query that ran
/// it has counted them all.
pub fn counted_by(sub_plan: &SubPlan) -> Option<SampleKey> {
    let [facts] = sub_plan.datasets.as_slice() else { return None };
    let mut plan = &sub_plan.plan;
    loop {
        match plan {
            LogicalPlan::Projection(projection) => plan = &projection.input,
            LogicalPlan::SubqueryAlias(alias) => plan = &alias.input,
            LogicalPlan::Filter(filter) if sub_plan.inputs.is_empty() => {
                let LogicalPlan::TableScan(_) = unaliased(&filter.input) else { return None };
                if are_judged(&split_conjunction(&filter.predicate)) {
                    return None;
                }
                return Some(SampleKey::new(facts, conditions(&filter.predicate).ok()?));
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

    #[test]
    fn bounds_judge_one_column_beside_literals() {
        let judged = |conditions: &[Expr]| are_judged(&conditions.iter().collect::<Vec<_>>());
        assert!(judged(&[]));
        assert!(judged(&[col("a").gt(lit(1)), lit(5).gt_eq(col("a"))]));
        assert!(judged(&[col("a").between(lit(1), lit(2)).or(col("a").in_list(vec![lit(7), lit(8)], false))]));
        assert!(!judged(&[col("a").gt(lit(1)), col("b").gt(lit(1))]));
        assert!(!judged(&[col("a").gt(col("b"))]));
        assert!(!judged(&[col("a").like(lit("%x%"))]));
        assert!(!judged(&[(col("a") + lit(1)).gt(lit(1))]));
        assert!(!judged(&[col("a").gt(lit(1)).or(col("b").gt(lit(1)))]));
        assert!(!judged(&[col("a").is_null()]));
    }

    #[test]
    fn few_rows_within_bounds_leave_the_judgement_to_all() {
        let many = Sampled { rows: 65_536, within: 6_000, others: 655, passed: 600, is_exact: false };
        assert!((many.share(0.09) - 0.09 * 600.5 / 6_001.0).abs() < 1e-12);
        let few = Sampled { within: 100, passed: 90, ..many };
        assert!((few.share(0.09) - 0.09 * 655.5 / 65_537.0).abs() < 1e-12);
        let none = Sampled { rows: 1_000, within: 1_000, others: 0, passed: 0, is_exact: false };
        assert!(none.share(1.0) > 0.0);
        assert_eq!(Sampled::counted(1_000, 0).share(0.3), 0.0);
    }
}
