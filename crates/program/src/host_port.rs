//! [`HostReader`] and [`HostWriter`]: ports between an SSDlet and its host program.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::budget::{Budget, NoRoom};
use crate::channel::{Channel, Got, Reader, Side, Writer};
use crate::graph::Graph;
use crate::row::encode_row;
use crate::{ProgramError, Signature, Value};

/// Takes what an SSDlet puts out.
pub struct HostReader {
    reader: Reader,
    graph: Arc<Mutex<Graph>>,
}

impl HostReader {
    pub(crate) fn new(channel: Arc<Channel>, graph: Arc<Mutex<Graph>>) -> Self {
        Self { reader: Reader::new(channel), graph }
    }

    /// What goes through the port.
    pub fn signature(&self) -> &Signature {
        &self.reader.channel().signature
    }

    /// What waits to be read.
    pub fn queue(&self) -> HostQueue {
        HostQueue(Arc::clone(self.reader.channel()))
    }

    /// The next batch as bytes, None when all writers have ended. Fails if the application did, also where this stream came to its
    /// end before: what an application puts out that fails is not all.
    pub async fn get(&self) -> Result<Option<Vec<u8>>, ProgramError> {
        match self.reader.channel().get().await {
            Got::Batch(batch) => Ok(Some(batch)),
            Got::Cut(why) => Err(failure(&self.graph, &why)),
            _ => self.graph.lock().failure.clone().map_or(Ok(None), Err),
        }
    }
}

/// A connection between SSDlets and their host program, to be looked at.
#[derive(Clone, Debug)]
pub struct HostQueue(Arc<Channel>);

impl HostQueue {
    /// Whether nothing waits in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Sends to the inputs of SSDlets. Dropping it ends its part of the stream.
pub struct HostWriter {
    writer: Option<Writer>,
    channel: Arc<Channel>,
    graph: Arc<Mutex<Graph>>,
    budget: Arc<Budget>,
}

impl HostWriter {
    pub(crate) fn new(channel: Arc<Channel>, graph: Arc<Mutex<Graph>>, budget: Arc<Budget>) -> Self {
        Self { writer: Some(Writer::new(Arc::clone(&channel))), channel, graph, budget }
    }

    /// What goes through the port.
    pub fn signature(&self) -> &Signature {
        &self.channel.signature
    }

    /// What waits to be taken by SSDlets.
    pub fn queue(&self) -> HostQueue {
        HostQueue(Arc::clone(&self.channel))
    }

    /// Sends a batch, and waits while the connection is full. False if nobody reads it any more. Fails if the bytes are no batch of
    /// the port's type, if the application may not hold so many once there is room, or if it failed.
    pub async fn put(&self, batch: Vec<u8>) -> Result<bool, ProgramError> {
        let signature = &self.channel.signature;
        let wrong = |what| ProgramError::usage(format!("the host program put what is no batch of {signature}: {what}"));
        self.channel.check(&batch).map_err(wrong)?;
        if self.channel.put(batch, &self.budget).await.map_err(busy)? {
            return Ok(true);
        }
        self.graph.lock().failure.clone().map_or(Ok(false), Err)
    }

    /// Waits until a batch of so many bytes has room, or nobody reads any more.
    pub async fn room(&self, bytes: usize) {
        self.channel.ready(Side::Write { bytes }).await;
    }

    /// Sends one row.
    pub async fn put_row(&self, row: &[Value]) -> Result<bool, ProgramError> {
        let types: Vec<_> = row.iter().map(Value::of).collect();
        let of = Signature::Rows(types);
        if of != self.channel.signature {
            return Err(ProgramError::usage(format!("the port takes rows of {}, not of {of}", self.channel.signature)));
        }
        let mut batch = Vec::new();
        encode_row(row, &mut batch);
        self.put(batch).await
    }
}

impl Drop for HostWriter {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.finish();
        }
    }
}

/// There is no memory for what the host asks for, now.
pub(crate) fn busy(none: NoRoom) -> ProgramError {
    ProgramError::Busy(none.to_string())
}

/// Why a stream was cut: the application's own failure, or what its writer left behind.
fn failure(graph: &Mutex<Graph>, why: &str) -> ProgramError {
    graph.lock().failure.clone().unwrap_or_else(|| ProgramError::usage(why))
}
