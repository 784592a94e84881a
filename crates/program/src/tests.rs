//! Applications of guests that are written as text, honest and hostile ones.

mod bytes;
mod graphs;
mod hostile;
mod scripts;
mod services;

use std::sync::Arc;
use std::time::Duration;

use bytes_crate::Bytes;
use pithead_sched::{Pool, PoolOptions};

use crate::{Application, FolderServices, HostReader, Limits, Module, ProgramError, Runtime, RuntimeOptions, Services};

use ::bytes as bytes_crate;

/// A runtime on one reactor over an empty folder.
struct Place {
    runtime: Arc<Runtime>,
    services: Arc<dyn Services>,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self::with(RuntimeOptions { instances_max: 16, ..RuntimeOptions::default() })
    }

    fn with(options: RuntimeOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let services = Arc::new(FolderServices::new(folder.path()).expect("services"));
        Self { runtime: Runtime::new(pool(), options).expect("a runtime"), services, folder }
    }

    async fn load(&self, text: &str) -> Result<Arc<Module>, ProgramError> {
        self.load_bytes(wat::parse_str(text).expect("a module")).await
    }

    async fn load_bytes(&self, bytes: Vec<u8>) -> Result<Arc<Module>, ProgramError> {
        self.runtime.load("test.wasm", Bytes::from(bytes), &self.services).await
    }

    fn application(&self, limits: Limits) -> Application {
        self.runtime.application("test", Arc::clone(&self.services), limits)
    }
}

fn pool() -> Arc<Pool> {
    let options = PoolOptions { name: "test".to_owned(), cores: None, reactors: 1, blocking_threads_max: 2 };
    Arc::new(Pool::new(options).expect("a pool"))
}

/// Runs a test; a wait without end is a failure.
fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limited = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    runtime.block_on(limited).expect("the test ends")
}

const IMPORTS: &str = r#"
    (import "pithead" "declare" (func $declare (param i32 i32)))
    (import "pithead" "arguments" (func $arguments (param i32 i32) (result i32)))
    (import "pithead" "log" (func $log (param i32 i32 i32)))
    (import "pithead" "fail" (func $fail (param i32 i32)))
    (import "pithead" "random" (func $random (param i32 i32)))
    (import "pithead" "input_get" (func $get (param i32 i32 i32) (result i32)))
    (import "pithead" "output_put" (func $put (param i32 i32 i32) (result i32)))
    (import "pithead" "input_wait" (func $input_wait (param i32)))
    (import "pithead" "output_wait" (func $output_wait (param i32 i32)))
    (import "pithead" "file_open" (func $file_open (param i32 i32) (result i32)))
    (import "pithead" "file_read" (func $file_read (param i32 i64 i32 i32) (result i32)))
    (import "pithead" "file_find" (func $file_find (param i32 i64 i64 i32 i32 i32 i32) (result i32)))
    (import "pithead" "value_get" (func $value_get (param i32 i32 i32 i32) (result i64)))
    (import "pithead" "dataset_open" (func $dataset_open (param i32 i32 i32 i32) (result i32)))
    (import "pithead" "dataset_get" (func $dataset_get (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
"#;

/// A module with the declarations given, whose run function has `body`; the local `$number` says which SSDlet is run.
fn guest(declarations: &[&str], body: &str) -> String {
    let mut place = 1024;
    let (mut data, mut calls) = (String::new(), String::new());
    for declaration in declarations {
        data += &format!("(data (i32.const {place}) {declaration:?})\n");
        calls += &format!("(call $declare (i32.const {place}) (i32.const {}))\n", declaration.len());
        place += declaration.len();
    }
    format!(
        r#"(module {IMPORTS}
            (memory (export "memory") 4)
            {data}
            (func (export "pithead_abi_1"))
            (func (export "pithead_describe") {calls})
            (func (export "pithead_run") (param $number i32) (result i32)
                (local $length i32) (local $at i32) (local $count i32)
                {body}
                (i32.const 0)))"#
    )
}

/// Passes all batches of in(0) to out(0), at address 65536.
const PASS: &str = r"
    (block $end (loop $next
        (local.set $length (call $get (i32.const 0) (i32.const 65536) (i32.const 131072)))
        (br_if $end (i32.eqz (local.get $length)))
        (if (i32.eq (local.get $length) (i32.const -2)) (then (call $input_wait (i32.const 0)) (br $next)))
        (if (i32.lt_s (local.get $length) (i32.const 0)) (then unreachable))
        (block $done (loop $again
            (br_if $done (i32.ne (i32.const -2) (call $put (i32.const 0) (i32.const 65536) (local.get $length))))
            (call $output_wait (i32.const 0) (local.get $length))
            (br $again)))
        (br $next)))
";

/// All bytes that a reader gets until the end.
async fn drain(reader: &HostReader) -> Result<Vec<u8>, ProgramError> {
    let mut all = Vec::new();
    while let Some(batch) = reader.get().await? {
        all.extend_from_slice(&batch);
    }
    Ok(all)
}
