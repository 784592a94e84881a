//! One hostile guest for each way to do harm: each is ended with its name and the cause, and others go on.

use std::time::{Duration, Instant};

use super::{PASS, TestBed, block_on, drain, guest};
use crate::{Limits, ProgramError, Value};

const HOSTILE: &str = "name hostile\ninput string\noutput string\n";

/// What becomes of a guest with this body, while another application on the same reactor goes on.
async fn harm(body: &str, limits: Limits) -> String {
    let place = TestBed::new();
    let bystander = place.load(&guest(&["name pass\ninput string\noutput string\n"], PASS)).await.unwrap();
    let others = place.application(Limits::default());
    let pass = others.ssdlet(&bystander, "pass", &[]).await.unwrap();
    let (to, from) = (others.writer(&pass.input(0)).unwrap(), others.reader(&pass.output(0)).unwrap());
    others.start().unwrap();

    let module = place.load(&guest(&[HOSTILE], body)).await.unwrap();
    let application = place.application(limits);
    let ssdlet = application.ssdlet(&module, "hostile", &[]).await.unwrap();
    let (writer, reader) = (application.writer(&ssdlet.input(0)).unwrap(), application.reader(&ssdlet.output(0)).unwrap());
    application.start().unwrap();
    let row = [Value::String("data".to_owned())];
    let flood = async { while matches!(writer.put_row(&row).await, Ok(true)) {} };
    let bystander = async {
        for _ in 0..20 {
            assert!(to.put_row(&row).await.unwrap(), "the other application goes on");
            assert!(from.get().await.unwrap().is_some(), "the other application answers");
        }
    };
    let (outcome, (), ()) = tokio::join!(application.wait(), flood, bystander);
    let error = outcome.unwrap_err();
    let seen = drain(&reader).await.unwrap_err();
    assert_eq!(seen.to_string(), error.to_string(), "the reader learns of it");
    drop(to);
    assert!(from.get().await.unwrap().is_none(), "the other application comes to its end");
    others.wait().await.unwrap();
    let text = error.to_string();
    let named = text.strip_prefix("module test.wasm, SSDlet hostile: ");
    named.unwrap_or_else(|| panic!("it names module and SSDlet: {text}")).to_owned()
}

fn ends_with(body: &str, limits: Limits, cause: &str) {
    assert_eq!(block_on(harm(body, limits)), cause);
}

fn short() -> Limits {
    Limits { run_time_max: Duration::from_millis(200), ..Limits::default() }
}

#[test]
fn an_endless_loop() {
    let cause = "its application has run for longer than the 200ms of processor time that it may take";
    ends_with("(loop $again (br $again))", short(), cause);
}

#[test]
fn an_endless_loop_of_host_calls() {
    let cause = "its application has run for longer than the 200ms of processor time that it may take";
    ends_with("(loop $again (call $random (i32.const 0) (i32.const 8)) (br $again))", short(), cause);
}

/// Turns in which it does nothing cost the drive four times what was counted.
#[test]
fn a_loop_that_only_gives_way() {
    let limits = Limits { run_time_max: Duration::from_millis(40), ..Limits::default() };
    let body = "(loop $again (call $yield) (local.set $number (i32.add (local.get $number) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $number) (i32.const 200000))))";
    ends_with(body, limits, "its application has run for longer than the 40ms of processor time that it may take");
}

#[test]
fn an_endless_loop_ends_when_it_is_stopped() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(&["name hostile\n"], "(loop $again (br $again))")).await.unwrap();
        let application = place.application(Limits::default());
        application.ssdlet(&module, "hostile", &[]).await.unwrap();
        application.start().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let asked = Instant::now();
        application.stop();
        assert!(matches!(application.wait().await, Err(ProgramError::Stopped(_))), "it was stopped");
        assert!(asked.elapsed() < Duration::from_secs(20), "it ends soon");
    });
}

#[test]
fn endless_allocation() {
    let limits = Limits { memory_bytes_max: 8 << 20, ..Limits::default() };
    let body = "(loop $again (br_if $again (i32.ge_s (memory.grow (i32.const 1)) (i32.const 0))))";
    ends_with(body, limits, "it asked for more memory than the 8 MiB that its application may hold");
}

