//! [`Stream`]: the rows of a statement on their way to Python, as Arrow's C stream or as Python values.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::{can_cast_types, cast};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow_array::RecordBatchReader;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use futures::StreamExt;
use parking_lot::Mutex;
use pithead_host::{Answer, QueryProfile, device_profile, emulate};
use pithead_model::{Blame, Fault, total};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyList};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::watch;

use crate::connection::closed;
use crate::memory::Headroom;
use crate::{errors, objects, rows, runtime, types};

/// Batches that are read ahead of who takes them.
const AHEAD_BATCHES: usize = 8;

/// A batch, none at the end, or why there are no more.
type Item = Result<Option<RecordBatch>, Fault>;

/// The rows of one statement. They can be taken once.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Stream {
    schema: SchemaRef,
    is_query: bool,
    reader: Mutex<Option<Reader>>,
    shared: Arc<Shared>,
}

/// What outlives the rows.
#[derive(Default)]
struct Shared {
    /// None of a statement without rows.
    profile: Option<Arc<QueryProfile>>,
    taker: Taker,
    /// What ended the rows, for whom the C interface gave only its text.
    failure: Mutex<Option<PyErr>>,
}

/// Who takes the rows.
#[derive(Default)]
pub(crate) struct Taker {
    /// Called while something waits for rows.
    pub(crate) progress: Option<Py<PyAny>>,
    /// Whether it is a stranger, who turns an interrupt into an error of its own.
    pub(crate) is_foreign: bool,
    /// The connection of `pithead/_connection.py`, which is not closed for want of users before the rows have ended.
    #[expect(dead_code, reason = "held for as long, and not looked at")]
    pub(crate) owner: Option<Py<PyAny>>,
}

#[pymethods]
impl Stream {
    /// That of a statement without rows.
    #[new]
    fn nothing() -> PyResult<Self> {
        let (sender, receiver) = mpsc::channel(1);
        // There is room for one.
        let _ = sender.try_send(Ok(None));
        Ok(Self::over(receiver, Arc::new(Schema::empty()), false, Shared::default()))
    }

    /// The rows as Arrow's C stream. Texts come with offsets, as every consumer knows them, unless views are requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let wanted = match requested_schema {
            Some(capsule) => requested(&capsule, &self.schema)?,
            None => types::plain(&self.schema),
        };
        let reader = Reader { wanted, ..self.take()? };
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    /// The rows under other names of columns, for polars: texts as views, as the engine has them, and dates of 64 bits as dates.
    fn views<'py>(&self, py: Python<'py>, names: Vec<String>) -> PyResult<Bound<'py, PyCapsule>> {
        let reader = Reader { wanted: types::viewed(&self.schema, names), ..self.take()? };
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    /// The next rows as tuples, at least one and at most about `rows_max`; all that are left without it. Empty at the end.
    #[pyo3(signature = (rows_max=None))]
    fn fetch<'py>(&self, py: Python<'py>, rows_max: Option<usize>) -> PyResult<Bound<'py, PyList>> {
        let mut held = self.reader.lock().take();
        let fetched = objects::list(py)?;
        let Some(reader) = held.as_mut() else { return Ok(fetched) };
        while rows_max.is_none_or(|most| fetched.len() < most) {
            let Some(batch) = reader.receive(py)? else { return Ok(fetched) };
            reader.headroom.check(&batch)?;
            rows::to_tuples(py, &batch, &fetched)?;
        }
        *self.reader.lock() = held;
        Ok(fetched)
    }

    /// The columns.
    #[getter]
    fn columns(&self) -> types::Columns {
        types::Columns::new(&types::plain(&self.schema))
    }

    #[getter]
    fn is_query(&self) -> bool {
        self.is_query
    }

    /// Raises what ended the rows, if they did not end by themselves.
    fn check(&self) -> PyResult<()> {
        self.shared.failure.lock().take().map_or(Ok(()), Err)
    }

    /// What the statement has cost so far.
    fn profile(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let profile = self.shared.profile.as_ref();
        types::costs(py, &profile.map(|profile| profile.snapshot()).unwrap_or_default())
    }

    /// What the statement's sub-plans would have taken on drives of a profile: one that comes along, or its text.
    fn emulated(&self, py: Python<'_>, device: &str, text: Option<&str>) -> PyResult<Py<PyDict>> {
        let profile = device_profile(device, text).map_err(errors::to_python)?;
        let sub_plans = self.shared.profile.as_ref().map(|profile| profile.sub_plans()).unwrap_or_default();
        let emulated = emulate(&profile, sub_plans.iter().map(|sub_plan| &**sub_plan));
        types::emulated(
            py,
            &profile.name,
            emulated.map_err(|error| errors::to_python(Fault::new(Blame::User, error.to_string())))?,
        )
    }

    /// Ends the statement, also at the drives, if it still runs.
    fn close(&self) {
        self.reader.lock().take();
    }
}

