//! A drive in memory that keeps loads and manifests, fails when told to, and runs nothing but bare scans.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::Int64Type;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use pithead_door::{
    Attachments, BackgroundOrder, BackgroundStatus, Batches, Claim, Discard, DomainAt, Door, DriveStatus, Event, Events,
    Granted, Hello, LoadRequest, Loads, ManifestReceipt, MarkRun, Marked, MergeRuns, OpenRequest, OpenSession, Opened,
    PartitionUse, Pieces, RunPiece, ServiceStatus, Welcome,
};
use pithead_model::{
    Annotation, Blame, ByLevel, ColumnSummary, DatasetId, DatasetName, Directory, DriveId, Fault, HostState, Level, LoadId,
    Loaded, Manifest, PROTOCOL_VERSION, Reply, Run, SessionId, SessionProfile, SessionState, SliceKey, SliceSpan,
};

/// What one load put into one partition.
pub type Stored = BTreeMap<(DatasetId, LoadId, u32), Vec<RecordBatch>>;

#[derive(Debug)]
pub struct FakeDoor {
    pub label: String,
    pub id: DriveId,
    pub protocol: AtomicU32,
    pub stored: Mutex<Stored>,
    /// Up to which version runs are claimed.
    pub claims: Mutex<HashMap<(DatasetId, LoadId, u32), u64>>,
    names: Mutex<BTreeMap<DatasetId, DatasetName>>,
    sessions: Mutex<HashMap<SessionId, OpenRequest>>,
    /// Slices that sessions answered for.
    pub slices_read: AtomicU32,
    /// Slices after which streams break off; of GET, of reading runs.
    pub breaks_after: AtomicU32,
    /// OPENs that are answered with busy.
    pub busy: AtomicU32,
    /// Runs are damaged.
    pub is_damaged: AtomicBool,
    pub manifests: Mutex<HashMap<String, Manifest>>,
    /// What it has changed as a home whose place another drive took. Only then it tells of directories.
    pub aside: Mutex<Option<Manifest>>,
    /// What it attaches in place; none: it attaches nothing, and says so at first contact.
    pub attached: Mutex<Option<Arc<Attachments>>>,
    /// The drives beneath it that it names at first contact, as an array does.
    pub beneath: Mutex<Vec<DriveId>>,
    /// Loads fail after their first batch.
    pub loads_fail: AtomicBool,
    /// Whether runs are merged.
    pub merges: AtomicBool,
    /// Why runs are not merged after all.
    pub merge_fault: Mutex<Option<Fault>>,
    /// Whether it marks other rows than it is asked to.
    pub marks_others: AtomicBool,
    /// There is no room for runs and manifests.
    pub is_full: AtomicBool,
    /// Runs are copied to it, and marked, only once all others that it has were claimed.
    pub waits_for_claims: AtomicBool,
    /// Another host drops a run just when it is asked for.
    pub drops_when_read: AtomicBool,
    /// Deletions get no answer.
    pub discards_hang: AtomicBool,
    /// Nothing answers.
    pub is_down: AtomicBool,
    /// The drive that stands in its place by now: only that one answers.
    pub replaced_by: Mutex<Option<Arc<FakeDoor>>>,
    /// What its scrub has found damaged.
    pub damaged: Mutex<Vec<String>>,
    /// Times that a run was asked for.
    pub runs_read: AtomicU32,
    /// Commits that another host gets ahead of.
    pub conflicts: AtomicU32,
    /// Commits whose answer gets lost, with and without the change having been made.
    pub answers_lost: AtomicU32,
    pub commits_lost: AtomicU32,
}

impl FakeDoor {
    pub fn new(id: u64) -> Arc<Self> {
        Self::at(&format!("fake-{id}"), id)
    }

    /// The same at a place that may be another one's, too.
    pub fn at(label: &str, id: u64) -> Arc<Self> {
        Arc::new(Self {
            label: label.to_owned(),
            id: DriveId(id),
            protocol: AtomicU32::new(PROTOCOL_VERSION),
            stored: Mutex::default(),
            claims: Mutex::default(),
            names: Mutex::default(),
            sessions: Mutex::default(),
            slices_read: AtomicU32::new(0),
            breaks_after: AtomicU32::new(u32::MAX),
            busy: AtomicU32::new(0),
            is_damaged: AtomicBool::new(false),
            manifests: Mutex::default(),
            aside: Mutex::default(),
            attached: Mutex::default(),
            beneath: Mutex::default(),
            loads_fail: AtomicBool::new(false),
            merges: AtomicBool::new(true),
            merge_fault: Mutex::default(),
            marks_others: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            waits_for_claims: AtomicBool::new(false),
            drops_when_read: AtomicBool::new(false),
            discards_hang: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
            replaced_by: Mutex::default(),
            damaged: Mutex::default(),
            runs_read: AtomicU32::new(0),
            conflicts: AtomicU32::new(0),
            answers_lost: AtomicU32::new(0),
            commits_lost: AtomicU32::new(0),
        })
    }

