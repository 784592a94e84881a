//! A host and its drives, in one of the modes.

use std::future::Future;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use futures::StreamExt;
use pithead_embed::{ConnectOptions, EmbedOptions, Engine, Target, connect};
use pithead_host::{Answer, LoadReport, LoadSpec, Session};
use pithead_model::{Blame, Fault};
use pithead_workers::Workers;
use tempfile::TempDir;

use crate::{Bucket, DriveProcess, FrontProcess, Mode, Table, attached, render};

/// Rows of an answer at most. A random join may have millions, each of them text here.
const ROWS_MAX: usize = 500_000;
/// No statement of the tests takes as long; one that does hangs.
const HANG: Duration = Duration::from_secs(120);

/// A host and its drives, empty at first.
pub struct Setup {
    /// How it is arranged.
    pub mode: Mode,
    /// The host.
    pub engine: Engine,
    /// The drives that are processes.
    pub processes: Vec<DriveProcess>,
    /// What is behind those of them that are arrays, the lowest last.
    pub behind: Vec<DriveProcess>,
    /// What the host divides its work among.
    _workers: Vec<FrontProcess>,
    directory: TempDir,
}

impl Setup {
    /// Starts the drives and connects.
    pub async fn new(mode: Mode) -> Setup {
        let directory = TempDir::new().expect("a temporary directory");
        let (mut processes, mut behind) = (Vec::new(), Vec::new());
        // An array has two drives or arrays below.
        let lowest = mode.drives << mode.arrays;
        let attached = if mode.attached { attached::write(directory.path(), lowest) } else { vec![] };
        let bucket = mode.bucket.then(|| Bucket::serve(directory.path()));
        let mut lower = Lower { arguments: mode.arguments, attached: attached.iter(), bucket };
        for number in (0..mode.drives).filter(|_| mode.processes) {
            let data = directory.path().join(format!("drive-{number}"));
            processes.push(lower.start(&data, mode.arrays, &mut behind));
        }
        let data = if mode.attached { directory.path().join("data") } else { directory.path().to_owned() };
        let target = target(&data, &processes);
        let here = attached.iter().filter(|_| !mode.processes);
        let attach = here.map(|path| path.display().to_string().parse().expect("a path")).collect();
        let options = EmbedOptions { drives: Some(mode.drives), attach, ..EmbedOptions::default() };
        let engine = connect(&target, &options).await.unwrap_or_else(|fault| panic!("connecting: {fault}"));
        let workers: Vec<FrontProcess> = (0..mode.workers).map(|_| worker(directory.path(), &processes, &[])).collect();
        if !workers.is_empty() {
            divide(&engine, &workers).await;
        }
        Setup { mode, engine, processes, behind, _workers: workers, directory }
    }

    /// Where the drives keep their data.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A session with the mode's settings.
    pub async fn session(&self) -> Session {
        let session = self.engine.host.session();
        for statement in self.mode.settings {
            collect(&session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
        }
        session
    }

    /// Another host over the same drives, which are processes.
    pub async fn connect_again(&self) -> Engine {
        let target = target(self.directory.path(), &self.processes);
        connect(&target, &EmbedOptions::default()).await.unwrap_or_else(|fault| panic!("connecting: {fault}"))
    }

    /// Ends everything, and checks that the drives end cleanly.
    pub async fn shutdown(mut self) {
        self.engine.shutdown().await;
        for process in self.processes.iter_mut().chain(&mut self.behind) {
            let status = process.terminate();
            assert!(status.success(), "after SIGTERM the drive ended with {status}");
        }
    }
}

/// A worker over these drives.
pub fn worker(folder: &Path, drives: &[DriveProcess], more: &[&str]) -> FrontProcess {
    let drives: Vec<&str> = drives.iter().map(DriveProcess::address).collect();
    let drives = drives.join(",");
    let arguments: Vec<&str> = ["--worker", "--threads", "1", "--drives", &drives].iter().chain(more).copied().collect();
    FrontProcess::start(folder, &arguments)
}

/// Has a host divide among these workers what is left to it.
pub async fn divide(engine: &Engine, workers: &[FrontProcess]) {
    let addresses: Vec<String> = workers.iter().map(|worker| worker.address().to_owned()).collect();
    let functions = &engine.host.options().functions;
    engine.host.runs_at(Workers::connect(&addresses, &ConnectOptions::default(), functions).await.expect("workers"));
}

/// What is started on the lowest floor.
struct Lower<'a> {
    arguments: &'a [&'a str],
    /// For each drive in turn, what it attaches.
    attached: std::slice::Iter<'a, PathBuf>,
    /// The server by which it attaches that; none: directly.
    bucket: Option<Bucket>,
}

