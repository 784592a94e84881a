//! What a query that was counted somewhere would take on a number of drives alike, at each level.

use pithead_model::{ByLevel, Counts};

use crate::model::{Bottleneck, ComputeSite, Energy, Load, ModelError, run};
use crate::profile::{Parts, Profile};
use crate::work::Patterns;

mod others;
mod pages;

pub use others::{Others, predict_others};
pub(crate) use pages::whole_page;

use pages::{Moved, work_of_one};

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
    /// They find the pages that may match, which travel as they are stored: level 1. Its counts are other ones: `rows` are those
    /// that are searched, `read_bytes` all that is read, `passed_rows` and `passed_bytes` those of the pages, and `out_rows` the
    /// rows in them that pass.
    Hints {
        /// The patterns of bytes that are searched for; none where other conditions are. Matchers look for them, where the device
        /// has some and they take as many of this length.
        patterns: Option<Patterns>,
    },
    /// Nothing; stored bytes travel: level 0.
    Bytes,
}

impl Level {
    /// Those that have the same counts, from the drives to the host: all but level 1.
    pub const ALIKE: [Level; 3] = [Level::Whole, Level::Filtered, Level::Bytes];

    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            Level::Whole => 3,
            Level::Filtered => 2,
            Level::Hints { .. } => 1,
            Level::Bytes => 0,
        }
    }

    /// How one drive of this profile runs it.
    fn load(self, parts: &Parts) -> Load {
        let place = if self == Level::Bytes { ComputeSite::Host } else { ComputeSite::Device };
        let matcher = matches!(self, Level::Hints { patterns: Some(_) }) && parts.matcher.is_some();
        Load { matcher, ..Load::at(place) }
    }
}

/// What it would take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// From the first command until all is done at the host.
    pub elapsed_s: f64,
    /// Bytes from all media. What does not fit their memory is read again.
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
    predict_in_slices(profile, counts, level, fleet, 0)
}

/// The same of drives whose cores take whole slices of so many rows, as those of Pithead do: the cores that are done with the last
/// ones early have nothing to do then. 0: each page goes to the core that is free first.
///
/// # Panics
///
/// When [`Fleet::check`] refuses the fleet.
pub fn predict_in_slices(
    profile: &Profile,
    counts: &Counts,
    level: Level,
    fleet: Fleet,
    slice_rows: u64,
) -> Result<Prediction, ModelError> {
    assert_eq!(fleet.check(), Ok(()));
    let Some(parts) = &profile.parts else { return Err(ModelError::Native(profile.name.clone())) };
    let moved = Moved::of(counts, level);
    let (mut work, share) = work_of_one(parts, &of_fullest(counts, fleet), level);
    // Of a drive of which only an even part is modelled, that part has no slices of its own, and many slices are as even as pages.
    let rows = if share == 1 { work.total().rows } else { 0 };
    work.slice_pages = (work.pages.len() as u64 * slice_rows.min(rows) + rows / 2) / rows.max(1);
    // The host has the others' work beside the fullest drive's, and takes in what was counted, which is no whole pages.
    let (host_times, one) = (fleet.times_fullest(), work.link_bytes(level == Level::Bytes).saturating_mul(share));
    let host_bytes_times = times(moved.link, one);
    let outcome = run(profile, &work, Load { host_times, host_bytes_times, ..level.load(parts) })?;
    let (many, all) = (share as f64, share as f64 * fleet.times_fullest());
    let energy = outcome.energy;
    let medium_bytes = moved.medium.saturating_mul(outcome.passes);
    // Each drive is on until the fullest is done; all of them together do as much as was counted. What a drive moves was
    // rounded up to whole pages and bytes, so joules go by the bytes that were counted.
    let energy = Energy {
        host_cpu_j: energy.host_cpu_j * many,
        device_cpu_j: energy.device_cpu_j * all,
        medium_j: energy.medium_j * times(medium_bytes, outcome.bytes.medium),
        link_j: energy.link_j * times(moved.link, outcome.bytes.link),
        device_idle_j: energy.device_idle_j * many * fleet.drives_on(),
        host_idle_j: energy.host_idle_j * many,
    };
    Ok(Prediction {
        elapsed_s: outcome.elapsed_s * many,
        medium_bytes,
        link_bytes: moved.link,
        system_j: energy.system_j(),
        drives_j: energy.io_j(),
        energy,
        bottleneck: outcome.bottleneck,
    })
}

/// How many times as many bytes were counted as one drive moves in the model.
fn times(counted: u64, modelled: u64) -> f64 {
    if modelled == 0 { 0.0 } else { counted as f64 / modelled as f64 }
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

#[cfg(test)]
mod tests;
