//! Functions of SQL: good ones give their results, and of hostile ones each says what it did.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};

use super::functions_guest::{module, module_with};
use crate::{FunctionCall, FunctionEngine, FunctionModule, GuestMemory};

/// So many bytes.
pub(super) struct AtMost(pub usize);

impl GuestMemory for AtMost {
    fn grow(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(bytes).ok_or("the session has no more")?;
        Ok(())
    }
}

pub(super) fn compile(text: &str) -> Result<Arc<FunctionModule>, String> {
    let bytes = wat::parse_str(text).unwrap();
    FunctionEngine::shared().unwrap().compile(&bytes, None).map_err(|error| error.to_string())
}

fn call(export: &str, arguments: &[ArrayRef], returns: &DataType, called_on_null: bool) -> Result<ArrayRef, String> {
    let module = compile(&module()).unwrap();
    let rows = arguments.first().map_or(1, |array| array.len());
    let memory = || Box::new(AtMost(64 << 20)) as Box<dyn GuestMemory>;
    FunctionCall { module: &module, export, returns, called_on_null }.rows(arguments, rows, &memory)
}

fn numbers(values: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Int64Array>())
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(values.iter().copied().collect::<StringViewArray>())
}

#[test]
fn results_are_those_of_the_rows() {
    // More rows than one call takes, NULLs, and a slice that begins within a byte of its bits.
    let values: Vec<Option<i64>> = (0..20_011).map(|row| (row % 5 != 3).then_some(row * 7 - 60_000)).collect();
    let array = numbers(values.iter().copied()).slice(3, 20_000);
    let twin = |value: i64| (value & 65_535) * 31 + 7;
    let mixed = call("mix", &[Arc::clone(&array)], &DataType::Int64, false).unwrap();
    let wanted: Int64Array = array.as_primitive::<Int64Type>().iter().map(|value| value.map(twin)).collect();
    assert_eq!(mixed.as_primitive::<Int64Type>(), &wanted);
    let odd = call("is_odd", &[Arc::clone(&array)], &DataType::Boolean, false).unwrap();
    let wanted: BooleanArray =
        array.as_primitive::<Int64Type>().iter().map(|value| value.map(|value| value & 1 == 1)).collect();
    assert_eq!(odd.as_boolean(), &wanted);
    let filled = call("or_zero", &[Arc::clone(&array)], &DataType::Int64, true).unwrap();
    let wanted: Int64Array = array.as_primitive::<Int64Type>().iter().map(|value| Some(value.unwrap_or(0))).collect();
    assert_eq!(filled.as_primitive::<Int64Type>(), &wanted);
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(f64::INFINITY), Some(3.0)]));
    let halves = call("half", &[floats], &DataType::Float64, false).unwrap();
    let halves: Vec<Option<u64>> = halves.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect();
    assert_eq!(halves, [Some(-0.0), None, Some(f64::INFINITY), Some(1.5)].map(|value: Option<f64>| value.map(f64::to_bits)));
}

#[test]
fn texts_come_and_go() {
    let array = texts(&[Some("x"), Some(""), None, Some("a text that is longer than a view holds"), Some("é")]);
    assert_eq!(&call("same", &[Arc::clone(&array)], &DataType::Utf8View, false).unwrap(), &array);
    let lengths = call("length", &[Arc::clone(&array)], &DataType::Int64, false).unwrap();
    assert_eq!(lengths.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(1), Some(0), None, Some(39), Some(2)]));
    // Together they are more than one call takes.
    let long = "0123456789abcdef".repeat(1 << 12);
    let many: Vec<Option<&str>> = (0..600).map(|row| (row % 7 != 0).then_some(&long[row..])).collect();
    assert_eq!(&call("same", &[texts(&many)], &DataType::Utf8View, false).unwrap(), &texts(&many));
}

/// They counted once all calls were over, by when they could be any number of times what the session has.
#[test]
fn results_of_several_calls_count_as_they_come() {
    let long = "0123456789abcdef".repeat(1 << 12);
    let many: ArrayRef = Arc::new((0..600).map(|row| Some(&long[row..])).collect::<StringViewArray>());
    let module = compile(&module()).unwrap();
    let same = FunctionCall { module: &module, export: "same", returns: &DataType::Utf8View, called_on_null: false };
    let within = |bytes: usize| same.rows(&[Arc::clone(&many)], 600, &|| Box::new(AtMost(bytes))).map(|results| results.len());
    assert_eq!(within(24 << 20), Err("the session has no more".to_owned()));
    assert_eq!(within(64 << 20), Ok(600));
}

#[test]
fn no_rows_need_no_call() {
    assert_eq!(call("traps", &[numbers([])], &DataType::Int64, false).unwrap().len(), 0);
}

