//! Drives are killed at random under loads: what was acknowledged is there, whole, and nothing else is there in part.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pithead_e2e::{DriveProcess, block_on, collect, load};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadMode, LoadSpec, PartitionBy};
use pithead_model::Blame;
use tempfile::TempDir;

/// Times that a drive is killed; `PITHEAD_KILLS` makes it more.
const KILLS: u64 = 20;
/// Rows of each load, spread over all drives.
const ROWS: u64 = 900;
/// More than any limit that a host or drive has for a peer that is silent.
const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn loads_under_kills_are_whole_or_absent() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (kills, seed) = (number("PITHEAD_KILLS").unwrap_or(KILLS), number("PITHEAD_SEED").unwrap_or(20_261_121));
    println!("PITHEAD_KILLS={kills} PITHEAD_SEED={seed}");
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        for (name, copies) in [("single", 1), ("double", 2)] {
            load(&engine, LoadSpec { mode: LoadMode::Create, copies: Some(copies), ..spec(directory.path(), name, 0) })
                .await
                .unwrap();
        }
        let done = Arc::new(AtomicU64::new(0));
        let killer = {
            let done = Arc::clone(&done);
            std::thread::spawn(move || kill_at_random(processes, seed, kills, &done))
        };
        let loads = ["single", "double"].map(|name| append_until(&engine, directory.path(), name, kills, &done));
        let [single, double] = loads;
        let (single, double) = tokio::join!(single, double);
        let processes = killer.join().expect("the killer does not panic");
        let engine = attach(&processes).await;
        for (name, acknowledged) in [("single", single), ("double", double)] {
            let there = tags(&engine, name).await;
            let lost: Vec<_> = acknowledged.difference(&there).collect();
            assert!(lost.is_empty(), "{name}: loads {lost:?} were acknowledged and are lost; seed {seed}");
            println!("{name}: {} loads acknowledged, {} there, {kills} kills", acknowledged.len(), there.len());
            assert!(acknowledged.len() > 1, "{name}: no load got through; seed {seed}");
        }
    });
}

pub(crate) async fn attach(processes: &[DriveProcess]) -> Engine {
    let addresses = processes.iter().map(|process| process.address().to_owned()).collect();
    let (target, options) = (Target::Drives(addresses), EmbedOptions::default());
    let connecting = connect(&target, &options);
    tokio::time::timeout(LIMIT, connecting).await.expect("a connection").unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

/// A load of rows with one tag, appended.
fn spec(directory: &Path, name: &str, tag: u64) -> LoadSpec {
    let path = directory.join(format!("{name}-{tag}.csv"));
    let mut text = "tag,x\n".to_owned();
    (0..ROWS).for_each(|x| writeln!(text, "{tag},{x}").unwrap());
    std::fs::write(&path, text).unwrap();
    LoadSpec {
        mode: LoadMode::Append,
        partitioning: Some(PartitionBy::Hash(vec!["x".to_owned()])),
        ..LoadSpec::new(name.parse().unwrap(), vec![path.display().to_string()])
    }
}

/// Appends one load after the other until enough drives were killed. The tags of those that were acknowledged.
async fn append_until(engine: &Engine, directory: &Path, name: &str, kills: u64, done: &AtomicU64) -> BTreeSet<u64> {
    let mut acknowledged = BTreeSet::from([0]);
    for tag in 1.. {
        if done.load(Ordering::Acquire) >= kills {
            break;
        }
        let loading = load(engine, spec(directory, name, tag));
        match tokio::time::timeout(LIMIT, loading).await.expect("a load ends") {
            Ok(_) => drop(acknowledged.insert(tag)),
            Err(fault) => {
                let excused = matches!(fault.blame, Blame::Device | Blame::Limit | Blame::Conflict | Blame::Cancelled);
                assert!(excused, "{name}, load {tag}: {}: {fault}", fault.blame);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    acknowledged
}

/// The tags that a dataset has, each with all of its rows.
async fn tags(engine: &Engine, name: &str) -> BTreeSet<u64> {
    let statement = format!("SELECT tag, count(*), count(DISTINCT x) FROM {name} GROUP BY tag");
    let rows = collect(&engine.host.session(), &statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}")).rows;
    rows.into_iter()
        .map(|row| {
            let expected = ROWS.to_string();
            assert!(
                row[1] == expected && row[2] == expected,
                "{name}: load {} has {} rows, {} of them different",
                row[0],
                row[1],
                row[2]
            );
            row[0].parse().unwrap()
        })
        .collect()
}

/// Kills one drive after the other and starts it again.
pub(crate) fn kill_at_random(
    mut processes: Vec<DriveProcess>,
    mut seed: u64,
    kills: u64,
    done: &AtomicU64,
) -> Vec<DriveProcess> {
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for kill in 1..=kills {
        std::thread::sleep(Duration::from_millis(50 + random(400)));
        let drives = processes.len() as u64;
        let process = &mut processes[random(drives) as usize];
        process.kill();
        std::thread::sleep(Duration::from_millis(random(100)));
        process.restart();
        done.store(kill, Ordering::Release);
    }
    processes
}
