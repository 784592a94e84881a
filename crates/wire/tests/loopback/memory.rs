//! A door that remembers what it was asked and answers what it was told, and a server for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{Int64Array, RecordBatch};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use pithead_door::*;
use pithead_entry::*;
use pithead_model::*;
use pithead_wire::*;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// The session whose rows never end.
pub const ENDLESS: SessionId = SessionId(0xe4d1e55);

/// The rows of a load as they arrived.
pub type LoadedRows = Result<Vec<RecordBatch>, Fault>;

/// The pieces of a run as they arrived.
pub type WrittenRun = Result<Vec<RunPiece>, Fault>;

#[derive(Debug, Default)]
pub struct MemoryDoor {
    pub opened: Mutex<Vec<OpenRequest>>,
    pub answers: Mutex<HashMap<SessionId, Vec<Result<Event, Fault>>>>,
    pub loads: Mutex<Vec<(LoadRequest, LoadedRows)>>,
    pub manifest: Mutex<Option<Manifest>>,
    pub kept: Mutex<Vec<Manifest>>,
    pub discards: Mutex<Vec<Discard>>,
    pub merges: Mutex<Vec<MergeRuns>>,
    pub marks: Mutex<Vec<MarkRun>>,
    pub runs: Mutex<HashMap<SliceKey, Vec<Result<RunPiece, Fault>>>>,
    pub written: Mutex<Vec<(SliceKey, WrittenRun)>>,
    pub closed: Mutex<Vec<SessionId>>,
    /// Granted to whoever opens first; none: the largest number there is.
    pub granted: Option<SessionId>,
    /// Told of each CLOSE.
    pub closing: Arc<Notify>,
    pub protocol: Option<u32>,
    /// Another identity than that of [`welcome`].
    pub id: Option<DriveId>,
    pub dropped: Arc<Notify>,
}

/// Says when it is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The answer to every mark.
pub fn marked() -> Marked {
    Marked { gone: 3, nulls_gone: vec![1], going: Some(9), left: Some(loaded()) }
}

pub fn no_session(session: SessionId) -> Fault {
    Fault::new(Blame::User, format!("no session {session}")).hint("open one")
}

pub fn profile() -> SessionProfile {
    SessionProfile {
        state: SessionState::Finished,
        rounds: 2,
        slices_total: 5,
        slices_done: 5,
        memory_peak: u64::MAX,
        spilled_bytes: 0,
        other_rows_in: 7,
        other_medium_bytes: 8,
        predicted: None,
        link_bytes_per_s: None,
        settled: None,
        calls: vec![],
    }
}

pub fn welcome() -> Welcome {
    Welcome {
        protocol: PROTOCOL_VERSION,
        release: "0.1.0".into(),
        drive: DriveId(7),
        extensions: vec!["matches/1".into()],
        encodings: vec!["vortex".into(), "arrow".into()],
        threads: 4,
        link_bits_per_second: Some(1e9),
        profile: None,
        cpu_share: 1.0,
        merges: true,
        attaches: true,
        beneath: vec![DriveId(8), DriveId(9)],
    }
}

pub fn status() -> DriveStatus {
    DriveStatus {
        drive: DriveId(7),
        release: "0.1.0".into(),
        uptime_s: 1,
        threads: 2,
        memory: 3,
        memory_reserved: 4,
        sessions: 5,
        slices: 6,
        stored_bytes: 7,
        free_bytes: u64::MAX,
        domains: vec![DomainAt { name: "main".into(), version: 3, home: DriveId(7) }],
        partitions: vec![PartitionUse {
            name: "t".parse().unwrap(),
            dataset: DatasetId(3),
            partition: 4,
            slices: 5,
            bytes: 6,
            sessions: 7,
            slices_read: 8,
            bytes_read: 9,
            cpu_ns: u64::MAX,
            idle_s: None,
        }],
        link_bits_per_second: None,
        profile: None,
        cpu_share: 1.0,
        medium_bytes_per_second: None,
        work: ByLevel::default(),
        costs: vec![],
        away: vec![Fault::new(Blame::Device, "drive a:1: connection refused")],
    }
}

pub fn loaded() -> Loaded {
    let summary = ColumnSummary {
        min: Some(Value::Int(i128::MIN)),
        max: Some(Value::Float(f64::INFINITY)),
        exact: true,
        nulls: 3,
        nulls_unknown: true,
        distinct: 9,
    };
    let run = Run { load: LoadId(1), slices: 2, rows: 3, bytes: 4 };
    Loaded { run, columns: vec![summary] }
}

pub fn open_session() -> OpenSession {
    OpenSession {
        session: SessionId(u64::MAX),
        owner: None,
        host: 7,
        datasets: vec!["lab.t".parse().unwrap(), "u".parse().unwrap()],
        state: SessionState::Running,
        open_s: 0.5,
        slices_done: 1,
        slices_total: 2,
        memory: 1 << 40,
        programs: vec![],
    }
}

#[boxed]
impl Door for MemoryDoor {
    fn label(&self) -> &str {
        "memory"
    }

    async fn hello(&self, _hello: Hello) -> Result<Welcome, Fault> {
        let (protocol, welcome) = (self.protocol.unwrap_or(PROTOCOL_VERSION), welcome());
        Ok(Welcome { protocol, drive: self.id.unwrap_or(welcome.drive), ..welcome })
    }

    async fn open(&self, request: OpenRequest) -> Result<Opened, Fault> {
        let mut opened = self.opened.lock().unwrap();
        opened.push(request);
        let reply = if opened.len() > 1 {
            Reply::Busy { why: "all threads are granted".into(), retry_after_ms: 250 }
        } else {
            Reply::Granted(Granted { session: self.granted.unwrap_or(SessionId(u64::MAX)), threads: 2, memory: 1 << 40 })
        };
        Ok(Opened { reply, link_bytes: 0 })
    }

