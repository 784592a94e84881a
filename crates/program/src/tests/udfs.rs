//! The interface of the crate `arrow-udf`, spoken by guests that are written as text. A guest that is built with the crate is in
//! `tests/functions`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::record_batch::RecordBatch;

use super::functions::{AtMost, compile};
use crate::{FunctionCall, GuestMemory};

/// `f(int64)->int64`.
const EXPORT: &str = "arrowudf_ZihpbnQ2NCktPmludDY0";

/// A guest whose function returns this code, and these bytes.
fn answering(code: i32, answer: &[u8], length: usize) -> String {
    let bytes: String = answer.iter().map(|byte| format!("\\{byte:02x}")).collect();
    format!(
        r#"(module
            (memory (export "memory") 4)
            (global (export "ARROWUDF_VERSION_3_0") i32 (i32.const 0))
            (data (i32.const 65536) "{bytes}")
            (func (export "alloc") (param i32 i32) (result i32)
                (if (result i32) (i32.eq (local.get 0) (i32.const 8)) (then (i32.const 8)) (else (i32.const 1024))))
            (func (export "{EXPORT}") (param i32 i32 i32) (result i32)
                (i32.store (local.get 2) (i32.const 65536))
                (i32.store offset=4 (local.get 2) (i32.const {length}))
                (i32.const {code})))"#
    )
}

