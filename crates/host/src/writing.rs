//! Statements that write: CREATE TABLE, ALTER TABLE, INSERT, DELETE, UPDATE, MERGE and TRUNCATE.
//!
//! Their rows are those of a query, which is cut and run as any query is, and they go to the drives as a load does: visible together at
//! the end, or not at all. DELETE, UPDATE and MERGE have the drives mark the rows that go, where they can. Otherwise they write the rows
//! of a table anew, in the layout that it has, and take its place. Others may have changed it meanwhile; then they begin again.

mod altering;
mod column_groups;
mod creating;
mod from_others;
mod keys;
mod layout;
mod marking;
mod merging;
mod planning;
mod returning;
mod uuid_texts;
mod with_before;

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::source_as_provider;
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::utils::COUNT_STAR_EXPANSION;
use datafusion::logical_expr::{
    DdlStatement, DmlStatement, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Projection, TableScan, WriteOp,
};
use futures::{StreamExt, TryStreamExt, stream};
use pithead_door::Batches;
use pithead_fleet::{VersionedDataset, is_view};
use pithead_functions::{count_repeats, fault_from_datafusion};
use pithead_load::{LoadMode, LoadSpec};
use pithead_model::{Blame, Dataset, DatasetName, Fault, FaultKind};

use crate::query::{Mode, Query};
use crate::table::DatasetTable;
use crate::views::ViewTable;
use crate::{Commitment, Parameters};
pub(crate) use altering::Altering;
pub(crate) use column_groups::take_apart;
pub(crate) use from_others::as_merge;
use keys::Wanted;
pub(crate) use layout::{Layout, sort_clauses};
use merging::{Merge, Tally, matched_twice};
pub(crate) use planning::{is_plain_delete, planned, planned_by};
pub(crate) use returning::{Returned, check_returning, take_returning};
pub(crate) use uuid_texts::with_uuids;
pub(crate) use with_before::take_with;

/// How often a statement begins again that others came before.
const ATTEMPTS: usize = 5;
/// How the rows that a statement is about are chosen once.
const KEYS_FIRST: &str =
    "write the keys of its rows into a table first: CREATE TABLE … AS SELECT …, then WHERE key IN (SELECT …)";

/// A statement that writes, planned.
pub(crate) struct Writing<'a> {
    pub(crate) query: &'a Query,
    pub(crate) plan: LogicalPlan,
    pub(crate) layout: Layout,
    /// Whether rows are deleted however many rows of another table match each.
    pub(crate) matches_often: bool,
    pub(crate) parameters: &'a Parameters,
    /// Takes the rows that RETURNING asks for.
    pub(crate) returned: Option<&'a Returned>,
    /// Until when it can be cancelled.
    pub(crate) commitment: &'a Arc<Commitment>,
}

/// The dataset that a statement changes, as it was read.
struct Changed {
    name: DatasetName,
    dataset: Arc<Dataset>,
    found: Arc<VersionedDataset>,
}

/// Whether a statement that ended so is to begin again.
pub(crate) fn begins_again(fault: &Fault, attempt: usize) -> bool {
    fault.blame == Blame::Conflict && attempt < ATTEMPTS
}

/// The dataset that a plan changes; none: it makes one.
pub(crate) fn changed_dataset(plan: &LogicalPlan) -> Result<Option<DatasetName>, Fault> {
    match plan {
        LogicalPlan::Dml(DmlStatement { target, .. }) => Changed::of(target).map(|changed| Some(changed.name)),
        _ => Ok(None),
    }
}

impl Writing<'_> {
    /// Runs it. The number of rows that were inserted, deleted or changed.
    pub(crate) async fn run(self) -> Result<u64, Fault> {
        let Self { query, plan, layout, matches_often, parameters, returned, commitment } = self;
        // All at once: the parts that follow need not have all placeholders.
        let plan = parameters.put_into(planning::with_nulls(planning::with_casts_of_moments(plan)?)?)?;
        let writer = Writer { query, returned, commitment };
        match plan {
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => writer.create(create, layout).await,
            LogicalPlan::Dml(DmlStatement { table_name, target, op, input, .. }) => {
                let changed = Changed::of(&target)?;
                match op {
                    WriteOp::Insert(_) => changed.found.check_loaded()?,
                    _ => changed.found.check_changeable()?,
                }
                let input = LogicalPlan::clone(&input);
                match op {
                    WriteOp::Insert(InsertOp::Append) => writer.insert(changed, input).await,
                    WriteOp::Delete => writer.delete(changed, input).await,
                    WriteOp::Update => writer.update(changed, input).await,
                    WriteOp::Truncate => writer.truncate(changed).await,
                    WriteOp::MergeInto(op) => {
                        writer.merge(changed, Merge::new(&table_name, target, input, *op)?, matches_often).await
                    }
                    other => Err(unsupported(other.name())),
                }
            }
            other => Err(unsupported(&other.display().to_string())),
        }
    }
}

