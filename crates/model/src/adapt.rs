//! What a host and a drive tell each other so that a session's cut can follow what is measured (Montana et al. 2023,
//! Skytether, sections 4 and 5.3; see `docs/bibliography.md`).

use serde::{Deserialize, Serialize};

use crate::{Level, SliceSpan};

/// One value for each level that slices are taken to while a query adapts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByLevel<T> {
    /// Of [`Level::Whole`]: the whole slice-wise part at the drive.
    pub whole: T,
    /// Of [`Level::Filtered`]: filter and projection at the drive, the rest at the host.
    pub filtered: T,
    /// Of [`Level::Bytes`]: the stored bytes travel, and the host does everything.
    pub bytes: T,
}

impl<T> ByLevel<T> {
    /// The levels in the order of the fields, highest first.
    pub const LEVELS: [Level; 3] = [Level::Whole, Level::Filtered, Level::Bytes];

    /// The value of a level. Match hints count as level 2: the drive reads, and rows travel.
    pub fn get(&self, level: Level) -> &T {
        match level {
            Level::Whole => &self.whole,
            Level::Filtered | Level::Hints => &self.filtered,
            Level::Bytes => &self.bytes,
        }
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, level: Level) -> &mut T {
        match level {
            Level::Whole => &mut self.whole,
            Level::Filtered | Level::Hints => &mut self.filtered,
            Level::Bytes => &mut self.bytes,
        }
    }

    /// A value for each level, by a function of it.
    pub fn from_fn(mut value: impl FnMut(Level) -> T) -> ByLevel<T> {
        ByLevel { whole: value(Level::Whole), filtered: value(Level::Filtered), bytes: value(Level::Bytes) }
    }

    /// The values, highest level first.
    pub fn to_array(self) -> [T; 3] {
        [self.whole, self.filtered, self.bytes]
    }
}

/// What a slice costs, on average, by the level that it is taken to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SliceCosts {
    /// CPU time at the drive, in nanoseconds of one of its cores.
    pub drive_ns: ByLevel<f64>,
    /// CPU time at the host to finish it, in nanoseconds of one of its cores.
    pub host_ns: ByLevel<f64>,
    /// Bytes on the link.
    pub link_bytes: ByLevel<f64>,
}

/// Who decides how far a session's slices are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LevelRule {
    /// The drive, round by round.
    Auto,
    /// This level, wherever the sub-plan can be run so.
    Only(Level),
    /// Any of the levels that the sub-plan can be run at, by this seed: for tests.
    Random(u64),
}

impl Default for LevelRule {
    fn default() -> Self {
        LevelRule::Only(Level::Whole)
    }
}

/// What a host did with slices that came back to it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The level that they came at.
    pub level: Level,
    /// How many.
    pub slices: u32,
    /// CPU time that finishing them took, nanoseconds.
    pub cpu_ns: u64,
}

/// How a host is, as a drive's policy needs to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// Cores that this session may count on.
    pub cores: f64,
    /// CPU time of work that waits there already, nanoseconds.
    pub backlog_ns: f64,
    /// Time that its CPU takes for the unit of work that CSEs are compared by, nanoseconds; 0: not known.
    pub unit_ns: f64,
    /// What it finished of this session since it told last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<Finished>,
}

impl Default for HostState {
    fn default() -> Self {
        Self { cores: 1.0, backlog_ns: 0.0, unit_ns: 0.0, finished: vec![] }
    }
}

/// Which cores of which machine a process runs on. Two that share some do no more together than one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    /// What the machine calls its present run; empty: not known.
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

/// What OPEN says of how far a session's slices may be taken. The default asks for all of them whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Adapt {
    /// Who decides.
    pub level: LevelRule,
    /// Slices of the driving partition that the host holds: they need not travel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<SliceSpan>,
    /// What slices of this very sub-plan cost before: it is confidently sized, and need not be measured first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<SliceCosts>,
    /// The host.
    #[serde(default)]
    pub host: HostState,
    /// Where the host runs. A drive on the same cores has nothing to gain from handing work back.
    #[serde(default)]
    pub cores: Cores,
    /// Rows and bytes that the host expects of this partition's answer; none: it has no idea.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<(f64, f64)>,
    /// Whether partial results that were kept may answer for slices, and may be kept.
    #[serde(default)]
    pub summaries: bool,
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
