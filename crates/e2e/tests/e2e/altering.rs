//! ALTER TABLE over slices that stay as they are.

use pithead_e2e::{Mode, Setup, block_on, collect, refusal};
use pithead_host::Session;
use pithead_model::{Blame, Dataset, LoadId};

async fn run(session: &Session, sql: &str) {
    session.run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
}

async fn one(session: &Session, sql: &str) -> String {
    let table = collect(session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    table.rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ")
}

async fn dataset(setup: &Setup) -> (u64, Dataset) {
    let snapshot = setup.engine.host.fleet().snapshot().await.expect("a snapshot");
    let found = snapshot.versioned(&"t".parse().expect("a name")).expect("the table");
    (found.manifest_version(), found.dataset().as_ref().clone())
}

fn runs(dataset: &Dataset) -> Vec<LoadId> {
    dataset.runs().map(|run| run.load).collect()
}

const MADE: &str = "CREATE TABLE t PARTITION BY hash(k) ORDER BY k WITH (copies = 2, slice_rows = 100) AS \
                    SELECT unnest(range(1000)) AS k, CAST(unnest(range(1000)) % 10 AS INTEGER) AS v, 'x' AS s";

#[test]
fn slices_stay_where_columns_change() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let session = setup.session().await;
        run(&session, MADE).await;
        run(&session, "ALTER DOMAIN main SET HISTORY '1h'").await;
        let (version, before) = dataset(&setup).await;
        for sql in [
            "ALTER TABLE t RENAME COLUMN v TO w, ADD COLUMN d INTEGER DEFAULT 5, ALTER COLUMN w TYPE BIGINT",
            "ALTER TABLE t DROP COLUMN s, RENAME COLUMN k TO key, ALTER COLUMN w SET NOT NULL",
            "ALTER TABLE t ADD COLUMN s VARCHAR, ADD COLUMN at TIMESTAMP DEFAULT now()",
        ] {
            run(&session, sql).await;
            let (_, after) = dataset(&setup).await;
            assert_eq!((after.id, runs(&after)), (before.id, runs(&before)), "{sql}");
        }
        assert_eq!(
            one(&session, "SELECT count(*), sum(w), sum(d), count(s), count(DISTINCT at) FROM t").await,
            "1000 4500 5000 0 1"
        );
        // Bounds of what was there before: one value, and nothing but NULLs.
        assert_eq!(one(&session, "SELECT count(*) FROM t WHERE d <> 5 OR s IS NOT NULL").await, "0");
        assert_eq!(one(&session, "SELECT w, d FROM t WHERE key = 777").await, "7 5");
        let fault = refusal(&session, "INSERT INTO t (key, w, d) VALUES (1, NULL, 1)").await;
        assert!(fault.message.contains("column w is NOT NULL"), "{fault}");

        // What has values that are computed is written anew.
        run(&session, "ALTER TABLE t ALTER COLUMN d TYPE BIGINT USING d + key").await;
        let (_, anew) = dataset(&setup).await;
        assert_ne!(anew.id, before.id);
        assert_eq!(one(&session, "SELECT sum(d), sum(w) FROM t").await, "504500 4500");

        // Older versions have the columns that they had.
        let past = format!("SELECT count(v), max(s) FROM t AS OF VERSION {version}");
        assert_eq!(one(&session, &past).await, "1000 x");
        let joined = format!("SELECT count(*) FROM t JOIN t AS OF VERSION {version} AS o ON t.key = o.k AND t.w = o.v");
        assert_eq!(one(&session, &joined).await, "1000");
        run(&session, &format!("RESTORE t TO VERSION AS OF {version}")).await;
        assert_eq!(one(&session, "SELECT sum(v), max(s), count(*) FROM t").await, "4500 x 1000");
        run(&session, "ALTER TABLE t ADD COLUMN d VARCHAR DEFAULT 'again'").await;
        assert_eq!(one(&session, "SELECT DISTINCT d FROM t").await, "again");
        let log = collect(&session, "SHOW LOG").await.expect("the log");
        let told: Vec<&str> = log.rows.iter().rev().map(|row| row[3].as_str()).collect();
        assert_eq!(told, ["created", "history set", "altered", "altered", "altered", "rewritten", "restored", "altered"]);
        setup.shutdown().await;
    });
}

#[test]
fn kept_results_are_of_the_columns_that_they_were_computed_from() {
    block_on(async {
        for mode in [Mode::FOUR_PROCESSES, Mode::ONE_HERE, Mode::STORED, Mode::FILTERED, Mode::ARRAYS] {
            let setup = Setup::new(mode).await;
            let session = setup.session().await;
            run(
                &session,
                "CREATE TABLE t AS SELECT value AS k, value % 7 AS a, value % 11 AS b, value % 3 AS g FROM range(5000)",
            )
            .await;
            let ask = "SELECT g, sum(a), max(b) FROM t WHERE a < 100 GROUP BY g ORDER BY g";
            let swapped = "SELECT g, sum(b), max(a) FROM t WHERE b < 100 GROUP BY g ORDER BY g";
            let (one_way, other_way) = (one(&session, ask).await, one(&session, swapped).await);
            assert_ne!(one_way, other_way);
            assert_eq!(one(&session, ask).await, one_way);
            run(&session, "ALTER TABLE t RENAME COLUMN a TO c, RENAME COLUMN b TO a, RENAME COLUMN c TO b").await;
            assert_eq!((one(&session, ask).await, one(&session, swapped).await), (other_way.clone(), one_way.clone()));
            run(&session, "ALTER TABLE t DROP COLUMN a, ADD COLUMN a BIGINT DEFAULT 2").await;
            assert_eq!(one(&session, ask).await, "0 3334 6, 1 3334 6, 2 3332 6");
            assert_eq!(one(&session, "SELECT sum(b) FROM t").await, one(&session, "SELECT sum(k % 7) FROM t").await);
            setup.shutdown().await;
        }
    });
}

