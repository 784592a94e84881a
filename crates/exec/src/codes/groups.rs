//! [`Groups`]: rows in groups that have codes, with the engine's accumulators.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use futures::{Stream, StreamExt, stream};

use super::combinations::Codes;
use super::numbers::Numbers;

/// A function, and which rows it is of.
#[derive(Clone, Debug)]
pub(super) struct Aggregate {
    pub(super) function: Arc<AggregateFunctionExpr>,
    pub(super) filter: Option<Arc<dyn PhysicalExpr>>,
}

/// A batch in pieces of so many rows.
pub(super) fn pieces(all: &RecordBatch, rows: usize) -> impl Stream<Item = Result<RecordBatch>> + Send + use<> {
    let starts = (0..all.num_rows()).step_by(rows.max(1));
    let pieces: Vec<RecordBatch> = starts.map(|at| all.slice(at, rows.min(all.num_rows() - at))).collect();
    stream::iter(pieces.into_iter().map(Ok))
}

/// Codes of the keys of a row.
enum Coded {
    Combinations(Box<Codes>),
    Numbers(Numbers),
}

impl Coded {
    fn new(types: &[DataType]) -> Self {
        match types {
            [DataType::Utf8View] | [_, _, ..] | [] => Coded::Combinations(Box::new(Codes::new(types.to_vec()))),
            [number] => Coded::Numbers(Numbers::new(number.clone())),
        }
    }

    fn of(&mut self, columns: &[ArrayRef], codes: &mut Vec<usize>) -> Result<()> {
        match (self, columns) {
            (Coded::Combinations(known), columns) => known.of(columns, codes),
            (Coded::Numbers(known), [column]) => known.of(column, codes),
            (Coded::Numbers(_), columns) => internal_err!("{} keys are not one number", columns.len()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Coded::Combinations(known) => known.len(),
            Coded::Numbers(known) => known.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Coded::Combinations(known) => known.bytes(),
            Coded::Numbers(known) => known.bytes(),
        }
    }

    /// The keys of each group.
    fn into_values(self) -> Result<Vec<ArrayRef>> {
        match self {
            Coded::Combinations(known) => known.values(),
            Coded::Numbers(known) => Ok(vec![known.into_values()?]),
        }
    }
}

/// The groups so far.
pub(super) struct Groups {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    types: Vec<DataType>,
    codes: Coded,
    /// The group of each row of a batch.
    rows: Vec<usize>,
    sums: Vec<(Aggregate, Box<dyn GroupsAccumulator>)>,
    reservation: MemoryReservation,
}

impl Groups {
    /// By keys that are the first columns of this schema.
    pub(super) fn new(
        schema: &SchemaRef,
        keys: &[Arc<dyn PhysicalExpr>],
        aggregates: &[Aggregate],
        reservation: MemoryReservation,
    ) -> Result<Self> {
        let types: Vec<DataType> = schema.fields().iter().take(keys.len()).map(|field| field.data_type().clone()).collect();
        let accumulator = |aggregate: &Aggregate| Ok((aggregate.clone(), aggregate.function.create_groups_accumulator()?));
        Ok(Self {
            keys: keys.to_vec(),
            codes: Coded::new(&types),
            types,
            rows: Vec::new(),
            sums: aggregates.iter().map(accumulator).collect::<Result<_>>()?,
            reservation,
        })
    }

    /// Adds a batch's rows.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let keys = self.keys.iter().map(|key| values(key, batch)).collect::<Result<Vec<_>>>()?;
        self.codes.of(&keys, &mut self.rows)?;
        let count = self.codes.len();
        for (aggregate, accumulator) in &mut self.sums {
            let arguments = aggregate.function.expressions();
            let arguments = arguments.iter().map(|argument| values(argument, batch)).collect::<Result<Vec<_>>>()?;
            let filter = aggregate.filter.as_ref().map(|filter| values(filter, batch)).transpose()?;
            let filter: Option<&BooleanArray> = filter.as_ref().map(|filter| filter.as_boolean());
            accumulator.update_batch(&arguments, &self.rows, filter, count)?;
        }
        Ok(())
    }

    /// Reserves what they take. Whether there are some, and they take more than there is.
    pub(super) fn are_too_many(&mut self) -> Result<bool> {
        if self.codes.len() == 0 {
            return Ok(false);
        }
        let sums: usize = self.sums.iter().map(|(_, accumulator)| accumulator.size()).sum();
        match self.reservation.try_resize(sums + self.codes.bytes()) {
            Err(error) if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) => Ok(true),
            Err(error) => Err(error),
            Ok(()) => Ok(false),
        }
    }

    /// What there is of each group, for a merge; and nothing stays. None: there is no group.
    pub(super) fn take_states(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        if self.codes.len() == 0 {
            return Ok(None);
        }
        let mut columns = std::mem::replace(&mut self.codes, Coded::new(&self.types)).into_values()?;
        for (_, accumulator) in &mut self.sums {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        self.reservation.free();
        Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns)?))
    }

    /// All groups, in pieces of so many rows, for which memory stays reserved until the last one is read.
    pub(super) fn finish(
        mut self,
        schema: &SchemaRef,
        batch_rows: usize,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<>> {
        let mut columns = Vec::new();
        if self.codes.len() > 0 {
            columns = self.codes.into_values()?;
            for (_, accumulator) in &mut self.sums {
                columns.push(accumulator.evaluate(EmitTo::All)?);
            }
        }
        let all = match columns.is_empty() {
            true => RecordBatch::new_empty(Arc::clone(schema)),
            false => RecordBatch::try_new(Arc::clone(schema), columns)?,
        };
        let reservation = self.reservation;
        // It is there already, be it more than there should be.
        reservation.resize(all.get_array_memory_size());
        Ok(pieces(&all, batch_rows).map(move |piece| {
            let _until_the_last = &reservation;
            piece
        }))
    }
}

fn values(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}