/// Tables of functions were not counted.
#[test]
fn a_table_beyond_the_memory_of_the_application() {
    block_on(async {
        let place = TestBed::new();
        let text = guest(&["name hostile\n"], "(drop (table.grow $functions (ref.null func) (i32.const 10000)))");
        let module = place.load(&text.replacen("(memory", "(table $functions 1 funcref) (memory", 1)).await.unwrap();
        let application = place.application(Limits { memory_bytes_max: 300 << 10, ..Limits::default() });
        application.ssdlet(&module, "hostile", &[]).await.unwrap();
        application.start().unwrap();
        let error = application.wait().await.unwrap_err().to_string();
        let cause = "it asked for more memory than the 300 KiB that its application may hold";
        assert_eq!(error, format!("module test.wasm, SSDlet hostile: {cause}"));
    });
}

#[test]
fn endless_recursion() {
    let text = guest(&[HOSTILE], "(call $deeper (i64.const 0)) (drop)");
    let deeper =
        "(func $deeper (param i64) (result i64) (i64.add (local.get 0) (call $deeper (i64.add (local.get 0) (i64.const 1)))))";
    let text = text.replacen("(func (export \"pithead_abi_1\"))", &format!("(func (export \"pithead_abi_1\")) {deeper}"), 1);
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&text).await.unwrap();
        let application = place.application(Limits::default());
        let ssdlet = application.ssdlet(&module, "hostile", &[]).await.unwrap();
        let _ports = (application.writer(&ssdlet.input(0)).unwrap(), application.reader(&ssdlet.output(0)).unwrap());
        application.start().unwrap();
        let error = application.wait().await.unwrap_err().to_string();
        assert_eq!(error, "module test.wasm, SSDlet hostile: it recursed until its stack of 1 MiB was used up");
    });
}

#[test]
fn pointers_out_of_bounds_and_lengths_that_overflow() {
    let beyond = |call: &str, bytes: &str, pointer: &str| {
        format!("it passed {call} {bytes} bytes at {pointer}, beyond its memory of 262144 bytes")
    };
    let cases = [
        ("(drop (call $get (i32.const 0) (i32.const 262143) (i32.const 2)))", beyond("input_get", "2", "0x3ffff")),
        ("(drop (call $get (i32.const 0) (i32.const -1) (i32.const -1)))", beyond("input_get", "4294967295", "0xffffffff")),
        ("(drop (call $put (i32.const 0) (i32.const 16) (i32.const -16)))", beyond("output_put", "4294967280", "0x10")),
        ("(call $log (i32.const 1) (i32.const 0) (i32.const 262145))", beyond("log", "262145", "0x0")),
        ("(call $random (i32.const 262144) (i32.const 1))", beyond("random", "1", "0x40000")),
        (
            "(drop (call $fd_write (i32.const 1) (i32.const -4) (i32.const 1) (i32.const 0)))",
            beyond("fd_write", "8", "0xfffffffc"),
        ),
        (
            "(drop (call $value_get (i32.const 0) (i32.const 1) (i32.const -8) (i32.const 16)))",
            beyond("value_get", "16", "0xfffffff8"),
        ),
        (
            "(drop (call $file_find (i32.const 0) (i64.const 0) (i64.const 9) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const -1)))",
            "it passed file_find room for too many hits".to_owned(),
        ),
        (
            "(drop (call $get (i32.const 9) (i32.const 0) (i32.const 2)))",
            "it passed input_get the port in(9); it has 1".to_owned(),
        ),
        (
            "(drop (call $file_read (i32.const 7) (i64.const 0) (i32.const 0) (i32.const 2)))",
            "it passed file_read the handle 7, which is no open file".to_owned(),
        ),
        ("(i32.store (i32.const 262141) (i32.const 0))", "it accessed memory beyond its own".to_owned()),
        (
            "(call $declare (i32.const 1024) (i32.const 1))",
            "the line \"n\" of a declaration: a word and a text with a space between them were expected".to_owned(),
        ),
    ];
    for (body, cause) in cases {
        ends_with(body, Limits::default(), &cause);
    }
}

#[test]
fn garbage_to_a_typed_port() {
    let cause =
        "it put what is no batch of string into out(0): column 0 of row 0 is cut off: its string has less bytes than it says";
    ends_with(
        "(i32.store (i32.const 0) (i32.const 77)) (drop (call $put (i32.const 0) (i32.const 0) (i32.const 8)))",
        Limits::default(),
        cause,
    );
    let cause = "it put what is no batch of string into out(0): column 0 of row 0 is a string that is not UTF-8";
    let body = "(i32.store (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 4) (i32.const 255))
        (drop (call $put (i32.const 0) (i32.const 0) (i32.const 5)))";
    ends_with(body, Limits::default(), cause);
}

