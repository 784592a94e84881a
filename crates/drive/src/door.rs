//! What hosts see of a drive.

use async_trait::async_trait;
use pithead_model::{Directory, Fault, Manifest, Run, SessionId, SessionProfile, SliceKey};
use pithead_wire::{Batches, Discard, Door, DriveStatus, Events, Hello, LoadRequest, OpenRequest, Opened, Pieces, Welcome};

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

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        self.discard_runs(discard).await
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        self.read_pieces(run).await
    }

    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        self.write_pieces(run, pieces).await
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        self.read_manifest(domain).await
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.write_manifest(expected, manifest).await
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<(), Fault> {
        self.keep_copy(manifest).await
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        self.read_directory(key).await
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.read_status().await
    }
}
