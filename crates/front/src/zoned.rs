//! Moments with a zone beside wall times and days: which is which only a zone says, and that is the session's.

use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, ListArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use chrono::{DateTime, Offset, TimeZone};
use pithead_functions::moments_at;
use pithead_host::converted;

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00")
}

/// The zone of moments, or of those in a list.
fn zone_of(data_type: &DataType) -> Option<&str> {
    match data_type {
        DataType::Timestamp(_, zone) => zone.as_deref(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => zone_of(item.data_type()),
        _ => None,
    }
}

/// Whether it hangs on the session's zone what values of one type are as another: one of the two has a zone, and not all is in UTC.
/// Arrow knows nothing of a session, and takes UTC or the zone of the type.
pub(crate) fn zone_matters(from: &DataType, to: &DataType, zone: &str) -> bool {
    match (zone_of(from), zone_of(to)) {
        (Some(own), None) | (None, Some(own)) => !(is_utc(own) && is_utc(zone)),
        _ => false,
    }
}

/// Moments with a zone as wall times or days of the session's, or these as moments, also in lists. None: one of them is not the same
/// there, or something else.
pub(crate) fn in_zone(values: &ArrayRef, to: &DataType, zone: &str) -> Option<ArrayRef> {
    let is_wall_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, None));
    let is_day = |data_type: &DataType| matches!(data_type, DataType::Date32 | DataType::Date64);
    match (values.data_type(), to) {
        (DataType::List(_), DataType::List(item)) => {
            let lists = values.as_list::<i32>();
            let items = in_zone(lists.values(), item.data_type(), zone)?;
            let lists = ListArray::try_new(Arc::clone(item), lists.offsets().clone(), items, lists.nulls().cloned());
            lists.ok().map(|lists| Arc::new(lists) as ArrayRef)
        }
        (DataType::Timestamp(_, Some(_)), to) if is_wall_time(to) || is_day(to) => converted(&shown(values, zone)?, to),
        (from, DataType::Timestamp(_, Some(_))) if is_wall_time(from) => converted(&moments_at(values, zone).ok()?, to),
        (from, DataType::Timestamp(_, Some(_))) if is_day(from) => {
            let midnights = converted(values, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            converted(&moments_at(&midnights, zone).ok()?, to)
        }
        _ => None,
    }
}

/// What clocks of a zone show at moments.
fn shown(moments: &ArrayRef, zone: &str) -> Option<ArrayRef> {
    let zone: Tz = zone.parse().ok()?;
    let moments = converted(moments, &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))?;
    let one = |micros: i64| {
        let moment = DateTime::from_timestamp_micros(micros)?.naive_utc();
        let there = moment.checked_add_offset(zone.offset_from_utc_datetime(&moment).fix())?;
        Some(there.and_utc().timestamp_micros())
    };
    let moments = moments.as_primitive::<TimestampMicrosecondType>();
    let all: Option<Vec<Option<i64>>> =
        moments.iter().map(|micros| micros.map_or(Some(None), |micros| one(micros).map(Some))).collect();
    Some(Arc::new(TimestampMicrosecondArray::from(all?)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Int64Array};
    use arrow::util::display::array_value_to_string;

    use super::*;

    const ZONE: &str = "Europe/Berlin";
    /// 2024-07-01 00:00:00 in UTC, and the day.
    const MICROS: i64 = 1_719_792_000_000_000;
    const DAY: i32 = 19_905;
    const HOUR: i64 = 3_600_000_000;

    fn zoned() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    }

    fn there(values: ArrayRef, to: &DataType) -> Option<String> {
        let found = in_zone(&values, to, ZONE)?;
        assert_eq!(found.data_type(), to);
        Some(array_value_to_string(&found, 0).unwrap())
    }

    #[test]
    fn clocks_are_those_of_the_session() {
        let wall = DataType::Timestamp(TimeUnit::Microsecond, None);
        let moment = |micros| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC")) };
        assert_eq!(there(moment(MICROS), &wall).as_deref(), Some("2024-07-01T02:00:00"));
        assert_eq!(there(moment(MICROS - 2 * HOUR), &DataType::Date32).as_deref(), Some("2024-07-01"));
        assert_eq!(there(moment(MICROS), &DataType::Date32), None, "it is no day's beginning");
        let wall_time: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![MICROS]));
        assert_eq!(there(Arc::clone(&wall_time), &zoned()).as_deref(), Some("2024-06-30T22:00:00Z"));
        assert_eq!(there(Arc::new(Date32Array::from(vec![DAY])), &zoned()).as_deref(), Some("2024-06-30T22:00:00Z"));
        assert_eq!(there(Arc::new(Int64Array::from(vec![MICROS])), &zoned()), None);
        let item = Arc::new(arrow::datatypes::Field::new("item", wall.clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths([1]);
        let list: ArrayRef = Arc::new(ListArray::new(item, offsets, wall_time, None));
        assert_eq!(there(list, &DataType::new_list(zoned(), true)).as_deref(), Some("[2024-06-30T22:00:00Z]"));
    }

    #[test]
    fn in_utc_no_zone_matters() {
        let wall = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert!(zone_matters(&zoned(), &wall, ZONE) && zone_matters(&DataType::Date32, &zoned(), ZONE));
        assert!(zone_matters(&DataType::new_list(zoned(), true), &DataType::new_list(wall.clone(), true), ZONE));
        assert!(!zone_matters(&zoned(), &wall, "UTC") && !zone_matters(&wall, &DataType::Date32, ZONE));
    }
}
