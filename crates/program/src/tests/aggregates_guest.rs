//! Aggregates of SQL that are written as text, beside the functions. Tests of other crates have this file, too.

/// `total`, the sum of numbers as a state of 8 bytes, and hostile ones, which do what they do only where there are rows:
///
/// | aggregate | what it does |
/// |---|---|
/// | `a_traps`, `a_loops`, `a_grows`, `a_fails` | what the name says, for rows |
/// | `a_lies` | says that its states are more bytes than there are |
/// | `a_bloats` | gives a state of 2 MiB |
/// | `a_garbles` | gives states of 3 bytes, which `combine` and `finish` do not like |
/// | `a_fattens` | gives states of 64 KiB, which are all alike, and results that are all 7 |
/// | `a_breaks` | is `total`, but traps where states are combined |
/// | `a_spoils` | is `total`, but traps where results are made of states |
pub fn aggregates() -> String {
    let hostile = [
        ("traps", "unreachable".to_owned()),
        ("loops", "(loop $again (br $again))".to_owned()),
        ("grows", "(loop $again (drop (memory.grow (i32.const 64))) (br $again))".to_owned()),
        ("fails", "(call $fail (i32.const 16) (i32.const 20))".to_owned()),
        ("lies", "(i32.store offset=16 (i32.load offset=12 (local.get $frame)) (i32.const -1))".to_owned()),
        ("bloats", states_of(2 << 20, false)),
        ("garbles", states_of(3, true)),
    ];
    let hostile: String = hostile.iter().map(|(name, body)| hostile_one(name, body)).collect();
    format!(
        r#"{TOTAL}
        {hostile}
        {FAT}
        (func $trap (param $frame i32) (result i32)
            (if (i32.ne (i32.load (local.get $frame)) (i32.const 0)) (then unreachable))
            (i32.const 0))
        (func $trap_known (param $frame i32) (result i32)
            (if (i32.and (i32.ne (i32.load (local.get $frame)) (i32.const 0))
                    (i32.ne (i32.load offset=16 (i32.load offset=8 (local.get $frame))) (i32.const 0)))
                (then unreachable))
            (i32.const 0))
        (export "pithead_accumulate_a_breaks" (func $accumulate))
        (export "pithead_combine_a_breaks" (func $trap))
        (export "pithead_finish_a_breaks" (func $finish))
        (export "pithead_accumulate_a_spoils" (func $accumulate))
        (export "pithead_combine_a_spoils" (func $combine))
        (export "pithead_finish_a_spoils" (func $trap_known))"#
    )
}

/// States of so many bytes from the beginning of the memory: of each group, or of the first one.
fn states_of(bytes: u32, each: bool) -> String {
    let end = if each { format!("(i32.mul (i32.const {bytes}) (local.get $i))") } else { format!("(i32.const {bytes})") };
    format!(
        "(drop (memory.grow (i32.const 64)))
        (local.set $i (i32.const 1))
        (block $end (loop $next
            (br_if $end (i32.gt_u (local.get $i) (i32.load offset=24 (local.get $frame))))
            (i32.store (i32.add (i32.load offset=8 (i32.load offset=12 (local.get $frame)))
                (i32.mul (i32.const 4) (local.get $i))) {end})
            (local.set $i (i32.add (i32.const 1) (local.get $i)))
            (br $next)))
        (i32.store offset=12 (i32.load offset=12 (local.get $frame)) (i32.const 8))
        (i32.store offset=16 (i32.load offset=12 (local.get $frame)) (i32.const 4000000))"
    )
}

fn hostile_one(name: &str, body: &str) -> String {
    format!(
        r#"(func (export "pithead_accumulate_a_{name}") (param $frame i32) (result i32)
            (local $i i32)
            (if (i32.ne (i32.load (local.get $frame)) (i32.const 0)) (then {body}))
            (i32.const 0))
        (export "pithead_combine_a_{name}" (func $combine))
        (export "pithead_finish_a_{name}" (func $finish))"#
    )
}

