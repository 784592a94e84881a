//! Rows to store: each type, with the values that are hard about it.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::*;

/// Rows whose first column is their number. The others are a number, a text, a float, a decimal, a date, a boolean, a
/// timestamp, bytes, and a text with few values.
pub fn numbered(rows: Range<i64>) -> RecordBatch {
    let floats = [0.0, -0.0, 1.5, -2.25, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -f64::NAN, f64::MIN_POSITIVE];
    let text = |row: i64| match row % 50 {
        0 => None,
        1 => Some(String::new()),
        2 => Some("é and more text than a view holds".to_string()),
        3 => Some("100\\%".to_string()),
        _ => Some(format!("row {row}")),
    };
    let every = |nth: i64, row: i64| row % nth != 0;
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("number", Arc::new(Int64Array::from_iter_values(rows.clone())), false),
        ("text", Arc::new(StringViewArray::from_iter(rows.clone().map(text))), true),
        (
            "float",
            Arc::new(Float64Array::from_iter(rows.clone().map(|row| every(11, row).then(|| floats[row as usize % 9])))),
            true,
        ),
        (
            "decimal",
            Arc::new(
                Decimal128Array::from_iter(rows.clone().map(|row| every(7, row).then_some(i128::from(row % 1000) - 500)))
                    .with_precision_and_scale(18, 2)
                    .unwrap(),
            ),
            true,
        ),
        (
            "date",
            Arc::new(Date32Array::from_iter(rows.clone().map(|row| every(13, row).then_some((row / 40) as i32 - 30)))),
            true,
        ),
        ("boolean", Arc::new(BooleanArray::from_iter(rows.clone().map(|row| every(3, row).then_some(row % 2 == 0)))), true),
        (
            "timestamp",
            Arc::new(
                TimestampMicrosecondArray::from_iter(rows.clone().map(|row| every(5, row).then_some(row * 1_000 - 2_000_000)))
                    .with_timezone("Europe/Zurich"),
            ),
            true,
        ),
        (
            "bytes",
            Arc::new(BinaryViewArray::from_iter(
                rows.clone().map(|row| every(4, row).then(|| (row as u16 % 600).to_be_bytes().to_vec())),
            )),
            true,
        ),
        (
            "mode",
            Arc::new(StringViewArray::from_iter(rows.map(|row| (row % 9 != 4).then(|| pick(&MODES, row as usize / 3))))),
            true,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

const MODES: [&str; 6] = ["REG AIR", "a rather long mode of shipping", "RAIL", "", "TRUCK", "FOB"];

/// A column of each type that all encodings can hold, with NULLs; with `more`, also of those that not all can hold.
pub fn every_type(rows: usize, more: bool) -> RecordBatch {
    let mut columns = numbers(rows);
    columns.extend(times(rows));
    columns.extend(texts(rows));
    columns.extend(nested(rows));
    if more {
        columns.extend(rare(rows));
    }
    let named =
        columns.into_iter().enumerate().map(|(index, column)| (format!("{index} {}", column.data_type()), column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(named).unwrap();
    let metadata: std::collections::HashMap<String, String> = [("unit".to_string(), "mm".to_string())].into();
    let mut fields: Vec<Field> = batch.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    fields[0] = fields[0].clone().with_metadata(metadata.clone());
    RecordBatch::try_new(Arc::new(Schema::new_with_metadata(fields, metadata)), batch.columns().to_vec()).unwrap()
}

/// A value for each row, and NULL for some.
fn some<T>(rows: usize, value: impl Fn(usize) -> T) -> impl Iterator<Item = Option<T>> {
    (0..rows).map(move |row| (row % 7 != 3).then(|| value(row)))
}

fn pick<T: Copy>(values: &[T], row: usize) -> T {
    values[row % values.len()]
}

fn array(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

fn numbers(rows: usize) -> Vec<ArrayRef> {
    let doubles = [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN,
        f64::EPSILON,
        1.1,
        f64::from_bits(0xfff8_0000_dead_beef),
    ];
    let limit = 10i128.pow(38) - 1;
    let decimals = [0, 1, -1, limit, -limit, 123_456_789_012_345_678_901];
    vec![
        array(Int64Array::from_iter(some(rows, |row| pick(&[i64::MIN, i64::MAX, 0, -1, row as i64], row)))),
        array(Int32Array::from_iter(some(rows, |row| row as i32 * 3 - 50))),
        array(Int16Array::from_iter(some(rows, |row| pick(&[i16::MIN, i16::MAX, 7], row)))),
        array(Int8Array::from_iter(some(rows, |row| row as i8))),
        array(UInt64Array::from_iter(some(rows, |row| pick(&[u64::MAX, 0, row as u64], row)))),
        array(UInt32Array::from_iter(some(rows, |row| row as u32 / 100))),
        array(UInt16Array::from_iter(some(rows, |_| 9))),
        array(UInt8Array::from_iter(some(rows, |row| row as u8))),
        array(BooleanArray::from_iter(some(rows, |row| row % 3 == 0))),
        array(Float64Array::from_iter(some(rows, |row| pick(&doubles, row)))),
        array(Float64Array::from_iter(some(rows, |row| row as f64 / 100.0))),
        array(Float32Array::from_iter(some(rows, |row| pick(&[0.0, -0.0, f32::NAN, f32::MIN_POSITIVE, row as f32], row)))),
        array(Decimal128Array::from_iter(some(rows, |row| pick(&decimals, row))).with_precision_and_scale(38, 10).unwrap()),
        array(Decimal128Array::from_iter(some(rows, |row| row as i128 * 5 - 900)).with_precision_and_scale(12, 2).unwrap()),
    ]
}

fn times(rows: usize) -> Vec<ArrayRef> {
    let extremes = [i64::MIN, i64::MAX, 0, -1];
    let seconds = |row: usize| pick(&[-62_135_596_800, -1, 0, 253_402_300_799, row as i64 * 86_400], row);
    vec![
        array(Date32Array::from_iter(some(rows, |row| pick(&[-719_162, -1, 0, 2_932_896], row)))),
        array(Date32Array::from_iter(some(rows, |row| pick(&[i32::MIN, i32::MAX], row)))),
        array(TimestampNanosecondArray::from_iter(some(rows, |row| pick(&extremes, row)))),
        array(DurationMillisecondArray::from_iter(some(rows, |row| row as i64 - 40))),
        array(Date64Array::from_iter(some(rows, |row| seconds(row) / 86_400 * 86_400_000))),
        array(Time32SecondArray::from_iter(some(rows, |row| row as i32 % 86_400))),
        array(Time64MicrosecondArray::from_iter(some(rows, |row| row as i64 * 1_000_003 % 86_400_000_000))),
        array(TimestampSecondArray::from_iter(some(rows, seconds))),
        array(TimestampMillisecondArray::from_iter(some(rows, |row| seconds(row) * 1_000 + 7)).with_timezone("UTC")),
        array(TimestampMicrosecondArray::from_iter(some(rows, |row| seconds(row) * 1_000_000)).with_timezone("+05:30")),
        array(
            TimestampNanosecondArray::from_iter(some(rows, |row| row as i64 * 77_777_777_777))
                .with_timezone("America/New_York"),
        ),
    ]
}

fn texts(rows: usize) -> Vec<ArrayRef> {
    let text = |row: usize| match row % 5 {
        0 => String::new(),
        1 => "日本語 – emoji 🦀 and combining e\u{301}".to_string(),
        2 => format!("short {}", row % 30),
        3 => "long ".repeat(row % 60),
        _ => format!("\0 a text that says it is row number {row}"),
    };
    vec![
        array(StringViewArray::from_iter(some(rows, text))),
        array(StringViewArray::from_iter(some(rows, |row| pick(&["R", "A", "N"], row)))),
        array(BinaryViewArray::from_iter(some(rows, |row| vec![row as u8; row % 40]))),
    ]
}

fn nested(rows: usize) -> Vec<ArrayRef> {
    let nulls = || NullBuffer::from_iter((0..rows).map(|row| row % 6 != 2));
    let item = |data_type: DataType| Arc::new(Field::new("item", data_type, true));
    let lengths: Vec<usize> = (0..rows).map(|row| row % 4).collect();
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths.iter().copied());
    let items = lengths.iter().sum();
    let texts: ArrayRef = array(StringViewArray::from_iter(some(items, |row| format!("item {row} of a list"))));
    let numbers: ArrayRef = array(Int32Array::from_iter(some(items, |row| row as i32)));
    let list = ListArray::new(item(DataType::Utf8View), offsets.clone(), texts, Some(nulls()));
    let inner: ArrayRef = array(ListArray::new(item(DataType::Int32), offsets.clone(), numbers.clone(), Some(nulls())));
    let outer_offsets =
        OffsetBuffer::<i32>::from_lengths((0..rows).map(|row| usize::from(row % 2 == 0) * (1 + usize::from(row + 1 < rows))));
    let outer = ListArray::new(item(inner.data_type().clone()), outer_offsets, inner.clone(), None);
    let pairs: ArrayRef = array(Int64Array::from_iter(some(rows * 2, |row| row as i64)));
    let fixed = FixedSizeListArray::new(item(DataType::Int64), 2, pairs, Some(nulls()));
    let fields: Fields = vec![
        Field::new("a", DataType::Float64, true),
        Field::new("list", list.data_type().clone(), true),
        Field::new("", DataType::Date32, true),
    ]
    .into();
    let members: Vec<ArrayRef> = vec![
        array(Float64Array::from_iter(some(rows, |row| row as f64))),
        array(list.clone()),
        array(Date32Array::from_iter(some(rows, |row| row as i32))),
    ];
    let record = StructArray::new(fields, members, Some(nulls()));
    vec![array(list), array(outer), array(fixed), array(record), array(NullArray::new(rows))]
}

/// Types that only the simple encoding can hold.
fn rare(rows: usize) -> Vec<ArrayRef> {
    let mut map = MapBuilder::new(None, StringViewBuilder::new(), Int64Builder::new());
    for row in 0..rows {
        for entry in 0..row % 3 {
            map.keys().append_value(format!("key {entry}"));
            map.values().append_option((entry != 1).then_some(row as i64));
        }
        map.append(row % 5 != 0).unwrap();
    }
    vec![
        array(IntervalMonthDayNanoArray::from_iter(some(rows, |row| IntervalMonthDayNanoType::make_value(row as i32, -1, 5)))),
        array(FixedSizeBinaryArray::try_from_sparse_iter_with_size(some(rows, |row| [row as u8; 16]), 16).unwrap()),
        array(map.finish()),
    ]
}