struct Writer<'a> {
    query: &'a Query,
    returned: Option<&'a Returned>,
    commitment: &'a Arc<Commitment>,
}

impl Writer<'_> {
    async fn insert(&self, changed: Changed, input: LogicalPlan) -> Result<u64, Fault> {
        let schema = Arc::clone(&changed.dataset.schema);
        let rows = self.returning(self.rows(input, &schema).await?);
        let spec = LoadSpec { mode: LoadMode::Append, over: Some(changed.dataset), ..LoadSpec::new(changed.name, vec![]) };
        self.load(spec, schema, rows).await
    }

    async fn delete(&self, changed: Changed, input: LogicalPlan) -> Result<u64, Fault> {
        let (scan, predicate) = filtered(&input)?;
        let Some(predicate) = predicate else {
            self.keep_going(&changed, scan).await?;
            return self.truncate(changed).await;
        };
        let mut wanted = self.wanted(predicate, scan.schema()).await?;
        if self.returned.is_some() {
            wanted = self.chosen_once(&scan, wanted).await?;
            self.keep_going(&changed, only(scan.clone(), &wanted)?).await?;
        }
        if let Some(deleted) = self.mark(&changed, &scan, &wanted).await? {
            return Ok(deleted);
        }
        if self.count(only(scan.clone(), &wanted)?).await? == 0 {
            return Ok(0);
        }
        let rows = changed.dataset.rows();
        let kept = self.kept(scan, wanted.predicate, &changed).await?;
        // Random values were others when they were counted.
        Ok(rows.saturating_sub(self.rewrite(changed, kept).await?))
    }

    async fn update(&self, changed: Changed, input: LogicalPlan) -> Result<u64, Fault> {
        let LogicalPlan::Projection(projection) = &input else { return Err(Fault::bug("an UPDATE has no new values")) };
        let (scan, predicate) = filtered(&projection.input)?;
        let Some(predicate) = predicate else {
            let new = self.returning(self.rows(input.clone(), &changed.dataset.schema).await?);
            return self.rewrite(changed, new).await;
        };
        let wanted = self.wanted(predicate, scan.schema()).await?;
        // Rows that go, those that stay and those that come are asked for one after the other.
        let wanted = self.chosen_once(&scan, wanted).await?;
        let going = only(scan.clone(), &wanted)?;
        let new = Projection::try_new(projection.expr.clone(), Arc::new(going.clone())).map_err(fault_from_datafusion)?;
        let new = LogicalPlan::Projection(new);
        if let Some(updated) = self.exchange(&changed, &scan, &wanted, &new).await? {
            return Ok(updated);
        }
        let updated = self.count(going).await?;
        if updated > 0 {
            let kept = self.kept(scan, wanted.predicate, &changed).await?;
            let new = self.returning(self.rows(new, &changed.dataset.schema).await?);
            let rows = whole(kept.chain(new).boxed(), changed.dataset.rows());
            self.rewrite(changed, rows).await?;
        }
        Ok(updated)
    }

    /// Rows that are to be written, which RETURNING tells of.
    fn returning(&self, rows: Batches) -> Batches {
        match self.returned {
            Some(returned) => returned.keep(rows),
            None => rows,
        }
    }

    /// Asks for the rows that go, where RETURNING is to tell of them.
    async fn keep_going(&self, changed: &Changed, going: LogicalPlan) -> Result<(), Fault> {
        let Some(returned) = self.returned else { return Ok(()) };
        let mut rows = returned.keep(self.rows(going, &changed.dataset.schema).await?);
        while rows.try_next().await?.is_some() {}
        Ok(())
    }

    /// The rows that were changed, deleted or added.
    async fn merge(&self, changed: Changed, merge: Merge, matches_often: bool) -> Result<u64, Fault> {
        // Its rows are asked for several times.
        let source = self.settled(merge.source()).await?;
        let merge = merge.with_source(source);
        if let Some(changes) = self.merge_marked(&changed, &merge, matches_often).await? {
            return Ok(changes);
        }
        let tally = self.tally(&merge, &changed.name, changed.dataset.rows(), matches_often).await?;
        let changes = tally.updated + tally.deleted;
        let inserts = merge.inserts();
        if changes == 0 && (!inserts || self.count(merge.added()?).await? == 0) {
            return Ok(0);
        }
        let schema = Arc::clone(&changed.dataset.schema);
        let staying = self.rows(merge.staying()?, &schema).await?;
        let added = match inserts {
            true => self.rows(merge.added()?, &schema).await?,
            false => stream::empty().boxed(),
        };
        let rows = changed.dataset.rows();
        // Pairs of rows are told from rows only where each row is in one of them.
        let staying = if matches_often { staying } else { whole(staying, rows.saturating_sub(tally.deleted)) };
        // Rows that are only added take the place of all, too: another host may have added one of them meanwhile.
        let written = self.rewrite(changed, staying.chain(added).boxed()).await?;
        match matches_often {
            true => Ok(rows.saturating_sub(written)),
            false => Ok(changes + written.saturating_sub(rows - tally.deleted)),
        }
    }

    /// What a MERGE is to do to a table of so many rows. An error where several rows of the source are about one of them.
    async fn tally(&self, merge: &Merge, name: &DatasetName, rows: u64, matches_often: bool) -> Result<Tally, Fault> {
        let counts = self.counts(merge.tally()?).await?;
        let [joined, updated, deleted] = counts[..] else { return Err(Fault::bug("a MERGE was not counted")) };
        if joined > rows && !matches_often {
            return Err(matched_twice(name));
        }
        Ok(Tally { joined, updated, deleted })
    }

    async fn truncate(&self, changed: Changed) -> Result<u64, Fault> {
        let deleted = changed.dataset.rows();
        self.rewrite(changed, stream::empty().boxed()).await?;
        Ok(deleted)
    }

    /// Writes all rows of a dataset anew.
    async fn rewrite(&self, changed: Changed, rows: Batches) -> Result<u64, Fault> {
        let Changed { name, dataset, .. } = changed;
        let schema = Arc::clone(&dataset.schema);
        let spec = LoadSpec { mode: LoadMode::Replace, over: Some(dataset), ..LoadSpec::new(name, vec![]) };
        self.load(spec, schema, rows).await
    }

    /// The rows that a predicate does not hold for: it is false, or NULL.
    async fn kept(&self, scan: LogicalPlan, predicate: Expr, changed: &Changed) -> Result<Batches, Fault> {
        let plan = Filter::try_new(Expr::IsNotTrue(Box::new(predicate)), Arc::new(scan)).map_err(fault_from_datafusion)?;
        self.rows(LogicalPlan::Filter(plan), &changed.dataset.schema).await
    }

    async fn count(&self, input: LogicalPlan) -> Result<u64, Fault> {
        let counted = count(Expr::Literal(COUNT_STAR_EXPANSION, None));
        let plan =
            LogicalPlanBuilder::from(input).aggregate(Vec::<Expr>::new(), vec![counted]).and_then(LogicalPlanBuilder::build);
        let counts = self.counts(plan.map_err(fault_from_datafusion)?).await?;
        Ok(counts.into_iter().sum())
    }

    /// The one row of a query whose columns are counts.
    async fn counts(&self, plan: LogicalPlan) -> Result<Vec<u64>, Fault> {
        let schema: SchemaRef = Arc::clone(plan.schema().inner());
        let batches: Vec<RecordBatch> = self.rows(plan, &schema).await?.try_collect().await?;
        let row = batches.iter().find(|batch| batch.num_rows() == 1);
        let columns = row.map_or(&[][..], |row| row.columns()).iter();
        let counts = columns.filter_map(|column| column.as_any().downcast_ref::<Int64Array>());
        Ok(counts.map(|column| column.value(0).max(0) as u64).collect())
    }

    /// The rows of a query, as `schema` has them.
    async fn rows(&self, plan: LogicalPlan, schema: &SchemaRef) -> Result<Batches, Fault> {
        let plan = count_repeats(plan).map_err(fault_from_datafusion)?;
        let prepared = self.query.prepare(plan, Mode::Run).await?;
        let rows = self.query.execute(&prepared).await?;
        let schema = Arc::clone(schema);
        Ok(rows.map(move |batch| batch.map_err(fault_from_datafusion).and_then(|batch| conform(&batch, &schema))).boxed())
    }

    async fn load(&self, spec: LoadSpec, schema: SchemaRef, rows: Batches) -> Result<u64, Fault> {
        Ok(self.query.host.load_batches_until(self.commitment, spec, schema, rows).await?.rows)
    }
}

