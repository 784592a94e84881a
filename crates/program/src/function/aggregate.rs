//! [`AggregateCall`]: an aggregate over rows in groups. The states between calls are bytes, which are kept here: a guest sees the states
//! of the groups that its rows are of, and gives others in their place.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder};
use arrow::datatypes::DataType;

use super::batch::{MemoryOf, time_of};
use super::frame::{Frame, Groups, text_bytes};
use super::module::FunctionModule;
use super::run::{GuestMemory, run};
use super::{ACCUMULATE_PREFIX, CALL_ROWS_MAX, CALL_TEXT_BYTES_MAX, COMBINE_PREFIX, FINISH_PREFIX};
use crate::budget::size;

/// The most bytes of a group's state.
pub const STATE_BYTES_MAX: usize = 1 << 20;

/// The most bytes by which states grow over one batch: the engine counts them against its session's memory only after it.
pub const GROWTH_BYTES_MAX: usize = 256 << 20;

/// An aggregate of a module, as SQL calls it.
#[derive(Clone, Copy, Debug)]
pub struct AggregateCall<'a> {
    /// The module.
    pub module: &'a FunctionModule,
    /// The aggregate's name there.
    pub export: &'a str,
    /// What it gives: Boolean, Int32, Int64, Float64 or Utf8View, as its arguments are.
    pub returns: &'a DataType,
}

/// The state of each group; none: the group has had no row.
#[derive(Debug, Default)]
pub struct GroupStates {
    states: Vec<Option<Box<[u8]>>>,
    bytes: usize,
    /// Their bytes before the batch that is being added.
    counted: usize,
    /// For each group its number in the call that is being made.
    numbers: Vec<u32>,
}

/// The groups of a call: for each row the number of its group in the call, and for each number the group.
struct Touched {
    of_rows: Vec<u32>,
    groups: Vec<usize>,
}

/// A group that is not in the call that is being made.
const ABSENT: u32 = u32::MAX;

impl AggregateCall<'_> {
    /// Adds rows to the states of their groups. The error is a sentence without the aggregate's name.
    pub fn accumulate(
        &self,
        rows: &[ArrayRef],
        group_of: &[usize],
        states: &mut GroupStates,
        memory: MemoryOf<'_>,
    ) -> Result<(), String> {
        states.counted = states.bytes;
        self.add(ACCUMULATE_PREFIX, rows, group_of, states, memory)
    }

    /// Adds states to the states of their groups.
    pub fn combine(
        &self,
        others: &ArrayRef,
        group_of: &[usize],
        states: &mut GroupStates,
        memory: MemoryOf<'_>,
    ) -> Result<(), String> {
        states.counted = states.bytes;
        self.add(COMBINE_PREFIX, std::slice::from_ref(others), group_of, states, memory)
    }

    /// The results of states; that of NULL is the result of no row. The results of each call count in `held` as soon as they are
    /// there.
    pub fn finish(&self, states: &ArrayRef, memory: MemoryOf<'_>, held: &mut dyn GuestMemory) -> Result<ArrayRef, String> {
        self.check_name()?;
        let count = states.len();
        if count > 1 && (count > CALL_ROWS_MAX || text_bytes(states) > CALL_TEXT_BYTES_MAX) {
            let halves = [states.slice(0, count / 2), states.slice(count / 2, count - count / 2)];
            let first = self.finish(&halves[0], memory, held)?;
            let second = self.finish(&halves[1], memory, held)?;
            return arrow::compute::concat(&[first.as_ref(), second.as_ref()]).map_err(|error| error.to_string());
        }
        let states = std::slice::from_ref(states);
        let frame = Frame::new(states, count, self.returns, false)?;
        let export = format!("{FINISH_PREFIX}{}", self.export);
        let results = run(self.module, memory(), time_of(count), |running| running.call_on(&export, &frame))?;
        held.grow(results.get_array_memory_size())?;
        Ok(results)
    }

    /// Calls each part with no row, so that an aggregate that takes other types can say so, and finishes no row.
    pub fn check(&self, arguments: &[DataType], memory: MemoryOf<'_>) -> Result<(), String> {
        let arguments: Vec<ArrayRef> = arguments.iter().map(arrow::array::new_empty_array).collect();
        let none = GroupStates::default().take(0);
        for (prefix, columns) in [(ACCUMULATE_PREFIX, arguments.as_slice()), (COMBINE_PREFIX, std::slice::from_ref(&none))] {
            self.call(prefix, columns, &[], &none, memory)?;
        }
        let one = GroupStates { states: vec![None], ..GroupStates::default() }.take(1);
        self.finish(&one, memory, &mut *memory()).map(drop)
    }

    fn add(
        &self,
        prefix: &str,
        columns: &[ArrayRef],
        group_of: &[usize],
        states: &mut GroupStates,
        memory: MemoryOf<'_>,
    ) -> Result<(), String> {
        let rows = group_of.len();
        if rows == 0 {
            return Ok(());
        }
        let touched = if rows <= CALL_ROWS_MAX { Some(states.touch(group_of)) } else { None };
        let fits = |touched: &Touched| {
            let own: usize = columns.iter().map(text_bytes).sum();
            rows == 1 || own + states.bytes_of(&touched.groups) <= CALL_TEXT_BYTES_MAX
        };
        if let Some(touched) = touched.filter(fits) {
            let before = states.array(&touched.groups);
            let after = self.call(prefix, columns, &touched.of_rows, &before, memory)?;
            return states.put(&touched.groups, &after);
        }
        let half = rows / 2;
        for (from, count) in [(0, half), (half, rows - half)] {
            let part: Vec<ArrayRef> = columns.iter().map(|column| column.slice(from, count)).collect();
            self.add(prefix, &part, &group_of[from..from + count], states, memory)?;
        }
        Ok(())
    }

    fn call(
        &self,
        prefix: &str,
        columns: &[ArrayRef],
        of_rows: &[u32],
        states: &ArrayRef,
        memory: MemoryOf<'_>,
    ) -> Result<ArrayRef, String> {
        self.check_name()?;
        let frame = Frame::grouped(columns, Groups { of_rows, states })?;
        let export = format!("{prefix}{}", self.export);
        run(self.module, memory(), time_of(of_rows.len() + states.len()), |running| running.call_on(&export, &frame))
    }

    fn check_name(&self) -> Result<(), String> {
        let aggregates = self.module.aggregates();
        match aggregates.iter().any(|aggregate| aggregate == self.export) {
            true => Ok(()),
            false => Err(format!("its module has no aggregate {}; it has {}", self.export, aggregates.join(", "))),
        }
    }
}

