//! Modules that are loaded into drives, and the host calls of those that run.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, Int64Array, StringViewArray};
use arrow::datatypes::DataType;
use pithead_fuzz::{Bound, Outcome, Parts, Seed, Target};
use pithead_program::{
    Argument, FolderServices, FunctionCall, FunctionEngine, GuestMemory, Limits, Module, ProgramError, Runtime, RuntimeOptions,
    Services, Value,
};
use pithead_sched::{Pool, PoolOptions};
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::functions_guest;
use crate::guests::{PASS, guest};
use crate::runner::{CALLS, STEP_BYTES, runner};

pub const NAMES: [&str; 3] = ["program_module", "program_calls", "program_function"];

/// Compiling takes some hundred times the code, and an SSDlet may have 128 MiB while it declares itself.
const BOUND: Bound = Bound { bytes: 160 << 20, factor: 1 << 14 };

/// A sandbox over a folder with one file.
struct Rig {
    runtime: Arc<Runtime>,
    services: Arc<dyn Services>,
    _folder: TempDir,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("text"), "some text to be read ".repeat(5_000)).expect("a file");
        let services = Arc::new(FolderServices::new(folder.path()).expect("services"));
        let pool = PoolOptions { name: "fuzz".to_owned(), cores: None, reactors: 1, blocking_threads_max: 2 };
        let options = RuntimeOptions { instances_max: 8, code_bytes_max: 1 << 20, ..RuntimeOptions::default() };
        let runtime = Runtime::new(Arc::new(Pool::new(pool).expect("a pool")), options).expect("a runtime");
        Self { runtime, services, _folder: folder }
    }

    fn load(&self, bytes: &[u8]) -> Result<Arc<Module>, ProgramError> {
        block_on(self.runtime.load("fuzz", bytes.to_vec().into(), &self.services))
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

pub fn targets() -> Vec<Target> {
    let rig = Arc::new(Rig::new());
    let caller = Arc::clone(&rig);
    let module = rig.load(&parsed(&runner())).expect("the runner is a module");
    vec![
        Target {
            name: "program_module",
            seeds: module_seeds(),
            parts: Parts { split: |bytes| Some(sections(bytes)), join: |parts| parts.concat(), piece: 1 },
            bound: BOUND,
            run: Box::new(move |bytes| judged(rig.load(bytes).map(drop))),
        },
        Target {
            name: "program_calls",
            seeds: script_seeds(),
            parts: Parts {
                split: |bytes| Some(bytes.chunks(STEP_BYTES).map(<[u8]>::to_vec).collect()),
                join: |parts| parts.concat(),
                piece: 1,
            },
            bound: BOUND,
            run: Box::new(move |bytes| judged(block_on(play(&caller, &module, bytes)))),
        },
        Target {
            name: "program_function",
            seeds: function_seeds(),
            parts: Parts { split: |bytes| Some(sections(bytes)), join: |parts| parts.concat(), piece: 1 },
            bound: BOUND,
            run: Box::new(|bytes| judged(call_all(bytes))),
        },
    ]
}

/// What is a guest's doing is said to be one's; the sandbox itself must not fail.
fn judged(outcome: Result<(), ProgramError>) -> Outcome {
    match outcome {
        Ok(()) => Outcome::Accepted,
        Err(ProgramError::Engine(why)) => Outcome::Wrong(format!("the sandbox failed: {why}")),
        Err(_) => Outcome::Refused,
    }
}

/// Runs a script of host calls to its end.
async fn play(rig: &Rig, module: &Arc<Module>, script: &[u8]) -> Result<(), ProgramError> {
    let limits = Limits { memory_bytes_max: 16 << 20, run_time_max: Duration::from_secs(1), ..Limits::default() };
    let application = rig.runtime.application("fuzz", Arc::clone(&rig.services), limits);
    let script = &script[..script.len().min(40 * STEP_BYTES)];
    let arguments = [Argument::Value(Value::Bytes(script.to_vec())), Argument::File("text".to_owned())];
    let ssdlet = application.ssdlet(module, "runner", &arguments).await?;
    let (writer, reader) = (application.writer(&ssdlet.input(0))?, application.reader(&ssdlet.output(0))?);
    application.start()?;
    // One that failed before it read says so at its end.
    let _ = writer.put_row(&[Value::String("input".to_owned())]).await;
    drop(writer);
    while let Ok(Some(_)) = reader.get().await {}
    application.wait().await
}

/// The memory of a function that is called.
struct Room(usize);

impl GuestMemory for Room {
    fn grow(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(bytes).ok_or("no more")?;
        Ok(())
    }
}

/// Calls all functions of a module on a few rows. What they do there is their doing, as long as it is said.
fn call_all(bytes: &[u8]) -> Result<(), ProgramError> {
    let module = FunctionEngine::shared()?.compile(bytes, None)?;
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(-7), Some(1 << 40), Some(0)]));
    let texts: ArrayRef =
        Arc::new(StringViewArray::from(vec![Some("a"), Some("a text that is long"), None, Some(""), Some("é")]));
    let memory = || Box::new(Room(64 << 20)) as Box<dyn GuestMemory>;
    for export in module.functions().iter().take(4) {
        for (argument, returns) in [(&numbers, &DataType::Int64), (&texts, &DataType::Utf8View)] {
            let call = FunctionCall { module: &module, export, returns, called_on_null: true };
            if let Ok(result) = call.rows(&[Arc::clone(argument)], 5, &memory) {
                result.to_data().validate_full().map_err(|error| ProgramError::Engine(error.to_string().into()))?;
            }
        }
    }
    Ok(())
}

