//! A host over a drive, both in this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringViewArray};
use futures::{StreamExt, stream};
use pithead_door::{Door, Event, OpenRequest};
use pithead_drive::{Drive, DriveOptions};
use pithead_fuzz::Outcome;
use pithead_host::{Host, HostOptions, LoadMode, LoadSpec};
use pithead_model::{Fault, Reply, SessionId};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::lying::LyingDoor;
use crate::link::unsound;
use crate::{data, refused};

/// Memory of the drive for sessions, which they are granted half of.
pub const DRIVE_MEMORY: u64 = 64 << 20;
/// Batches of a session that are looked at: products of joins are long.
const BATCHES_MAX: usize = 100;
/// Times that a busy drive is asked again, and how long to wait between: sessions end a moment after they are closed.
const BUSY_TRIES: usize = 500;
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// A host over a drive in this process, with a door between them that records, and lies where it is told to.
pub struct Rig {
    pub runtime: Runtime,
    pub host: Host,
    pub folder: TempDir,
    pub drive: Arc<Drive>,
    pub door: Arc<LyingDoor>,
}

impl Rig {
    pub fn new() -> Rig {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // Flushes cost nothing in memory.
        let shared = PathBuf::from("/dev/shm");
        let folder = if shared.is_dir() { TempDir::new_in(shared) } else { TempDir::new() }.unwrap();
        let options = DriveOptions {
            threads: 1,
            memory: DRIVE_MEMORY,
            cache: Some(16 << 20),
            ..DriveOptions::new(folder.path().join("drive"))
        };
        let drive = Drive::open(options).unwrap();
        let door = Arc::new(LyingDoor::new(Arc::clone(&drive)));
        let doors = vec![Arc::clone(&door) as Arc<dyn Door>];
        let host_options = HostOptions { threads: 1, memory: DRIVE_MEMORY, ..HostOptions::default() };
        let host = runtime.block_on(Host::connect(doors, host_options)).unwrap();
        let rig = Rig { runtime, host, folder, drive, door };
        rig.load("t", &rows(300), "vortex");
        rig.load("u", &rows(60), "arrow");
        rig.load("nested", &data::every_type(50, false), "vortex");
        rig
    }

    fn load(&self, name: &str, rows: &RecordBatch, encoding: &str) {
        let mut spec = LoadSpec::new(name.parse().unwrap(), vec![]);
        (spec.mode, spec.slice_rows, spec.encoding) = (LoadMode::Create, Some(100), Some(encoding.to_owned()));
        let batches = stream::iter([Ok(rows.clone())]).boxed();
        self.runtime.block_on(self.host.load_batches(spec, rows.schema(), batches)).unwrap();
    }

    /// All rows of a statement, or a fault; whether they are sound.
    pub fn query(&self, sql: &str) -> Result<Option<String>, Fault> {
        self.query_at("3", sql)
    }

    /// The same with slices taken to a level. Nothing is kept for later: each query asks the drive.
    pub fn query_at(&self, level: &str, sql: &str) -> Result<Option<String>, Fault> {
        self.runtime.block_on(async {
            let session = self.host.session();
            session.run(&format!("SET pithead.level = {level}")).await?;
            for set in ["busy_wait_s = 1", "drive_memory = 16777216", "summary_cache = off", "slice_cache = 0"] {
                session.run(&format!("SET pithead.{set}")).await?;
            }
            let mut rows = session.run(sql).await?.rows;
            let mut wrong = None;
            for _ in 0..BATCHES_MAX {
                let Some(batch) = rows.next().await else { break };
                wrong = wrong.or(unsound(&batch?));
            }
            Ok(wrong)
        })
    }

    /// What a session gives, from OPEN to CLOSE.
    pub fn session(&self, request: OpenRequest) -> Outcome {
        self.runtime.block_on(async {
            for _ in 0..BUSY_TRIES {
                match self.drive.open(request.clone()).await.map(|opened| opened.reply) {
                    Err(fault) => return refused(&fault),
                    Ok(Reply::Busy { .. }) => tokio::time::sleep(BUSY_WAIT).await,
                    Ok(Reply::Granted(granted)) => {
                        let outcome = self.events(granted.session).await;
                        let closed = self.drive.close(granted.session).await;
                        return closed.map_or_else(|fault| refused(&fault), |()| outcome);
                    }
                }
            }
            Outcome::Wrong("a drive without sessions stays busy".to_owned())
        })
    }

    async fn events(&self, session: SessionId) -> Outcome {
        let mut events = match self.drive.get(session).await {
            Ok(events) => events,
            Err(fault) => return refused(&fault),
        };
        for _ in 0..BATCHES_MAX {
            match events.next().await {
                None | Some(Ok(Event::Finished { .. })) => break,
                Some(Err(fault)) => return refused(&fault),
                Some(Ok(Event::Rows { batch, .. } | Event::Filtered { batch, .. })) => {
                    if let Some(wrong) = unsound(&batch) {
                        return Outcome::Wrong(wrong);
                    }
                }
                Some(Ok(Event::Closed { .. } | Event::Stored { .. } | Event::Hints { .. })) => {}
            }
        }
        Outcome::Accepted
    }
}

fn rows(rows: i64) -> RecordBatch {
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("n", Arc::new(Int64Array::from_iter_values(0..rows)), false),
        ("g", Arc::new(Int64Array::from_iter((0..rows).map(|row| (row % 11 != 3).then_some(row % 8)))), true),
        ("f", Arc::new(Float64Array::from_iter((0..rows).map(|row| (row % 9 != 0).then_some(row as f64 / 300.0)))), true),
        ("s", Arc::new(StringViewArray::from_iter_values((0..rows).map(|row| format!("text {}", row % 17)))), false),
        ("d", Arc::new(Date32Array::from_iter((0..rows).map(|row| Some(row as i32)))), true),
        (
            "m",
            Arc::new(Decimal128Array::from_iter_values((0..rows).map(i128::from)).with_precision_and_scale(15, 2).unwrap()),
            false,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}
