//! Graphs: their connections, their ends, and what is refused when they are built.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::{PASS, TestBed, block_on, drain, guest};
use crate::{Application, Argument, Limits, Module, ProgramError, RuntimeOptions, Ssdlet, Value};

const PASSING: &[&str] = &["name pass\ninput i64\noutput i64\n", "name other\ninput string\noutput string\n"];

fn rows(range: std::ops::Range<i64>) -> Vec<u8> {
    range.flat_map(i64::to_le_bytes).collect()
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|chunk| i64::from_le_bytes(chunk.try_into().expect("8 bytes"))).collect()
}

#[test]
fn rows_pass_through_three_ssdlets_and_the_end_travels() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let application = place.application(Limits::default());
        let mut chain = Vec::new();
        for _ in 0..3 {
            chain.push(application.ssdlet(&module, "pass", &[]).await.unwrap());
        }
        application.connect(&chain[0].output(0), &chain[1].input(0)).unwrap();
        application.connect(&chain[1].output(0), &chain[2].input(0)).unwrap();
        let writer = application.writer(&chain[0].input(0)).unwrap();
        let reader = application.reader(&chain[2].output(0)).unwrap();
        application.start().unwrap();
        let write = async {
            for part in 0..100 {
                assert!(writer.put(rows(part * 1000..(part + 1) * 1000)).await.unwrap(), "somebody reads");
            }
            drop(writer);
        };
        let (all, ()) = tokio::join!(drain(&reader), write);
        assert_eq!(numbers(&all.unwrap()), (0..100_000).collect::<Vec<_>>(), "all rows came in their order");
        application.wait().await.unwrap();
        assert!(application.run_time() > Duration::ZERO, "its time was measured");
    });
}

#[test]
fn a_value_is_answered_before_the_next_one_is_sent() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let application = place.application(Limits::default());
        let ssdlet = application.ssdlet(&module, "other", &[]).await.unwrap();
        let (writer, reader) = (application.writer(&ssdlet.input(0)).unwrap(), application.reader(&ssdlet.output(0)).unwrap());
        application.start().unwrap();
        for turn in 0..10 {
            let row = [Value::String(format!("value {turn}"))];
            assert!(writer.put_row(&row).await.unwrap(), "somebody reads");
            let answer = reader.get().await.unwrap().expect("an answer");
            assert_eq!(crate::decode_rows(&[crate::Type::String], &answer).unwrap(), [row]);
        }
    });
}

#[test]
fn several_writers_and_several_readers_share_a_connection() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let application = place.application(Limits::default());
        let mut pass = Vec::new();
        for _ in 0..4 {
            pass.push(application.ssdlet(&module, "pass", &[]).await.unwrap());
        }
        // One deals out to two, and both end in the fourth.
        for middle in &pass[1..3] {
            application.connect(&pass[0].output(0), &middle.input(0)).unwrap();
            application.connect(&middle.output(0), &pass[3].input(0)).unwrap();
        }
        let writer = application.writer(&pass[0].input(0)).unwrap();
        let reader = application.reader(&pass[3].output(0)).unwrap();
        application.start().unwrap();
        let write = async {
            for part in 0..50 {
                assert!(writer.put(rows(part * 4000..(part + 1) * 4000)).await.unwrap(), "somebody reads");
            }
            drop(writer);
        };
        let (all, ()) = tokio::join!(drain(&reader), write);
        let all = numbers(&all.unwrap());
        assert_eq!(all.len(), 200_000, "no row is there twice");
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), (0..200_000).collect(), "no row is lost");
        application.wait().await.unwrap();
    });
}

/// SSDlets that pass on what they take: two that put out, and two that read them.
const CROSSED: &[&str] = &[
    "name s\ninput i64\noutput i64\n",
    "name s2\ninput i64\noutput i64\n",
    "name w\ninput i64\noutput i64\n",
    "name w2\ninput i64\noutput i64\n",
];

async fn crossed(application: &Application, module: &Arc<Module>) -> [Ssdlet; 4] {
    let mut made = Vec::new();
    for name in ["s", "s2", "w", "w2"] {
        made.push(application.ssdlet(module, name, &[]).await.unwrap());
    }
    made.try_into().ok().expect("four SSDlets")
}

