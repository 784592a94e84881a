//! A drive's door that records what passes, and lies where it is told to.

use std::sync::Arc;

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use pithead_door::{
    Batches, Claim, Discard, Door, DriveStatus, Event, Events, Hello, LoadRequest, ManifestReceipt, MarkRun, Marked, MergeRuns,
    OpenRequest, OpenSession, Opened, Pieces, Welcome,
};
use pithead_drive::Drive;
use pithead_model::{DatasetName, Directory, Fault, HostState, Loaded, Manifest, SessionId, SessionProfile, SliceKey, boxed};
use tokio::runtime::Runtime;

#[derive(Debug)]
pub struct LyingDoor {
    drive: Arc<Drive>,
    opens: Mutex<Vec<OpenRequest>>,
    /// What GET gives instead of the drive's answer.
    events: Mutex<Option<Vec<Event>>>,
    manifest: Mutex<Option<Manifest>>,
    recording: Mutex<bool>,
    recorded: Mutex<Vec<Vec<Event>>>,
}

impl LyingDoor {
    pub fn new(drive: Arc<Drive>) -> Self {
        Self {
            drive,
            opens: Mutex::default(),
            events: Mutex::default(),
            manifest: Mutex::default(),
            recording: Mutex::default(),
            recorded: Mutex::default(),
        }
    }

    /// The OPENs since this was last asked.
    pub fn take_opens(&self) -> Vec<OpenRequest> {
        std::mem::take(&mut self.opens.lock())
    }

    /// The answers to GET since this was last asked, where they are recorded.
    pub fn take_events(&self) -> Vec<Vec<Event>> {
        std::mem::take(&mut self.recorded.lock())
    }

    pub fn record_events(&self, record: bool) {
        *self.recording.lock() = record;
    }

    pub fn answer_with(&self, events: Option<Vec<Event>>) {
        *self.events.lock() = events;
    }

    pub fn catalogue_with(&self, manifest: Option<Manifest>) {
        *self.manifest.lock() = manifest;
    }

    /// The drive's own manifest.
    pub fn manifest_now(&self, runtime: &Runtime) -> Manifest {
        runtime.block_on(self.drive.manifest(DatasetName::DEFAULT_DOMAIN.to_owned())).unwrap().unwrap()
    }
}

#[boxed]
impl Door for LyingDoor {
    fn label(&self) -> &str {
        self.drive.label()
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        self.drive.hello(hello).await
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault> {
        self.opens.lock().push(request.clone());
        self.drive.open(request).await
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        if let Some(events) = self.events.lock().clone() {
            return Ok(stream::iter(events.into_iter().map(Ok)).boxed());
        }
        let events = self.drive.get(session).await?;
        if !*self.recording.lock() {
            return Ok(events);
        }
        let events: Vec<Result<Event, Fault>> = events.collect().await;
        self.recorded.lock().push(events.iter().filter_map(|event| event.clone().ok()).collect());
        Ok(stream::iter(events).boxed())
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        self.drive.poll(session).await
    }

    async fn tell(&self, session: SessionId, state: HostState) -> Result<(), Fault> {
        self.drive.tell(session, state).await
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        self.drive.close(session).await
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
        self.drive.load(request, rows).await
    }

    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault> {
        self.drive.merge_runs(request).await
    }

    async fn mark_run(&self, request: MarkRun) -> Result<Marked, Fault> {
        self.drive.mark_run(request).await
    }

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        self.drive.discard(discard).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        self.drive.claim(claim).await
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        self.drive.read_run(run).await
    }

    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        self.drive.write_run(run, pieces).await
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        let lie = self.manifest.lock().clone();
        match lie {
            Some(manifest) => Ok(Some(manifest)),
            None => self.drive.manifest(domain).await,
        }
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.drive.commit(expected, manifest).await
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault> {
        self.drive.keep_manifest(manifest).await
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        self.drive.directory(key).await
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.drive.status().await
    }

    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault> {
        self.drive.sessions().await
    }

    async fn kill(&self, session: SessionId) -> Result<bool, Fault> {
        self.drive.kill(session).await
    }
}