impl Changed {
    fn of(target: &Arc<dyn datafusion::logical_expr::TableSource>) -> Result<Self, Fault> {
        let provider = source_as_provider(target).map_err(fault_from_datafusion)?;
        if let Some(view) = provider.downcast_ref::<ViewTable>() {
            return Err(is_view(view.name()).of_kind(FaultKind::Other));
        }
        let Some(table) = provider.downcast_ref::<DatasetTable>() else {
            return Err(Fault::new(Blame::User, "only datasets can be changed; this table is made by the host"));
        };
        let found = table.found();
        Ok(Self { name: found.name().clone(), dataset: Arc::clone(found.dataset()), found: Arc::clone(found) })
    }
}

/// The rows, and an error at their end unless they are as many as they have to be. Queries that a statement asks one after
/// the other may disagree about a row, whose sum of floats came out otherwise, and then nothing is written.
fn whole(rows: Batches, expected: u64) -> Batches {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let rows = rows.inspect_ok(move |batch| {
        counted.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
    });
    let end = stream::once(async move { count.load(Ordering::Relaxed) });
    let disagreed = end.filter_map(move |count| {
        let fault = || {
            let message =
                format!("the statement would leave {count} rows, and not {expected}: it chose others when it asked again");
            Fault::new(Blame::Conflict, message).hint(KEYS_FIRST)
        };
        ready((count != expected).then(|| Err(fault())))
    });
    rows.chain(disagreed).boxed()
}

