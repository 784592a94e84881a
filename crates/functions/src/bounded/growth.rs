//! [`Growth`]: the largest size that a function's result can have, computed from its arguments.

use arrow::array::{Array, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

use super::parts::{Sizes, VALUE_BYTES, elements, groups};
use crate::formatted::Style;

/// The most bytes of a character.
const CHAR_BYTES: u64 = 4;
/// The most bytes of a number or a moment as a text.
const NUMBER_BYTES: u64 = 40;
/// The most bytes of a format whose result need not be counted.
const FORMAT_BYTES: u64 = 64;
/// The most bytes that are written for a byte of a format: `%+` writes 35.
const FORMAT_TIMES: u64 = 18;
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
    /// `regexp_match(text, pattern)`: each group of the pattern may be the whole text.
    PatternGroups,
    /// `concat_ws(separator, ...)`.
    Separators,
    /// `array_to_string(list, separator, null)`.
    Listed,
    /// `array_replace_all(list, from, to)`.
    ElementReplacements,
    /// `to_char(moment, format)`.
    Formatted,
    /// `format(format, ...)` and `printf(format, ...)`.
    Written(Style),
    /// `levenshtein(text, text)`, whose result is small, but which takes as many steps as the product of both.
    Steps,
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
            "concat" | "overlay" | "encode" | "array_concat" | "array_append" | "array_prepend" | "make_array"
            | "named_struct" | "struct" | "||" => Growth::Together,
            "replace" => Growth::Replacements,
            "regexp_replace" => Growth::PatternReplacements,
            "regexp_match" => Growth::PatternGroups,
            "concat_ws" => Growth::Separators,
            "array_to_string" => Growth::Listed,
            "array_replace" | "array_replace_n" | "array_replace_all" => Growth::ElementReplacements,
            "to_char" => Growth::Formatted,
            "format" => Growth::Written(Style::Braces),
            "printf" => Growth::Written(Style::Percent),
            "levenshtein" => Growth::Steps,
            _ => return None,
        })
    }

    /// Whether the result may be many times the size of all arguments.
    pub(super) fn multiplies(self) -> bool {
        self != Growth::Together
    }

    /// Whether [`Self::bytes`] is close to what the result takes. Otherwise the result may take far less.
    pub(super) fn is_close(self) -> bool {
        use Growth::{ElementReplacements, Formatted, Listed, PatternGroups, PatternReplacements, Replacements};
        // Steps take no memory.
        let loose = [Growth::Steps, Replacements, PatternReplacements, PatternGroups, ElementReplacements, Listed, Formatted];
        !(loose.contains(&self) || matches!(self, Growth::Written(_)))
    }

    /// The most bytes that each row of the result can take, or the most steps.
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
            Growth::Together | Growth::Separators => {
                let sizes = arguments.iter().map(|argument| Sizes::of(argument, rows)).collect::<Result<Vec<_>>>()?;
                let separators = if self == Growth::Separators { arguments.len().saturating_sub(2) as u64 } else { 0 };
                each(&|row| {
                    let between = sizes.first().map_or(0, |separator| separator.at(row)).saturating_mul(separators);
                    sizes.iter().map(|size| size.at(row)).fold(between, u64::saturating_add)
                })
            }
            other => other.bytes_of_parts(arguments, rows),
        }
    }

    /// [`Self::bytes`] of what makes its result of parts of an argument.
    fn bytes_of_parts(self, arguments: &[ColumnarValue], rows: usize) -> Result<Vec<u64>> {
        let bytes = |index: usize| arguments.get(index).map(|argument| Sizes::of(argument, rows)).transpose();
        let each = |of: &dyn Fn(usize) -> u64| Ok((0..rows).map(of).collect());
        match self {
            Growth::PatternReplacements => {
                let (text, to) = (bytes(0)?, bytes(2)?);
                each(&|row| (at(&text, row) + 1).saturating_mul(1 + at(&to, row)).saturating_mul(2))
            }
            Growth::PatternGroups => {
                let (text, groups) = (bytes(0)?, arguments.get(1).map(|pattern| groups(pattern, rows)).transpose()?);
                each(&|row| (at(&text, row) + VALUE_BYTES).saturating_mul(at(&groups, row).max(1)))
            }
            Growth::Listed | Growth::ElementReplacements => {
                let elements = arguments.first().map(|list| elements(list, rows)).transpose()?;
                let (list, one, other) = (bytes(0)?, bytes(1)?, bytes(2)?);
                let own = if self == Growth::Listed { NUMBER_BYTES } else { 0 };
                each(&|row| {
                    let one = if self == Growth::Listed { at(&one, row) } else { 0 };
                    let more = one.saturating_add(at(&other, row)).saturating_add(own);
                    at(&list, row).saturating_add(at(&elements, row).saturating_mul(more))
                })
            }
            Growth::Formatted => {
                let format = bytes(1)?;
                // What a short one writes is no more than other functions of a moment make.
                let long = |row| Some(at(&format, row)).filter(|bytes| *bytes > FORMAT_BYTES).unwrap_or(0);
                each(&|row| long(row).saturating_mul(FORMAT_TIMES))
            }
            Growth::Written(style) => written(style, arguments, rows),
            Growth::Steps => {
                let (one, other) = (bytes(0)?, bytes(1)?);
                each(&|row| at(&one, row).saturating_mul(at(&other, row)))
            }
            _ => {
                let (text, from, to) = (bytes(0)?, bytes(1)?, bytes(2)?);
                each(&|row| {
                    let places = at(&text, row) / at(&from, row).max(1) + 1;
                    at(&text, row).saturating_add(places.saturating_mul(at(&to, row)))
                })
            }
        }
    }
}