fn file(columns: Vec<(&str, ArrayRef)>, options: IpcWriteOptions) -> Vec<u8> {
    let fields: Vec<Field> = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.into_iter().map(|(_, array)| array).collect()).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn numbers(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn ask(code: i32, answer: &[u8], length: usize) -> Result<ArrayRef, String> {
    let module = compile(&answering(code, answer, length))?;
    let memory = || Box::new(AtMost(64 << 20)) as Box<dyn GuestMemory>;
    let call = FunctionCall { module: &module, export: "f", returns: &DataType::Int64, called_on_null: false };
    call.rows(&[numbers(&[1, 2, 3])], 3, &memory)
}

#[test]
fn answers_are_checked() {
    let plain = IpcWriteOptions::default;
    let good = file(vec![("f", numbers(&[7, 8, 9]))], plain());
    assert_eq!(&ask(0, &good, good.len()).unwrap(), &numbers(&[7, 8, 9]));
    let errors: ArrayRef = Arc::new(StringArray::from(vec![None, Some("no\nway"), None]));
    let failed = file(vec![("f", numbers(&[7, 8, 9])), ("error", errors)], plain());
    let few = file(vec![("f", numbers(&[7]))], plain());
    let other = file(vec![("f", Arc::new(Int32Array::from(vec![1, 2, 3])))], plain());
    for (code, answer, length, wanted) in [
        (-1, &b"it is late"[..], 10, "it is late"),
        (-1, b"", 0, "it returned the code -1"),
        (0, &failed, failed.len(), "no way"),
        (0, &few, few.len(), "it answered with 1 rows for 3"),
        (0, &other, other.len(), "its answer is Int32; Int64 was expected"),
        (0, b"ARROW2\0\0", 8, "it is no Arrow IPC file: it does not begin with ARROW1"),
        (0, &good[..good.len() / 2], good.len() / 2, "it is no Arrow IPC stream: a message is cut off"),
        (0, b"", 0, "it is no Arrow IPC file"),
        (0, b"", 1 << 30, "it says that its answer is 1073741824 bytes at 0x10000, beyond its memory"),
    ] {
        let said = ask(code, answer, length).unwrap_err();
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // Bytes that were damaged anywhere are an error or a result, and no more.
    for place in 0..good.len() {
        let mut damaged = good.clone();
        damaged[place] ^= 0x55;
        let _ = crate::arrow_port::from_file(&damaged);
    }
}

/// `f(int64)->>int64`.
const TABLE_EXPORT: &str = "arrowudf_ZihpbnQ2NCktPj5pbnQ2NA";

/// A guest whose iterator gives these bytes so often.
fn iterating(answer: &[u8], times: u32) -> String {
    let bytes: String = answer.iter().map(|byte| format!("\\{byte:02x}")).collect();
    format!(
        r#"(module
            (memory (export "memory") 4)
            (global (export "ARROWUDF_VERSION_3_0") i32 (i32.const 0))
            (global $left (mut i32) (i32.const {times}))
            (data (i32.const 65536) "{bytes}")
            (func (export "alloc") (param i32 i32) (result i32)
                (if (result i32) (i32.eq (local.get 0) (i32.const 8)) (then (i32.const 8)) (else (i32.const 1024))))
            (func (export "dealloc") (param i32 i32 i32))
            (func (export "record_batch_iterator_next") (param i32 i32)
                (i32.store (local.get 1) (i32.const 65536))
                (i32.store offset=4 (local.get 1) (if (result i32) (global.get $left) (then (i32.const {length})) (else (i32.const 0))))
                (global.set $left (i32.sub (global.get $left) (i32.ne (global.get $left) (i32.const 0)))))
            (func (export "{TABLE_EXPORT}") (param i32 i32 i32) (result i32)
                (i32.store (local.get 2) (i32.const 16))
                (i32.const 0)))"#,
        length = answer.len(),
    )
}

fn ask_for_sets(answer: &[u8], times: u32) -> Result<ArrayRef, String> {
    ask_within(1 << 20, answer, times)
}

fn ask_within(bytes: usize, answer: &[u8], times: u32) -> Result<ArrayRef, String> {
    let module = compile(&iterating(answer, times))?;
    let memory = || Box::new(AtMost(bytes)) as Box<dyn GuestMemory>;
    let returns = DataType::new_list(DataType::Int64, true);
    let call = FunctionCall { module: &module, export: "f", returns: &returns, called_on_null: false };
    call.rows(&[numbers(&[1, 2, 3])], 3, &memory)
}

#[test]
fn answers_of_table_functions_are_checked() {
    let sets = |rows: &[i32], results: &[i64]| {
        let rows: ArrayRef = Arc::new(Int32Array::from(rows.to_vec()));
        file(vec![("row", rows), ("f", numbers(results))], IpcWriteOptions::default())
    };
    let lists = |answer: &[u8], times: u32| -> Vec<Vec<i64>> {
        let found = ask_for_sets(answer, times).unwrap();
        let lists = found.as_list::<i32>().iter().map(|list| list.unwrap().as_primitive::<Int64Type>().values().to_vec());
        lists.collect::<Vec<_>>()
    };
    assert_eq!(lists(&sets(&[0, 0, 2], &[7, 8, 9]), 1), [vec![7, 8], vec![], vec![9]]);
    assert_eq!(lists(&sets(&[2], &[5]), 3), [vec![], vec![], vec![5, 5, 5]]);
    assert_eq!(lists(&sets(&[], &[]), 2), vec![Vec::<i64>::new(); 3]);
    let one = |name: &str, array: ArrayRef| file(vec![(name, array)], IpcWriteOptions::default());
    let wide = file(vec![("row", numbers(&[0])), ("f", numbers(&[7]))], IpcWriteOptions::default());
    let unknown: ArrayRef = Arc::new(Int32Array::from(vec![Some(0), None]));
    let unknown = file(vec![("row", unknown), ("f", numbers(&[7, 8]))], IpcWriteOptions::default());
    let failed: Vec<(&str, ArrayRef)> = vec![
        ("row", Arc::new(Int32Array::from(vec![1]))),
        ("f", numbers(&[0])),
        ("error", Arc::new(StringArray::from(vec!["not today"]))),
    ];
    let out_of_order = "its results are not in the order of the 3 rows that it was given";
    for (answer, times, wanted) in [
        (sets(&[2, 0], &[7, 8]), 1, out_of_order),
        (sets(&[0, 2], &[7, 8]), 2, out_of_order),
        (sets(&[3], &[7]), 1, out_of_order),
        (sets(&[-1], &[7]), 1, out_of_order),
        (wide, 1, "its answer says of which row a result is by Int64; int32 was expected"),
        (unknown, 1, "int32 was expected"),
        (one("row", Arc::new(Int32Array::from(vec![0]))), 1, "its answer has 1 columns; rows and results were expected"),
        (file(failed, IpcWriteOptions::default()), 1, "not today"),
        (b"ARROW1".to_vec(), 1, "it is no Arrow IPC file"),
        (sets(&[0; 1_000], &[1; 1_000]), u32::MAX, "the session has no more"),
    ] {
        let said = ask_for_sets(&answer, times).unwrap_err();
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

/// However much memory there is for what it gives.
#[test]
fn a_table_function_ends_after_the_time_of_its_rows() {
    let nothing = file(
        vec![("row", Arc::new(Int32Array::from(Vec::<i32>::new())) as ArrayRef), ("f", numbers(&[]))],
        IpcWriteOptions::default(),
    );
    let said = ask_within(usize::MAX, &nothing, u32::MAX).unwrap_err();
    assert_eq!(said, "it ran for longer than the 500.3ms that it may take for these rows");
}

#[test]
fn modules_are_checked() {
    let text = answering(0, b"", 0);
    for (from, to, wanted) in [
        ("VERSION_3_0", "VERSION_4_0", "it exports ARROWUDF_VERSION_4_0; of the interface of arrow-udf versions 3.x are known"),
        ("arrowudf_Zihp", "arrowudf_-ihp", "has no signature in base64 behind arrowudf_"),
        ("arrowudf_Zihp", "other_Zihp", "it exports no function whose name begins with arrowudf_"),
        ("\"alloc\"", "\"malloc\"", "it does not export the function alloc"),
    ] {
        let said = compile(&text.replacen(from, to, 1)).unwrap_err();
        assert!(said.contains(wanted), "{to}: {said}");
    }
    let module = compile(&text).unwrap();
    assert_eq!(module.functions(), ["f(int64)->int64"]);
    let memory = || Box::new(AtMost(1 << 20)) as Box<dyn GuestMemory>;
    let call = FunctionCall { module: &module, export: "f", returns: &DataType::Utf8View, called_on_null: false };
    let said = call.check(&[DataType::Int32], &memory).unwrap_err();
    assert_eq!(said, "its module has no function f(int32)->string; it has f(int64)->int64");
}