    /// Puts a run there, as a load would have.
    pub fn keep(&self, run: &SliceKey, rows: Vec<RecordBatch>) {
        self.names.lock().insert(run.dataset, run.name.clone());
        self.stored.lock().insert((run.dataset, run.load, run.partition), rows);
    }

    pub fn rows(&self) -> usize {
        self.stored.lock().values().flatten().map(RecordBatch::num_rows).sum()
    }

    fn check(&self) -> Result<(), Fault> {
        match self.is_down.load(Ordering::Relaxed) {
            true => Err(Fault::new(Blame::Device, "does not answer")),
            false if self.replaced_by.lock().is_some() => Err(Fault::new(Blame::Device, "another drive is here now")),
            false => Ok(()),
        }
    }

    fn check_room(&self) -> Result<(), Fault> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(Fault::new(Blame::Limit, "no space left")),
            false => Ok(()),
        }
    }

    async fn wait_for_claims(&self) {
        let is_claimed = |run: &(DatasetId, LoadId, u32)| self.claims.lock().contains_key(run);
        while self.waits_for_claims.load(Ordering::Relaxed) && !self.stored.lock().keys().all(is_claimed) {
            let mut has_waited = false;
            let wait = |context: &mut Context<'_>| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }
            };
            poll_fn(wait).await;
        }
    }

    fn drop_run(&self, run: &SliceKey) {
        self.stored.lock().remove(&(run.dataset, run.load, run.partition));
        if let Some(manifest) = self.manifests.lock().get_mut(&run.name.domain)
            && let Some(dataset) = manifest.datasets.get_mut(&run.name.dataset)
        {
            dataset.partitions[run.partition as usize].runs.retain(|there| there.load != run.load);
            manifest.version += 1;
        }
    }
}

fn take_one(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
}

fn not_here<T>() -> Result<T, Fault> {
    Err(Fault::new(Blame::Unsupported, "the fake drive runs nothing"))
}

impl FakeDoor {
    fn find(&self, run: &SliceKey) -> Result<Vec<RecordBatch>, Fault> {
        let stored = self.stored.lock().get(&(run.dataset, run.load, run.partition)).cloned();
        stored.ok_or_else(|| Fault::new(Blame::Conflict, format!("load {} of {} is not on this drive", run.load, run.name)))
    }

    /// A round a slice, whose rows are an even share of its run's.
    fn rounds(&self, request: &OpenRequest) -> Result<Vec<Event>, Fault> {
        let part = &request.parts[0];
        let mut events = Vec::new();
        let mut slice = 0;
        for (load, slices) in &part.runs {
            let key = SliceKey {
                name: part.name.clone(),
                dataset: part.dataset,
                load: *load,
                partition: part.partition,
                number: None,
            };
            let rows = concat_batches(&part.schema, &self.find(&key)?).unwrap();
            let columns: Vec<usize> =
                request.schema.fields().iter().map(|field| part.schema.index_of(field.name()).unwrap()).collect();
            let rows = rows.project(&columns).unwrap();
            for number in 0..*slices as usize {
                let cut = |at: usize| rows.num_rows() * at / *slices as usize;
                let batch = rows.slice(cut(number), cut(number + 1) - cut(number));
                let is_done = request.done.iter().any(|span| (span.first..span.first + span.count).contains(&slice));
                if !is_done {
                    let round = events.len() as u32 / 2;
                    let annotation = annotation(round, part.partition, slice, batch.num_rows() as u64);
                    events.push(Event::Rows { round, batch, link_bytes: 1 });
                    events.push(Event::Closed { annotation, link_bytes: 1 });
                }
                slice += 1;
            }
        }
        if slice == 0 {
            events.push(Event::Closed { annotation: Annotation { slices: vec![], ..annotation(0, 0, 0, 0) }, link_bytes: 1 });
        }
        Ok(events)
    }
}

