//! Arrays: servers in front of drives that hosts see as drives, one behind the other. The same answers whatever is handed back on
//! either side of them, and whatever fails below.

use std::time::Duration;

use futures::StreamExt;
use pithead_e2e::tpch::{answers, load_tpch, queries, spec};
use pithead_e2e::{DriveProcess, Mode, Setup, block_on, collect, load, load_all, row_difference, run_suites};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::{LoadMode, LoadSpec, Session};
use pithead_model::{Blame, Level};
use tempfile::TempDir;

/// More than any limit that a host or drive has for a peer that is silent.
const LIMIT: Duration = Duration::from_secs(90);
const SUMS: &str = "SELECT count(*), sum(l_orderkey), sum(l_quantity) FROM lineitem";
const ROWS: &str = "SELECT l_orderkey, l_comment, l_extendedprice FROM lineitem WHERE l_quantity < 49";
/// Who decides how far slices are taken, and where.
const LEVELS: [&[&str]; 7] = [
    &[UNHELPED],
    &[UNHELPED, "SET pithead.level = 3"],
    &[UNHELPED, "SET pithead.level = 2"],
    &[UNHELPED, "SET pithead.level = 0"],
    &[UNHELPED, "SET pithead.level = 'random:11'"],
    &[UNHELPED, "SET pithead.pushdown = off"],
    &[UNHELPED, "SET pithead.level = 1"],
];
/// So that each level is run, not answered from what another gave.
const UNHELPED: &str = "SET pithead.summary_cache = off";

async fn tpch_at_all_levels(mode: Mode, levels: &[&'static [&'static str]]) {
    let mut setup = Setup::new(mode).await;
    load_tpch(&setup).await;
    let mut told = Vec::new();
    for level in levels {
        setup.mode.settings = level;
        let session = setup.session().await;
        for (name, query) in queries() {
            match collect(&session, &query).await {
                Ok(table) => {
                    told.extend(row_difference(&table, &answers()[&name]).map(|what| format!("{level:?} {name}: {what}")));
                }
                Err(fault) => told.push(format!("{level:?} {name}: {}: {fault}", fault.blame)),
            }
        }
    }
    setup.shutdown().await;
    assert!(told.is_empty(), "{}: {} differences\n{}", mode.name, told.len(), told.join("\n"));
}

#[test]
fn tpch_through_an_array() {
    block_on(tpch_at_all_levels(Mode::ARRAYS, &LEVELS));
}

#[test]
fn tpch_through_an_array_of_arrays() {
    block_on(tpch_at_all_levels(Mode::ARRAYS_OF_ARRAYS, &[LEVELS[0], LEVELS[3], LEVELS[4], LEVELS[5], LEVELS[6]]));
}

async fn suites_at_all_levels(mode: Mode, levels: &[&'static [&'static str]]) {
    let mut setup = Setup::new(mode).await;
    let mut failures = load_all(&setup).await;
    for level in levels {
        setup.mode.settings = level;
        failures.extend(run_suites(&setup).await.into_iter().map(|told| format!("{level:?} {told}")));
    }
    setup.shutdown().await;
    assert!(failures.is_empty(), "{}: {} failures\n{}", mode.name, failures.len(), failures.join("\n"));
}

#[test]
fn suites_through_an_array() {
    block_on(suites_at_all_levels(Mode::ARRAYS, &[LEVELS[0], LEVELS[3]]));
}

#[test]
fn suites_through_an_array_of_arrays() {
    block_on(suites_at_all_levels(Mode::ARRAYS_OF_ARRAYS, &[LEVELS[0], LEVELS[4]]));
}

