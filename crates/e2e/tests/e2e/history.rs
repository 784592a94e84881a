//! Versions of a domain: read, listed, restored, kept for their time, and forgotten; under kills, moves, lost copies and other hosts.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pithead_e2e::{DriveProcess, block_on, collect, pithead, refusal};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_fleet::AsOf;
use pithead_host::Session;
use pithead_model::{Blame, Fault};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const KEEPS: [&str; 4] = ["--history", "1h", "--collect-after", "1"];

async fn attach(processes: &[DriveProcess]) -> Engine {
    let addresses = processes.iter().map(|process| process.address().to_owned()).collect();
    connect(&Target::Drives(addresses), &EmbedOptions::default()).await.unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

async fn ask(session: &Session, sql: &str) -> Vec<Vec<String>> {
    collect(session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}")).rows
}

async fn one(session: &Session, sql: &str) -> String {
    ask(session, sql).await[0].join(" ")
}

async fn run(session: &Session, sql: &str) {
    session.run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
}

async fn version(engine: &Engine) -> u64 {
    let snapshot = engine.host.fleet().snapshot().await.unwrap();
    let (_, manifest) = snapshot.domains().find(|(name, _)| *name == "main").expect("the domain is there");
    manifest.unwrap().version
}

/// What the drives store, slices of all.
async fn slices(engine: &Engine) -> u64 {
    engine.host.fleet().status().await.into_iter().map(|(_, status)| status.unwrap().slices).sum()
}

fn command(processes: &[DriveProcess], arguments: &[&str]) -> Output {
    let addresses: Vec<&str> = processes.iter().map(DriveProcess::address).collect();
    Command::new(pithead()).args(arguments).args(["--drives", &addresses.join(",")]).output().expect("pithead runs")
}

fn told(processes: &[DriveProcess], arguments: &[&str]) -> String {
    let output = command(processes, arguments);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// `t` with the versions 1 to 4: 1,000 rows, 500 more, every `v` one more, and a few rows deleted.
async fn made(folder: &Path, drives: usize, arguments: &[&str]) -> (Vec<DriveProcess>, Engine) {
    let processes = DriveProcess::start_many(folder, drives, arguments);
    let engine = attach(&processes).await;
    let session = engine.host.session();
    run(&session, "CREATE TABLE t AS SELECT value AS id, 0 AS v FROM range(1000)").await;
    run(&session, "INSERT INTO t SELECT value + 1000, 5 FROM range(500)").await;
    run(&session, "UPDATE t SET v = v + 1").await;
    run(&session, "DELETE FROM t WHERE id % 100 = 0").await;
    assert_eq!(version(&engine).await, 4);
    (processes, engine)
}

const SUMS: [&str; 4] = ["1000 0", "1500 2500", "1500 4000", "1485 3960"];

async fn check_versions(session: &Session) {
    for (number, expected) in (1..).zip(SUMS) {
        let sql = format!("SELECT count(*), sum(v) FROM t AS OF VERSION {number}");
        assert_eq!(one(session, &sql).await, expected, "version {number}");
    }
    assert_eq!(one(session, "SELECT count(*), sum(v) FROM t").await, SUMS[3]);
}

#[test]
fn every_version_is_read_again_and_after_kill_9() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let (mut processes, engine) = made(folder.path(), 2, &KEEPS).await;
        let session = engine.host.session();
        // Twice, so that what drives and host keep of one version meets the others.
        check_versions(&session).await;
        check_versions(&session).await;
        run(&session, "SET pithead.pushdown = off").await;
        check_versions(&session).await;
        engine.shutdown().await;
        processes.iter_mut().for_each(DriveProcess::restart);
        let engine = attach(&processes).await;
        check_versions(&engine.host.session()).await;
        engine.shutdown().await;
    });
}

