//! Arrays of other libraries by Python's buffer protocol, read without the interpreter's lock.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;

/// A buffer's elements. The export keeps the memory where it is.
pub(crate) struct Elements<T: Element>(PyBuffer<T>);

impl<T: Element> Elements<T> {
    pub(crate) fn slice(&self) -> &[T] {
        // SAFETY: `elements` found the buffer contiguous, and its elements to be of type T, for which any bits are a value. It is
        // exported as long as `self` lives. That nobody writes to it meanwhile is asked of the caller.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast::<T>(), self.0.item_count()) }
    }
}

fn elements<T: Element>(object: &Bound<'_, PyAny>) -> Option<Elements<T>> {
    let buffer = PyBuffer::<T>::get(object).ok()?;
    (buffer.is_c_contiguous() && buffer.item_count() > 0).then_some(Elements(buffer))
}

/// Whole numbers of 32 or 64 bits.
pub(crate) enum Whole {
    Narrow(Elements<i32>),
    Wide(Elements<i64>),
    Empty,
}

impl Whole {
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Whole> {
        if object.len().unwrap_or(1) == 0 {
            return Ok(Whole::Empty);
        }
        let narrow = || elements(object).map(Whole::Narrow);
        elements(object).map(Whole::Wide).or_else(narrow).ok_or_else(|| wrong(what, "contiguous int32 or int64"))
    }

    pub(crate) fn to_vec(&self) -> Vec<i64> {
        match self {
            Whole::Narrow(elements) => elements.slice().iter().map(|value| i64::from(*value)).collect(),
            Whole::Wide(elements) => elements.slice().to_vec(),
            Whole::Empty => Vec::new(),
        }
    }
}

/// Values of a matrix.
pub(crate) enum Numbers {
    Single(Elements<f32>),
    Double(Elements<f64>),
    /// Of another type, converted.
    Other(Vec<f64>),
}

impl Numbers {
    pub(crate) fn of(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Numbers> {
        if let Some(single) = elements(object) {
            return Ok(Numbers::Single(single));
        }
        if let Some(double) = elements(object) {
            return Ok(Numbers::Double(double));
        }
        let converted = converted::<i64>(object, |value| value as f64)
            .or_else(|| converted::<i32>(object, f64::from))
            .or_else(|| converted::<u8>(object, f64::from))
            .or_else(|| converted::<u16>(object, f64::from))
            .or_else(|| converted::<u32>(object, f64::from))
            .or_else(|| converted::<u64>(object, |value| value as f64))
            .or_else(|| converted::<i8>(object, f64::from))
            .or_else(|| converted::<i16>(object, f64::from));
        match converted {
            Some(values) => Ok(Numbers::Other(values)),
            None if object.getattr("size").is_ok_and(|size| size.eq(0).unwrap_or(false)) => Ok(Numbers::Other(Vec::new())),
            None => Err(wrong(what, "contiguous float32, float64 or whole numbers of 8 to 64 bits")),
        }
    }
}

fn converted<T: Element>(object: &Bound<'_, PyAny>, to: impl Fn(T) -> f64) -> Option<Vec<f64>> {
    elements::<T>(object).map(|elements| elements.slice().iter().map(|value| to(*value)).collect())
}

/// An array of exactly this type; none: an empty one.
pub(crate) fn exactly<T: Element>(object: &Bound<'_, PyAny>, what: &str, wanted: &str) -> PyResult<Vec<T>> {
    if object.getattr("size").is_ok_and(|size| size.eq(0).unwrap_or(false)) {
        return Ok(Vec::new());
    }
    elements(object).map(|elements| elements.slice().to_vec()).ok_or_else(|| wrong(what, &format!("contiguous {wanted}")))
}

fn wrong(what: &str, wanted: &str) -> PyErr {
    errors::user(format!("{what}: expected an array of {wanted}"), "numpy.ascontiguousarray(…, dtype=…) makes one")
}

/// The memory of numbers, copied.
pub(crate) fn bytes_of<'py, T: Element>(py: Python<'py>, values: &[T]) -> Bound<'py, PyBytes> {
    // SAFETY: numbers have no padding, and any of their bytes is a byte; the slice is borrowed for as long.
    PyBytes::new(py, unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) })
}
