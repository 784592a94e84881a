//! [`FunctionCall`]: a function over the rows of a batch.

use std::time::Duration;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::compute::concat;
use arrow::datatypes::DataType;

use super::frame::{Frame, text_bytes};
use super::module::{Exported, FunctionModule};
use super::run::{GuestMemory, run};
use super::{CALL_ROWS_MAX, CALL_TEXT_BYTES_MAX, CALL_TIME, EXPORT_PREFIX, ROW_TIME, udf};

/// A function of a module, as SQL calls it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCall<'a> {
    /// The module.
    pub module: &'a FunctionModule,
    /// The function's name there.
    pub export: &'a str,
    /// What it gives: Boolean, Int32, Int64, Float64 or Utf8View, as its arguments are; or lists of these, where it gives any number
    /// for each row.
    pub returns: &'a DataType,
    /// Whether it is called where an argument is NULL. Otherwise NULL is its result there.
    pub called_on_null: bool,
}

/// Makes what counts the memory of one instance.
pub type MemoryOf<'a> = &'a dyn Fn() -> Box<dyn GuestMemory>;

impl FunctionCall<'_> {
    /// The results for so many rows of arguments. The error is a sentence without the function's name.
    pub fn rows(&self, arguments: &[ArrayRef], rows: usize, memory: MemoryOf<'_>) -> Result<ArrayRef, String> {
        if rows == 0 {
            return Ok(new_empty_array(self.returns));
        }
        match at_once(arguments, rows) {
            all if rows <= all => self.call(arguments, rows, memory),
            _ => self.parts(arguments, rows, memory, &mut *memory()),
        }
    }

    /// The results of several calls. Each of them counts in `held` as soon as it is there.
    fn parts(
        &self,
        arguments: &[ArrayRef],
        rows: usize,
        memory: MemoryOf<'_>,
        held: &mut dyn GuestMemory,
    ) -> Result<ArrayRef, String> {
        let at_once = at_once(arguments, rows);
        if rows <= at_once {
            let part = self.call(arguments, rows, memory)?;
            held.grow(part.get_array_memory_size())?;
            return Ok(part);
        }
        let mut parts = Vec::with_capacity(rows.div_ceil(at_once));
        for first in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - first);
            let slice: Vec<ArrayRef> = arguments.iter().map(|array| array.slice(first, count)).collect();
            parts.push(self.parts(&slice, count, memory, held)?);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        concat(&parts).map_err(|error| error.to_string())
    }

    /// Calls it with no row, so that a function that takes other types can say so.
    pub fn check(&self, arguments: &[DataType], memory: MemoryOf<'_>) -> Result<(), String> {
        let arguments: Vec<ArrayRef> = arguments.iter().map(new_empty_array).collect();
        self.call(&arguments, 0, memory).map(drop)
    }

    fn call(&self, arguments: &[ArrayRef], rows: usize, memory: MemoryOf<'_>) -> Result<ArrayRef, String> {
        let functions = match self.module.exported() {
            Exported::ArrowUdf(signatures) => return udf::call(self, signatures, arguments, rows, memory),
            Exported::Own { functions, .. } => functions,
        };
        if !functions.iter().any(|function| function == self.export) {
            let aggregates = self.module.aggregates().iter();
            let all: Vec<&str> = functions.iter().chain(aggregates).map(String::as_str).collect();
            return Err(format!("its module has no function {}; it has {}", self.export, all.join(", ")));
        }
        if matches!(self.returns, DataType::List(_)) {
            return Err(
                "RETURNS SETOF is for functions of the crate arrow-udf; those of pithead_ssdlet give one value".to_owned()
            );
        }
        let frame = Frame::new(arguments, rows, self.returns, !self.called_on_null)?;
        let export = format!("{EXPORT_PREFIX}{}", self.export);
        run(self.module, memory(), time_of(rows), |running| running.call_on(&export, &frame))
    }
}

/// How many of the rows the next calls take, each.
fn at_once(arguments: &[ArrayRef], rows: usize) -> usize {
    let texts: usize = arguments.iter().map(text_bytes).sum();
    if texts > CALL_TEXT_BYTES_MAX { (rows / 2).clamp(1, CALL_ROWS_MAX) } else { CALL_ROWS_MAX }
}

/// What a call over so many rows may take.
pub(super) fn time_of(rows: usize) -> Duration {
    CALL_TIME + ROW_TIME * rows as u32
}
