//! [`Connection`]: a host with its drives, and the one session that all threads of a connection share.

use std::future::Future;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use parking_lot::Mutex;
use pithead_embed::Engine;
use pithead_host::{Frames, Host, Session};
use pithead_model::{Blame, DatasetName, Fault};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::watch;

use crate::errors;
use crate::import::Source;
use crate::load::{self, Found, Spec};
use crate::options::Options;
use crate::parameters::ParameterValues;
use crate::runtime::{self, nothing};
use crate::stream::{Stream, Taker};
use crate::types;

/// A host with its drives. Threads may share it; what SET changes holds for all of them.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Connection {
    open: Mutex<Option<Open>>,
    closing: watch::Sender<bool>,
}

/// A statement that was planned.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Statement(Arc<pithead_host::Statement>);

#[pymethods]
impl Statement {
    /// The columns of what it gives; none where it is no query.
    #[getter]
    fn columns(&self) -> Option<types::Columns> {
        self.0.schema().map(|schema| types::Columns::new(&types::plain(schema)))
    }

    /// Whether it changes data, so that it is to run once.
    #[getter]
    fn writes(&self) -> bool {
        self.0.writes()
    }
}

/// A table in memory that statements can name.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Frame {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

struct Open {
    engine: Engine,
    session: Arc<Session>,
}

#[pymethods]
impl Connection {
    #[new]
    fn new(py: Python<'_>, options: Options) -> PyResult<Self> {
        let (target, embed) = (options.target(), options.embed()?);
        let engine = runtime::run(py, nothing, async move { pithead_embed::connect(&target, &embed).await })?;
        let session = Arc::new(engine.host.session().with_files());
        Ok(Self { open: Mutex::new(Some(Open { engine, session })), closing: watch::Sender::new(false) })
    }

    /// Reads and plans a statement, which can be run after. `frames`: names, and the tables that they stand for.
    fn prepare(
        &self,
        py: Python<'_>,
        sql: String,
        given: Option<ParameterValues>,
        frames: Vec<(String, Py<Frame>)>,
    ) -> PyResult<Statement> {
        let session = self.session()?;
        let mut tables = Frames::default();
        for (name, frame) in &frames {
            let Frame { schema, batches } = frame.get();
            tables.add(name, Arc::clone(schema), batches).map_err(errors::to_python)?;
        }
        let parameters = given.map(ParameterValues::parameters).transpose()?.unwrap_or_default().with_frames(tables);
        let statement = self.run(py, nothing, async move { session.prepare(&sql, &parameters).await })?;
        Ok(Statement(Arc::new(statement)))
    }

    /// Runs a statement, now or again. `progress` is called with slices done, slices in all, and bytes over the link, while something waits for rows.
    /// `is_foreign`: the rows go to a library that turns exceptions of the stream into its own. `owner` lives until they have ended.
    #[pyo3(signature = (statement, progress = None, is_foreign = false, owner = None))]
    fn execute(
        &self,
        py: Python<'_>,
        statement: &Statement,
        progress: Option<Py<PyAny>>,
        is_foreign: bool,
        owner: Option<Py<PyAny>>,
    ) -> PyResult<Stream> {
        let session = self.session()?;
        let statement = Arc::clone(&statement.0);
        let answer = self.run(py, nothing, async move { statement.run(&session).await })?;
        Stream::new(answer, self.closing.subscribe(), Taker { progress, is_foreign, owner })
    }

    /// Loads files, or what a C stream gives; with `over` in the place of what was found, or not at all. `progress` is called
    /// with bytes done, bytes in all, and rows.
    #[pyo3(signature = (spec, stream, progress, over = None))]
    fn load(
        &self,
        py: Python<'_>,
        spec: Spec,
        stream: Option<Bound<'_, PyAny>>,
        progress: Option<Py<PyAny>>,
        over: Option<Py<Found>>,
    ) -> PyResult<Py<PyDict>> {
        load::load(self, py, spec, stream, progress, over.as_ref().map(Py::get))
    }

