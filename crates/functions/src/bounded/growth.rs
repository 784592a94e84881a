//! [`Growth`]: the largest size that a function's result can have, computed from its arguments.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

/// The most bytes of a character.
const CHAR_BYTES: u64 = 4;
/// The bytes of a list's value where its type does not determine them.
const VALUE_BYTES: u64 = 16;
/// Nanoseconds of a day.
const DAY_NS: i128 = 86_400_000_000_000;
/// The fewest days of a month.
const MONTH_DAYS: i128 = 28;

/// The ways in which a function's result becomes large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Growth {
    /// `repeat(text, n)`.
    Times,
    /// `array_repeat(element, n)`.
    Copies,
    /// `lpad(text, n)` and `rpad(text, n)`, which count in characters.
    Characters,
    /// `array_resize(list, n)`, which counts in elements.
    Elements,
    /// `range(start, stop, step)`, which excludes its stop, and `generate_series`, which includes it.
    Series,
    /// All arguments, one after the other.
    Together,
    /// `replace(text, from, to)`.
    Replacements,
    /// `regexp_replace(text, pattern, replacement)`, which may find its pattern between any two characters.
    PatternReplacements,
}

impl Growth {
    /// The way of a function; none if its result is at most a small multiple of its arguments, and does not add them
    /// up.
    pub(super) fn of(name: &str) -> Option<Growth> {
        Some(match name {
            "repeat" => Growth::Times,
            "array_repeat" => Growth::Copies,
            "lpad" | "rpad" => Growth::Characters,
            "array_resize" => Growth::Elements,
            "range" | "generate_series" => Growth::Series,
            "concat" | "concat_ws" | "overlay" | "encode" | "array_concat" | "array_append" | "array_prepend"
            | "make_array" | "named_struct" | "struct" | "||" => Growth::Together,
            "replace" => Growth::Replacements,
            "regexp_replace" => Growth::PatternReplacements,
            _ => return None,
        })
    }

    /// Whether few bytes of arguments make a large result, so that constants alone can.
    pub(super) fn is_by_number(self) -> bool {
        matches!(self, Growth::Times | Growth::Copies | Growth::Characters | Growth::Elements | Growth::Series)
    }

    /// Whether [`Self::bytes`] is close to what the result takes. Otherwise the result may take far less.
    pub(super) fn is_close(self) -> bool {
        !matches!(self, Growth::Replacements | Growth::PatternReplacements)
    }

    /// The most bytes that each row of the result can take.
    pub(super) fn bytes(self, arguments: &[ColumnarValue], rows: usize) -> Result<Vec<u64>> {
        let bytes = |index: usize| arguments.get(index).map(|argument| Sizes::of(argument, rows)).transpose();
        let count = |index: usize| arguments.get(index).map(Numbers::of).transpose();
        let each = |of: &dyn Fn(usize) -> u64| Ok((0..rows).map(of).collect());
        match self {
            Growth::Times | Growth::Copies => {
                let (value, times) = (bytes(0)?, count(1)?);
                let least = if self == Growth::Copies { VALUE_BYTES } else { 0 };
                each(&|row| at(&value, row).max(least).saturating_mul(number(&times, row).max(0) as u64))
            }
            Growth::Characters => {
                let (text, length) = (bytes(0)?, count(1)?);
                let fill_bytes = if is_ascii(arguments.get(2)) { 1 } else { CHAR_BYTES };
                each(&|row| at(&text, row).saturating_add((number(&length, row).max(0) as u64).saturating_mul(fill_bytes)))
            }
            Growth::Elements => {
                let (list, length, value) = (bytes(0)?, count(1)?, bytes(2)?);
                each(&|row| {
                    let one = VALUE_BYTES.max(at(&value, row));
                    at(&list, row).saturating_add((number(&length, row).max(0) as u64).saturating_mul(one))
                })
            }
            Growth::Series => {
                let (start, stop) = match arguments {
                    [stop] => (None, Some(Points::of(stop)?)),
                    [start, stop, ..] => (Some(Points::of(start)?), Some(Points::of(stop)?)),
                    [] => (None, None),
                };
                let step = arguments.get(2).map(Points::of).transpose()?;
                let point = |points: &Option<Points>, row, other| points.as_ref().map_or(Some(other), |points| points.at(row));
                each(&|row| {
                    let values = point(&start, row, 0).zip(point(&stop, row, 0)).zip(point(&step, row, 1));
                    // A series of NULL is none.
                    let values = values.map_or(0, |((from, to), by)| values_between(from, to, by));
                    values.saturating_mul(VALUE_BYTES)
                })
            }
            Growth::Together => {
                let sizes = arguments.iter().map(|argument| Sizes::of(argument, rows)).collect::<Result<Vec<_>>>()?;
                each(&|row| sizes.iter().map(|size| size.at(row)).fold(0, u64::saturating_add))
            }
            Growth::Replacements => {
                let (text, from, to) = (bytes(0)?, bytes(1)?, bytes(2)?);
                each(&|row| {
                    let places = at(&text, row) / at(&from, row).max(1) + 1;
                    at(&text, row).saturating_add(places.saturating_mul(at(&to, row)))
                })
            }
            Growth::PatternReplacements => {
                let (text, to) = (bytes(0)?, bytes(2)?);
                each(&|row| (at(&text, row) + 1).saturating_mul(1 + at(&to, row)).saturating_mul(2))
            }
        }
    }
}

