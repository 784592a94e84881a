use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field};
use pithead_model::Value;

use super::hash::{hash_rows, place};
use super::*;

fn hashes(array: impl Array + 'static) -> Vec<u64> {
    let array: ArrayRef = Arc::new(array);
    hash_rows([&array]).unwrap()
}

fn one_column(array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter([("k", Arc::new(array) as ArrayRef)]).unwrap()
}

fn rows_by_partition(partitioner: &Partitioner, batch: &RecordBatch, partitions: usize) -> Vec<usize> {
    let mut rows = vec![0; partitions];
    for (partition, piece) in partitioner.split(batch).unwrap() {
        rows[partition] += piece.num_rows();
    }
    rows
}

#[test]
fn hashes_never_change() {
    // Stored datasets depend on these. They were computed by another implementation of xxh3.
    assert_eq!(hashes(Int32Array::from(vec![Some(0), Some(5), Some(-1), None])), GOLDEN_INTS);
    assert_eq!(hashes(StringArray::from(vec!["", "a", "päntry"])), GOLDEN_TEXTS);
    assert_eq!(hashes(Float64Array::from(vec![0.0, 1.5, f64::NAN])), GOLDEN_FLOATS);
    let decimals = Decimal128Array::from(vec![150, 101, i128::MAX / 10]).with_precision_and_scale(38, 2).unwrap();
    assert_eq!(hashes(decimals), GOLDEN_DECIMALS);
    let (a, b): (ArrayRef, ArrayRef) = (Arc::new(Int64Array::from(vec![1])), Arc::new(StringArray::from(vec!["x"])));
    assert_eq!(hash_rows([&a, &b]).unwrap(), [GOLDEN_PAIR]);
    assert_ne!(hash_rows([&b, &a]).unwrap(), [GOLDEN_PAIR]);
}

const GOLDEN_INTS: [u64; 4] = [0xc77b_3abb_6f87_acd9, 0x8e03_e9aa_39aa_a78c, 0x5111_c7e4_7d78_4413, 0x6e75_6c6c_9e37_79b9];
const GOLDEN_TEXTS: [u64; 3] = [0x2d06_8005_38d3_94c2, 0xe6c6_32b6_1e96_4e1f, 0xfcff_dbcc_57ea_c359];
const GOLDEN_FLOATS: [u64; 3] = [0xc77b_3abb_6f87_acd9, 0x2561_a488_9ff6_3458, 0x0aa6_1dcf_a381_c167];
const GOLDEN_DECIMALS: [u64; 3] = [0xc5b4_720a_70ce_538d, 0x9bdd_2afc_2eee_f086, 0x427c_24c1_a212_834d];
const GOLDEN_PAIR: u64 = 0x9d14_eb6c_ed4d_f5d7;
#[test]
fn equal_values_hash_equal_across_widths() {
    let wide = hashes(Int64Array::from(vec![5, 100]));
    assert_eq!(hashes(Int8Array::from(vec![5, 100])), wide);
    assert_eq!(hashes(UInt64Array::from(vec![5, 100])), wide);
    assert_eq!(hashes(Decimal128Array::from(vec![500, 10_000]).with_precision_and_scale(12, 2).unwrap()), wide);
    assert_eq!(hashes(Float32Array::from(vec![-0.0, f32::NAN])), hashes(Float64Array::from(vec![0.0, -f64::NAN])));
    assert_eq!(hashes(StringArray::from(vec!["ab"])), hashes(StringViewArray::from(vec!["ab"])));
}

#[test]
fn every_kind_of_key_has_hashes() {
    hashes(Date32Array::from(vec![-1]));
    hashes(Date64Array::from(vec![-1]));
    hashes(Time32SecondArray::from(vec![1]));
    hashes(Time64NanosecondArray::from(vec![1]));
    hashes(TimestampMicrosecondArray::from(vec![1]).with_timezone("Europe/Berlin"));
    hashes(DurationSecondArray::from(vec![1]));
    hashes(BooleanArray::from(vec![true]));
    hashes(BinaryViewArray::from(vec![b"x".as_slice()]));
    hashes(Float16Array::new_null(1));
}

