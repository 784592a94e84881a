//! Acknowledged data survives restarts and kill -9; a load that was not acknowledged is absent as a whole
//! (`ARCHITECTURE.md`, "Loads and commits").

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, block_on, collect, load, refusal};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadMode, LoadSpec};
use pithead_model::Blame;
use tempfile::TempDir;

const COUNT: &str = "SELECT count(*), sum(o_totalprice) FROM orders";

async fn attach(processes: &[DriveProcess]) -> Engine {
    let addresses = processes.iter().map(|process| process.address().to_owned()).collect();
    connect(&Target::Drives(addresses), &EmbedOptions::default()).await.unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

async fn ask(engine: &Engine, statement: &str) -> Vec<Vec<String>> {
    collect(&engine.host.session(), statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}")).rows
}

#[test]
fn a_clean_stop_and_a_restart_bring_the_data_back() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 4, &[]);
        let engine = attach(&processes).await;
        for name in ["orders", "nation"] {
            load(&engine, spec(name, "vortex")).await.unwrap();
        }
        let before = ask(&engine, COUNT).await;
        engine.shutdown().await;
        for process in &mut processes {
            let status = process.terminate();
            assert_eq!(status.code(), Some(0), "after SIGTERM the drive ended with {status}");
        }
        drop(processes);
        let processes = DriveProcess::start_many(directory.path(), 4, &[]);
        let engine = attach(&processes).await;
        assert_eq!(ask(&engine, COUNT).await, before);
        assert_eq!(ask(&engine, "SELECT count(*) FROM nation").await, [["25"]]);
    });
}

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        load(&engine, spec("orders", "vortex")).await.unwrap();
        let before = ask(&engine, COUNT).await;
        processes.iter_mut().for_each(DriveProcess::kill);
        let processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        assert_eq!(ask(&engine, COUNT).await, before);
        load(&engine, LoadSpec { mode: LoadMode::Append, ..spec("orders", "vortex") }).await.unwrap();
        assert_eq!(ask(&engine, "SELECT count(*) FROM orders").await, [["300000"]]);
    });
}

#[test]
fn kill_9_during_a_load_leaves_nothing_of_it() {
    for kills in [&[1][..], &[0, 1, 2]] {
        block_on(async {
            let directory = TempDir::new().unwrap();
            let mut processes = DriveProcess::start_many(directory.path(), 3, &[]);
            let engine = attach(&processes).await;
            load(&engine, spec("orders", "vortex")).await.unwrap();
            let before = ask(&engine, COUNT).await;

            interrupt(&engine, spec("lineitem", "vortex"), || kills.iter().for_each(|drive| processes[*drive].kill())).await;
            for process in &mut processes {
                if process.is_running() {
                    process.kill();
                }
            }

            let processes = DriveProcess::start_many(directory.path(), 3, &[]);
            let engine = attach(&processes).await;
            assert_eq!(ask(&engine, COUNT).await, before);
            let fault = refusal(&engine.host.session(), "SELECT count(*) FROM lineitem").await;
            assert_eq!(fault.blame, Blame::User, "{fault}");
            load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading again: {fault}"));
            assert_eq!(ask(&engine, "SELECT count(*) FROM lineitem").await, [["600572"]]);
        });
    }
}

#[test]
fn kill_9_during_an_append_leaves_the_dataset_as_it_was() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        load(&engine, spec("lineitem", "vortex")).await.unwrap();
        let statement = "SELECT count(*), sum(l_quantity) FROM lineitem";
        let before = ask(&engine, statement).await;
        let append = LoadSpec { mode: LoadMode::Append, ..spec("lineitem", "vortex") };
        interrupt(&engine, append, || processes[2].kill()).await;
        processes[2] = DriveProcess::start(&directory.path().join("drive-2"), &[]);
        let engine = attach(&processes).await;
        assert_eq!(ask(&engine, statement).await, before);
    });
}

