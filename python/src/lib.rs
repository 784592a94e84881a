//! `_pithead`: the engine inside the Python package. What users see is Python, in `python/pithead`; this module waits for the engine
//! without the interpreter's lock, and hands batches over by Arrow's C stream interface.

mod buffers;
mod cell;
mod common_type;
mod connection;
mod errors;
mod import;
mod load;
mod memory;
mod objects;
mod options;
mod parameters;
mod program;
mod readers;
mod rows;
mod runtime;
mod stream;
mod types;
mod writer;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule]
fn _pithead(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<connection::Connection>()?;
    module.add_class::<connection::Frame>()?;
    module.add_class::<connection::Statement>()?;
    module.add_class::<load::Found>()?;
    module.add_class::<stream::Stream>()?;
    module.add_function(wrap_pyfunction!(readers::end_readers, module)?)?;
    program::add(module)?;
    cell::add(module)
}
