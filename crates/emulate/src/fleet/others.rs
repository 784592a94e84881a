//! What a sub-plan reads of datasets beside the one that it drives over.

use pithead_model::{Counts, SessionProfile};

use super::{Fleet, Level, Prediction, predict};
use crate::model::ModelError;
use crate::profile::Profile;

/// What was counted of the datasets that a sub-plan joins with the one that it drives over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Their rows.
    pub rows: u64,
    /// Bytes that were read of them.
    pub read_bytes: u64,
}

impl Others {
    /// The sum over what sessions reported at their end.
    pub fn of<'a>(sessions: impl IntoIterator<Item = &'a SessionProfile>) -> Others {
        sessions.into_iter().fold(Others::default(), |sum, session| Others {
            rows: sum.rows.saturating_add(session.other_rows_in),
            read_bytes: sum.read_bytes.saturating_add(session.other_medium_bytes),
        })
    }

    /// The same of so many times the data.
    pub fn times(self, times: u64) -> Others {
        Others { rows: self.rows.saturating_mul(times), read_bytes: self.read_bytes.saturating_mul(times) }
    }
}

/// Predicts what the datasets would take that are joined with the driving one: they are read before the first of its rows is
/// joined, so this goes before its prediction. None where there are none.
///
/// Each row is compared and, at level 3, added to what the other side looks up. At other levels, bytes travel as they are read.
///
/// # Panics
///
/// When [`Fleet::check`] refuses the fleet.
pub fn predict_others(profile: &Profile, others: Others, level: Level, fleet: Fleet) -> Result<Option<Prediction>, ModelError> {
    if others == Others::default() {
        return Ok(None);
    }
    let Others { rows, read_bytes } = others;
    let counts =
        Counts { rows, read_bytes, stored_bytes: read_bytes, passed_rows: rows, passed_bytes: read_bytes, ..Counts::default() };
    predict(profile, &counts, level, fleet).map(Some)
}

#[cfg(test)]
mod tests {
    use pithead_model::SessionState;

    use super::*;
    use crate::profile::find;

    #[test]
    fn other_datasets_are_read_compared_and_added_and_travel_below_level_3() {
        let profile = find("newport").unwrap();
        let others = Others { rows: 1_000_000, read_bytes: 8_000_000 };
        let of = |level| predict_others(&profile, others, level, Fleet::even(2)).unwrap().unwrap();
        let (whole, filtered) = (of(Level::Whole), of(Level::Filtered));
        assert_eq!((whole.medium_bytes, whole.link_bytes), (8_000_000, 0));
        assert_eq!((filtered.medium_bytes, filtered.link_bytes), (8_000_000, 8_000_000));
        assert!(whole.energy.device_cpu_j > filtered.energy.device_cpu_j, "rows are added only where drives join them");
        assert!(whole.elapsed_s > 0.0 && predict_others(&profile, Others::default(), Level::Whole, Fleet::even(2)) == Ok(None));
    }

    #[test]
    fn what_sessions_report_adds_up() {
        let session = |rows, bytes| SessionProfile { other_rows_in: rows, other_medium_bytes: bytes, ..profile() };
        let sum = Others::of(&[session(3, 40), session(4, u64::MAX)]);
        assert_eq!(sum, Others { rows: 7, read_bytes: u64::MAX });
        assert_eq!(sum.times(2), Others { rows: 14, read_bytes: u64::MAX });
    }

    fn profile() -> SessionProfile {
        SessionProfile {
            state: SessionState::Finished,
            rounds: 1,
            slices_total: 1,
            slices_done: 1,
            memory_peak: 0,
            spilled_bytes: 0,
            other_rows_in: 0,
            other_medium_bytes: 0,
            predicted: None,
            link_bytes_per_s: None,
            settled: None,
            calls: vec![],
        }
    }
}
