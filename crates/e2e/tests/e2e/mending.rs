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

/// What the program says to these words about these drives, and its exit code.
fn run(words: &[&str], drives: &str) -> (String, Option<i32>) {
    let mut command = Command::new(pithead());
    command.args(words).args(["--drives", drives]).env("NO_COLOR", "1").stdin(Stdio::null());
    for variable in ["PITHEAD_DATA", "PITHEAD_DRIVES"] {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    (said.concat(), output.status.code())
}

fn start_scrub(drives: &str) {
    let (said, code) = run(&["service", "start", "scrub"], drives);
    assert_eq!(code, Some(0), "{said}");
}

fn id_of(engine: &Engine, process: &DriveProcess) -> DriveId {
    let drives = engine.host.fleet().drives();
    drives.iter().find(|drive| drive.label() == process.address()).expect("it is connected").id()
}

/// The place of a drive that is not home.
async fn beside_home(engine: &Engine, processes: &[DriveProcess]) -> usize {
    let fleet = engine.host.fleet();
    let home = fleet.manifest("main", &fleet.connected()).await.unwrap().home().unwrap();
    processes.iter().position(|process| id_of(engine, process) != home).expect("only one is home")
}

/// Kills a drive, and starts an empty one at its address.
fn replace(process: &mut DriveProcess) {
    process.kill();
    std::fs::remove_dir_all(process.data()).unwrap();
    process.restart();
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

/// Damage of values that the drive has in its memory from when they were written.
#[test]
fn what_is_damaged_beneath_a_running_drive_is_mended() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 2, &["--scrub-period", "0"]);
        let drives = addresses(&processes).join(",");
        let engine = loaded(&processes).await;
        let sums = collect(&engine.host.session(), SUMS).await.unwrap().rows;
        damage(processes[1].data());
        assert!(damaged(&engine).await > 0, "copies are read from the medium");
        let (said, code) = run(&["repair"], &drives);
        assert!(code == Some(0) && said.contains("written anew"), "{said}");
        assert_eq!(damaged(&engine).await, 0);

        let host = host(&directory, &processes, &[]);
        damage(processes[0].data());
        assert!(damaged(&engine).await > 0);
        (0..2).for_each(|_| start_scrub(processes[0].address()));
        until("all copies are whole", async || damaged(&engine).await == 0).await;
        assert_eq!(collect(&engine.host.session(), SUMS).await.unwrap().rows, sums);
        drop(host);
    });
}

#[test]
fn an_empty_drive_in_anothers_place_is_not_taken_for_it() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 2, &[]);
        let drives = addresses(&processes).join(",");
        let engine = loaded(&processes).await;
        let sums = collect(&engine.host.session(), SUMS).await.unwrap().rows;
        let (listed, code) = run(&["ls"], &drives);
        assert!(code == Some(0) && !listed.contains("1 of 2"), "{listed}");
        let at = beside_home(&engine, &processes).await;
        let gone = id_of(&engine, &processes[at]);
        replace(&mut processes[at]);

        // A host that met the other one asks it for nothing.
        assert_eq!(collect(&engine.host.session(), SUMS).await.unwrap().rows, sums);
        let (listed, code) = run(&["ls"], &drives);
        assert!(code == Some(0) && listed.contains("1 of 2"), "{listed}");
        let hint = format!("pithead repair --lost {gone}");
        for added in [false, true] {
            if added {
                let (said, code) = run(&["drive", "add", processes[at].address()], &drives);
                assert_eq!(code, Some(0), "{said}");
            }
            let (said, code) = run(&["repair"], &drives);
            assert!(code == Some(1) && said.contains(&hint), "{said}");
        }
        let (said, code) = run(&["repair", "--lost", &gone.to_string()], &drives);
        assert_eq!(code, Some(0), "{said}");
        let (said, code) = run(&["repair"], &drives);
        assert_eq!(code, Some(0), "{said}");
        let (listed, _) = run(&["ls"], &drives);
        assert!(!listed.contains("1 of 2"), "{listed}");
        let placed = placement(&engine).await;
        assert!(placed.iter().all(|copies| copies.len() == 2 && !copies.contains(&gone)), "{placed:?}");
        assert_eq!((collect(&engine.host.session(), SUMS).await.unwrap().rows, damaged(&engine).await), (sums, 0));
    });
}

/// The host that mends met the drive before another one was put in its place, and added.
#[test]
fn a_drive_that_was_replaced_is_done_without() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 2, &[]);
        let engine = loaded(&processes).await;
        let sums = collect(&engine.host.session(), SUMS).await.unwrap().rows;
        let host = host(&directory, &processes, &["--lost-after", "2s"]);
        let at = beside_home(&engine, &processes).await;
        let gone = id_of(&engine, &processes[at]);
        replace(&mut processes[at]);
        let (said, code) = run(&["drive", "add", processes[at].address()], &addresses(&processes).join(","));
        assert_eq!(code, Some(0), "{said}");
        until("both drives have all partitions", async || {
            placement(&engine).await.iter().all(|copies| copies.len() == 2 && !copies.contains(&gone))
        })
        .await;
        assert_eq!(collect(&engine.host.session(), SUMS).await.unwrap().rows, sums);
        // Nothing has told this host of the new drive but the manifest.
        until("it is met", async || id_of(&engine, &processes[at]) != gone && placement(&engine).await.len() == 3).await;
        assert_eq!(damaged(&engine).await, 0);
        drop(host);
    });
}

/// A drive that starts anew is the same one, however often.
#[test]
fn a_drive_that_starts_anew_is_not_given_up() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 2, &[]);
        let engine = loaded(&processes).await;
        let (sums, placed) = (collect(&engine.host.session(), SUMS).await.unwrap().rows, placement(&engine).await);
        let host = host(&directory, &processes, &["--lost-after", "30s"]);
        for _ in 0..3 {
            processes[1].restart();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(collect(&engine.host.session(), SUMS).await.unwrap().rows, sums);
        }
        assert_eq!(placement(&engine).await, placed);
        let (said, code) = run(&["repair"], &addresses(&processes).join(","));
        assert_eq!(code, Some(0), "{said}");
        drop(host);
    });
}

#[test]
fn a_drive_that_is_away_for_long_is_done_without_where_all_is_elsewhere() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = loaded(&processes).await;
        let sums = collect(&engine.host.session(), SUMS).await.unwrap().rows;
        let gone = id_of(&engine, &processes[2]);
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
