//! What every encoding must do: return the same rows as were written, whatever their types; return the columns that the
//! request names; return every row that satisfies the predicates, and only such rows for those predicates that it
//! reports as applied; and return an error for damaged bytes.

mod attached;
mod attached_arrow;
mod data;
mod judge;
mod marked;
mod paged;
mod parts;
mod speed;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringViewArray, downcast_integer_array};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Date32Type, Field, Int64Type, Schema, SchemaRef};
use bytes::Bytes;
use data::{every_type, numbered};
use futures::task::noop_waker_ref;
use judge::satisfies;
use pithead_model::{PAGE_ROWS, Value};
use pithead_slice::{
    Compare, Encoding, KeySet, Predicate, ReadStats, ScanRequest, SliceError, SliceReader, encode_slice, encoding,
    encoding_names, open_slice, open_verified, unseal,
};
use proptest::prelude::*;

/// Runs a check for each encoding.
fn each(check: impl Fn(&dyn Encoding)) {
    for name in encoding_names() {
        println!("encoding {name}");
        check(encoding(name).unwrap().as_ref());
    }
}

/// Whether the encoding holds also the types that not all hold.
fn holds_rare(encoding: &dyn Encoding) -> bool {
    encoding.supports(&every_type(1, true).schema()).is_ok()
}

fn write(encoding: &dyn Encoding, batches: &[RecordBatch]) -> Bytes {
    encode_slice(encoding, &batches[0].schema(), batches).unwrap().bytes
}

fn open(encoding: &dyn Encoding, batches: &[RecordBatch]) -> Arc<dyn SliceReader> {
    open_slice(&batches[0].schema(), write(encoding, batches)).unwrap()
}

fn request(columns: Vec<usize>) -> ScanRequest {
    ScanRequest {
        columns,
        predicates: Vec::new(),
        keys: Vec::new(),
        zone_maps: true,
        sample: None,
        batch_rows: PAGE_ROWS,
        stats: Arc::new(ReadStats::default()),
    }
}

/// Reads a stream to its end.
fn read(reader: &dyn SliceReader, request: ScanRequest) -> Result<(Vec<RecordBatch>, Vec<usize>), SliceError> {
    let batch_rows = request.batch_rows;
    let mut scan = reader.scan(request)?;
    let mut context = std::task::Context::from_waker(noop_waker_ref());
    let mut batches = Vec::new();
    loop {
        match scan.stream.as_mut().poll_next(&mut context) {
            std::task::Poll::Ready(None) => return Ok((batches, scan.applied)),
            std::task::Poll::Ready(Some(batch)) => batches.push(batch?),
            std::task::Poll::Pending => {}
        }
        assert!(batches.last().is_none_or(|batch| (1..=batch_rows).contains(&batch.num_rows())));
    }
}

fn all_columns(schema: &Schema) -> Vec<usize> {
    (0..schema.fields().len()).collect()
}

#[test]
fn every_type_comes_back_as_it_was() {
    each(|encoding| {
        for rows in [1, 2, 700, PAGE_ROWS, 3 * PAGE_ROWS + 1] {
            let whole = every_type(rows, holds_rare(encoding));
            let reader = open(encoding, &[whole.slice(0, rows / 3), whole.slice(rows / 3, rows - rows / 3)]);
            let (batches, _) = read(reader.as_ref(), request(all_columns(&whole.schema()))).unwrap();
            assert_eq!(batches[0].schema(), whole.schema());
            assert_eq!(concat_batches(&whole.schema(), &batches).unwrap(), whole);
            assert_eq!(reader.rows(), rows as u64);
        }
    });
}

