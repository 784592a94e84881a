//! Guests that are written as text. Tests of other crates have this file, too.

/// Calls of the drive, each a function of its name.
const IMPORTS: &str = r#"
    (import "pithead" "declare" (func $declare (param i32 i32)))
    (import "pithead" "arguments" (func $arguments (param i32 i32) (result i32)))
    (import "pithead" "log" (func $log (param i32 i32 i32)))
    (import "pithead" "fail" (func $fail (param i32 i32)))
    (import "pithead" "random" (func $random (param i32 i32)))
    (import "pithead" "yield" (func $yield))
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
pub fn guest(declarations: &[&str], body: &str) -> String {
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
pub const PASS: &str = r"
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
