//! [`ScanSpec`]: a remote scan in a form that travels to another machine, where it runs over that machine's own connections to the
//! drives.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use pithead_door::OpenRequest;
use pithead_functions::Registry;
use pithead_model::{Blame, DriveId, Fault};

use crate::context::RemoteContext;
use crate::profile::SessionLog;
use crate::report::Expected;
use crate::scan::{AskedPartition, RemoteScanExec};
use crate::session::Target;

/// A remote scan that travels.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    /// The sub-plan's number.
    pub number: usize,
    /// The log that its sessions report to.
    pub log: u64,
    /// The columns of its rows.
    pub schema: SchemaRef,
    /// How long drives are asked again that are busy.
    pub busy_wait: Duration,
    /// The estimate of its rows.
    pub expected: Expected,
    /// One for each stream; none for a stream without rows.
    pub slots: Vec<Option<Slot>>,
}

/// A partition whose drives are asked.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Its number among all partitions of the dataset.
    pub partition: usize,
    /// What a session is opened with.
    pub request: OpenRequest,
    /// The drives that hold a copy of all of it, the one to ask first first.
    pub copies: Vec<DriveId>,
    /// Bytes of slices that may be kept for later queries.
    pub slice_cache: u64,
    /// Whether partial results are kept.
    pub summaries: bool,
}

impl RemoteScanExec {
    /// Where its sessions report to.
    pub fn log(&self) -> &Arc<SessionLog> {
        &self.log
    }

    /// Why it can run on this machine only; none: it can run elsewhere. `known`: the functions that are known there, as they are
    /// announced.
    pub fn stays(&self, known: &[String]) -> Option<&'static str> {
        let targets = || self.asked.iter().flatten().map(|asked| &asked.target);
        if targets().any(|target| target.copies.iter().any(|drive| drive.door.is_in_process())) {
            return Some("its drives are in this process");
        }
        // What a drive hands back is finished where its rows are read.
        let is_known = |target: &Arc<Target>| target.request.options.extensions.iter().all(|called| known.contains(called));
        if !targets().all(is_known) {
            return Some("drives call functions that workers do not have");
        }
        targets().any(|target| target.brake.is_some()).then_some("its plan may change while it runs")
    }

    /// The scan in parts for so many tasks: each partition is in exactly one, and all have as many streams.
    pub fn dealt(&self, tasks: usize) -> Vec<RemoteScanExec> {
        let tasks = tasks.max(1);
        let streams = self.asked.len().div_ceil(tasks).max(1);
        let part = |task: usize| {
            let asked = (0..streams).map(|stream| self.asked.get(stream * tasks + task).cloned().flatten()).collect();
            let (schema, log) = (self.schema(), Arc::clone(&self.log));
            RemoteScanExec::of(self.number, schema, asked, self.busy_wait, log, self.expected.clone())
        };
        (0..tasks).map(part).collect()
    }

    /// The scan as it travels.
    pub fn spec(&self) -> ScanSpec {
        let slot = |asked: &AskedPartition| Slot {
            partition: asked.partition,
            request: asked.target.request.clone(),
            copies: asked.target.copies.iter().map(|drive| drive.id()).collect(),
            slice_cache: asked.target.slice_cache,
            summaries: asked.target.summaries,
        };
        ScanSpec {
            number: self.number,
            log: self.log.id(),
            schema: self.schema(),
            busy_wait: self.busy_wait,
            expected: self.expected.clone(),
            slots: self.asked.iter().map(|asked| asked.as_ref().map(slot)).collect(),
        }
    }
}

impl ScanSpec {
    /// The scan over this machine's drives. Fails where none is connected that holds a partition.
    pub fn scan(
        self,
        context: &Arc<RemoteContext>,
        functions: &Arc<Registry>,
        runtime: &Arc<RuntimeEnv>,
    ) -> Result<RemoteScanExec, Fault> {
        let drives = context.fleet.connected();
        let asked = |slot: Slot| {
            let copies: Vec<_> = slot.copies.iter().filter_map(|id| drives.find(*id).cloned()).collect();
            if copies.is_empty() {
                let fault = drives.not_connected(&slot.copies);
                return Err(Fault::new(Blame::Device, format!("at this worker, {}", fault.message))
                    .hint("start workers over the drives of their coordinator"));
            }
            let mut request = slot.request;
            request.options.host = context.number();
            let target = Target {
                context: Arc::clone(context),
                functions: Arc::clone(functions),
                runtime: Arc::clone(runtime),
                slice_cache: slot.slice_cache,
                summaries: slot.summaries,
                roll_up: None,
                copies,
                request,
                brake: None,
            };
            Ok(AskedPartition { partition: slot.partition, target: Arc::new(target) })
        };
        let asked = self.slots.into_iter().map(|slot| slot.map(asked).transpose()).collect::<Result<Vec<_>, Fault>>()?;
        Ok(RemoteScanExec::of(self.number, self.schema, asked, self.busy_wait, SessionLog::of(self.log), self.expected))
    }
}