#[test]
fn rows_of_before_go_and_small_runs_become_one() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let session = setup.session().await;
        run(&session, MADE).await;
        run(&session, "ALTER TABLE t RENAME COLUMN v TO w, ADD COLUMN d INTEGER DEFAULT 5, DROP COLUMN s").await;
        let (_, before) = dataset(&setup).await;
        run(&session, "DELETE FROM t WHERE w = 3 AND d = 5").await;
        let (_, after) = dataset(&setup).await;
        assert_eq!(before.id, after.id, "rows were marked");
        let columns = |dataset: &Dataset| dataset.columns().iter().map(|column| column.nulls).collect::<Vec<_>>();
        assert_eq!((after.rows(), columns(&after)), (900, vec![0, 0, 0]));
        run(&session, "UPDATE t SET d = NULL WHERE w = 4").await;
        assert_eq!(columns(&dataset(&setup).await.1), [0, 0, 100]);
        // Runs of both kinds are merged by and by.
        for round in 0..24 {
            run(&session, &format!("INSERT INTO t SELECT value, 3, {round} FROM range({0}, {0} + 10)", 1000 + round * 10))
                .await;
            if round == 12 {
                run(&session, "ALTER TABLE t ADD COLUMN e VARCHAR DEFAULT 'e', DROP COLUMN e").await;
                run(&session, "ALTER TABLE t ALTER COLUMN d TYPE BIGINT").await;
            }
        }
        assert_eq!(one(&session, "SELECT count(*), sum(w), count(d), sum(d) FROM t").await, "1140 4920 1040 6760");
        let (_, last) = dataset(&setup).await;
        assert!(last.runs().count() < 24 * before.runs().count(), "{} runs", last.runs().count());
        setup.shutdown().await;
    });
}

#[test]
fn what_is_known_of_rows_goes_with_them() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        for sql in [
            "CREATE TABLE t (a BIGINT, b VARCHAR)",
            "INSERT INTO t SELECT NULL, 'x' FROM unnest(range(10)) AS r(x)",
            "INSERT INTO t VALUES (1000000, 'y')",
        ] {
            run(&session, sql).await;
        }
        let nulls = async || {
            let (_, dataset) = dataset(&setup).await;
            let of = |partition: &pithead_model::Partition| partition.columns.first().map_or(0, |column| column.nulls);
            dataset.partitions.iter().map(of).sum::<u64>()
        };
        assert_eq!(nulls().await, 10);
        for (sql, expected) in [
            ("TRUNCATE t", 0),
            ("INSERT INTO t VALUES (1, 'z'), (NULL, 'z')", 1),
            ("UPDATE t SET a = coalesce(a, 2)", 0),
            ("ALTER TABLE t DROP COLUMN b, ADD COLUMN c DOUBLE DEFAULT random()", 0),
        ] {
            run(&session, sql).await;
            assert_eq!(nulls().await, expected, "{sql}");
            let (_, dataset) = dataset(&setup).await;
            let width = dataset.schema.fields().len();
            let is_right = |partition: &pithead_model::Partition| {
                partition.columns.len() == if partition.runs.is_empty() { 0 } else { width }
            };
            assert!(dataset.partitions.iter().all(is_right), "{sql}: {dataset:?}");
        }
        assert_eq!(one(&session, "SELECT count(*), max(a) FROM t").await, "2 2");
        setup.shutdown().await;
    });
}

/// Rows that were planned with the columns of before are planned again; an error that the columns do not fit was one that nobody tries
/// again.
#[test]
fn statements_that_write_while_columns_change_begin_again() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        let (one_session, other) = (setup.session().await, setup.session().await);
        run(&one_session, "CREATE TABLE r (k BIGINT, v BIGINT)").await;
        let altering = async {
            for number in 0..40 {
                run(&other, &format!("ALTER TABLE r ADD COLUMN c{number} INTEGER DEFAULT {number}")).await;
                run(&other, &format!("ALTER TABLE r DROP COLUMN c{number}")).await;
            }
        };
        let writing = async {
            let mut inserted = 0;
            for number in 0..120 {
                let changed = match number % 3 {
                    0 => one_session.run("UPDATE r SET v = v + 1 WHERE k % 2 = 0").await,
                    _ => one_session.run(&format!("INSERT INTO r (k, v) VALUES ({number}, 0), ({number}, 0)")).await,
                };
                match changed {
                    Ok(_) if number % 3 > 0 => inserted += 2,
                    Ok(_) => {}
                    // Others came before it each time.
                    Err(fault) => assert_eq!(fault.blame, Blame::Conflict, "{fault}"),
                }
            }
            inserted
        };
        let ((), inserted) = futures::join!(altering, writing);
        assert_eq!(one(&one_session, "SELECT count(*) FROM r").await, inserted.to_string());
        setup.shutdown().await;
    });
}
