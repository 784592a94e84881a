//! Applications of SSDlets on drives on the network, for `pithead.ssd`.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pithead_embed::{ClientTlsFiles, ConnectOptions, Door, LoadModule, Token, doors};
use pithead_model::{Blame, Fault};
use pithead_program::{Signature, Type, Value, decode_rows, encode_row};
use pithead_span::{Application as Spanning, Bounds, HostReader, HostWriter, Ssdlet as Spanned};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::errors;
use crate::runtime::{self, nothing};

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Ssd>()?;
    module.add_class::<Application>()?;
    module.add_class::<Ssdlet>()?;
    module.add_class::<Reader>()?;
    module.add_class::<Writer>()
}

/// Where a drive is, and how to connect to it, put in order by Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Link {
    address: String,
    token: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    insecure: bool,
}

impl Link {
    fn door(self) -> Result<Arc<dyn Door>, Fault> {
        let _inside = runtime::runtime()?.enter();
        let token = self.token.as_deref().map(Token::parse).transpose()?;
        let identity = self.cert.zip(self.key);
        let tls = self.ca.map(|ca| ClientTlsFiles { ca, identity });
        let there = doors(&[self.address], &ConnectOptions { tls, token, insecure: self.insecure })?;
        there.into_iter().next().ok_or_else(|| Fault::bug("no door for an address"))
    }
}

/// A drive on the network.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Ssd {
    door: Arc<dyn Door>,
}

#[pymethods]
impl Ssd {
    #[new]
    fn new(link: Link) -> PyResult<Self> {
        Ok(Self { door: link.door().map_err(errors::to_python)? })
    }

    #[getter]
    fn label(&self) -> &str {
        self.door.label()
    }

    /// Has the drive keep a module.
    fn load(&self, py: Python<'_>, name: String, bytes: Vec<u8>, replace: bool) -> PyResult<()> {
        let (door, request) = (Arc::clone(&self.door), LoadModule { name, replace, bytes: bytes.into() });
        runtime::run(py, nothing, async move {
            door.load_module(request).await.map(|_| ()).map_err(|fault| fault.at_drive(door.label()))
        })
    }

    /// Whether the drive had the module that it is to forget.
    fn unload(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        let door = Arc::clone(&self.door);
        runtime::run(py, nothing, async move { door.remove_module(name).await.map_err(|fault| fault.at_drive(door.label())) })
    }
}

/// A graph of SSDlets.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Application(Arc<Spanning>);

/// An SSDlet of an application.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Ssdlet(Spanned);

#[pymethods]
impl Ssdlet {
    #[getter]
    fn name(&self) -> &str {
        &self.0.declared().name
    }
}

/// A port: an SSDlet, and its number there.
type Port<'py> = (PyRef<'py, Ssdlet>, usize);

#[pymethods]
impl Application {
    #[new]
    fn new(name: &str, ssds: Vec<PyRef<'_, Ssd>>, memory: u64, seconds: Option<f64>) -> PyResult<Self> {
        let doors = ssds.iter().map(|ssd| Arc::clone(&ssd.door)).collect();
        let bounds = Bounds { memory, run_ms: seconds.map(|seconds| (seconds * 1e3) as u64) };
        Ok(Self(Arc::new(Spanning::new(name, doors, bounds).map_err(errors::to_python)?)))
    }

    /// Makes an SSDlet at a drive, by its place.
    fn ssdlet(
        &self,
        py: Python<'_>,
        drive: usize,
        module: String,
        name: Option<String>,
        arguments: Vec<String>,
    ) -> PyResult<Ssdlet> {
        let application = Arc::clone(&self.0);
        let made = async move { application.ssdlet(drive, &module, name.as_deref(), arguments).await };
        runtime::run(py, nothing, made).map(Ssdlet)
    }

    fn connect(&self, from: Port<'_>, to: Port<'_>) -> PyResult<()> {
        let _inside = runtime::runtime().map_err(errors::to_python)?.enter();
        self.0.connect(&from.0.0.output(from.1), &to.0.0.input(to.1)).map_err(errors::to_python)
    }

    fn reader(&self, from: Vec<Port<'_>>) -> PyResult<Reader> {
        let outputs: Vec<_> = from.iter().map(|(ssdlet, port)| ssdlet.0.output(*port)).collect();
        let reader = self.0.reader(&outputs).map_err(errors::to_python)?;
        let signature = signature(reader.signature()).map_err(errors::to_python)?;
        Ok(Reader { reader: Mutex::new(Some(Arc::new(reader))), signature })
    }

    fn writer(&self, to: Vec<Port<'_>>) -> PyResult<Writer> {
        let inputs: Vec<_> = to.iter().map(|(ssdlet, port)| ssdlet.0.input(*port)).collect();
        let writer = self.0.writer(&inputs).map_err(errors::to_python)?;
        let signature = signature(writer.signature()).map_err(errors::to_python)?;
        Ok(Writer { writer: Mutex::new(Some(Arc::new(writer))), signature })
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let application = Arc::clone(&self.0);
        runtime::run(py, nothing, async move { application.start().await })
    }

    /// Waits for the end. Returns the processor time that the SSDlets took, in seconds.
    fn wait(&self, py: Python<'_>) -> PyResult<f64> {
        let application = Arc::clone(&self.0);
        runtime::run(py, nothing, async move { application.wait().await }).map(|took| took.as_secs_f64())
    }

