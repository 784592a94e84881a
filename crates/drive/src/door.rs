//! What hosts see of a drive.

use async_trait::async_trait;
use pithead_model::{DatasetId, DatasetName, Directory, Fault, LoadId, Manifest, Run, SessionId, SessionProfile, SliceKey};
use pithead_wire::{Batches, Door, DriveStatus, Events, Hello, LoadRequest, OpenRequest, Opened, Welcome};

use crate::Drive;

#[async_trait]
impl Door for Drive {
    fn label(&self) -> &str {
        &self.label
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        self.welcome(&hello)
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault> {
        let reply = self.open_session(request).await?;
        Ok(Opened { reply, link_bytes: 0 })
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        self.get_events(session)
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        Ok(self.sessions.get(session)?.profile())
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        if let Some(session) = self.sessions.close(session) {
            session.stopped().await;
        }
        Ok(())
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Run, Fault> {
        self.load_rows(request, rows).await
    }

    async fn discard(&self, name: DatasetName, dataset: DatasetId, keep: Vec<LoadId>) -> Result<u64, Fault> {
        self.discard_runs(name, dataset, keep).await
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        self.read_manifest(domain).await
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.write_manifest(expected, manifest).await
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        self.read_directory(key).await
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.read_status().await
    }
}
