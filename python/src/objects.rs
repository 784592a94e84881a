//! Python objects of plain values. Memory that runs out is an exception; PyO3's own constructors panic where Python gives no
//! object.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple};

pub(crate) type Object<'py> = Bound<'py, PyAny>;

/// A value that Python has an object for.
pub(crate) trait ToObject {
    fn object(self, py: Python<'_>) -> PyResult<Object<'_>>;
}

macro_rules! made_by {
    ($function:ident: $($kind:ty),*) => {$(
        impl ToObject for $kind {
            fn object(self, py: Python<'_>) -> PyResult<Object<'_>> {
                // SAFETY: the interpreter is attached, and the function takes any number. It gives a new object, or none.
                unsafe { Bound::from_owned_ptr_or_err(py, ffi::$function(self.into())) }
            }
        }
    )*};
}

made_by!(PyLong_FromLongLong: i8, i16, i32, i64);
made_by!(PyLong_FromUnsignedLongLong: u8, u16, u32, u64);
made_by!(PyFloat_FromDouble: f32, f64);

impl ToObject for bool {
    fn object(self, py: Python<'_>) -> PyResult<Object<'_>> {
        Ok(PyBool::new(py, self).to_owned().into_any())
    }
}

impl ToObject for &str {
    fn object(self, py: Python<'_>) -> PyResult<Object<'_>> {
        // SAFETY: the interpreter is attached; the function copies as many bytes as there are. It gives a new object, or none.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyUnicode_FromStringAndSize(self.as_ptr().cast(), length(self.len()))) }
    }
}

impl ToObject for &[u8] {
    fn object(self, py: Python<'_>) -> PyResult<Object<'_>> {
        // SAFETY: as for texts.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(self.as_ptr().cast(), length(self.len()))) }
    }
}

/// `None`, for NULL.
pub(crate) fn none(py: Python<'_>) -> Object<'_> {
    py.None().into_bound(py)
}

/// A tuple of these.
pub(crate) fn tuple<'py>(py: Python<'py>, items: impl ExactSizeIterator<Item = Object<'py>>) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: the interpreter is attached. The function gives a new tuple with room for so many, or none.
    let tuple = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(length(items.len())))? };
    for (place, item) in items.enumerate() {
        // SAFETY: nobody else has the tuple yet. The function takes the item over, and refuses a place beyond the end.
        if unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), length(place), item.into_ptr()) } != 0 {
            return Err(PyErr::fetch(py));
        }
    }
    Ok(tuple.cast_into::<PyTuple>()?)
}

/// A list that is empty so far.
pub(crate) fn list(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: the interpreter is attached. The function gives a new list, or none.
    let list = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyList_New(0))? };
    Ok(list.cast_into::<PyList>()?)
}

/// A list of these.
pub(crate) fn list_of<'py>(py: Python<'py>, items: Vec<Object<'py>>) -> PyResult<Object<'py>> {
    let list = list(py)?;
    items.into_iter().try_for_each(|item| list.append(item))?;
    Ok(list.into_any())
}

/// A dict that is empty so far.
pub(crate) fn dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    // SAFETY: the interpreter is attached. The function gives a new dict, or none.
    let dict = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyDict_New())? };
    Ok(dict.cast_into::<PyDict>()?)
}

/// What a function of Python makes of these.
pub(crate) fn made<'py, const COUNT: usize>(
    function: &Object<'py>,
    arguments: [PyResult<Object<'py>>; COUNT],
) -> PyResult<Object<'py>> {
    let arguments = arguments.into_iter().collect::<PyResult<Vec<_>>>()?;
    function.call(tuple(function.py(), arguments.into_iter())?, None)
}

/// Lengths and places of what is in memory.
fn length(count: usize) -> ffi::Py_ssize_t {
    count as ffi::Py_ssize_t
}
