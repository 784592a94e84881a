//! What a session cost, as a drive reports it at the session's end.

use serde::{Deserialize, Serialize};

use crate::SliceCosts;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The session is open, and GET has not been called.
    Opened,
    /// Rounds are running.
    Running,
    /// All slices are done.
    Finished,
    /// The session ended with an error.
    Failed,
}

/// What a session has done so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionProfile {
    /// The state of the session.
    pub state: SessionState,
    /// The number of rounds that were closed.
    pub rounds: u32,
    /// Slices of the driving partition that were bound, including those that OPEN said are done.
    pub slices_total: u32,
    /// The number of these that are done: by this session, or by an earlier one as OPEN said.
    pub slices_done: u32,
    /// Most memory reserved at one time, in bytes.
    pub memory_peak: u64,
    /// Bytes spilled to the drive's temporary space.
    pub spilled_bytes: u64,
    /// Rows read from the other inputs of the sub-plan: co-partitioned datasets.
    pub other_rows_in: u64,
    /// Bytes read from the medium for the other inputs.
    pub other_medium_bytes: u64,
    /// What the drive expected a slice to cost before it measured any, where the drive chose the levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<SliceCosts>,
    /// The rate at which the link to the host was measured or is paced, bytes a second; none if it is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_s: Option<f64>,
    /// What slices cost, where the drive measured enough of them to size the sub-plan by it the next time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SliceCosts>,
    /// What users' functions took, each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallShare>,
}

/// What a user's function took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallShare {
    /// Domain and name.
    pub function: String,
    /// Rows that it was called for.
    pub rows: u64,
    /// CPU time of the calls.
    pub cpu_ns: u64,
}
