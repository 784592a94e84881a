//! SSDlets that take their first turn on the thread that starts them.

use std::time::{Duration, Instant};

use futures::FutureExt;

use super::guests::{PASS, guest};
use super::{TestBed, block_on, drain};
use crate::{Limits, ProgramError, RuntimeOptions, Value};

fn place() -> TestBed {
    TestBed::with(RuntimeOptions { instances_max: 16, starts_here: true, ..RuntimeOptions::default() })
}

/// Starts an SSDlet without ports that does this, and returns what its application came to by the end of its start.
async fn started(place: &TestBed, text: &str) -> (crate::Application, Option<Result<(), ProgramError>>) {
    let module = place.load(text).await.unwrap();
    let application = place.application(Limits::default());
    application.ssdlet(&module, "one", &[]).await.unwrap();
    application.start().unwrap();
    let ended = application.wait().now_or_never();
    (application, ended)
}

#[test]
fn what_ends_in_its_first_turn_has_ended_with_its_start() {
    let place = place();
    block_on(async {
        let (_, ended) = started(&place, &guest(&["name one\n"], "")).await;
        assert!(matches!(ended, Some(Ok(()))), "{ended:?}");
        let (_, ended) = started(&place, &guest(&["name one\n"], "unreachable")).await;
        let error = ended.unwrap().unwrap_err().to_string();
        assert!(error.ends_with("SSDlet one: it gave up (it reached an `unreachable` instruction)"), "{error}");
    });
}

#[test]
fn what_does_not_end_goes_on_at_a_reactor() {
    let place = place();
    block_on(async {
        let began = Instant::now();
        let (application, ended) = started(&place, &guest(&["name one\n"], "(loop $again (br $again))")).await;
        assert!(ended.is_none() && began.elapsed() < Duration::from_secs(20));
        application.stop();
        assert!(matches!(application.wait().await, Err(ProgramError::Stopped(_))));
        let sleep =
            r#"(module (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))"#;
        let body = "(i32.store (i32.const 16) (i32.const 1)) (i64.store (i32.const 24) (i64.const 50000000))
            (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))";
        let (application, ended) = started(&place, &guest(&["name one\n"], body).replacen("(module", sleep, 1)).await;
        assert!(ended.is_none());
        application.wait().await.unwrap();
    });
}

#[test]
fn rows_come_after_the_first_turn() {
    let place = place();
    block_on(async {
        let module = place.load(&guest(&["name one\ninput i64\noutput i64\n"], PASS)).await.unwrap();
        let application = place.application(Limits::default());
        let ssdlet = application.ssdlet(&module, "one", &[]).await.unwrap();
        let (writer, reader) = (application.writer(&ssdlet.input(0)).unwrap(), application.reader(&ssdlet.output(0)).unwrap());
        application.start().unwrap();
        for value in 0..100 {
            assert!(writer.put_row(&[Value::I64(value)]).await.unwrap());
        }
        drop(writer);
        let wanted: Vec<u8> = (0..100_i64).flat_map(i64::to_le_bytes).collect();
        assert_eq!(drain(&reader).await.unwrap(), wanted);
        application.wait().await.unwrap();
    });
}
