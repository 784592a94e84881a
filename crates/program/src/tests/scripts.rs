//! Host calls in any order with any numbers: a guest that runs scripts, and scripts at random.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{Place, block_on};
use crate::{Argument, Limits, ProgramError, Value};

/// Calls with their parameters, `i` for 32 bits and `I` for 64, and whether they return something. Those that would wait for
/// others have nothing to wait for here.
const CALLS: &[(&str, &str, &str, &str)] = &[
    ("pithead", "declare", "ii", ""),
    ("pithead", "arguments", "ii", "i"),
    ("pithead", "log", "iii", ""),
    ("pithead", "fail", "ii", ""),
    ("pithead", "random", "ii", ""),
    ("pithead", "time_ns", "", "I"),
    ("pithead", "yield", "", ""),
    ("pithead", "input_get", "iii", "i"),
    ("pithead", "input_wait", "i", ""),
    ("pithead", "input_close", "i", ""),
    ("pithead", "output_put", "iii", "i"),
    ("pithead", "output_wait", "ii", ""),
    ("pithead", "output_close", "i", ""),
    ("pithead", "file_open", "ii", "i"),
    ("pithead", "file_size", "i", "I"),
    ("pithead", "file_read", "iIii", "i"),
    ("pithead", "file_find", "iIIiiii", "i"),
    ("pithead", "close", "i", ""),
    ("pithead", "value_get", "iiii", "I"),
    ("pithead", "dataset_open", "iiii", "i"),
    ("pithead", "dataset_get", "iii", "i"),
    ("wasi_snapshot_preview1", "fd_write", "iiii", "i"),
    ("wasi_snapshot_preview1", "fd_fdstat_get", "ii", "i"),
    ("wasi_snapshot_preview1", "args_sizes_get", "ii", "i"),
    ("wasi_snapshot_preview1", "clock_time_get", "iIi", "i"),
    ("wasi_snapshot_preview1", "random_get", "ii", "i"),
    ("wasi_snapshot_preview1", "path_open", "iiiiiIIii", "i"),
];

/// Bytes of one step of a script: the call, then nine numbers of 32 bits, from which numbers of 64 bits are read as well.
const STEP_BYTES: usize = 44;

fn runner() -> String {
    let (mut imports, mut steps) = (String::new(), String::new());
    for (number, (module, name, parameters, result)) in CALLS.iter().enumerate() {
        let kinds = |text: &str| text.chars().map(|one| if one == 'i' { " i32" } else { " i64" }).collect::<String>();
        let (takes, gives) = (kinds(parameters), kinds(result));
        let _ = writeln!(imports, "(import \"{module}\" \"{name}\" (func $call{number} (param{takes}) (result{gives})))");
        let numbers: String = parameters
            .chars()
            .enumerate()
            .map(|(place, one)| {
                format!("(i{}.load offset={} (local.get $at))", if one == 'i' { 32 } else { 64 }, 4 + 4 * place)
            })
            .collect();
        let call = format!("(call $call{number} {numbers})");
        let call = if result.is_empty() { call } else { format!("(drop {call})") };
        let _ = writeln!(steps, "(if (i32.eq (i32.load (local.get $at)) (i32.const {number})) (then {call}))");
    }
    let declaration = "name runner\\nargument bytes\\nargument file\\ninput string\\noutput string,u32\\n";
    format!(
        r#"(module {imports}
            (memory (export "memory") 2)
            (data (i32.const 16) "{declaration}")
            (func (export "pithead_abi_1"))
            (func (export "pithead_describe") (call $call0 (i32.const 16) (i32.const {})))
            (func (export "pithead_run") (param i32) (result i32) (local $at i32) (local $end i32)
                (local.set $end (i32.add (i32.const 65536) (call $call1 (i32.const 65536) (i32.const 65536))))
                (local.set $at (i32.const 65540))
                (block $done (loop $next
                    (br_if $done (i32.gt_u (i32.add (local.get $at) (i32.const {STEP_BYTES})) (local.get $end)))
                    {steps}
                    (local.set $at (i32.add (local.get $at) (i32.const {STEP_BYTES})))
                    (br $next)))
                (i32.const 0)))"#,
        declaration.replace("\\n", "\n").len()
    )
}

/// Numbers as a hostile guest picks them: small ones, those about the bounds of its memory, and any.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..40, 2 => 60_000_u32..70_000, 1 => 131_040_u32..131_080, 1 => any::<u32>()]
}

fn script() -> impl Strategy<Value = Vec<u8>> {
    let step = (0..CALLS.len() as u32, proptest::collection::vec(number(), STEP_BYTES / 4 - 1));
    let bytes =
        |(call, numbers): (u32, Vec<u32>)| std::iter::once(call).chain(numbers).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    proptest::collection::vec(step.prop_map(bytes), 1..12).prop_map(|steps| steps.concat())
}

/// Runs a script to its end, and returns how that came.
async fn play(place: &Place, module: &std::sync::Arc<crate::Module>, script: Vec<u8>) -> Result<(), ProgramError> {
    let application = place.application(Limits::default());
    let arguments = [Argument::Value(Value::Bytes(script)), Argument::File("text".to_owned())];
    let ssdlet = application.ssdlet(module, "runner", &arguments).await?;
    let (writer, reader) = (application.writer(&ssdlet.input(0))?, application.reader(&ssdlet.output(0))?);
    application.start()?;
    // It may fail before it reads, which is for the end to tell.
    let _ = writer.put_row(&[Value::String("input".to_owned())]).await;
    drop(writer);
    while let Ok(Some(_)) = reader.get().await {}
    application.wait().await
}

#[test]
fn any_script_ends_well_or_with_its_name() {
    let place = Place::new();
    std::fs::write(place.folder.path().join("text"), "some text to be read ".repeat(5000)).expect("a file");
    let module = block_on(place.load(&runner())).expect("the runner");
    proptest!(ProptestConfig::with_cases(400), |(script in script())| {
        match block_on(play(&place, &module, script)) {
            Ok(()) => {}
            Err(ProgramError::Guest { module, ssdlet, cause }) => {
                prop_assert_eq!((module.as_str(), ssdlet.as_str()), ("test.wasm", "runner"));
                prop_assert!(!cause.is_empty(), "it says why");
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    });
    block_on(play(&place, &module, Vec::new())).expect("it still runs");
}
