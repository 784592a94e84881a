//! The accumulators of a user's aggregate: of many groups, and of one.

use arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use pithead_program::GroupStates;

use crate::aggregator::{Aggregator, Step};

/// Rows in groups.
#[derive(Debug)]
pub(crate) struct GroupsOf {
    of: Aggregator,
    step: Step,
    states: GroupStates,
}

impl GroupsOf {
    pub(crate) fn new(of: Aggregator, step: Step) -> GroupsOf {
        GroupsOf { of, step, states: GroupStates::default() }
    }

    fn take(&mut self, emit_to: EmitTo) -> ArrayRef {
        self.states.take(match emit_to {
            EmitTo::All => self.states.len(),
            EmitTo::First(groups) => groups,
        })
    }
}

impl GroupsAccumulator for GroupsOf {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.states.resize(total_num_groups);
        self.of.add(self.step, values, group_indices, opt_filter, &mut self.states)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.states.resize(total_num_groups);
        self.of.add(Step::Merge, values, group_indices, None, &mut self.states)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let states = self.take(emit_to);
        self.of.given(self.step, states)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |column| column.len());
        let each: Vec<usize> = (0..rows).collect();
        let mut states = GroupStates::default();
        states.resize(rows);
        self.of.add(self.step, values, &each, opt_filter, &mut states)?;
        Ok(vec![states.take(rows)])
    }

    fn size(&self) -> usize {
        self.states.size()
    }
}

/// All rows as one group.
#[derive(Debug)]
pub(crate) struct One {
    of: Aggregator,
    step: Step,
    states: GroupStates,
}

impl One {
    pub(crate) fn new(of: Aggregator, step: Step) -> One {
        let mut states = GroupStates::default();
        states.resize(1);
        One { of, step, states }
    }

    fn add(&mut self, step: Step, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, |column| column.len());
        self.of.add(step, values, &vec![0; rows], None, &mut self.states)
    }
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(self.step, values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(Step::Merge, states)
    }

    /// Windows ask again after each row.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.of.given(self.step, self.states.all())?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::try_from_array(&self.states.all(), 0)?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.states.size()
    }
}
