//! Statements that take CPU or memory without end, beside small ones: the small ones are answered, the drives say how they are,
//! and once a hog is killed nothing is left of it. By flag: `PITHEAD_HOGS`, `PITHEAD_HOGS_QUERIES`, `PITHEAD_HOGS_JSON`.

mod report;
mod statements;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::StreamExt;
use futures::future::join_all;
use pithead_door::{Door, DriveStatus};
use pithead_e2e::{DriveProcess, Mode, Setup, block_on, collect, pithead};
use pithead_entry::ConnectOptions;
use pithead_host::{LoadSpec, PartitionBy, Session};
use pithead_wire::FlightDoor;
use tempfile::TempDir;

use report::{Measured, Report};
use statements::{HOGS, Hog};

/// Longest that anything may take, on a machine with much other work.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a hog that may be at work at the host alone, where it never shows at a drive, has to begin.
const START: Duration = Duration::from_secs(3);
/// Rows of the dataset that hogs are over, and of the one that small queries ask.
const ROWS: i64 = 200_000;
const SMALL_ROWS: i64 = 1_000;
/// Small queries beside each hog.
const QUERIES: usize = 20;

const DRIVES: Mode =
    Mode { name: "drives", drives: 2, arguments: &["--memory", "256MiB", "--cache", "64MiB"], ..Mode::FOUR_PROCESSES };
const ARRAY: Mode = Mode { name: "an array", drives: 1, arrays: 1, ..DRIVES };
const HERE: Mode = Mode { name: "drives of the same process", drives: 2, ..Mode::FOUR_HERE };

/// How a hog is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Interrupt,
    Terminate,
    Kill,
}

impl End {
    const ALL: [End; 3] = [End::Interrupt, End::Terminate, End::Kill];

    fn signal(self) -> i32 {
        match self {
            End::Interrupt => libc::SIGINT,
            End::Terminate => libc::SIGTERM,
            End::Kill => libc::SIGKILL,
        }
    }

    /// The exit code; none where the signal itself ends the process.
    fn code(self) -> Option<i32> {
        match self {
            End::Interrupt => Some(130),
            End::Terminate => Some(143),
            End::Kill => None,
        }
    }
}

/// A hog at work.
enum Running {
    /// As a program over drives on the network, with its own folder for temporary files.
    Program(Child, TempDir),
    /// Within this process.
    Here(tokio::task::JoinHandle<()>),
}

impl Running {
    /// Whether it has ended, and how.
    fn state(&mut self) -> String {
        match self {
            Running::Program(child, _) => format!("{:?}", child.try_wait()),
            Running::Here(task) => format!("finished: {}", task.is_finished()),
        }
    }
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn is_all() -> bool {
    std::env::var("PITHEAD_HOGS").is_ok_and(|asked| asked == "all")
}

fn hog(name: &str) -> &'static Hog {
    HOGS.iter().find(|hog| hog.name == name).expect("a hog of this name")
}

#[test]
fn hogs_over_drives_leave_room_and_leave_nothing() {
    if is_all() {
        return every_hog(&DRIVES, "PITHEAD_HOGS_JSON");
    }
    let chosen = [("cross join", End::Interrupt), ("sort", End::Terminate), ("rows that nobody reads", End::Kill)];
    block_on(async {
        let scene = Scene::new(DRIVES).await;
        for (name, end) in chosen {
            scene.run(hog(name), end).await;
        }
        scene.setup.shutdown().await;
    });
}

#[test]
fn hogs_of_the_same_process_leave_room_and_leave_nothing() {
    if is_all() {
        return every_hog(&HERE, "");
    }
    block_on(async {
        let scene = Scene::new(HERE).await;
        scene.run(hog("skewed join"), End::Interrupt).await;
        scene.setup.shutdown().await;
    });
}

/// Behind an array, by flag only.
#[test]
fn hogs_over_an_array_leave_room_and_leave_nothing() {
    if is_all() {
        every_hog(&ARRAY, "");
    }
}