#[test]
fn columns_of_nothing_but_nulls_come_back() {
    each(|encoding| {
        let typed = every_type(1, holds_rare(encoding));
        let nulls: Vec<ArrayRef> =
            typed.schema().fields().iter().map(|field| arrow::array::new_null_array(field.data_type(), 9_000)).collect();
        let batch = RecordBatch::try_new(typed.schema(), nulls).unwrap();
        let encoded = encode_slice(encoding, &batch.schema(), std::slice::from_ref(&batch)).unwrap();
        assert!(
            encoded.entry.columns.iter().all(|column| column.nulls == 9_000 && column.min.is_none() && column.distinct == 0)
        );
    });
}

#[test]
fn any_columns_in_any_order() {
    each(|encoding| {
        let whole = every_type(PAGE_ROWS + 10, false);
        let reader = open(encoding, std::slice::from_ref(&whole));
        for columns in [vec![3, 0], vec![2, 2, 1], vec![5]] {
            let (batches, _) = read(reader.as_ref(), request(columns.clone())).unwrap();
            let expected = whole.project(&columns).unwrap();
            assert_eq!(concat_batches(&expected.schema(), &batches).unwrap(), expected);
        }
        let (batches, _) = read(reader.as_ref(), request(Vec::new())).unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [PAGE_ROWS, 10]);
        assert!(read(reader.as_ref(), request(vec![1_000])).is_err());
    });
}

#[test]
fn batches_keep_their_bound_and_rows_their_order() {
    each(|encoding| {
        let whole = numbered(0..20_001);
        let reader = open(encoding, std::slice::from_ref(&whole));
        for batch_rows in [999, PAGE_ROWS, 3 * PAGE_ROWS] {
            let (batches, _) = read(reader.as_ref(), ScanRequest { batch_rows, ..request(vec![0, 1, 2]) }).unwrap();
            let expected = whole.project(&[0, 1, 2]).unwrap();
            assert_eq!(concat_batches(&expected.schema(), &batches).unwrap(), expected);
        }
    });
}

#[test]
fn two_thousand_columns() {
    each(|encoding| {
        let field = |column: usize| Field::new(format!("column {column}"), DataType::Int64, true);
        let schema: SchemaRef = Arc::new(Schema::new((0..2_000).map(field).collect::<Vec<_>>()));
        let column = |column: i64| {
            Arc::new(Int64Array::from_iter((0..50).map(|row| (row != column).then_some(row * column)))) as ArrayRef
        };
        let batch = RecordBatch::try_new(schema.clone(), (0..2_000).map(column).collect()).unwrap();
        let reader = open(encoding, std::slice::from_ref(&batch));
        let (batches, _) = read(reader.as_ref(), request(vec![1_999, 7])).unwrap();
        assert_eq!(batches, [batch.project(&[1_999, 7]).unwrap()]);
    });
}

/// Rows whose number is in the set are all there, whatever the column's type.
#[test]
fn sets_of_keys_leave_out_only_rows_without_a_key() {
    each(|encoding| {
        let whole = every_type(3 * PAGE_ROWS, false);
        let reader = open(encoding, std::slice::from_ref(&whole));
        let sets = [vec![], vec![-1, 0, 7, i64::MIN], (0..2_000).map(|key| key * 17).collect(), vec![i64::MAX, 5, -50]];
        for keys in sets {
            let set = Arc::new(KeySet::of(&keys).unwrap());
            let is_whole = |column: &usize| {
                let data_type = whole.column(*column).data_type();
                data_type.is_integer() || *data_type == DataType::Date32
            };
            for column in all_columns(&whole.schema()).into_iter().filter(is_whole) {
                let number = |row: usize| whole_number(whole.column(column), row);
                let wanted: Vec<bool> =
                    (0..whole.num_rows()).map(|row| number(row).is_some_and(|key| keys.contains(&key))).collect();
                let asked = ScanRequest { keys: vec![(column, Arc::clone(&set))], ..request(all_columns(&whole.schema())) };
                let (batches, _) = read(reader.as_ref(), asked).unwrap();
                let found = concat_batches(&whole.schema(), &batches).unwrap();
                let expected = filter_record_batch(&whole, &BooleanArray::from(wanted)).unwrap();
                // An encoding that cannot ask leaves all rows in.
                if found.num_rows() < whole.num_rows() {
                    assert_eq!(found, expected, "{} column {column}", encoding.name());
                }
            }
        }
    });
}