fn annotation(round: u32, partition: u32, slice: u32, rows_out: u64) -> Annotation {
    Annotation {
        round,
        partition,
        slices: vec![SliceSpan { first: slice, count: 1 }],
        level: Level::Whole,
        slices_skipped: 0,
        pages_read: 1,
        pages_skipped: 0,
        pages_sent: 0,
        rows_in: rows_out,
        rows_out,
        medium_bytes: 0,
        batch_bytes: 0,
        cpu_ns: 0,
        scan: Default::default(),
        stored_bytes: 0,
        summarised: 0,
        wall_ns: 0,
        cause: None,
        queue_ms: None,
        retry_after_ms: None,
    }
}

fn broken_off<T>() -> Result<T, Fault> {
    Err(Fault::new(Blame::Device, "the link was cut"))
}

#[async_trait]
impl Door for FakeDoor {
    fn label(&self) -> &str {
        &self.label
    }

    async fn hello(&self, hello: Hello) -> Result<Welcome, Fault> {
        let other = self.replaced_by.lock().clone();
        if let Some(other) = other {
            return other.hello(hello).await;
        }
        self.check()?;
        Ok(Welcome {
            protocol: self.protocol.load(Ordering::Relaxed),
            release: "0.0.0".into(),
            drive: self.id,
            extensions: hello.extensions,
            encodings: vec!["vortex".into(), "arrow".into()],
            threads: 1,
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            merges: self.merges.load(Ordering::Relaxed),
            attaches: self.attached.lock().is_some(),
            beneath: self.beneath.lock().clone(),
        })
    }

    fn only_to(&self, drive: DriveId) -> Option<Arc<dyn Door>> {
        let other = self.replaced_by.lock().clone().filter(|other| other.id == drive)?;
        Some(other)
    }

    async fn background(&self, _order: BackgroundOrder) -> Result<BackgroundStatus, Fault> {
        self.check()?;
        let scrub = ServiceStatus { name: "scrub".into(), damaged: self.damaged.lock().clone(), ..ServiceStatus::default() };
        Ok(BackgroundStatus { services: vec![scrub], ..BackgroundStatus::default() })
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault> {
        self.check()?;
        if take_one(&self.busy) {
            return Ok(Opened { reply: Reply::Busy { why: "full".into(), retry_after_ms: 1 }, link_bytes: 1 });
        }
        self.rounds(&request)?;
        let mut sessions = self.sessions.lock();
        let session = SessionId(sessions.len() as u64 + 1);
        sessions.insert(session, request);
        Ok(Opened { reply: Reply::Granted(Granted { session, threads: 1, memory: 1 }), link_bytes: 1 })
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        self.check()?;
        let request = self.sessions.lock().get(&session).cloned().unwrap();
        let mut events: Vec<Result<Event, Fault>> = self.rounds(&request)?.into_iter().map(Ok).collect();
        let breaks_after = 2 * self.breaks_after.load(Ordering::Relaxed) as usize;
        if breaks_after < events.len() {
            // Rows of one more round come, which is never closed.
            events.truncate(breaks_after + 1);
            events.push(broken_off());
        } else {
            let profile = SessionProfile {
                state: SessionState::Finished,
                rounds: 0,
                slices_total: 0,
                slices_done: 0,
                memory_peak: 0,
                spilled_bytes: 0,
                other_rows_in: 0,
                other_medium_bytes: 0,
                predicted: None,
                link_bytes_per_s: None,
                settled: None,
                calls: vec![],
            };
            events.push(Ok(Event::Finished { profile, link_bytes: 1 }));
        }
        let closed = events.iter().filter(|event| matches!(event, Ok(Event::Closed { .. }))).count();
        self.slices_read.fetch_add(closed as u32, Ordering::Relaxed);
        Ok(stream::iter(events).boxed())
    }

    async fn poll(&self, _session: SessionId) -> Result<SessionProfile, Fault> {
        not_here()
    }

    async fn tell(&self, _session: SessionId, _state: HostState) -> Result<(), Fault> {
        Ok(())
    }

    async fn close(&self, _session: SessionId) -> Result<(), Fault> {
        Ok(())
    }

    async fn load(&self, request: LoadRequest, mut rows: Batches) -> Result<Loaded, Fault> {
        self.check()?;
        let mut batches = Vec::new();
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            assert_eq!(batch.schema(), request.schema);
            batches.push(batch);
            if self.loads_fail.load(Ordering::Relaxed) {
                return Err(Fault::new(Blame::Device, "no space left"));
            }
        }
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        self.names.lock().insert(request.dataset, request.name);
        self.stored.lock().insert((request.dataset, request.load, request.partition), batches);
        let columns = vec![ColumnSummary::default(); request.schema.fields().len()];
        let slices = rows.div_ceil(request.slice_rows) as u32;
        let run = Run { load: request.load, slices, rows: rows as u64, bytes: bytes as u64 };
        Ok(Loaded { run, columns })
    }

    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault> {
        self.check()?;
        let LoadRequest { name, dataset, partition, .. } = &request.into;
        let key = |load| SliceKey { name: name.clone(), dataset: *dataset, load, partition: *partition, number: None };
        let parts = request.loads.iter().map(|load| self.find(&key(*load))).collect::<Result<Vec<_>, _>>()?;
        let rows = stream::iter(parts.into_iter().flatten().map(Ok)).boxed();
        let loaded = self.load(request.into, rows).await?;
        // Written, but not whole.
        self.merge_fault.lock().clone().map_or(Ok(loaded), Err)
    }