    fn stop(&self) {
        self.0.stop();
    }
}

/// What goes through a port of a drive.
fn signature(text: &str) -> Result<Signature, Fault> {
    text.parse().map_err(|why| Fault::new(Blame::Unsupported, format!("a port carries {text:?}: {why}")))
}

fn closed() -> PyErr {
    errors::user("the port is closed", "open another one before the application starts")
}

/// Takes what SSDlets put out.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Reader {
    /// None once it is closed.
    reader: Mutex<Option<Arc<HostReader>>>,
    signature: Signature,
}

#[pymethods]
impl Reader {
    #[getter]
    fn signature(&self) -> String {
        self.signature.to_string()
    }

    /// The rows of the next batch, or the bytes of its Arrow IPC stream; None at the end.
    fn get<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = self.reader.lock().clone().ok_or_else(closed)?;
        let Some(batch) = runtime::wait(py, nothing, reader.get())?.map_err(errors::to_python)? else { return Ok(None) };
        let Signature::Rows(types) = &self.signature else { return Ok(Some(PyBytes::new(py, &batch).into_any())) };
        let damaged = |why| Fault::new(Blame::Device, format!("a batch of {} is none: {why}", self.signature));
        let rows = PyList::empty(py);
        for row in decode_rows(types, &batch).map_err(damaged).map_err(errors::to_python)? {
            let values = row.into_iter().map(|value| object(py, value)).collect::<PyResult<Vec<_>>>()?;
            match <[Bound<'_, PyAny>; 1]>::try_from(values) {
                Ok([only]) => rows.append(only)?,
                Err(several) => rows.append(PyTuple::new(py, several)?)?,
            }
        }
        Ok(Some(rows.into_any()))
    }

    fn close(&self) {
        self.reader.lock().take();
    }
}

/// Sends to inputs of SSDlets.
#[pyclass(frozen, module = "pithead._pithead")]
pub(crate) struct Writer {
    /// None once it is closed.
    writer: Mutex<Option<Arc<HostWriter>>>,
    signature: Signature,
}

#[pymethods]
impl Writer {
    #[getter]
    fn signature(&self) -> String {
        self.signature.to_string()
    }

    /// Sends a row: a value, or a tuple of several. False if nobody reads any more.
    fn put(&self, py: Python<'_>, row: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Signature::Rows(types) = &self.signature else {
            return Err(errors::user("the port takes Arrow record batches, not rows", "put a pyarrow.RecordBatch"));
        };
        let values = match &types[..] {
            [only] => vec![value(*only, row)?],
            several => {
                let columns: Vec<Bound<'_, PyAny>> = row.extract().unwrap_or_default();
                if columns.len() != several.len() {
                    let what = format!("the port takes rows of {}, not {}", self.signature, row.repr()?);
                    return Err(errors::user(what, "put a tuple with a value for each column"));
                }
                several.iter().zip(&columns).map(|(of, column)| value(*of, column)).collect::<PyResult<_>>()?
            }
        };
        let mut batch = Vec::new();
        encode_row(&values, &mut batch);
        self.put_bytes(py, batch)
    }

    /// Sends an Arrow IPC stream, or rows as bytes.
    fn put_bytes(&self, py: Python<'_>, batch: Vec<u8>) -> PyResult<bool> {
        let writer = self.writer.lock().clone().ok_or_else(closed)?;
        let put = async move { writer.put(Bytes::from(batch)).await };
        runtime::run(py, nothing, put)
    }

    fn close(&self) {
        self.writer.lock().take();
    }
}

fn object(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::I8(value) => value.into_pyobject(py)?.into_any(),
        Value::I16(value) => value.into_pyobject(py)?.into_any(),
        Value::I32(value) => value.into_pyobject(py)?.into_any(),
        Value::I64(value) => value.into_pyobject(py)?.into_any(),
        Value::U8(value) => value.into_pyobject(py)?.into_any(),
        Value::U16(value) => value.into_pyobject(py)?.into_any(),
        Value::U32(value) => value.into_pyobject(py)?.into_any(),
        Value::U64(value) => value.into_pyobject(py)?.into_any(),
        Value::F32(value) => value.into_pyobject(py)?.into_any(),
        Value::F64(value) => value.into_pyobject(py)?.into_any(),
        Value::String(value) => value.into_pyobject(py)?.into_any(),
        Value::Bytes(value) => PyBytes::new(py, &value).into_any(),
    })
}

fn value(of: Type, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    let made = match of {
        Type::Bool => given.extract().map(Value::Bool),
        Type::I8 => given.extract().map(Value::I8),
        Type::I16 => given.extract().map(Value::I16),
        Type::I32 => given.extract().map(Value::I32),
        Type::I64 => given.extract().map(Value::I64),
        Type::U8 => given.extract().map(Value::U8),
        Type::U16 => given.extract().map(Value::U16),
        Type::U32 => given.extract().map(Value::U32),
        Type::U64 => given.extract().map(Value::U64),
        Type::F32 => given.extract().map(Value::F32),
        Type::F64 => given.extract().map(Value::F64),
        Type::String => given.extract().map(Value::String),
        Type::Bytes => given.extract().map(Value::Bytes),
    };
    let shown = given.repr()?.to_string();
    made.map_err(|_| errors::user(format!("{shown} is no {of}"), "put a value of the port's type"))
}