/// The low 64 bits of a whole number, as joins see them.
fn whole_number(column: &ArrayRef, row: usize) -> Option<i64> {
    if column.is_null(row) {
        return None;
    }
    downcast_integer_array!(
        column => Some(column.value(row) as i64),
        _ => Some(i64::from(column.as_primitive::<Date32Type>().value(row))),
    )
}

#[test]
fn two_hundred_thousand_rows_are_skipped_by_page() {
    each(|encoding| {
        let whole = numbered(0..200_000);
        let encoded = encode_slice(encoding, &whole.schema(), std::slice::from_ref(&whole)).unwrap();
        assert_eq!((encoded.entry.rows, encoded.entry.bytes), (200_000, encoded.bytes.len() as u64));
        let number = &encoded.entry.columns[0];
        assert_eq!(
            (number.min.clone(), number.max.clone(), number.exact),
            (Some(Value::Int(0)), Some(Value::Int(199_999)), true)
        );
        assert!((190_000..210_000).contains(&number.distinct), "{}", number.distinct);
        let reader = open_slice(&whole.schema(), encoded.bytes).unwrap();
        let near = |zone_maps| {
            let predicate = Predicate::Compare { column: 0, op: Compare::Ge, value: Value::Int(199_990) };
            let wanted = ScanRequest { predicates: vec![predicate], zone_maps, ..request(vec![0, 1]) };
            let stats = wanted.stats.clone();
            let rows: usize = read(reader.as_ref(), wanted).unwrap().0.iter().map(RecordBatch::num_rows).sum();
            let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            (rows, count(&stats.pages_read), count(&stats.pages_skipped), count(&stats.bytes))
        };
        let (skipping, reading) = (near(true), near(false));
        assert!(skipping.0 >= 10 && reading.0 >= 10);
        assert_eq!((skipping.1, skipping.2, reading.1, reading.2), (1, 24, 25, 0));
        assert!(0 < skipping.3 && skipping.3 < reading.3, "{skipping:?} {reading:?}");
    });
}