#[test]
fn one_that_never_reads_its_input() {
    let cause = "its application has run for longer than the 200ms of processor time that it may take";
    ends_with("(loop $again (drop (memory.size)) (br $again))", short(), cause);
    // One that returns without a look at its input ends well, and who writes to it learns that nobody reads.
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(&[HOSTILE], "")).await.unwrap();
        let application = place.application(Limits::default());
        let ssdlet = application.ssdlet(&module, "hostile", &[]).await.unwrap();
        let (writer, _reader) = (application.writer(&ssdlet.input(0)).unwrap(), application.reader(&ssdlet.output(0)).unwrap());
        application.start().unwrap();
        while writer.put_row(&[Value::String("data".to_owned())]).await.unwrap() {}
        application.wait().await.unwrap();
    });
}

#[test]
fn one_that_dies_half_way() {
    let put = "(drop (call $put (i32.const 0) (i32.const 0) (i32.const 4)))";
    ends_with(&format!("{put} unreachable"), Limits::default(), "it gave up (it reached an `unreachable` instruction)");
    ends_with(&format!("{put} (return (i32.const 3))"), Limits::default(), "it ended with the code 3");
    let exit = "it left by exit(1); an SSDlet ends when its run function returns";
    ends_with(&format!("{put} (call $exit (i32.const 1))"), Limits::default(), exit);
    let said = "(call $fail (i32.const 1024) (i32.const 12))";
    ends_with(&format!("{put} {said}"), Limits::default(), "name hostile");
    let words = "(i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 13))
        (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8))) unreachable";
    ends_with(words, Limits::default(), "it gave up (it reached an `unreachable` instruction); it wrote: name hostile");
}

#[test]
fn one_that_floods_the_log() {
    let body = "(loop $again (call $log (i32.const 1) (i32.const 1024) (i32.const 100)) (br $again))";
    ends_with(body, Limits::default(), "it flooded the log: its application may write 1 MiB to it");
    let body = "(i32.store (i32.const 4) (i32.const 1000)) (loop $again
        (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))) (br $again))";
    ends_with(body, Limits::default(), "it flooded the log: its application may write 1 MiB to it");
}