#[test]
fn dense_integers_spread_evenly() {
    let mut counts = [0u32; 7];
    hashes(Int64Array::from_iter_values(0..70_000)).into_iter().for_each(|hash| counts[place(hash, 7) as usize] += 1);
    assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    assert_eq!(place(u64::MAX, 7), 6);
}

#[test]
fn round_robin_balances_one_batch_and_many() {
    let schema = one_column(Int64Array::from(vec![0])).schema();
    let partitioner = Partitioner::new(&Partitioning::RoundRobin, &schema, 4).unwrap();
    let one = rows_by_partition(&partitioner, &one_column(Int64Array::from_iter_values(0..8_000)), 4);
    assert_eq!(one.iter().sum::<usize>(), 8_000);
    assert!(one.iter().all(|rows| (1_400..2_600).contains(rows)), "{one:?}");
    let mut many = one;
    for _ in 0..50 {
        let more = rows_by_partition(&partitioner, &one_column(Int64Array::from_iter_values(0..8_192)), 4);
        many.iter_mut().zip(more).for_each(|(total, more)| *total += more);
    }
    let (least, most) = (many.iter().min().unwrap(), many.iter().max().unwrap());
    assert!(most - least <= PAGE_ROWS, "{many:?}");
}

#[test]
fn hash_split_keeps_every_row_and_its_order() {
    let keys = Int64Array::from_iter((0..1_000).map(|row| (row % 10 != 0).then_some(row)));
    let batch = one_column(keys);
    let by_key = Partitioning::Hash { columns: vec!["k".into()] };
    let partitioner = Partitioner::new(&by_key, &batch.schema(), 3).unwrap();
    let pieces = partitioner.split(&batch).unwrap();
    assert_eq!(pieces.iter().map(|(_, piece)| piece.num_rows()).sum::<usize>(), 1_000);
    let with_nulls = pieces.iter().filter(|(_, piece)| piece.column(0).null_count() > 0).count();
    assert_eq!(with_nulls, 1, "NULLs share a partition");
    for (_, piece) in &pieces {
        let keys: Vec<i64> = piece.column(0).as_primitive::<arrow::datatypes::Int64Type>().iter().flatten().collect();
        assert!(keys.is_sorted());
    }
}

#[test]
fn ranges_hold_what_lies_below_their_bound() {
    let range = |bounds: Vec<Value>| Partitioning::Range { column: "k".into(), bounds };
    let batch = one_column(Int32Array::from(vec![Some(9), Some(10), None, Some(25), Some(-3)]));
    let partitioner = Partitioner::new(&range(vec![Value::Int(10), Value::Int(20)]), &batch.schema(), 3).unwrap();
    assert_eq!(rows_by_partition(&partitioner, &batch, 3), [3, 1, 1]);
    let batch = one_column(Float64Array::from(vec![f64::NAN, 0.5, 2.0]));
    let partitioner = Partitioner::new(&range(vec![Value::Float(1.0)]), &batch.schema(), 2).unwrap();
    assert_eq!(rows_by_partition(&partitioner, &batch, 2), [1, 2]);
    let batch = one_column(StringViewArray::from(vec![Some("a"), Some("m"), None]));
    let partitioner = Partitioner::new(&range(vec![Value::Text("b".into())]), &batch.schema(), 2).unwrap();
    assert_eq!(rows_by_partition(&partitioner, &batch, 2), [2, 1]);
    let wrong = Partitioner::new(&range(vec![Value::Int(1)]), &batch.schema(), 2).unwrap_err();
    assert_eq!(wrong.message, "range bounds do not fit column k of type Utf8View");
}

