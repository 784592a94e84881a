//! A drive in memory that keeps loads and manifests, fails when told to, and runs nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::StreamExt;
use parking_lot::Mutex;
use pithead_model::{
    Blame, ColumnSummary, DatasetId, DatasetName, Directory, DriveId, Fault, LoadId, Manifest, PROTOCOL_VERSION, Run,
    SessionId, SessionProfile, SliceKey,
};
use pithead_wire::{Batches, Door, DriveStatus, Events, Hello, LoadRequest, OpenRequest, Opened, Welcome};

/// What one load put into one partition.
pub(crate) type Stored = BTreeMap<(DatasetId, LoadId, u32), Vec<RecordBatch>>;

#[derive(Debug)]
pub(crate) struct FakeDoor {
    pub label: String,
    pub id: DriveId,
    pub protocol: AtomicU32,
    pub stored: Mutex<Stored>,
    pub manifests: Mutex<HashMap<String, Manifest>>,
    /// Loads fail after their first batch.
    pub loads_fail: AtomicBool,
    /// Nothing answers.
    pub is_down: AtomicBool,
    /// Commits that another host gets ahead of.
    pub conflicts: AtomicU32,
    /// Commits whose answer gets lost, with and without the change having been made.
    pub answers_lost: AtomicU32,
    pub commits_lost: AtomicU32,
}

impl FakeDoor {
    pub(crate) fn new(id: u64) -> Arc<Self> {
        Arc::new(Self {
            label: format!("fake-{id}"),
            id: DriveId(id),
            protocol: AtomicU32::new(PROTOCOL_VERSION),
            stored: Mutex::default(),
            manifests: Mutex::default(),
            loads_fail: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            conflicts: AtomicU32::new(0),
            answers_lost: AtomicU32::new(0),
            commits_lost: AtomicU32::new(0),
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.stored.lock().values().flatten().map(RecordBatch::num_rows).sum()
    }

    fn check(&self) -> Result<(), Fault> {
        match self.is_down.load(Ordering::Relaxed) {
            true => Err(Fault::new(Blame::Device, "does not answer")),
            false => Ok(()),
        }
    }
}

fn take_one(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
}

fn not_here<T>() -> Result<T, Fault> {
    Err(Fault::new(Blame::Unsupported, "the fake drive runs nothing"))
}

#[async_trait]
impl Door for FakeDoor {
    fn label(&self) -> &str {
        &self.label
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        self.check()?;
        Ok(Welcome {
            protocol: self.protocol.load(Ordering::Relaxed),
            release: "0.0.0".into(),
            drive: self.id,
            extensions: hello.extensions,
            encodings: vec!["vortex".into(), "arrow".into()],
            threads: 1,
            link_bits_per_second: None,
        })
    }

    async fn open(&self, _request: OpenRequest) -> Result<Opened, Fault> {
        not_here()
    }

    async fn get(&self, _session: SessionId) -> Result<Events, Fault> {
        not_here()
    }

    async fn poll(&self, _session: SessionId) -> Result<SessionProfile, Fault> {
        not_here()
    }

    async fn close(&self, _session: SessionId) -> Result<(), Fault> {
        Ok(())
    }

    async fn load(&self, request: LoadRequest, mut rows: Batches) -> Result<Run, Fault> {
        self.check()?;
        let mut batches = Vec::new();
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            assert_eq!(batch.schema(), request.schema);
            batches.push(batch);
            if self.loads_fail.load(Ordering::Relaxed) {
                return Err(Fault::new(Blame::Device, "no space left"));
            }
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        self.stored.lock().insert((request.dataset, request.load, request.partition), batches);
        let columns = vec![ColumnSummary::default(); request.schema.fields().len()];
        let slices = rows.div_ceil(request.slice_rows) as u32;
        Ok(Run { load: request.load, slices, rows: rows as u64, bytes: bytes as u64, columns })
    }

    async fn discard(&self, _name: DatasetName, dataset: DatasetId, keep: Vec<LoadId>) -> Result<u64, Fault> {
        self.check()?;
        let mut stored = self.stored.lock();
        let before = stored.len();
        stored.retain(|(of, load, _), _| *of != dataset || keep.contains(load));
        Ok((before - stored.len()) as u64)
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        self.check()?;
        Ok(self.manifests.lock().get(&domain).cloned())
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.check()?;
        let mut manifests = self.manifests.lock();
        if take_one(&self.conflicts)
            && let Some(present) = manifests.get_mut(&manifest.domain)
        {
            present.version += 1;
        }
        if take_one(&self.commits_lost) {
            return Err(Fault::new(Blame::Device, "link lost"));
        }
        let version = manifests.get(&manifest.domain).map_or(0, |present| present.version);
        if version != expected || manifest.version != expected + 1 {
            return Err(Fault::new(Blame::Conflict, format!("version is {version}, not {expected}")));
        }
        manifests.insert(manifest.domain.clone(), manifest);
        match take_one(&self.answers_lost) {
            true => Err(Fault::new(Blame::Device, "link lost")),
            false => Ok(()),
        }
    }

    async fn directory(&self, _key: SliceKey) -> Result<Directory, Fault> {
        not_here()
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.check()?;
        Ok(DriveStatus {
            drive: self.id,
            release: "0.0.0".into(),
            uptime_s: 0,
            threads: 1,
            memory: 0,
            memory_reserved: 0,
            sessions: 0,
            slices: self.stored.lock().len() as u64,
            stored_bytes: 0,
            free_bytes: 0,
            domains: self.manifests.lock().keys().cloned().collect(),
            link_bits_per_second: None,
        })
    }
}
