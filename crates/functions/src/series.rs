//! `range` and `generate_series` as lists of moments. Each step is added to the moment before it, by the zone's clocks, as in PostgreSQL
//! and DuckDB.
//!
//! DataFusion's take the step from the end of days, which loses the last of them where months differ in length, and compute moments in
//! nanoseconds, which reach from 1677 to 2262 only. Whole numbers are left to them.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Date32Type, Field, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    TimestampMicrosecondType, TimestampNanosecondType,
};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::functions_nested::range::{gen_series_udf, range_udf};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::delegated::as_standard;
use crate::wall_time::{Unit, as_given, later, zone_of};

pub(crate) fn series_udfs() -> [ScalarUDF; 2] {
    [(range_udf(), false), (gen_series_udf(), true)]
        .map(|(standard, has_end)| ScalarUDF::new_from_impl(Series { standard, has_end }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    standard: Arc<ScalarUDF>,
    /// Whether the end is one of the values.
    has_end: bool,
}

/// The type in which moments of two types are counted; none: they are no moments. Days remain days.
fn counted_in(from: &DataType, to: &DataType) -> Option<DataType> {
    match (from, to) {
        (DataType::Timestamp(one, zone), DataType::Timestamp(other, _)) => {
            let is_fine = [one, other].contains(&&TimeUnit::Nanosecond);
            let unit = if is_fine { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
            Some(DataType::Timestamp(unit, zone.clone()))
        }
        (DataType::Date32 | DataType::Date64, DataType::Date32 | DataType::Date64) => Some(DataType::Date32),
        _ => None,
    }
}

impl ScalarUDFImpl for Series {
    as_standard!(name aliases signature documentation);

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [from, to, step] if !step.is_null() => match counted_in(from, to) {
                Some(of) => Ok(DataType::List(Arc::new(Field::new_list_field(of, true)))),
                None => self.standard.return_type(types),
            },
            _ => self.standard.return_type(types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        let of = match types.as_slice() {
            [from, to, step] if !step.is_null() => counted_in(from, to),
            _ => None,
        };
        let Some(of) = of else { return self.standard.invoke_with_args(args) };
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let [from, to, steps] = columns.as_slice() else { return internal_err!("expected three arguments") };
        let steps = strictly(steps, &DataType::Interval(IntervalUnit::MonthDayNano))?;
        let to_type = match (to.data_type(), &of) {
            (DataType::Timestamp(_, zone), DataType::Timestamp(unit, _)) => DataType::Timestamp(*unit, zone.clone()),
            _ => of.clone(),
        };
        let (from, to) = (strictly(from, &of)?, strictly(to, &to_type)?);
        let ends = Ends { from, to, steps, has_end: self.has_end, name: self.name() };
        let lists = match &of {
            DataType::Timestamp(unit, zone) => {
                let zone = zone_of(zone.as_deref().unwrap_or("+00:00"))?;
                match unit {
                    TimeUnit::Nanosecond => ends.moments::<TimestampNanosecondType>(of.clone(), &zone),
                    _ => ends.moments::<TimestampMicrosecondType>(of.clone(), &zone),
                }
            }
            _ => ends.days(),
        };
        as_given(lists?, is_scalar)
    }
}

/// Values of a type, which an error says do not fit, if they do not.
fn strictly(values: &ArrayRef, of: &DataType) -> Result<ArrayRef> {
    Ok(cast_with_options(values, of, &CastOptions { safe: false, ..CastOptions::default() })?)
}

/// The first moments, ends and steps of each row's list.
struct Ends<'a> {
    from: ArrayRef,
    to: ArrayRef,
    steps: ArrayRef,
    has_end: bool,
    name: &'a str,
}

impl Ends<'_> {
    fn moments<T: Unit>(&self, of: DataType, zone: &Tz) -> Result<ArrayRef> {
        let (from, to) = (self.from.as_primitive::<T>(), self.to.as_primitive::<T>());
        let mut values: Vec<i64> = Vec::new();
        let (lengths, nulls) = self.lists(|row, step, is_back| {
            let (mut value, end) = (from.value(row), to.value(row));
            while self.is_before(value, end, is_back) {
                values.push(value);
                let Some(next) = next::<T>(value, step, is_back, zone) else {
                    return exec_err!("{} reaches moments that are out of range", self.name);
                };
                value = next;
            }
            Ok(values.len())
        })?;
        list(lengths, nulls, Arc::new(PrimitiveArray::<T>::from_iter_values(values).with_data_type(of)))
    }

    fn days(&self) -> Result<ArrayRef> {
        let (from, to) = (self.from.as_primitive::<Date32Type>(), self.to.as_primitive::<Date32Type>());
        let mut values: Vec<i32> = Vec::new();
        let (lengths, nulls) = self.lists(|row, step, is_back| {
            if step.nanoseconds != 0 {
                return exec_err!("{} of days takes steps of whole days; write TIMESTAMP for shorter ones", self.name);
            }
            let (mut value, end) = (from.value(row), to.value(row));
            while self.is_before(value, end, is_back) {
                values.push(value);
                let Some(next) = Date32Type::add_month_day_nano_opt(value, step) else {
                    return exec_err!("{} reaches days that are out of range", self.name);
                };
                value = next;
            }
            Ok(values.len())
        })?;
        list(lengths, nulls, Arc::new(PrimitiveArray::<Date32Type>::from_iter_values(values)))
    }

    fn is_before<V: Ord>(&self, value: V, end: V, is_back: bool) -> bool {
        let order = if is_back { end.cmp(&value) } else { value.cmp(&end) };
        order.is_lt() || self.has_end && order.is_eq()
    }

    /// How many values each row's list has, and which rows have none: `fill` adds a row's values, and says how many there are in all.
    fn lists(
        &self,
        mut fill: impl FnMut(usize, IntervalMonthDayNano, bool) -> Result<usize>,
    ) -> Result<(Vec<usize>, Option<NullBuffer>)> {
        let steps = self.steps.as_primitive::<IntervalMonthDayNanoType>();
        let nulls = NullBuffer::union(NullBuffer::union(self.from.nulls(), self.to.nulls()).as_ref(), steps.nulls());
        let mut lengths = Vec::with_capacity(steps.len());
        let mut before = 0;
        for row in 0..steps.len() {
            let mut all = before;
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                let step = steps.value(row);
                all = fill(row, step, self.is_back(step)?)?;
            }
            lengths.push(all - before);
            before = all;
        }
        Ok((lengths, nulls))
    }

    /// Whether a step goes back.
    fn is_back(&self, step: IntervalMonthDayNano) -> Result<bool> {
        let parts = [i64::from(step.months), i64::from(step.days), step.nanoseconds];
        match (parts.iter().any(|part| *part > 0), parts.iter().any(|part| *part < 0)) {
            (false, false) => exec_err!("the step of {} must not be 0", self.name),
            (true, true) => exec_err!("the step of {} goes forward and back", self.name),
            (_, is_back) => Ok(is_back),
        }
    }
}