    /// A dataset as it is now, for a load over it; none: there is none.
    fn found(&self, py: Python<'_>, name: &str) -> PyResult<Option<Found>> {
        let name: DatasetName = name.parse().map_err(errors::to_python)?;
        let host = self.host()?;
        self.run(py, nothing, async move {
            let snapshot = host.fleet().snapshot().await?;
            Ok(snapshot.dataset(&name).map(|(_, dataset)| Found::new(dataset)))
        })
    }

    /// All rows that a C stream gives, for statements to name.
    fn frame(&self, py: Python<'_>, stream: Bound<'_, PyAny>) -> PyResult<Frame> {
        let source = Source::new(&stream)?;
        drop(stream);
        let schema = source.schema();
        let rows = async move { source.start(Arc::default()).try_collect().await };
        Ok(Frame { schema, batches: self.run(py, nothing, rows)? })
    }

    /// All datasets, as dicts.
    fn datasets(&self, py: Python<'_>) -> PyResult<Vec<Py<PyDict>>> {
        let host = self.host()?;
        let datasets = self.run(py, nothing, async move { host.fleet().datasets().await })?;
        datasets.into_iter().map(|(name, dataset)| types::dataset_facts(py, &name, &dataset)).collect()
    }

    /// Drops a dataset. Whether it was there.
    fn drop(&self, py: Python<'_>, name: &str, missing_ok: bool) -> PyResult<bool> {
        let name: DatasetName = name.parse().map_err(errors::to_python)?;
        let host = self.host()?;
        self.run(py, nothing, async move {
            if missing_ok && host.fleet().snapshot().await?.dataset(&name).is_none() {
                return Ok(false);
            }
            host.fleet().drop_dataset(&name).await.map(|()| true)
        })
    }

    /// How each drive is: label, and its status or why it has none, as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<Vec<(String, String, bool)>> {
        let host = self.host()?;
        let status = self.run(py, nothing, async move { Ok(host.fleet().status().await) })?;
        let text = |status| serde_json::to_string(&status).unwrap_or_default();
        Ok(status
            .into_iter()
            .map(|(label, status)| match status {
                Ok(status) => (label, text(status), true),
                Err(fault) => (label, fault.to_string(), false),
            })
            .collect())
    }

    /// Ends what runs, and the drives of this process. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if runtime::was_forked() {
            return Ok(());
        }
        self.closing.send_replace(true);
        let Some(open) = self.open.lock().take() else { return Ok(()) };
        runtime::run(py, nothing, async move {
            drop(open.session);
            open.engine.shutdown().await;
            Ok(())
        })
    }

    #[getter]
    fn is_closed(&self) -> bool {
        self.open.lock().is_none()
    }
}

impl Connection {
    /// Runs a future of this connection: it is cancelled when the connection is closed.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        look: impl Fn(Python<'_>) -> PyResult<()> + Sync,
        future: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> PyResult<T> {
        let mut closing = self.closing.subscribe();
        runtime::run(py, look, async move {
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => Err(closed(Blame::Cancelled)),
                result = future => result,
            }
        })
    }

    /// The host of an open connection.
    pub(crate) fn host(&self) -> PyResult<Host> {
        self.with_open(|open| open.engine.host.clone())
    }

    pub(crate) fn session(&self) -> PyResult<Arc<Session>> {
        self.with_open(|open| Arc::clone(&open.session))
    }

    fn with_open<T>(&self, take: impl FnOnce(&Open) -> T) -> PyResult<T> {
        // A forked process gets the clear error, rather than a wait that never ends.
        runtime::runtime().map_err(errors::to_python)?;
        self.open.lock().as_ref().map(take).ok_or_else(|| errors::to_python(closed(Blame::User)))
    }
}

/// What is said once the connection was closed, or while it is.
pub(crate) fn closed(blame: Blame) -> Fault {
    Fault::new(blame, "the connection is closed").hint("open another one with pithead.connect(…)")
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(open) = self.open.get_mut().take() else { return };
        self.closing.send_replace(true);
        match runtime::runtime() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    drop(open.session);
                    open.engine.shutdown().await;
                });
            }
            // Its threads are gone, and waiting for them would never end.
            Err(_) => std::mem::forget(open),
        }
    }
}
