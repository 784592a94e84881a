//! Bounds of columns from what a Parquet file says of its values, which other programs wrote: what does not hold for
//! certain is left out.

use arrow::datatypes::DataType;
use parquet::basic::Type;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use pithead_model::{ColumnSummary, Value};

use super::casts::cast_bound;
use crate::bounds::{bytes_above, bytes_below, text_above, text_below};

/// A bound as the file has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Raw<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Bytes(&'a [u8]),
}

/// The types of a leaf column, from the file's bytes to the dataset.
#[derive(Clone, Debug)]
pub(super) struct Types<'a> {
    pub(super) physical: Type,
    /// As the file is read, normalised.
    pub(super) file: &'a DataType,
    pub(super) dataset: &'a DataType,
    /// Whether it cannot be NULL.
    pub(super) required: bool,
}

/// Two bounds, and whether they occur among the values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bounds {
    pub(super) min: Option<Value>,
    pub(super) max: Option<Value>,
    pub(super) exact: bool,
}

impl Types<'_> {
    /// The bounds of values that lie between these.
    pub(super) fn bounds(&self, min: Option<Raw<'_>>, max: Option<Raw<'_>>, exact: bool) -> Bounds {
        let bound = |raw: Option<Raw<'_>>, is_min: bool| {
            let (value, whole) = self.value(raw?, is_min)?;
            Some((cast_bound(value, self.file, self.dataset)?, whole))
        };
        let floating = self.file.is_floating();
        let (min, max) = (bound(min, true), if floating { None } else { bound(max, false) });
        let exact = exact && matches!((&min, &max), (Some((_, true)), Some((_, true))));
        let (min, max) = (min.map(|(min, _)| min), max.map(|(max, _)| max));
        match (&min, &max) {
            // Who wrote that has another order, or lies.
            (Some(min), Some(max)) if min.compare(max).is_none_or(|order| order.is_gt()) => Bounds::default(),
            _ => Bounds { min, max, exact },
        }
    }

    /// A bound in the type in which the file is read, and whether it is the value itself.
    fn value(&self, raw: Raw<'_>, is_min: bool) -> Option<(Value, bool)> {
        match (raw, self.file) {
            (Raw::Bool(value), DataType::Boolean) => Some((Value::Int(value.into()), true)),
            (Raw::Int(value), _) => self.number(value).map(|value| (Value::Int(value), true)),
            // Statistics leave NaN out, and do not tell zeros apart.
            (Raw::Float(value), DataType::Float32 | DataType::Float64) => {
                let value = if value == 0.0 { -0.0 } else { value };
                (!value.is_nan()).then_some((Value::Float(value), false))
            }
            (Raw::Bytes(bytes), DataType::Decimal128(..)) => big_endian(bytes).map(|value| (Value::Int(value), true)),
            (Raw::Bytes(bytes), DataType::Utf8View) => {
                let (text, whole) = if is_min { text_below(bytes) } else { text_above(bytes)? };
                Some((Value::Text(text), whole))
            }
            (Raw::Bytes(bytes), DataType::BinaryView | DataType::FixedSizeBinary(_)) => {
                let (bytes, whole) = if is_min { bytes_below(bytes) } else { bytes_above(bytes)? };
                Some((Value::Bytes(bytes), whole))
            }
            _ => None,
        }
    }

    /// A number as the column's type counts it; none for types into which reading converts it.
    fn number(&self, value: i64) -> Option<i128> {
        use DataType::*;
        let narrow = self.physical == Type::INT32;
        match self.file {
            UInt8 | UInt16 | UInt32 if narrow => Some((value as u32).into()),
            UInt64 if !narrow => Some((value as u64).into()),
            Int8 | Int16 | Int32 | Date32 | Time32(_) if narrow => Some(value.into()),
            Int64 | Time64(_) | Timestamp(..) | Duration(_) if !narrow => Some(value.into()),
            Decimal128(..) => Some(value.into()),
            _ => None,
        }
    }
}

/// The number that the bytes of a decimal are.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let (first, sign) = (*bytes.first()?, if bytes[0] < 0x80 { 0 } else { 0xff });
    let low = bytes.len().saturating_sub(16);
    let fits = bytes[..low].iter().all(|byte| *byte == sign) && (low == 0 || (bytes[low] ^ first) < 0x80);
    let start = if first < 0x80 { 0_i128 } else { -1 };
    fits.then(|| bytes[low..].iter().fold(start, |number, byte| number << 8 | i128::from(*byte)))
}

