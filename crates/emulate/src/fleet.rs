//! What a query that was counted somewhere would take on a number of drives alike, at each level.

use pithead_model::{ByLevel, Counts};

use crate::model::{Bottleneck, ComputeSite, Energy, Load, ModelError, run};
use crate::profile::{Parts, Profile};
use crate::work::{PageWork, Work};

/// The most pages of a drive that are modelled one by one. Of more, an even part is, and the outcome is multiplied.
const PAGES_MAX: u64 = 100_000;
/// The most drives.
pub const DRIVES_MAX: u64 = 10_000;

/// Drives alike, with one host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// How many.
    pub drives: u64,
    /// The share of the data that the fullest drive has, over an even share: 1 where all have as much, at most `drives`.
    pub skew: f64,
    /// The drives that have each part of the data.
    pub copies: u64,
    /// Drives that fail when the fullest, which is among them, has done half of its part.
    pub failed: u64,
}

impl Fleet {
    /// Drives that have as much each.
    pub fn even(drives: u64) -> Self {
        Self { drives, skew: 1.0, copies: 1, failed: 0 }
    }

    /// Refuses what no fleet can be, with what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let Fleet { drives, skew, copies, failed } = *self;
        if !(1..=DRIVES_MAX).contains(&drives) {
            return Err(format!("expected from 1 to {DRIVES_MAX} drives, found {drives}"));
        }
        if !(1.0..=drives as f64).contains(&skew) {
            return Err(format!("expected a skew from 1 to the number of drives, {drives}, found {skew}"));
        }
        if !(1..=drives).contains(&copies) {
            return Err(format!("expected from 1 copy to as many as there are drives, {drives}, found {copies}"));
        }
        // Copies of a part are on drives that follow each other, so of so many in a row one has to be left.
        match drives - drives.div_ceil(copies) {
            spared if failed <= spared => Ok(()),
            spared => Err(format!(
                "expected at most {spared} failed drives, found {failed}: of more, {drives} drives with {} would lose data, and \
                 the query would end in an error",
                if copies == 1 { "one copy".to_owned() } else { format!("{copies} copies") },
            )),
        }
    }

    /// How long the last drive is at it, over what an even share takes: the fullest, or the one that does what failed drives leave.
    /// Rounds that these had closed count, so it has what they had not done yet. The failed ones are next to each other as far as
    /// copies allow, which is the worst place for them.
    fn load(&self) -> f64 {
        if self.failed == 0 {
            return self.skew;
        }
        let others = (self.drives as f64 - self.skew) / (self.drives as f64 - 1.0);
        let half = self.skew / 2.0;
        let beside = self.failed.min(self.copies - 1) as f64 - 1.0;
        let left = half + beside * (others - half).max(0.0);
        others.max(half) + left
    }

    /// How many times as much as the last drive all of them do.
    fn times_fullest(&self) -> f64 {
        self.drives as f64 / self.load()
    }

    /// Drives that are on until the end, those that fail for their part of the time.
    fn drives_on(&self) -> f64 {
        let on = self.skew / 2.0 / self.load();
        self.drives as f64 - self.failed as f64 * (1.0 - on)
    }

    /// The last drive's part of a total.
    fn fullest(&self, total: u64) -> u64 {
        (total as f64 / self.times_fullest()).ceil() as u64
    }
}

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
    /// Joules of the entire system by part.
    pub energy: Energy,
    /// What most of the time was waited for.
    pub bottleneck: Bottleneck,
}

