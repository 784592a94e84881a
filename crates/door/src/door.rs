//! [`Door`]: sessions, loads and metadata of one CSE, as its host sees them.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use pithead_model::{Blame, Directory, DriveId, Fault, HostState, Loaded, Manifest, SessionId, SessionProfile, SliceKey};

use crate::attached::Attachments;
use crate::background::{BackgroundOrder, BackgroundStatus};
use crate::event::{Events, LinkGauge};
use crate::function::{FunctionAsk, FunctionModule};
use crate::greeting::{Hello, Welcome};
use crate::history::{HistoryAsk, ToldVersion};
use crate::load::{Claim, Discard, LoadRequest, ManifestReceipt, MarkRun, Marked, MergeRuns};
use crate::open::{OpenRequest, Opened};
use crate::pieces::Pieces;
use crate::program::{ApplicationRun, LoadModule, PortInputs, Reads, RunApplication, StoredModule};
use crate::status::{DriveStatus, OpenSession};

/// Batches on their way in.
pub type Batches = BoxStream<'static, Result<RecordBatch, Fault>>;

/// All that a host sees of a CSE below.
///
/// Every call either does what it says or changes nothing. Faults carry who is to blame; a link or drive that fails is
/// [`pithead_model::Blame::Device`].
#[async_trait]
pub trait Door: Send + Sync + Debug {
    /// How a person knows the drive: its address or directory.
    fn label(&self) -> &str;

    /// Whether the drive runs in this very process, so that batches pass by pointer and no link is between.
    fn is_in_process(&self) -> bool {
        false
    }

    /// First contact. Either end refuses a protocol that is not its own. Whichever drive is behind the door answers, also where
    /// [`Door::only_to`] made the door.
    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault>;

    /// A door to the same place whose calls only this drive answers: another one that stands there instead, by now or later,
    /// refuses them with [`pithead_model::Blame::Device`] and changes nothing. None: the drive behind this door stays the same.
    fn only_to(&self, _drive: DriveId) -> Option<Arc<dyn Door>> {
        None
    }

    /// OPEN: binds a sub-plan to slices, grants threads and reserves memory, or answers busy.
    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault>;

    /// OPEN and, over a link, GET with it, so that one round trip passes before the first row. With the events of a session that
    /// was granted, nobody has to close it: it is closed before the last of them comes, and when they are dropped. Without
    /// them, GET and CLOSE are calls of their own, as in one process, where they cost nothing.
    async fn open_and_get(&self, request: OpenRequest) -> Result<(Opened, Option<Events>), Fault> {
        Ok((self.open(request).await?, None))
    }

    /// GET: runs the rounds as they are pulled, to the end. Asked once a session; dropping the stream stops the work.
    async fn get(&self, session: SessionId) -> Result<Events, Fault>;

    /// GET for a host at the other end of a link.
    async fn get_over(&self, session: SessionId, _link: Arc<dyn LinkGauge>) -> Result<Events, Fault> {
        self.get(session).await
    }

    /// How the host is by now, for a session whose rounds follow it. A session that is gone is no error.
    async fn tell(&self, session: SessionId, state: HostState) -> Result<(), Fault>;

    /// Where a session stands.
    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault>;

    /// CLOSE: ends the session, frees everything. Closing a session that is gone is no error.
    async fn close(&self, session: SessionId) -> Result<(), Fault>;

    /// Writes and flushes slices under a load id. Returns what the manifest has to name. A load that fails leaves nothing.
    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault>;

    /// Writes and flushes the rows of several runs as one more run, as a load would that was sent them in this order. Fails with
    /// [`pithead_model::Blame::Conflict`] if one of the runs is not here, and [`pithead_model::Blame::Unsupported`] from a CSE that
    /// merges none; either leaves nothing.
    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault>;

    /// Writes and flushes what is left of a run, without those of its rows that a sub-plan names, from what is stored of it. The
    /// same rows go wherever the sub-plan runs. Faults as those of [`Door::merge_runs`]; either leaves nothing.
    async fn mark_run(&self, _request: MarkRun) -> Result<Marked, Fault> {
        Err(Fault::new(Blame::Unsupported, format!("{} marks no rows", self.label())))
    }

    /// Deletes what loads left of a dataset's incarnation. Slices that open sessions lease go when the last one closes.
    /// Returns the number of slices that went at once.
    async fn discard(&self, discard: Discard) -> Result<u64, Fault>;

    /// Protects runs from being deleted by whoever saw no later manifest than [`Claim::version`], durably. To be done before each
    /// attempt to commit a manifest that names them here for the first time. Returns those that are not here.
    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault>;

    /// Reads a run as it is stored: its metadata slice, then its slices in order. Every value's checksum is verified.
    /// [`pithead_model::Blame::Conflict`] if the run is not here.
    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault>;

    /// Stores a run that [`Door::read_run`] of another drive yields: all of it, flushed, or nothing. Each slice is opened and
    /// compared with the metadata slice first. A run that is here already is replaced by its equal; one that is not its equal is
    /// [`pithead_model::Blame::Conflict`].
    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault>;

