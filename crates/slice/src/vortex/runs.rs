//! [`Runs`]: a part of a column whose values repeat, as runs of equal values. A condition is judged once for each run, and a page is
//! found by one search among the ends of runs.
//!
//! Vortex searches among the ends as they are stored, a decoded value at each step, and decodes all rows of a page for a condition
//! that it does not know.

use std::ops::Range;

use ::vortex::array::arrays::PrimitiveArray;
use ::vortex::array::{ArrayRef, ExecutionCtx, IntoArray, match_each_unsigned_integer_ptype};
use ::vortex::encodings::runend::{RunEnd, RunEndArrayExt, RunEndArraySlotsExt};
use ::vortex::error::{VortexResult, vortex_ensure};
use ::vortex::mask::{AllOr, Mask};

/// The runs of a part.
pub(super) struct Runs {
    /// Where each run ends, and the next one starts, counted from `offset` rows before the part.
    ends: PrimitiveArray,
    /// The value of each run, not decoded.
    values: ArrayRef,
    offset: usize,
}

impl Runs {
    /// Those of a part; none where it is not stored as runs.
    pub(super) fn of(whole: &ArrayRef, context: &mut ExecutionCtx) -> VortexResult<Option<Self>> {
        let Some(stored) = whole.as_opt::<RunEnd>() else { return Ok(None) };
        let (values, offset) = (stored.values().clone(), stored.offset());
        let ends = stored.ends().clone().execute::<PrimitiveArray>(context)?;
        let (ascend, last) = match_each_unsigned_integer_ptype!(ends.ptype(), |T| {
            let ends = ends.as_slice::<T>();
            (ends.is_sorted_by(|one, next| one < next), ends.last().map_or(0, |last| *last as usize))
        });
        vortex_ensure!(
            ascend && ends.len() == values.len() && last >= offset.saturating_add(whole.len()),
            "the runs of a column do not ascend to its end"
        );
        Ok(Some(Self { ends, values, offset }))
    }

    /// Some of the part's rows, not decoded.
    pub(super) fn rows(&self, rows: Range<usize>, context: &mut ExecutionCtx) -> VortexResult<ArrayRef> {
        let runs = self.runs_of(&rows);
        let (ends, values) = (self.ends.clone().into_array().slice(runs.clone())?, self.values.slice(runs)?);
        let offset = if rows.is_empty() { 0 } else { self.offset + rows.start };
        Ok(RunEnd::try_new_offset_length(ends, values, offset, rows.len(), context)?.into_array())
    }

    /// The rows of `mask`, which selects among `rows`, in those runs whose values `judge` selects.
    pub(super) fn select(
        &self,
        rows: Range<usize>,
        mask: &Mask,
        judge: impl FnOnce(ArrayRef) -> VortexResult<Mask>,
    ) -> VortexResult<Mask> {
        let runs = self.runs_of(&rows);
        let verdicts = judge(self.values.slice(runs.clone())?)?;
        let stretches = match verdicts.slices() {
            AllOr::All => return Ok(mask.clone()),
            AllOr::None => return Ok(Mask::new_false(rows.len())),
            AllOr::Some(stretches) => stretches,
        };
        let found = match_each_unsigned_integer_ptype!(self.ends.ptype(), |T| {
            let ends = &self.ends.as_slice::<T>()[runs];
            let start_of = |run: usize| match run {
                0 => 0,
                run => (ends[run - 1] as usize - self.offset - rows.start).min(rows.len()),
            };
            stretches.iter().map(|(first, end)| (start_of(*first), start_of(*end))).collect()
        });
        Ok(mask & &Mask::from_slices(rows.len(), found))
    }

    /// The runs that rows are in.
    fn runs_of(&self, rows: &Range<usize>) -> Range<usize> {
        if rows.is_empty() {
            return 0..0;
        }
        let (start, end) = (self.offset + rows.start, self.offset + rows.end);
        match_each_unsigned_integer_ptype!(self.ends.ptype(), |T| {
            let ends = self.ends.as_slice::<T>();
            let first = ends.partition_point(|run| *run as usize <= start);
            first..first + ends[first..].partition_point(|run| (*run as usize) < end) + 1
        })
    }
}

#[cfg(test)]
mod tests {
    use ::vortex::array::VortexSessionExecute;
    use ::vortex::buffer::BitBuffer;
    use proptest::prelude::*;

    use super::super::SESSION;
    use super::*;

    proptest! {
        /// Runs of any lengths, cut anywhere, selected from with any mask.
        #[test]
        fn rows_and_verdicts_are_those_of_the_values_one_by_one(
            lengths in prop::collection::vec(1usize..9, 1..40),
            cut in (0.0..1.0_f64, 0.0..1.0_f64),
            offset in 0usize..3,
            seed in any::<u64>(),
        ) {
            let mut context = SESSION.create_execution_ctx();
            let values: Vec<i64> = (0..lengths.len() as i64).map(|run| run * 7 % 5).collect();
            let plain: Vec<i64> = values.iter().zip(&lengths).flat_map(|(value, rows)| vec![*value; *rows]).collect();
            let ends = lengths.iter().scan(0u32, |end, rows| { *end += *rows as u32; Some(*end) });
            let offset = offset.min(lengths[0] - 1);
            let [ends, runs] = [PrimitiveArray::from_iter(ends).into_array(), PrimitiveArray::from_iter(values).into_array()];
            let plain = &plain[offset..];
            let whole = RunEnd::try_new_offset_length(ends, runs, offset, plain.len(), &mut context).unwrap().into_array();
            let runs = Runs::of(&whole, &mut context).unwrap().unwrap();

            let place = |share: f64| (share * (plain.len() + 1) as f64) as usize;
            let rows = place(cut.0.min(cut.1))..place(cut.0.max(cut.1));
            let there = runs.rows(rows.clone(), &mut context).unwrap().execute::<PrimitiveArray>(&mut context).unwrap();
            prop_assert_eq!(there.as_slice::<i64>(), &plain[rows.clone()]);

            let chosen = |row: usize| seed.rotate_left(row as u32) & 1 == 1;
            let mask = Mask::from_buffer(BitBuffer::collect_bool(rows.len(), chosen));
            let judge = |values: ArrayRef| {
                let values = values.execute::<PrimitiveArray>(&mut SESSION.create_execution_ctx())?;
                let values = values.as_slice::<i64>();
                Ok(Mask::from_buffer(BitBuffer::collect_bool(values.len(), |run| values[run] % 2 == 1)))
            };
            let found = runs.select(rows.clone(), &mask, judge).unwrap();
            for (row, value) in plain[rows].iter().enumerate() {
                prop_assert_eq!(found.value(row), chosen(row) && value % 2 == 1, "row {}", row);
            }
        }
    }

    #[test]
    fn runs_that_do_not_ascend_are_refused() {
        let mut context = SESSION.create_execution_ctx();
        let [ends, values] = [PrimitiveArray::from_iter([5u32, 3, 8]), PrimitiveArray::from_iter([1i64, 2, 3])];

        // As in a file, whose ends nothing has checked yet.
        let whole =
            RunEnd::try_new_offset_length(ends.into_array(), values.into_array(), 0, 8, &mut context).unwrap().into_array();
        assert!(Runs::of(&whole, &mut context).is_err());
    }
}
