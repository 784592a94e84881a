//! `_pithead.cell.MatrixWriter`: a matrix on its way into a dataset.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pithead_cell::{Layout, MatrixLoad, MatrixWriter, Progress, ValueKind, WriterOptions};
use pithead_host::{LoadMode, LoadSpec};
use pithead_matrix::Codec;
use pithead_model::Fault;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::buffers::{Numbers, Whole, bytes_of};
use crate::cell::named;
use crate::connection::Connection;
use crate::errors;
use crate::runtime;

/// Takes a matrix in pieces, however large, and hands it gene by gene to a load.
#[pyclass(frozen, name = "MatrixWriter", module = "pithead._pithead.cell")]
pub(crate) struct Writer {
    state: Mutex<WriterState>,
}

enum WriterState {
    /// Takes more.
    Open(Box<MatrixWriter>),
    /// Another thread has it.
    Busy,
    /// It is being loaded, or was.
    Loaded(Arc<MatrixWriter>),
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (n_genes, *, source, codec = "zstd", kind = "auto", spill_dir = None))]
    fn new(n_genes: usize, source: String, codec: &str, kind: &str, spill_dir: Option<PathBuf>) -> PyResult<Self> {
        let codec = named("codec", codec, &[("zstd", Codec::Zstd), ("none", Codec::None)])?;
        let kind =
            named("kind", kind, &[("auto", ValueKind::Auto), ("counts", ValueKind::Counts), ("floats", ValueKind::Floats)])?;
        let spill_dir = spill_dir.unwrap_or_else(std::env::temp_dir);
        let writer = MatrixWriter::new(n_genes, WriterOptions { source, codec, kind, spill_dir }).map_err(errors::to_python)?;
        Ok(Self { state: Mutex::new(WriterState::Open(Box::new(writer))) })
    }

    /// Takes the next cells, in CSR.
    fn push_csr(
        &self,
        py: Python<'_>,
        indptr: Bound<'_, PyAny>,
        indices: Bound<'_, PyAny>,
        data: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (starts, genes, values) =
            (Whole::of(&indptr, "indptr")?.to_vec(), Whole::of(&indices, "indices")?, Numbers::of(&data, "data")?);
        self.with(py, |writer| match (&genes, &values) {
            (Whole::Empty, _) => writer.push_rows::<i32, f64>(&starts, &[], &[], |value| value),
            (Whole::Narrow(genes), Numbers::Single(values)) => {
                writer.push_rows(&starts, genes.slice(), values.slice(), f64::from)
            }
            (Whole::Narrow(genes), Numbers::Double(values)) => writer.push_rows(&starts, genes.slice(), values.slice(), |v| v),
            (Whole::Narrow(genes), Numbers::Other(values)) => writer.push_rows(&starts, genes.slice(), values, |v| v),
            (Whole::Wide(genes), Numbers::Single(values)) => {
                writer.push_rows(&starts, genes.slice(), values.slice(), f64::from)
            }
            (Whole::Wide(genes), Numbers::Double(values)) => writer.push_rows(&starts, genes.slice(), values.slice(), |v| v),
            (Whole::Wide(genes), Numbers::Other(values)) => writer.push_rows(&starts, genes.slice(), values, |v| v),
        })
    }

    /// Takes the next genes, in CSC.
    fn push_csc(
        &self,
        py: Python<'_>,
        indptr: Bound<'_, PyAny>,
        indices: Bound<'_, PyAny>,
        data: Bound<'_, PyAny>,
        n_cells: usize,
    ) -> PyResult<()> {
        let (starts, cells) = (Whole::of(&indptr, "indptr")?.to_vec(), Whole::of(&indices, "indices")?.to_vec());
        let values = Numbers::of(&data, "data")?;
        self.with(py, |writer| match &values {
            Numbers::Single(values) => writer.push_columns(&starts, &cells, values.slice(), n_cells, f64::from),
            Numbers::Double(values) => writer.push_columns(&starts, &cells, values.slice(), n_cells, |value| value),
            Numbers::Other(values) => writer.push_columns(&starts, &cells, values, n_cells, |value| value),
        })
    }

    /// Takes the next cells, dense: rows of a value for each gene.
    fn push_dense(&self, py: Python<'_>, block: Bound<'_, PyAny>) -> PyResult<()> {
        let values = Numbers::of(&block, "block")?;
        self.with(py, |writer| match &values {
            Numbers::Single(values) => writer.push_dense(values.slice(), f64::from),
            Numbers::Double(values) => writer.push_dense(values.slice(), |value| value),
            Numbers::Other(values) => writer.push_dense(values, |value| value),
        })
    }

    /// Takes all of a MatrixMarket file, plain or gzipped. `progress` is called with entries done, and in all.
    #[pyo3(signature = (path, n_cells, cells_are_rows = false, progress = None))]
    fn read_mtx(
        &self,
        py: Python<'_>,
        path: PathBuf,
        n_cells: usize,
        cells_are_rows: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let mut writer = self.taken()?;
        let (told, tell) = told();
        let look = move |py: Python<'_>| call(py, progress.as_ref(), &told);
        let (writer, result) = runtime::run(py, look, async move {
            let read = move || {
                let result = writer.read_mtx(&path, n_cells, cells_are_rows, &tell);
                (writer, result)
            };
            tokio::task::spawn_blocking(read).await.map_err(|error| Fault::new(pithead_model::Blame::Bug, error.to_string()))
        })?;
        *self.state.lock() = WriterState::Open(Box::new(writer));
        result.map_err(errors::to_python)
    }

    #[getter]
    fn n_cells(&self) -> PyResult<usize> {
        self.look(MatrixWriter::n_cells)
    }

    #[getter]
    fn nnz(&self) -> PyResult<u64> {
        self.look(MatrixWriter::nnz)
    }

    /// "counts" or "floats".
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        self.look(|writer| if writer.is_counts() { "counts" } else { "floats" })
    }

    /// Each cell's sum of values, float64.
    fn totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.look(|writer| bytes_of(py, writer.totals()))
    }

    /// Each cell's number of values that are not zero, uint32.
    fn nonzeros<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.look(|writer| bytes_of(py, writer.nonzeros()))
    }

    /// Writes the dataset; the writer is used up. `progress` is called with genes done, and in all.
    #[pyo3(signature = (conn, dataset, ids, *, metadata, mode = "create", slice_bytes = None, slice_rows = None, layout = "sparse", progress = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn load(
        &self,
        py: Python<'_>,
        conn: &Connection,
        dataset: &str,
        ids: Vec<String>,
        metadata: BTreeMap<String, String>,
        mode: &str,
        slice_bytes: Option<usize>,
        slice_rows: Option<usize>,
        layout: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyDict>> {
        let modes = [("create", LoadMode::Create), ("replace", LoadMode::Replace)];
        let mode = named("mode", mode, &modes)?;
        let layout = named("layout", layout, &[("sparse", Layout::Sparse), ("dense", Layout::Dense)])?;
        let name = dataset.parse().map_err(errors::to_python)?;
        let spec = LoadSpec { mode, metadata, slice_bytes, slice_rows, ..LoadSpec::new(name, Vec::new()) };
        let (host, writer) = (conn.host()?, Arc::new(self.taken()?));
        *self.state.lock() = WriterState::Loaded(Arc::clone(&writer));
        let nnz = writer.nnz();
        let (told, tell) = told();
        let look = move |py: Python<'_>| call(py, progress.as_ref(), &told);
        let load = MatrixLoad { spec, ids, layout, progress: tell };
        let report = conn.run(py, look, async move { writer.load(&host, load).await })?;
        let facts = PyDict::new(py);
        facts.set_item("rows", report.rows)?;
        facts.set_item("stored_bytes", report.stored_bytes)?;
        facts.set_item("slices", report.slices)?;
        facts.set_item("seconds", report.seconds)?;
        facts.set_item("nnz", nnz)?;
        Ok(facts.unbind())
    }
}