/// No zone's clocks have left out more days on end.
const STEPS_MAX: i32 = 3;

/// The moment a step further. A day that a zone's clocks left out is where the day behind it is, so a step back to it leads nowhere:
/// then it is as many steps as lead on.
fn next<T: Unit>(value: i64, step: IntervalMonthDayNano, is_back: bool, zone: &Tz) -> Option<i64> {
    let moment = T::read(value)?;
    (1..=STEPS_MAX).find_map(|times| {
        let (months, days) = (step.months.checked_mul(times)?, step.days.checked_mul(times)?);
        let nanoseconds = step.nanoseconds.checked_mul(i64::from(times))?;
        let next = later(moment, months, days, nanoseconds, zone).and_then(T::write)?;
        (if is_back { next < value } else { next > value }).then_some(next)
    })
}

fn list(lengths: Vec<usize>, nulls: Option<NullBuffer>, values: ArrayRef) -> Result<ArrayRef> {
    if i32::try_from(values.len()).is_err() {
        return exec_err!("lists of {} values in all are too long", values.len());
    }
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), values, nulls)?))
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;
    use datafusion::common::ScalarValue;
    use datafusion::execution::context::SessionContext;

    use super::*;
    use crate::wall_time::moment_of;
    use crate::{EngineOptions, session_state};

    async fn value(sql: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let frame = context.sql(sql).await.map_err(|error| error.to_string())?;
        let batches = frame.collect().await.map_err(|error| error.to_string())?;
        Ok(ScalarValue::try_from_array(batches[0].column(0), 0).unwrap().to_string())
    }

    #[tokio::test]
    async fn lists_have_their_last_days_and_reach_all_years() {
        for (call, expected) in [
            (
                "range(DATE '2024-01-31', DATE '2024-06-01', INTERVAL '1 month')",
                "[2024-01-31, 2024-02-29, 2024-03-29, 2024-04-29, 2024-05-29]",
            ),
            ("range(DATE '2024-01-03', DATE '2024-01-01', INTERVAL '-1 day')", "[2024-01-03, 2024-01-02]"),
            ("generate_series(DATE '2024-01-31', DATE '2024-01-31', INTERVAL '1 month')", "[2024-01-31]"),
            ("range(5, 8)", "[5, 6, 7]"),
        ] {
            assert_eq!(value(&format!("SELECT {call}")).await.unwrap(), expected, "{call}");
        }
        let far = "'1500-01-01 00:00:00'::timestamp(6), '1500-01-02 00:00:00'::timestamp(6)";
        let count = value(&format!("SELECT array_length(generate_series({far}, INTERVAL '8 hours'))")).await;
        assert_eq!(count.unwrap(), "4");
        for step in ["0 days", "1 month -1 day", "8 hours"] {
            let sql = format!("SELECT range(DATE '2024-01-01', DATE '2024-01-03', INTERVAL '{step}')");
            assert!(value(&sql).await.is_err(), "{step}");
        }
    }

    #[test]
    fn a_day_that_clocks_left_out_is_passed_over() {
        let zone = zone_of("Pacific/Apia").unwrap();
        let noon = |day: u32, month: u32, year: i32| {
            let noon = NaiveDate::from_ymd_opt(year, month, day).unwrap().and_hms_opt(12, 0, 0).unwrap();
            TimestampMicrosecondType::write(moment_of(noon, &zone).unwrap()).unwrap()
        };
        let back = |from| next::<TimestampMicrosecondType>(from, IntervalMonthDayNano::new(0, -1, 0), true, &zone).unwrap();
        assert_eq!(back(noon(1, 1, 2012)), noon(31, 12, 2011));
        assert_eq!(back(noon(31, 12, 2011)), noon(29, 12, 2011));
    }
}