/// Both ways are taken, and the host can tell: what an array merges is one round over all slices of a partition, and what it relays
/// are the rounds of its drives, at the level that was asked for.
#[test]
fn partial_results_are_merged_and_rows_are_relayed() {
    block_on(async {
        let setup = Setup::new(Mode::ARRAYS).await;
        load(&setup.engine, spec("lineitem", "vortex")).await.unwrap();
        let session = setup.session().await;
        // Each query asks the drives.
        collect(&session, "SET pithead.summary_cache = off").await.unwrap();
        let partials = "SELECT l_returnflag, count(*), avg(l_quantity) FROM lineitem GROUP BY l_returnflag";
        let merged = rounds(&session, partials).await;
        assert!(merged.len() == 2 && merged.iter().all(|(level, slices)| *level == Level::Whole && *slices > 4), "{merged:?}");
        let relayed = rounds(&session, ROWS).await;
        assert!(relayed.len() > 4, "{relayed:?}");
        collect(&session, "SET pithead.level = 0").await.unwrap();
        let handed_back = rounds(&session, partials).await;
        assert!(handed_back.iter().all(|(level, slices)| *level == Level::Bytes && *slices == 1), "{handed_back:?}");
        // Each slice was answered for once.
        let slices = |rounds: &[(Level, u32)]| rounds.iter().map(|(_, slices)| slices).sum::<u32>();
        assert_eq!((slices(&merged), slices(&relayed)), (slices(&handed_back), slices(&handed_back)));
        setup.shutdown().await;
    });
}

/// Level and number of slices of each round of a query's sub-plans.
async fn rounds(session: &Session, statement: &str) -> Vec<(Level, u32)> {
    let mut answer = session.run(statement).await.unwrap();
    while let Some(batch) = answer.rows.next().await {
        batch.unwrap();
    }
    let sessions = answer.profile.sub_plans().into_iter().flat_map(|sub_plan| sub_plan.sessions());
    let rounds = sessions.flat_map(|session| session.annotations);
    rounds.map(|round| (round.level, round.slices.iter().map(|span| span.count).sum())).collect()
}

#[test]
fn loads_appends_replacements_and_drops_reach_every_drive() {
    block_on(async {
        let setup = Setup::new(Mode::ARRAYS).await;
        let session = setup.session().await;
        let count = async || collect(&session, "SELECT count(*) FROM nation").await.map(|table| table.rows[0][0].clone());
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        assert_eq!(count().await.unwrap(), "25");
        let append = || LoadSpec { mode: LoadMode::Append, ..spec("nation", "vortex") };
        load(&setup.engine, append()).await.unwrap();
        load(&setup.engine, append()).await.unwrap();
        assert_eq!(count().await.unwrap(), "75");
        load(&setup.engine, LoadSpec { mode: LoadMode::Replace, ..spec("nation", "vortex") }).await.unwrap();
        assert_eq!(count().await.unwrap(), "25");
        collect(&session, "DROP TABLE nation").await.unwrap();
        assert_eq!(count().await.unwrap_err().blame, Blame::User);
        // Nothing is left at any drive, once nobody reads it.
        let mut stored = u64::MAX;
        for _ in 0..200 {
            let statuses = setup.engine.host.fleet().status().await;
            stored = statuses.into_iter().map(|(_, status)| status.unwrap().slices).sum();
            if stored == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(stored, 0);
        setup.shutdown().await;
    });
}

async fn attach(processes: &[DriveProcess]) -> Engine {
    let addresses = processes.iter().map(|process| process.address().to_owned()).collect();
    let engine = tokio::time::timeout(LIMIT, connect(&Target::Drives(addresses), &EmbedOptions::default())).await;
    engine.expect("an answer within the limit").unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

/// One drive below an array dies while rows are on their way through it.
#[test]
fn a_drive_that_dies_below_an_array_never_shortens_an_answer() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut drives = DriveProcess::start_many(directory.path(), 2, &["--link", "20mbit"]);
        let arrays = [DriveProcess::start_array(&directory.path().join("array"), &drives, &[])];
        let engine = attach(&arrays).await;
        load(&engine, spec("lineitem", "vortex")).await.unwrap();
        for statement in [ROWS, SUMS] {
            let session = engine.host.session();
            // What was kept of an earlier answer would need no drive.
            collect(&session, "SET pithead.summary_cache = off").await.unwrap();
            let whole = collect(&session, SUMS).await.unwrap();
            let mut answer = session.run(statement).await.unwrap();
            let mut rows = 0;
            if statement == ROWS {
                rows += answer.rows.next().await.unwrap().unwrap().num_rows();
            }
            drives[1].kill();
            let fault = loop {
                match tokio::time::timeout(LIMIT, answer.rows.next()).await.expect("an answer or an error within the limit") {
                    Some(Ok(batch)) => rows += batch.num_rows(),
                    Some(Err(fault)) => break Some(fault),
                    None => break None,
                }
            };
            let fault = fault.unwrap_or_else(|| panic!("{statement}: {rows} rows came without a drive"));
            assert_eq!(fault.blame, Blame::Device, "{fault}");
            drives[1].restart();
            // The array goes on with the drive that is there again.
            let mut again = collect(&session, SUMS).await;
            for _ in 0..100 {
                if again.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                again = collect(&session, SUMS).await;
            }
            assert_eq!(again.unwrap().rows, whole.rows);
        }
    });
}

