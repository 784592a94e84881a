//! What hosts see of an array: a drive.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use pithead_cse::Cause;
use pithead_door::{
    Attachments, Batches, Claim, Discard, Door, DriveStatus, Events, FunctionAsk, FunctionModule, Hello, LoadRequest,
    ManifestReceipt, MergeRuns, OpenRequest, OpenSession, Opened, Pieces, Welcome, check_hello,
};
use pithead_model::{Blame, Directory, Fault, HostState, Loaded, Manifest, SessionId, SessionProfile, SliceKey, boxed};

use crate::Array;
use crate::directories::columns_key;
use crate::opening::shared;
use crate::{copying, load};

#[boxed]
impl Door for Array {
    fn label(&self) -> &str {
        &self.inner.label
    }

    /// Its identity is its own; its threads are those that a session may find at one of its drives.
    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        let welcome = self.inner.welcome();
        check_hello(&hello, &welcome)?;
        Ok(welcome)
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault> {
        Ok(Opened { reply: self.inner.open(request).await?, link_bytes: 0 })
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        self.inner.sessions.get(session)?.events(&self.inner.sessions)
    }

    async fn tell(&self, session: SessionId, state: HostState) -> Result<(), Fault> {
        let Ok(session) = self.inner.sessions.get(session) else { return Ok(()) };
        let state = shared(&state, session.lower.len());
        join_all(session.lower.iter().map(|lower| async {
            if let Err(fault) = lower.door.tell(lower.id, state.clone()).await {
                tracing::debug!(drive = lower.label, %fault, "a drive was not told how the host is");
            }
        }))
        .await;
        Ok(())
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        Ok(self.inner.sessions.get(session)?.profile())
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        self.inner.sessions.end(session, Cause::Closed).await;
        Ok(())
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
        load::load(Arc::clone(&self.inner), request, rows).await
    }

    /// None: the drives below keep no manifest that would tell them when the runs that were merged may go.
    async fn merge_runs(&self, _request: MergeRuns) -> Result<Loaded, Fault> {
        Err(Fault::new(Blame::Unsupported, "an array merges no runs"))
    }

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        self.inner.discard(discard).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        self.inner.claim(claim).await
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        copying::read_run(&self.inner, run).await
    }

    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        copying::write_run(Arc::clone(&self.inner), run, pieces).await
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        self.inner.manifests(move |manifests| manifests.read(&domain)).await
    }

    async fn attached(&self, known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        self.inner.directories.attached.ask(&self.inner.drives, known).await
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.inner.check_running()?;
        self.inner.manifests(move |manifests| manifests.replace(expected, manifest)).await
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault> {
        self.inner.check_running()?;
        self.inner.manifests(move |manifests| manifests.keep(manifest)).await
    }

    async fn set_aside(&self, domain: String, after: u64) -> Result<Option<Manifest>, Fault> {
        self.inner.manifests(move |manifests| manifests.next_aside(&domain, after)).await
    }

    async fn drop_aside(&self, domain: String, version: u64) -> Result<bool, Fault> {
        self.inner.check_running()?;
        self.inner.manifests(move |manifests| manifests.drop_aside(&domain, version)).await
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        self.inner.directories.run(&key).await?.whole(&columns_key(self.inner.id())).map_err(|fault| fault.at(&key))
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.inner.status().await
    }

    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault> {
        Ok(self.inner.sessions.list())
    }

    async fn kill(&self, session: SessionId) -> Result<bool, Fault> {
        Ok(self.inner.sessions.end(session, Cause::Killed).await)
    }

    async fn keep_function(&self, module: FunctionModule) -> Result<String, Fault> {
        self.inner.keep_function(module).await
    }

    async fn function(&self, ask: FunctionAsk) -> Result<Option<Bytes>, Fault> {
        self.inner.function(ask).await
    }
}
