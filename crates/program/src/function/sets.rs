//! [`Sets`]: the results of a table function of the crate `arrow-udf`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::concat;
use arrow::datatypes::{FieldRef, Int32Type};
use arrow::record_batch::RecordBatch;

use super::run::{GuestMemory, Running};
use super::udf::{bytes_at, one_batch, refuse_errors, told, typed};
use crate::budget::fault;

/// The export that writes where the next batch of an iterator is, and how long; no bytes: there is none any more.
pub(super) const NEXT_BATCH: &str = "record_batch_iterator_next";
/// The export that takes such a batch back.
pub(super) const FREE: &str = "dealloc";

/// A list of results for each row, as they come.
pub(super) struct Sets<'a> {
    item: &'a FieldRef,
    /// How many results each row has.
    lengths: Vec<usize>,
    /// The row that the last result is of.
    last: usize,
    parts: Vec<ArrayRef>,
    /// What has come counts before the call has ended.
    memory: Box<dyn GuestMemory>,
}

impl<'a> Sets<'a> {
    pub fn new(item: &'a FieldRef, rows: usize, memory: Box<dyn GuestMemory>) -> Self {
        Self { item, lengths: vec![0; rows], last: 0, parts: Vec::new(), memory }
    }

    /// All results that an iterator at `iterator` gives. It says at `place` where each batch is.
    pub fn of_iterator(mut self, running: &mut Running, iterator: usize, place: u32) -> wasmtime::Result<ArrayRef> {
        let iterator = u32::try_from(iterator)?;
        loop {
            running.call::<(u32, u32), ()>(NEXT_BATCH, (iterator, place))?;
            let (start, length) = told(running, place)?;
            if length == 0 {
                return self.lists().map_err(fault);
            }
            self.add(bytes_at(running, start, length)?).map_err(fault)?;
            running.call::<(u32, u32, u32), ()>(FREE, (u32::try_from(start)?, u32::try_from(length)?, 1))?;
        }
    }

    /// Adds a batch, all of which was written by the guest.
    fn add(&mut self, answer: &[u8]) -> Result<(), String> {
        let batch = one_batch(answer)?;
        refuse_errors(&batch, 2)?;
        let [rows, results, ..] = batch.columns() else {
            return Err(format!("its answer has {} columns; rows and results were expected", batch.num_columns()));
        };
        self.count(rows, &batch)?;
        let results = typed(results, self.item.data_type())?;
        self.memory.grow(results.get_array_memory_size())?;
        self.parts.push(results);
        Ok(())
    }

    /// Counts the results of each row, which come in the order of the rows.
    fn count(&mut self, rows: &ArrayRef, batch: &RecordBatch) -> Result<(), String> {
        let wrong = || format!("its answer says of which row a result is by {}; int32 was expected", rows.data_type());
        let rows = rows.as_primitive_opt::<Int32Type>().filter(|rows| rows.null_count() == 0).ok_or_else(wrong)?;
        debug_assert_eq!(rows.len(), batch.num_rows());
        for row in rows.values() {
            let count = self.lengths.len();
            let row = usize::try_from(*row).ok().filter(|row| *row >= self.last && *row < count);
            let row = row.ok_or_else(|| format!("its results are not in the order of the {count} rows that it was given"))?;
            self.lengths[row] += 1;
            self.last = row;
        }
        Ok(())
    }

    fn lists(self) -> Result<ArrayRef, String> {
        let total: usize = self.lengths.iter().sum();
        if i32::try_from(total).is_err() {
            return Err(format!("it gave {total} results for {} rows; at most {} are allowed", self.lengths.len(), i32::MAX));
        }
        let parts: Vec<&dyn Array> = self.parts.iter().map(AsRef::as_ref).collect();
        let results = match parts.is_empty() {
            true => new_empty_array(self.item.data_type()),
            false => concat(&parts).map_err(|error| error.to_string())?,
        };
        let lists = ListArray::try_new(Arc::clone(self.item), OffsetBuffer::from_lengths(self.lengths), results, None);
        Ok(Arc::new(lists.map_err(|error| error.to_string())?))
    }
}
