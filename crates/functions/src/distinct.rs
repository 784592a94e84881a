//! [`OfDistinct`]: an aggregate of numbers that takes each of them once.

use std::mem::size_of_val;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use crate::in_steps::Kept;
use crate::value_counts::Counts;

/// Keeps the values, of all that are equal one, and gives them to the aggregate when they are complete.
#[derive(Debug)]
pub(crate) struct OfDistinct<A> {
    values: Counts,
    /// The aggregate of no values.
    of_none: A,
}

impl<A: Accumulator + Clone> OfDistinct<A> {
    pub(crate) fn new(values: &DataType, of_none: A) -> Result<Self> {
        Ok(Self { values: Counts::new(values, true)?, of_none })
    }
}

impl<A: Accumulator + Clone> Accumulator for OfDistinct<A> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut of_all = self.of_none.clone();
        of_all.update_batch(&[self.values.values()?])?;
        of_all.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.size()
    }
}
