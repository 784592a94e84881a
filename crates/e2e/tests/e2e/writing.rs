//! Statements that write, by several at once: no change is lost, and no reader sees half of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use pithead_e2e::{Mode, Setup, block_on, collect, refusal};
use pithead_host::{Parameters, Session};
use pithead_model::Blame;

const ROWS: u64 = 5_000;
const TURNS: usize = 12;

async fn number(session: &Session, sql: &str) -> i64 {
    let table = collect(session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    table.rows[0][0].parse().unwrap_or_else(|_| panic!("{sql}: {:?}", table.rows))
}

async fn run(session: &Session, sql: &str) -> u64 {
    let answer = session.run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    answer.changed.unwrap_or_else(|| panic!("{sql} changed nothing"))
}

async fn made(mode: Mode) -> Setup {
    let setup = Setup::new(mode).await;
    let session = setup.session().await;
    let create = format!("CREATE TABLE t AS SELECT unnest(range({ROWS})) AS id, 0 AS v, 1 AS w");
    assert_eq!(run(&session, &create).await, ROWS);
    setup
}

/// A statement again and again. How often it was acknowledged; whatever else it says, it says that others were first.
async fn again(session: &Session, sql: &str) -> i64 {
    let mut acknowledged = 0;
    for _ in 0..TURNS {
        match session.run(sql).await {
            Ok(_) => acknowledged += 1,
            Err(fault) => assert_eq!(fault.blame, Blame::Conflict, "{sql}: {fault}"),
        }
    }
    acknowledged
}

#[test]
fn two_hosts_that_change_one_table_lose_nothing() {
    block_on(async {
        for mode in [Mode::FOUR_PROCESSES, Mode::ARRAYS] {
            let setup = made(mode).await;
            let other = setup.connect_again().await;
            let (one, two, three) = (setup.session().await, other.host.session(), other.host.session());
            let is_over = AtomicBool::new(false);
            let reader = setup.session().await;
            let reading = async {
                while !is_over.load(Ordering::Relaxed) {
                    let spread = "SELECT count(DISTINCT v) FROM t WHERE id < 5000 HAVING count(*) = 5000";
                    assert_eq!(number(&reader, spread).await, 1, "{}", mode.name);
                }
            };
            let writing = async {
                let writers = tokio::join!(
                    again(&one, "UPDATE t SET v = v + 1"),
                    again(&two, "UPDATE t SET v = v + 1 WHERE w = 1"),
                    again(&three, "INSERT INTO t SELECT id + 1000000, 0, 2 FROM t WHERE id < 3"),
                );
                is_over.store(true, Ordering::Relaxed);
                writers
            };
            let ((first, second, inserted), ()) = tokio::join!(writing, reading);
            // On a busy machine one of them may lose every race; each then says so, and has changed nothing.
            assert!(first + second > 0 && inserted > 0, "{first}, {second}, {inserted}");
            let counted = number(&one, "SELECT max(v) FROM t WHERE w = 1").await;
            assert_eq!(counted, first + second, "{}", mode.name);
            assert_eq!(number(&one, "SELECT count(*) FROM t WHERE w = 2").await, 3 * inserted, "{}", mode.name);
            other.shutdown().await;
            setup.shutdown().await;
        }
    });
}

#[test]
fn a_statement_that_fails_leaves_nothing() {
    block_on(async {
        let setup = made(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        let before = number(&session, "SELECT sum(id + v) FROM t").await;
        for sql in [
            "UPDATE t SET v = CASE WHEN id = 4999 THEN 9223372036854775807 + id ELSE 7 END",
            "INSERT INTO t SELECT id, CASE WHEN id = 4999 THEN 9223372036854775807 + id ELSE 7 END, 0 FROM t",
            "CREATE TABLE u AS SELECT 9223372036854775807 + id AS v FROM t",
            "CREATE TABLE t (a INT)",
            "CREATE TABLE v (a INT PRIMARY KEY)",
            "CREATE TABLE v (a INT DEFAULT 7)",
            "CREATE TABLE v (a INT) PARTITION BY hash(b)",
            "CREATE TABLE v (a INT) WITH (copies = 9)",
            "DELETE FROM information_schema.tables",
            "INSERT INTO nothing VALUES (1)",
            "UPDATE t SET v = u.v FROM t AS u WHERE u.id / 2 = t.id",
            "MERGE INTO t USING t AS u ON u.id / 2 = t.id WHEN MATCHED THEN UPDATE SET v = 7",
            "MERGE INTO t USING t AS u ON u.id = t.id WHEN MATCHED THEN UPDATE SET v = 9223372036854770000 + u.id * 2",
            "MERGE INTO t USING (SELECT id, random() AS r FROM t) AS u ON u.id = t.id WHEN MATCHED AND r > 0.5 THEN DELETE",
            "UPDATE t SET v = 7 WHERE random() < 0.5",
            "UPDATE t SET v = 7 WHERE id IN (SELECT u.id FROM t AS u WHERE u.v = t.v AND random() < 0.5)",
            "MERGE INTO t USING t AS u ON u.id = t.id WHEN MATCHED THEN INSERT VALUES (1, 2, 3)",
            "MERGE INTO t USING t AS u ON u.id = t.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = u.v",
        ] {
            let fault = refusal(&session, sql).await;
            assert!(fault.blame != Blame::Bug, "{sql}: {fault}");
        }
        assert_eq!(number(&session, "SELECT sum(id + v) FROM t").await, before);
        assert_eq!(number(&session, "SELECT count(*) FROM information_schema.tables WHERE table_name IN ('u', 'v')").await, 0);
        setup.shutdown().await;
    });
}

/// What gives other rows each time is asked for once.
#[test]
fn rows_that_are_chosen_by_chance_are_chosen_once() {
    block_on(async {
        for mode in [Mode::FOUR_PROCESSES, Mode::ARRAYS] {
            let setup = made(mode).await;
            let session = setup.session().await;
            for (chosen, count) in [
                ("SELECT id FROM t ORDER BY random() LIMIT 50", 50),
                ("SELECT id FROM t LIMIT 50", 50),
                ("SELECT id FROM t WHERE random() < 2", 5_000),
            ] {
                run(&session, "UPDATE t SET v = 0").await;
                assert_eq!(run(&session, &format!("UPDATE t SET v = 1 WHERE id IN ({chosen})")).await, count, "{chosen}");
                assert_eq!(number(&session, "SELECT sum(v) FROM t").await as u64, count, "{chosen}");
                assert_eq!(number(&session, "SELECT count(DISTINCT id) FROM t").await, 5_000, "{}: {chosen}", mode.name);
            }
            let merge = "MERGE INTO t USING (SELECT id FROM t LIMIT 60) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 5 \
                         WHEN NOT MATCHED THEN INSERT VALUES (s.id, 7, 7)";
            assert_eq!(run(&session, merge).await, 60, "{}", mode.name);
            assert_eq!(number(&session, "SELECT count(*) FROM t WHERE v = 5").await, 60, "{}", mode.name);
            let deleted = run(&session, "DELETE FROM t WHERE random() < 0.5").await as i64;
            let deleted = deleted + run(&session, "DELETE FROM t WHERE id IN (SELECT id FROM t LIMIT 9)").await as i64;
            assert_eq!(number(&session, "SELECT count(*) FROM t").await, 5_000 - deleted, "{}", mode.name);
            assert_eq!(number(&session, "SELECT count(DISTINCT id) FROM t").await, 5_000 - deleted, "{}", mode.name);
            setup.shutdown().await;
        }
    });
}

#[test]
fn rows_that_two_hosts_merge_are_there_once() {
    block_on(async {
        let setup = made(Mode::FOUR_PROCESSES).await;
        let other = setup.connect_again().await;
        let (one, two, three) = (setup.session().await, other.host.session(), other.host.session());
        // Either adds the rows from 5,000 on that are not there yet, or counts those that are.
        let merge = "MERGE INTO t USING (SELECT id + 4000 AS id FROM t WHERE id < 2000) AS n ON t.id = n.id \
                     WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED THEN INSERT VALUES (n.id, 1, 3)";
        let only_new = "MERGE INTO t USING (SELECT id + 4000 AS id FROM t WHERE id < 2000) AS n ON t.id = n.id \
                        WHEN NOT MATCHED THEN INSERT VALUES (n.id, 0, 3)";
        let (first, second, new) = tokio::join!(again(&one, merge), again(&two, merge), again(&three, only_new));
        assert!(first + second + new > 0, "{first}, {second}, {new}");
        assert_eq!(number(&one, "SELECT count(*) FROM t").await, 6_000);
        assert_eq!(number(&one, "SELECT count(DISTINCT id) FROM t").await, 6_000);
        assert_eq!(number(&one, "SELECT min(v) FROM t WHERE id BETWEEN 4000 AND 4999").await, first + second);
        let spread = number(&one, "SELECT count(DISTINCT v) FROM t WHERE w = 3").await;
        assert_eq!(spread, 1, "rows of one MERGE are changed by all that follow");
        other.shutdown().await;
        setup.shutdown().await;
    });
}

#[test]
fn a_merge_takes_parameters_and_counts_its_rows() {
    block_on(async {
        let setup = made(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        let sql = "MERGE INTO t USING (SELECT id + $1 AS id FROM t WHERE id < $2) AS n ON t.id = n.id \
                   WHEN MATCHED AND n.id % 2 = $3 THEN DELETE WHEN MATCHED THEN UPDATE SET v = $4 \
                   WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, $4)";
        let columns = [("1", 4_990), ("2", 16), ("3", 0), ("4", 77)]
            .map(|(name, value)| (name, Arc::new(Int64Array::from(vec![value])) as ArrayRef));
        let parameters = Parameters::by_place(&RecordBatch::try_from_iter(columns).expect("a row")).expect("parameters");
        let answer = session.run_with(sql, &parameters).await.unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(answer.changed, Some(16));
        assert_eq!(number(&session, "SELECT count(*) FROM t WHERE v = 77").await, 11);
        assert_eq!(number(&session, "SELECT count(*) FROM t").await, 5_001);
        assert_eq!(run(&session, "MERGE INTO t USING t AS n ON t.id = n.id WHEN MATCHED AND t.id = 7 THEN DELETE").await, 1);
        assert_eq!(
            run(&session, "MERGE INTO t USING t AS n ON t.id = n.id WHEN NOT MATCHED THEN INSERT VALUES (1, 1, 1)").await,
            0
        );
        setup.shutdown().await;
    });
}

#[test]
fn tables_are_shown_by_domain_and_pattern() {
    block_on(async {
        let setup = made(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        for sql in ["CREATE TABLE lab.readings (a INT)", "CREATE TABLE \"Trips\" (a INT)", "CREATE TABLE tr_1 (a INT)"] {
            run(&session, sql).await;
        }
        for (show, expected) in [
            ("SHOW TABLES LIKE 'tr%'", vec!["tr_1"]),
            ("SHOW TABLES ILIKE 'tr%'", vec!["Trips", "tr_1"]),
            ("SHOW TABLES FROM lab", vec!["readings"]),
            ("SHOW TABLES IN lab LIKE 't%'", vec![]),
            ("SHOW TABLES FROM main WHERE table_name = 't' OR table_name = 'nothing'", vec!["t"]),
            ("SHOW TABLES LIKE 'it''s'", vec![]),
        ] {
            let table = collect(&session, show).await.unwrap_or_else(|fault| panic!("{show}: {fault}"));
            let names: Vec<&str> = table.rows.iter().map(|row| row[2].as_str()).collect();
            assert_eq!(names, expected, "{show}");
        }
        setup.shutdown().await;
    });
}

#[test]
fn layouts_are_as_told_and_stay() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        let session = Arc::new(setup.session().await);
        run(
            &session,
            "CREATE TABLE t (k BIGINT, day DATE) PARTITION BY hash(k) ORDER BY day WITH (copies = 2, slice_rows = 100)",
        )
        .await;
        run(&session, "INSERT INTO t SELECT unnest(range(1000)), DATE '2024-01-01'").await;
        assert_eq!(run(&session, "DELETE FROM t WHERE k % 2 = 0").await, 500);
        assert_eq!(run(&session, "UPDATE t SET day = DATE '2025-05-05' WHERE k > 900").await, 50);
        let snapshot = setup.engine.host.fleet().snapshot().await.expect("a snapshot");
        let (_, dataset) = snapshot.dataset(&"t".parse().expect("a name")).expect("the table");
        assert_eq!((dataset.copies, dataset.slice_rows, dataset.sort.len(), dataset.rows()), (2, 100, 1, 500));
        assert!(matches!(&dataset.partitioning, pithead_model::Partitioning::Hash { columns } if columns == &["k"]));
        setup.shutdown().await;
    });
}

#[test]
fn columns_change_and_the_layout_stays() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let session = setup.session().await;
        let create = "CREATE TABLE t PARTITION BY hash(k) ORDER BY day WITH (copies = 2, slice_rows = 100) AS \
                      SELECT unnest(range(1000)) AS k, DATE '2024-01-01' AS day, 1 AS v";
        run(&session, create).await;
        run(&session, "CREATE TABLE u PARTITION BY hash(k) AS SELECT unnest(range(1000)) AS k").await;
        let alter = async |sql: &str| session.run(sql).await.map(drop);
        let many = "ALTER TABLE t RENAME COLUMN k TO key, RENAME COLUMN day TO since, ADD COLUMN w DOUBLE DEFAULT 0.5, \
                    ALTER COLUMN v TYPE VARCHAR USING 'v' || (v + key), DROP COLUMN IF EXISTS nothing";
        // `key` is the name of the table's own column only after the statement.
        assert!(alter(many).await.is_err());
        alter(&many.replace("v + key", "v + k")).await.expect("the columns change");
        let snapshot = setup.engine.host.fleet().snapshot().await.expect("a snapshot");
        let (_, dataset) = snapshot.dataset(&"t".parse().expect("a name")).expect("the table");
        assert_eq!((dataset.copies, dataset.slice_rows, dataset.rows()), (2, 100, 1000));
        assert_eq!(dataset.sort.iter().map(|key| key.column.as_str()).collect::<Vec<_>>(), ["since"]);
        assert!(matches!(&dataset.partitioning, pithead_model::Partitioning::Hash { columns } if columns == &["key"]));
        let joined = "SELECT count(*) FROM t JOIN u ON t.key = u.k WHERE t.v = 'v' || (u.k + 1) AND w = 0.5";
        assert_eq!(number(&session, joined).await, 1000);
        for sql in
            ["ALTER TABLE t DROP COLUMN key", "ALTER TABLE t ALTER COLUMN since TYPE VARCHAR", "ALTER TABLE t RENAME TO u"]
        {
            let fault = refusal(&session, sql).await;
            assert!(matches!(fault.blame, Blame::User | Blame::Unsupported) && fault.hint.is_some(), "{sql}: {fault}");
        }
        // What changes nothing leaves the rows where they are.
        alter("ALTER TABLE t ADD COLUMN IF NOT EXISTS w INT, DROP COLUMN IF EXISTS nothing, ALTER COLUMN w DROP NOT NULL")
            .await
            .expect("nothing changes");
        let after = setup.engine.host.fleet().snapshot().await.expect("a snapshot");
        let (_, unchanged) = after.dataset(&"t".parse().expect("a name")).expect("the table");
        assert_eq!(unchanged.id, dataset.id);
        // Two hosts at once: each change is there, once.
        let other = setup.connect_again().await;
        let elsewhere = other.host.session();
        let (one, two) = tokio::join!(
            session.run("ALTER TABLE t ADD COLUMN one BIGINT DEFAULT 1"),
            elsewhere.run("ALTER TABLE t ADD COLUMN two BIGINT DEFAULT 2"),
        );
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(number(&session, "SELECT sum(one + two) FROM t").await, 3000);
        other.shutdown().await;
        setup.shutdown().await;
    });
}

