//! Copies of partitions: drives die, join, are emptied and are lost, and every answer is right or a clear error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use pithead_e2e::tpch::{answers, queries, spec};
use pithead_e2e::{DriveProcess, Table, block_on, collect, load, row_difference, table};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_fleet::{MoveProgress, RepairSpec, TellMove};
use pithead_host::{LoadMode, LoadSpec, Session};
use pithead_model::{Blame, DriveId, Fault};
use tempfile::TempDir;

/// More than any limit that a host or drive has for a peer that is silent.
const LIMIT: Duration = Duration::from_secs(90);
/// Wide enough to be on its way for a while.
const LARGE: &str = "SELECT l_orderkey, l_comment, l_shipinstruct, l_extendedprice FROM lineitem";
const SUMS: &str = "SELECT count(*), sum(l_orderkey), sum(l_extendedprice) FROM lineitem";
const LINEITEM_ROWS: usize = 600_572;
/// Seconds that drives are killed for; `PITHEAD_CHAOS_S` makes it longer.
const CHAOS_S: u64 = 25;

fn addresses(processes: &[DriveProcess]) -> Vec<String> {
    processes.iter().map(|process| process.address().to_owned()).collect()
}

async fn attach(processes: &[DriveProcess]) -> Engine {
    let target = Target::Drives(addresses(processes));
    within(connect(&target, &EmbedOptions::default())).await.unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("an answer or an error within the limit")
}

async fn load_with(engine: &Engine, name: &str, partitions: usize, copies: usize) {
    let spec = LoadSpec { partitions: Some(partitions), copies: Some(copies), ..spec(name, "vortex") };
    load(engine, spec).await.unwrap_or_else(|fault| panic!("loading {name}: {fault}"));
}

async fn ask(engine: &Engine, statement: &str) -> Vec<Vec<String>> {
    within(collect(&engine.host.session(), statement)).await.unwrap_or_else(|fault| panic!("{statement}: {fault}")).rows
}

/// The answer, and how often a session went on at another copy.
async fn ask_counting(session: &Session, statement: &str) -> Result<(Table, u64), Fault> {
    let mut answer = session.run(statement).await?;
    let mut batches = Vec::new();
    while let Some(batch) = answer.rows.next().await {
        batches.push(batch?);
    }
    Ok((table(&answer.schema, &batches), answer.profile.snapshot().failovers))
}

fn quiet() -> TellMove {
    Arc::new(|_| ())
}

/// The drives of a dataset's partitions.
async fn placement(engine: &Engine, name: &str) -> Vec<Vec<DriveId>> {
    let snapshot = engine.host.fleet().snapshot().await.unwrap();
    let (_, dataset) = snapshot.dataset(&name.parse().unwrap()).expect("the dataset is there");
    dataset.partitions.iter().map(|partition| partition.copies.clone()).collect()
}

fn id_of(engine: &Engine, process: &DriveProcess) -> DriveId {
    let drives = engine.host.fleet().drives();
    drives.iter().find(|drive| drive.label() == process.address()).expect("the drive is connected").id()
}

async fn home(engine: &Engine) -> DriveId {
    let snapshot = engine.host.fleet().snapshot().await.unwrap();
    let (manifest, _) = snapshot.dataset(&"lineitem".parse().unwrap()).unwrap();
    manifest.home().unwrap()
}

async fn slow_drives(directory: &TempDir) -> (Vec<DriveProcess>, Engine) {
    let processes = DriveProcess::start_many(directory.path(), 4, &["--link", "60mbit"]);
    let engine = attach(&processes).await;
    load_with(&engine, "lineitem", 4, 2).await;
    (processes, engine)
}

/// Runs [`LARGE`], strikes once rows flow, and checks that none is missing or there twice.
async fn strike(engine: &Engine, strike: impl FnOnce()) {
    let mut answer = engine.host.session().run(LARGE).await.unwrap();
    let mut keys = Vec::new();
    let first = answer.rows.next().await.expect("the stream has begun").unwrap();
    strike();
    let mut batches = vec![first];
    while let Some(batch) = within(answer.rows.next()).await {
        batches.push(batch.unwrap_or_else(|fault| panic!("a copy is left: {fault}")));
    }
    for batch in &batches {
        keys.extend(table(&answer.schema, &[batch.project(&[0]).unwrap()]).rows.into_iter().map(|row| row[0].clone()));
    }
    assert_eq!(keys.len(), LINEITEM_ROWS);
    let sum: u64 = keys.iter().map(|key| key.parse::<u64>().unwrap()).sum();
    assert_eq!(sum.to_string(), ask(engine, SUMS).await[0][1]);
    assert!(answer.profile.snapshot().failovers > 0, "the drive was struck after its work was done");
}

