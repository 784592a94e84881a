//! What a query cost, gathered while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use pithead_model::{Annotation, CallShare, Finished, Level, SessionProfile, SliceSpan, total};
use pithead_plan::SubPlan;
use serde::{Deserialize, Serialize};

/// Everything that a query's sub-plans reported. Complete once the query's rows have ended.
#[derive(Debug)]
pub struct QueryProfile {
    started: Instant,
    sub_plans: Mutex<Vec<Arc<SubPlanProfile>>>,
}

/// One sub-plan over all its drives.
#[derive(Debug)]
pub struct SubPlanProfile {
    /// The sub-plan.
    pub sub_plan: Arc<SubPlan>,
    /// Whether it reads only some pages, for the sampler.
    pub is_sample: bool,
    /// For each partition, whether rows of the answer may come from it. Of the others, none is asked.
    pub partitions_left: Vec<bool>,
    log: Arc<SessionLog>,
}

/// What the sessions of one sub-plan reported, by partition.
#[derive(Debug)]
pub struct SessionLog {
    /// What the log is found by, where its sessions run on other machines.
    id: u64,
    sessions: Mutex<BTreeMap<usize, PartitionProfile>>,
}

impl SessionLog {
    /// An empty log under this number.
    pub(crate) fn of(id: u64) -> Arc<Self> {
        Arc::new(Self { id, sessions: Mutex::default() })
    }

    /// What it is found by.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The sessions so far, with the number of each one's partition.
    pub fn partitions(&self) -> Vec<(usize, PartitionProfile)> {
        self.sessions.lock().iter().map(|(partition, session)| (*partition, session.clone())).collect()
    }

    /// Takes note of a partition's session that ran on another machine.
    pub fn note(&self, partition: usize, session: PartitionProfile) {
        self.sessions.lock().insert(partition, session);
    }

    pub(crate) fn update(&self, partition: usize, change: impl FnOnce(&mut PartitionProfile)) {
        change(self.sessions.lock().entry(partition).or_default());
    }
}

/// A sub-plan over one partition: one session, or several where drives failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PartitionProfile {
    /// The drive, of several the last one.
    pub label: String,
    /// The annotation that closed each round.
    pub annotations: Vec<Annotation>,
    /// What the drive reported at the end.
    pub session: Option<SessionProfile>,
    /// Bytes on the link, both ways; 0 in-process.
    pub link_bytes: u64,
    /// Time that OPEN took.
    pub open_us: u64,
    /// Time from OPEN to the last event.
    pub wall_us: u64,
    /// Times that the drive answered busy.
    pub busy: u32,
    /// Time that was waited for it.
    pub busy_us: u64,
    /// Slices that partial results answered for which the host had kept.
    pub recalled: u64,
    /// Which slices these are.
    pub recalled_slices: Vec<SliceSpan>,
    /// What the host finished of slices that came back.
    pub finished: Vec<Finished>,
    /// What users' functions took for that at the host.
    pub calls: Vec<CallShare>,
    /// Each time that a drive failed, and at which other one the work went on.
    pub failovers: Vec<String>,
}

/// Sums over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProfileSnapshot {
    /// Bytes on the link, both ways; 0 in-process.
    pub link_bytes: u64,
    /// Bytes read from the media, or from the drives' caches of them.
    pub medium_bytes: u64,
    /// Rows that came from the drives.
    pub rows_from_drives: u64,
    /// Slices that were read.
    pub slices_read: u64,
    /// Slices that their directory entries ruled out.
    pub slices_skipped: u64,
    /// Rounds.
    pub rounds: u64,
    /// Sessions.
    pub sessions: u64,
    /// CPU time at the drives.
    pub drive_cpu_ns: u64,
    /// The longest OPEN.
    pub session_open_us: u64,
    /// Times that a session went on at another copy, since its drive failed.
    pub failovers: u64,
    /// Times that a drive answered busy.
    pub busy: u64,
    /// Time that sessions waited for drives that were busy, added up.
    pub busy_us: u64,
    /// Time since the query was planned.
    pub elapsed_us: u64,
}

impl QueryProfile {
    /// Of a query that begins now.
    pub fn start() -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), sub_plans: Mutex::default() })
    }

    /// One more sub-plan is opened, at these partitions; it may be one that reads only some pages.
    pub fn add(&self, sub_plan: &Arc<SubPlan>, partitions_left: Vec<bool>, is_sample: bool) -> Arc<SubPlanProfile> {
        let (sub_plan, log) = (Arc::clone(sub_plan), SessionLog::of(rand::random()));
        let profile = Arc::new(SubPlanProfile { sub_plan, is_sample, partitions_left, log });
        self.sub_plans.lock().push(Arc::clone(&profile));
        profile
    }

    /// Every sub-plan that was opened, those of shipped tables and scalar subqueries among them.
    pub fn sub_plans(&self) -> Vec<Arc<SubPlanProfile>> {
        self.sub_plans.lock().clone()
    }

    /// Sums so far.
    pub fn snapshot(&self) -> ProfileSnapshot {
        let mut sums = ProfileSnapshot { elapsed_us: self.started.elapsed().as_micros() as u64, ..Default::default() };
        for sub_plan in self.sub_plans() {
            for session in sub_plan.sessions() {
                session.add_to(&mut sums);
            }
        }
        sums
    }
}

