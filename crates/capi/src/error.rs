//! The last error of a thread, and bytes that come from C.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Why the last function that failed on this thread did. The text holds until the next failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pithead_last_error() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

/// Runs the body of a function of the interface; what goes wrong is kept for [`pithead_last_error`], and `failed` is returned.
pub(crate) fn guard<T>(failed: T, body: impl FnOnce() -> Result<T, String>) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err("the library itself failed".to_owned()));
    outcome.unwrap_or_else(|text| {
        LAST.set(CString::new(text.replace('\0', " ")).unwrap_or_default());
        failed
    })
}

/// A text from C.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, String> {
    if text.is_null() {
        return Err("a text was expected, not a null pointer".to_owned());
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| "a text is not UTF-8".to_owned())
}

/// Bytes from C.
///
/// # Safety
/// There are `length` bytes at `bytes`, or it is null.
pub(crate) unsafe fn bytes<'a>(bytes: *const u8, length: usize) -> &'a [u8] {
    match bytes.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { std::slice::from_raw_parts(bytes, length) },
    }
}

/// A handle from C.
///
/// # Safety
/// `handle` is null or came from this library and was not freed.
pub(crate) unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T, String> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| "a handle was expected, not a null pointer".to_owned())
}

/// Frees a handle that came from this library.
///
/// # Safety
/// `handle` is null, or came from this library and is used no more.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise; handles are made by `Box::into_raw`.
        drop(unsafe { Box::from_raw(handle) });
    }
}