/// Where pairs were connected one by one, the last of them was said to be connected already.
#[test]
fn each_writer_is_connected_to_each_reader_in_any_order() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(CROSSED, PASS)).await.unwrap();
        for order in [[(0, 2), (0, 3), (1, 2), (1, 3)], [(0, 2), (1, 3), (0, 3), (1, 2)]] {
            let application = place.application(Limits::default());
            let all = crossed(&application, &module).await;
            for (from, to) in order {
                application.connect(&all[from].output(0), &all[to].input(0)).unwrap();
            }
            let twice = application.connect(&all[1].output(0), &all[2].input(0)).unwrap_err().to_string();
            assert_eq!(twice, "s2.out(0) and w.in(0) are connected already");
            let writers = [0, 1].map(|from| application.writer(&all[from].input(0)).unwrap());
            let readers = [2, 3].map(|to| application.reader(&all[to].output(0)).unwrap());
            application.start().unwrap();
            for (writer, first) in writers.into_iter().zip([0, 1000]) {
                assert!(writer.put(rows(first..first + 1000)).await.unwrap(), "somebody reads");
            }
            let (one, other) = tokio::join!(drain(&readers[0]), drain(&readers[1]));
            let mut read = numbers(&[one.unwrap(), other.unwrap()].concat());
            read.sort_unstable();
            assert_eq!(read, (0..2000).collect::<Vec<_>>(), "each row came to one reader");
            application.wait().await.unwrap();
        }
    });
}

/// Rows of s2 came to w, to which it was not connected, as both shared the connection of s and w2.
#[test]
fn ports_that_share_a_connection_are_connected_or_the_start_is_refused() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(CROSSED, PASS)).await.unwrap();
        let lacks = |from: &str, to: &str| {
            format!(
                "{from} and {to} share a connection by way of other ports, but are not connected; connect them, too, or give one \
                 of them a port of its own"
            )
        };
        let application = place.application(Limits::default());
        let all = crossed(&application, &module).await;
        for (from, to) in [(0, 2), (0, 3), (1, 3)] {
            application.connect(&all[from].output(0), &all[to].input(0)).unwrap();
        }
        let _writers = [0, 1].map(|from| application.writer(&all[from].input(0)).unwrap());
        let _readers = [2, 3].map(|to| application.reader(&all[to].output(0)).unwrap());
        assert_eq!(application.start().unwrap_err().to_string(), lacks("s2.out(0)", "w.in(0)"));
        application.connect(&all[1].output(0), &all[2].input(0)).unwrap();
        application.start().unwrap();

        // The host program's ends are ends like others.
        let application = place.application(Limits::default());
        let [s, s2, w, w2] = crossed(&application, &module).await;
        application.connect(&s.output(0), &w.input(0)).unwrap();
        application.connect(&s2.output(0), &w.input(0)).unwrap();
        let _writers = [&s, &s2, &w2].map(|to| application.writer(&to.input(0)).unwrap());
        let _readers = [&w, &w2, &s].map(|from| application.reader(&from.output(0)).unwrap());
        let host = "the host program's reader of s.out(0)";
        assert_eq!(application.start().unwrap_err().to_string(), lacks("s2.out(0)", host));
        let elsewhere = application.connect(&w.output(0), &w2.input(0)).unwrap_err().to_string();
        assert!(
            elsewhere.starts_with("w.out(0) and w2.in(0) are both connected elsewhere, one of them to the host"),
            "{elsewhere}"
        );

        // So are those of another application.
        let (one, other) = (place.application(Limits::default()), place.application(Limits::default()));
        let s = one.ssdlet(&module, "s", &[]).await.unwrap();
        let [s2, w, w2] = ["s2", "w", "w2"].map(|name| other.ssdlet(&module, name, &[]).now_or_never().unwrap().unwrap());
        other.connect(&s2.output(0), &w2.input(0)).unwrap();
        one.connect(&s.output(0), &w.input(0)).unwrap();
        one.connect(&s.output(0), &w2.input(0)).unwrap();
        let writers = [one.writer(&s.input(0)).unwrap(), other.writer(&s2.input(0)).unwrap()];
        let readers = [&w, &w2].map(|from| other.reader(&from.output(0)).unwrap());
        for application in [&one, &other] {
            assert_eq!(application.start().unwrap_err().to_string(), lacks("s2.out(0)", "w.in(0)"));
        }
        other.connect(&s2.output(0), &w.input(0)).unwrap();
        one.start().unwrap();
        other.start().unwrap();
        for writer in writers {
            assert!(writer.put(rows(0..10)).await.unwrap(), "somebody reads");
        }
        let (first, second) = tokio::join!(drain(&readers[0]), drain(&readers[1]));
        assert_eq!(first.unwrap().len() + second.unwrap().len(), 20 * 8);
    });
}