#[test]
fn a_drive_that_dies_in_mid_stream_costs_no_row() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let (mut processes, engine) = slow_drives(&directory).await;
        strike(&engine, || processes[2].kill()).await;
    });
}

#[test]
fn a_drive_that_stops_answering_in_mid_stream_costs_no_row() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let (processes, engine) = slow_drives(&directory).await;
        strike(&engine, || processes[1].freeze()).await;
        processes[1].thaw();
    });
}

#[test]
fn drives_that_die_and_come_back_at_random_spoil_no_answer() {
    let seconds = std::env::var("PITHEAD_CHAOS_S").ok().and_then(|text| text.parse().ok()).unwrap_or(CHAOS_S);
    let seed = std::env::var("PITHEAD_CHAOS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260_731);
    println!("PITHEAD_CHAOS_SEED={seed} for {seconds} s");
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        for name in TPCH {
            load_with(&engine, name, 3, 2).await;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let killer = {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || kill_at_random(processes, seed, &is_over))
        };
        let tally = ask_until(&engine, Instant::now() + Duration::from_secs(seconds)).await;
        is_over.store(true, Ordering::Relaxed);
        let kills = killer.join().expect("the killer does not panic");
        println!("{kills} kills, {} right answers, {} failovers, {:?}", tally.right, tally.failovers, tally.faults);
        assert!(kills > 2 && tally.right > 0, "{} answers with {kills} kills; seed {seed}", tally.right);
        assert!(tally.failovers > 0, "no session had to go on elsewhere; seed {seed}");
    });
}

const TPCH: [&str; 8] = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

#[derive(Default)]
struct Tally {
    right: u64,
    failovers: u64,
    faults: BTreeMap<String, u64>,
}

/// Asks all queries in turn. An answer must be right; an error must be a drive's, and say so.
async fn ask_until(engine: &Engine, end: Instant) -> Tally {
    let mut tally = Tally::default();
    let queries = queries();
    for (turn, (name, query)) in queries.iter().cycle().enumerate() {
        if Instant::now() >= end {
            break;
        }
        // What was kept of earlier answers would need no drive. Every other query comes back to the host in part.
        let level = if turn % 2 == 0 { "auto".to_owned() } else { format!("random:{turn}") };
        let session = engine.host.session();
        for setting in ["summary_cache = off".to_owned(), "slice_cache = 0".to_owned(), format!("level = '{level}'")] {
            collect(&session, &format!("SET pithead.{setting}")).await.unwrap_or_else(|fault| panic!("{setting}: {fault}"));
        }
        match within(ask_counting(&session, query)).await {
            Ok((table, failovers)) => {
                if let Some(what) = row_difference(&table, &answers()[name]) {
                    panic!("{name} is wrong after {failovers} failovers: {what}");
                }
                tally.right += 1;
                tally.failovers += failovers;
            }
            Err(fault) => {
                assert!(matches!(fault.blame, Blame::Device | Blame::Limit), "{name}: {}: {fault}", fault.blame);
                *tally.faults.entry(fault.message).or_default() += 1;
            }
        }
    }
    tally
}

/// Kills one drive after the other and starts it again. Never two at a time, as there are two copies. Returns how many.
fn kill_at_random(mut processes: Vec<DriveProcess>, mut seed: u64, is_over: &AtomicBool) -> u64 {
    let mut kills = 0;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(300 + random(1_500)));
        let drives = processes.len() as u64;
        let process = &mut processes[random(drives) as usize];
        process.kill();
        kills += 1;
        std::thread::sleep(Duration::from_millis(random(1_500)));
        process.restart();
    }
    kills
}

