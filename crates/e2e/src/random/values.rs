//! Columns of values that are known to be tricky, in shapes that reach pruning.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array,
    StringArray, TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use arrow::compute::{cast, sort, take};
use arrow::datatypes::{DataType, TimeUnit};
use rand::Rng;
use rand::rngs::StdRng;

use crate::random::nested;
use crate::random::without::Without;
use crate::render::cell;

/// What a type is to the generator of expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypeKind {
    Int,
    Text,
    Float,
    Decimal,
    Bool,
    Date,
    Timestamp,
    Binary,
    Struct,
    List,
}

impl TypeKind {
    /// Of a type that tables have.
    pub(crate) fn of(data_type: &DataType) -> TypeKind {
        match data_type {
            DataType::Boolean => TypeKind::Bool,
            DataType::Float32 | DataType::Float64 => TypeKind::Float,
            DataType::Decimal128(..) => TypeKind::Decimal,
            DataType::Date32 => TypeKind::Date,
            DataType::Timestamp(..) => TypeKind::Timestamp,
            DataType::Binary => TypeKind::Binary,
            DataType::Utf8 => TypeKind::Text,
            DataType::Struct(_) => TypeKind::Struct,
            DataType::List(_) => TypeKind::List,
            _ => TypeKind::Int,
        }
    }

    /// Has values within its values: engines order NULLs in there in their own ways.
    pub(crate) fn nested(self) -> bool {
        matches!(self, TypeKind::Struct | TypeKind::List)
    }
}

/// The types of columns.
pub(crate) fn types(without: &Without) -> Vec<DataType> {
    use DataType::*;
    let integers = [Int64, Int32, Int16, Int8, UInt8, UInt16, UInt32, UInt64];
    let others = [Utf8, Float64, Float32, Boolean, Date32, Binary, Decimal128(12, 2), Decimal128(18, 4), Decimal128(38, 6)];
    let times = [TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond].map(|unit| Timestamp(unit, None));
    // Text and floats thrice: most functions are on them.
    let nested = if without.makes("nested") { vec![nested::pair(), nested::numbers()] } else { vec![] };
    [&integers[..], &others[..], &times[..], &others[..2], &others[..2], &nested[..]].concat()
}

/// A column, and what the generator of expressions must know of it.
pub(crate) struct Values {
    pub(crate) array: ArrayRef,
    /// Distinct values at most.
    pub(crate) distinct: usize,
    /// Small enough for arithmetic of any kind that the generator makes; sums of floats are exact in any order.
    pub(crate) tame: bool,
    /// Some of its values and others near them, as SQL.
    pub(crate) samples: Vec<String>,
}

/// A random column of so many rows.
pub(crate) fn column(random: &mut StdRng, data_type: &DataType, rows: usize, without: &Without) -> Values {
    let tame = random.random_bool(0.65);
    let size = [1, 3, 12, rows.clamp(2, 400)][random.random_range(0..4)];
    let pool = pool(random, data_type, size, tame, without);
    let pool = if TypeKind::of(data_type).nested() { pool } else { sort(&pool, None).expect("every type has an order") };
    let shape = random.random_range(0..4);
    let nulls = [0.0, 0.0, 0.1, 0.5][random.random_range(0..4)];
    let block = random.random_range(2..40);
    let place = |row: usize, random: &mut StdRng| match shape {
        0 => row * size / rows.max(1),
        1 => (row / block) * 7 % size,
        _ => random.random_range(0..size),
    };
    let places: UInt32Array = (0..rows)
        .map(|row| (!random.random_bool(nulls)).then(|| u32::try_from(place(row, random)).expect("a small pool")))
        .collect();
    let array = take(&pool, &places, None).expect("places are within the pool");
    Values { array, distinct: size, tame, samples: samples(random, &pool, data_type) }
}

/// Literals of a few values of a pool.
pub(crate) fn samples(random: &mut StdRng, pool: &ArrayRef, data_type: &DataType) -> Vec<String> {
    let count = if pool.is_empty() || TypeKind::of(data_type).nested() { 0 } else { 6 };
    (0..count).map(|_| literal(pool, random.random_range(0..pool.len()), data_type)).collect()
}

/// A value as SQL that both Pithead and DuckDB read as the same value of the same kind.
pub(crate) fn literal(array: &ArrayRef, row: usize, data_type: &DataType) -> String {
    if array.is_null(row) {
        return "NULL".to_owned();
    }
    let shown = cell(array, row);
    match data_type {
        DataType::Boolean => shown,
        DataType::Utf8 => format!("'{}'", arrow::array::AsArray::as_string::<i32>(array).value(row).replace('\'', "''")),
        DataType::Float32 | DataType::Float64 => format!("CAST('{shown}' AS DOUBLE)"),
        DataType::Decimal128(precision, scale) => format!("CAST('{shown}' AS DECIMAL({precision}, {scale}))"),
        DataType::Date32 => format!("DATE '{shown}'"),
        DataType::Timestamp(unit, _) => format!("CAST('{shown}' AS TIMESTAMP({}))", digits(unit)),
        DataType::Binary => {
            format!("CAST('{}' AS BYTEA)", String::from_utf8_lossy(arrow::array::AsArray::as_binary::<i32>(array).value(row)))
        }
        _ if shown.starts_with('-') => format!("CAST('{shown}' AS BIGINT)"),
        _ => shown,
    }
}

