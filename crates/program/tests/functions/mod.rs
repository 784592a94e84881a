//! The functions of SQL in `sdk/examples/functions`, built as a newcomer builds them, beside twins.

use std::fs;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use pithead_program::{AggregateCall, FunctionCall, FunctionEngine, FunctionModule, GroupStates, GuestMemory};

struct Room(usize);

impl GuestMemory for Room {
    fn grow(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(bytes).ok_or("there is no more")?;
        Ok(())
    }
}

fn module() -> Arc<FunctionModule> {
    built("rust", "sql_functions.wasm")
}

/// The module of a folder of examples.
fn built(folder: &str, name: &str) -> Arc<FunctionModule> {
    let bytes = fs::read(crate::function_modules::built(folder, name)).expect("the module was built");
    FunctionEngine::shared().unwrap().compile(&bytes, None).unwrap()
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
    // Results are written eight rows at a time where all of them are wanted, and one by one elsewhere.
    for rows in [1, 7, 8, 9, 17, 10_000] {
        for numbers in [numbers.slice(0, rows), (0..rows as i64).collect()] {
            let sampled = call(&module, "is_sampled", &[Arc::new(numbers.clone())], &DataType::Boolean, false).unwrap();
            let wanted: BooleanArray = numbers.iter().map(|number| number.map(|number| scatter(number) & 15 == 0)).collect();
            assert_eq!(sampled.as_boolean(), &wanted);
            let scattered = call(&module, "scatter", &[Arc::new(numbers.clone())], &DataType::Int64, false).unwrap();
            let wanted: Int64Array = numbers.iter().map(|number| number.map(scatter)).collect();
            assert_eq!(scattered.as_primitive::<Int64Type>(), &wanted);
        }
    }

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

/// An aggregate's result over rows that are divided among as many states as there are parts, which are then combined.
fn aggregate(module: &FunctionModule, export: &str, rows: &ArrayRef, returns: &DataType, parts: usize) -> ArrayRef {
    let memory = || Box::new(Room(64 << 20)) as Box<dyn GuestMemory>;
    let call = AggregateCall { module, export, returns };
    call.check(&[rows.data_type().clone()], &memory).unwrap();
    let mut states = GroupStates::default();
    states.resize(parts);
    let group_of: Vec<usize> = (0..rows.len()).map(|row| row % parts).collect();
    call.accumulate(std::slice::from_ref(rows), &group_of, &mut states, &memory).unwrap();
    let mut one = GroupStates::default();
    one.resize(1);
    call.combine(&states.take(parts), &vec![0; parts], &mut one, &memory).unwrap();
    call.finish(&one.all(), &memory, &mut *memory()).unwrap()
}

#[test]
fn aggregates_give_what_their_twins_give() {
    let module = module();
    let factors: ArrayRef = Arc::new((1..=10_000).map(|row| Some(f64::from(row) / 100.0)).collect::<Float64Array>());
    let logarithms: f64 = factors.as_primitive::<Float64Type>().values().iter().map(|factor| factor.ln()).sum();
    let texts: ArrayRef = Arc::new((0..30_000).map(|row| Some(format!("user {}", row % 20_000))).collect::<StringViewArray>());
    for parts in [1, 4, 9_000] {
        let mean = aggregate(&module, "geometric_mean", &factors, &DataType::Float64, parts);
        let mean = mean.as_primitive::<Float64Type>().value(0);
        assert!((mean / (logarithms / 10_000.0).exp() - 1.0).abs() < 1e-9, "{parts}: {mean}");
    }
    // Hashes do not hang on the order of rows.
    let [one, four] = [1, 4].map(|parts| aggregate(&module, "distinct_about", &texts, &DataType::Int64, parts));
    assert_eq!(&one, &four);
    let about = one.as_primitive::<Int64Type>().value(0);
    assert!((18_000..22_000).contains(&about), "{about}");
    let none = aggregate(&module, "geometric_mean", &factors.slice(0, 0), &DataType::Float64, 1);
    assert!(none.is_null(0), "the mean of no row");
    let memory = || Box::new(Room(64 << 20)) as Box<dyn GuestMemory>;
    let call = AggregateCall { module: &module, export: "geometric_mean", returns: &DataType::Int64 };
    let said = call.check(&[DataType::Float64], &memory).unwrap_err();
    assert_eq!(said, "geometric_mean gives double precision; it was created with bigint");
    let said = call.check(&[DataType::Utf8View], &memory).unwrap_err();
    assert_eq!(said, "geometric_mean takes (double precision); it was created with (text)");
}

#[test]
fn functions_of_arrow_udf_work_as_they_are() {
    let module = built("arrow-udf", "arrow_udf_functions.wasm");
    let wide = |values: &[Option<i64>]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let narrow = |values: &[Option<i32>]| Arc::new(Int32Array::from(values.to_vec())) as ArrayRef;
    let divisors =
        call(&module, "gcd", &[wide(&[Some(48), None, Some(7)]), wide(&[Some(36), Some(4), None])], &DataType::Int64, false);
    assert_eq!(&divisors.unwrap(), &wide(&[Some(12), None, None]));
    let divisors = call(&module, "gcd", &[narrow(&[Some(48)]), narrow(&[Some(36)])], &DataType::Int32, false);
    assert_eq!(&divisors.unwrap(), &narrow(&[Some(12)]));
    let said = call(&module, "gcd", &[narrow(&[Some(48)])], &DataType::Int32, false).unwrap_err();
    let all = "gcd(int32,int32)->int32, gcd(int64,int64)->int64";
    assert_eq!(said, format!("its module has no function gcd(int32)->int32; it has {all}"));
    let said = call(&module, "quotient", &[wide(&[Some(6), Some(8)]), wide(&[Some(2), Some(0)])], &DataType::Int64, false);
    assert_eq!(said.unwrap_err(), "8 cannot be divided by 0");
    // A row that is not asked for cannot fail.
    let quotients = call(&module, "quotient", &[wide(&[Some(6), None]), wide(&[Some(2), Some(0)])], &DataType::Int64, false);
    assert_eq!(&quotients.unwrap(), &wide(&[Some(3), None]));
    let addresses: StringViewArray =
        (0..20_000).map(|row| (row % 3 != 1).then(|| format!("user{row}@host{}", row % 7))).collect();
    let wanted: StringViewArray = (0..20_000).map(|row| (row % 3 != 1).then(|| format!("host{}", row % 7))).collect();
    let hosts = call(&module, "mail_host", &[Arc::new(addresses)], &DataType::Utf8View, false).unwrap();
    assert_eq!(hosts.as_string_view(), &wanted);
    let numbers: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None]));
    let known = call(&module, "is_known", &[numbers], &DataType::Boolean, true).unwrap();
    assert_eq!(known.as_boolean().iter().collect::<Vec<_>>(), [Some(true), Some(false)]);
}

