//! Tables and views that get other names: by one session, and by several at once.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use pithead_e2e::{DriveProcess, Mode, Setup, block_on, collect, pithead, refusal};
use pithead_embed::Engine;
use pithead_host::{Parameters, Session, Statement};
use pithead_model::{Blame, DatasetName, FaultKind};
use tempfile::TempDir;

use crate::kills::{attach, kill_at_random};

/// Times that a drive is killed.
const KILLS: u64 = 12;

const MADE: &str = "CREATE TABLE t PARTITION BY hash(k) ORDER BY k WITH (copies = 2, slice_rows = 100) AS \
                    SELECT unnest(range(1000)) AS k, CAST(unnest(range(1000)) % 10 AS INTEGER) AS v";

async fn run(session: &Session, sql: &str) {
    session.run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
}

async fn one(session: &Session, sql: &str) -> String {
    let table = collect(session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    table.rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ")
}

async fn names(setup: &Setup) -> Vec<String> {
    let datasets = setup.engine.host.fleet().datasets().await.expect("the datasets");
    datasets.into_iter().map(|(name, _)| name.dataset).collect()
}

async fn batches(statement: &Statement, session: &Session) -> Vec<RecordBatch> {
    let answer = statement.run(session).await.expect("an answer");
    answer.rows.try_collect().await.expect("its rows")
}

#[test]
fn rows_layout_and_columns_go_with_the_name() {
    block_on(async {
        for mode in [Mode::FOUR_PROCESSES, Mode::FOUR_HERE, Mode::ARRAYS] {
            let setup = Setup::new(mode).await;
            let session = setup.session().await;
            run(&session, MADE).await;
            // Rows that are marked, columns that are read otherwise than they are stored, and two runs.
            run(&session, "DELETE FROM t WHERE v = 3").await;
            run(&session, "ALTER TABLE t RENAME COLUMN v TO w, ADD COLUMN d INTEGER DEFAULT 5").await;
            run(&session, "INSERT INTO t VALUES (2000, 1, 6)").await;
            let ask = |name: &str| format!("SELECT count(*), sum(k), sum(w), sum(d) FROM {name}");
            let before = one(&session, &ask("t")).await;
            let of = async |name: &str| {
                let snapshot = setup.engine.host.fleet().snapshot().await.expect("a snapshot");
                snapshot.dataset(&name.parse::<DatasetName>().expect("a name")).expect("the table").1.clone()
            };
            let was = of("t").await;
            run(&session, "ALTER TABLE t RENAME TO u").await;
            let is = of("u").await;
            assert_eq!((&is.partitions, &is.schema, &is.sort), (&was.partitions, &was.schema, &was.sort), "{}", mode.name);
            assert_eq!((one(&session, &ask("u")).await, names(&setup).await), (before.clone(), vec!["u".to_owned()]));
            assert_eq!(refusal(&session, "SELECT * FROM t").await.kind, FaultKind::NoTable);

            // It is a table like any other, and so is a new one of the old name.
            run(&session, "INSERT INTO u VALUES (2001, 1, 6)").await;
            run(&session, "DELETE FROM u WHERE k = 2001").await;
            run(&session, "CREATE TABLE t AS SELECT 7 AS k").await;
            assert_eq!((one(&session, &ask("u")).await, one(&session, "SELECT k FROM t").await), (before.clone(), "7".into()));
            run(&session, "DROP TABLE t").await;
            run(&session, "ALTER TABLE IF EXISTS main.u RENAME TO main.t").await;
            assert_eq!((one(&session, &ask("t")).await, names(&setup).await), (before, vec!["t".to_owned()]));
            setup.shutdown().await;
        }
    });
}

/// As dbt replaces a table.
#[test]
fn a_table_takes_the_place_of_another_one() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let session = setup.session().await;
        run(&session, "ALTER DOMAIN main SET HISTORY '1h'").await;
        run(&session, "CREATE TABLE t AS SELECT 1 AS v").await;
        let prepared = session.prepare("SELECT sum(v) AS v FROM t", &Parameters::default()).await.expect("a plan");
        let sum = async || {
            let batches = batches(&prepared, &session).await;
            arrow::util::display::array_value_to_string(batches[0].column(0), 0).expect("a value")
        };
        assert_eq!(sum().await, "1");
        for round in 2..5 {
            run(&session, &format!("CREATE TABLE t__dbt_tmp AS SELECT {round} AS v")).await;
            run(&session, "ALTER TABLE t RENAME TO t__dbt_backup").await;
            assert_eq!(prepared.run(&session).await.err().map(|fault| fault.kind), Some(FaultKind::NoTable));
            run(&session, "ALTER TABLE t__dbt_tmp RENAME TO t").await;
            run(&session, "DROP TABLE IF EXISTS t__dbt_backup CASCADE").await;
            assert_eq!(sum().await, round.to_string());
            assert_eq!(names(&setup).await, ["t"]);
        }
        let log = collect(&session, "SHOW LOG").await.expect("the log");
        let told: Vec<String> = log.rows.iter().take(6).map(|row| format!("{} {}", row[2], row[3])).collect();
        let expected = [
            "t__dbt_backup dropped",
            "t renamed",
            "t__dbt_tmp renamed away",
            "t renamed away",
            "t__dbt_backup renamed",
            "t__dbt_tmp created",
        ];
        assert_eq!(told, expected);
        // What was there is under the name that it had then.
        let version: u64 = log.rows[5][0].parse().expect("a version");
        assert_eq!(one(&session, &format!("SELECT v FROM t__dbt_tmp AS OF VERSION {version}")).await, "4");
        run(&session, &format!("RESTORE t__dbt_tmp TO VERSION AS OF {version}")).await;
        assert_eq!(one(&session, "SELECT v FROM t__dbt_tmp").await, "4");
        setup.shutdown().await;
    });
}

