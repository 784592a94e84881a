//! What hosts see of a drive.

use bytes::Bytes;
use std::sync::Arc;

use pithead_door::{
    ApplicationRun, Attachments, BackgroundOrder, BackgroundStatus, Batches, Claim, Discard, Door, DriveStatus, Events,
    FunctionAsk, FunctionModule, Hello, HistoryAsk, LinkGauge, LoadModule, LoadRequest, ManifestReceipt, MarkRun, Marked,
    MergeRuns, OpenRequest, OpenSession, Opened, Pieces, PortInputs, Reads, RunApplication, StoredModule, ToldVersion, Welcome,
};
use pithead_model::{Directory, Fault, HostState, Loaded, Manifest, Reply, SessionId, SessionProfile, SliceKey, boxed};
use pithead_plan::take_annotation;

use crate::daemon::Drive;

#[boxed]
impl Door for Drive {
    fn label(&self) -> &str {
        &self.label
    }

    fn is_in_process(&self) -> bool {
        self.resources.device.link_bits_per_second().is_none()
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        self.counted(self.welcome(&hello))
    }

    async fn open(&self, mut request: OpenRequest) -> Result<Opened, Fault> {
        let start = self.resources.device.clock().now();
        self.counted(take_annotation(&mut request))?;
        let reply = self.counted(self.serving.open_session(request).await)?;
        if let Reply::Granted(_) = &reply {
            self.metrics.opened.inc();
            self.metrics.open_seconds.observe(self.resources.device.clock().now().since(start).as_secs_f64());
        }
        Ok(Opened { reply, link_bytes: 0 })
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        self.counted(self.serving.get_events(session, None))
    }

    async fn get_over(&self, session: SessionId, link: Arc<dyn LinkGauge>) -> Result<Events, Fault> {
        self.counted(self.serving.get_events(session, Some(link)))
    }

    async fn tell(&self, session: SessionId, state: HostState) -> Result<(), Fault> {
        if let Ok(session) = self.sessions().get(session) {
            session.steer.tell(state);
        }
        Ok(())
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        Ok(self.counted(self.sessions().get(session))?.profile())
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        if let Some(session) = self.sessions().close(session) {
            session.stopped().await;
        }
        Ok(())
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
        let loaded = self.counted(self.stored(&self.metrics.loads, self.storage.load_rows(request, rows).await))?;
        self.metrics.load_rows.inc_by(loaded.run.rows);
        self.metrics.load_bytes.inc_by(loaded.run.bytes);
        Ok(loaded)
    }

    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault> {
        self.counted(self.stored(&self.metrics.merges, self.storage.merge_stored(request).await))
    }

    async fn mark_run(&self, request: MarkRun) -> Result<Marked, Fault> {
        self.counted(self.stored(&self.metrics.marks, self.serving.mark_run(request).await))
    }

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        self.counted(self.storage.discard_runs(discard).await)
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        self.counted(self.storage.claim_runs(claim).await)
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        self.counted(self.storage.read_pieces(run).await)
    }

    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        self.counted(self.copied(self.storage.write_pieces(run, pieces).await))
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        self.counted(self.storage.read_manifest(domain).await)
    }

    async fn has_manifest(&self, domain: String, version: u64) -> Result<bool, Fault> {
        self.counted(self.storage.has_manifest(domain, version).await)
    }

    async fn attached(&self, known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        match &self.storage.attached {
            Some(attached) => self.counted(attached.tell(known).await),
            None => Ok((known != Some(0)).then(Arc::default)),
        }
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.counted(self.stored(&self.metrics.commits, self.storage.write_manifest(expected, manifest).await))
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault> {
        self.counted(self.storage.keep_copy(manifest).await)
    }

    async fn set_aside(&self, domain: String, after: u64) -> Result<Option<Manifest>, Fault> {
        self.counted(self.storage.read_aside(domain, after).await)
    }

    async fn history(&self, ask: HistoryAsk) -> Result<Vec<ToldVersion>, Fault> {
        self.counted(self.storage.read_history(ask).await)
    }

    async fn past_manifest(&self, domain: String, version: u64) -> Result<Option<Manifest>, Fault> {
        self.counted(self.storage.read_past(domain, version).await)
    }

    async fn forget_history(&self, domain: String) -> Result<u64, Fault> {
        self.counted(self.storage.forget_history(domain).await)
    }

    async fn drop_aside(&self, domain: String, version: u64) -> Result<bool, Fault> {
        self.counted(self.storage.drop_aside(domain, version).await)
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        self.counted(self.storage.read_directory(key).await)
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.counted(self.read_status().await)
    }

    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault> {
        let mut open = self.sessions().list();
        open.extend(self.programs.list());
        open.sort_by(|a, b| b.open_s.total_cmp(&a.open_s));
        Ok(open)
    }

    async fn kill(&self, session: SessionId) -> Result<bool, Fault> {
        let killed = self.sessions().kill(session);
        if let Some(session) = &killed {
            session.stopped().await;
        }
        Ok(killed.is_some() || self.programs.kill(session).await)
    }

    async fn background(&self, order: BackgroundOrder) -> Result<BackgroundStatus, Fault> {
        if let BackgroundOrder::Deduplicate(settings) = &order {
            self.counted(self.check_domains(&settings.domains).await)?;
        }
        self.counted(self.background.order(order).await)
    }

    async fn load_module(&self, request: LoadModule) -> Result<StoredModule, Fault> {
        self.counted(self.programs.load_module(request).await)
    }

    async fn modules(&self) -> Result<Vec<StoredModule>, Fault> {
        self.counted(self.programs.modules().await)
    }

    async fn remove_module(&self, name: String) -> Result<bool, Fault> {
        self.counted(self.programs.remove_module(name).await)
    }

    async fn keep_function(&self, module: FunctionModule) -> Result<String, Fault> {
        self.counted(self.programs.keep_function(module).await)
    }

    async fn function(&self, ask: FunctionAsk) -> Result<Option<Bytes>, Fault> {
        self.counted(self.programs.function(ask).await)
    }

    async fn run_application(
        &self,
        request: RunApplication,
        inputs: PortInputs,
        reads: Arc<dyn Reads>,
    ) -> Result<ApplicationRun, Fault> {
        self.counted(self.programs.run(request, inputs, reads).await)
    }
}

impl Drive {
    /// Runs SSDlets of one module that the drive does not keep, for another protocol: see [`Door::run_application`].
    #[boxed]
    pub async fn run_module(
        &self,
        module: Bytes,
        request: RunApplication,
        inputs: PortInputs,
        reads: Arc<dyn Reads>,
    ) -> Result<ApplicationRun, Fault> {
        self.counted(self.programs.run_bytes(module, request, inputs, reads).await)
    }

    /// Counts a call that failed.
    fn counted<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.inspect_err(|fault| self.metrics.failed(fault))
    }
}
