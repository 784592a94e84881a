//! The functions of SQL in `examples/functions`, built as a newcomer builds them, beside twins.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use pithead_program::{FunctionCall, FunctionEngine, FunctionModule, GuestMemory};

use crate::build::{out, root, run};

struct Room(usize);

impl GuestMemory for Room {
    fn grow(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(bytes).ok_or("there is no more")?;
        Ok(())
    }
}

fn module() -> Arc<FunctionModule> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(out("rust"))
        .current_dir(root().join("examples/functions/rust"));
    // The settings of the build that runs this test are for another machine.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    run(&mut cargo);
    let bytes = fs::read(out("rust").join("wasm32-wasip1/release/sql_functions.wasm")).expect("the module was built");
    FunctionEngine::shared().unwrap().compile(&bytes).unwrap()
}

fn call(
    module: &FunctionModule,
    export: &str,
    arguments: &[ArrayRef],
    returns: &DataType,
    null: bool,
) -> Result<ArrayRef, String> {
    let memory = || Box::new(Room(64 << 20)) as Box<dyn GuestMemory>;
    let call = FunctionCall { module, export, returns, called_on_null: null };
    let types: Vec<DataType> = arguments.iter().map(|array| array.data_type().clone()).collect();
    call.check(&types, &memory)?;
    call.rows(arguments, arguments[0].len(), &memory)
}

#[test]
fn functions_give_what_their_twins_give() {
    let module = module();
    let numbers: Int64Array = (0..10_000_i64).map(|row| (row % 11 != 4).then_some(row * row - 5_000)).collect();
    let scattered = call(&module, "scatter", &[Arc::new(numbers.clone())], &DataType::Int64, false).unwrap();
    let wanted: Int64Array = numbers.iter().map(|number| number.map(scatter)).collect();
    assert_eq!(scattered.as_primitive::<Int64Type>(), &wanted);

    let degrees = |values: &[f64]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    let arguments = [degrees(&[59.9, 0.0]), degrees(&[10.7, 0.0]), degrees(&[52.5, 0.0]), degrees(&[13.4, 180.0])];
    let distances = call(&module, "distance_km", &arguments, &DataType::Float64, false).unwrap();
    let distances = distances.as_primitive::<Float64Type>();
    assert!((distances.value(0) - 838.0).abs() < 10.0, "Oslo to Berlin: {}", distances.value(0));
    assert!((distances.value(1) - 6_371.0 * std::f64::consts::PI).abs() < 1e-6, "half the globe");

    let texts = |values: &[Option<&str>]| Arc::new(values.iter().copied().collect::<StringViewArray>()) as ArrayRef;
    let cards = texts(&[Some("4539 1488 0343 6467"), Some("8273 1232 7352 0569"), None, Some("")]);
    let checked = call(&module, "luhn", &[cards], &DataType::Boolean, false).unwrap();
    assert_eq!(checked.as_boolean().iter().collect::<Vec<_>>(), [Some(true), Some(false), None, Some(true)]);
    let error = call(&module, "luhn", &[texts(&[Some("12a")])], &DataType::Boolean, false).unwrap_err();
    assert_eq!(error, r#""12a" has 'a', which is no digit"#);

    let titles = call(&module, "title", &[texts(&[Some("the élan  of DRIVES"), Some("  "), None])], &DataType::Utf8View, false);
    assert_eq!(titles.unwrap().as_string_view().iter().collect::<Vec<_>>(), [Some("The Élan Of Drives"), None, None]);

    let one: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, None]));
    let other: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(2), None]));
    let either = call(&module, "either", &[one, other], &DataType::Int32, true).unwrap();
    assert_eq!(either.as_primitive::<Int32Type>(), &Int32Array::from(vec![Some(1), Some(2), None]));
}

#[test]
fn other_types_are_refused_with_both_signatures() {
    let module = module();
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let error = call(&module, "scatter", &[Arc::clone(&numbers)], &DataType::Utf8View, false).unwrap_err();
    assert_eq!(error, "scatter takes (bigint) and gives bigint; it was created with (bigint) and text");
    let error = call(&module, "luhn", &[numbers], &DataType::Boolean, false).unwrap_err();
    assert_eq!(error, "luhn takes (text) and gives boolean; it was created with (bigint) and boolean");
}

/// The same function without a sandbox.
fn scatter(number: i64) -> i64 {
    let mut bits = number as u64;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) as i64
}