/// One that waited for room in out(0) never put into out(1) what it held, which was what its reader waited for.
#[test]
fn who_waits_for_room_is_woken_by_room_in_another_output_that_had_none() {
    block_on(async {
        let place = TestBed::new();
        // Fills out(1), then out(0), and waits for room there; then it puts once more into out(1).
        let fills = |port: u32| {
            format!(
                "(loop $again (br_if $again (i32.eq (i32.const 1)
                    (call $put (i32.const {port}) (i32.const 65536) (i32.const 65536)))))"
            )
        };
        let writes = format!(
            "{} {} (call $output_wait (i32.const 0) (i32.const 65536))
            (if (i32.ne (i32.const 1) (call $put (i32.const 1) (i32.const 65536) (i32.const 65536))) (then unreachable))",
            fills(1),
            fills(0)
        );
        // Reads in(1) to its end, and only then in(0).
        let reads = "
            (local.set $at (i32.const 1))
            (block $end (loop $next
                (local.set $length (call $get (local.get $at) (i32.const 65536) (i32.const 131072)))
                (if (i32.eq (local.get $length) (i32.const -2)) (then (call $input_wait (local.get $at)) (br $next)))
                (br_if $next (local.get $length))
                (br_if $end (i32.eqz (local.get $at)))
                (local.set $at (i32.const 0))
                (br $next)))";
        let writer = place.load(&guest(&["name writes\noutput i64\noutput i64\n"], &writes)).await.unwrap();
        let reader = place.load(&guest(&["name reads\ninput i64\ninput i64\n"], reads)).await.unwrap();
        let application = place.application(Limits::default());
        let from = application.ssdlet(&writer, "writes", &[]).await.unwrap();
        let to = application.ssdlet(&reader, "reads", &[]).await.unwrap();
        for port in 0..2 {
            application.connect(&from.output(port), &to.input(port)).unwrap();
        }
        application.start().unwrap();
        application.wait().await.unwrap();
    });
}

#[test]
fn two_applications_are_connected_and_one_can_fail_alone() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let [first, second] =
            ["first", "second"].map(|name| place.runtime.application(name, Arc::clone(&place.services), Limits::default()));
        let (one, two) =
            (first.ssdlet(&module, "pass", &[]).await.unwrap(), second.ssdlet(&module, "pass", &[]).await.unwrap());
        first.connect(&one.output(0), &two.input(0)).unwrap();
        let (writer, reader) = (first.writer(&one.input(0)).unwrap(), second.reader(&two.output(0)).unwrap());
        first.start().unwrap();
        assert!(writer.put(rows(0..10)).await.unwrap(), "it waits for its reader");
        second.start().unwrap();
        assert_eq!(numbers(&reader.get().await.unwrap().expect("rows")), (0..10).collect::<Vec<_>>());
        first.stop();
        assert!(matches!(first.wait().await, Err(ProgramError::Stopped(_))), "the first one was stopped");
        // The one that reads it is told why, not what its guest made of a stream that was cut off.
        let error = reader.get().await.unwrap_err().to_string();
        let cause = "the application first, which it reads, has failed: the application first was stopped";
        assert_eq!(error, format!("module test.wasm, SSDlet pass: {cause}"));
    });
}

/// What one application put counted as memory of the other one, which had made the connection.
#[test]
fn what_waits_between_two_applications_is_of_the_one_that_puts() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let (first, second) =
            (place.application(Limits::default()), place.application(Limits { memory_bytes_max: 10, ..Limits::default() }));
        let (one, two) =
            (first.ssdlet(&module, "pass", &[]).await.unwrap(), second.ssdlet(&module, "pass", &[]).await.unwrap());
        second.connect(&one.output(0), &two.input(0)).unwrap();
        let writer = first.writer(&one.input(0)).unwrap();
        first.start().unwrap();
        assert!(writer.put(rows(0..10)).await.unwrap(), "somebody reads");
        drop(writer);
        first.wait().await.unwrap();
    });
}

