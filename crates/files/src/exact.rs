//! Columns of which nothing is cut. Arrow's decoders of CSV and JSON make 1 of 1.75 in a column of whole numbers, and cut
//! digits of decimals, fractions of seconds, and times of days. Columns of such types are decoded as texts, and their values
//! are read here.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewBuilder, FixedSizeListArray, GenericListArray, MapArray,
    OffsetSizeTrait, PrimitiveArray, PrimitiveBuilder, RecordBatch, RecordBatchOptions, StringViewArray, StructArray,
    downcast_integer,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::compute::kernels::cast_utils::{Parser, parse_decimal};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType, FieldRef, Fields, Int32Type,
    Int64Type, Schema, SchemaRef, TimeUnit,
};
use arrow::error::ArrowError;
use chrono::Utc;
use memchr::{memchr, memchr2};

use crate::moments::{Zones, day, moment, time_of_day};
use crate::numbers::{scaled, whole};

/// How the values of a column are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// What moments say of their zone.
    pub(crate) zones: Zones,
    /// Whether a whole number stands for a day, a moment or a time, as its column counts them.
    pub(crate) counts: bool,
}

/// Why a batch has no values of its columns' types.
#[derive(Debug)]
pub(crate) enum Unread {
    /// A value that its column does not hold.
    Misfit(Misfit),
    /// A batch that cannot be put together.
    Arrow(ArrowError),
}

/// A value that its column does not hold.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// From 0.
    pub(crate) row: usize,
    pub(crate) column: String,
    pub(crate) value: String,
    pub(crate) expected: DataType,
}

impl From<ArrowError> for Unread {
    fn from(error: ArrowError) -> Self {
        Unread::Arrow(error)
    }
}

impl Unread {
    /// The same in a list, whose value at a place is one of a row.
    fn of_row(self, row: impl Fn(usize) -> usize) -> Unread {
        match self {
            Unread::Misfit(misfit) => Unread::Misfit(Misfit { row: row(misfit.row), ..misfit }),
            other => other,
        }
    }
}

/// Whether arrow's decoders of texts cut values of a type, or do not know it; whole numbers are cut by that of JSON.
pub(crate) fn is_cut(data_type: &DataType, is_json: bool) -> bool {
    match data_type {
        DataType::Duration(_) => is_json,
        // That of JSON reads bytes from hex, as they are written.
        DataType::BinaryView => !is_json,
        integer if integer.is_integer() => is_json,
        other => other.is_decimal() || other.is_temporal(),
    }
}

/// A schema in which the types that decoders cut are texts.
pub(crate) fn decoded(schema: &Schema, is_cut: &dyn Fn(&DataType) -> bool) -> SchemaRef {
    Arc::new(Schema::new(decoded_fields(schema.fields(), is_cut)))
}

fn decoded_fields(fields: &Fields, is_cut: &dyn Fn(&DataType) -> bool) -> Fields {
    fields.iter().map(|field| decoded_field(field, is_cut)).collect()
}