    /// The plan is the numbers that go, of the first column, eight bytes each.
    async fn mark_run(&self, request: MarkRun) -> Result<Marked, Fault> {
        self.check()?;
        self.wait_for_claims().await;
        let MarkRun { into, load, plan, .. } = request;
        let run = SliceKey { name: into.name.clone(), dataset: into.dataset, load, partition: into.partition, number: None };
        let mut going: Vec<i64> = plan.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
        if self.marks_others.load(Ordering::Relaxed) {
            going.iter_mut().for_each(|number| *number += 1);
        }
        let stays = |batch: &RecordBatch| {
            let numbers = batch.column(0).as_primitive::<Int64Type>().values();
            let stays: BooleanArray = numbers.iter().map(|number| Some(!going.contains(number))).collect();
            filter_record_batch(batch, &stays).expect("as many bits as rows")
        };
        let before = self.find(&run)?;
        let after: Vec<RecordBatch> = before.iter().map(stays).collect();
        let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        let gone = (rows(&before) - rows(&after)) as u64;
        let numbers = |batches: &[RecordBatch]| -> i64 {
            batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).sum()
        };
        let going = Some((numbers(&before) - numbers(&after)) as u64);
        let left = match gone {
            0 => None,
            _ => Some(self.load(into, stream::iter(after.into_iter().map(Ok)).boxed()).await?),
        };
        Ok(Marked { gone, nulls_gone: vec![0], going, left })
    }

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        self.check()?;
        if self.discards_hang.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let mut stored = self.stored.lock();
        let before = stored.len();
        stored.retain(|(dataset, load, partition), _| {
            let meant = match &discard.loads {
                Loads::All => true,
                Loads::Only(loads) => loads.contains(load),
                Loads::AllBut(loads) => !loads.contains(load),
            };
            let claimed = self.claims.lock().get(&(*dataset, *load, *partition)).copied().unwrap_or(0);
            let is_fenced = discard.seen.is_some_and(|seen| claimed > seen);
            *dataset != discard.dataset || discard.partition.is_some_and(|only| only != *partition) || !meant || is_fenced
        });
        Ok((before - stored.len()) as u64)
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        self.check()?;
        let stored = self.stored.lock();
        let (here, missing): (Vec<SliceKey>, Vec<SliceKey>) =
            claim.runs.into_iter().partition(|run| stored.contains_key(&(run.dataset, run.load, run.partition)));
        for run in here {
            let until = claim.version + 1;
            let mut claims = self.claims.lock();
            let there = claims.entry((run.dataset, run.load, run.partition)).or_insert(until);
            *there = until.max(*there);
        }
        Ok(missing)
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        self.check()?;
        self.runs_read.fetch_add(1, Ordering::Relaxed);
        if self.drops_when_read.load(Ordering::Relaxed) {
            self.drop_run(&run);
        }
        let batches = self.find(&run)?;
        if self.is_damaged.load(Ordering::Relaxed) {
            return Err(Fault::new(Blame::Corrupt, format!("{run} is damaged")));
        }
        let mut bytes = Vec::new();
        if let Some(first) = batches.first() {
            let mut writer = StreamWriter::try_new(&mut bytes, &first.schema()).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.finish().unwrap();
        }
        let piece = RunPiece { number: None, total: bytes.len() as u64, bytes: bytes.into() };
        let broken = self.breaks_after.load(Ordering::Relaxed) < u32::MAX;
        Ok(stream::iter([Ok(piece)]).chain(stream::iter(broken.then(broken_off))).boxed())
    }

    async fn write_run(&self, run: SliceKey, mut pieces: Pieces) -> Result<(), Fault> {
        self.check()?;
        self.check_room()?;
        self.wait_for_claims().await;
        let mut batches = Vec::new();
        while let Some(piece) = pieces.next().await {
            let bytes = piece?.bytes;
            batches.extend(StreamReader::try_new(bytes.as_ref(), None).unwrap().map(Result::unwrap));
        }
        self.names.lock().insert(run.dataset, run.name.clone());
        self.is_damaged.store(false, Ordering::Relaxed);
        self.stored.lock().insert((run.dataset, run.load, run.partition), batches);
        Ok(())
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        self.check()?;
        Ok(self.manifests.lock().get(&domain).cloned())
    }

    async fn attached(&self, known: Option<u64>) -> Result<Option<Arc<Attachments>>, Fault> {
        self.check()?;
        let attached = self.attached.lock().clone().unwrap_or_default();
        Ok((known != Some(attached.version)).then_some(attached))
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        self.check()?;
        self.check_room()?;
        let mut manifests = self.manifests.lock();
        if take_one(&self.conflicts)
            && let Some(present) = manifests.get_mut(&manifest.domain)
        {
            present.version += 1;
        }
        if take_one(&self.commits_lost) {
            return Err(Fault::new(Blame::Device, "link lost"));
        }
        if manifest.home() != Some(self.id) {
            return Err(Fault::new(Blame::User, "its home is another drive"));
        }
        let version = manifests.get(&manifest.domain).map_or(0, |present| present.version);
        if version != expected || manifest.version != expected + 1 {
            return Err(Fault::new(Blame::Conflict, format!("version is {version}, not {expected}")));
        }
        manifests.insert(manifest.domain.clone(), manifest);
        match take_one(&self.answers_lost) {
            true => Err(Fault::new(Blame::Device, "link lost")),
            false => Ok(()),
        }
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault> {
        self.check()?;
        if manifest.home() == Some(self.id) {
            return Err(Fault::new(Blame::User, "a copy is of another drive's manifest"));
        }
        let mut manifests = self.manifests.lock();
        let before = manifests.get(&manifest.domain).map_or(0, |present| present.version);
        let home = manifest.home();
        let here = manifests.entry(manifest.domain.clone()).or_insert_with(|| manifest.clone());
        if before < manifest.version {
            *here = manifest;
        }
        let home_is_lost = home.is_some_and(|home| here.lost_home(home).is_some());
        Ok(ManifestReceipt { before, version: here.version, home: here.home(), home_is_lost })
    }

    async fn set_aside(&self, _domain: String, after: u64) -> Result<Option<Manifest>, Fault> {
        self.check()?;
        Ok(self.aside.lock().clone().filter(|aside| aside.version > after))
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        let known = self.aside.lock().as_ref().and_then(|aside| aside.datasets.get(&key.name.dataset).cloned());
        let Some(known) = known else { return not_here() };
        self.find(&key)?;
        let columns = vec![ColumnSummary::default(); known.schema.fields().len()];
        Ok(Directory { schema: known.schema, metadata: BTreeMap::new(), slices: vec![], columns })
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        self.check()?;
        let partitions = self.partitions();
        let slices = self.stored.lock().len() as u64;
        Ok(DriveStatus {
            drive: self.id,
            release: "0.0.0".into(),
            uptime_s: 0,
            threads: 1,
            memory: 0,
            memory_reserved: 0,
            sessions: 0,
            slices,
            stored_bytes: 0,
            free_bytes: 0,
            domains: self.manifests.lock().values().map(domain_at).collect(),
            partitions,
            link_bits_per_second: None,
            profile: None,
            cpu_share: 1.0,
            medium_bytes_per_second: None,
            work: ByLevel::default(),
            costs: vec![],
            away: vec![],
        })
    }

    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault> {
        not_here()
    }

    async fn kill(&self, _session: SessionId) -> Result<bool, Fault> {
        not_here()
    }
}

fn domain_at(manifest: &Manifest) -> DomainAt {
    DomainAt { name: manifest.domain.clone(), version: manifest.version, home: manifest.home().unwrap() }
}

impl FakeDoor {
    fn partitions(&self) -> Vec<PartitionUse> {
        let names = self.names.lock();
        let mut found: BTreeMap<(DatasetId, u32), u64> = BTreeMap::new();
        for (dataset, _, partition) in self.stored.lock().keys() {
            *found.entry((*dataset, *partition)).or_insert(0) += 1;
        }
        let held = found.into_iter().map(|((dataset, partition), slices)| PartitionUse {
            name: names[&dataset].clone(),
            dataset,
            partition,
            slices,
            bytes: 1,
            sessions: 0,
            slices_read: 0,
            bytes_read: 0,
            cpu_ns: 0,
            idle_s: None,
        });
        held.collect()
    }
}