/// The rows of a scan that are wanted.
fn only(scan: LogicalPlan, wanted: &Wanted) -> Result<LogicalPlan, Fault> {
    let filter = Filter::try_new(wanted.predicate.clone(), Arc::new(scan)).map_err(fault_from_datafusion)?;
    Ok(LogicalPlan::Filter(filter))
}

/// The scan of the table that a statement changes, and which of its rows.
fn filtered(input: &LogicalPlan) -> Result<(LogicalPlan, Option<Expr>), Fault> {
    let is_table = |plan: &LogicalPlan| match plan {
        LogicalPlan::TableScan(TableScan { .. }) => true,
        LogicalPlan::SubqueryAlias(alias) => matches!(*alias.input, LogicalPlan::TableScan(_)),
        _ => false,
    };
    match input {
        plan if is_table(plan) => Ok((plan.clone(), None)),
        LogicalPlan::Filter(filter) if is_table(&filter.input) => {
            Ok((LogicalPlan::clone(&filter.input), Some(filter.predicate.clone())))
        }
        _ if joins(input) => Err(unsupported("an UPDATE or DELETE of tables that are joined")
            .hint("UPDATE t SET … FROM other WHERE …, DELETE FROM t USING other WHERE …, or MERGE INTO t USING other ON …")),
        _ => Err(unsupported("a DELETE or UPDATE with LIMIT or ORDER BY")
            .hint("name the rows by a condition, WHERE id IN (SELECT …), or take values from other rows by MERGE INTO")),
    }
}

/// Whether the rows of a plan are those of several tables, beside those of subqueries.
fn joins(plan: &LogicalPlan) -> bool {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Join(_)))).unwrap_or(true)
}

/// A batch under other names, of the same types.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        if column.null_count() > 0 && !field.is_nullable() {
            let fault = Fault::invalid(format!("column {} is NOT NULL, and a row has NULL there", field.name()));
            return Err(fault.of_kind(FaultKind::NotNull));
        }
        columns.push(match column.data_type() == field.data_type() {
            true => Arc::clone(column),
            false => strictly(column, field)?,
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(Fault::bug)
}

/// Values as a column has them. What a parameter brings may have another type than what stands in its place; a value that the column
/// cannot hold is an error.
fn strictly(column: &ArrayRef, field: &Field) -> Result<ArrayRef, Fault> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, field.data_type(), &options).map_err(|error| {
        let kind = if column.data_type().is_numeric() { FaultKind::OutOfRange } else { FaultKind::WrongValue };
        let what =
            format!("a value for column {}, which is of the type {}, is none of it: {error}", field.name(), field.data_type());
        Fault::invalid(what).of_kind(kind)
    })
}

fn unsupported(what: &str) -> Fault {
    Fault::new(Blame::Unsupported, format!("{what} is not a statement that this release runs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rows_that_are_more_or_fewer_than_they_have_to_be_are_not_written() {
        let batch = |rows: usize| {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(Arc::new(arrow::datatypes::Schema::empty()), vec![], &options).unwrap()
        };
        for (expected, is_whole) in [(5, true), (4, false), (6, false)] {
            let rows = whole(stream::iter([Ok(batch(2)), Ok(batch(3))]).boxed(), expected);
            let outcome: Result<Vec<RecordBatch>, Fault> = rows.try_collect().await;
            assert_eq!(outcome.is_ok(), is_whole, "{expected}");
            assert!(outcome.err().is_none_or(|fault| begins_again(&fault, 1) && fault.hint.is_some()));
        }
        let none: Vec<RecordBatch> = whole(stream::empty().boxed(), 0).try_collect().await.unwrap();
        assert!(none.is_empty());
    }
}