/// The summary of a column chunk of so many rows. `ordered` says whether the footer names the order of its bounds.
pub(super) fn chunk_summary(chunk: &ColumnChunkMetaData, types: &Types<'_>, rows: u64, ordered: bool) -> ColumnSummary {
    let required = types.required;
    let unknown = ColumnSummary { nulls_unknown: !required, ..Default::default() };
    let Some(statistics) = chunk.statistics() else { return unknown };
    let nulls = match statistics.null_count_opt() {
        _ if required => 0,
        Some(nulls) if nulls <= rows => nulls,
        Some(_) => return unknown,
        None => 0,
    };
    let nulls_unknown = !required && statistics.null_count_opt().is_none();
    if nulls == rows && !nulls_unknown {
        return ColumnSummary { exact: true, nulls, ..Default::default() };
    }
    let bounds = bounds_of(statistics, types, ordered);
    let distinct = statistics.distinct_count_opt().filter(|distinct| *distinct <= rows - nulls).unwrap_or(0);
    ColumnSummary { min: bounds.min, max: bounds.max, exact: bounds.exact, nulls, nulls_unknown, distinct }
}

fn bounds_of(statistics: &Statistics, types: &Types<'_>, ordered: bool) -> Bounds {
    // Old writers compared all as signed numbers, and bytes as they liked.
    let old = statistics.is_min_max_deprecated();
    let bytes = matches!(statistics, Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_));
    if (old || !ordered) && (bytes || !is_signed(types.file)) {
        return Bounds::default();
    }
    let exact = !old && statistics.min_is_exact() && statistics.max_is_exact();
    let (min, max) = match statistics {
        Statistics::Boolean(found) => (found.min_opt().copied().map(Raw::Bool), found.max_opt().copied().map(Raw::Bool)),
        Statistics::Int32(found) => {
            let raw = |value: Option<&i32>| value.map(|value| Raw::Int(i64::from(*value)));
            (raw(found.min_opt()), raw(found.max_opt()))
        }
        Statistics::Int64(found) => (found.min_opt().copied().map(Raw::Int), found.max_opt().copied().map(Raw::Int)),
        Statistics::Int96(_) => (None, None),
        Statistics::Float(found) => {
            let raw = |value: Option<&f32>| value.map(|value| Raw::Float(f64::from(*value)));
            (raw(found.min_opt()), raw(found.max_opt()))
        }
        Statistics::Double(found) => (found.min_opt().copied().map(Raw::Float), found.max_opt().copied().map(Raw::Float)),
        Statistics::ByteArray(_) | Statistics::FixedLenByteArray(_) => {
            (statistics.min_bytes_opt().map(Raw::Bytes), statistics.max_bytes_opt().map(Raw::Bytes))
        }
    };
    types.bounds(min, max, exact)
}

