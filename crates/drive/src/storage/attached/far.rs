//! [`Far`]: what a drive needs to read of servers: a client, a cache, and places for calls that wait for them. [`FarReader`]: a
//! slice at a server, read so that no reactor waits.

use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use futures::stream::{self, BoxStream};
use pithead_files::{RemoteObject, Servers};
use pithead_model::{Blame, Fault, PageSet};
use pithead_slice::{Predicate, ReadAt, Scan, ScanRequest, Search, SliceError, SliceParts, SliceReader};
use tokio::sync::Semaphore;

use crate::resources::Workers;
use crate::storage::attached::cache::BlockCache;
use crate::storage::attached::last_listings::LastListings;
use crate::storage::attached::object::ObjectBytes;

/// Calls for each reactor that wait for servers at one time: half of the threads for calls that block. The other half is there for
/// the store, however long a server does not answer.
const CALLS_PER_REACTOR: usize = 2;

/// The way to files at servers.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) servers: Servers,
    pub(crate) cache: Arc<BlockCache<Arc<RemoteObject>>>,
    /// The datasets that each place had when it was listed last.
    pub(crate) known: LastListings,
    workers: Workers,
    places: Arc<Semaphore>,
}

impl Far {
    /// With credentials and settings of the environment, and with a cache in the temporary files of a drive's directory. Blocks.
    pub(crate) fn open(directory: &Path, cache_bytes: u64, workers: Workers) -> Result<Far, Fault> {
        let cache = Arc::new(BlockCache::open(&directory.join("tmp"), cache_bytes)?);
        let places = Arc::new(Semaphore::new(workers.threads().max(1) * CALLS_PER_REACTOR));
        Ok(Far { servers: Servers::from_env(), cache, known: LastListings::open(directory), workers, places })
    }

    /// The bytes of an object.
    pub(crate) fn source(&self, object: &Arc<RemoteObject>) -> Arc<dyn ReadAt> {
        Arc::new(ObjectBytes::new(Arc::clone(object), self.servers.clone(), Arc::clone(&self.cache)))
    }

    /// Runs a call that may wait for servers. Its place is taken until it ends, also where nobody waits for it any longer.
    pub(crate) async fn blocking<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| Fault::new(Blame::Device, "the drive has stopped"))?;
        let in_its_place = move || {
            let _place = place;
            call()
        };
        self.workers.blocking(in_its_place).await
    }

    /// The same items, each of which is had by a call that may wait. Nothing is had before somebody asks for it.
    fn stepped<T: Send + 'static>(
        self: Arc<Self>,
        items: BoxStream<'static, Result<T, SliceError>>,
    ) -> BoxStream<'static, Result<T, SliceError>> {
        let step = |(far, items): (Arc<Far>, Option<BoxStream<'static, Result<T, SliceError>>>)| async move {
            let mut items = items?;
            let next = far.blocking(move || block_on(items.next()).map(|item| (item, items))).await;
            match next {
                Ok(next) => next.map(|(item, items)| (item, (far, Some(items)))),
                Err(fault) => Some((Err(SliceError::Medium(fault.message)), (far, None))),
            }
        };
        stream::unfold((self, Some(items)), step).boxed()
    }
}

/// A slice whose bytes are at a server.
#[derive(Debug)]
pub(crate) struct FarReader {
    slice: Arc<dyn SliceReader>,
    far: Arc<Far>,
}

impl FarReader {
    pub(crate) fn new(slice: Arc<dyn SliceReader>, far: Arc<Far>) -> FarReader {
        FarReader { slice, far }
    }
}

impl SliceReader for FarReader {
    fn rows(&self) -> u64 {
        self.slice.rows()
    }

    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError> {
        let Scan { stream, applied } = self.slice.scan(request)?;
        Ok(Scan { stream: Arc::clone(&self.far).stepped(stream), applied })
    }

    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError> {
        self.slice.may_match(predicates)
    }

    fn rows_of(&self, pages: &PageSet) -> u64 {
        self.slice.rows_of(pages)
    }

    fn search(&self, request: ScanRequest) -> Result<Search, SliceError> {
        let Search { windows, stream, applied } = self.slice.search(request)?;
        Ok(Search { windows, stream: Arc::clone(&self.far).stepped(stream), applied })
    }

    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError> {
        self.slice.parts(columns, pages)
    }

    fn is_far(&self) -> bool {
        true
    }
}