/// Lines without bytes were nearly free, and one call wrote millions of them.
#[test]
fn empty_lines_flood_the_log_too() {
    let flooded = "it flooded the log: its application may write 1 MiB to it";
    let body = "(loop $again (call $log (i32.const 1) (i32.const 1024) (i32.const 0)) (br $again))";
    ends_with(body, Limits::default(), flooded);
    // 16 KiB of line feeds, again and again; a call takes 256 of them.
    let body = "(memory.fill (i32.const 65536) (i32.const 10) (i32.const 16384))
        (i32.store (i32.const 0) (i32.const 65536)) (i32.store (i32.const 4) (i32.const 16384))
        (loop $again
            (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
            (if (i32.ne (i32.load (i32.const 8)) (i32.const 256)) (then unreachable))
            (br $again))";
    ends_with(body, Limits::default(), flooded);
}

/// Batches that waited were not counted.
#[test]
fn batches_beyond_the_memory_of_the_application() {
    let limits = Limits { memory_bytes_max: 1200 << 10, ..Limits::default() };
    let body = "(drop (memory.grow (i32.const 8))) (i32.store (i32.const 0) (i32.const 524284))
        (drop (call $put (i32.const 0) (i32.const 0) (i32.const 524288)))";
    let cause = "it put a batch into out(0), and there is no room for 512 KiB more in the 1 MiB of memory that the application may hold";
    ends_with(body, limits, cause);
}

fn refused(bytes: Vec<u8>) -> String {
    let error = block_on(async { TestBed::new().load_bytes(bytes).await.unwrap_err() });
    let text = error.to_string();
    text.strip_prefix("module test.wasm: ").unwrap_or_else(|| panic!("it names the module: {text}")).to_owned()
}

#[test]
fn modules_that_are_none_or_ask_for_what_is_not_there() {
    let text = guest(&[HOSTILE], "");
    let of = |text: &str| refused(wat::parse_str(text).expect("a module"));
    assert_eq!(refused(b"#!/bin/sh".to_vec()), "it is no WebAssembly module: it does not begin with \\0asm");
    assert!(refused(b"\0asm\x01\0\0\0garbage".to_vec()).starts_with("it is no WebAssembly module that this drive runs: "));
    let none = "it holds no SSDlets: it does not export pithead_abi_1. hint: build it with one of the libraries in sdk/";
    assert_eq!(of("(module)"), none);
    let other = "it was built for version 2 of the interface, and this drive speaks version 1. hint: build it with the sdk/ of this \
                 drive's release";
    assert_eq!(of(&text.replace("pithead_abi_1", "pithead_abi_2")), other);
    let unknown = "it imports env.system, which does not exist. Modules may import from pithead and wasi_snapshot_preview1; \
                   docs/reference/program-abi.md lists the calls. hint: a function was not found when it was linked; C++ needs \
                   -fno-exceptions";
    assert_eq!(of(&text.replacen("(module", "(module (import \"env\" \"system\" (func))", 1)), unknown);
    let wrong = of(&text
        .replacen("\"input_wait\" (func $input_wait (param i32))", "\"input_wait\" (func $input_wait (param i64))", 1)
        .replace(PASS, ""));
    assert!(wrong.starts_with("it has an import of the wrong type: "), "{wrong}");
    assert_eq!(of(&text.replace("(export \"memory\")", "")), "it does not export its memory as `memory`");
    assert_eq!(of(&text.replace("\"pithead_describe\"", "\"describe\"")), "it does not export the function pithead_describe");
}

#[test]
fn modules_that_do_harm_while_they_declare() {
    let describing = |body: &str| {
        let text = guest(&[], "").replace("(export \"pithead_describe\") ", &format!("(export \"pithead_describe\") {body} "));
        refused(wat::parse_str(text).expect("a module"))
    };
    let prefix = "while it declared its SSDlets, ";
    let hint = "in C++ a line RegisterSSDlet(id, Class) declares one, in Rust register!, in Go ssdlet.New";
    assert_eq!(describing(""), format!("{prefix}it declares no SSDlet. hint: {hint}"));
    let time = "its application has run for longer than the 2s of processor time that it may take";
    assert_eq!(describing("(loop $again (br $again))"), format!("{prefix}{time}"));
    assert_eq!(describing("unreachable"), format!("{prefix}it gave up (it reached an `unreachable` instruction)"));
    let port = "it passed input_get the port in(0); it has 0";
    assert_eq!(describing("(drop (call $get (i32.const 0) (i32.const 0) (i32.const 0)))"), format!("{prefix}{port}"));
}

/// Sleep was not counted, and so a guest that slept again and again had no end.
#[test]
fn endless_sleep() {
    let cause = "its application has run for longer than the 200ms of processor time that it may take";
    let module = r#"(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))"#;
    block_on(async {
        let place = TestBed::new();
        // A subscription to the clock 1, in 50 ms from now.
        let body = "(i32.store (i32.const 16) (i32.const 1)) (i64.store (i32.const 24) (i64.const 50000000))
            (loop $again (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))) (br $again))";
        let text = guest(&["name sleeps\n"], body).replacen("(module", &format!("(module {module}"), 1);
        let module = place.load(&text).await.unwrap();
        let application = place.application(short());
        application.ssdlet(&module, "sleeps", &[]).await.unwrap();
        application.start().unwrap();
        let error = application.wait().await.unwrap_err().to_string();
        assert!(error.ends_with(cause), "{error}");
    });
}

/// It ended after a second, and neither C++ nor Rust sleeps again.
#[test]
fn a_long_sleep_is_slept_to_its_end() {
    let module = r#"(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))"#;
    block_on(async {
        let place = TestBed::new();
        let body = "(i32.store (i32.const 16) (i32.const 1)) (i64.store (i32.const 24) (i64.const 1300000000))
            (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))";
        let text = guest(&["name sleeps\n"], body).replacen("(module", &format!("(module {module}"), 1);
        let module = place.load(&text).await.unwrap();
        let application = place.application(Limits::default());
        application.ssdlet(&module, "sleeps", &[]).await.unwrap();
        let began = Instant::now();
        application.start().unwrap();
        application.wait().await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(1300), "{:?}", began.elapsed());
        assert!(application.run_time() >= Duration::from_millis(1300));
    });
}

/// A module of 3 MB took 20 s and 2 GB to compile.
#[test]
fn a_module_that_takes_the_compiler_too_long() {
    block_on(async {
        let place = TestBed::new();
        let tables = format!("(block (br_table {} (local.get $at)))", "0 ".repeat(60_000)).repeat(50);
        let began = Instant::now();
        let error = place.load(&guest(&["name bomb\n"], &tables)).await.unwrap_err().to_string();
        assert!(error.contains("would take more than the 300000 steps to compile"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(5));
    });
}
