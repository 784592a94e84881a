//! [`RemoteContext`]: what the remote scans of a host share.

use std::sync::Arc;

use pithead_door::OpenRequest;
use pithead_exec::Summaries;
use pithead_fleet::Fleet;
use pithead_model::SliceCosts;

use crate::finishing::Finishing;
use crate::held_slices::HeldSlices;
use crate::idle::IdleSessions;
use crate::rollups::RollUps;
use crate::sizes::Sizes;

/// The drives, the host's cores, and what is kept from query to query.
#[derive(Debug)]
pub struct RemoteContext {
    pub(crate) fleet: Fleet,
    /// The host's cores.
    pub(crate) finishing: Arc<Finishing>,
    /// Slices that came back.
    pub(crate) held: HeldSlices,
    /// Partial results that were kept.
    pub(crate) summaries: Summaries,
    /// Which of them serve others.
    pub(crate) rollups: RollUps,
    /// What sub-plans cost.
    pub(crate) sizes: Sizes,
    /// Sessions, as far as nobody may pull them any more.
    pub(crate) idle_sessions: Arc<IdleSessions>,
    number: u64,
}

impl RemoteContext {
    /// For a host that finishes slices on so many threads, and keeps so many bytes of partial results at most.
    pub fn new(fleet: Fleet, threads: usize, summary_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            fleet,
            finishing: Finishing::new(threads),
            held: HeldSlices::default(),
            summaries: Summaries::new(summary_bytes),
            rollups: RollUps::default(),
            sizes: Sizes::default(),
            idle_sessions: Arc::default(),
            number: rand::random_range(1..=u64::MAX),
        })
    }

    /// What drives know this host by, so that they share their places among hosts.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What slices of this sub-plan cost when it ran last.
    pub fn costs_of(&self, request: &OpenRequest) -> Option<SliceCosts> {
        self.sizes.of(request)
    }

    /// How many slices the host holds of those that came back, and their bytes.
    pub fn slices_held(&self) -> (usize, u64) {
        self.held.size()
    }
}
