//! [`DriveServices`]: what SSDlets reach of a drive, within what their caller may read.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use pithead_door::Reads;
use pithead_model::{DatasetName, Fault};
use pithead_program::{Dataset, File, Level, LogLine, ServiceError, Services};

use super::datasets::StoredDataset;
use super::faults::service_error;
use crate::resources::Resources;
use crate::storage::Storage;

/// Key-values that guests may read: those of Kinetic clients. A file is one of them, by its key.
pub const FILE_PREFIX: &str = "kinetic/key/";

/// The services of one application.
#[derive(Debug)]
pub(super) struct DriveServices {
    storage: Arc<Storage>,
    resources: Arc<Resources>,
    reads: Arc<dyn Reads>,
}

impl DriveServices {
    pub(super) fn new(storage: Arc<Storage>, resources: Arc<Resources>, reads: Arc<dyn Reads>) -> Self {
        Self { storage, resources, reads }
    }

    async fn read(&self, key: &[u8]) -> Result<Option<Bytes>, ServiceError> {
        if !self.reads.key(key) {
            let key = key.escape_ascii();
            return Err(ServiceError::Denied(format!("the application's caller may not read the key-value {key}")));
        }
        let (store, key) = (Arc::clone(&self.storage.store), [FILE_PREFIX.as_bytes(), key].concat());
        let read = move || Ok::<_, Fault>(store.get(&key)?.map(|(value, _)| value));
        let value = self.resources.workers.blocking(read).await.flatten().map_err(service_error)?;
        if let Some(wait) = value.as_ref().and_then(|value| self.resources.device.read(value.len() as u64)) {
            wait.await;
        }
        Ok(value)
    }
}

impl Services for DriveServices {
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn File>, ServiceError>> {
        async move {
            let value = self.read(name.as_bytes()).await?;
            let missing =
                || ServiceError::NotFound(format!("there is no file {name:?}: files are the key-values of Kinetic clients"));
            Ok(Arc::new(ValueFile(value.ok_or_else(missing)?)) as Arc<dyn File>)
        }
        .boxed()
    }

    fn value<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>, ServiceError>> {
        self.read(key).boxed()
    }

    fn dataset<'a>(&'a self, name: &'a str, columns: &'a [&'a str]) -> BoxFuture<'a, Result<Box<dyn Dataset>, ServiceError>> {
        async move {
            let name: DatasetName = name.parse().map_err(service_error)?;
            if !self.reads.domain(&name.domain) {
                let domain = &name.domain;
                return Err(ServiceError::Denied(format!("the application's caller may not read the domain {domain:?}")));
            }
            let opened = StoredDataset::open(&self.storage, &self.resources, name, columns).await;
            Ok(Box::new(opened.map_err(service_error)?) as Box<dyn Dataset>)
        }
        .boxed()
    }

    fn log(&self, line: LogLine<'_>) {
        let LogLine { application, module, ssdlet, level, text } = line;
        match level {
            Level::Debug => tracing::debug!(application, module, ssdlet, "{text}"),
            Level::Info => tracing::info!(application, module, ssdlet, "{text}"),
            Level::Warning => tracing::warn!(application, module, ssdlet, "{text}"),
            Level::Error => tracing::error!(application, module, ssdlet, "{text}"),
        }
    }
}

/// A value that was read whole.
struct ValueFile(Bytes);

impl File for ValueFile {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read<'a>(&'a self, offset: u64, into: &'a mut [u8]) -> BoxFuture<'a, Result<usize, ServiceError>> {
        let start = usize::try_from(offset).map_or(self.0.len(), |offset| offset.min(self.0.len()));
        let bytes = &self.0[start..self.0.len().min(start.saturating_add(into.len()))];
        into[..bytes.len()].copy_from_slice(bytes);
        std::future::ready(Ok(bytes.len())).boxed()
    }

    /// All of it is in memory.
    fn ahead(&self, _: u64, _: u64) {}

    fn held_bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_with_the_value() {
        let file = ValueFile(Bytes::from_static(b"0123456789"));
        let read = |offset, bytes| {
            let mut into = vec![0; bytes];
            let length = file.read(offset, &mut into).now_or_never().unwrap().unwrap();
            into.truncate(length);
            into
        };
        assert_eq!((read(0, 4), read(8, 4)), (b"0123".to_vec(), b"89".to_vec()));
        assert!(read(10, 4).is_empty() && read(u64::MAX, 4).is_empty());
    }
}