/// By the total order of floats, -0.0 lies below a bound of 0.0, and equal keys were placed apart.
#[test]
fn equal_floats_share_a_range() {
    for zero in [0.0, -0.0] {
        let range = Partitioning::Range { column: "k".into(), bounds: vec![Value::Float(zero)] };
        let values = vec![-0.0, 0.0, f64::NAN, -f64::NAN, f64::from_bits(f64::NAN.to_bits() | 1), -1.0];
        for batch in [
            one_column(Float64Array::from(values.clone())),
            one_column(Float32Array::from_iter_values(values.iter().map(|value| *value as f32))),
        ] {
            let partitioner = Partitioner::new(&range, &batch.schema(), 2).unwrap();
            assert_eq!(rows_by_partition(&partitioner, &batch, 2), [1, 5]);
        }
    }
    let mut sample = Sample::default();
    sample.add(&(Arc::new(Float64Array::from(vec![0.0, 0.0])) as ArrayRef));
    let field = Field::new("k", DataType::Float64, true);
    for sample in [sample, Sample::default()] {
        let made = Partitioning::Range { column: "k".into(), bounds: sample.bounds(&field, 3) };
        assert!(!made.may_part_zeros(), "{made:?}");
    }
    let before = Partitioning::Range { column: "k".into(), bounds: vec![Value::Float(0.0)] };
    assert!(before.may_part_zeros());
}

#[test]
fn samples_cut_in_equal_parts() {
    let field = Field::new("k", DataType::Int64, true);
    let mut sample = Sample::default();
    sample.add(&(Arc::new(Int64Array::from_iter_values((0..100).rev())) as ArrayRef));
    assert_eq!(sample.bounds(&field, 4), [Value::Int(25), Value::Int(50), Value::Int(75)]);
    assert_eq!(Sample::default().bounds(&field, 2), [Value::Int(0)]);
}

#[test]
fn unknown_columns_come_with_near_ones() {
    let schema = Schema::new(vec![Field::new("l_orderkey", DataType::Int64, false), Field::new("x", DataType::Int64, false)]);
    assert_eq!(unknown_column("l_orderky", &schema).message, "no column l_orderky; near: l_orderkey");
    assert_eq!(unknown_column("zzzz", &schema).message, "no column zzzz; the columns are l_orderkey, x");
}

#[test]
fn keys_must_exist_and_be_flat() {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let schema =
        Schema::new(vec![Field::new("orderkey", DataType::Int64, true), Field::new("tags", DataType::List(item), true)]);
    let by = |column: &str| Partitioner::new(&Partitioning::Hash { columns: vec![column.into()] }, &schema, 2).map(|_| ());
    assert_eq!(by("order_key").unwrap_err().message, "no column order_key; near: orderkey");
    assert!(by("tags").unwrap_err().message.starts_with("cannot partition by column tags of type List("));
    assert!(sort_column("tags", &schema).unwrap_err().message.starts_with("cannot sort by column tags"));
    assert_eq!(sort_column("orderkey", &schema), Ok(0));
}

#[test]
fn values_spread_rows_where_none_is_frequent() {
    let spreads = |values: Vec<Option<i64>>| {
        let column: ArrayRef = Arc::new(Int64Array::from(values));
        let mut sample = Sample::default();
        sample.add(&column);
        sample.spreads(4)
    };
    assert!(spreads((0..100_000).map(Some).collect()));
    assert!(spreads((0..100_000).map(|row| Some(row / 4)).collect()));
    assert!(spreads((0..512).map(Some).collect()));
    assert!(!spreads((0..511).map(Some).collect()));
    assert!(!spreads((0..100_000).map(|row| Some(if row % 8 == 0 { row } else { 7 })).collect()));
    assert!(!spreads((0..100_000).map(|row| Some(row).filter(|row| row % 8 == 0)).collect()));
    assert!(!spreads((0..100_000).map(|row| Some(row % 16)).collect()));
    assert!(!spreads(vec![Some(1), Some(2), Some(1)]));
    assert!(!spreads(vec![None]));
    assert!(!spreads(vec![]));
}

#[test]
fn the_first_column_is_a_key_by_its_type() {
    let schema = |data_type| Schema::new(vec![Field::new("a", data_type, true), Field::new("b", DataType::Int64, true)]);
    assert_eq!(likely_key(&schema(DataType::UInt64)), Some("a"));
    assert_eq!(likely_key(&schema(DataType::Utf8View)), Some("a"));
    assert_eq!(likely_key(&schema(DataType::Date32)), None);
    assert_eq!(likely_key(&schema(DataType::Float64)), None);
    assert_eq!(likely_key(&Schema::empty()), None);
}