/// Each hog, ended in each way.
fn every_hog(mode: &Mode, json: &str) {
    block_on(async {
        let scene = Scene::new(*mode).await;
        let mut report = Report::new(scene.small(number("PITHEAD_HOGS_QUERIES", QUERIES)).await);
        for hog in HOGS {
            for end in End::ALL {
                let measured = scene.run(hog, end).await;
                println!("{}: {}, {end:?}: {measured}", mode.name, hog.name);
                if end == End::Interrupt {
                    report.add(hog, measured);
                }
            }
        }
        if let Some(path) = std::env::var_os(json).filter(|_| !json.is_empty()) {
            report.write(Path::new(&path));
        }
        scene.setup.shutdown().await;
    });
}

/// Drives with two datasets, and a host that asks small queries.
struct Scene {
    setup: Setup,
    session: Session,
    /// The way to every drive, those behind arrays too.
    doors: Vec<Arc<dyn Door>>,
}

impl Scene {
    async fn new(mode: Mode) -> Scene {
        let setup = Setup::new(mode).await;
        for (name, rows) in [("t", ROWS), ("small", SMALL_ROWS)] {
            let spec = LoadSpec {
                partitioning: Some(PartitionBy::Hash(vec!["id".to_owned()])),
                slice_rows: Some(10_000),
                ..LoadSpec::new(name.parse().unwrap(), vec![])
            };
            let batch = rows_of(rows);
            let stream = futures::stream::iter([Ok(batch.clone())]).boxed();
            setup.engine.host.load_batches(spec, batch.schema(), stream).await.unwrap();
        }
        let session = setup.session().await;
        // Each time it is asked, a drive answers.
        collect(&session, "SET pithead.summary_cache = off").await.unwrap();
        let reached = |process: &DriveProcess| {
            Arc::new(FlightDoor::connect_with(process.address(), &ConnectOptions::default()).unwrap()) as Arc<dyn Door>
        };
        let mut doors: Vec<Arc<dyn Door>> = setup.processes.iter().chain(&setup.behind).map(reached).collect();
        if doors.is_empty() {
            doors = setup.engine.host.fleet().drives().iter().map(|drive| Arc::clone(&drive.door)).collect();
        }
        Scene { setup, session, doors }
    }

    /// One hog from its start until nothing is left of it.
    async fn run(&self, hog: &Hog, end: End) -> Measured {
        let mut running = self.start(hog);
        self.wait_for_work(hog, &mut running).await;
        let beside = self.small(number("PITHEAD_HOGS_QUERIES", QUERIES)).await;
        let start = Instant::now();
        let folder = end_it(running, hog, end).await;
        let free_s = self.wait_for_end(hog, end, start).await;
        if let Some(folder) = folder.filter(|_| end != End::Kill) {
            let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert!(left.is_empty(), "{}, {end:?}: the host left {left:?}", hog.name);
        }
        self.small(1).await;
        Measured { beside, free_s }
    }

    fn start(&self, hog: &Hog) -> Running {
        if self.setup.processes.is_empty() {
            let (session, statement) = (self.setup.engine.host.session(), hog.sql);
            return Running::Here(tokio::spawn(async move {
                let Ok(mut answer) = session.run(statement).await else { return };
                while let Some(Ok(_)) = answer.rows.next().await {}
            }));
        }
        let addresses: Vec<&str> = self.setup.processes.iter().map(DriveProcess::address).collect();
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(pithead());
        command.args(["sql", "-q", "--format", "csv", "--memory", "256MiB", "--drives", &addresses.join(","), "-c", hog.sql]);
        command.env("TMPDIR", folder.path()).stdin(Stdio::null()).stderr(Stdio::null());
        // Rows that nobody reads: the pipe's other end is held, and that is all.
        command.stdout(if hog.is_read { Stdio::null() } else { Stdio::piped() });
        Running::Program(command.spawn().unwrap(), folder)
    }

    async fn statuses(&self) -> Vec<DriveStatus> {
        let asked = join_all(self.doors.iter().map(|door| door.status()));
        let told = tokio::time::timeout(LIMIT, asked).await.expect("drives say how they are beside a hog");
        told.into_iter()
            .map(|status| status.unwrap_or_else(|fault| panic!("a drive does not say how it is: {fault}")))
            .collect()
    }