    async fn get(&self, session: SessionId) -> Result<Events, Fault> {
        if session == ENDLESS {
            let guard = Dropped(Arc::clone(&self.dropped));
            let batch = RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from_iter(0..8_192)) as _)]).unwrap();
            return Ok(stream::repeat_with(move || {
                let _kept = &guard;
                Ok(Event::Rows { round: 0, batch: batch.clone(), link_bytes: 0 })
            })
            .boxed());
        }
        let answer = self.answers.lock().unwrap().remove(&session).ok_or_else(|| no_session(session))?;
        Ok(stream::iter(answer).boxed())
    }

    async fn poll(&self, session: SessionId) -> Result<SessionProfile, Fault> {
        if session == SessionId(1) { Ok(profile()) } else { Err(no_session(session)) }
    }

    async fn tell(&self, _session: SessionId, _state: HostState) -> Result<(), Fault> {
        Ok(())
    }

    async fn close(&self, session: SessionId) -> Result<(), Fault> {
        self.closed.lock().unwrap().push(session);
        self.closing.notify_one();
        Ok(())
    }

    async fn load(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
        let rows: LoadedRows = rows.try_collect().await;
        self.loads.lock().unwrap().push((request, rows.clone()));
        rows.map(|_| loaded())
    }

    async fn merge_runs(&self, request: MergeRuns) -> Result<Loaded, Fault> {
        self.merges.lock().unwrap().push(request);
        Ok(loaded())
    }

    async fn mark_run(&self, request: MarkRun) -> Result<Marked, Fault> {
        self.marks.lock().unwrap().push(request);
        Ok(marked())
    }

    async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        let mut discards = self.discards.lock().unwrap();
        discards.push(discard);
        Ok(discards.len() as u64)
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        Ok(claim.runs.into_iter().filter(|run| run.load.0 != claim.version).collect())
    }

    async fn read_run(&self, run: SliceKey) -> Result<Pieces, Fault> {
        let missing = || Fault::new(Blame::Conflict, format!("no run {run}"));
        let pieces = self.runs.lock().unwrap().remove(&run).ok_or_else(missing)?;
        Ok(stream::iter(pieces).boxed())
    }

    async fn write_run(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        let pieces: WrittenRun = pieces.try_collect().await;
        self.written.lock().unwrap().push((run, pieces.clone()));
        pieces.map(|_| ())
    }

    async fn manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        Ok(self.manifest.lock().unwrap().clone().filter(|manifest| manifest.domain == domain))
    }

    async fn commit(&self, expected: u64, manifest: Manifest) -> Result<(), Fault> {
        let mut current = self.manifest.lock().unwrap();
        let version = current.as_ref().map_or(0, |manifest| manifest.version);
        if version != expected {
            return Err(
                Fault::new(Blame::Conflict, format!("expected version {expected}, there is {version}")).hint("plan again")
            );
        }
        *current = Some(manifest);
        Ok(())
    }

    async fn keep_manifest(&self, manifest: Manifest) -> Result<ManifestReceipt, Fault> {
        let kept = ManifestReceipt { before: 0, version: manifest.version, home: manifest.home(), home_is_lost: false };
        self.kept.lock().unwrap().push(manifest);
        Ok(kept)
    }

    async fn directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        Err(Fault::new(Blame::Corrupt, key.to_string()))
    }

    async fn status(&self) -> Result<DriveStatus, Fault> {
        Ok(status())
    }

    async fn sessions(&self) -> Result<Vec<OpenSession>, Fault> {
        Ok(vec![open_session()])
    }

    async fn kill(&self, session: SessionId) -> Result<bool, Fault> {
        Ok(session == open_session().session)
    }
}

/// Counts what is sent, and never waits.
#[derive(Default)]
pub struct Counted(pub AtomicU64);

impl Pace for Counted {
    fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        None
    }
}

/// A door behind a socket, and a client of it.
pub struct Served {
    pub door: Arc<MemoryDoor>,
    pub client: FlightDoor,
    pub address: String,
    pub sent: Arc<Counted>,
    pub stop: oneshot::Sender<()>,
    pub serving: JoinHandle<Result<(), Fault>>,
}

pub async fn served(door: MemoryDoor) -> Served {
    served_with(door, ServeOptions::default(), &ConnectOptions::default()).await
}

pub async fn served_with(door: MemoryDoor, options: ServeOptions, connect: &ConnectOptions) -> Served {
    let (door, sent) = (Arc::new(door), Arc::new(Counted::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel();
    let shutdown = Box::pin(async {
        let _ = stopped.await;
    });
    let (served, pace) = (Arc::clone(&door) as Arc<dyn Door>, Arc::clone(&sent) as Arc<dyn Pace>);
    let serving = tokio::spawn(async move { serve(served, pace, listener, &options, shutdown).await });
    let client = FlightDoor::connect_with(&address, connect).unwrap();
    Served { door, client, address, sent, stop, serving }
}

/// Serves one answer to GET, and collects what arrives.
pub async fn through_get(events: Vec<Result<Event, Fault>>) -> (Served, Vec<Result<Event, Fault>>) {
    let served = served(MemoryDoor::default()).await;
    served.door.answers.lock().unwrap().insert(SessionId(1), events);
    let arrived = served.client.get(SessionId(1)).await.unwrap().collect().await;
    (served, arrived)
}

pub fn row_event(round: u32, batch: RecordBatch) -> Result<Event, Fault> {
    Ok(Event::Rows { round, batch, link_bytes: 0 })
}

pub fn finished() -> Result<Event, Fault> {
    Ok(Event::Finished { profile: profile(), link_bytes: 0 })
}