/// Predicts what `counts` would take on a fleet of this profile. All wait for the drive that has most to do.
///
/// # Panics
///
/// When [`Fleet::check`] refuses the fleet.
pub fn predict(profile: &Profile, counts: &Counts, level: Level, fleet: Fleet) -> Result<Prediction, ModelError> {
    assert_eq!(fleet.check(), Ok(()));
    let Some(parts) = &profile.parts else { return Err(ModelError::Native(profile.name.clone())) };
    let bytes = if level == Level::Bytes { counts.stored_bytes } else { counts.read_bytes };
    let (work, share) = work_of_one(parts, &of_fullest(counts, fleet), level);
    let place = if level == Level::Bytes { ComputeSite::Host } else { ComputeSite::Device };
    let outcome = run(&beside(profile, fleet.times_fullest()), &work, Load::at(place))?;
    let (many, all) = (share as f64, share as f64 * fleet.times_fullest());
    let energy = outcome.energy;
    // Each drive is on until the fullest is done; all of them together do as much as was counted.
    let energy = Energy {
        host_cpu_j: energy.host_cpu_j * many,
        device_cpu_j: energy.device_cpu_j * all,
        medium_j: energy.medium_j * all,
        link_j: energy.link_j * all,
        device_idle_j: energy.device_idle_j * many * fleet.drives_on(),
        host_idle_j: energy.host_idle_j * many,
    };
    Ok(Prediction {
        elapsed_s: outcome.elapsed_s * many,
        medium_bytes: bytes,
        link_bytes: (outcome.bytes.link as f64 * all).round() as u64,
        system_j: energy.system_j(),
        drives_j: energy.io_j(),
        energy,
        bottleneck: outcome.bottleneck,
    })
}

/// Predicts work that drives took to different levels, each part by itself: times and joules are those of one part after the other.
/// None where nothing was counted. Pages that may match come as they are stored, so the host has that work.
pub fn predict_levels(profile: &Profile, counts: &ByLevel<Counts>, fleet: Fleet) -> Result<Option<Prediction>, ModelError> {
    let parts = [
        (Level::Whole, counts.whole),
        (Level::Filtered, counts.filtered),
        (Level::Bytes, counts.hints),
        (Level::Bytes, counts.bytes),
    ];
    let mut sum: Option<Prediction> = None;
    for (level, counts) in parts.into_iter().filter(|(_, counts)| *counts != Counts::default()) {
        let part = predict(profile, &counts, level, fleet)?;
        sum = Some(sum.map_or(part, |sum| sum.and(&part)));
    }
    Ok(sum)
}

impl Prediction {
    /// One after the other. What most of the longer one's time was waited for stands for both.
    pub fn and(&self, other: &Prediction) -> Prediction {
        let longer = if self.elapsed_s >= other.elapsed_s { self } else { other };
        Prediction {
            elapsed_s: self.elapsed_s + other.elapsed_s,
            medium_bytes: self.medium_bytes.saturating_add(other.medium_bytes),
            link_bytes: self.link_bytes.saturating_add(other.link_bytes),
            system_j: self.system_j + other.system_j,
            drives_j: self.drives_j + other.drives_j,
            energy: self.energy.and(&other.energy),
            bottleneck: longer.bottleneck,
        }
    }
}

/// What the cores of one drive of this profile take for `counts`, all taken to their end there: in seconds, summed over the cores.
pub(crate) fn core_seconds(profile: &Profile, counts: &Counts) -> Result<f64, ModelError> {
    let Some(parts) = &profile.parts else { return Err(ModelError::Native(profile.name.clone())) };
    let (work, share) = work_of_one(parts, counts, Level::Whole);
    let outcome = run(profile, &work, Load::at(ComputeSite::Device))?;
    Ok(outcome.busy.device_cores_s * share as f64)
}

/// A drive's counted work as pages, one of so many parts of them.
fn work_of_one(parts: &Parts, counts: &Counts, level: Level) -> (Work, u64) {
    let page_bytes = parts.medium.page_bytes.whole();
    let burst_bytes = parts.cpu.as_ref().map_or(1, |cpu| cpu.burst_bytes.whole());
    let bytes = if level == Level::Bytes { counts.stored_bytes } else { counts.read_bytes };
    let pages = bytes.div_ceil(page_bytes);
    let share = pages.div_ceil(PAGES_MAX).max(1);
    (work(counts, level, page_bytes, burst_bytes, Spread { pages, share }), share)
}

/// The profile as the fullest drive sees it: the host has as many times its work.
fn beside(profile: &Profile, times: f64) -> Profile {
    let mut profile = profile.clone();
    if let Some(parts) = &mut profile.parts {
        let host = &mut parts.host;
        for cycles in [&mut host.page_cycles, &mut host.row_cycles, &mut host.result_cycles] {
            cycles.value *= times;
        }
    }
    profile
}

