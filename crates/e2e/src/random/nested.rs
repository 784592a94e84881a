//! Structs and lists, with NULL at every depth.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use rand::Rng;
use rand::rngs::StdRng;

/// A struct of a whole number `a` and text `b`: the one type of structs.
pub(crate) fn pair() -> DataType {
    DataType::Struct(members())
}

/// A list of whole numbers: the one type of lists.
pub(crate) fn numbers() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))
}

/// So many structs, none of them NULL.
pub(crate) fn pairs(random: &mut StdRng, size: usize) -> ArrayRef {
    let numbers: Int64Array = (0..size).map(|_| number(random)).collect();
    let texts: StringArray = (0..size).map(|_| [None, Some("a"), Some("b"), Some("")][random.random_range(0..4)]).collect();
    Arc::new(StructArray::new(members(), vec![Arc::new(numbers), Arc::new(texts)], None))
}

/// So many lists of up to three numbers, none of them NULL.
pub(crate) fn lists(random: &mut StdRng, size: usize) -> ArrayRef {
    let list = |random: &mut StdRng| {
        let length = random.random_range(0..4);
        Some((0..length).map(|_| number(random)).collect::<Vec<Option<i64>>>())
    };
    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>((0..size).map(|_| list(random))))
}

fn members() -> Fields {
    Fields::from(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, true)])
}

fn number(random: &mut StdRng) -> Option<i64> {
    (!random.random_bool(0.3)).then(|| random.random_range(-1..4))
}