    async fn wait_for_work(&self, hog: &Hog, running: &mut Running) {
        let start = Instant::now();
        while self.statuses().await.iter().all(|status| status.sessions == 0) {
            if hog.is_at_host && start.elapsed() > START {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{}: it is not at work, {}", hog.name, running.state());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Asks small queries, one after the other. How long each took.
    async fn small(&self, count: usize) -> Vec<Duration> {
        let mut took = Vec::new();
        for turn in 0..count as i64 {
            let id = turn * 37 % SMALL_ROWS;
            let (statement, expected) = match turn % 2 {
                0 => (format!("SELECT id, m, s FROM small WHERE id = {id}"), vec![id.to_string(), id.to_string(), text(id)]),
                _ => {
                    let below: i64 = (0..id).sum();
                    let statement = format!("SELECT count(*), COALESCE(sum(id), 0) FROM small WHERE id < {id}");
                    (statement, vec![id.to_string(), below.to_string()])
                }
            };
            let start = Instant::now();
            let table = tokio::time::timeout(LIMIT, collect(&self.session, &statement)).await.expect("an answer in time");
            took.push(start.elapsed());
            assert_eq!(table.unwrap_or_else(|fault| panic!("{statement}: {fault}")).rows, [expected], "{statement}");
        }
        took
    }

    /// Files that drives keep for as long as a session lasts.
    fn temporary_files(&self) -> usize {
        let directory = self.setup.directory();
        let is_temporary =
            |file: &PathBuf| file.strip_prefix(directory).is_ok_and(|file| file.iter().any(|part| part == "tmp"));
        files(directory).iter().filter(|file| is_temporary(file)).count()
    }

    /// Until no drive holds anything of it. How long that took since it was ended.
    async fn wait_for_end(&self, hog: &Hog, end: End, start: Instant) -> f64 {
        loop {
            let statuses = self.statuses().await;
            let left = self.temporary_files();
            if left == 0 && statuses.iter().all(|status| status.sessions == 0 && status.memory_reserved == 0) {
                return start.elapsed().as_secs_f64();
            }
            let held: Vec<_> = statuses.iter().map(|status| (status.sessions, status.memory_reserved)).collect();
            assert!(start.elapsed() < LIMIT, "{}, {end:?}: left are {held:?} and {left} temporary files", hog.name);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Ends a hog, which may have ended with a fault by itself. The folder that it had.
async fn end_it(running: Running, hog: &Hog, end: End) -> Option<TempDir> {
    let (mut child, folder) = match running {
        Running::Here(task) => {
            task.abort();
            let _ = tokio::time::timeout(LIMIT, task).await.expect("a task that is dropped ends");
            return None;
        }
        Running::Program(child, folder) => (child, folder),
    };
    let ended_before = child.try_wait().unwrap();
    if ended_before.is_none() {
        let process = i32::try_from(child.id()).unwrap();
        // SAFETY: the process is our child and not yet waited for, so the id is still its own.
        assert_eq!(unsafe { libc::kill(process, end.signal()) }, 0);
    }
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > LIMIT => {
                let _ = child.kill();
                panic!("{}: it did not end after {end:?}", hog.name);
            }
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    match ended_before {
        // At its bound, which it says; or through.
        Some(_) => assert!(hog.may_fail && matches!(status.code(), Some(0 | 4)), "{}: it ended with {status}", hog.name),
        None if status.code() == Some(4) && hog.may_fail => {}
        None => assert_eq!(status.code(), end.code(), "{}, {end:?}: it ended with {status}", hog.name),
    }
    Some(folder)
}

/// All files below a directory. One that goes meanwhile is none.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(_) => found.push(entry.path()),
            Err(_) => {}
        }
    }
    found
}

/// Rows with a number, some keys that many rows share, and a text.
fn rows_of(rows: i64) -> RecordBatch {
    let numbers = |key: fn(i64) -> i64| Arc::new(Int64Array::from_iter_values((0..rows).map(key))) as ArrayRef;
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(text)));
    RecordBatch::try_from_iter([
        ("id", numbers(|id| id)),
        ("k", numbers(|id| id % 3)),
        ("m", numbers(|id| id % 1_000)),
        ("s", texts),
    ])
    .unwrap()
}

fn text(id: i64) -> String {
    format!("{:016x}-abababababab-{id:032}", id.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64))
}