#[test]
fn of_two_hosts_that_rename_one_table_one_does() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let other = setup.connect_again().await;
        let (one_session, two, three) = (setup.session().await, other.host.session(), other.host.session());
        run(&one_session, MADE).await;
        let mut rows = 1000;
        for round in 0..6 {
            let (here, there) = (format!("a{round}"), format!("b{round}"));
            let (to_here, to_there) = (format!("ALTER TABLE t RENAME TO {here}"), format!("ALTER TABLE t RENAME TO {there}"));
            let insert = format!("INSERT INTO t VALUES ({}, 1)", 5000 + round);
            let (first, second, inserted) = tokio::join!(one_session.run(&to_here), two.run(&to_there), three.run(&insert));
            assert!(first.is_ok() != second.is_ok(), "round {round}: {:?}, {:?}", first.err(), second.err());
            let name = if first.is_ok() { here } else { there };
            for fault in [first.err(), second.err(), inserted.as_ref().err().cloned()].into_iter().flatten() {
                assert!(fault.blame == Blame::Conflict || fault.kind == FaultKind::NoTable, "round {round}: {fault}");
            }
            rows += u64::from(inserted.is_ok());
            assert_eq!(names(&setup).await, [name.as_str()]);
            assert_eq!(one(&one_session, &format!("SELECT count(*) FROM {name}")).await, rows.to_string(), "round {round}");
            run(&two, &format!("ALTER TABLE {name} RENAME TO t")).await;
        }
        other.shutdown().await;
        setup.shutdown().await;
    });
}

