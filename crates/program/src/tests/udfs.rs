//! The interface of the crate `arrow-udf`, spoken by guests that are written as text. A guest that is built with the crate is in
//! `tests/functions`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
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