/// A copy on a plain drive and one on an array are the same to a host: when a drive of the array dies, the other copy goes on, and
/// runs are copied both ways.
#[test]
fn copies_lie_on_arrays_and_drives_alike() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut drives = DriveProcess::start_many(directory.path(), 2, &[]);
        let top = [
            DriveProcess::start_array(&directory.path().join("array"), &drives, &[]),
            DriveProcess::start(&directory.path().join("plain"), &[]),
        ];
        let engine = attach(&top).await;
        load(&engine, LoadSpec { copies: Some(2), partitions: Some(2), ..spec("lineitem", "vortex") }).await.unwrap();
        let session = engine.host.session();
        let whole = collect(&session, SUMS).await.unwrap();
        // Reads every copy, and compares them byte for byte.
        let report =
            engine.host.fleet().repair(&pithead_fleet::RepairSpec::default(), std::sync::Arc::new(|_| ())).await.unwrap();
        assert!(report.runs_checked >= 4 && report.runs_rewritten == 0 && report.damaged.is_empty(), "{report:?}");
        drives[0].kill();
        for level in ["auto", "0"] {
            collect(&session, &format!("SET pithead.level = {level}")).await.unwrap();
            let answer = tokio::time::timeout(LIMIT, collect(&session, SUMS)).await.expect("an answer within the limit");
            assert_eq!(answer.unwrap().rows, whole.rows);
        }
    });
}

/// An array has rows of its own on the drives beneath it, so no host takes one of them beside it. It says which of them is away.
#[test]
fn a_drive_beneath_an_array_is_not_added_and_is_missed() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut drives = DriveProcess::start_many(directory.path(), 2, &[]);
        let arrays = [DriveProcess::start_array(&directory.path().join("array"), &drives, &[])];
        let engine = attach(&arrays).await;
        load(&engine, spec("nation", "vortex")).await.unwrap();
        let fault = engine.add_drive(drives[1].address(), std::sync::Arc::new(|_| ())).await.unwrap_err();
        assert!(fault.blame == Blame::User && fault.message.contains("stands beneath array"), "{fault}");
        drives[1].kill();
        let (_, status) = engine.host.fleet().status().await.remove(0);
        let away = status.unwrap().away;
        assert!(away.len() == 1 && away[0].message.contains(drives[1].address()), "{away:?}");
    });
}

#[test]
fn an_array_names_what_is_wrong_with_its_drives() {
    let directory = TempDir::new().unwrap();
    let drives = DriveProcess::start_many(directory.path(), 3, &[]);
    let data = directory.path().join("array");
    drop(DriveProcess::start_array(&data, &drives[..2], &[]));
    let refused = |given: &[&DriveProcess]| {
        let addresses: Vec<&str> = given.iter().map(|drive| drive.address()).collect();
        let output = std::process::Command::new(pithead_e2e::pithead())
            .args(["array", "serve", "--listen", "127.0.0.1:0", "--drives", &addresses.join(","), "--data"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let other = refused(&[&drives[0], &drives[2]]);
    assert!(other.contains("the array has 2 drives") && other.contains("hint:"), "{other}");
    assert!(refused(&[&drives[0]]).contains("expected 2 to 64 drives"));
}
