//! Functions of SQL that are written as text. Tests of other crates have this file, too.

/// A loop over the rows; `$i` is the row.
fn each(body: &str) -> String {
    format!(
        "(block $end (loop $next
            (br_if $end (i32.ge_u (local.get $i) (i32.load (local.get $frame))))
            {body}
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $next)))"
    )
}

/// The address of an argument's buffer: 4 for validity, 8 for values, 12 for texts.
fn argument(number: u32, buffer: u32) -> String {
    let offset = number * 24 + buffer;
    format!("(i32.load offset={offset} (i32.load offset=8 (local.get $frame)))")
}

fn result(buffer: u32) -> String {
    format!("(i32.load offset={buffer} (i32.load offset=12 (local.get $frame)))")
}

/// The address of a row's value of so many bytes.
fn row(buffer: &str, bytes: u32) -> String {
    format!("(i32.add {buffer} (i32.mul (local.get $i) (i32.const {bytes})))")
}

/// Sets a row's bit.
fn set_bit(bits: &str, value: &str) -> String {
    let byte = format!("(i32.add {bits} (i32.shr_u (local.get $i) (i32.const 3)))");
    format!(
        "(i32.store8 {byte} (i32.or (i32.load8_u {byte})
            (i32.shl {value} (i32.and (local.get $i) (i32.const 7)))))"
    )
}

fn bit(bits: &str) -> String {
    format!(
        "(i32.and (i32.const 1) (i32.shr_u (i32.load8_u (i32.add {bits} (i32.shr_u (local.get $i) (i32.const 3))))
            (i32.and (local.get $i) (i32.const 7))))"
    )
}

fn function(name: &str, body: &str) -> String {
    format!(
        r#"(func $f_{name} (export "pithead_function_{name}") (param $frame i32) (result i32)
            (local $i i32)
            {body}
            (i32.const 0))"#
    )
}

/// A module with these functions beside its own `more`.
pub fn module_with(more: &str) -> String {
    let number = row(&argument(0, 8), 8);
    let into = row(&result(8), 8);
    let store = |value: &str| each(&format!("(i64.store {into} {value})"));
    let mix = format!("(i64.add (i64.mul (i64.and (i64.load {number}) (i64.const 65535)) (i64.const 31)) (i64.const 7))");
    let length = format!("(i64.extend_i32_u (i32.sub (i32.load offset=4 {at}) (i32.load {at})))", at = row(&argument(0, 8), 4));
    let same = format!(
        "(memory.copy {to} {from} (i32.mul (i32.const 4) (i32.add (i32.const 1) (i32.load (local.get $frame)))))
         (i32.store offset=12 (i32.load offset=12 (local.get $frame)) {text})
         (i32.store offset=16 (i32.load offset=12 (local.get $frame)) {bytes})",
        to = result(8),
        from = argument(0, 8),
        text = argument(0, 12),
        bytes = argument(0, 16),
    );
    let is_odd = each(&set_bit(&result(8), &format!("(i32.wrap_i64 (i64.and (i64.load {number}) (i64.const 1)))")));
    let half = each(&format!("(f64.store {into} (f64.mul (f64.load {number}) (f64.const 0.5)))"));
    let is_there = format!(
        "(if (result i32) (i32.eqz {validity}) (then (i32.const 1)) (else {bit}))",
        validity = argument(0, 4),
        bit = bit(&argument(0, 4))
    );
    let or_zero =
        each(&format!("(i64.store {into} (if (result i64) {is_there} (then (i64.load {number})) (else (i64.const 0))))"));
    let functions = [
        ("mix", store(&mix)),
        ("length", store(&length)),
        ("same", same),
        ("is_odd", is_odd),
        ("half", half),
        ("or_zero", or_zero),
        ("fails", r#"(call $fail (i32.const 16) (i32.const 20))"#.to_owned()),
        ("loops", "(loop $again (br $again))".to_owned()),
        ("traps", "unreachable".to_owned()),
        ("divides", "(drop (i32.div_u (i32.const 1) (i32.const 0)))".to_owned()),
        ("grows", "(loop $again (drop (memory.grow (i32.const 16))) (br $again))".to_owned()),
        ("recurses", "(return (call $f_recurses (local.get $frame)))".to_owned()),
        ("gives_code", "(return (i32.const 5))".to_owned()),
        ("reads_beyond", "(drop (i32.load (i32.const -8)))".to_owned()),
        // Texts beyond the memory, beyond what was written, with falling offsets, and that are no UTF-8.
        (
            "lies_about_memory",
            format!(
                "(i32.store offset=12 {it} (i32.const -16)) (i32.store offset=16 {it} (i32.const 64))",
                it = "(i32.load offset=12 (local.get $frame))"
            ),
        ),
        (
            "lies_about_length",
            format!("(i32.store {at} (i32.const 1000000))", at = format_args!("(i32.add {} (i32.const 4))", result(8))),
        ),
        (
            "falls",
            format!(
                "(i32.store {values} (i32.const 4))
                 (i32.store offset=12 {it} (i32.const 16)) (i32.store offset=16 {it} (i32.const 20))",
                values = result(8),
                it = "(i32.load offset=12 (local.get $frame))"
            ),
        ),
        (
            "no_text",
            format!(
                "(i32.store offset=4 {values} (i32.const 1))
                 {rest}
                 (i32.store offset=12 {it} (i32.const 40)) (i32.store offset=16 {it} (i32.const 1))",
                values = result(8),
                rest = each(&format!("(i32.store offset=4 {} (i32.const 1))", row(&result(8), 4))),
                it = "(i32.load offset=12 (local.get $frame))"
            ),
        ),
    ];
    let functions: String = functions.iter().map(|(name, body)| function(name, body)).collect();
    format!(
        r#"(module
            (import "pithead" "fail" (func $fail (param i32 i32)))
            (memory (export "memory") 2)
            (data (i32.const 16) "it does not like that")
            (data (i32.const 40) "\ff\fe")
            (func (export "pithead_function_abi_1"))
            (func (export "pithead_allocate") (param $bytes i32) (result i32)
                (local $pages i32)
                (local.set $pages (i32.shr_u (i32.add (local.get $bytes) (i32.const 65535)) (i32.const 16)))
                (if (i32.lt_s (memory.grow (local.get $pages)) (i32.const 0)) (then unreachable))
                (i32.const 65536))
            {functions}
            {more})"#
    )
}

/// The functions as a module.
pub fn module() -> String {
    module_with("")
}
