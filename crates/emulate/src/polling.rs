//! When the host of a session asks it again: one rule, for the model of devices and for drives that are slowed to one.

/// What of a session's time an interval may be, at most: so much later than it could have a host may learn of something.
const SHARE_OF_SESSION: u64 = 8;

/// The intervals in which a host sends GET. Times are whole numbers, all in the same unit.
///
/// Do et al. 2013 (section 3.1) ask for an interval that adapts, so that polling neither costs much nor holds the device up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollInterval {
    /// The shortest.
    pub least: u64,
    /// The longest. No longer than the shortest: the interval is fixed.
    pub most: u64,
}

impl PollInterval {
    /// The interval after a GET, which came `last` after the one before, to a session that had been open for `open_for`.
    ///
    /// A host asks a young session often, for its query may be a fast one and its first rows are waited for, and less and less
    /// often one that runs for long. Where GET found the buffer half full or more, the next one comes sooner, before the device
    /// waits for room.
    pub fn after(&self, last: u64, open_for: u64, was_half_full: bool) -> u64 {
        let next = match was_half_full {
            true => last / 2,
            false => last.saturating_mul(2).min(open_for / SHARE_OF_SESSION),
        };
        next.max(self.least).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_interval_does_not_change() {
        let fixed = PollInterval { least: 10_000, most: 10_000 };
        for (last, open_for, was_half_full) in [(0, 0, false), (10_000, 1, true), (10_000, u64::MAX, false)] {
            assert_eq!(fixed.after(last, open_for, was_half_full), 10_000);
        }
    }

    #[test]
    fn an_interval_grows_with_the_session_and_shrinks_where_the_buffer_fills() {
        let adaptive = PollInterval { least: 100, most: 10_000 };
        // It doubles, to an eighth of the session's time, to the longest.
        let grown = [(0, 0, 100), (100, 2_000, 200), (200, 2_000, 250), (6_000, 70_000, 8_750), (8_750, 1_000_000, 10_000)];
        for (last, open_for, expected) in grown {
            assert_eq!(adaptive.after(last, open_for, false), expected, "{last} {open_for}");
        }
        for (last, expected) in [(10_000, 5_000), (150, 100), (100, 100)] {
            assert_eq!(adaptive.after(last, 1_000_000, true), expected, "{last}");
        }
        assert_eq!(adaptive.after(u64::MAX, u64::MAX, false), 10_000);
    }

    /// A host that finds nothing learns of the end at most an eighth of the session's time after it, and the shortest interval.
    #[test]
    fn no_session_is_told_of_much_too_late() {
        let adaptive = PollInterval { least: 100, most: 10_000 };
        for end in (1..200_000).step_by(77) {
            let (mut now, mut last) = (0, 0);
            while now < end {
                last = adaptive.after(last, now, false);
                now += last;
            }
            assert!(now - end <= 100.max(end / 8) && now - end <= 10_000, "{end}: {now}");
        }
    }
}
