//! [`Way`]: how an array answers a sub-plan. Pure.

use pithead_model::{Level, LevelRule};

/// Which way a session goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Down as it is, a session a drive; what comes back goes up.
    Relay(Why),
    /// As a query of the array's own, put together here.
    Merge(Why),
    /// Neither gives the right rows.
    Neither,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its rows are just rows: nothing is saved by putting them together here.
    Rows,
    /// The host asked for bytes, or for rows that passed filters.
    Asked,
    /// The array has as much to merge as it has threads for: it hands this back.
    Busy,
    /// Partial results of several drives become fewer here.
    Partials,
    /// It needs more than the slices of one drive: a join with another dataset, or complete groups.
    Whole,
}

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Datasets.
    pub(crate) parts: usize,
    /// Times that the driving one is read.
    pub(crate) driving_scans: usize,
    pub(crate) whole_partition: bool,
    /// Rows rather than partial results.
    pub(crate) is_rows: bool,
    pub(crate) level: LevelRule,
    pub(crate) level_max: Level,
    /// The array has no thread free.
    pub(crate) busy: bool,
    /// Some slices were answered for by another session.
    pub(crate) some_done: bool,
}

impl Way {
    pub(crate) fn of(facts: &Facts) -> Way {
        let by_slice = facts.parts == 1 && facts.driving_scans == 1 && !facts.whole_partition;
        if !by_slice {
            // Which of two scans is to leave out what is done cannot be said to the drives below.
            return if facts.some_done && facts.driving_scans > 1 { Way::Neither } else { Way::Merge(Why::Whole) };
        }
        match facts.level {
            _ if facts.level_max < Level::Whole => Way::Relay(Why::Asked),
            LevelRule::Only(Level::Bytes | Level::Hints | Level::Filtered) | LevelRule::Random(_) => Way::Relay(Why::Asked),
            _ if facts.is_rows => Way::Relay(Why::Rows),
            _ if facts.busy => Way::Relay(Why::Busy),
            _ => Way::Merge(Why::Partials),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTIALS: Facts = Facts {
        parts: 1,
        driving_scans: 1,
        whole_partition: false,
        is_rows: false,
        level: LevelRule::Auto,
        level_max: Level::Whole,
        busy: false,
        some_done: false,
    };

    #[test]
    fn partials_are_merged_unless_the_array_is_busy() {
        assert_eq!(Way::of(&PARTIALS), Way::Merge(Why::Partials));
        assert_eq!(Way::of(&Facts { busy: true, ..PARTIALS }), Way::Relay(Why::Busy));
        assert_eq!(Way::of(&Facts { is_rows: true, ..PARTIALS }), Way::Relay(Why::Rows));
    }

    #[test]
    fn what_the_host_asks_for_goes_through() {
        for level in [LevelRule::Only(Level::Bytes), LevelRule::Only(Level::Filtered), LevelRule::Random(7)] {
            assert_eq!(Way::of(&Facts { level, ..PARTIALS }), Way::Relay(Why::Asked));
        }
        assert_eq!(Way::of(&Facts { level_max: Level::Hints, ..PARTIALS }), Way::Relay(Why::Asked));
        assert_eq!(Way::of(&Facts { level: LevelRule::default(), ..PARTIALS }), Way::Merge(Why::Partials));
    }

    #[test]
    fn what_needs_all_of_a_partition_is_never_relayed() {
        let level = LevelRule::Only(Level::Bytes);
        for whole in [
            Facts { parts: 2, ..PARTIALS },
            Facts { driving_scans: 2, ..PARTIALS },
            Facts { whole_partition: true, ..PARTIALS },
            Facts { whole_partition: true, busy: true, is_rows: true, level, ..PARTIALS },
        ] {
            assert_eq!(Way::of(&whole), Way::Merge(Why::Whole), "{whole:?}");
        }
        assert_eq!(Way::of(&Facts { driving_scans: 2, some_done: true, ..PARTIALS }), Way::Neither);
    }
}
