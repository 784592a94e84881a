//! Prevents panics of libraries that read bytes from outside from taking a drive down.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::datatypes::{Schema, SchemaRef};

use crate::{ScanRequest, SliceError};

/// Runs a decoder, and turns its panics into errors. Bytes with a correct checksum can still have been written to do
/// harm, and decoders assert where they should check.
pub(crate) fn guarded<T>(decode: impl FnOnce() -> Result<T, SliceError>) -> Result<T, SliceError> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

/// The error for a decoder's panic.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> SliceError {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    SliceError::Corrupt(format!("its decoder gave up: {}", text.unwrap_or("no reason was given")))
}

/// Checks that the columns of a request are columns of the dataset.
pub(crate) fn check_columns(schema: &SchemaRef, request: &ScanRequest) -> Result<(), SliceError> {
    let columns = schema.fields().len();
    match request.columns.iter().find(|column| **column >= columns) {
        Some(column) => Err(SliceError::Schema(format!("there is no column {column} among {columns}"))),
        None => Ok(()),
    }
}

/// Checks that what is stored has the dataset's columns.
pub(crate) fn check_same(expected: &Schema, stored: &Schema) -> Result<(), SliceError> {
    let same = expected.fields().len() == stored.fields().len()
        && expected
            .fields()
            .iter()
            .zip(stored.fields())
            .all(|(a, b)| a.name() == b.name() && a.data_type().equals_datatype(b.data_type()));
    match same {
        true => Ok(()),
        false => Err(SliceError::Corrupt("its columns are not the dataset's".to_owned())),
    }
}
