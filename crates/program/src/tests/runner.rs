//! A guest that runs scripts of host calls. The fuzzer has this file, too.

use std::fmt::Write as _;

/// Calls with their parameters, `i` for 32 bits and `I` for 64, and whether they return something. Those that would wait for
/// others have nothing to wait for here.
pub const CALLS: &[(&str, &str, &str, &str)] = &[
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
pub const STEP_BYTES: usize = 44;

/// The guest's text. Its arguments are a script and a file, its ports one of each kind.
pub fn runner() -> String {
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
