//! What a session cost, as a drive reports it at its end.

use serde::{Deserialize, Serialize};

use crate::SliceCosts;

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Opened; GET has not been asked.
    Opened,
    /// Rounds are running.
    Running,
    /// All slices are answered for.
    Finished,
    /// It ended with an error.
    Failed,
}

/// What a session did so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionProfile {
    /// Where it stands.
    pub state: SessionState,
    /// Rounds closed.
    pub rounds: u32,
    /// Slices of the driving partition that were bound, those among them that OPEN said are done.
    pub slices_total: u32,
    /// Of them, answered for: by this session, or by another before it, as OPEN said.
    pub slices_done: u32,
    /// Most memory reserved at one time, in bytes.
    pub memory_peak: u64,
    /// Bytes spilled to the drive's temporary space.
    pub spilled_bytes: u64,
    /// Rows read from the other inputs of the sub-plan: co-partitioned datasets.
    pub other_rows_in: u64,
    /// Bytes read from the medium for the other inputs.
    pub other_medium_bytes: u64,
    /// What a slice was expected to cost before any was measured, where the drive decided how far to take them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<SliceCosts>,
    /// The rate that the link to the host was measured at, or is paced to, bytes a second; none: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_s: Option<f64>,
    /// What slices cost, where enough of them were measured that the sub-plan can be sized by it the next time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SliceCosts>,
}