impl Stream {
    pub(crate) fn new(answer: Answer, closing: watch::Receiver<bool>, taker: Taker) -> PyResult<Self> {
        let (sender, receiver) = mpsc::channel(AHEAD_BATCHES);
        let schema = Arc::clone(&answer.schema);
        let is_query = answer.is_query;
        let profile = Some(Arc::clone(&answer.profile));
        runtime::runtime().map_err(errors::to_python)?.spawn(send(answer, sender, closing));
        Ok(Self::over(receiver, schema, is_query, Shared { profile, taker, failure: Mutex::new(None) }))
    }

    fn over(receiver: Receiver<Item>, schema: SchemaRef, is_query: bool, shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let reader = Reader {
            receiver,
            wanted: Arc::clone(&schema),
            shared: Arc::clone(&shared),
            headroom: Headroom::default(),
            is_over: false,
        };
        Self { schema, is_query, reader: Mutex::new(Some(reader)), shared }
    }

    fn take(&self) -> PyResult<Reader> {
        let taken = self.reader.lock().take();
        taken.ok_or_else(|| errors::user("the rows of this result were taken already", "run the statement again for more"))
    }
}

/// Sends the rows until they end, nobody takes them, or the connection is closed. Dropping the answer cancels it at the drives.
async fn send(mut answer: Answer, sender: Sender<Item>, mut closing: watch::Receiver<bool>) {
    loop {
        let item = tokio::select! {
            biased;
            _ = sender.closed() => return,
            _ = closing.wait_for(|closing| *closing) => Err(closed(Blame::Cancelled)),
            batch = answer.rows.next() => batch.transpose(),
        };
        let is_last = !matches!(item, Ok(Some(_)));
        if is_last {
            drop(answer);
            // Nobody takes it any more: then nobody has to know.
            let _ = sender.send(item).await;
            return;
        }
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => {}
            sent = sender.send(item) => if sent.is_err() { return },
        }
    }
}

/// The rows on their way.
struct Reader {
    receiver: Receiver<Item>,
    /// The types that are handed out.
    wanted: SchemaRef,
    shared: Arc<Shared>,
    /// What is left of memory while the rows pile up with whoever takes them.
    headroom: Headroom,
    is_over: bool,
}

impl Reader {
    /// The next batch as the engine has it.
    fn receive(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let item = match self.receiver.try_recv() {
            Ok(item) => Some(item),
            Err(_) => {
                let shared = Arc::clone(&self.shared);
                runtime::wait(py, |py| shared.tell(py), self.receiver.recv())?
            }
        };
        match item {
            Some(item) => item.map_err(errors::to_python),
            None => Err(errors::to_python(Fault::new(Blame::Bug, "the engine failed before the rows had ended"))),
        }
    }

