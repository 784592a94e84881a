//! What a query that was counted somewhere would take on a number of drives alike, at each level.

use crate::model::{Load, ModelError, Part, Place, run};
use crate::profile::Profile;
use crate::work::{PageWork, Work};

/// The most pages of a drive that are modelled one by one. Of more, an even part is, and the outcome is multiplied.
const PAGES_MAX: u64 = 100_000;
/// The most drives.
pub const DRIVES_MAX: u64 = 10_000;

/// How far drives take the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// All that they can do: level 3.
    Whole,
    /// Filter and projection: level 2.
    Filtered,
    /// Nothing; stored bytes travel: level 0.
    Bytes,
}

impl Level {
    /// All of them, from the drives to the host.
    pub const ALL: [Level; 3] = [Level::Whole, Level::Filtered, Level::Bytes];

    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            Level::Whole => 3,
            Level::Filtered => 2,
            Level::Bytes => 0,
        }
    }
}

/// What a sub-plan did, over all of its slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows of the slices that were read.
    pub rows: u64,
    /// Bytes that were read of them.
    pub read_bytes: u64,
    /// Bytes that these slices have as they are stored.
    pub stored_bytes: u64,
    /// Rows that passed the filters.
    pub passed_rows: u64,
    /// Their bytes.
    pub passed_bytes: u64,
    /// Rows of the answer.
    pub out_rows: u64,
    /// Their bytes.
    pub out_bytes: u64,
}

/// What it would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// From the first command until all is done at the host.
    pub elapsed_s: f64,
    /// Bytes from all media.
    pub medium_bytes: u64,
    /// Bytes over all links.
    pub link_bytes: u64,
    /// Joules of the entire system.
    pub system_j: f64,
    /// Joules of all drives.
    pub drives_j: f64,
    /// What most of the time was waited for.
    pub bottleneck: Part,
}

/// Predicts what `counts` would take on `drives` drives of this profile, over which the rows are spread evenly, and one host.
///
/// # Panics
///
/// When there are no drives, or more than [`DRIVES_MAX`].
pub fn predict(profile: &Profile, counts: &Counts, level: Level, drives: u64) -> Result<Prediction, ModelError> {
    assert!((1..=DRIVES_MAX).contains(&drives), "from 1 to {DRIVES_MAX} drives");
    let Some(parts) = &profile.parts else { return Err(ModelError::Native(profile.name.clone())) };
    let page_bytes = parts.medium.page_bytes.whole();
    let burst_bytes = parts.cpu.as_ref().map_or(1, |cpu| cpu.burst_bytes.whole());
    let bytes = if level == Level::Bytes { counts.stored_bytes } else { counts.read_bytes };
    let pages = bytes.div_ceil(drives).div_ceil(page_bytes);
    let share = pages.div_ceil(PAGES_MAX).max(1);
    let work = work(counts, level, page_bytes, burst_bytes, Spread { pages, of: drives * share, share });
    let place = if level == Level::Bytes { Place::Host } else { Place::Device };
    let outcome = run(&beside(profile, drives), &work, Load::at(place))?;
    let (many, all) = (share as f64, (drives * share) as f64);
    let energy = outcome.energy;
    let drives_j = energy.io_j() * all;
    Ok(Prediction {
        elapsed_s: outcome.elapsed_s * many,
        medium_bytes: bytes,
        link_bytes: outcome.bytes.link.saturating_mul(drives * share),
        system_j: drives_j + (energy.host_cpu_j + energy.host_idle_j) * many,
        drives_j,
        bottleneck: outcome.bottleneck,
    })
}

/// The profile as one of several drives sees it: the host has as many times the work.
fn beside(profile: &Profile, drives: u64) -> Profile {
    let mut profile = profile.clone();
    if let Some(parts) = &mut profile.parts {
        let host = &mut parts.host;
        for cycles in [&mut host.page_cycles, &mut host.row_cycles, &mut host.result_cycles] {
            cycles.value *= drives as f64;
        }
    }
    profile
}

/// How totals become pages.
struct Spread {
    /// Pages of one drive.
    pages: u64,
    /// The part of all that is modelled is one of so many.
    of: u64,
    /// The part of one drive's pages.
    share: u64,
}