/// A host that put more than there was memory for ended, though it would only have had to wait for room, or nobody read.
#[test]
fn a_batch_of_the_hosts_needs_memory_once_there_is_room_for_it() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let limits = Limits { memory_bytes_max: 1 << 20, queue_bytes_max: 8, ..Limits::default() };
        let application = place.application(limits);
        let pass = application.ssdlet(&module, "pass", &[]).await.unwrap();
        let (writer, reader) = (application.writer(&pass.input(0)).unwrap(), application.reader(&pass.output(0)).unwrap());
        assert!(writer.put(rows(0..1)).await.unwrap());
        let held = application.hold((1 << 20) - 8).unwrap();
        let mut waiting = Box::pin(writer.put(rows(1..2)));
        assert!((&mut waiting).now_or_never().is_none(), "it waits for room");
        drop(held);
        application.start().unwrap();
        assert!(waiting.await.unwrap(), "somebody reads");
        drop(writer);
        assert_eq!(numbers(&drain(&reader).await.unwrap()), [0, 1]);
        application.wait().await.unwrap();
    });
}

/// A failure of one reader cut off what the others read.
#[test]
fn readers_go_on_where_another_one_of_them_fails() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let [first, one, other] = [0; 3].map(|_| place.application(Limits::default()));
        let from = first.ssdlet(&module, "pass", &[]).await.unwrap();
        let writer = first.writer(&from.input(0)).unwrap();
        let mut readers = Vec::new();
        for application in [&one, &other] {
            let to = application.ssdlet(&module, "pass", &[]).await.unwrap();
            application.connect(&from.output(0), &to.input(0)).unwrap();
            readers.push(application.reader(&to.output(0)).unwrap());
        }
        for application in [&first, &one, &other] {
            application.start().unwrap();
        }
        one.stop();
        assert!(matches!(one.wait().await, Err(ProgramError::Stopped(_))), "one of them was stopped");
        let write = async {
            for part in 0..50 {
                assert!(writer.put(rows(part * 4000..(part + 1) * 4000)).await.unwrap(), "the other one reads");
            }
            drop(writer);
        };
        let (all, ()) = tokio::join!(drain(&readers[1]), write);
        assert_eq!(numbers(&all.unwrap()), (0..200_000).collect::<Vec<_>>());
        first.wait().await.unwrap();
        other.wait().await.unwrap();
    });
}

#[test]
fn an_application_that_failed_has_no_end_of_its_streams() {
    block_on(async {
        let place = TestBed::new();
        let close = r#"(module (import "pithead" "output_close" (func $output_close (param i32)))"#;
        let text = guest(&["name ends\noutput i64\n"], "(call $output_close (i32.const 0)) unreachable");
        let module = place.load(&text.replacen("(module", close, 1)).await.unwrap();
        let application = place.application(Limits::default());
        let ends = application.ssdlet(&module, "ends", &[]).await.unwrap();
        let reader = application.reader(&ends.output(0)).unwrap();
        application.start().unwrap();
        let error = application.wait().await.unwrap_err().to_string();
        assert_eq!(reader.get().await.unwrap_err().to_string(), error);
    });
}

/// SSDlets that are dropped as they are spawned said so while the start held the lock that they need.
#[test]
fn a_pool_that_has_stopped_loses_what_is_started() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let application = place.application(Limits::default());
        let pass = application.ssdlet(&module, "pass", &[]).await.unwrap();
        let (writer, reader) = (application.writer(&pass.input(0)).unwrap(), application.reader(&pass.output(0)).unwrap());
        place.runtime.pool().shutdown(Duration::from_secs(60));
        application.start().unwrap();
        assert!(matches!(application.wait().await, Err(ProgramError::Engine(_))), "it was lost");
        assert!(reader.get().await.is_err() && writer.put(rows(0..1)).await.is_err());
        let late = application.connect(&pass.output(0), &pass.input(0)).unwrap_err().to_string();
        assert_eq!(late, "ports cannot be connected after the start");
    });
}

#[test]
fn an_application_that_is_stopped_before_its_start_reads_nothing() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let application = place.application(Limits::default());
        let pass = application.ssdlet(&module, "pass", &[]).await.unwrap();
        let writer = application.writer(&pass.input(0)).unwrap();
        application.stop();
        assert!(matches!(writer.put(rows(0..1)).await, Err(ProgramError::Stopped(_))), "it does not wait for a reader");
    });
}