/// A regression: home had made the change, and while a copy of the manifest was on its way to a drive that hangs, the client was told
/// that its statement took too long. It was run again, and the row was there twice.
#[test]
fn what_was_made_is_told_however_long_copies_of_the_manifest_take() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let session = setup.session().await;
        run(&session, "CREATE TABLE one WITH (partitions = 1) AS SELECT 0 AS id").await;
        let snapshot = setup.engine.host.fleet().snapshot().await.expect("a snapshot");
        let (manifest, dataset) = snapshot.dataset(&"one".parse().expect("a name")).expect("the table");
        let is_needed = |id| manifest.home() == Some(id) || dataset.partitions[0].copies.contains(&id);
        let drives = setup.engine.host.fleet().drives();
        let spare = drives.iter().find(|drive| !is_needed(drive.id())).expect("four drives, of which two are needed");
        let hung = setup.processes.iter().find(|process| process.address() == spare.label()).expect("its process");
        collect(&session, "SET statement_timeout = '5s'").await.expect("a setting");
        hung.freeze();
        let inserted = run(&session, "INSERT INTO one VALUES (1)").await;
        hung.thaw();
        assert_eq!(inserted, 1);
        assert_eq!(number(&session, "SELECT count(*) FROM one").await, 2);
        setup.shutdown().await;
    });
}

