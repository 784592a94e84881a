//! Aggregates of SQL: good ones give what their rows add up to, however they come; of hostile ones each says what it did.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};

use super::aggregates_guest::aggregates;
use super::functions::{AtMost, compile};
use super::functions_guest::module_with;
use crate::{AggregateCall, FunctionModule, GroupStates, GuestMemory};

fn memory() -> Box<dyn GuestMemory> {
    Box::new(AtMost(64 << 20))
}

fn guest() -> Arc<FunctionModule> {
    compile(&module_with(&aggregates())).unwrap()
}

fn call<'a>(module: &'a FunctionModule, export: &'a str) -> AggregateCall<'a> {
    AggregateCall { module, export, returns: &DataType::Int64 }
}

/// Numbers, and the groups that they are of.
fn rows(count: usize, groups: usize) -> (ArrayRef, Vec<usize>) {
    let numbers: Int64Array = (0..count as i64).map(|row| Some(row * 3 - 7)).collect();
    (Arc::new(numbers), (0..count).map(|row| row * row % groups).collect())
}

fn states(groups: usize) -> GroupStates {
    let mut states = GroupStates::default();
    states.resize(groups);
    states
}

#[test]
fn results_are_those_of_the_rows_in_one_piece_and_in_many() {
    let module = guest();
    let total = call(&module, "total");
    let (numbers, groups) = rows(20_011, 977);
    let mut wanted = vec![0; 1_000];
    for (number, group) in numbers.as_primitive::<Int64Type>().values().iter().zip(&groups) {
        wanted[*group] += number;
    }
    let mut whole = states(1_000);
    total.accumulate(std::slice::from_ref(&numbers), &groups, &mut whole, &memory).unwrap();
    let result = total.finish(&whole.all(), &memory, &mut *memory()).unwrap();
    assert_eq!(result.as_primitive::<Int64Type>().values().to_vec(), wanted);
    // Groups without a row have no state.
    assert_eq!(whole.all().null_count(), 1_000 - groups.iter().collect::<std::collections::HashSet<_>>().len());
    // Parts, whose states are combined, the last one first.
    let mut merged = states(1_000);
    for from in (0..20_011).step_by(1_500).rev() {
        let count = 1_500.min(20_011 - from);
        let mut part = states(1_000);
        total.accumulate(&[numbers.slice(from, count)], &groups[from..from + count], &mut part, &memory).unwrap();
        let all: Vec<usize> = (0..1_000).collect();
        total.combine(&part.take(1_000), &all, &mut merged, &memory).unwrap();
        assert!(part.is_empty() && part.size() < 100_000);
    }
    assert_eq!(&total.finish(&merged.all(), &memory, &mut *memory()).unwrap(), &result);
    // The first groups go, and the others take their places.
    let first = merged.take(10);
    assert_eq!(total.finish(&first, &memory, &mut *memory()).unwrap().as_primitive::<Int64Type>().values(), &wanted[..10]);
    assert_eq!(
        total.finish(&merged.all(), &memory, &mut *memory()).unwrap().as_primitive::<Int64Type>().values(),
        &wanted[10..]
    );
}

#[test]
fn a_hostile_aggregate_says_what_it_did() {
    let module = guest();
    let (numbers, groups) = rows(100, 3);
    for (export, cause) in [
        ("a_traps", "it gave up"),
        ("a_loops", "it ran for longer than"),
        ("a_grows", "it asked for more memory than there is: the session has no more"),
        ("a_fails", "it does not like tha"),
        ("a_lies", "it says that its states are 4294967295 bytes at 0x0, beyond its memory"),
        ("a_bloats", "its state of a group has 2097152 bytes; at most 1048576 are allowed"),
        ("absent", "its module has no aggregate absent; it has total, "),
    ] {
        let said = call(&module, export).accumulate(std::slice::from_ref(&numbers), &groups, &mut states(3), &memory);
        let said = said.unwrap_err();
        assert!(said.contains(cause), "{export}: {said}");
    }
    let mut garbled = states(3);
    let garbles = call(&module, "a_garbles");
    garbles.accumulate(std::slice::from_ref(&numbers), &groups, &mut garbled, &memory).unwrap();
    let said = garbles.finish(&garbled.all(), &memory, &mut *memory()).unwrap_err();
    assert!(said.contains("it does not like tha"), "{said}");
    let said = garbles.combine(&garbled.all(), &[0, 0, 0], &mut states(1), &memory).unwrap_err();
    assert!(said.contains("it does not like tha"), "{said}");
}

#[test]
fn states_are_counted_and_grow_by_so_much_over_a_batch() {
    let module = guest();
    let fat = call(&module, "a_fattens");
    let memory = || Box::new(AtMost(600 << 20)) as Box<dyn GuestMemory>;
    let mut kept = states(3_000);
    let one = |from: usize, count: usize| -> (ArrayRef, Vec<usize>) {
        (Arc::new(Int64Array::from(vec![1; count])), (from..from + count).collect())
    };
    for from in (0..3_000).step_by(1_000) {
        let (numbers, groups) = one(from, 1_000);
        fat.accumulate(&[numbers], &groups, &mut kept, &memory).unwrap();
        let bytes = (from + 1_000) << 16;
        assert!((bytes..bytes + (1 << 20)).contains(&kept.size()), "{} bytes are counted of {bytes}", kept.size());
    }
    let first = kept.take(2_000);
    assert!(first.len() == 2_000 && kept.size() < (1_000 << 16) + (1 << 20), "what was taken counts no more");
    assert_eq!(fat.finish(&first, &memory, &mut *memory()).unwrap().as_primitive::<Int64Type>().values()[1_999], 7);
    // More than the engine could look away from.
    let (numbers, groups) = one(0, 4_200);
    let said = fat.accumulate(&[numbers], &groups, &mut states(4_200), &memory).unwrap_err();
    assert_eq!(said, "its states grew by more than 256 MiB over one batch of rows. hint: keep smaller summaries");
}

#[test]
fn an_aggregate_is_checked_before_it_is_made() {
    let module = guest();
    call(&module, "total").check(&[DataType::Int64], &memory).unwrap();
    let said = call(&module, "mix").check(&[DataType::Int64], &memory).unwrap_err();
    assert!(said.starts_with("its module has no aggregate mix; it has total, "), "{said}");
    let text = module_with(&aggregates());
    let said = compile(&text.replacen("pithead_combine_total", "pithead_combine_other", 1)).unwrap_err();
    assert!(said.contains("it does not export the function pithead_combine_total"), "{said}");
    let said = compile(&text.replace("pithead_function_mix", "pithead_function_total")).unwrap_err();
    assert!(said.contains("a function and an aggregate that are both named total"), "{said}");
}

/// They counted once all calls were over.
#[test]
fn results_count_as_they_come() {
    let module = guest();
    let total = call(&module, "total");
    let (numbers, groups) = rows(30_000, 30_000);
    let mut whole = states(30_000);
    total.accumulate(&[numbers], &groups, &mut whole, &memory).unwrap();
    assert_eq!(total.finish(&whole.all(), &memory, &mut AtMost(100_000)).unwrap_err(), "the session has no more");
    assert_eq!(total.finish(&whole.all(), &memory, &mut AtMost(1 << 20)).unwrap().len(), 30_000);
}
