//! [`DriveServices`]: what SSDlets reach of a drive, within what their caller may read.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use pithead_door::Reads;
use pithead_model::DatasetName;
use pithead_program::{Dataset, File, Level, LogLine, ServiceError, Services};

use super::datasets::StoredDataset;
use super::faults::service_error;
use super::files::{StoredFile, Values, check_right};
use crate::resources::Resources;
use crate::storage::Storage;

/// The services of one application.
#[derive(Debug)]
pub(super) struct DriveServices {
    values: Values,
    reads: Arc<dyn Reads>,
}

impl DriveServices {
    pub(super) fn new(storage: Arc<Storage>, resources: Arc<Resources>, reads: Arc<dyn Reads>) -> Self {
        Self { values: Values { storage, resources }, reads }
    }
}

impl Services for DriveServices {
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn File>, ServiceError>> {
        async move {
            let file = StoredFile::open(self.values.clone(), &*self.reads, name).await?.ok_or_else(|| {
                ServiceError::NotFound(format!(
                    "there is no file {name:?}: files are the key-values of Kinetic clients, {name:?}, or \"{name}/0\" and those \
                     that follow it"
                ))
            })?;
            Ok(Arc::new(file) as Arc<dyn File>)
        }
        .boxed()
    }

    fn value<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>, ServiceError>> {
        async move {
            check_right(&*self.reads, key)?;
            Ok(self.values.get(key).await?.map(|(value, _)| value))
        }
        .boxed()
    }

    fn dataset<'a>(&'a self, name: &'a str, columns: &'a [&'a str]) -> BoxFuture<'a, Result<Box<dyn Dataset>, ServiceError>> {
        async move {
            let name: DatasetName = name.parse().map_err(service_error)?;
            if !self.reads.domain(&name.domain) {
                let domain = &name.domain;
                return Err(ServiceError::Denied(format!("the application's caller may not read the domain {domain:?}")));
            }
            let Values { storage, resources } = &self.values;
            let opened = StoredDataset::open(storage, resources, name, columns).await;
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