    fn next_batch(&mut self) -> PyResult<Option<RecordBatch>> {
        // What is there needs no interpreter.
        let batch = match self.receiver.try_recv() {
            Ok(item) => item.map_err(errors::to_python)?,
            Err(_) => match Python::try_attach(|py| self.receive(py)) {
                Some(received) => received?,
                None => return Err(errors::to_python(Fault::new(Blame::Cancelled, "the interpreter ends"))),
            },
        };
        match batch {
            Some(batch) => {
                self.headroom.check(&batch)?;
                conformed(&batch, &self.wanted).map(Some).map_err(arrow_error)
            }
            None => Ok(None),
        }
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        match self.next_batch() {
            Ok(batch) => {
                self.is_over = batch.is_none();
                batch.map(Ok)
            }
            Err(error) => {
                self.is_over = true;
                self.receiver.close();
                Some(Err(self.shared.failed(error)))
            }
        }
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.wanted)
    }
}

impl Shared {
    /// Calls who shows progress.
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        let (Some(progress), Some(profile)) = (&self.taker.progress, &self.profile) else { return Ok(()) };
        let (mut done, mut all) = (0, 0);
        for sub_plan in profile.sub_plans() {
            all += sub_plan.sub_plan.datasets.first().map_or(0, |driving| driving.dataset.slices());
            let counted =
                |session: &pithead_host::PartitionProfile| session.slices().0 + session.summarised() + session.recalled;
            done += total(sub_plan.sessions().iter().map(counted));
        }
        progress.call1(py, (done.min(all), all, profile.snapshot().link_bytes))?;
        Ok(())
    }

    /// Keeps the exception, and gives the text that the C interface can carry.
    fn failed(&self, error: PyErr) -> ArrowError {
        let told = Python::try_attach(|py| {
            if self.taker.is_foreign && error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
                // The consumer raises an error of its own; this makes the interpreter raise the interrupt again.
                // SAFETY: the interpreter is attached; only a flag is set.
                unsafe { pyo3::ffi::PyErr_SetInterrupt() };
            }
            let is_io = error.is_instance_of::<pyo3::exceptions::PyOSError>(py);
            (error.value(py).to_string().replace('\0', " "), is_io)
        });
        *self.failure.lock() = Some(error);
        match told {
            // The C interface has a number for these: consumers raise an OSError, too.
            Some((text, true)) => ArrowError::IoError(text.clone(), std::io::Error::other(text)),
            told => ArrowError::ExternalError(told.unwrap_or_default().0.into()),
        }
    }
}

/// The schema that a consumer asks for, if the rows can be had so.
fn requested(capsule: &Bound<'_, PyCapsule>, schema: &Schema) -> PyResult<SchemaRef> {
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?;
    // SAFETY: a capsule of this name holds an ArrowSchema, says the protocol; it is only looked at, and stays the capsule's.
    let wanted = Schema::try_from(unsafe { pointer.cast::<FFI_ArrowSchema>().as_ref() }).map_err(arrow_error)?;
    let fits = wanted.fields().len() == schema.fields().len()
        && wanted.fields().iter().zip(schema.fields()).all(|(to, from)| may_be(from.data_type(), to.data_type()));
    match fits {
        true => Ok(Arc::new(wanted)),
        false => {
            let types = |schema: &Schema| {
                let named =
                    schema.fields().iter().map(|field| format!("{} {}", field.name(), types::type_name(field.data_type())));
                named.collect::<Vec<_>>().join(", ")
            };
            let message = format!("the result has the columns {}; requested were {}", types(schema), types(&wanted));
            Err(errors::user(message, "request the same columns in the same order, or cast in the statement"))
        }
    }
}

fn may_be(from: &DataType, to: &DataType) -> bool {
    from == to || can_cast_types(from, to)
}

fn conformed(batch: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if batch.schema_ref().fields() == wanted.fields() {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().zip(wanted.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast(column, field.data_type()),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(wanted), columns.collect::<Result<_, _>>()?, &options)
}

/// What Arrow reports of rows on their way out.
pub(crate) fn arrow_error(error: ArrowError) -> PyErr {
    errors::to_python(Fault::new(Blame::User, format!("the rows cannot be handed out: {error}")))
}