#[test]
fn two_versions_of_one_table_are_two_tables() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let (_processes, engine) = made(folder.path(), 2, &KEEPS).await;
        let session = engine.host.session();
        for (sql, expected) in [
            ("SELECT count(*) FROM t JOIN t AS OF VERSION 3 AS old USING (id) WHERE t.v = old.v", "1485"),
            ("SELECT count(*) FROM t AS OF VERSION 2 a JOIN t AS OF VERSION 3 b ON a.id = b.id AND a.v + 1 = b.v", "1500"),
            ("SELECT count(*) FROM t AS OF VERSION 3 AS old WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.id = old.id)", "15"),
            ("SELECT count(*) FROM (FROM t AT (VERSION => 3) EXCEPT FROM t)", "15"),
            ("WITH old AS (FROM t VERSION AS OF 1) SELECT count(*), (SELECT count(*) FROM t) FROM old", "1000 1485"),
            ("SELECT sum(n) FROM (SELECT v, count(*) AS n FROM t AS OF VERSION 1 GROUP BY v)", "1000"),
            ("SELECT count(DISTINCT a.v + b.v) FROM t AS OF VERSION 1 a, t AS OF VERSION 2 b WHERE a.id = b.id", "1"),
            ("SELECT max(t.id) FROM main.t FOR VERSION AS OF 1", "999"),
            ("SELECT count(*) FROM t AS OF VERSION 4 a JOIN t b USING (id)", "1485"),
        ] {
            assert_eq!(one(&session, sql).await, expected, "{sql}");
            assert_eq!(one(&session, sql).await, expected, "{sql}, again");
        }
        run(&session, "CREATE TABLE kept AS SELECT * FROM t AS OF VERSION 1").await;
        run(&session, "INSERT INTO kept SELECT * FROM t AS OF VERSION 3 WHERE id >= 1000").await;
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM kept").await, "1500 3000");
        engine.shutdown().await;
    });
}

#[test]
fn times_find_versions() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let (_processes, engine) = made(folder.path(), 1, &KEEPS).await;
        let session = engine.host.session();
        let versions = engine.host.fleet().history("main").await.unwrap();
        assert!(versions.windows(2).all(|pair| pair[0].time_ms < pair[1].time_ms), "{versions:?}");
        for told in &versions {
            let at = pithead_fleet::time_text(told.time_ms);
            let at = at.trim_end_matches(" UTC");
            for form in [format!("AS OF TIMESTAMP '{at}'"), format!("FOR SYSTEM_TIME AS OF TIMESTAMP '{at}'")] {
                let sql = format!("SELECT count(*), sum(v) FROM t {form}");
                assert_eq!(one(&session, &sql).await, SUMS[told.version as usize - 1], "{sql}");
            }
        }
        assert_eq!(one(&session, "SELECT count(*) FROM t AT (TIMESTAMP => now())").await, "1485");
        let refused = |sql: &'static str| {
            let session = &session;
            async move { refusal(session, sql).await }
        };
        for (sql, part) in [
            ("SELECT 1 FROM t AS OF VERSION 9", "no version 9; versions 1"),
            ("SELECT 1 FROM t AS OF VERSION 0", "no version 0"),
            ("SELECT 1 FROM t AS OF TIMESTAMP '2001-01-01'", "is not known; versions 1"),
            ("SELECT 1 FROM t AS OF TIMESTAMP '2101-01-01'", "yet to come"),
            ("SELECT 1 FROM u AS OF VERSION 2", "no dataset main.u"),
            ("UPDATE t AS OF VERSION 2 SET v = 1", "changed as it is now"),
            ("CREATE VIEW w AS FROM t AS OF VERSION 2", "a view reads tables as they are now"),
        ] {
            let fault: Fault = refused(sql).await;
            assert!(fault.to_string().contains(part), "{sql}: {fault}");
        }
        engine.shutdown().await;
    });
}

#[test]
fn what_was_dropped_is_restored_by_another_host() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let (mut processes, engine) = made(folder.path(), 2, &KEEPS).await;
        run(&engine.host.session(), "DROP TABLE t").await;
        engine.shutdown().await;
        processes.iter_mut().for_each(DriveProcess::restart);
        let said = told(&processes, &["restore", "main.t", "--to", "2"]);
        assert!(said.contains("restored main.t from version 2, as version 6; changed: t"), "{said}");
        assert!(told(&processes, &["restore", "main", "--to", "2"]).contains("nothing to do"));
        let engine = attach(&processes).await;
        let session = engine.host.session();
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM t").await, SUMS[1]);
        run(&session, "INSERT INTO t VALUES (7, 7)").await;
        check_log(&processes);
        run(&session, "RESTORE DOMAIN main TO VERSION AS OF 3").await;
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM t").await, SUMS[2]);
        // Drives look for what nothing names meanwhile.
        tokio::time::sleep(Duration::from_secs(3)).await;
        processes.iter_mut().for_each(DriveProcess::restart);
        let fresh = attach(&processes).await;
        assert_eq!(one(&fresh.host.session(), "SELECT count(*), sum(v) FROM t").await, SUMS[2]);
        assert_eq!(one(&fresh.host.session(), "SELECT count(*) FROM t AS OF VERSION 7").await, "1501");
        engine.shutdown().await;
        fresh.shutdown().await;
    });
}

