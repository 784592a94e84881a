//! [`Host`]: the drives that a client's statements run on, and what they hold.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::join_all;
use pithead_model::{Blame, Dataset, DatasetName, DriveId, Fault, PROTOCOL_VERSION};
use pithead_wire::{Door, DriveStatus, Hello, Welcome, check_hello};

use crate::catalog::{Catalog, Snapshot};
use crate::commit::{Appends, collect_orphans, drop_dataset};
use crate::fault::{at_drive, first_of, invalid};

/// How a host runs.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOptions {
    /// Threads of the host's own operators and of loads.
    pub threads: usize,
    /// Memory of the host's own operators, bytes.
    pub memory: u64,
    /// The domain that bare names belong to.
    pub domain: String,
}

impl Default for HostOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        Self { threads, memory: 2 << 30, domain: DatasetName::DEFAULT_DOMAIN.to_owned() }
    }
}

/// A drive that answered.
#[derive(Clone, Debug)]
pub struct ConnectedDrive {
    /// The way to it.
    pub door: Arc<dyn Door>,
    /// What it said at first contact, its identity among it.
    pub welcome: Welcome,
}

impl ConnectedDrive {
    /// Its identity.
    pub fn id(&self) -> DriveId {
        self.welcome.drive
    }

    /// How a person knows it.
    pub fn label(&self) -> &str {
        self.door.label()
    }
}

/// The drives, sorted by identity so that all hosts see them in one order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drives(Vec<ConnectedDrive>);

impl Drives {
    pub(crate) fn all(&self) -> &[ConnectedDrive] {
        &self.0
    }

    pub(crate) fn ids(&self) -> Vec<DriveId> {
        self.0.iter().map(ConnectedDrive::id).collect()
    }

    pub(crate) fn find(&self, id: DriveId) -> Option<&ConnectedDrive> {
        self.0.binary_search_by_key(&id, ConnectedDrive::id).ok().map(|index| &self.0[index])
    }

    /// The drive, or a fault that names it as not connected.
    pub(crate) fn get(&self, id: DriveId) -> Result<&ConnectedDrive, Fault> {
        self.find(id).ok_or_else(|| {
            Fault::new(Blame::Device, format!("drive {id} is not connected")).hint("connect to all drives of the domain")
        })
    }
}

/// A host: plans statements, sends work to its drives, finishes what comes back. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    drives: Drives,
    options: HostOptions,
    catalog: Catalog,
    appends: Appends,
}

impl Host {
    /// Says hello to all drives at once, checks that they fit, and finds the domains that they keep. A drive that does
    /// not answer, speaks another protocol, lacks a function of ours or was named twice is an error.
    pub async fn connect(doors: Vec<Arc<dyn Door>>, options: HostOptions) -> Result<Host, Fault> {
        if doors.is_empty() {
            return Err(invalid("expected at least one drive"));
        }
        let answers = join_all(doors.iter().map(|door| greet(door.as_ref()))).await;
        let mut drives = Vec::with_capacity(doors.len());
        let mut faults = Vec::new();
        for (door, answer) in doors.into_iter().zip(answers) {
            match answer {
                Ok(welcome) => drives.push(ConnectedDrive { door, welcome }),
                Err(fault) => faults.push((door.label().to_owned(), fault)),
            }
        }
        if let Some(fault) = first_of(faults) {
            return Err(fault);
        }
        let drives = in_order(drives)?;
        let catalog = Catalog::discover(&drives, &options.domain).await?;
        Ok(Host { inner: Arc::new(Inner { drives, options, catalog, appends: Appends::default() }) })
    }

    /// How it runs.
    pub fn options(&self) -> &HostOptions {
        &self.inner.options
    }

    /// The connected drives, sorted by identity.
    pub fn drives(&self) -> &[ConnectedDrive] {
        self.inner.drives.all()
    }

    /// The drive of this identity; an error that names it where it is not connected.
    pub fn drive(&self, id: DriveId) -> Result<&ConnectedDrive, Fault> {
        self.inner.drives.get(id)
    }

    /// What all domains hold now, read from their home drives.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Fault> {
        self.inner.catalog.snapshot(&self.inner.drives).await
    }

    /// The datasets of all domains whose home answers, sorted by name.
    pub async fn datasets(&self) -> Result<Vec<(DatasetName, Dataset)>, Fault> {
        let snapshot = self.snapshot().await?;
        Ok(snapshot.tables().map(|table| (table.name().clone(), table.dataset().as_ref().clone())).collect())
    }

    /// Removes a dataset from its domain, then deletes its slices. A drive that is not there keeps them as garbage.
    pub async fn drop_dataset(&self, name: &DatasetName) -> Result<(), Fault> {
        drop_dataset(&self.inner.catalog, &self.inner.drives, name).await
    }

    /// Deletes what failed loads left of the datasets that there are, and returns the number of slices that went. Waits
    /// for this host's appends. Not to be called while another host appends, whose slices are not visible yet.
    pub async fn collect_orphans(&self) -> Result<u64, Fault> {
        collect_orphans(&self.inner.catalog, &self.inner.drives, &self.inner.appends).await
    }

    /// How each drive is, by label.
    pub async fn status(&self) -> Vec<(String, Result<DriveStatus, Fault>)> {
        let ask = |drive: &ConnectedDrive| {
            let (label, door) = (drive.label().to_owned(), Arc::clone(&drive.door));
            async move {
                let status = door.status().await.map_err(|fault| at_drive(fault, &label));
                (label, status)
            }
        };
        join_all(self.drives().iter().map(ask)).await
    }

    pub(crate) fn connected(&self) -> &Drives {
        &self.inner.drives
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    pub(crate) fn appends(&self) -> &Appends {
        &self.inner.appends
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("drives", &self.inner.drives).field("options", &self.inner.options).finish_non_exhaustive()
    }
}

async fn greet(door: &dyn Door) -> Result<Welcome, Fault> {
    let ours: Vec<String> = pithead_functions::EXTENSIONS.iter().map(|name| (*name).to_owned()).collect();
    let hello = Hello { protocol: PROTOCOL_VERSION, release: env!("CARGO_PKG_VERSION").to_owned(), extensions: ours };
    let welcome = door.hello(hello.clone()).await?;
    check_hello(&hello, &welcome)?;
    let lacking: Vec<&str> =
        hello.extensions.iter().filter(|name| !welcome.extensions.contains(name)).map(String::as_str).collect();
    if !lacking.is_empty() {
        let message = format!("release {} of the drive lacks the functions {}", welcome.release, lacking.join(", "));
        return Err(Fault::new(Blame::Unsupported, message).hint(format!("run release {} on all drives", hello.release)));
    }
    Ok(welcome)
}

/// Sorts the drives, and refuses one that is there twice.
fn in_order(drives: Vec<ConnectedDrive>) -> Result<Drives, Fault> {
    let mut by_id: BTreeMap<DriveId, ConnectedDrive> = BTreeMap::new();
    for drive in drives {
        if let Some(other) = by_id.get(&drive.id()) {
            return Err(invalid(format!("{} and {} are the same drive {}", other.label(), drive.label(), drive.id())));
        }
        by_id.insert(drive.id(), drive);
    }
    Ok(Drives(by_id.into_values().collect()))
}