#[test]
fn drives_join_and_leave_while_queries_run() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 2, &[]);
        let engine = attach(&processes).await;
        for name in ["orders", "lineitem"] {
            load_with(&engine, name, 8, 1).await;
        }
        let expected = ask(&engine, SUMS).await;
        let (is_over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let asking = {
            let (host, is_over, asked, expected) = (engine.host.clone(), is_over.clone(), asked.clone(), expected.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let rows =
                        collect(&host.session(), SUMS).await.unwrap_or_else(|fault| panic!("while moving: {fault}")).rows;
                    assert_eq!(rows, expected);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        processes.push(DriveProcess::start(&directory.path().join("drive-2"), &[]));
        let added = within(engine.add_drive(processes[2].address(), quiet())).await.unwrap();
        assert!(added.partitions >= 4 && added.bytes > 1 << 20, "{added:?}");
        assert_eq!(placement(&engine, "orders").await, placement(&engine, "lineitem").await, "still side by side");
        let leaving = home(&engine).await;
        let gone = engine.host.fleet().remove(leaving).await.expect_err("it is full");
        assert_eq!(gone.blame, Blame::User, "{gone}");
        let drained = within(engine.host.fleet().drain(leaving, quiet())).await.unwrap();
        assert!(drained.bytes > 1 << 20 && drained.homes == ["main"], "{drained:?}");
        engine.host.fleet().remove(leaving).await.unwrap();
        assert_ne!(home(&engine).await, leaving);
        is_over.store(true, Ordering::Relaxed);
        within(asking).await.expect("all answers were right");
        assert!(asked.load(Ordering::Relaxed) > 0);
        assert!(placement(&engine, "lineitem").await.iter().all(|copies| !copies.contains(&leaving)));
        // Nothing is asked of it any more, and a host that never knew it finds everything.
        let left = processes.iter().position(|process| id_of(&engine, process) == leaving).expect("it is one of them");
        assert!(processes.remove(left).terminate().success());
        let other = attach(&processes).await;
        assert_eq!(ask(&other, SUMS).await, expected);
        load(&other, LoadSpec { mode: LoadMode::Append, ..spec("lineitem", "vortex") }).await.unwrap();
        assert_eq!(ask(&other, SUMS).await[0][0], (2 * LINEITEM_ROWS).to_string());
    });
}

/// A regression: of a move that took longer than the new drive keeps what nothing names, the first runs were gone at its end, and were
/// copied again: as often as there was patience for, where it took twice as long.
#[test]
fn a_move_may_take_longer_than_a_drive_keeps_what_nothing_names() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = vec![DriveProcess::start(&directory.path().join("drive-0"), &["--link", "8mbit"])];
        let engine = attach(&processes).await;
        let (session, leaving) = (engine.host.session(), id_of(&engine, &processes[0]));
        session.run("CREATE TABLE t AS SELECT random() AS r FROM range(60000)").await.unwrap();
        for _ in 0..7 {
            session.run("INSERT INTO t SELECT random() FROM range(60000)").await.unwrap();
        }
        let sums = "SELECT count(*), min(r), max(r) FROM t";
        let expected = ask(&engine, sums).await;
        processes.push(DriveProcess::start(&directory.path().join("drive-1"), &["--collect-after", "1"]));
        within(engine.add_drive(processes[1].address(), quiet())).await.unwrap();
        engine.host.fleet().attend_every(Duration::from_millis(200));
        let copied = Arc::new(AtomicU64::new(0));
        let hears = Arc::clone(&copied);
        let tell: TellMove = Arc::new(move |progress: MoveProgress| {
            hears.fetch_max(progress.bytes_done, Ordering::Relaxed);
        });
        let drained = within(engine.host.fleet().drain(leaving, tell)).await.unwrap();
        assert!(drained.bytes > 2 << 20, "it takes two seconds at least: {drained:?}");
        assert_eq!(copied.load(Ordering::Relaxed), drained.bytes, "nothing is copied again");
        engine.host.fleet().remove(leaving).await.unwrap();
        processes.remove(0).kill();
        assert_eq!(ask(&attach(&processes).await, sums).await, expected);
    });
}

#[test]
fn what_a_drive_lost_is_made_anew() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        load_with(&engine, "lineitem", 3, 2).await;
        let expected = ask(&engine, SUMS).await;
        let lost = id_of(&engine, &processes[1]);
        engine.shutdown().await;
        processes[1].kill();
        std::fs::remove_dir_all(processes[1].data()).unwrap();
        processes[1].restart();

        let engine = attach(&processes).await;
        assert_eq!(ask(&engine, SUMS).await, expected);
        let spec = RepairSpec { lost: Some(lost), drop_lost: false };
        let report = within(engine.host.fleet().repair(&spec, quiet())).await.unwrap();
        assert!(report.lost.is_empty() && report.copies_made == 2, "{report:?}");
        within(engine.add_drive(processes[1].address(), quiet())).await.unwrap();
        let copies = placement(&engine, "lineitem").await;
        assert!(copies.iter().all(|copies| copies.len() == 2 && !copies.contains(&lost)), "{copies:?}");
        let report = within(engine.host.fleet().repair(&RepairSpec::default(), quiet())).await.unwrap();
        assert!(report.damaged.is_empty() && report.runs_checked == 6 && report.runs_rewritten == 0, "{report:?}");
        processes[0].kill();
        assert_eq!(ask(&engine, SUMS).await, expected);
    });
}