fn digits(unit: &TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Values to draw from.
fn pool(random: &mut StdRng, data_type: &DataType, size: usize, tame: bool, without: &Without) -> ArrayRef {
    match TypeKind::of(data_type) {
        TypeKind::Int => integers(random, data_type, size, tame),
        TypeKind::Float => floats(random, data_type, size, tame, without),
        TypeKind::Text => Arc::new(StringArray::from((0..size).map(|_| text(random, tame)).collect::<Vec<_>>())),
        TypeKind::Binary => {
            Arc::new(BinaryArray::from_iter_values((0..size).map(|_| ["", "a", "ab", "b", "zz"][random.random_range(0..5)])))
        }
        TypeKind::Bool => Arc::new(BooleanArray::from((0..size).map(|_| random.random_bool(0.5)).collect::<Vec<_>>())),
        TypeKind::Decimal => decimals(random, data_type, size, tame),
        TypeKind::Date => {
            // From year 1 to 9999: what literals can say.
            let range = if tame { -2_000..9_000 } else { -719_162..2_932_896 };
            Arc::new(Date32Array::from((0..size).map(|_| random.random_range(range.clone())).collect::<Vec<_>>()))
        }
        TypeKind::Timestamp => {
            // Years that nanoseconds reach.
            let seconds = if tame { -100_000_000..900_000_000 } else { -9_000_000_000_i64..9_000_000_000 };
            let fraction = [0, 1_000, 999_000][random.random_range(0..3)];
            let values = (0..size).map(|_| random.random_range(seconds.clone()) * 1_000_000 + fraction);
            narrowed(&(Arc::new(TimestampMicrosecondArray::from_iter_values(values)) as ArrayRef), data_type)
        }
        TypeKind::Struct => nested::pairs(random, size),
        TypeKind::List => nested::lists(random, size),
    }
}

fn integers(random: &mut StdRng, data_type: &DataType, size: usize, tame: bool) -> ArrayRef {
    let (least, greatest): (i64, i64) = match data_type {
        DataType::Int8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DataType::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DataType::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DataType::UInt8 => (0, i64::from(u8::MAX)),
        DataType::UInt16 => (0, i64::from(u16::MAX)),
        DataType::UInt32 => (0, i64::from(u32::MAX)),
        DataType::UInt64 => (0, i64::MAX),
        _ => (i64::MIN, i64::MAX),
    };
    let wild = [least, greatest, least + 1, greatest - 1, 0];
    let near = least.max(-100)..=greatest.min(120);
    let mut value = || match tame || random.random_bool(0.5) {
        true => random.random_range(near.clone()),
        false => wild[random.random_range(0..wild.len())],
    };
    if *data_type == DataType::UInt64 && !tame {
        return Arc::new(UInt64Array::from_iter_values((0..size).map(|_| value().cast_unsigned() * 2 + 1)));
    }
    let values: Vec<i64> = (0..size).map(|_| value()).collect();
    narrowed(&(Arc::new(Int64Array::from(values)) as ArrayRef), data_type)
}

fn floats(random: &mut StdRng, data_type: &DataType, size: usize, tame: bool, without: &Without) -> ArrayRef {
    // NaN of both signs: which one a computation gives hangs on the machine.
    let wild = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.5, 1e-30, -3.0e38, 0.1, -0.0, -f64::NAN];
    let both_zeros = without.makes("zeros");
    let kinds = match (both_zeros && random.random_bool(0.5), without.makes("negative nan")) {
        (true, true) => wild.len(),
        (true, false) => wild.len() - 1,
        (false, _) => wild.len() - 2,
    };
    let zeros = if both_zeros && random.random_bool(0.5) { 0.2 } else { 0.0 };
    let mut value = || match tame || random.random_bool(0.3) {
        true if random.random_bool(zeros) => wild[[3, 8][random.random_range(0..2)]],
        true => f64::from(random.random_range(-400_i32..2_000)) * 0.25,
        false => wild[random.random_range(0..kinds)],
    };
    let values: Vec<f64> = (0..size).map(|_| value()).collect();
    match data_type {
        #[expect(clippy::cast_possible_truncation, reason = "rounding is what a float32 column is for")]
        DataType::Float32 => Arc::new(Float32Array::from_iter_values(values.into_iter().map(|value| value as f32))),
        _ => Arc::new(Float64Array::from(values)),
    }
}

fn decimals(random: &mut StdRng, data_type: &DataType, size: usize, tame: bool) -> ArrayRef {
    let DataType::Decimal128(precision, scale) = data_type else { unreachable!("only decimals come here") };
    let greatest = 10_i128.pow(u32::from(*precision)) - 1;
    let one = 10_i128.pow(scale.unsigned_abs().into());
    let mut value = || match tame || random.random_bool(0.5) {
        true => i128::from(random.random_range(-40_i32..400)) * one / 4,
        false => [greatest, -greatest, 0, 1, -1][random.random_range(0..5)],
    };
    let values: Vec<i128> = (0..size).map(|_| value()).collect();
    Arc::new(Decimal128Array::from(values).with_data_type(data_type.clone()))
}

fn text(random: &mut StdRng, tame: bool) -> String {
    const PARTS: [&str; 12] = ["a", "b", "ab", "B", " ", "é", "日本", "%", "_", "0", "x'y", "needle"];
    const WILD: [&str; 5] = ["", " ", "\u{10ffff}", "\\", "\t\n"];
    if !tame && random.random_bool(0.4) {
        return match random.random_range(0..WILD.len() + 1) {
            5 => "long ".repeat(random.random_range(1..60)),
            place => WILD[place].to_owned(),
        };
    }
    (0..random.random_range(1..4)).map(|_| PARTS[random.random_range(0..PARTS.len())]).collect()
}

fn narrowed(array: &ArrayRef, data_type: &DataType) -> ArrayRef {
    cast(array, data_type).expect("values are within the type")
}