impl GroupStates {
    /// Makes room for so many groups.
    pub fn resize(&mut self, groups: usize) {
        self.states.resize(groups.max(self.states.len()), None);
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// The states of all groups, which stay.
    pub fn all(&self) -> ArrayRef {
        self.array(&(0..self.states.len()).collect::<Vec<_>>())
    }

    /// The states of the first groups, which go, each as soon as it was taken: memory has them once. Those behind take their places.
    pub fn take(&mut self, groups: usize) -> ArrayRef {
        let mut builder = BinaryViewBuilder::with_capacity(groups);
        for state in self.states.drain(..groups) {
            self.bytes -= state.as_ref().map_or(0, |state| state.len());
            builder.append_option(state);
        }
        Arc::new(builder.finish())
    }

    /// The bytes that it uses besides its own struct.
    pub fn size(&self) -> usize {
        self.bytes + self.states.capacity() * size_of::<Option<Box<[u8]>>>() + self.numbers.capacity() * size_of::<u32>()
    }

    /// Numbers the groups of rows in the order in which they come.
    fn touch(&mut self, group_of: &[usize]) -> Touched {
        self.numbers.resize(self.states.len().max(self.numbers.len()), ABSENT);
        let mut groups = Vec::new();
        let mut of_rows = Vec::with_capacity(group_of.len());
        for group in group_of {
            let number = &mut self.numbers[*group];
            if *number == ABSENT {
                *number = groups.len() as u32;
                groups.push(*group);
            }
            of_rows.push(*number);
        }
        groups.iter().for_each(|group| self.numbers[*group] = ABSENT);
        Touched { of_rows, groups }
    }

    fn bytes_of(&self, groups: &[usize]) -> usize {
        groups.iter().filter_map(|group| self.states[*group].as_ref()).map(|state| state.len()).sum()
    }

    fn array(&self, groups: &[usize]) -> ArrayRef {
        let mut builder = BinaryViewBuilder::with_capacity(groups.len());
        groups.iter().for_each(|group| builder.append_option(self.states[*group].as_ref()));
        Arc::new(builder.finish())
    }

    /// Puts states that a guest has given in the place of those of these groups.
    fn put(&mut self, groups: &[usize], states: &ArrayRef) -> Result<(), String> {
        for (group, state) in groups.iter().zip(states.as_binary_view()) {
            let bytes = state.map_or(0, <[u8]>::len);
            if bytes > STATE_BYTES_MAX {
                return Err(format!(
                    "its state of a group has {bytes} bytes; at most {STATE_BYTES_MAX} are allowed. hint: keep a summary of the rows, \
                     not the rows"
                ));
            }
            self.bytes += bytes;
            let before = std::mem::replace(&mut self.states[*group], state.map(Box::from));
            self.bytes -= before.map_or(0, |before| before.len());
            if self.bytes > self.counted + GROWTH_BYTES_MAX {
                return Err(format!(
                    "its states grew by more than {} over one batch of rows. hint: keep smaller summaries",
                    size(GROWTH_BYTES_MAX as u64)
                ));
            }
        }
        Ok(())
    }
}