fn decoded_field(field: &FieldRef, is_cut: &dyn Fn(&DataType) -> bool) -> FieldRef {
    let of_field = |field| decoded_field(field, is_cut);
    let data_type = match field.data_type() {
        cut if is_cut(cut) => DataType::Utf8View,
        DataType::List(item) => DataType::List(of_field(item)),
        DataType::LargeList(item) => DataType::LargeList(of_field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(of_field(item), *size),
        DataType::Struct(fields) => DataType::Struct(decoded_fields(fields, is_cut)),
        DataType::Map(entries, is_sorted) => DataType::Map(of_field(entries), *is_sorted),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// A batch of decoded columns in the types of a schema, column by column.
pub(crate) fn read_batch(batch: RecordBatch, schema: &SchemaRef, readings: &[Reading]) -> Result<RecordBatch, Unread> {
    if batch.schema_ref().fields() == schema.fields() {
        return Ok(batch);
    }
    let columns = batch.columns().iter().zip(schema.fields()).zip(readings);
    let columns = columns.map(|((column, field), reading)| {
        read(column, field.data_type(), *reading).map_err(|unread| match unread {
            Unread::Misfit(misfit) => Unread::Misfit(Misfit { column: field.name().clone(), ..misfit }),
            other => other,
        })
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

fn read(column: &ArrayRef, to: &DataType, reading: Reading) -> Result<ArrayRef, Unread> {
    match (column.data_type(), to) {
        (from, to) if from == to => Ok(Arc::clone(column)),
        (DataType::Utf8View, to) => read_texts(column.as_string_view(), to, reading),
        (DataType::List(_), DataType::List(item)) => read_list::<i32>(column.as_list(), item, reading),
        (DataType::LargeList(_), DataType::LargeList(item)) => read_list::<i64>(column.as_list(), item, reading),
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, size)) => {
            let list = column.as_fixed_size_list();
            let per_row = usize::try_from(*size).unwrap_or(0).max(1);
            let values = read(list.values(), item.data_type(), reading).map_err(|unread| unread.of_row(|at| at / per_row))?;
            Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *size, values, list.nulls().cloned())?))
        }
        (DataType::Struct(_), DataType::Struct(fields)) => Ok(Arc::new(read_struct(column.as_struct(), fields, reading)?)),
        (DataType::Map(..), DataType::Map(entries, is_sorted)) => {
            let (map, DataType::Struct(fields)) = (column.as_map(), entries.data_type()) else {
                return Err(no_reading(column, to));
            };
            let rows = |unread: Unread| unread.of_row(|at| row_of(map.offsets(), at));
            let values = read_struct(map.entries(), fields, reading).map_err(rows)?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, values, nulls, *is_sorted)?))
        }
        (_, to) => Err(no_reading(column, to)),
    }
}

fn no_reading(column: &ArrayRef, to: &DataType) -> Unread {
    Unread::Arrow(ArrowError::CastError(format!("no {to} can be read from {}", column.data_type())))
}

fn read_list<O: OffsetSizeTrait>(list: &GenericListArray<O>, item: &FieldRef, reading: Reading) -> Result<ArrayRef, Unread> {
    let rows = |unread: Unread| unread.of_row(|at| row_of(list.offsets(), at));
    let values = read(list.values(), item.data_type(), reading).map_err(rows)?;
    let nulls = list.nulls().cloned();
    Ok(Arc::new(GenericListArray::try_new(Arc::clone(item), list.offsets().clone(), values, nulls)?))
}

/// The row of a list's value.
fn row_of<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, at: usize) -> usize {
    offsets.partition_point(|offset| offset.as_usize() <= at).saturating_sub(1)
}

fn read_struct(rows: &StructArray, fields: &Fields, reading: Reading) -> Result<StructArray, Unread> {
    let columns = rows.columns().iter().zip(fields).map(|(column, field)| read(column, field.data_type(), reading));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(StructArray::try_new_with_length(fields.clone(), columns, rows.nulls().cloned(), rows.len())?)
}

fn read_texts(texts: &StringViewArray, to: &DataType, reading: Reading) -> Result<ArrayRef, Unread> {
    macro_rules! integers {
        ($type:ty) => {
            primitive::<$type>(texts, to, |text| <$type>::parse(text).or_else(|| whole(text)))
        };
    }
    let count = |text: &str| if reading.counts { whole(text) } else { None };
    downcast_integer! {
        to => (integers),
        DataType::Decimal32(precision, scale) => decimals::<Decimal32Type>(texts, to, *precision, *scale),
        DataType::Decimal64(precision, scale) => decimals::<Decimal64Type>(texts, to, *precision, *scale),
        DataType::Decimal128(precision, scale) => decimals::<Decimal128Type>(texts, to, *precision, *scale),
        DataType::Decimal256(precision, scale) => decimals::<Decimal256Type>(texts, to, *precision, *scale),
        DataType::Date32 => {
            let days = |text: &str| day(text).or_else(|| if reading.counts { whole(text) } else { None });
            counted::<Int32Type>(texts, to, days)
        },
        DataType::Date64 => {
            let of_day = |text: &str| day(text).map(|day| i64::from(day) * MILLISECONDS_A_DAY);
            counted::<Int64Type>(texts, to, |text| {
                of_day(text).or_else(|| moment(text, &Utc, TimeUnit::Millisecond, Zones::Any)).or_else(|| count(text))
            })
        },
        DataType::Time32(unit) => counted::<Int32Type>(texts, to, |text| {
            time_of_day(text, *unit).and_then(|time| i32::try_from(time).ok()).or_else(|| whole(text))
        }),
        DataType::Time64(unit) => counted::<Int64Type>(texts, to, |text| time_of_day(text, *unit).or_else(|| whole(text))),
        DataType::Duration(_) => counted::<Int64Type>(texts, to, whole),
        DataType::Timestamp(unit, Some(zone)) => {
            let zone: Tz = zone.parse()?;
            counted::<Int64Type>(texts, to, |text| moment(text, &zone, *unit, reading.zones).or_else(|| count(text)))
        },
        DataType::Timestamp(unit, None) => {
            counted::<Int64Type>(texts, to, |text| moment(text, &Utc, *unit, reading.zones).or_else(|| count(text)))
        },
        DataType::BinaryView => bytes(texts),
        other => Err(Unread::Arrow(ArrowError::CastError(format!("no {other} can be read from texts")))),
    }
}

