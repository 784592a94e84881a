//! Rows of every type and shape through GET.

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::*;
use pithead_door::*;
use pithead_model::*;

use crate::memory::*;

/// The batches of what GET yielded, put together.
async fn roundtrip(batches: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let mut events: Vec<_> = batches.into_iter().map(|batch| row_event(3, batch)).collect();
    events.push(finished());
    let (_served, arrived) = through_get(events).await;
    assert!(matches!(arrived.last(), Some(Ok(Event::Finished { .. }))), "{:?}", arrived.last());
    let rows = arrived.into_iter().filter_map(|event| match event.unwrap() {
        Event::Rows { round, batch, link_bytes } => {
            assert!(round == 3 && link_bytes > 0);
            Some(batch)
        }
        _ => None,
    });
    rows.collect()
}

fn from_numbers() -> Vec<ArrayRef> {
    use DataType::*;
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..100).map(|i| (i % 5 != 0).then_some(i))));
    let types = [
        Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64, Utf8, LargeUtf8,
        Utf8View, Date64,
    ];
    let timed = [
        Timestamp(TimeUnit::Second, None),
        Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into())),
        Duration(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
        Decimal32(5, 1),
        Decimal64(12, 2),
        Decimal128(38, 10),
        Decimal256(76, 20),
        Dictionary(Box::new(Int8), Box::new(Utf8)),
    ];
    let mut arrays: Vec<ArrayRef> = types.iter().chain(&timed).map(|data_type| cast(&numbers, data_type).unwrap()).collect();
    let small = cast(&numbers, &Int32).unwrap();
    arrays.extend(
        [Date32, Time32(TimeUnit::Second), Interval(IntervalUnit::YearMonth)]
            .iter()
            .map(|data_type| cast(&small, data_type).unwrap()),
    );
    arrays
}

fn others() -> Vec<ArrayRef> {
    let some = |i: i64| i % 3 != 0;
    let long = |i: i64| some(i).then(|| format!("a text that is longer than a view, number {i}").into_bytes());
    let list = |i: i64| some(i).then(|| (0..i % 4).map(Some));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter(0..100));
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter((0..100).map(|i| some(i).then(|| format!("number {i} as a long text")))));
    let ends = Int32Array::from(vec![30, 60, 100]);
    let fields = [
        (Arc::new(Field::new("n", DataType::Int64, true)), Arc::clone(&numbers)),
        (Arc::new(Field::new("t", DataType::Utf8View, true)), Arc::clone(&texts)),
    ];
    let union_fields = UnionFields::try_new(vec![0, 4], fields.iter().map(|(field, _)| Arc::clone(field))).unwrap();
    let ids = (0..100).map(|i| if i % 2 == 0 { 0_i8 } else { 4 }).collect::<Vec<_>>();
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for i in 0..100 {
        map.keys().append_value(format!("key {i}"));
        map.values().append_option(some(i).then_some(i));
        map.append(i % 7 != 0).unwrap();
    }
    vec![
        Arc::new(NullArray::new(100)),
        Arc::new(BinaryArray::from_iter((0..100).map(long))),
        Arc::new(LargeBinaryArray::from_iter((0..100).map(long))),
        Arc::new(BinaryViewArray::from_iter((0..100).map(long))),
        Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size((0..100).map(|i| some(i).then_some([i as u8; 3])), 3).unwrap(),
        ),
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>((0..100).map(list))),
        Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>((0..100).map(list))),
        Arc::new(FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
            (0..100).map(|i| some(i).then_some([Some(i), None])),
            2,
        )),
        Arc::new(StructArray::from(fields.to_vec())),
        Arc::new(map.finish()),
        Arc::new((0..100).map(|i| if some(i) { Some("same") } else { None }).collect::<DictionaryArray<UInt16Type>>()),
        Arc::new(RunArray::<Int32Type>::try_new(&ends, &StringArray::from(vec![Some("a"), None, Some("c")])).unwrap()),
        Arc::new(UnionArray::try_new(union_fields, ids.into(), None, vec![numbers, texts]).unwrap()),
        Arc::new(IntervalMonthDayNanoArray::from_iter((0..100).map(|i| some(i).then(|| IntervalMonthDayNano::new(1, 2, i))))),
        Arc::new(IntervalDayTimeArray::from_iter((0..100).map(|i| some(i).then(|| IntervalDayTime::new(i as i32, 3))))),
        Arc::new(StructArray::new_empty_fields(100, None)),
    ]
}