impl SubPlanProfile {
    /// Its sessions, by partition.
    pub fn sessions(&self) -> Vec<PartitionProfile> {
        self.log.sessions.lock().values().cloned().collect()
    }

    /// Where its sessions report to.
    pub fn log(&self) -> &Arc<SessionLog> {
        &self.log
    }

    /// Its sessions, with the number of each one's partition.
    pub fn partitions(&self) -> Vec<(usize, PartitionProfile)> {
        self.log.partitions()
    }

    /// The slices of each partition of its dataset that is asked.
    fn slices_left(&self) -> Option<impl Iterator<Item = u64>> {
        let partitions = &self.sub_plan.datasets.first()?.dataset.partitions;
        let asked = partitions.iter().zip(&self.partitions_left).filter(|(_, left)| **left);
        Some(asked.flat_map(|(partition, _)| &partition.runs).map(|run| u64::from(run.slices)))
    }

    /// Rows of its answer, where drives have taken each slice of its dataset through all of its filters, and nothing that was kept has
    /// answered.
    pub fn rows_of_all_slices(&self) -> Option<u64> {
        let sessions = self.sessions();
        let closed = || sessions.iter().flat_map(|session| &session.annotations);
        let is_whole = |a: &Annotation| a.level >= Level::Filtered && a.summarised == 0;
        let slices = total(closed().flat_map(|a| &a.slices).map(|span| u64::from(span.count)));
        let all = total(self.slices_left()?);
        let complete = closed().all(is_whole) && sessions.iter().all(|session| session.recalled == 0) && slices == all;
        complete.then(|| total(closed().map(|a| a.rows_out)))
    }
}

impl PartitionProfile {
    /// Rows of all closed rounds.
    pub fn rows_out(&self) -> u64 {
        total(self.annotations.iter().map(|a| a.rows_out))
    }

    /// CPU time at the drive.
    pub fn cpu_ns(&self) -> u64 {
        total(self.annotations.iter().map(|a| a.cpu_ns))
    }

    /// Slices that rounds answered for, and of them those that were not read, in each case without those that kept partial
    /// results answered for.
    pub fn slices(&self) -> (u64, u64) {
        let all = total(self.annotations.iter().flat_map(|a| &a.slices).map(|span| u64::from(span.count)));
        (all.saturating_sub(self.summarised()), total(self.annotations.iter().map(|a| u64::from(a.slices_skipped))))
    }

    /// Slices that partial results answered for which the drive had kept.
    pub fn summarised(&self) -> u64 {
        total(self.annotations.iter().map(|a| u64::from(a.summarised)))
    }

    /// Bytes from the medium, for the driving dataset and the others.
    pub fn medium_bytes(&self) -> u64 {
        let driving = total(self.annotations.iter().map(|a| a.medium_bytes));
        driving.saturating_add(self.session.as_ref().map_or(0, |session| session.other_medium_bytes))
    }

    /// The levels that rounds were taken to, lowest and highest.
    pub fn levels(&self) -> Option<(Level, Level)> {
        let levels = || self.annotations.iter().map(|a| a.level);
        Some((levels().min()?, levels().max()?))
    }

    fn add_to(&self, sums: &mut ProfileSnapshot) {
        let (slices, skipped) = self.slices();
        sums.link_bytes = sums.link_bytes.saturating_add(self.link_bytes);
        sums.medium_bytes = sums.medium_bytes.saturating_add(self.medium_bytes());
        sums.rows_from_drives = sums.rows_from_drives.saturating_add(self.rows_out());
        sums.slices_read = sums.slices_read.saturating_add(slices - skipped.min(slices));
        sums.slices_skipped = sums.slices_skipped.saturating_add(skipped);
        sums.rounds += self.annotations.len() as u64;
        // A cached answer needs no session.
        sums.sessions += u64::from(!self.label.is_empty()) + self.failovers.len() as u64;
        sums.failovers += self.failovers.len() as u64;
        sums.busy += u64::from(self.busy);
        sums.busy_us += self.busy_us;
        sums.drive_cpu_ns = sums.drive_cpu_ns.saturating_add(self.cpu_ns());
        sums.session_open_us = sums.session_open_us.max(self.open_us);
    }
}