fn function_seeds() -> Vec<Seed> {
    let all = functions_guest::module();
    vec![
        Seed::valid("functions", parsed(&all)),
        Seed::hostile("no-functions", parsed("(module)")),
        Seed::hostile("no-memory", parsed(&all.replace("(export \"memory\")", ""))),
        Seed::hostile("another-version", parsed(&all.replace("abi_1", "abi_2"))),
    ]
}

fn parsed(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("a module")
}

/// The head of a module, and its sections: a number, a length as LEB128, and bytes.
fn sections(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (head, mut rest) = bytes.split_at(bytes.len().min(8));
    let mut parts = vec![head.to_vec()];
    while !rest.is_empty() {
        let digits = rest.iter().skip(1).take(5).take_while(|byte| **byte & 0x80 != 0).count() + 1;
        let length = rest.iter().skip(1).take(digits).rev().fold(0_usize, |sum, byte| (sum << 7) | usize::from(*byte & 0x7f));
        let (section, behind) = rest.split_at(rest.len().min(length.saturating_add(1 + digits)));
        parts.push(section.to_vec());
        rest = behind;
    }
    parts
}

fn module_seeds() -> Vec<Seed> {
    let texts = "name idPass\ninput string\noutput string\n";
    let hostile = |name, text: &str| Seed::hostile(name, parsed(text));
    let describing = |body: &str| {
        guest(&[], "").replace("(export \"pithead_describe\") ", &format!("(export \"pithead_describe\") {body} "))
    };
    vec![
        Seed::valid("pass", parsed(&guest(&[texts], PASS))),
        Seed::valid("runner", parsed(&runner())),
        Seed::hostile("text", *b"#!/bin/sh"),
        Seed::hostile("head", *b"\0asm\x01\0\0\0"),
        hostile("nothing", "(module)"),
        hostile("no-declaration", &describing("")),
        hostile("gives-up", &describing("unreachable")),
        hostile("asks", &describing("(drop (call $value_get (i32.const 0) (i32.const 9) (i32.const 64) (i32.const 64)))")),
        hostile(
            "large-memory",
            &guest(&[texts], "").replace("(memory (export \"memory\") 4)", "(memory (export \"memory\") 65536)"),
        ),
    ]
}

/// One step for each call with small numbers, and all of them.
fn script_seeds() -> Vec<Seed> {
    let step = |call: usize| -> Vec<u8> {
        std::iter::once(call as u32).chain((0..STEP_BYTES as u32 / 4 - 1).map(|at| at * 3)).flat_map(u32::to_le_bytes).collect()
    };
    let mut seeds: Vec<Seed> = (0..CALLS.len()).map(|call| Seed::hostile(format!("call-{call}"), step(call))).collect();
    seeds.push(Seed::valid("nothing", Vec::new()));
    // Time, and a turn for others: neither can fail.
    seeds.push(Seed::valid("time", [step(5), step(6)].concat()));
    seeds
}