#[tokio::test]
async fn every_type_arrives_as_it_was() {
    for column in from_numbers().into_iter().chain(others()) {
        let batch = RecordBatch::try_from_iter_with_nullable([("a", Arc::clone(&column), true)]).unwrap();
        let sent = vec![batch.slice(13, 40), batch.slice(0, 0), batch.clone(), batch.slice(99, 1)];
        let arrived = roundtrip(sent.clone()).await;
        assert_eq!(arrived, sent, "{}", column.data_type());
    }
}

#[tokio::test]
async fn columns_of_all_types_arrive_together() {
    let columns = from_numbers().into_iter().chain(others()).enumerate().map(|(i, column)| (format!("c{i}"), column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let sent = vec![batch.slice(20, 50), batch];
    assert_eq!(roundtrip(sent.clone()).await, sent);
}

#[tokio::test]
async fn rows_without_columns_are_counted() {
    let options = RecordBatchOptions::new().with_row_count(Some(40_000_000));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
    let arrived = roundtrip(vec![batch]).await;
    assert_eq!(arrived.iter().map(RecordBatch::num_rows).sum::<usize>(), 40_000_000);
}

#[tokio::test]
async fn two_thousand_columns_arrive() {
    let column: ArrayRef = Arc::new(Float64Array::from_iter_values((0..10).map(f64::from)));
    let batch = RecordBatch::try_from_iter((0..2_000).map(|i| (format!("column {i}"), Arc::clone(&column)))).unwrap();
    assert_eq!(roundtrip(vec![batch.clone()]).await, [batch]);
}

#[tokio::test]
async fn schemas_may_change_between_batches() {
    let numbers = RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![1])) as _)]).unwrap();
    let codes: DictionaryArray<Int32Type> = ["x", "y"].into_iter().collect();
    let codes = RecordBatch::try_from_iter([("b", Arc::new(codes) as _)]).unwrap();
    let sent = vec![numbers.clone(), codes.clone(), numbers, codes];
    assert_eq!(roundtrip(sent.clone()).await, sent);
}

#[tokio::test]
async fn large_batches_are_split_below_the_bound() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter(0..4_000_000));
    let text = "x".repeat(1 << 20);
    // One row is as large as a thousand others, so pieces of equal rows differ much in size.
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter((0..4_000).map(|i| Some(if i < 40 { text.as_str() } else { "small" }))));
    for column in [numbers, texts] {
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let arrived = roundtrip(vec![batch.clone()]).await;
        assert!(arrived.len() > 3);
        let largest = arrived.iter().map(|piece| piece.column(0).to_data().get_slice_memory_size().unwrap()).max().unwrap();
        assert!(largest < 17 << 20, "a piece of {largest} bytes");
        assert_eq!(concat_batches(&batch.schema(), &arrived).unwrap(), batch);
    }
}

#[tokio::test]
async fn a_row_over_the_bound_is_a_limit() {
    let text = "x".repeat(MESSAGE_BYTES_MAX);
    let batch = RecordBatch::try_from_iter([("a", Arc::new(StringArray::from(vec![text])) as _)]).unwrap();
    let (_served, arrived) = through_get(vec![row_event(0, batch), finished()]).await;
    assert!(matches!(&arrived[..], [Err(fault)] if fault.blame == Blame::Limit), "{arrived:?}");
}

#[tokio::test]
async fn a_filter_of_views_does_not_send_what_it_left_out() {
    let texts: ArrayRef =
        Arc::new(StringViewArray::from_iter((0..100_000).map(|i| Some(format!("a text that is not inline {i}")))));
    let batch = RecordBatch::try_from_iter([("a", texts)]).unwrap();
    let few =
        arrow::compute::filter_record_batch(&batch, &BooleanArray::from_iter((0..100_000).map(|i| Some(i % 10_000 == 0))))
            .unwrap();
    let (served, arrived) = through_get(vec![row_event(0, few.clone()), finished()]).await;
    assert!(matches!(&arrived[0], Ok(Event::Rows { batch, .. }) if *batch == few));
    let sent = served.sent.0.load(std::sync::atomic::Ordering::Relaxed);
    assert!(sent < 4_096, "{sent} bytes for ten rows");
}