/// Starts a load, calls `strike` once rows flow, and checks that the load fails.
async fn interrupt(engine: &Engine, spec: LoadSpec, strike: impl FnOnce()) {
    let rows = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&rows);
    let host = engine.host.clone();
    let loading =
        tokio::spawn(
            async move { host.load(spec, Arc::new(move |progress| seen.store(progress.rows, Ordering::Relaxed))).await },
        );
    while rows.load(Ordering::Relaxed) < 50_000 && !loading.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!loading.is_finished(), "the load was over before it could be struck");
    strike();
    let outcome =
        tokio::time::timeout(Duration::from_secs(90), loading).await.expect("the load ends").expect("the load does not panic");
    let fault = outcome.map(|report| report.rows).expect_err("a drive died");
    assert_eq!(fault.blame, Blame::Device, "{fault}");
}

#[test]
fn a_drive_that_is_down_does_not_keep_the_others_data_from_coming_back() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let target = Target::Data(directory.path().to_owned());
        let options = EmbedOptions { drives: Some(2), ..EmbedOptions::default() };
        let engine = connect(&target, &options).await.unwrap();
        load(&engine, spec("orders", "vortex")).await.unwrap();
        let before = ask(&engine, COUNT).await;
        engine.shutdown().await;
        // The same directories, served as processes.
        let processes: Vec<DriveProcess> =
            (0..2).map(|number| DriveProcess::start(&directory.path().join(format!("drive-{number}")), &[])).collect();
        assert_eq!(ask(&attach(&processes).await, COUNT).await, before);
        let inside = connect(&target, &options).await.map(|_| ()).expect_err("the drives are in use");
        assert!(inside.to_string().contains("another process"), "{inside}");
    });
}

#[test]
fn a_damaged_slice_is_found_and_named() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut process = DriveProcess::start(directory.path(), &[]);
        let engine = attach(std::slice::from_ref(&process)).await;
        load(&engine, spec("orders", "vortex")).await.unwrap();
        load(&engine, spec("nation", "vortex")).await.unwrap();
        engine.shutdown().await;
        process.terminate();
        let damaged = damage_largest(directory.path());
        let process = DriveProcess::start(directory.path(), &[]);
        let engine = attach(std::slice::from_ref(&process)).await;
        let fault = refusal(&engine.host.session(), "SELECT * FROM orders").await;
        assert_eq!(fault.blame, Blame::Corrupt, "{} was damaged: {fault}", damaged.display());
        assert!(fault.to_string().contains("orders"), "the slice should be named: {fault}");
        assert_eq!(ask(&engine, "SELECT count(*) FROM nation").await, [["25"]]);
    });
}

/// Changes a few bytes in the middle of the largest file of a drive's slices.
fn damage_largest(directory: &Path) -> std::path::PathBuf {
    let mut files = Vec::new();
    collect_files(directory, &mut files);
    files.retain(|file| file.extension().is_none_or(|ending| ending != "redb"));
    let largest = files
        .into_iter()
        .max_by_key(|file| std::fs::metadata(file).map(|meta| meta.len()).unwrap_or(0))
        .expect("the drive has files");
    let mut bytes = std::fs::read(&largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 16].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&largest, bytes).unwrap();
    largest
}

fn collect_files(directory: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { collect_files(&path, files) } else { files.push(path) }
    }
}

#[test]
fn a_full_medium_fails_the_load_and_keeps_the_rest() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        // A file may not grow over 8 MiB, which a drive meets as a medium that takes no more.
        let process = DriveProcess::start_limited(
            directory.path(),
            "trap '' XFSZ; ulimit -f 16384; exec \"$PITHEAD\" drive serve --listen 127.0.0.1:0 --data \"$DATA\"",
        );
        let engine = attach(std::slice::from_ref(&process)).await;
        load(&engine, spec("nation", "vortex")).await.unwrap_or_else(|fault| panic!("loading little: {fault}"));
        let large = LoadSpec { slice_rows: Some(1 << 17), encoding: Some("arrow".to_owned()), ..spec("lineitem", "arrow") };
        let outcome = load(&engine, large).await.map(|report| report.rows);
        let fault = outcome.expect_err("the medium is full");
        assert!(matches!(fault.blame, Blame::Limit | Blame::Device), "{fault}");
        assert_eq!(ask(&engine, "SELECT count(*) FROM nation").await, [["25"]]);
        refusal(&engine.host.session(), "SELECT * FROM lineitem").await;
    });
}