fn work(counts: &Counts, level: Level, page_bytes: u64, burst_bytes: u64, spread: Spread) -> Work {
    let pages = (spread.pages / spread.share).max(u64::from(spread.pages > 0));
    // The first pages of a total get what does not divide.
    let part = |total: u64, page: u64| {
        let total = total.div_ceil(spread.of);
        total / pages + u64::from(page < total % pages)
    };
    let page = |page: u64| {
        let rows = part(counts.rows, page);
        let passed = part(counts.passed_rows, page);
        let (out_rows, out_bytes) = match level {
            Level::Whole => (part(counts.out_rows, page), part(counts.out_bytes, page)),
            Level::Filtered | Level::Bytes => (passed, part(counts.passed_bytes, page)),
        };
        PageWork {
            rows,
            compares: rows,
            accesses: page_bytes.div_ceil(burst_bytes),
            words: page_bytes / 4,
            matches: passed,
            sums: if level == Level::Whole && counts.out_rows < counts.passed_rows { passed } else { 0 },
            out_rows,
            out_bytes,
            ruled_out: false,
        }
    };
    Work { page_bytes, pages: (0..pages).map(page).collect(), last_bytes: 0, last_rows: 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::find;

    fn counts() -> Counts {
        Counts {
            rows: 10_000_000,
            read_bytes: 400_000_000,
            stored_bytes: 1_000_000_000,
            passed_rows: 100_000,
            passed_bytes: 4_000_000,
            out_rows: 100,
            out_bytes: 1600,
        }
    }

    #[test]
    fn bytes_are_those_that_were_counted() {
        let profile = find("newport").unwrap();
        for (level, link) in [(Level::Whole, 1600), (Level::Filtered, 4_000_000), (Level::Bytes, 1_000_000_000)] {
            let predicted = predict(&profile, &counts(), level, 4).unwrap();
            let off = predicted.link_bytes.abs_diff(link);
            // A drive sends whole pages, and each of four rounds up.
            assert!(off <= 4 * 16_384, "{level:?}: {predicted:?}");
        }
    }

    #[test]
    fn one_more_drive_helps_until_the_host_is_full() {
        let profile = find("newport").unwrap();
        let time = |drives| predict(&profile, &counts(), Level::Whole, drives).unwrap().elapsed_s;
        assert!((1.9..=2.05).contains(&(time(1) / time(2))), "{} {}", time(1), time(2));
        let stored = |drives| predict(&profile, &counts(), Level::Bytes, drives).unwrap();
        assert_eq!(stored(1000).bottleneck, Part::HostCpu);
        assert!(stored(1000).elapsed_s > stored(1).elapsed_s / 20.0, "the host does not become faster");
    }

    #[test]
    fn a_drive_without_cores_only_hands_out_bytes() {
        let profile = find("pm1725").unwrap();
        assert!(matches!(predict(&profile, &counts(), Level::Whole, 1), Err(ModelError::NoCpu(_))));
        assert!(predict(&profile, &counts(), Level::Bytes, 1).is_ok());
        assert!(matches!(predict(&find("native").unwrap(), &counts(), Level::Bytes, 1), Err(ModelError::Native(_))));
    }

    #[test]
    fn a_part_that_is_multiplied_is_close_to_the_whole() {
        let profile = find("newport").unwrap();
        let large = Counts { rows: 1_000_000_000, read_bytes: 40_000_000_000, ..counts() };
        let whole = predict(&profile, &large, Level::Whole, 1).unwrap();
        let tenth =
            predict(&profile, &Counts { rows: 100_000_000, read_bytes: 4_000_000_000, ..large }, Level::Whole, 1).unwrap();
        assert!((whole.elapsed_s / tenth.elapsed_s / 10.0 - 1.0).abs() < 0.02, "{whole:?} {tenth:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_counts_have_a_prediction(rows in 0..10_u64.pow(12), bytes in 0..10_u64.pow(13), drives in 1..=DRIVES_MAX) {
            let counts = Counts { rows, read_bytes: bytes, stored_bytes: bytes, passed_rows: rows / 3, ..Counts::default() };
            for level in Level::ALL {
                let predicted = predict(&find("dpu-array").unwrap(), &counts, level, drives).unwrap();
                prop_assert!(predicted.elapsed_s.is_finite() && predicted.system_j >= predicted.drives_j);
            }
        }
    }
}