/// Bytes in hex as they are written, `00ff`, or as PostgreSQL writes them, `\x00ff`.
fn bytes(texts: &StringViewArray) -> Result<ArrayRef, Unread> {
    let mut values = BinaryViewBuilder::with_capacity(texts.len());
    for (row, text) in texts.iter().enumerate() {
        let misfit = |text: &str| Misfit { row, column: String::new(), value: text.to_owned(), expected: DataType::BinaryView };
        let read = text.map(|text| from_hex(text).ok_or_else(|| Unread::Misfit(misfit(text))));
        values.append_option(read.transpose()?);
    }
    Ok(Arc::new(values.finish()))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x").unwrap_or(text).as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    digits.chunks(2).map(pair).collect()
}

const MILLISECONDS_A_DAY: i64 = 86_400_000;

/// The quick parser of decimals counts digits by bytes, which overflow.
const SHORT_CHARS: usize = 100;

/// Values of a type that counts something, such as days, by what it counts with.
fn counted<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    to: &DataType,
    value: impl Fn(&str) -> Option<T::Native>,
) -> Result<ArrayRef, Unread> {
    let counts: ArrayRef = Arc::new(values::<T>(texts, to, value)?);
    Ok(cast(&counts, to)?)
}

fn primitive<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    to: &DataType,
    value: impl Fn(&str) -> Option<T::Native>,
) -> Result<ArrayRef, Unread> {
    Ok(Arc::new(values::<T>(texts, to, value)?))
}

fn decimals<T: DecimalType>(texts: &StringViewArray, to: &DataType, precision: u8, scale: i8) -> Result<ArrayRef, Unread> {
    let holds = |value: &T::Native| T::is_valid_decimal_precision(*value, precision);
    let decimals = values::<T>(texts, to, |text| {
        // The quick parser cuts digits, so it is for numbers that have none to cut.
        let quick = has_digits_within(text, scale).then(|| parse_decimal::<T>(text, precision, scale).ok()).flatten();
        quick.or_else(|| scaled(text, scale).filter(holds))
    })?;
    Ok(Arc::new(decimals.with_precision_and_scale(precision, scale)?))
}

/// Whether a short number is written without a power of 10, and with no more digits behind its point than a scale has.
fn has_digits_within(text: &str, scale: i8) -> bool {
    let bytes = text.as_bytes();
    let behind = memchr(b'.', bytes).map_or(0, |point| bytes.len() - point - 1);
    bytes.len() <= SHORT_CHARS
        && usize::try_from(scale).is_ok_and(|scale| behind <= scale)
        && memchr2(b'e', b'E', bytes).is_none()
}

fn values<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    to: &DataType,
    value: impl Fn(&str) -> Option<T::Native>,
) -> Result<PrimitiveArray<T>, Unread> {
    let mut values = PrimitiveBuilder::<T>::with_capacity(texts.len());
    for (row, text) in texts.iter().enumerate() {
        let read = text.map(|text| {
            let misfit = || Misfit { row, column: String::new(), value: text.to_owned(), expected: to.clone() };
            value(text).ok_or_else(|| Unread::Misfit(misfit()))
        });
        values.append_option(read.transpose()?);
    }
    Ok(values.finish())
}