#[test]
fn table_functions_of_arrow_udf_work_as_they_are() {
    let module = built("arrow-udf", "arrow_udf_functions.wasm");
    let sets = |of: &DataType| DataType::new_list(of.clone(), true);
    let texts: StringViewArray =
        (0..20_000).map(|row| (row % 5 != 3).then(|| vec![format!("w{row}"); row % 4].join("  "))).collect();
    let words = call(&module, "words", &[Arc::new(texts)], &sets(&DataType::Utf8View), false).unwrap();
    for (row, set) in words.as_list::<i32>().iter().enumerate() {
        // A row with a NULL has none.
        let expected = (row % 5 != 3).then(|| vec![format!("w{row}"); row % 4]);
        let found = set.map(|set| set.as_string_view().iter().map(|word| word.unwrap().to_owned()).collect::<Vec<_>>());
        assert_eq!(found, expected, "{row}");
    }
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![12, 1, 97, 30_030]));
    let factors = call(&module, "factors", &[numbers], &sets(&DataType::Int64), false).unwrap();
    let factors = factors.as_list::<i32>().iter().map(|set| set.unwrap().as_primitive::<Int64Type>().values().to_vec());
    assert_eq!(factors.collect::<Vec<_>>(), [vec![2, 2, 3], vec![], vec![97], vec![2, 3, 5, 7, 11, 13]]);
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![12, -3]));
    let said = call(&module, "factors", &[Arc::clone(&numbers)], &sets(&DataType::Int64), false).unwrap_err();
    assert_eq!(said, "-3 has no prime factors");
    let said = call(&module, "factors", &[numbers], &DataType::Int64, false).unwrap_err();
    assert_eq!(said, "its module has no function factors(int64)->int64; it has factors(int64)->>int64");
    let said = call(
        &built("rust", "sql_functions.wasm"),
        "luhn",
        &[Arc::new(StringViewArray::from(vec!["0"]))],
        &sets(&DataType::Boolean),
        false,
    );
    assert!(said.unwrap_err().contains("RETURNS SETOF is for functions of the crate arrow-udf"));
}

/// The same function without a sandbox.
fn scatter(number: i64) -> i64 {
    let mut bits = number as u64;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) as i64
}
