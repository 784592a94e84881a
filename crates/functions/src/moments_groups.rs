//! Moments of many groups.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use crate::moments::{Arguments, Moment, MomentRows, Moments};

/// One set of moments for each group.
pub(crate) struct MomentsGroups {
    moment: Moment,
    arguments: Arguments,
    groups: Vec<Moments>,
}

impl MomentsGroups {
    pub(crate) fn of_parts(moment: Moment) -> Self {
        Self { moment, arguments: Arguments::Parts, groups: Vec::new() }
    }

    pub(crate) fn of_values(moment: Moment) -> Self {
        Self { moment, arguments: Arguments::Values, groups: Vec::new() }
    }

    fn add(&mut self, rows: &MomentRows, group_indices: &[usize], filter: Option<&BooleanArray>, groups: usize) {
        self.groups.resize(groups, Moments::default());
        for (row, group) in group_indices.iter().enumerate() {
            if filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                let moments = &mut self.groups[*group];
                *moments = rows.add_to(*moments, row);
            }
        }
    }
}

impl GroupsAccumulator for MomentsGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.add(&self.arguments.rows(values), group_indices, filter, total_num_groups);
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.add(&MomentRows::states(values), group_indices, None, total_num_groups);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        Ok(Arc::new(Float64Array::from_iter(groups.into_iter().map(|moments| moments.result(self.moment)))))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(state(self.moment, &emit_to.take_needed(&mut self.groups)))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = self.arguments.rows(values);
        let kept = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let moments = |row| if kept(row) { rows.add_to(Moments::default(), row) } else { Moments::default() };
        Ok(state(self.moment, &(0..rows.len()).map(moments).collect::<Vec<_>>()))
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Moments>()
    }
}

fn state(moment: Moment, groups: &[Moments]) -> Vec<ArrayRef> {
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(groups.iter().map(|moments| moments.count))),
        Arc::new(Float64Array::from_iter_values(groups.iter().map(|moments| moments.mean))),
        Arc::new(Float64Array::from_iter_values(groups.iter().map(|moments| moments.squares))),
    ];
    columns.truncate(moment.state_columns());
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::tests::{brute, near, rows};
    use arrow::array::AsArray;
    use arrow::datatypes::Float64Type;

    #[test]
    fn groups_merge_apart_and_through_states() {
        let parts = [vec![1.0, 2.0, 4.0], vec![], vec![-7.5], vec![8.0, 8.5], vec![3.0]];
        let (indices, kept) = ([0, 1, 0, 2, 0], [Some(true), Some(true), Some(true), None, Some(true)]);
        let filter = BooleanArray::from_iter(kept);
        for moment in [Moment::Mean, Moment::VarPop] {
            let arguments = &rows(&parts)[..moment.state_columns()];
            let mut groups = MomentsGroups::of_parts(moment);
            groups.update_batch(arguments, &indices, Some(&filter), 3).unwrap();
            let state = groups.convert_to_state(arguments, Some(&filter)).unwrap();
            groups.merge_batch(&state, &indices, 3).unwrap();

            let once = [1.0, 2.0, 4.0, -7.5, 3.0];
            let twice: Vec<f64> = once.iter().chain(&once).copied().collect();
            let (mean, variance) = brute(&twice).unwrap();
            let results = groups.evaluate(EmitTo::All).unwrap();
            let results: Vec<Option<f64>> = results.as_primitive::<Float64Type>().iter().collect();
            assert!(near(results[0], Some(if moment == Moment::Mean { mean } else { variance })));
            assert_eq!(results[1..], [None, None]);
        }
    }
}
