//! [`HostReader`] and [`HostWriter`]: ports between SSDlets and their host program.

use std::sync::Arc;

use bytes::Bytes;
use pithead_model::Fault;

use crate::state::{Phase, Shared};

/// Takes what SSDlets put out. Dropping it says that the host program reads no more.
#[derive(Debug)]
pub struct HostReader {
    shared: Arc<Shared>,
    join: usize,
    signature: String,
}

impl HostReader {
    pub(crate) fn new(shared: Arc<Shared>, join: usize, signature: String) -> Self {
        Self { shared, join, signature }
    }

    /// What goes through the port: types of columns such as `string,u32`, or `arrow`.
    pub fn signature(&self) -> &str {
        &self.signature
    }

    /// The name of the application.
    pub(crate) fn application(&self) -> &str {
        &self.shared.name
    }

    /// The next batch as bytes, None when all writers have ended. Fails if the application did. It may be dropped while it waits: no
    /// batch is lost by that.
    pub async fn get(&self) -> Result<Option<Bytes>, Fault> {
        let got = self.shared.until(|state| {
            if let Some(failure) = &state.failure {
                return Some(Err(failure.clone()));
            }
            match (state.joins[self.join].get(), state.phase) {
                (Some(None), Phase::Ended) | (None, Phase::Running | Phase::Ended) => Some(Ok(None)),
                (Some(None), _) | (None, Phase::Building | Phase::Starting) => None,
                (Some(Some(batch)), _) => Some(Ok(Some(batch))),
            }
        });
        let got = got.await;
        if matches!(got, Ok(Some(_))) {
            // A writer of this program may have room now.
            self.shared.change(|_| ());
        }
        got
    }
}

impl Drop for HostReader {
    fn drop(&mut self) {
        self.shared.change(|state| state.joins[self.join].leave());
    }
}

/// Sends to the inputs of SSDlets. Dropping it ends its part of the stream.
#[derive(Debug)]
pub struct HostWriter {
    shared: Arc<Shared>,
    join: usize,
    source: usize,
    signature: String,
}

impl HostWriter {
    pub(crate) fn new(shared: Arc<Shared>, join: usize, source: usize, signature: String) -> Self {
        Self { shared, join, source, signature }
    }

    /// What goes through the port: types of columns such as `string,u32`, or `arrow`.
    pub fn signature(&self) -> &str {
        &self.signature
    }

    /// Sends a batch of whole rows, or an Arrow IPC stream, and waits while too much is on its way. False if nobody reads any more.
    /// Fails if the application did, which is also how a drive refuses bytes that are not of the port's type.
    pub async fn put(&self, batch: impl Into<Bytes>) -> Result<bool, Fault> {
        let mut batch = Some(batch.into());
        let put = self.shared.until(|state| {
            if let Some(failure) = &state.failure {
                return Some(Err(failure.clone()));
            }
            let join = &mut state.joins[self.join];
            match (state.phase, join.has_room(self.source)) {
                (Phase::Ended, _) => Some(Ok(false)),
                (_, false) => None,
                (_, true) => batch.take().map(|batch| Ok(join.put(self.source, batch))),
            }
        });
        let put = put.await?;
        self.shared.change(|_| ());
        Ok(put)
    }

    /// Ends the application that it sends to: what was sent is not all.
    pub(crate) fn fail(&self, fault: Fault) {
        self.shared.fail(fault);
    }
}

impl Drop for HostWriter {
    fn drop(&mut self) {
        self.shared.change(|state| state.joins[self.join].end(self.source));
    }
}
