//! Rows of other libraries, by Arrow's C stream interface, on their way to a load.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{RecordBatch, StructArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_array::RecordBatchReader;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use futures::StreamExt;
use parking_lot::Mutex;
use pithead_door::Batches;
use pithead_model::{Blame, Fault};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyTuple};
use tokio::sync::mpsc;

use crate::readers::Reader;

/// Batches that wait for the load.
const AHEAD_BATCHES: usize = 4;
/// Rows that the load gets at once: a library may hold a whole table as one batch.
const ROWS_MAX: usize = 65_536;

/// Where rows come from.
pub(crate) struct Source {
    reader: Box<dyn RecordBatchReader + Send>,
}

/// How far a source is, for who shows progress.
#[derive(Default)]
pub(crate) struct ImportProgress {
    pub(crate) rows: AtomicU64,
}

impl Source {
    /// From an object with `__arrow_c_stream__` or `__arrow_c_array__`.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.hasattr("__arrow_c_stream__")? {
            let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
            let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
            // SAFETY: a capsule of this name holds an ArrowArrayStream, says the protocol; it is moved out, as the protocol wants.
            let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
            let reader = ArrowArrayStreamReader::try_new(stream).map_err(unreadable)?;
            return Ok(Self { reader: Box::new(reader) });
        }
        if object.hasattr("__arrow_c_array__")? {
            let capsules = object.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
            return Ok(Self { reader: Box::new(Single::new(&capsules)?) });
        }
        Err(PyTypeError::new_err("expected an object with __arrow_c_stream__ or __arrow_c_array__"))
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }

    /// Reads on a thread of its own, since the source may be Python and block. It ends when the load does, with the next batch.
    pub(crate) fn start(self, taken: Arc<ImportProgress>) -> Batches {
        let (sender, receiver) = mpsc::channel(AHEAD_BATCHES);
        tokio::task::spawn_blocking(move || {
            let Some(_reading) = Reader::begin() else { return };
            let mut reader = self.reader;
            while !sender.is_closed() {
                let next = catch_unwind(AssertUnwindSafe(|| reader.next()));
                let next =
                    next.unwrap_or_else(|_| Some(Err(ArrowError::CDataInterface("it failed without saying why".into()))));
                let item = match next {
                    None => return,
                    Some(Ok(batch)) => Ok(batch),
                    Some(Err(error)) => Err(failed(&error)),
                };
                let is_last = item.is_err();
                for piece in pieces(item) {
                    if let Ok(piece) = &piece {
                        taken.rows.fetch_add(piece.num_rows() as u64, Ordering::Relaxed);
                    }
                    if sender.blocking_send(piece).is_err() {
                        return;
                    }
                }
                if is_last {
                    return;
                }
            }
        });
        futures::stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }).boxed()
    }
}

fn pieces(item: Result<RecordBatch, Fault>) -> Vec<Result<RecordBatch, Fault>> {
    match item {
        Ok(batch) if batch.num_rows() > ROWS_MAX => {
            let starts = (0..batch.num_rows()).step_by(ROWS_MAX);
            starts.map(|start| Ok(batch.slice(start, ROWS_MAX.min(batch.num_rows() - start)))).collect()
        }
        item => vec![item],
    }
}

fn failed(error: &ArrowError) -> Fault {
    let text = match error {
        ArrowError::CDataInterface(text) => text.clone(),
        other => other.to_string(),
    };
    Fault::new(Blame::User, format!("the source of the rows failed: {text}"))
        .hint("nothing was loaded; mend the source and load again")
}

fn unreadable(error: ArrowError) -> PyErr {
    crate::errors::user(
        format!("the source's Arrow data cannot be read: {error}"),
        "give a table, or a reader of record batches",
    )
}

/// One batch, from `__arrow_c_array__`.
struct Single {
    schema: SchemaRef,
    batch: Mutex<Option<RecordBatch>>,
}

impl Single {
    fn new(capsules: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let capsule =
            |index: usize| -> PyResult<Bound<'_, PyCapsule>> { Ok(capsules.get_item(index)?.cast_into::<PyCapsule>()?) };
        let schema = capsule(0)?.pointer_checked(Some(c"arrow_schema"))?;
        let array = capsule(1)?.pointer_checked(Some(c"arrow_array"))?;
        // SAFETY: a capsule of this name holds an ArrowSchema, says the protocol; it stays the capsule's.
        let schema = Schema::try_from(unsafe { schema.cast::<FFI_ArrowSchema>().as_ref() }).map_err(unreadable)?;
        let structure = DataType::Struct(schema.fields().clone());
        // SAFETY: a capsule of this name holds an ArrowArray of that schema; it is moved out, as the protocol wants.
        let data = unsafe { from_ffi_and_data_type(FFI_ArrowArray::from_raw(array.cast().as_ptr()), structure) };
        let array = StructArray::from(data.map_err(unreadable)?);
        let schema = Arc::new(schema);
        let batch = RecordBatch::try_new(Arc::clone(&schema), array.columns().to_vec()).map_err(unreadable)?;
        Ok(Self { schema, batch: Mutex::new(Some(batch)) })
    }
}

impl Iterator for Single {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch.get_mut().take().map(Ok)
    }
}

impl RecordBatchReader for Single {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
