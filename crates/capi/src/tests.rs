//! The interface as C sees it, by raw pointers.

use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

use crate::*;

fn c(text: &str) -> CString {
    CString::new(text).expect("no zero bytes")
}

fn last() -> String {
    // SAFETY: the text holds until the next failure.
    unsafe { CStr::from_ptr(pithead_last_error()) }.to_str().expect("UTF-8").to_owned()
}

const PASS: &str = r#"(module
    (import "pithead" "declare" (func $declare (param i32 i32)))
    (import "pithead" "input_get" (func $get (param i32 i32 i32) (result i32)))
    (import "pithead" "output_put" (func $put (param i32 i32 i32) (result i32)))
    (import "pithead" "input_wait" (func $wait (param i32)))
    (memory (export "memory") 3)
    (data (i32.const 16) "name pass\ninput i64\noutput i64\nargument file\n")
    (func (export "pithead_abi_1"))
    (func (export "pithead_describe") (call $declare (i32.const 16) (i32.const 45)))
    (func (export "pithead_run") (param i32) (result i32) (local $length i32)
        (block $end (loop $next
            (local.set $length (call $get (i32.const 0) (i32.const 65536) (i32.const 65536)))
            (br_if $end (i32.eqz (local.get $length)))
            (if (i32.eq (local.get $length) (i32.const -2)) (then (call $wait (i32.const 0)) (br $next)))
            (drop (call $put (i32.const 0) (i32.const 65536) (local.get $length)))
            (br $next)))
        (i32.const 0)))"#;

#[test]
fn a_host_program_talks_to_an_ssdlet() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("pass.wasm"), wat::parse_str(PASS).expect("a module")).expect("a file");
    let path = c(folder.path().to_str().expect("UTF-8"));
    // SAFETY: all handles are live until they are freed, and all texts end with zero bytes.
    unsafe {
        let ssd = pithead_ssd_open(path.as_ptr());
        assert!(!ssd.is_null(), "{}", last());
        assert_eq!(pithead_module_load(ssd, c("none.wasm").as_ptr()), 0);
        assert_eq!(last(), "there is no file \"none.wasm\"");
        let module = pithead_module_load(ssd, c("pass.wasm").as_ptr());
        assert_ne!(module, 0, "{}", last());
        let application = pithead_application_new(ssd, c("test").as_ptr());
        let argument = [9_u8, 0, 0, 0, b'p', b'a', b's', b's', b'.', b'w', b'a', b's', b'm'];
        let (name, file) = (c("pass"), c("file"));
        let ssdlet =
            pithead_ssdlet_new(ssd, application, module, name.as_ptr(), file.as_ptr(), argument.as_ptr(), argument.len());
        assert_eq!(ssdlet, 0, "{}", last());
        assert_eq!(pithead_ssdlet_new(ssd, application, module, name.as_ptr(), c("").as_ptr(), null(), 0), -1);
        assert_eq!(last(), "the arguments of pass in the module pass.wasm are file, not none");
        assert!(pithead_reader_new(application, ssdlet, 0, c("u64").as_ptr()).is_null());
        assert_eq!(last(), "the port carries i64, and the host program asks for u64");
        let reader = pithead_reader_new(application, ssdlet, 0, c("i64").as_ptr());
        let writer = pithead_writer_new(application, ssdlet, 0, c("i64").as_ptr());
        assert_eq!(pithead_application_start(application), 1, "{}", last());
        let value = 7_i64.to_le_bytes();
        assert_eq!(pithead_writer_put(writer, value.as_ptr(), 7), -1, "seven bytes are no row");
        assert_eq!(pithead_writer_put(writer, value.as_ptr(), 8), 1, "{}", last());
        let (mut batch, mut length) = (null(), 0);
        assert_eq!(pithead_reader_get(reader, &raw mut batch, &raw mut length), 1, "{}", last());
        assert_eq!(std::slice::from_raw_parts(batch, length), value);
        pithead_writer_free(writer);
        assert_eq!(pithead_reader_get(reader, &raw mut batch, &raw mut length), 0);
        assert_eq!(pithead_application_wait(application), 1, "{}", last());
        assert_eq!(pithead_module_unload(ssd, module), 1);
        assert_eq!(pithead_module_unload(ssd, module), -1);
        pithead_reader_free(reader);
        pithead_application_free(application);
        pithead_ssd_close(ssd);
    }
}

#[test]
fn null_pointers_are_errors() {
    // SAFETY: null is what the functions look for.
    unsafe {
        assert!(pithead_ssd_open(null()).is_null());
        assert_eq!(last(), "a text was expected, not a null pointer");
        assert_eq!(pithead_module_load(null(), null()), 0);
        assert_eq!(last(), "a handle was expected, not a null pointer");
        assert_eq!(pithead_application_start(null()), -1);
        assert_eq!(pithead_reader_get(null_mut(), null_mut(), null_mut()), -1);
        pithead_application_free(null_mut());
    }
}