/// The fullest drive's part of what was counted.
fn of_fullest(counts: &Counts, fleet: Fleet) -> Counts {
    Counts {
        rows: fleet.fullest(counts.rows),
        read_bytes: fleet.fullest(counts.read_bytes),
        stored_bytes: fleet.fullest(counts.stored_bytes),
        passed_rows: fleet.fullest(counts.passed_rows),
        passed_bytes: fleet.fullest(counts.passed_bytes),
        out_rows: fleet.fullest(counts.out_rows),
        out_bytes: fleet.fullest(counts.out_bytes),
    }
}

/// How totals become pages.
struct Spread {
    /// Pages of the drive.
    pages: u64,
    /// One of so many parts of them is modelled.
    share: u64,
}

fn work(counts: &Counts, level: Level, page_bytes: u64, burst_bytes: u64, spread: Spread) -> Work {
    let pages = (spread.pages / spread.share).max(u64::from(spread.pages > 0));
    // The first pages of a total get what does not divide.
    let part = |total: u64, page: u64| {
        let total = total.div_ceil(spread.share);
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
            let predicted = predict(&profile, &counts(), level, Fleet::even(4)).unwrap();
            let off = predicted.link_bytes.abs_diff(link);
            // A drive sends whole pages, and each of four rounds up.
            assert!(off <= 4 * 16_384, "{level:?}: {predicted:?}");
        }
    }

    #[test]
    fn one_more_drive_helps_until_the_host_is_full() {
        let profile = find("newport").unwrap();
        let time = |drives| predict(&profile, &counts(), Level::Whole, Fleet::even(drives)).unwrap().elapsed_s;
        assert!((1.9..=2.05).contains(&(time(1) / time(2))), "{} {}", time(1), time(2));
        let stored = |drives| predict(&profile, &counts(), Level::Bytes, Fleet::even(drives)).unwrap();
        assert_eq!(stored(1000).bottleneck, Bottleneck::HostCpu);
        let times = stored(2000).elapsed_s / stored(1000).elapsed_s;
        assert!((0.8..1.3).contains(&times), "the host does not become faster: {times}");
    }

    #[test]
    fn all_wait_for_the_fullest_drive() {
        let profile = find("newport").unwrap();
        let with = |skew| predict(&profile, &counts(), Level::Whole, Fleet { skew, ..Fleet::even(8) }).unwrap();
        let (even, double, one) = (with(1.0), with(2.0), with(8.0));
        assert!((1.9..=2.05).contains(&(double.elapsed_s / even.elapsed_s)), "{double:?} {even:?}");
        let alone = predict(&profile, &counts(), Level::Whole, Fleet::even(1)).unwrap();
        assert!((one.elapsed_s / alone.elapsed_s - 1.0).abs() < 1e-6, "{one:?} {alone:?}");
        assert!(double.drives_j > even.drives_j, "seven drives wait, and are on");
        assert!(double.link_bytes.abs_diff(even.link_bytes) < 100);
    }

    #[test]
    fn one_drive_does_what_its_neighbour_leaves() {
        let profile = find("newport").unwrap();
        let with = |fleet: Fleet| predict(&profile, &counts(), Level::Whole, fleet).unwrap();
        let even = with(Fleet::even(8));
        let two = |failed, skew| with(Fleet { copies: 2, failed, skew, ..Fleet::even(8) });
        let times = |prediction: &Prediction| prediction.elapsed_s / even.elapsed_s;
        // Its own part and half of another; where more fail, each has a neighbour of its own.
        assert!((1.45..1.55).contains(&times(&two(1, 1.0))), "{}", times(&two(1, 1.0)));
        assert_eq!(two(4, 1.0).elapsed_s, two(1, 1.0).elapsed_s);
        // With three copies, two next to each other may fail.
        let three = with(Fleet { copies: 3, failed: 2, ..Fleet::even(8) });
        assert!((1.9..2.1).contains(&times(&three)), "{}", times(&three));
        // The fullest has four parts, and two of them are left after two; the others have done theirs.
        assert!((3.8..4.2).contains(&times(&two(1, 4.0))), "{}", times(&two(1, 4.0)));
        assert!(two(1, 1.0).link_bytes.abs_diff(even.link_bytes) < 100, "nothing is sent twice");
        assert!(two(4, 1.0).drives_j < two(1, 1.0).drives_j, "what has failed needs no power");
    }

    #[test]
    fn fleets_that_lose_data_and_other_impossible_ones_are_refused() {
        let fleet = |drives, skew, copies, failed| Fleet { drives, skew, copies, failed };
        for possible in
            [fleet(1, 1.0, 1, 0), fleet(8, 8.0, 2, 4), fleet(9, 1.0, 3, 6), fleet(7, 1.0, 7, 6), fleet(5, 1.0, 2, 2)]
        {
            assert_eq!(possible.check(), Ok(()), "{possible:?}");
        }
        for (impossible, why) in [
            (fleet(0, 1.0, 1, 0), "drives"),
            (fleet(DRIVES_MAX + 1, 1.0, 1, 0), "drives"),
            (fleet(4, 4.5, 1, 0), "skew"),
            (fleet(4, f64::NAN, 1, 0), "skew"),
            (fleet(4, 1.0, 0, 0), "copy"),
            (fleet(4, 1.0, 5, 0), "copy"),
            (fleet(4, 1.0, 1, 1), "one copy would lose data"),
            (fleet(5, 1.0, 2, 3), "2 copies would lose data"),
            (fleet(1, 1.0, 1, 1), "lose data"),
        ] {
            let told = impossible.check().unwrap_err();
            assert!(told.contains(why), "{impossible:?}: {told}");
        }
    }

    #[test]
    fn a_drive_without_cores_only_hands_out_bytes() {
        let profile = find("pm1725").unwrap();
        assert!(matches!(predict(&profile, &counts(), Level::Whole, Fleet::even(1)), Err(ModelError::NoCpu(_))));
        assert!(predict(&profile, &counts(), Level::Bytes, Fleet::even(1)).is_ok());
        assert!(matches!(
            predict(&find("native").unwrap(), &counts(), Level::Bytes, Fleet::even(1)),
            Err(ModelError::Native(_))
        ));
    }

    #[test]
    fn a_part_that_is_multiplied_is_close_to_the_whole() {
        let profile = find("newport").unwrap();
        let large = Counts { rows: 1_000_000_000, read_bytes: 40_000_000_000, ..counts() };
        let whole = predict(&profile, &large, Level::Whole, Fleet::even(1)).unwrap();
        let tenth =
            predict(&profile, &Counts { rows: 100_000_000, read_bytes: 4_000_000_000, ..large }, Level::Whole, Fleet::even(1))
                .unwrap();
        assert!((whole.elapsed_s / tenth.elapsed_s / 10.0 - 1.0).abs() < 0.02, "{whole:?} {tenth:?}");
    }

    #[test]
    fn parts_at_different_levels_add_up() {
        let profile = find("newport").unwrap();
        let both = ByLevel { whole: counts(), hints: counts(), ..ByLevel::default() };
        let sum = predict_levels(&profile, &both, Fleet::even(2)).unwrap().unwrap();
        let [whole, bytes] =
            [Level::Whole, Level::Bytes].map(|level| predict(&profile, &counts(), level, Fleet::even(2)).unwrap());
        assert_eq!(sum.elapsed_s, whole.elapsed_s + bytes.elapsed_s);
        assert_eq!(sum.link_bytes, whole.link_bytes + bytes.link_bytes);
        assert!((sum.energy.system_j() - sum.system_j).abs() < 1e-9, "{sum:?}");
        assert_eq!(sum.bottleneck, bytes.bottleneck);
        assert_eq!(predict_levels(&profile, &ByLevel::default(), Fleet::even(2)).unwrap(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn any_counts_have_a_prediction(rows in 0..10_u64.pow(12), bytes in 0..10_u64.pow(13), drives in 1..=DRIVES_MAX, skew in 0.0..=1.0_f64, copies in 1..5_u64, failed in 0.0..=1.0_f64) {
            let copies = copies.min(drives);
            let failed = (failed * (drives - drives.div_ceil(copies)) as f64) as u64;
            let fleet = Fleet { drives, skew: 1.0 + skew * (drives - 1) as f64, copies, failed };
            let counts = Counts { rows, read_bytes: bytes, stored_bytes: bytes, passed_rows: rows / 3, ..Counts::default() };
            for level in Level::ALL {
                let predicted = predict(&find("dpu-array").unwrap(), &counts, level, fleet).unwrap();
                prop_assert!(predicted.elapsed_s.is_finite() && predicted.system_j >= predicted.drives_j);
            }
        }
    }
}