fn check_log(processes: &[DriveProcess]) {
    let lines = told(processes, &["log", "main", "--json"]);
    let changes: Vec<(u64, String, u64, u64)> = lines
        .lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let number = |name: &str| entry[name].as_u64().unwrap_or_default();
            let change = entry["change"].as_str().unwrap_or_default().to_owned();
            (number("version"), change, number("rows_added"), number("rows_removed"))
        })
        .collect();
    let expected = [
        (7, "appended", 1, 0),
        (6, "created", 1_500, 0),
        (5, "dropped", 0, 1_485),
        (4, "rewritten", 0, 15),
        (3, "rewritten", 0, 0),
        (2, "appended", 500, 0),
        (1, "created", 1_000, 0),
    ];
    assert_eq!(changes, expected.map(|(version, change, added, removed)| (version, change.to_owned(), added, removed)));
}

#[test]
fn space_comes_back_when_versions_are_over_or_forgotten() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let (processes, engine) = made(folder.path(), 2, &["--history", "1h", "--collect-after", "1"]).await;
        let session = engine.host.session();
        run(&session, "DROP TABLE t").await;
        assert!(slices(&engine).await > 0, "older versions hold it");
        let said = told(&processes, &["log", "main", "--forget"]);
        assert!(said.contains("forgot 4 versions"), "{said}");
        gone(&engine).await;
        let fault = refusal(&session, "SELECT 1 FROM t AS OF VERSION 2").await;
        assert!(fault.message.contains("version 2 of domain main is not kept any more; only the newest version, 5"), "{fault}");

        run(&session, "ALTER DOMAIN main SET HISTORY '1s'").await;
        run(&session, "CREATE TABLE t AS SELECT 1 AS a").await;
        run(&session, "DROP TABLE t").await;
        assert!(told(&processes, &["log", "main", "--keep", "2s"]).contains("version 9"));
        gone(&engine).await;
        // Slices may go before the versions do that named them.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let fault = refusal(&session, "RESTORE t TO VERSION AS OF 7").await;
        assert!(fault.message.contains("not kept any more"), "{fault}");
        engine.shutdown().await;
    });
}

async fn gone(engine: &Engine) {
    let start = Instant::now();
    while slices(engine).await > 0 {
        assert!(start.elapsed() < LIMIT, "{} slices stay", slices(engine).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn versions_are_read_wherever_rows_have_gone() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let (processes, engine) = made(folder.path(), 2, &KEEPS).await;
        let session = engine.host.session();
        let home = engine.host.fleet().snapshot().await.unwrap();
        let home = home.domains().next().unwrap().1.unwrap().home().unwrap();
        // Everything of the home moves, the home, too.
        engine.host.fleet().drain(home, Arc::new(|_| ())).await.unwrap();
        check_versions(&session).await;
        run(&session, "RESTORE t TO VERSION AS OF 1").await;
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM t").await, SUMS[0]);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM t").await, SUMS[0]);
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM t AS OF VERSION 3").await, SUMS[2]);
        engine.shutdown().await;
        drop(processes);
    });
}

/// A regression: a drive that had left the domain took its newest version for the one that was there ever since.
#[test]
fn a_drive_that_left_does_not_say_what_was_there_later() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(folder.path(), 2, &KEEPS);
        let engine = attach(&processes).await;
        let (session, fleet) = (engine.host.session(), engine.host.fleet());
        run(&session, "CREATE TABLE t AS SELECT 1 AS k").await;
        let snapshot = fleet.snapshot().await.unwrap();
        let home = snapshot.domains().next().unwrap().1.unwrap().home().unwrap();
        let leaving = fleet.drives().iter().map(|drive| drive.id()).find(|id| *id != home).unwrap();
        fleet.drain(leaving, Arc::new(|_| ())).await.unwrap();
        fleet.remove(leaving).await.unwrap();
        run(&session, "INSERT INTO t VALUES (2)").await;
        let then = fleet.snapshot().await.unwrap().domains().next().unwrap().1.unwrap().time_ms;
        run(&session, "INSERT INTO t VALUES (3)").await;

        let name = "main.t".parse().unwrap();
        let snapshot = fleet.snapshot().await.unwrap();
        let found = fleet.as_of(&snapshot, &name, AsOf::Time(then)).await.unwrap();
        assert_eq!(found.dataset().rows(), 2);
        fleet.forget_history("main").await.unwrap();
        let fault = fleet.as_of(&snapshot, &name, AsOf::Time(then)).await.unwrap_err();
        assert!(fault.message.contains("is not known"), "{fault}");
        engine.shutdown().await;
        drop(processes);
    });
}

