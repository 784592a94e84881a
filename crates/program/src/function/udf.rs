//! Functions that were written against the crate `arrow-udf`: its interface, of version 3, hands over batches as Arrow IPC files.
//!
//! A module exports `alloc`, and each function under a name that says its signature in base64. A function takes the address and the
//! length of a batch, and where to put those of its answer: a batch, or where it returns other than 0, a message. The answer's first
//! column is the result; a second one named `error` has a message for each row that failed. The answer of a table function is what
//! gives batches one after another, whose first column says which row each of their results is of.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{cast, filter, take};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::FileWriter;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::batch::{FunctionCall, MemoryOf, time_of};
use super::run::{Running, run};
use super::sets::Sets;
use crate::arrow_port::from_file;
use crate::budget::fault;

/// What the export begins with that says which version of the interface a module speaks.
pub(super) const UDF_VERSION: &str = "ARROWUDF_VERSION_";
/// What stands before a signature in the names of exports.
pub(super) const UDF_PREFIX: &str = "arrowudf_";

/// The digits of base64 that may be in names of exports.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789$_";
/// The bytes in which a function says where its answer is, and how long.
const ANSWER_BYTES: usize = 8;
/// The most bytes of a message.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// A function's signature, and the export that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UdfSignature {
    /// As `name(type,…)->type`, or with `->>` before the type where it gives any number of results for each row.
    pub text: String,
    export: String,
}

impl UdfSignature {
    /// The signature in the name of an export.
    pub fn of(export: &str) -> Result<UdfSignature, String> {
        let text = export.strip_prefix(UDF_PREFIX).and_then(decoded).and_then(|bytes| String::from_utf8(bytes).ok());
        let is_one = |text: &String| text.contains("->") && !text.contains(char::is_control);
        let text = text
            .filter(is_one)
            .ok_or_else(|| format!("its export {export:?} has no signature in base64 behind {UDF_PREFIX}"))?;
        Ok(UdfSignature { text, export: export.to_owned() })
    }

    /// Whether it gives any number of results for each row.
    pub fn returns_set(&self) -> bool {
        self.text.contains("->>")
    }

