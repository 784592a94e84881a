//! Host calls in any order with any numbers: scripts at random.

use proptest::prelude::*;

use super::runner::{CALLS, STEP_BYTES, runner};
use super::{TestBed, block_on};
use crate::{Argument, Limits, ProgramError, Value};

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
async fn play(place: &TestBed, module: &std::sync::Arc<crate::Module>, script: Vec<u8>) -> Result<(), ProgramError> {
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
    let place = TestBed::new();
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