#[test]
fn a_lost_home_can_be_read_around_and_replaced() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        load_with(&engine, "lineitem", 3, 2).await;
        let expected = ask(&engine, SUMS).await;
        let lost = home(&engine).await;
        let at = processes.iter().position(|process| id_of(&engine, process) == lost).expect("home is one of them");
        processes[at].kill();
        assert_eq!(ask(&engine, SUMS).await, expected);

        // A host that comes later, too.
        let engine = attach(&processes).await;
        assert_eq!(ask(&engine, SUMS).await, expected);
        let append = || LoadSpec { mode: LoadMode::Append, ..spec("lineitem", "vortex") };
        let fault = within(load(&engine, append())).await.expect_err("its home is down");
        assert!(fault.blame == Blame::Device && fault.to_string().contains(&format!("repair --lost {lost}")), "{fault}");
        let spec = RepairSpec { lost: Some(lost), drop_lost: false };
        let report = within(engine.host.fleet().repair(&spec, quiet())).await.unwrap();
        assert_eq!((report.homes.as_slice(), report.lost.len()), (&["main".to_owned()][..], 0), "{report:?}");
        within(load(&engine, append())).await.unwrap();
        assert_eq!(ask(&engine, SUMS).await[0][0], (2 * LINEITEM_ROWS).to_string());

        // The old home comes back, and does not take itself for home any more.
        processes[at].restart();
        let engine = attach(&processes).await;
        assert_ne!(home(&engine).await, lost);
        assert_eq!(ask(&engine, SUMS).await[0][0], (2 * LINEITEM_ROWS).to_string());
    });
}

/// What a drive has of the domain says which drive it takes for home.
async fn home_told_by(engine: &Engine, process: &DriveProcess) -> Option<DriveId> {
    let drives = engine.host.fleet().drives();
    let door = &drives.iter().find(|drive| drive.label() == process.address())?.door;
    // The first call after a drive was started again may still go over the lost connection.
    door.manifest("main".to_owned()).await.ok()??.home()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !holds().await {
        assert!(since.elapsed() < LIMIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A regression: a host that was connected, and asked nothing while a home was away and replaced, read what that one had for ever.
#[test]
fn a_lost_home_that_is_back_is_not_believed_by_a_host_that_was_idle() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let idle = attach(&processes).await;
        load_with(&idle, "lineitem", 3, 2).await;
        assert_eq!(ask(&idle, SUMS).await[0][0], LINEITEM_ROWS.to_string());
        let lost = home(&idle).await;
        let at = processes.iter().position(|process| id_of(&idle, process) == lost).expect("home is one of them");
        processes[at].kill();

        let busy = attach(&processes).await;
        let repair = RepairSpec { lost: Some(lost), drop_lost: false };
        let report = within(busy.host.fleet().repair(&repair, quiet())).await.unwrap();
        assert_eq!((report.homes.as_slice(), report.lost.len()), (&["main".to_owned()][..], 0), "{report:?}");
        within(load(&busy, LoadSpec { mode: LoadMode::Append, ..spec("lineitem", "vortex") })).await.unwrap();
        processes[at].restart();
        until("it takes itself for home", async || home_told_by(&idle, &processes[at]).await == Some(lost)).await;
        until("the idle host sees the new rows", async || ask(&idle, SUMS).await[0][0] == (2 * LINEITEM_ROWS).to_string())
            .await;
        assert_ne!(home(&idle).await, lost);

        // Once the host that goes on writing has met it, it knows.
        assert_eq!(home_told_by(&idle, &processes[at]).await, Some(lost), "reading tells nobody");
        until("it knows of the new home", async || {
            let replace = LoadSpec { mode: LoadMode::Replace, partitions: Some(1), ..spec("region", "vortex") };
            within(load(&busy, replace)).await.unwrap();
            home_told_by(&idle, &processes[at]).await.is_some_and(|home| home != lost)
        })
        .await;
    });
}