impl Lower<'_> {
    /// A drive; or an array, with what is to be behind it, which goes to the front of `behind`.
    fn start(&mut self, data: &Path, arrays: usize, behind: &mut Vec<DriveProcess>) -> DriveProcess {
        if arrays == 0 {
            let shown = |attached: &PathBuf| match &self.bucket {
                Some(_) => format!("s3://{}", attached.file_name().unwrap_or_default().display()),
                None => attached.display().to_string(),
            };
            let attach = self.attached.next().map(shown);
            let attach = attach.iter().flat_map(|attach| ["--attach", attach]);
            let arguments: Vec<&str> = self.arguments.iter().copied().chain(attach).collect();
            let environment = self.bucket.as_ref().map(Bucket::environment).unwrap_or_default();
            return DriveProcess::start_with(data, &arguments, environment);
        }
        let mut below = Vec::new();
        let drives: Vec<DriveProcess> =
            (0..2).map(|number| self.start(&beside(data, number), arrays - 1, &mut below)).collect();
        // Batches of very many columns are counted with all that their columns share, each time.
        let array = DriveProcess::start_array(data, &drives, &["--memory", "4GiB"]);
        below.splice(0..0, drives);
        behind.splice(0..0, below);
        array
    }
}

/// A directory of what is behind an array, beside the array's own.
fn beside(data: &Path, number: usize) -> PathBuf {
    let name = data.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    data.with_file_name(format!("{name}-{number}"))
}

/// What to connect to: the processes where there are any, else the directory.
pub(crate) fn target(directory: &Path, processes: &[DriveProcess]) -> Target {
    match processes {
        [] => Target::Data(directory.to_owned()),
        processes => Target::Drives(processes.iter().map(|process| process.address().to_owned()).collect()),
    }
}

/// Runs a statement and takes all its rows. A statement that hangs fails as one that could not be run.
pub async fn collect(session: &Session, statement: &str) -> Result<Table, Fault> {
    let run = async { take(session.run(statement).await?).await };
    tokio::time::timeout(HANG, run)
        .await
        .unwrap_or_else(|_| Err(Fault::new(Blame::Bug, format!("no answer after {} s: {statement}", HANG.as_secs()))))
}

async fn take(mut answer: Answer) -> Result<Table, Fault> {
    let mut batches = Vec::new();
    let mut rows = 0;
    while let Some(batch) = answer.rows.next().await {
        let batch = batch?;
        rows += batch.num_rows();
        if rows > ROWS_MAX {
            return Err(Fault::new(Blame::Limit, format!("more than {ROWS_MAX} rows, which nobody compares")));
        }
        batches.push(batch);
    }
    Ok(render::table(&answer.schema, &batches))
}

/// Runs a statement that must fail; its fault.
pub async fn refusal(session: &Session, statement: &str) -> Fault {
    match collect(session, statement).await {
        Ok(table) => panic!("{statement}: an error is expected; there were {} rows", table.rows.len()),
        Err(fault) => fault,
    }
}

/// Runs a statement to its end. Returns the bytes that it put on the links, both ways.
pub async fn link_bytes(session: &Session, statement: &str) -> Result<u64, Fault> {
    let answer = session.run(statement).await?;
    let profile = Arc::clone(&answer.profile);
    take(answer).await?;
    Ok(profile.snapshot().link_bytes)
}

/// Loads without telling anyone how far it is.
pub async fn load(engine: &Engine, spec: LoadSpec) -> Result<LoadReport, Fault> {
    engine.host.load(spec, Arc::new(|_| {})).await
}

/// An address to listen at that nobody else takes before. Connections go out from ports above 32,768, so that one of
/// those which was free a moment ago may be in use when a process asks for it.
pub fn free_address() -> String {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16;
    loop {
        let port = 20_000 + first.wrapping_mul(64).wrapping_add(TRIED.fetch_add(1, Relaxed)) % 12_000;
        let address = format!("127.0.0.1:{port}");
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

/// Runs a test on a runtime like the program's.
pub fn block_on<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime").block_on(test)
}