/// One predicate of each kind, and of each type.
fn predicates() -> Vec<Predicate> {
    let compare = |column, op, value| Predicate::Compare { column, op, value };
    let like = |pattern: &str, negated| Predicate::Like { column: 1, pattern: pattern.into(), negated };
    let text = |text: &str| Value::Text(text.into());
    let mut all: Vec<Predicate> = vec![
        Predicate::IsNull(1),
        Predicate::IsNotNull(1),
        Predicate::In { column: 0, values: vec![Value::Int(4), Value::Int(19_000), Value::Int(-1)] },
        Predicate::In { column: 0, values: (100..120).map(Value::Int).collect() },
        Predicate::In { column: 1, values: vec![text("row 77"), text(""), text("é")] },
        Predicate::In { column: 2, values: vec![Value::Float(1.5), Value::Float(-0.0)] },
        Predicate::In { column: 0, values: Vec::new() },
        Predicate::Any(vec![compare(0, Compare::Lt, Value::Int(3)), Predicate::IsNull(1), like("row 1999%", false)]),
        Predicate::Any(vec![
            Predicate::All(vec![compare(0, Compare::Gt, Value::Int(10)), compare(0, Compare::Lt, Value::Int(20))]),
            compare(3, Compare::Eq, Value::Int(500)),
        ]),
        // Values that the column's type cannot hold.
        compare(4, Compare::Lt, Value::Int(1 << 40)),
        compare(4, Compare::Eq, Value::Int(-(1 << 40))),
        compare(1, Compare::Lt, Value::Int(5)),
        // A column with a dictionary.
        Predicate::IsNull(8),
        Predicate::IsNotNull(8),
        Predicate::Any(vec![Predicate::IsNull(8), compare(8, Compare::Eq, text("FOB"))]),
        Predicate::In { column: 8, values: vec![text("RAIL"), text("nowhere")] },
        compare(8, Compare::Eq, text("nowhere")),
        Predicate::Like { column: 8, pattern: "%A%".into(), negated: false },
        Predicate::Like { column: 8, pattern: "%A%".into(), negated: true },
        Predicate::Any(vec![compare(8, Compare::Eq, text("FOB")), compare(0, Compare::Lt, Value::Int(50))]),
    ];
    for op in [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge] {
        for value in [0, 77, 8_191, 8_192, 30_000] {
            all.push(compare(0, op, Value::Int(value)));
        }
        for value in ["", "row 5", "é and more text than a view holds", "zzz"] {
            all.push(compare(1, op, text(value)));
        }
        for value in [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY] {
            all.push(compare(2, op, Value::Float(value)));
        }
        all.extend([-500, 0, 250, 10i128.pow(17)].map(|value| compare(3, op, Value::Int(value))));
        all.extend([-10, 0, 365].map(|value| compare(4, op, Value::Int(value))));
        all.extend([0, 1].map(|value| compare(5, op, Value::Int(value))));
        all.extend([-1_000_000, 0, 5_000_000].map(|value| compare(6, op, Value::Int(value))));
        all.push(compare(7, op, Value::Bytes(vec![1, 2])));
        all.push(compare(8, op, text("RAIL")));
    }
    for pattern in ["row 1%", "%7", "%ow%3%", "row _", "_", "%", "", "row 77", "é%", "%\\%%", "r%w 1_3%", "%row 1%", "r%w 1%3%"]
    {
        all.extend([like(pattern, false), like(pattern, true)]);
    }
    all
}

fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

/// Compares the rows of one scan with a row-by-row judge.
fn check_predicates(reader: &dyn SliceReader, whole: &RecordBatch, predicates: &[Predicate], zone_maps: bool) {
    let wanted = ScanRequest { predicates: predicates.to_vec(), zone_maps, ..request(vec![0]) };
    let (batches, applied) = read(reader, wanted).unwrap();
    let found = numbers(&batches);
    assert!(found.is_sorted_by(|a, b| a < b), "rows out of order for {predicates:?}");
    let rows = |judged: &[&Predicate]| -> Vec<i64> {
        let all = |row: &usize| judged.iter().all(|predicate| satisfies(whole, *row, predicate));
        (0..whole.num_rows()).filter(all).map(|row| whole.column(0).as_primitive::<Int64Type>().value(row)).collect()
    };
    let must: Vec<i64> = rows(&predicates.iter().collect::<Vec<_>>());
    assert!(must.iter().all(|row| found.binary_search(row).is_ok()), "rows are missing for {predicates:?}");
    let may = rows(&applied.iter().map(|index| &predicates[*index]).collect::<Vec<_>>());
    assert!(found.iter().all(|row| may.binary_search(row).is_ok()), "rows are left in that {predicates:?} rules out");
}

#[test]
fn rows_that_satisfy_are_there_and_applied_predicates_are_exact() {
    each(|encoding| {
        let whole = numbered(0..20_001);
        let reader = open(encoding, std::slice::from_ref(&whole));
        for predicate in predicates() {
            for zone_maps in [true, false] {
                check_predicates(reader.as_ref(), &whole, std::slice::from_ref(&predicate), zone_maps);
            }
        }
        let pairs = predicates();
        for some in pairs.windows(3).step_by(2).chain(pairs.chunks(7)) {
            check_predicates(reader.as_ref(), &whole, some, true);
        }
    });
}

#[test]
fn rows_are_counted_without_columns() {
    each(|encoding| {
        let whole = numbered(0..20_001);
        let reader = open(encoding, std::slice::from_ref(&whole));
        let predicate = Predicate::Compare { column: 0, op: Compare::Lt, value: Value::Int(9_000) };
        let (batches, applied) =
            read(reader.as_ref(), ScanRequest { predicates: vec![predicate], ..request(Vec::new()) }).unwrap();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, if applied.is_empty() { 2 * PAGE_ROWS } else { 9_000 });
    });
}

