//! `pithead serve` mends unasked: damage that a drive's scrub found, and copies that are missing.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, FrontProcess, block_on, collect, damage, load, pithead};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::LoadSpec;
use pithead_model::{Blame, DriveId, SliceKey};
use tempfile::TempDir;

/// Longer than anything here takes, on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(120);
const SUMS: &str = "SELECT count(*), sum(l_orderkey), sum(l_extendedprice) FROM lineitem";

fn addresses(processes: &[DriveProcess]) -> Vec<String> {
    processes.iter().map(|process| process.address().to_owned()).collect()
}

async fn attach(processes: &[DriveProcess]) -> Engine {
    connect(&Target::Drives(addresses(processes)), &EmbedOptions::default()).await.unwrap()
}

async fn loaded(processes: &[DriveProcess]) -> Engine {
    let engine = attach(processes).await;
    let spec = LoadSpec { partitions: Some(3), copies: Some(2), ..spec("lineitem", "vortex") };
    load(&engine, spec).await.unwrap();
    engine
}

fn host(directory: &TempDir, processes: &[DriveProcess], arguments: &[&str]) -> FrontProcess {
    let drives = addresses(processes).join(",");
    FrontProcess::start(directory.path(), &[&["--drives", &drives, "--mend-every", "0.3s"], arguments].concat())
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < LIMIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The drives of each partition.
async fn placement(engine: &Engine) -> Vec<Vec<DriveId>> {
    let snapshot = engine.host.fleet().snapshot().await.unwrap();
    let (_, dataset) = snapshot.dataset(&"lineitem".parse().unwrap()).expect("the dataset is there");
    dataset.partitions.iter().map(|partition| partition.copies.clone()).collect()
}

/// Copies of runs that cannot be read whole from their drives.
async fn damaged(engine: &Engine) -> usize {
    let snapshot = engine.host.fleet().snapshot().await.unwrap();
    let (_, dataset) = snapshot.dataset(&"lineitem".parse().unwrap()).expect("the dataset is there");
    let mut damaged = 0;
    for (number, partition) in (0..).zip(&dataset.partitions) {
        for load in partition.runs.iter().map(|run| run.load) {
            let name = "lineitem".parse().unwrap();
            let run = SliceKey { name, dataset: dataset.id, load, partition: number, number: None };
            for drive in engine.host.fleet().drives().iter().filter(|drive| partition.copies.contains(&drive.id())) {
                let pieces = async { drive.door.read_run(run.clone()).await?.try_collect::<Vec<_>>().await };
                match pieces.await {
                    Ok(_) => {}
                    Err(fault) if fault.blame == Blame::Corrupt => damaged += 1,
                    Err(fault) => panic!("{fault}"),
                }
            }
        }
    }
    damaged
}

fn start_scrub(drives: &str) {
    let mut command = Command::new(pithead());
    command.args(["service", "start", "scrub", "--drives", drives]).env_remove("PITHEAD_DRIVES").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_a_scrub_finds_damaged_is_written_anew_from_a_copy() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 3, &["--scrub-period", "0"]);
        let engine = loaded(&processes).await;
        let sums = collect(&engine.host.session(), SUMS).await.unwrap().rows;
        engine.shutdown().await;
        processes[1].terminate();
        damage(processes[1].data());
        processes[1].restart();
        let engine = attach(&processes).await;
        assert!(damaged(&engine).await > 0);
        // Two hosts at the same thing.
        let hosts = [host(&directory, &processes, &[]), host(&directory, &processes, &[])];
        // Once to start, and once for it not to keep its pace.
        (0..2).for_each(|_| start_scrub(processes[1].address()));
        until("all copies are whole", async || damaged(&engine).await == 0).await;
        assert_eq!(collect(&engine.host.session(), SUMS).await.unwrap().rows, sums);
        assert_eq!(placement(&engine).await.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
        drop(hosts);
    });
}

#[test]
fn a_drive_that_is_away_for_long_is_done_without_where_all_is_elsewhere() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = loaded(&processes).await;
        let sums = collect(&engine.host.session(), SUMS).await.unwrap().rows;
        let gone = engine.host.fleet().drives().iter().find(|drive| drive.label() == processes[2].address()).unwrap().id();
        let hosts =
            [host(&directory, &processes, &["--lost-after", "1s"]), host(&directory, &processes, &["--lost-after", "1s"])];
        processes[2].kill();
        until("all partitions have two copies on the others", async || {
            placement(&engine).await.iter().all(|copies| copies.len() == 2 && !copies.contains(&gone))
        })
        .await;
        assert_eq!(collect(&engine.host.session(), SUMS).await.unwrap().rows, sums);
        drop(hosts);
    });
}

/// Nothing is given up for lost: what is on one drive alone waits for it.
#[test]
fn a_drive_that_alone_has_rows_is_waited_for() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 2, &[]);
        let engine = attach(&processes).await;
        load(&engine, LoadSpec { partitions: Some(2), ..spec("orders", "vortex") }).await.unwrap();
        let count = "SELECT count(*), sum(o_orderkey) FROM orders";
        let rows = collect(&engine.host.session(), count).await.unwrap().rows;
        let host = host(&directory, &processes, &["--lost-after", "0.5s"]);
        processes[1].kill();
        tokio::time::sleep(Duration::from_secs(4)).await;
        processes[1].restart();
        until("it is back", async || collect(&engine.host.session(), count).await.is_ok_and(|table| table.rows == rows)).await;
        drop(host);
    });
}
