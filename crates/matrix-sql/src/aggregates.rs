//! Aggregates over expression matrices. Their results can be combined, so drives compute them in parts.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use pithead_matrix::{CellSums, Gram, merge};

use crate::blobs::{Blobs, malformed};
use crate::combine_groups::CombineGroups;

/// Every aggregate over expression matrices.
pub(crate) fn all() -> Vec<AggregateUDF> {
    [AggregateKind::Combine, AggregateKind::CellSums, AggregateKind::Gram]
        .map(|kind| AggregateUDF::new_from_impl(OfMatrix::new(kind)))
        .into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AggregateKind {
    Combine,
    CellSums,
    Gram,
}

impl AggregateKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            AggregateKind::Combine => crate::COMBINE,
            AggregateKind::CellSums => "cell_sums",
            AggregateKind::Gram => "gram",
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfMatrix {
    kind: AggregateKind,
    signature: Signature,
}

impl OfMatrix {
    fn new(kind: AggregateKind) -> Self {
        Self { kind, signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for OfMatrix {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::BinaryView)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "combined"), DataType::BinaryView, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(match self.kind {
            AggregateKind::Combine => Box::new(Combined::default()),
            AggregateKind::CellSums => {
                Box::new(OfRows { adder: Adder::CellSums(CellSums::default()), combined: Combined::default() })
            }
            AggregateKind::Gram => Box::new(OfRows { adder: Adder::Gram(Box::default()), combined: Combined::default() }),
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.kind == AggregateKind::Combine && !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(CombineGroups::default()))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// Combines `bytes` with the result so far.
pub(crate) fn add(own: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    if own.is_empty() {
        own.extend_from_slice(bytes);
        return Ok(());
    }
    merge(own, bytes).map_err(|error| malformed("combine", error))
}

/// The combined result. Empty if there was nothing to combine.
#[derive(Debug, Default)]
struct Combined(Vec<u8>);

impl Combined {
    fn add_all(&mut self, column: &ArrayRef) -> Result<()> {
        let blobs = Blobs::of(column, "combine")?;
        (0..blobs.len()).filter_map(|row| blobs.get(row)).try_for_each(|bytes| add(&mut self.0, bytes))
    }

    fn value(&self) -> ScalarValue {
        ScalarValue::BinaryView(Some(self.0.clone()).filter(|bytes| !bytes.is_empty()))
    }
}

impl Accumulator for Combined {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add_all(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add_all(&states[0])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value()])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.capacity()
    }
}

#[derive(Debug)]
enum Adder {
    CellSums(CellSums),
    Gram(Box<Gram>),
}

/// Adds up rows, and also the states of other accumulators.
#[derive(Debug)]
struct OfRows {
    adder: Adder,
    combined: Combined,
}

impl OfRows {
    fn name(&self) -> &'static str {
        match self.adder {
            Adder::CellSums(_) => AggregateKind::CellSums.name(),
            Adder::Gram(_) => AggregateKind::Gram.name(),
        }
    }

    fn whole(&self) -> Result<ScalarValue> {
        let mut own = Vec::new();
        match &self.adder {
            Adder::CellSums(sums) => sums.totals().into_iter().for_each(|totals| totals.encode(&mut own)),
            Adder::Gram(gram) => gram.result().into_iter().for_each(|result| result.encode(&mut own)),
        }
        if !own.is_empty() && !self.combined.0.is_empty() {
            merge(&mut own, &self.combined.0).map_err(|error| malformed(self.name(), error))?;
        }
        Ok(if own.is_empty() { self.combined.value() } else { ScalarValue::BinaryView(Some(own)) })
    }
}

impl Accumulator for OfRows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let name = self.name();
        let rows = Blobs::of(&values[0], name)?;
        for bytes in (0..rows.len()).filter_map(|row| rows.get(row)) {
            let added = match &mut self.adder {
                Adder::CellSums(sums) => sums.row(bytes),
                Adder::Gram(gram) => gram.part(bytes),
            };
            added.map_err(|error| malformed(name, error))?;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.combined.add_all(&states[0])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.whole()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.whole()?])
    }

    fn size(&self) -> usize {
        let own = match &self.adder {
            Adder::CellSums(sums) => sums.size(),
            Adder::Gram(gram) => gram.size(),
        };
        size_of_val(self) + own + self.combined.0.capacity()
    }
}
