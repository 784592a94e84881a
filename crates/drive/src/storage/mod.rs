//! What a drive stores: runs, their slices and metadata, loads and copies that write them, and the end of those that nothing names.

mod attached;
mod claims;
mod column_cache;
mod copying;
mod cut;
mod directories;
mod discards;
mod filters;
mod history_default;
mod keys;
mod leases;
mod loads;
mod marking;
mod merging;
mod orphans;
mod retired;
mod run_directory;
mod slice_rest;
mod slices;
mod sorting;
mod staging;

use std::sync::Arc;
use std::time::Duration;

use pithead_cse::{Manifests, Shutdown};
use pithead_door::{HistoryAsk, ToldVersion};
use pithead_model::{Directory, DriveId, Fault, Manifest, SliceKey};
use pithead_store::Store;

use crate::resources::Resources;
use directories::Directories;
use keys::check_name;
use orphans::Orphans;

pub(crate) use attached::Attached;
pub use attached::{Attach, AttachAt, Share};
pub(crate) use directories::{fit, gone};
pub(crate) use filters::{Filters, WantedFilter};
pub(crate) use history_default::history_default;
#[cfg(test)]
pub(crate) use keys::condemned_key;
pub(crate) use keys::{FILTER_PREFIX, SLICE_PREFIX, StoredSlice, parse_slice_key, slice_key};
pub(crate) use leases::{Lease, Leases};
pub(crate) use marking::Marking;
pub(crate) use slices::SliceCache;

/// The storage of a drive.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) id: DriveId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) manifests: Manifests,
    pub(crate) directories: Arc<Directories>,
    pub(crate) slices: Arc<SliceCache>,
    pub(crate) leases: Arc<Leases>,
    /// Files that are read in place; none where nothing is attached.
    pub(crate) attached: Option<Arc<Attached>>,
    resources: Arc<Resources>,
    shutdown: Shutdown,
    /// Runs that no manifest names.
    orphans: parking_lot::Mutex<Orphans>,
}

impl Storage {
    /// Over a store that is open. Open readers of slices may hold `reader_bytes`; `history` is how long versions of manifests are kept
    /// whose domain does not say it.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        id: DriveId,
        resources: Arc<Resources>,
        shutdown: Shutdown,
        reader_bytes: u64,
        attached: Option<Arc<Attached>>,
        history: Duration,
    ) -> Storage {
        let workers = &resources.workers;
        let directories = Arc::new(Directories::new(Arc::clone(&store), workers.clone(), attached.clone()));
        let device = Arc::clone(&resources.device);
        let slices = SliceCache::new(Arc::clone(&store), device, workers.clone(), Arc::clone(&directories), reader_bytes);
        Storage {
            id,
            manifests: Manifests::new(Arc::clone(&store), id).with_history(history),
            store,
            directories,
            slices: Arc::new(slices),
            leases: Arc::default(),
            attached,
            resources,
            shutdown,
            orphans: parking_lot::Mutex::default(),
        }
    }

    pub(crate) async fn read_manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        let manifests = self.manifests.clone();
        self.resources.workers.blocking(move || manifests.read(&domain)).await?
    }

    pub(crate) async fn has_manifest(&self, domain: String, version: u64) -> Result<bool, Fault> {
        if let Some(known) = self.manifests.version(&domain) {
            return Ok(known == version);
        }
        Ok(self.read_manifest(domain).await?.is_some_and(|manifest| manifest.version == version))
    }

    pub(crate) async fn write_manifest(&self, expected: u64, next: Manifest) -> Result<(), Fault> {
        self.shutdown.check()?;
        let manifests = self.manifests.clone();
        self.resources.workers.blocking(move || manifests.replace(expected, next)).await?
    }

    pub(crate) async fn keep_copy(&self, manifest: Manifest) -> Result<pithead_door::ManifestReceipt, Fault> {
        self.shutdown.check()?;
        let manifests = self.manifests.clone();
        self.resources.workers.blocking(move || manifests.keep(manifest)).await?
    }

    /// The first manifest after a version that is set aside here.
    pub(crate) async fn read_aside(&self, domain: String, after: u64) -> Result<Option<Manifest>, Fault> {
        let manifests = self.manifests.clone();
        self.resources.workers.blocking(move || manifests.next_aside(&domain, after)).await?
    }

    pub(crate) async fn read_history(&self, ask: HistoryAsk) -> Result<Vec<ToldVersion>, Fault> {
        let manifests = self.manifests.clone();
        self.resources.workers.blocking(move || manifests.history(&ask)).await?
    }

    pub(crate) async fn read_past(&self, domain: String, version: u64) -> Result<Option<Manifest>, Fault> {
        let manifests = self.manifests.clone();
        self.resources.workers.blocking(move || manifests.past(&domain, version)).await?
    }

    /// Drops a manifest that is set aside. What nothing else names is collected like what a killed load left.
    pub(crate) async fn drop_aside(&self, domain: String, version: u64) -> Result<bool, Fault> {
        self.shutdown.check()?;
        let manifests = self.manifests.clone();
        self.resources.workers.blocking(move || manifests.drop_aside(&domain, version)).await?
    }

    pub(crate) async fn read_directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        check_name(&key.name)?;
        if let Some(directory) = self.attached.as_ref().and_then(|attached| attached.metadata(&key)) {
            return Ok(directory);
        }
        self.directories.read(&SliceKey { number: None, ..key }).await
    }
}