fn is_signed(data_type: &DataType) -> bool {
    data_type.is_signed_integer()
        || data_type.is_temporal()
        || matches!(data_type, DataType::Boolean | DataType::Decimal128(..))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, Int96};
    use parquet::file::statistics::ValueStatistics;
    use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type as SchemaType};

    use super::*;

    fn summary(physical: Type, data_type: &DataType, statistics: Statistics, ordered: bool) -> ColumnSummary {
        let leaf = SchemaType::primitive_type_builder("c", physical).build().unwrap();
        let descriptor = Arc::new(ColumnDescriptor::new(Arc::new(leaf), 1, 0, ColumnPath::from("c")));
        let chunk = ColumnChunkMetaData::builder(descriptor).set_statistics(statistics).build().unwrap();
        let types = Types { physical, file: data_type, dataset: data_type, required: false };
        chunk_summary(&chunk, &types, 100, ordered)
    }

    fn ints(min: i64, max: i64, nulls: Option<u64>, old: bool) -> Statistics {
        Statistics::int64(Some(min), Some(max), None, nulls, old)
    }

    fn is_unbounded(summary: &ColumnSummary) -> bool {
        summary.min.is_none() && summary.max.is_none() && !summary.exact
    }

    #[test]
    fn numbers_have_exact_bounds_and_known_nulls() {
        let found = summary(Type::INT64, &DataType::Int64, ints(-5, 9, Some(3), false), true);
        let expected =
            ColumnSummary { min: Some(Value::Int(-5)), max: Some(Value::Int(9)), exact: true, nulls: 3, ..Default::default() };
        assert_eq!(found, expected);
        let found = summary(Type::INT64, &DataType::Int64, ints(-5, 9, None, false), true);
        assert!(found.nulls_unknown && found.exact);
        let all_null = Statistics::int64(None, None, None, Some(100), false);
        assert_eq!(
            summary(Type::INT64, &DataType::Int64, all_null, true),
            ColumnSummary { exact: true, nulls: 100, ..Default::default() }
        );
    }

    #[test]
    fn statistics_that_cannot_be_true_are_left_out() {
        assert!(is_unbounded(&summary(Type::INT64, &DataType::Int64, ints(9, -5, Some(3), false), true)));
        let found = summary(Type::INT64, &DataType::Int64, ints(1, 2, Some(101), false), true);
        assert!(is_unbounded(&found) && found.nulls_unknown);
        // A type into which reading converts the numbers.
        assert!(is_unbounded(&summary(Type::INT32, &DataType::Date64, ints(1, 2, Some(0), false), true)));
    }

    #[test]
    fn old_bounds_count_for_signed_numbers_only() {
        let found = summary(Type::INT64, &DataType::Int64, ints(-5, 9, Some(0), true), false);
        assert_eq!((found.min, found.max, found.exact), (Some(Value::Int(-5)), Some(Value::Int(9)), false));
        assert!(is_unbounded(&summary(Type::INT64, &DataType::UInt64, ints(-5, 9, Some(0), true), false)));
        let text = |old| Statistics::byte_array(Some(ByteArray::from("a")), Some(ByteArray::from("b")), None, Some(0), old);
        assert!(is_unbounded(&summary(Type::BYTE_ARRAY, &DataType::Utf8View, text(true), true)));
        assert!(is_unbounded(&summary(Type::BYTE_ARRAY, &DataType::Utf8View, text(false), false)));
        assert!(!is_unbounded(&summary(Type::BYTE_ARRAY, &DataType::Utf8View, text(false), true)));
        let old = Statistics::byte_array(Some(vec![1].into()), Some(vec![2].into()), None, Some(0), true);
        assert!(is_unbounded(&summary(Type::BYTE_ARRAY, &DataType::Decimal128(4, 2), old, true)));
    }

    #[test]
    fn bounds_that_were_cut_are_not_exact() {
        let cut = ValueStatistics::new(Some(ByteArray::from("ab")), Some(ByteArray::from("cd")), None, Some(0), false);
        let cut = Statistics::ByteArray(cut.with_max_is_exact(false));
        let found = summary(Type::BYTE_ARRAY, &DataType::Utf8View, cut, true);
        assert_eq!((found.max, found.exact), (Some(Value::Text("cd".into())), false));
        // A least value that ends within a character, and a largest one that is no text.
        let odd = Statistics::byte_array(Some(vec![b'a', 0xc3].into()), Some(vec![b'c', 0xc3].into()), None, Some(0), false);
        let found = summary(Type::BYTE_ARRAY, &DataType::Utf8View, odd, true);
        assert_eq!((found.min, found.max, found.exact), (Some(Value::Text("a".into())), None, false));
    }

    #[test]
    fn floats_have_no_upper_bound_and_a_zero_of_either_sign() {
        let found =
            summary(Type::DOUBLE, &DataType::Float64, Statistics::double(Some(0.0), Some(4.0), None, Some(0), false), true);
        let Some(Value::Float(min)) = found.min else { panic!("{found:?}") };
        assert_eq!((min.to_bits(), found.max, found.exact), ((-0.0_f64).to_bits(), None, false));
        let nan = Statistics::double(Some(f64::NAN), Some(4.0), None, Some(0), false);
        assert!(is_unbounded(&summary(Type::DOUBLE, &DataType::Float64, nan, true)));
    }

    #[test]
    fn decimals_are_read_from_bytes_and_old_times_have_no_bounds() {
        let decimal = |min: &[u8], max: &[u8]| {
            let statistics = Statistics::byte_array(Some(min.to_vec().into()), Some(max.to_vec().into()), None, Some(0), false);
            let found = summary(Type::BYTE_ARRAY, &DataType::Decimal128(38, 2), statistics, true);
            (found.min, found.max)
        };
        assert_eq!(decimal(&[0xff], &[1, 0]), (Some(Value::Int(-1)), Some(Value::Int(256))));
        let long = [vec![0xff; 4], (-7_i128).to_be_bytes().to_vec()].concat();
        assert_eq!(decimal(&long, &[0x7f]), (Some(Value::Int(-7)), Some(Value::Int(127))));
        assert_eq!(decimal(&[1; 20], &[0x7f]).0, None);
        let times = Statistics::int96(Some(Int96::new()), Some(Int96::new()), None, Some(0), false);
        let nanoseconds = DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, None);
        assert!(is_unbounded(&summary(Type::INT96, &nanoseconds, times, true)));
    }
}