#[test]
fn what_cannot_be_connected_or_started_is_refused_with_its_names() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let application = place.application(Limits::default());
        let missing = application.ssdlet(&module, "none", &[]).await.err().unwrap().to_string();
        assert_eq!(missing, "the module test.wasm has no SSDlet none; it has pass, other");
        let given = application.ssdlet(&module, "pass", &[Argument::File("a".to_owned())]).await.err().unwrap().to_string();
        assert_eq!(given, "the arguments of pass in the module test.wasm are none, not file");
        let pass = application.ssdlet(&module, "pass", &[]).await.unwrap();
        let other = application.ssdlet(&module, "other", &[]).await.unwrap();
        let types = application.connect(&pass.output(0), &other.input(0)).unwrap_err().to_string();
        assert_eq!(types, "pass.out(0) puts out i64 and other.in(0) takes string; they cannot be connected");
        let port = application.connect(&pass.output(1), &other.input(0)).unwrap_err().to_string();
        assert_eq!(port, "pass has no port 1 among its 1 outputs; they are counted from 0");
        let start = application.start().unwrap_err().to_string();
        assert_eq!(start, "pass.in(0) is not connected; connect all ports before the start");
        let wait = application.wait().await.unwrap_err().to_string();
        assert_eq!(wait, "the application test was not started");
    });
}

#[test]
fn a_circle_in_which_all_wait_is_found() {
    block_on(async {
        let place = TestBed::new();
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let application = place.application(Limits::default());
        let (one, two) =
            (application.ssdlet(&module, "pass", &[]).await.unwrap(), application.ssdlet(&module, "pass", &[]).await.unwrap());
        application.connect(&one.output(0), &two.input(0)).unwrap();
        application.connect(&two.output(0), &one.input(0)).unwrap();
        application.start().unwrap();
        let error = application.wait().await.unwrap_err().to_string();
        let waits = "all SSDlets of its application wait for each other; pass for rows in in(0); pass for rows in in(0)";
        assert_eq!(error, format!("module test.wasm, SSDlet pass: {waits}"));
    });
}

#[test]
fn more_ssdlets_than_there_is_room_for_are_refused_for_now() {
    block_on(async {
        let place = TestBed::with(RuntimeOptions { instances_max: 1, ..RuntimeOptions::default() });
        let module = place.load(&guest(PASSING, PASS)).await.unwrap();
        let run = async || {
            let application = place.application(Limits::default());
            let ssdlet = application.ssdlet(&module, "pass", &[]).await.unwrap();
            let writer = application.writer(&ssdlet.input(0)).unwrap();
            let reader = application.reader(&ssdlet.output(0)).unwrap();
            application.start().unwrap();
            (application, writer, reader)
        };
        let (first, writer, reader) = run().await;
        writer.put(rows(0..1)).await.unwrap();
        reader.get().await.unwrap().expect("the first one runs");
        let (second, ..) = run().await;
        let error = second.wait().await.unwrap_err();
        assert!(matches!(&error, ProgramError::Busy(text) if text.contains("hint: try again later")), "{error}");
        drop((writer, reader));
        first.wait().await.unwrap();
        let (third, writer, _reader) = run().await;
        drop(writer);
        third.wait().await.unwrap();
    });
}

/// A module that takes the compiler some time: functions of many additions.
fn large(number: usize) -> Vec<u8> {
    let additions = "(local.set $at (i32.add (local.get $at) (local.get $at)))".repeat(2000);
    let functions = format!("(func (param $at i32) (result i32) {additions} (i32.const {number}))").repeat(20);
    let abi = "(func (export \"pithead_abi_1\"))";
    wat::parse_str(guest(PASSING, PASS).replacen(abi, &format!("{abi} {functions}"), 1)).unwrap()
}

/// Whoever gave up a load left its compilation to itself, and the next one waited for that on a thread that the store needs.
#[test]
fn compilations_that_nobody_waits_for_keep_no_other_call() {
    block_on(async {
        let place = TestBed::new();
        for number in 1..5 {
            let given_up = tokio::time::timeout(Duration::from_millis(5), place.load_bytes(large(number))).await;
            assert!(given_up.is_err());
        }
        tokio::select! {
            called = place.runtime.pool().spawn_blocking(|| 7) => assert_eq!(called.unwrap(), 7),
            _ = place.load_bytes(large(5)) => panic!("the call has waited for all compilations"),
        }
        // What was given up in the compiler is there for who asks again.
        place.load_bytes(large(1)).await.unwrap();
    });
}

#[test]
fn the_same_bytes_are_compiled_once() {
    block_on(async {
        let place = TestBed::new();
        let text = guest(PASSING, PASS);
        let (one, two) = (place.load(&text).await.unwrap(), place.load(&text).await.unwrap());
        assert!(Arc::ptr_eq(one.code(), two.code()), "the code is shared");
    });
}