impl Writer {
    fn with(&self, py: Python<'_>, take: impl FnOnce(&mut MatrixWriter) -> Result<(), Fault> + Send) -> PyResult<()> {
        let taken = py.detach(|| match &mut *self.state.lock() {
            WriterState::Open(writer) => Some(take(writer)),
            WriterState::Busy | WriterState::Loaded(_) => None,
        });
        taken.ok_or_else(used_up)?.map_err(errors::to_python)
    }

    fn look<T>(&self, look: impl FnOnce(&MatrixWriter) -> T) -> PyResult<T> {
        match &*self.state.lock() {
            WriterState::Open(writer) => Ok(look(writer)),
            WriterState::Loaded(writer) => Ok(look(writer)),
            WriterState::Busy => Err(used_up()),
        }
    }

    fn taken(&self) -> PyResult<MatrixWriter> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, WriterState::Busy) {
            WriterState::Open(writer) => Ok(*writer),
            other => {
                *state = other;
                Err(used_up())
            }
        }
    }
}

fn used_up() -> PyErr {
    errors::user("this writer's matrix was loaded already, or is in use", "make another MatrixWriter")
}

/// Two numbers that Python is told, and what sets them.
fn told() -> (Arc<[AtomicU64; 2]>, Progress) {
    let told = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let set = Arc::clone(&told);
    let tell = move |done, all| {
        set[0].store(done, Ordering::Relaxed);
        set[1].store(all, Ordering::Relaxed);
    };
    (told, Arc::new(tell))
}

fn call(py: Python<'_>, progress: Option<&Py<PyAny>>, told: &[AtomicU64; 2]) -> PyResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    progress.call1(py, (told[0].load(Ordering::Relaxed), told[1].load(Ordering::Relaxed))).map(drop)
}
