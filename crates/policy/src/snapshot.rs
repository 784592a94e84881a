//! The policy's input and its answer.

use pithead_model::Level;
pub use pithead_model::{ByLevel, SliceCosts};
use serde::{Deserialize, Serialize};

/// The drive's CPU as one session sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveState {
    /// Cores that this session gets: its share, which need not be whole.
    pub cores: f64,
    /// CPU time of the work that is ahead of it on these cores: rounds that were begun, and what others have queued.
    pub busy_ns: f64,
}

/// The link between drive and host as one session sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkState {
    /// This session's share, in bytes a second: infinite within a process, 0 where the link is dead.
    pub bytes_per_s: f64,
    /// Bytes that wait to be sent.
    pub backlog_bytes: f64,
}

/// The host's CPU as one session sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// Cores that this session gets: its share, which need not be whole.
    pub cores: f64,
    /// CPU time of work that waits there.
    pub backlog_ns: f64,
}

/// One-off costs before the first slice at a level: the other inputs of a join may have to travel to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Bytes on the link.
    pub link_bytes: f64,
    /// CPU time at the host.
    pub host_ns: f64,
    /// CPU time at the drive.
    pub drive_ns: f64,
}

/// The levels that may be chosen. If none may, the drive has to finish what it began, and the policy reads this as
/// "level 3 only".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// Level 3.
    pub whole: bool,
    /// Level 2.
    pub filtered: bool,
    /// Level 1.
    pub hints: bool,
    /// Level 0.
    pub bytes: bool,
}

impl Allowed {
    /// Every level.
    pub const ALL: Allowed = Allowed { whole: true, filtered: true, hints: true, bytes: true };

    /// Whether a level may be chosen.
    pub fn get(&self, level: Level) -> bool {
        match level {
            Level::Whole => self.whole,
            Level::Filtered => self.filtered,
            Level::Hints => self.hints,
            Level::Bytes => self.bytes,
        }
    }

    /// Whether slices may be sent as they are stored, at least in part.
    pub fn carried(&self) -> bool {
        self.hints || self.bytes
    }

    /// Only `level`.
    pub fn only(level: Level) -> Allowed {
        Allowed {
            whole: level == Level::Whole,
            filtered: level == Level::Filtered,
            hints: level == Level::Hints,
            bytes: level == Level::Bytes,
        }
    }
}

/// Everything that the policy knows when it is asked. It replaces absurd numbers (negative, NaN, too large) by
/// reasonable ones, and never panics.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Slices that no task has taken.
    pub left: u32,
    /// The number of these whose bytes the host has in its cache: at levels 1 and 0 they cost no link time. The session gives
    /// these to the carrier first, and to workers last.
    pub resident: u32,
    /// The cost of a slice. [`Steering::decide`](crate::Steering::decide) uses its own estimates instead.
    pub costs: SliceCosts,
    /// The one-off costs before the first slice at a level. Zero where they were paid already.
    pub setup: ByLevel<Setup>,
    /// The drive.
    pub drive: DriveState,
    /// The link.
    pub link: LinkState,
    /// The host.
    pub host: HostState,
    /// The levels that may be chosen.
    pub allowed: Allowed,
    /// The sub-plan needs the whole partition in one round: level 3 is for all slices left, or for none.
    pub whole_is_all_or_none: bool,
}

/// The resource that determines the finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// The drive's CPU.
    Drive,
    /// The link.
    Link,
    /// The host's CPU.
    Host,
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Resource::Drive => "drive",
            Resource::Link => "link",
            Resource::Host => "host",
        })
    }
}

/// How the slices that are left are divided, and the expected result.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Slices for each level. Their sum is the number of slices that were left.
    pub slices: ByLevel<u32>,
    /// When the last slice is finished, in nanoseconds from now. Infinite if that needs a dead link.
    pub finish_ns: f64,
    /// The resource that is busy longest.
    pub bottleneck: Resource,
    /// The finish if all slices were executed at that level. Infinite where the level is not allowed.
    pub fixed_ns: ByLevel<f64>,
}