/// The most values of a series. One that goes the other way than its step is empty.
fn values_between(from: i128, to: i128, by: i128) -> u64 {
    let (way, step) = if by < 0 { (from.saturating_sub(to), by.saturating_neg()) } else { (to.saturating_sub(from), by) };
    if way < 0 { 0 } else { u64::try_from(way / step.max(1) + 1).unwrap_or(u64::MAX) }
}

fn at(sizes: &Option<Sizes>, row: usize) -> u64 {
    sizes.as_ref().map_or(0, |sizes| sizes.at(row))
}

fn number(numbers: &Option<Numbers>, row: usize) -> i64 {
    numbers.as_ref().map_or(0, |numbers| numbers.at(row))
}

/// Whether the fill is known to consist of characters of one byte. Without a fill, it is a blank.
fn is_ascii(fill: Option<&ColumnarValue>) -> bool {
    match fill {
        None => true,
        Some(ColumnarValue::Scalar(value)) => value.try_as_str().is_some_and(|text| text.is_none_or(str::is_ascii)),
        Some(ColumnarValue::Array(_)) => false,
    }
}

/// Bytes of an argument's values.
enum Sizes {
    Same(u64),
    Each(Vec<u64>),
}

impl Sizes {
    fn of(argument: &ColumnarValue, rows: usize) -> Result<Sizes> {
        Ok(match argument {
            ColumnarValue::Scalar(value) => Sizes::Same(match value.try_as_str() {
                Some(text) => text.map_or(0, |text| text.len() as u64),
                None => value.size() as u64,
            }),
            ColumnarValue::Array(array) => Sizes::Each(match array.data_type() {
                DataType::Utf8View => array.as_string_view().lengths().map(u64::from).collect(),
                DataType::BinaryView => array.as_binary_view().lengths().map(u64::from).collect(),
                DataType::Utf8 => array.as_string::<i32>().offsets().lengths().map(|length| length as u64).collect(),
                DataType::LargeUtf8 => array.as_string::<i64>().offsets().lengths().map(|length| length as u64).collect(),
                DataType::List(_) => {
                    let list = array.as_list::<i32>();
                    let one = mean_bytes(list.values())?;
                    list.offsets().lengths().map(|length| (length as u64).saturating_mul(one)).collect()
                }
                _ => vec![mean_bytes(array)?; rows],
            }),
        })
    }

    fn at(&self, row: usize) -> u64 {
        match self {
            Sizes::Same(size) => *size,
            Sizes::Each(sizes) => sizes.get(row).copied().unwrap_or(0),
        }
    }
}

/// The mean bytes of a value, rounded up.
fn mean_bytes(array: &ArrayRef) -> Result<u64> {
    if let Some(text) = array.as_string_view_opt() {
        return Ok(text.lengths().map(u64::from).sum::<u64>().div_ceil(array.len().max(1) as u64).max(VALUE_BYTES));
    }
    let bytes = array.to_data().get_slice_memory_size()?;
    Ok(bytes.div_ceil(array.len().max(1)) as u64)
}

/// The numbers of an argument. NULL, and what is not a number, counts as 0.
enum Numbers {
    Same(i64),
    Each(Vec<i64>),
}