#[test]
fn what_cannot_have_a_name_keeps_its_own() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        for sql in ["CREATE TABLE t AS SELECT 1 AS a", "CREATE TABLE u AS SELECT 2 AS a", "CREATE VIEW v AS SELECT a FROM t"] {
            run(&session, sql).await;
        }
        for (sql, part) in [
            ("ALTER TABLE t RENAME TO u", "dataset main.u exists already"),
            ("ALTER TABLE t RENAME TO t", "dataset main.t exists already"),
            ("ALTER TABLE t RENAME TO v", "view main.v exists already"),
            ("ALTER VIEW v RENAME TO u", "dataset main.u exists already"),
            ("ALTER TABLE v RENAME TO v", "view main.v exists already"),
            ("ALTER TABLE t RENAME TO lab.t", "stays in its domain"),
            ("ALTER VIEW t RENAME TO w", "is a table, and no view"),
            ("ALTER TABLE nothing RENAME TO w", "no dataset main.nothing"),
            ("ALTER VIEW nothing RENAME TO w", "no dataset main.nothing"),
            ("ALTER TABLE t RENAME TO w, ADD COLUMN b INT", "beside other changes"),
            ("ALTER TABLE t RENAME TO \"a/b\"", "is not a name"),
        ] {
            let fault = refusal(&session, sql).await;
            assert!(fault.blame != Blame::Bug && fault.message.contains(part), "{sql}: {fault}");
        }
        run(&session, "ALTER TABLE IF EXISTS nothing RENAME TO w").await;
        run(&session, "ALTER VIEW v RENAME TO w").await;
        assert_eq!(one(&session, "SELECT a FROM w").await, "1");
        assert_eq!(refusal(&session, "SELECT a FROM v").await.kind, FaultKind::NoTable);
        run(&session, "ALTER TABLE w RENAME TO v").await;
        run(&session, "ALTER TABLE t RENAME TO x").await;
        assert!(refusal(&session, "SELECT a FROM v").await.message.contains("main.t"), "the view reads what it says");
        run(&session, "TRUNCATE x, u RESTART IDENTITY CASCADE").await;
        assert_eq!(one(&session, "SELECT (SELECT count(*) FROM x), (SELECT count(*) FROM u)").await, "0 0");
        run(&session, "INSERT INTO x VALUES (3)").await;
        assert!(refusal(&session, "TRUNCATE TABLE x, v").await.message.contains("is a view"));
        assert_eq!(refusal(&session, "TRUNCATE x, nothing").await.kind, FaultKind::NoTable);
        assert_eq!(one(&session, "SELECT a FROM x").await, "3", "all or none");
        setup.shutdown().await;
    });
}

/// Hosts and drives are killed at random moments of it. What a host said is true, and no row is lost.
#[test]
fn a_table_has_one_of_its_names_whoever_is_killed() {
    block_on(async {
        let directory = TempDir::new().expect("a directory");
        let processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let drives = processes.iter().map(|process| process.address().to_owned()).collect::<Vec<_>>().join(",");
        let engine = attach(&processes).await;
        run(&engine.host.session(), MADE).await;
        let done = Arc::new(AtomicU64::new(0));
        let killer = {
            let done = Arc::clone(&done);
            std::thread::spawn(move || kill_at_random(processes, 20_261_130, KILLS, &done))
        };
        let mut name = "t".to_owned();
        let (mut renamed, mut killed) = (0, 0);
        for round in 0_u64.. {
            let to = if name == "t" { "u" } else { "t" };
            let mut host = Command::new(pithead())
                .args(["sql", "--drives", &drives, &format!("ALTER TABLE {name} RENAME TO {to}")])
                .stderr(Stdio::null())
                .spawn()
                .expect("a host");
            if round % 2 == 1 {
                tokio::time::sleep(Duration::from_millis(30 + round * 37 % 200)).await;
                host.kill().expect("it can be killed");
                killed += 1;
            }
            let said = host.wait().expect("its end").success();
            let found = only_name(&engine).await;
            assert!(!said || found == to, "round {round}: a host said that {name} is {to}, and it is {found}");
            renamed += u64::from(found == to);
            name = found;
            if done.load(Ordering::Acquire) >= KILLS && renamed >= 3 {
                break;
            }
        }
        println!("{renamed} renames, {killed} hosts and {KILLS} drives killed");
        let processes = killer.join().expect("the killer does not panic");
        let session = attach(&processes).await.host.session();
        assert_eq!(one(&session, &format!("SELECT count(*), count(DISTINCT k), sum(v) FROM {name}")).await, "1000 1000 4500");
    });
}

/// The name of the only table there is, once its home can be asked.
async fn only_name(engine: &Engine) -> String {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match engine.host.fleet().datasets().await {
            Ok(datasets) => {
                let names: Vec<String> = datasets.into_iter().map(|(name, _)| name.dataset).collect();
                assert_eq!(names.len(), 1, "{names:?}");
                return names.into_iter().next().unwrap_or_default();
            }
            Err(fault) => assert!(Instant::now() < until, "{fault}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