/// The most bytes that values take in texts of a format. Each place may be that of the longest text.
fn written(style: Style, arguments: &[ColumnarValue], rows: usize) -> Result<Vec<u64>> {
    let [format, values @ ..] = arguments else { return Ok(vec![0; rows]) };
    let values = values.iter().map(|value| Sizes::of(value, rows)).collect::<Result<Vec<_>>>()?;
    let formats = format.to_array(rows)?;
    let Some(formats) = formats.as_string_view_opt() else { return Ok(vec![0; rows]) };
    let mut known = ("", (0, 0));
    let each = (0..rows).map(|row| {
        if formats.value(row) != known.0 {
            known = (formats.value(row), style.sizes(formats.value(row)));
        }
        let (own, places) = known.1;
        let longest = values.iter().map(|value| value.at(row)).max().unwrap_or(0);
        own.saturating_add(longest.saturating_mul(places))
    });
    Ok(each.collect())
}

/// The most values of a series. One that goes the other way than its step is empty, and one without a step is refused by the function.
fn values_between(from: i128, to: i128, by: i128) -> u64 {
    if by == 0 {
        return 0;
    }
    let (way, step) = if by < 0 { (from.saturating_sub(to), by.saturating_neg()) } else { (to.saturating_sub(from), by) };
    if way < 0 { 0 } else { u64::try_from(way / step + 1).unwrap_or(u64::MAX) }
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
    fn a_series_has_no_values_where_it_has_no_end_or_no_step_or_goes_the_other_way() {
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
        assert_eq!(bytes([Some(i64::MIN), Some(i64::MAX), Some(0)]), 0);
        let end = |ms| ColumnarValue::Scalar(ScalarValue::TimestampMillisecond(ms, None));
        let minute = ColumnarValue::Scalar(ScalarValue::new_interval_mdn(0, 0, 60_000_000_000));
        let minutes = |to| Growth::Series.bytes(&[end(Some(0)), end(to), minute.clone()], 1).unwrap()[0] / VALUE_BYTES;
        assert_eq!((minutes(Some(180_000)), minutes(None)), (4, 0));
    }
}