#[test]
fn another_dataset_s_columns_are_refused() {
    each(|encoding| {
        let whole = numbered(0..100);
        let (header, body) = unseal(write(encoding, std::slice::from_ref(&whole))).unwrap();
        for columns in [vec![0, 1], vec![1, 0, 2, 3, 4, 5, 6, 7, 8]] {
            let other = Arc::new(whole.schema().project(&columns).unwrap());
            assert!(open_verified(&other, &header, body.clone()).is_err(), "{columns:?}");
        }
    });
}

#[test]
fn types_without_a_place_are_named() {
    let vortex = encoding("vortex").unwrap();
    let schema = every_type(1, true).schema();
    let fit = |name: &&str| encoding(name).unwrap().supports(&schema).is_ok();
    assert_eq!(encoding_names().into_iter().filter(|name| fit(name)).collect::<Vec<_>>(), ["arrow", "nsm", "pax"]);
    let error = vortex.supports(&schema).unwrap_err().to_string();
    assert!(error.contains("cannot be stored as vortex"), "{error}");
}

#[test]
fn no_rows_make_no_slice() {
    each(|encoding| {
        let empty = numbered(0..0);
        assert!(matches!(encode_slice(encoding, &empty.schema(), &[empty]), Err(SliceError::Schema(_))));
    });
}

#[test]
fn a_version_of_the_future_is_refused() {
    let slice = pithead_slice::seal((2, 99), 1, 1, b"body");
    let schema = numbered(0..1).schema();
    let error = open_slice(&schema, slice.into()).unwrap_err().to_string();
    assert!(error.starts_with("slice of encoding 2, version 99; this release reads"), "{error}");
}

fn small(rows: Range<i64>) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter(rows.clone().map(|row| (row % 5 != 0).then_some(row * 3))));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(rows.map(|row| format!("the text of row {}", row % 40))));
    RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damage_is_seen(at in any::<prop::sample::Index>(), flip in 1u8.., cut in prop::option::of(any::<prop::sample::Index>())) {
        for name in encoding_names() {
            let batch = small(0..300);
            let mut slice = write(encoding(name).unwrap().as_ref(), std::slice::from_ref(&batch)).to_vec();
            match cut {
                Some(cut) => slice.truncate(cut.index(slice.len())),
                None => {
                    let at = at.index(slice.len());
                    slice[at] ^= flip;
                }
            }
            prop_assert!(open_slice(&batch.schema(), slice.into()).is_err());
        }
    }

    /// The bytes are damaged on purpose, but their checksum is correct.
    #[test]
    fn bytes_that_lie_are_no_panic(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let batch = small(0..300);
        for name in ["arrow", "nsm", "pax"] {
            let slice = write(encoding(name).unwrap().as_ref(), std::slice::from_ref(&batch));
            let (header, body) = unseal(slice).unwrap();
            let mut body = body.to_vec();
            // What follows the last whole page is a footer, which Arrow's reader of columns sees.
            let (at, footer) = (at.index(body.len()), body.len() / 8_192 * 8_192);
            body[at] ^= flip;
            let found = open_verified(&batch.schema(), &header, body.into())
                .and_then(|reader| read(reader.as_ref(), request(vec![0, 1])));
            match found {
                Ok((batches, _)) => batches.iter().flat_map(|batch| batch.columns()).for_each(|column| {
                    column.to_data().validate_full().unwrap();
                }),
                // The decoder of pages is ours, and its panics would only be caught.
                Err(error) if name != "arrow" && at < footer => {
                    prop_assert!(!error.to_string().contains("gave up"), "{name}: {error}");
                }
                Err(_) => {}
            }
        }
    }
}
