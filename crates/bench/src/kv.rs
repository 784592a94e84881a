//! `pithead bench kv`: a drive's Kinetic protocol, beside Redis, a bare socket and the bare medium.
//!
//! Drive and Redis are processes of their own, on the same medium, and are measured in turns by the same loop of clients here.

mod bare;
pub(crate) mod clients;
mod queries;
mod redis;
mod report;

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use pithead_model::{Blame, Fault, boxed};
use serde::Serialize;

use crate::drives::DriveProcess;
use crate::machine::Machine;
use crate::tables::io;
use crate::timing::Spread;
use clients::{Server, Work, measure};
use redis::Redis;
use report::KvReport;

/// Bytes of values.
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Connections at one time.
const CONNECTIONS: [usize; 2] = [1, 16];
/// Keys of each connection, which it puts and gets again and again.
const KEYS: u64 = 16;
/// What is measured beside the bare medium.
const BESIDE_MEDIUM: (Operation, usize, usize) = (Operation::PutThrough, SIZES[2], CONNECTIONS[1]);
/// How often, in turns: the pace of a medium changes from one second to the next, and both must meet the same.
const TURNS: usize = 3;

/// What to measure.
#[derive(Clone, Debug)]
pub struct KvOptions {
    /// Where the drive and Redis are made, on the medium that is measured. What this makes there is removed at the end, but for the
    /// tables of TPC-H.
    pub directory: PathBuf,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// TPC-H's scale of the table that is queried while values are read.
    pub scale: f64,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// What connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Answered when it is durable.
    PutThrough,
    /// Answered when it is accepted.
    PutBack,
    /// Of values that are in memory.
    Get,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) server: &'static str,
    pub(crate) operation: Operation,
    pub(crate) value_bytes: usize,
    pub(crate) connections: usize,
    pub(crate) operations_s: f64,
    pub(crate) mb_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// CPU time of the server's process for one operation.
    pub(crate) cpu_us: f64,
}

/// Measures, prints a table and writes the JSON.
#[boxed]
pub async fn kv(options: &KvOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let place = BenchDirectory::make(&options.directory)?;
    let port = free_port()?;
    let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
    let kinetic = format!("127.0.0.1:{port}");
    let arguments = ["--kinetic", &kinetic, "--kinetic-tls", "127.0.0.1:0"];
    let drive = DriveProcess::start(&program, &place.0.join("drive"), &arguments)?;
    let redis = Redis::start(&place.0.join("redis"), free_port()?)?;
    if redis.is_none() {
        println!("redis-server was not found, so nothing is measured beside it; Debian's package is redis-server");
    }
    let mut report = KvReport::new(machine, options, redis.as_ref().map(|redis| redis.version.clone()));
    let ours = Server::Kinetic { port, process: drive.id() };
    for (operation, value_bytes, connections) in all() {
        let work = Work { operation, value_bytes, connections, seconds: options.seconds };
        if (operation, value_bytes, connections) == BESIDE_MEDIUM {
            let (measured, medium_mb_s) = beside_medium(ours, work, &place.0).await?;
            report.measured.push(measured);
            report.medium_mb_s = medium_mb_s;
        } else {
            report.measured.push(measure(ours, work).await?);
        }
        if let Some(redis) = &redis {
            redis.durable(operation == Operation::PutThrough).await?;
            let server = Server::Redis { port: redis.port(), process: redis.process() };
            report.measured.push(measure(server, work).await?);
        }
    }
    report.loopback_mb_s = bare::loopback_mb_s(options.seconds)?;
    report.under_queries = Some(queries::measure(ours, &drive, options).await?);
    drive.stop()?;
    drop(redis);
    report.finish();
    println!("{}", report.text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

/// The drive's run in the middle, and the middle of the bare medium's megabytes a second by as many writers.
async fn beside_medium(server: Server, work: Work, folder: &Path) -> Result<(Measured, f64), Fault> {
    let (mut measured, mut medium) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        measured.push(measure(server, work).await?);
        medium.push(bare::medium_mb_s(folder, work.connections, work.seconds)?);
    }
    measured.sort_by(|a, b| a.mb_s.total_cmp(&b.mb_s));
    Ok((measured.swap_remove(TURNS / 2), Spread::of(medium).median))
}

/// All measurements. Puts come first, so that there is something to get.
fn all() -> impl Iterator<Item = (Operation, usize, usize)> {
    let operations = [Operation::PutThrough, Operation::PutBack, Operation::Get];
    let sizes = SIZES.into_iter().flat_map(|size| CONNECTIONS.map(|connections| (size, connections)));
    sizes.flat_map(move |(size, connections)| operations.map(|operation| (operation, size, connections)))
}

/// A port that nobody has now.
pub(crate) fn free_port() -> Result<u16, Fault> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| Fault::new(Blame::Device, error.to_string()))
}

/// The folder that all of it is made in. Dropping it removes it.
#[derive(Debug)]
struct BenchDirectory(PathBuf);

impl BenchDirectory {
    fn make(directory: &Path) -> Result<Self, Fault> {
        let path = directory.join("kv-bench");
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(|error| io(&path, &error))?;
        }
        std::fs::create_dir_all(&path).map_err(|error| io(&path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for BenchDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("note: {} is left behind: {error}", self.0.display());
        }
    }
}
