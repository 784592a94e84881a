//! What a host and a drive tell each other so that a session's cut can follow what is measured (Montana et al. 2023,
//! Skytether, sections 4 and 5.3; see `docs/bibliography.md`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Level, SliceSpan};

/// One value for each of the levels among which a query adapts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByLevel<T> {
    /// Of [`Level::Whole`]: the whole slice-wise part at the drive.
    pub whole: T,
    /// Of [`Level::Filtered`]: filter and projection at the drive, the rest at the host.
    pub filtered: T,
    /// Of [`Level::Hints`]: the drive finds the pages that may match, their stored bytes travel, and the host does the rest.
    pub hints: T,
    /// Of [`Level::Bytes`]: the stored bytes travel, and the host does everything.
    pub bytes: T,
}

impl<T> ByLevel<T> {
    /// The levels in the order of the fields, the highest first.
    pub const LEVELS: [Level; 4] = [Level::Whole, Level::Filtered, Level::Hints, Level::Bytes];

    /// The value of a level.
    pub fn get(&self, level: Level) -> &T {
        match level {
            Level::Whole => &self.whole,
            Level::Filtered => &self.filtered,
            Level::Hints => &self.hints,
            Level::Bytes => &self.bytes,
        }
    }

    /// The value of a level, to be changed.
    pub fn get_mut(&mut self, level: Level) -> &mut T {
        match level {
            Level::Whole => &mut self.whole,
            Level::Filtered => &mut self.filtered,
            Level::Hints => &mut self.hints,
            Level::Bytes => &mut self.bytes,
        }
    }

    /// Calls a function for the value of each level.
    pub fn from_fn(mut value: impl FnMut(Level) -> T) -> ByLevel<T> {
        ByLevel {
            whole: value(Level::Whole),
            filtered: value(Level::Filtered),
            hints: value(Level::Hints),
            bytes: value(Level::Bytes),
        }
    }

    /// The values, that of the highest level first.
    pub fn to_array(self) -> [T; 4] {
        [self.whole, self.filtered, self.hints, self.bytes]
    }
}

/// What a slice costs on average, by the level at which the drive executes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SliceCosts {
    /// CPU time at the drive, in nanoseconds of one of its cores.
    pub drive_ns: ByLevel<f64>,
    /// CPU time at the host to finish the slice, in nanoseconds of one of its cores.
    pub host_ns: ByLevel<f64>,
    /// Bytes on the link.
    pub link_bytes: ByLevel<f64>,
}

/// Who chooses the level of a session's slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LevelRule {
    /// The drive, round by round.
    Auto,
    /// Nobody: every slice is executed at this level, wherever the sub-plan can be.
    Only(Level),
    /// Chance: any of the levels at which the sub-plan can be executed, by this seed. For tests.
    Random(u64),
}

impl Default for LevelRule {
    fn default() -> Self {
        LevelRule::Only(Level::Whole)
    }
}

/// What a host did with slices that a drive handed back to it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The level at which the drive handed them back.
    pub level: Level,
    /// The number of slices.
    pub slices: u32,
    /// CPU time that the host took to finish them, nanoseconds.
    pub cpu_ns: u64,
}

/// The state of a host, as a drive's policy needs to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// Cores that this session may count on.
    pub cores: f64,
    /// CPU time of the work that waits at the host already, nanoseconds.
    pub backlog_ns: f64,
    /// Time that the host's CPU takes for the unit of work by which CSEs are compared, nanoseconds; 0: not known.
    pub unit_ns: f64,
    /// What the host has finished of this session since its last report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<Finished>,
}

impl Default for HostState {
    fn default() -> Self {
        Self { cores: 1.0, backlog_ns: 0.0, unit_ns: 0.0, finished: vec![] }
    }
}

/// The cores on which a process runs, and their machine. Two processes that share cores do no more work together than
/// one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    /// The machine's own name for its present run (its boot); empty: not known.
    pub machine: String,
    /// The cores that the process may use, ascending.
    pub numbers: Vec<u32>,
}

impl Cores {
    /// Whether both are known to share a core.
    pub fn overlap(&self, other: &Cores) -> bool {
        !self.machine.is_empty()
            && self.machine == other.machine
            && self.numbers.iter().any(|core| other.numbers.binary_search(core).is_ok())
    }
}

/// What OPEN says about the level of a session's slices. The default asks for all slices to be executed whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Adapt {
    /// Who chooses the level.
    pub level: LevelRule,
    /// Slices of the driving partition that the host has in its cache: they need not travel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<SliceSpan>,
    /// What slices of this very sub-plan cost in an earlier session. With it the sub-plan is confidently sized, and the
    /// drive need not measure first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<SliceCosts>,
    /// The state of the host.
    #[serde(default)]
    pub host: HostState,
    /// The cores on which the host runs. A drive on the same cores gains nothing by handing work back.
    #[serde(default)]
    pub cores: Cores,
    /// Rows and bytes that the host expects of this partition's answer; none: it has no estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<(f64, f64)>,
    /// Whether the drive may answer from the partial results that it keeps, and may keep new ones.
    #[serde(default)]
    pub summaries: bool,
    /// Nanoseconds of a core that users' functions of the sub-plan take for a row, as the host has measured them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(machine: &str, numbers: &[u32]) -> Cores {
        Cores { machine: machine.to_owned(), numbers: numbers.to_vec() }
    }

    #[test]
    fn cores_are_shared_on_one_machine_only() {
        assert!(cores("a", &[0, 1]).overlap(&cores("a", &[1, 2])));
        assert!(!cores("a", &[0]).overlap(&cores("a", &[1])));
        assert!(!cores("a", &[0]).overlap(&cores("b", &[0])));
        assert!(!cores("", &[0]).overlap(&cores("", &[0])));
    }

    #[test]
    fn what_an_open_leaves_out_asks_for_everything_whole() {
        let adapt: Adapt = serde_json::from_str(r#"{"level": {"only": 3}}"#).unwrap();
        assert_eq!(adapt, Adapt::default());
    }
}