#[test]
fn hostile_functions_say_what_they_did() {
    let number = || vec![numbers([Some(1), Some(2), Some(3)])];
    let cause = |export: &str, returns: &DataType| call(export, &number(), returns, false).unwrap_err();
    for (export, wanted) in [
        ("fails", "it does not like tha"),
        ("traps", "it gave up (it reached an `unreachable` instruction)"),
        ("divides", "it trapped: wasm trap: integer divide by zero"),
        ("recurses", "it recursed until its stack of 1 MiB was used up"),
        ("gives_code", "it returned the code 5"),
        ("reads_beyond", "it accessed memory beyond its own"),
        ("grows", "it asked for more memory than there is: the session has no more"),
    ] {
        assert_eq!(cause(export, &DataType::Int64), wanted, "{export}");
    }
    for (export, wanted) in [
        ("lies_about_memory", "it says that its texts are 64 bytes at 0xfffffff0, beyond its memory of"),
        ("lies_about_length", "the offsets of its texts go from 0 to 0 and have to rise within the 0 bytes that it wrote"),
        ("falls", "the offsets of its texts go from 4 to 0 and have to rise within the 20 bytes that it wrote"),
        ("no_text", "its texts are not UTF-8: "),
    ] {
        let cause = cause(export, &DataType::Utf8View);
        assert!(cause.starts_with(wanted), "{export}: {cause}");
    }
    let missing = cause("missing", &DataType::Int64);
    assert!(missing.starts_with("its module has no function missing; it has mix, "), "{missing}");
    assert_eq!(cause("mix", &DataType::Date32), "functions know no Date32");
}

#[test]
fn a_loop_ends_after_the_time_of_its_rows() {
    let start = Instant::now();
    let cause = call("loops", &[numbers([Some(1)])], &DataType::Int64, false).unwrap_err();
    assert_eq!(cause, "it ran for longer than the 500.1ms that it may take for these rows");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn nothing_stays_from_one_batch_to_the_next() {
    let counter = r#"(global $count (mut i64) (i64.const 0))
        (func (export "pithead_function_count") (param $frame i32) (result i32)
            (global.set $count (i64.add (global.get $count) (i64.const 1)))
            (i64.store (i32.load offset=8 (i32.load offset=12 (local.get $frame))) (global.get $count))
            (i32.const 0))"#;
    let module = compile(&module_with(counter)).unwrap();
    let memory = || Box::new(AtMost(1 << 20)) as Box<dyn GuestMemory>;
    let call = FunctionCall { module: &module, export: "count", returns: &DataType::Int64, called_on_null: false };
    for _ in 0..3 {
        let counted = call.rows(&[numbers([Some(5)])], 1, &memory).unwrap();
        assert_eq!(counted.as_primitive::<Int64Type>().value(0), 1);
    }
}

#[test]
fn what_is_no_module_of_functions_is_refused() {
    let text = module();
    for (from, to, wanted) in [
        ("pithead_function_abi_1", "pithead_abi_1", "it holds no functions of SQL: it does not export pithead_function_abi_1"),
        ("pithead_function_abi_1", "pithead_function_abi_2", "it was built for another version of the interface: it exports"),
        ("(export \"memory\")", "", "it does not export its memory as `memory`"),
        ("\"pithead_allocate\"", "\"allocate\"", "it does not export the function pithead_allocate"),
        ("\"fail\"", "\"file_open\"", "it imports pithead.file_open, which functions do not have"),
        (
            "(import \"pithead\" \"fail\" (func $fail (param i32 i32)))",
            "(func $fail (param i64))",
            "it is no WebAssembly module",
        ),
    ] {
        let Ok(bytes) = wat::parse_str(text.replacen(from, to, 1)) else { continue };
        let error = FunctionEngine::shared().unwrap().compile(&bytes, None).unwrap_err().to_string();
        assert!(error.starts_with("the module of a function: ") && error.contains(wanted), "{to}: {error}");
    }
    let shared = FunctionEngine::shared().unwrap();
    for bytes in [&b""[..], b"\0asm", b"#!/bin/sh"] {
        assert!(shared.compile(bytes, None).is_err());
    }
    let bad_place = text.replacen("(i32.const 65536))\n            (func", "(i32.const 12))\n            (func", 1);
    assert_ne!(bad_place, text);
    let module = compile(&bad_place).unwrap();
    let memory = || Box::new(AtMost(1 << 20)) as Box<dyn GuestMemory>;
    let call = FunctionCall { module: &module, export: "mix", returns: &DataType::Int64, called_on_null: false };
    let cause = call.rows(&[numbers([Some(5)])], 1, &memory).unwrap_err();
    assert!(cause.starts_with("its pithead_allocate returned 0xc for "), "{cause}");
}