impl Numbers {
    fn of(argument: &ColumnarValue) -> Result<Numbers> {
        let array = match argument {
            ColumnarValue::Scalar(value) => value.to_array()?,
            ColumnarValue::Array(array) => array.clone(),
        };
        let numbers = cast_with_options(&array, &DataType::Int64, &CastOptions { safe: true, ..CastOptions::default() })?;
        let numbers: Vec<i64> = numbers.as_primitive::<Int64Type>().iter().map(Option::unwrap_or_default).collect();
        Ok(match argument {
            ColumnarValue::Scalar(_) => Numbers::Same(numbers.first().copied().unwrap_or(0)),
            ColumnarValue::Array(_) => Numbers::Each(numbers),
        })
    }

    fn at(&self, row: usize) -> i64 {
        match self {
            Numbers::Same(number) => *number,
            Numbers::Each(numbers) => numbers.get(row).copied().unwrap_or(0),
        }
    }
}

/// The start, the stop and the step of a series: whole numbers, or the fewest nanoseconds of dates, times and
/// intervals.
enum Points {
    Same(Option<i128>),
    Each(Vec<Option<i128>>),
}

impl Points {
    fn of(argument: &ColumnarValue) -> Result<Points> {
        let array = match argument {
            ColumnarValue::Scalar(value) => value.to_array()?,
            ColumnarValue::Array(array) => array.clone(),
        };
        let nulls = array.logical_nulls();
        let points: Vec<i128> = match array.data_type() {
            DataType::Interval(_) => {
                let steps =
                    cast_with_options(&array, &ScalarValue::IntervalMonthDayNano(None).data_type(), &CastOptions::default())?;
                let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
                let ns = |months: i32, days: i32, ns: i64| {
                    (i128::from(months) * MONTH_DAYS + i128::from(days)) * DAY_NS + i128::from(ns)
                };
                steps.iter().map(|step| step.map_or(0, |step| ns(step.months, step.days, step.nanoseconds))).collect()
            }
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
                let unit = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None);
                let times = cast_with_options(&array, &unit, &CastOptions { safe: true, ..CastOptions::default() })?;
                let times = cast_with_options(&times, &DataType::Int64, &CastOptions::default())?;
                times.as_primitive::<Int64Type>().iter().map(|ms| i128::from(ms.unwrap_or(0)) * 1_000_000).collect()
            }
            _ => match Numbers::of(&ColumnarValue::Array(array))? {
                Numbers::Same(number) => vec![i128::from(number)],
                Numbers::Each(numbers) => numbers.into_iter().map(i128::from).collect(),
            },
        };
        let known = |(row, point)| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)).then_some(point);
        let points: Vec<Option<i128>> = points.into_iter().enumerate().map(known).collect();
        Ok(match argument {
            ColumnarValue::Scalar(_) => Points::Same(points.first().copied().flatten()),
            ColumnarValue::Array(_) => Points::Each(points),
        })
    }

    /// None: NULL.
    fn at(&self, row: usize) -> Option<i128> {
        match self {
            Points::Same(point) => *point,
            Points::Each(points) => points.get(row).copied().flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_no_values_where_it_has_no_end_or_goes_the_other_way() {
        let bytes = |values: [Option<i64>; 3]| {
            let arguments = values.map(|value| ColumnarValue::Scalar(ScalarValue::Int64(value)));
            Growth::Series.bytes(&arguments, 1).unwrap()[0] / VALUE_BYTES
        };
        assert_eq!(bytes([Some(1), Some(10), Some(3)]), 4);
        assert_eq!(bytes([Some(10), Some(1), Some(-3)]), 4);
        for none in [[Some(5_000_000_000), Some(0), Some(1)], [None, Some(9), Some(1)], [Some(0), Some(9), None]] {
            assert_eq!(bytes(none), 0, "{none:?}");
        }
        assert_eq!(bytes([Some(i64::MIN), Some(i64::MAX), Some(1)]), u64::MAX / VALUE_BYTES);
        let end = |ms| ColumnarValue::Scalar(ScalarValue::TimestampMillisecond(ms, None));
        let minute = ColumnarValue::Scalar(ScalarValue::new_interval_mdn(0, 0, 60_000_000_000));
        let minutes = |to| Growth::Series.bytes(&[end(Some(0)), end(to), minute.clone()], 1).unwrap()[0] / VALUE_BYTES;
        assert_eq!((minutes(Some(180_000)), minutes(None)), (4, 0));
    }
}