/// States of 64 KiB: a page of the guest's memory each.
const FAT: &str = r#"
    (func $fatten (param $frame i32) (result i32)
        (local $i i32) (local $result i32) (local $groups i32)
        (local.set $result (i32.load offset=12 (local.get $frame)))
        (local.set $groups (i32.load offset=24 (local.get $frame)))
        (i32.store offset=12 (local.get $result) (i32.shl (memory.grow (local.get $groups)) (i32.const 16)))
        (i32.store offset=16 (local.get $result) (i32.shl (local.get $groups) (i32.const 16)))
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $i) (local.get $groups)))
            (local.set $i (i32.add (i32.const 1) (local.get $i)))
            (i32.store (i32.add (i32.load offset=8 (local.get $result)) (i32.mul (i32.const 4) (local.get $i)))
                (i32.shl (local.get $i) (i32.const 16)))
            (br $next)))
        (i32.const 0))
    (func $sevens (param $frame i32) (result i32)
        (local $i i32)
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $i) (i32.load (local.get $frame))))
            (i64.store (i32.add (i32.load offset=8 (i32.load offset=12 (local.get $frame))) (i32.mul (i32.const 8) (local.get $i)))
                (i64.const 7))
            (local.set $i (i32.add (i32.const 1) (local.get $i)))
            (br $next)))
        (i32.const 0))
    (export "pithead_accumulate_a_fattens" (func $fatten))
    (export "pithead_combine_a_fattens" (func $fatten))
    (export "pithead_finish_a_fattens" (func $sevens))
"#;

const TOTAL: &str = r#"
    ;; The number in a state, which a column has at a place. No bytes are 0.
    (func $state (param $column i32) (param $row i32) (result i64)
        (local $offset i32) (local $from i32) (local $bytes i32)
        (local.set $offset (i32.add (i32.load offset=8 (local.get $column)) (i32.mul (i32.const 4) (local.get $row))))
        (local.set $from (i32.load (local.get $offset)))
        (local.set $bytes (i32.sub (i32.load offset=4 (local.get $offset)) (local.get $from)))
        (if (i32.eqz (local.get $bytes)) (then (return (i64.const 0))))
        (if (i32.ne (local.get $bytes) (i32.const 8)) (then (call $fail (i32.const 16) (i32.const 20))))
        (i64.load (i32.add (i32.load offset=12 (local.get $column)) (local.get $from))))

    ;; Adds rows to the states of their groups; rows are numbers, or states themselves.
    (func $add (param $frame i32) (param $are_states i32) (result i32)
        (local $i i32) (local $into i32) (local $result i32) (local $column i32) (local $place i32)
        (local.set $result (i32.load offset=12 (local.get $frame)))
        (local.set $column (i32.load offset=8 (local.get $frame)))
        (local.set $into (i32.shl (memory.grow (i32.const 2)) (i32.const 16)))
        (i32.store offset=12 (local.get $result) (local.get $into))
        (i32.store offset=16 (local.get $result) (i32.mul (i32.const 8) (i32.load offset=24 (local.get $frame))))
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $i) (i32.load offset=24 (local.get $frame))))
            (i64.store (i32.add (local.get $into) (i32.mul (i32.const 8) (local.get $i)))
                (call $state (i32.load offset=28 (local.get $frame)) (local.get $i)))
            (i32.store offset=4 (i32.add (i32.load offset=8 (local.get $result)) (i32.mul (i32.const 4) (local.get $i)))
                (i32.mul (i32.const 8) (i32.add (i32.const 1) (local.get $i))))
            (local.set $i (i32.add (i32.const 1) (local.get $i)))
            (br $next)))
        (local.set $i (i32.const 0))
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $i) (i32.load (local.get $frame))))
            (local.set $place (i32.add (local.get $into) (i32.mul (i32.const 8)
                (i32.load (i32.add (i32.load offset=20 (local.get $frame)) (i32.mul (i32.const 4) (local.get $i)))))))
            (i64.store (local.get $place) (i64.add (i64.load (local.get $place))
                (if (result i64) (local.get $are_states)
                    (then (call $state (local.get $column) (local.get $i)))
                    (else (i64.load (i32.add (i32.load offset=8 (local.get $column))
                        (i32.mul (i32.const 8) (local.get $i))))))))
            (local.set $i (i32.add (i32.const 1) (local.get $i)))
            (br $next)))
        (i32.const 0))
    (func $accumulate (export "pithead_accumulate_total") (param $frame i32) (result i32)
        (call $add (local.get $frame) (i32.const 0)))
    (func $combine (export "pithead_combine_total") (param $frame i32) (result i32)
        (call $add (local.get $frame) (i32.const 1)))
    (func $finish (export "pithead_finish_total") (param $frame i32) (result i32)
        (local $i i32)
        (block $end (loop $next
            (br_if $end (i32.ge_u (local.get $i) (i32.load (local.get $frame))))
            (i64.store (i32.add (i32.load offset=8 (i32.load offset=12 (local.get $frame))) (i32.mul (i32.const 8) (local.get $i)))
                (call $state (i32.load offset=8 (local.get $frame)) (local.get $i)))
            (local.set $i (i32.add (i32.const 1) (local.get $i)))
            (br $next)))
        (i32.const 0))
"#;