    /// A domain's manifest as this drive has it, be it home or not; none: not kept here.
    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault>;

    /// Whether a domain's manifest has this version here. A host asks so before each statement, where it has read that version from
    /// this drive before.
    async fn has_manifest(&self, domain: String, version: u64) -> Result<bool, Fault> {
        Ok(self.manifest(domain).await?.is_some_and(|manifest| manifest.version == version))
    }

    /// The datasets that this CSE offers over files that it did not write, as the files are now; none: they are as of version `known`.
    /// What is told of a file holds until the file changes; then whoever asks for its old rows gets them, or
    /// [`pithead_model::Blame::Conflict`].
    async fn attached(&self, _known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        Ok(Some(Arc::default()))
    }

    /// Replaces a domain's manifest if its version here is still `expected` (0: there is none), durably. The new one has
    /// version `expected + 1` and names this drive as home. Otherwise [`pithead_model::Blame::Conflict`] and nothing has changed.
    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault>;

    /// Keeps a copy of a manifest whose home is another drive, durably, unless what is here is as new. Returns what was there
    /// and what is there now, so that a home learns that another drive has taken its place.
    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault>;

    /// The first manifest after version `after` that is set aside here: what this drive had changed as a domain's home when another
    /// one took its place without knowing of it. Its runs stay as long as it is there.
    async fn set_aside(&self, _domain: String, _after: u64) -> Result<Option<Manifest>, Fault> {
        Ok(None)
    }

    /// Drops a manifest that is set aside, durably. Whether it was there.
    async fn drop_aside(&self, _domain: String, _version: u64) -> Result<bool, Fault> {
        Ok(false)
    }

    /// Versions of a domain that this drive keeps, the one that there is among them. None: it keeps no manifest of it.
    async fn history(&self, _ask: HistoryAsk) -> Result<Vec<ToldVersion>, Fault> {
        Ok(vec![])
    }

    /// The manifest of a version, be it the one that there is or one that is kept; none: it is not here. A damaged one is
    /// [`Blame::Corrupt`].
    async fn past_manifest(&self, _domain: String, _version: u64) -> Result<Option<Manifest>, Fault> {
        Ok(None)
    }

    /// Forgets all versions of a domain but the one that there is, and deletes what they alone name. Returns how many there were.
    async fn forget_history(&self, _domain: String) -> Result<u64, Fault> {
        Ok(0)
    }

    /// The metadata slice of one load of a partition (`number` none).
    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault>;

    /// How the drive is.
    async fn status(&self) -> Result<DriveStatus, Fault>;

    /// The sessions that are open, as far as the caller may see them: the longest open first.
    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault>;

    /// Ends somebody's session, who is told so. Whether it was there.
    async fn kill(&self, session: SessionId) -> Result<bool, Fault>;

    /// Tells the drive's background work something, and how it is then. A service that is not there is [`Blame::User`].
    async fn background(&self, _order: BackgroundOrder) -> Result<BackgroundStatus, Fault> {
        let fault = Fault::new(Blame::Unsupported, format!("{} has no background services", self.label()));
        Err(fault.hint("connect to drives that `pithead drive serve` runs: they have some"))
    }

    /// Checks, compiles and keeps a module, durably: all of it or nothing. A name that another module has is
    /// [`Blame::Conflict`], unless the request says that it may be replaced. Applications that run keep what they have.
    async fn load_module(&self, _request: LoadModule) -> Result<StoredModule, Fault> {
        Err(no_programs(self.label()))
    }

    /// The modules that the caller may run, by name.
    async fn modules(&self) -> Result<Vec<StoredModule>, Fault> {
        Err(no_programs(self.label()))
    }

    /// Deletes a module. Whether it was there. Applications that run keep it.
    async fn remove_module(&self, _name: String) -> Result<bool, Fault> {
        Err(no_programs(self.label()))
    }

    /// Keeps the module of functions of a domain, durably, and returns the SHA-256 of its bytes, by which it is found. Some time
    /// after the last manifest has stopped naming it, it goes.
    async fn keep_function(&self, _module: FunctionModule) -> Result<String, Fault> {
        Err(no_functions(self.label()))
    }

    /// The module of functions, if it is kept.
    async fn function(&self, _ask: FunctionAsk) -> Result<Option<Bytes>, Fault> {
        Err(no_functions(self.label()))
    }

    /// Runs SSDlets of modules that are kept. `reads` says what they may read; a drive on the network decides that itself, by
    /// who calls.
    async fn run_application(
        &self,
        _request: RunApplication,
        _inputs: PortInputs,
        _reads: Arc<dyn Reads>,
    ) -> Result<ApplicationRun, Fault> {
        Err(no_programs(self.label()))
    }
}

/// The fault of a CSE that runs no functions of users.
fn no_functions(label: &str) -> Fault {
    Fault::new(Blame::Unsupported, format!("{label} keeps no functions of users"))
}

/// The fault of a CSE that runs no SSDlets.
fn no_programs(label: &str) -> Fault {
    Fault::new(Blame::Unsupported, format!("{label} keeps no modules and runs no SSDlets"))
        .hint("name the drives themselves: an array passes on queries, and no applications")
}