    fn name(&self) -> &str {
        self.text.split('(').next().unwrap_or_default()
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes() {
        bits = bits << 6 | DIGITS.iter().position(|one| *one == digit)? as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

/// A type as signatures have it.
fn named(data_type: &DataType) -> Result<&'static str, String> {
    Ok(match data_type {
        DataType::Boolean => "boolean",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::Float64 => "float64",
        DataType::Utf8View => "string",
        other => return Err(format!("functions know no {other}")),
    })
}

/// The results for so many rows of arguments.
pub(super) fn call(
    call: &FunctionCall<'_>,
    signatures: &[UdfSignature],
    arguments: &[ArrayRef],
    rows: usize,
    memory: MemoryOf<'_>,
) -> Result<ArrayRef, String> {
    let types: Vec<&str> = arguments.iter().map(|array| named(array.data_type())).collect::<Result<_, _>>()?;
    let wanted = match call.returns {
        DataType::List(item) => format!("{}({})->>{}", call.export, types.join(","), named(item.data_type())?),
        one => format!("{}({})->{}", call.export, types.join(","), named(one)?),
    };
    let Some(signature) = signatures.iter().find(|signature| signature.text == wanted) else {
        return Err(missing(call.export, &wanted, signatures));
    };
    let known = if call.called_on_null { None } else { known_rows(arguments, rows) };
    let Some(known) = known else { return called(call, signature, arguments, rows, memory) };
    // Rows with a NULL are left out, and get NULL in the result.
    let text = |error: arrow::error::ArrowError| error.to_string();
    let arguments: Vec<ArrayRef> =
        arguments.iter().map(|array| filter(array, &known)).collect::<Result<_, _>>().map_err(text)?;
    let results = called(call, signature, &arguments, known.true_count(), memory)?;
    let mut next = 0..;
    let places: UInt32Array = known.values().iter().map(|is_known| if is_known { next.next() } else { None }).collect();
    take(&results, &places, None).map_err(text)
}

fn missing(name: &str, wanted: &str, signatures: &[UdfSignature]) -> String {
    let mut others: Vec<&str> =
        signatures.iter().filter(|it| it.name() == name).map(|signature| signature.text.as_str()).collect();
    if others.is_empty() {
        others = signatures.iter().map(|signature| signature.text.as_str()).collect();
    }
    format!("its module has no function {wanted}; it has {}", others.join(", "))
}

/// The rows without a NULL; none: all rows.
fn known_rows(arguments: &[ArrayRef], rows: usize) -> Option<BooleanArray> {
    let nulls = arguments.iter().fold(None, |all, array| arrow::buffer::NullBuffer::union(all.as_ref(), array.nulls()));
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0)?;
    debug_assert_eq!(nulls.len(), rows);
    Some(BooleanArray::new(nulls.into_inner(), None))
}

fn called(
    call: &FunctionCall<'_>,
    signature: &UdfSignature,
    arguments: &[ArrayRef],
    rows: usize,
    memory: MemoryOf<'_>,
) -> Result<ArrayRef, String> {
    let input = file(arguments, rows).map_err(|error| error.to_string())?;
    let answered = |running: &mut Running| {
        let place = room(running, ANSWER_BYTES)?;
        let (start, length) = answer(running, &signature.export, &input, place)?;
        match call.returns {
            DataType::List(item) => Sets::new(item, rows, memory()).of_iterator(running, start, place),
            returns => result(bytes_at(running, start, length)?, rows, returns).map_err(fault),
        }
    };
    run(call.module, memory(), time_of(rows), answered)
}

/// Arguments as an Arrow IPC file.
fn file(arguments: &[ArrayRef], rows: usize) -> Result<Vec<u8>, arrow::error::ArrowError> {
    let mut columns = Vec::with_capacity(arguments.len());
    for array in arguments {
        let is_text = *array.data_type() == DataType::Utf8View;
        columns.push(if is_text { cast(array, &DataType::Utf8)? } else { Arc::clone(array) });
    }
    let fields = columns.iter().enumerate().map(|(i, array)| Field::new(format!("c{i}"), array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
    let mut writer = FileWriter::try_new(Vec::new(), &schema)?;
    writer.write(&batch)?;
    writer.into_inner()
}

/// Room in the guest's memory.
fn room(running: &mut Running, bytes: usize) -> wasmtime::Result<u32> {
    running.call::<(u32, u32), u32>("alloc", (u32::try_from(bytes)?, 8))
}

/// Hands a batch to a function, and returns the two numbers that it has put at `place`: where its answer is, and of how many bytes.
fn answer(running: &mut Running, export: &str, input: &[u8], place: u32) -> wasmtime::Result<(usize, usize)> {
    let at = room(running, input.len())?;
    running.region("alloc", at, input.len())?.copy_from_slice(input);
    running.region("alloc", place, ANSWER_BYTES)?.fill(0);
    let code = running.call::<(u32, u32, u32), i32>(export, (at, input.len() as u32, place))?;
    let (start, length) = told(running, place)?;
    if code == 0 {
        return Ok((start, length));
    }
    match bytes_at(running, start, length)? {
        [] => Err(fault(format!("it returned the code {code}"))),
        bytes => Err(fault(message(&String::from_utf8_lossy(&bytes[..bytes.len().min(MESSAGE_BYTES_MAX)])))),
    }
}

/// The two numbers at a place.
pub(super) fn told(running: &mut Running, place: u32) -> wasmtime::Result<(usize, usize)> {
    let told = running.region("alloc", place, ANSWER_BYTES)?;
    let [start, length] = [0, 4].map(|at| u32::from_le_bytes([told[at], told[at + 1], told[at + 2], told[at + 3]]) as usize);
    Ok((start, length))
}

/// Bytes of the guest's memory, all of which it may have written.
pub(super) fn bytes_at(running: &Running, start: usize, length: usize) -> wasmtime::Result<&[u8]> {
    let memory = running.memory();
    start.checked_add(length).and_then(|end| memory.get(start..end)).ok_or_else(|| {
        fault(format!("it says that its answer is {length} bytes at {start:#x}, beyond its memory of {} bytes", memory.len()))
    })
}

/// The result in an answer, all of which was written by the guest.
fn result(answer: &[u8], rows: usize, returns: &DataType) -> Result<ArrayRef, String> {
    let batch = one_batch(answer)?;
    let column = batch.columns().first().ok_or("its answer has no column")?;
    if column.len() != rows {
        return Err(format!("it answered with {} rows for {rows}", column.len()));
    }
    refuse_errors(&batch, 1)?;
    typed(column, returns)
}

pub(super) fn one_batch(answer: &[u8]) -> Result<RecordBatch, String> {
    let mut batches = from_file(answer)?;
    match (batches.pop(), batches.len()) {
        (Some(batch), 0) => Ok(batch),
        (last, others) => Err(format!("it answered with {} batches; one was expected", others + usize::from(last.is_some()))),
    }
}

/// The error of a row that failed. `results`: how many columns are before those of errors.
pub(super) fn refuse_errors(batch: &RecordBatch, results: usize) -> Result<(), String> {
    let fields = batch.schema_ref().fields();
    let place = (results..fields.len()).find(|place| fields[*place].name() == "error");
    let errors = place.map(|place| batch.column(place));
    match errors.and_then(|errors| errors.as_string_opt::<i32>()).and_then(|errors| errors.iter().flatten().next()) {
        Some(error) => Err(message(error)),
        None => Ok(()),
    }
}

/// Results of the type that a function was created with.
pub(super) fn typed(column: &ArrayRef, returns: &DataType) -> Result<ArrayRef, String> {
    let is_text = matches!(column.data_type(), DataType::Utf8 | DataType::LargeUtf8) && *returns == DataType::Utf8View;
    match column.data_type() {
        given if given == returns => Ok(Arc::clone(column)),
        _ if is_text => cast(column, returns).map_err(|error| error.to_string()),
        given => Err(format!("its answer is {given}; {returns} was expected")),
    }
}

fn message(text: &str) -> String {
    let text: String =
        text.chars().take(MESSAGE_BYTES_MAX).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.is_empty() { "it failed without a message".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    /// The results of a function that is called `error` itself are in a column of that name.
    #[test]
    fn only_columns_behind_the_results_have_errors() {
        let texts = |text: Option<&str>| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let batch = |error: Option<&str>| {
            let schema =
                Schema::new(vec![Field::new("error", DataType::Utf8, true), Field::new("error", DataType::Utf8, true)]);
            RecordBatch::try_new(Arc::new(schema), vec![texts(Some("a result")), texts(error)]).unwrap()
        };
        assert_eq!(refuse_errors(&batch(None), 1), Ok(()));
        assert_eq!(refuse_errors(&batch(Some("it is wrong")), 1), Err("it is wrong".to_owned()));
        assert_eq!(refuse_errors(&batch(None).project(&[0]).unwrap(), 1), Ok(()));
    }
}