/// A regression: the later one of two hosts was told that the table was there already, or was not there any more.
#[test]
fn hosts_that_make_and_drop_the_same_at_one_time_do_not_fail() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let other = setup.connect_again().await;
        let (one, two) = (setup.session().await, other.host.session());
        let both = async |sql: &str| {
            let ended = tokio::join!(one.run(sql), two.run(sql));
            let faults: Vec<String> =
                [ended.0.err(), ended.1.err()].into_iter().flatten().map(|fault| fault.to_string()).collect();
            assert!(faults.is_empty(), "{sql}: {faults:?}");
        };
        for round in 0..10 {
            both(&format!("CREATE TABLE IF NOT EXISTS r{round} AS SELECT 7 AS a")).await;
            assert_eq!(number(&one, &format!("SELECT sum(a) FROM r{round}")).await, 7);
            both(&format!("CREATE VIEW IF NOT EXISTS v{round} AS SELECT a FROM r{round}")).await;
            both(&format!("DROP VIEW IF EXISTS v{round}")).await;
            both(&format!("DROP TABLE IF EXISTS r{round}, none{round}")).await;
        }
        let left = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'main' AND table_name <> 't'";
        assert_eq!(number(&one, left).await, 0);
        other.shutdown().await;
        setup.shutdown().await;
    });
}

/// A regression: rows that another host added while a table was made of itself were lost.
#[test]
fn a_table_that_is_made_of_itself_keeps_what_others_add() {
    block_on(async {
        let setup = made(Mode::FOUR_PROCESSES).await;
        let other = setup.connect_again().await;
        let (one, two) = (setup.session().await, other.host.session());
        let (replaced, inserted) = tokio::join!(
            again(&one, "CREATE OR REPLACE TABLE t AS SELECT id, v + 1 AS v, w FROM t"),
            again(&two, "INSERT INTO t VALUES (1000000, 0, 2)"),
        );
        assert!(replaced > 0 && inserted > 0, "{replaced}, {inserted}");
        assert_eq!(number(&one, "SELECT count(*) FROM t WHERE w = 2").await, inserted);
        assert_eq!(number(&one, "SELECT min(v) FROM t WHERE w = 1").await, replaced);
        assert_eq!(number(&one, "SELECT max(v) FROM t WHERE w = 1").await, replaced);
        other.shutdown().await;
        setup.shutdown().await;
    });
}
