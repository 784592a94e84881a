//! The time zones that there are.

use chrono::{Offset, TimeZone, Utc};
use chrono_tz::{OffsetComponents, OffsetName, TZ_VARIANTS};

/// A time zone as it is now.
pub(crate) struct Zone {
    pub(crate) name: &'static str,
    pub(crate) abbreviation: String,
    pub(crate) offset_micros: i64,
    pub(crate) is_summer: bool,
}

/// All of them.
pub(crate) fn all() -> Vec<Zone> {
    let now = Utc::now().naive_utc();
    let zone = |zone: &chrono_tz::Tz| {
        let offset = zone.offset_from_utc_datetime(&now);
        Zone {
            name: zone.name(),
            abbreviation: offset.abbreviation().unwrap_or_default().to_owned(),
            offset_micros: i64::from(offset.fix().local_minus_utc()) * 1_000_000,
            is_summer: !offset.dst_offset().is_zero(),
        }
    };
    TZ_VARIANTS.iter().map(zone).collect()
}