#[test]
fn a_lost_home_takes_no_version_away_that_others_have() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(folder.path(), 2, &KEEPS);
        let file = folder.path().join("t.csv");
        std::fs::write(&file, format!("id,v\n{}", (0..1000).map(|id| format!("{id},0\n")).collect::<String>())).unwrap();
        told(&processes, &["load", "t", file.to_str().unwrap(), "--copies", "2", "--quiet"]);
        let engine = attach(&processes).await;
        let session = engine.host.session();
        run(&session, "UPDATE t SET v = 3").await;
        run(&session, "DROP TABLE t").await;
        let snapshot = engine.host.fleet().snapshot().await.unwrap();
        let home = snapshot.domains().next().unwrap().1.unwrap().home().unwrap();
        let label = engine.host.fleet().drives().iter().find(|drive| drive.id() == home).unwrap().label().to_owned();
        processes.iter_mut().find(|process| label.contains(process.address())).unwrap().kill();
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM t AS OF VERSION 1").await, "1000 0");
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM t AS OF VERSION 2").await, "1000 3000");
        // Nobody changes a domain whose home is away.
        assert_eq!(refusal(&session, "RESTORE t TO VERSION AS OF 2").await.blame, Blame::Device);
        let spec = pithead_fleet::RepairSpec { lost: Some(home), drop_lost: true };
        engine.host.fleet().repair(&spec, Arc::new(|_| ())).await.unwrap();
        run(&session, "RESTORE t TO VERSION AS OF 2").await;
        assert_eq!(one(&session, "SELECT count(*), sum(v) FROM t").await, "1000 3000");
        engine.shutdown().await;
    });
}

#[test]
fn restores_and_other_changes_at_once_lose_nothing() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let (processes, engine) = made(folder.path(), 2, &KEEPS).await;
        let other = attach(&processes).await;
        let reader = engine.host.session();
        let restoring = async {
            for round in 0..6 {
                let to = AsOf::Version(1 + round % 3);
                match other.host.fleet().restore("main", Some("t"), to).await {
                    Ok(restored) => assert_eq!(restored.from, 1 + round % 3),
                    Err(fault) => assert_eq!(fault.blame, Blame::Conflict, "{fault}"),
                }
            }
        };
        let writing = async {
            let session = engine.host.session();
            for round in 0..6 {
                let sql = format!("INSERT INTO t SELECT {round} * 10 + 100000 + value, 0 FROM range(10)");
                if let Err(fault) = session.run(&sql).await {
                    assert_eq!(fault.blame, Blame::Conflict, "{fault}");
                }
            }
        };
        let reading = async {
            for _ in 0..10 {
                for (number, expected) in (1..).zip(SUMS) {
                    let sql = format!("SELECT count(*), sum(v) FROM t AS OF VERSION {number}");
                    assert_eq!(one(&reader, &sql).await, expected, "version {number}");
                }
                let whole = "SELECT count(*) % 10 FROM t WHERE id >= 100000";
                assert_eq!(one(&reader, whole).await, "0", "an insert is there as a whole");
            }
        };
        tokio::join!(restoring, writing, reading);
        other.host.fleet().restore("main", None, AsOf::Version(4)).await.unwrap();
        check_versions(&reader).await;
        other.shutdown().await;
        engine.shutdown().await;
    });
}

#[test]
fn an_array_keeps_no_versions_and_says_so() {
    block_on(async {
        let folder = TempDir::new().unwrap();
        let below = DriveProcess::start_many(folder.path(), 2, &KEEPS);
        let array = [DriveProcess::start_array(&folder.path().join("array"), &below, &[])];
        let engine = attach(&array).await;
        let session = engine.host.session();
        run(&session, "CREATE TABLE t AS SELECT value AS id FROM range(100)").await;
        run(&session, "INSERT INTO t VALUES (7)").await;
        let fault = refusal(&session, "SELECT 1 FROM t AS OF VERSION 1").await;
        assert!(fault.message.contains("only the newest version, 2, is kept"), "{fault}");
        assert_eq!(one(&session, "SELECT count(*) FROM t AS OF VERSION 2").await, "101");
        run(&session, "DROP TABLE t").await;
        gone(&engine).await;
        engine.shutdown().await;
    });
}
