//! Where partitions lie, changed while queries run: drives that join, are emptied, leave or are lost.
//!
//! A partition moves in three steps: its runs are copied byte for byte, one compare-and-set of the manifest names the new
//! drive in the old one's place, and the old drive deletes its runs once nobody leases them. Sessions that were planned
//! before read on there; one that comes too late asks the manifest again.

mod balance;
mod group;
mod home;
mod lost;
mod membership;
mod mending;
mod shift;
mod verify;

use std::sync::Arc;

use pithead_model::{DatasetName, DriveId};

use group::{Group, groups};
pub use mending::Mending;

/// How far a change of place is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveProgress {
    /// Bytes that were copied or checked.
    pub bytes_done: u64,
    /// Bytes to copy or check, as far as is known.
    pub bytes_total: u64,
    /// The step under way, in words.
    pub what: String,
}

/// Is told how far it is.
pub type TellMove = Arc<dyn Fn(MoveProgress) + Send + Sync>;

/// What a change of place did.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct MoveReport {
    /// Partitions that lie elsewhere now, each dataset's by itself.
    pub partitions: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Domains that have another home now.
    pub homes: Vec<String>,
    /// What is worth knowing beside that.
    pub notes: Vec<String>,
}

impl MoveReport {
    fn add(&mut self, shifted: Shifted) {
        self.bytes += shifted.bytes;
        self.partitions += shifted.partitions;
    }
}

/// What became of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shifted {
    /// Bytes that were copied.
    bytes: u64,
    /// Partitions that lie elsewhere now; 0: another host put the group elsewhere first.
    partitions: u64,
}

/// What a repair is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairSpec {
    /// A drive that will not come back; none: all copies are checked.
    pub lost: Option<DriveId>,
    /// Drop datasets of which a partition was on the lost drive only.
    pub drop_lost: bool,
}

/// What a repair found and did.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct RepairReport {
    /// Runs that were checked, over all copies.
    pub runs_checked: u64,
    /// Their bytes.
    pub bytes_checked: u64,
    /// Runs that were missing or damaged on a drive and were written anew from another copy.
    pub runs_rewritten: u64,
    /// Copies of partitions that were made anew.
    pub copies_made: u64,
    /// Bytes that were copied for both.
    pub bytes: u64,
    /// Domains that have another home now.
    pub homes: Vec<String>,
    /// Partitions of which no copy is left.
    pub lost: Vec<LostPartition>,
    /// Datasets that were dropped, since a partition is lost.
    pub dropped: Vec<String>,
    /// Runs that are missing or damaged and of which no good copy was found.
    pub damaged: Vec<String>,
    /// What could not be done, and why: a drive is full, or does not answer. Another repair tries it again.
    pub failed: Vec<String>,
    /// Drives of the domains that are not reached, so that what they have was not checked.
    pub away: Vec<AwayDrive>,
    /// What is worth knowing beside that.
    pub notes: Vec<String>,
}

impl RepairReport {
    fn count_copies(&mut self, shifted: Shifted) {
        self.bytes += shifted.bytes;
        self.copies_made += shifted.partitions;
    }
}

/// A drive of a domain that is not reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct AwayDrive {
    /// Its identity.
    pub drive: DriveId,
    /// Why, for all that is known: another drive may be in its place.
    pub why: String,
}

/// A partition of which no copy is left.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct LostPartition {
    /// Domain and dataset.
    pub name: DatasetName,
    /// The partition.
    pub partition: u32,
    /// Its rows.
    pub rows: u64,
}

/// Adds up and tells.
struct Teller {
    tell: TellMove,
    progress: MoveProgress,
}

impl Teller {
    fn new(tell: TellMove, bytes_total: u64) -> Self {
        Self { tell, progress: MoveProgress { bytes_total, ..MoveProgress::default() } }
    }

    fn begin(&mut self, what: String) {
        self.progress.what = what;
        (self.tell)(self.progress.clone());
    }

    fn add(&mut self, bytes: u64) {
        self.progress.bytes_done += bytes;
        // Metadata slices and what is appended meanwhile come on top of what was foreseen.
        self.progress.bytes_total = self.progress.bytes_total.max(self.progress.bytes_done);
        (self.tell)(self.progress.clone());
    }
}
