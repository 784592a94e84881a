//! What a CSE says of itself, and of the sessions that are open.

use pithead_model::{ByLevel, Counts, DatasetId, DatasetName, DriveId, Fault, SessionId, SessionState};
use serde::{Deserialize, Serialize};

/// What a drive says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveStatus {
    /// The drive.
    pub drive: DriveId,
    /// Its release.
    pub release: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Threads: its reactors.
    pub threads: u32,
    /// Memory for sessions, bytes.
    pub memory: u64,
    /// Of it, reserved now.
    pub memory_reserved: u64,
    /// Sessions open now.
    pub sessions: u32,
    /// Slices stored, visible or not.
    pub slices: u64,
    /// Bytes stored, visible or not.
    pub stored_bytes: u64,
    /// Bytes free on the medium.
    pub free_bytes: u64,
    /// Domains whose manifest this drive keeps, as their home or as a copy.
    pub domains: Vec<DomainAt>,
    /// What it holds of each partition, and how much that is asked for.
    pub partitions: Vec<PartitionUse>,
    /// The rate that its sends are paced to, bits a second.
    pub link_bits_per_second: Option<f64>,
    /// The speed that its CPU is paced to, as a share of the real one's; 1: not paced.
    #[serde(default = "crate::greeting::whole")]
    pub cpu_share: f64,
    /// The rate that its reads are paced to, bytes a second.
    #[serde(default)]
    pub medium_bytes_per_second: Option<f64>,
    /// The profile whose device it is slowed to, by its name; none: it is the machine as it is.
    #[serde(default)]
    pub profile: Option<String>,
    /// What rounds counted since it started, by the level that they were taken to.
    #[serde(default)]
    pub work: ByLevel<Counts>,
    /// What its work costs, as it has learned.
    #[serde(default)]
    pub costs: Vec<CostRate>,
    /// Why drives beneath an array do not say how they are. What they hold is not counted above.
    #[serde(default)]
    pub away: Vec<Fault>,
}

/// What one operator costs at a drive over slices of one encoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostRate {
    /// The encoding.
    pub encoding: String,
    /// The operator.
    pub operator: String,
    /// What it is counted by, such as `row`.
    pub unit: String,
    /// CPU time of one unit, nanoseconds.
    pub ns: f64,
    /// Slices that it was learned from.
    pub learned: u64,
    /// Predicted over actual time, the median of the last slices; none: nothing was predicted yet.
    pub ratio: Option<f64>,
}

/// A domain's manifest on one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainAt {
    /// The domain.
    pub name: String,
    /// Version of the manifest here.
    pub version: u64,
    /// The home that it names.
    pub home: DriveId,
}

/// A partition on one drive: how much is stored, and how much it is used (partition utilization and partition load in
/// Montana et al. 2023, Skytether, section 5.1; see `docs/bibliography.md`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionUse {
    /// Domain and dataset.
    pub name: DatasetName,
    /// The incarnation.
    pub dataset: DatasetId,
    /// The partition.
    pub partition: u32,
    /// Slices stored, visible or not.
    pub slices: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sessions that read it, since the drive started.
    pub sessions: u64,
    /// Slices that these sessions read.
    pub slices_read: u64,
    /// Bytes of them.
    pub bytes_read: u64,
    /// CPU time of their rounds.
    pub cpu_ns: u64,
    /// Seconds since the last such session was opened; none: not since the drive started.
    pub idle_s: Option<u64>,
}

/// A session that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenSession {
    /// The session.
    pub session: SessionId,
    /// The identity that opened it; none: the drive does not tell its callers apart.
    pub owner: Option<String>,
    /// The host that opened it, as [`crate::SessionOptions::host`].
    pub host: u64,
    /// The datasets that it reads, the driving one first.
    pub datasets: Vec<DatasetName>,
    /// Where it stands.
    pub state: SessionState,
    /// Seconds since it was opened.
    pub open_s: f64,
    /// Slices that are answered for.
    pub slices_done: u32,
    /// Slices of the driving partition.
    pub slices_total: u32,
    /// Bytes of memory that are reserved for it.
    pub memory: u64,
    /// The modules whose SSDlets it runs, if it is an application: then it has neither datasets nor slices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
}
