//! Partitions that cannot have rows of an answer are not asked.

use std::ops::RangeInclusive;

use futures::TryStreamExt;
use pithead_e2e::{Mode, Setup, block_on, collect};
use pithead_host::Session;

async fn run(session: &Session, sql: &str) {
    session.run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
}

/// How many sessions there are for a query.
async fn sessions(session: &Session, sql: &str) -> u64 {
    let answer = session.run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    let profile = answer.profile;
    let _rows: Vec<_> = answer.rows.try_collect().await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    profile.snapshot().sessions
}

async fn rows(session: &Session, sql: &str) -> String {
    let table = collect(session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    table.rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join(", ")
}

/// A query has these rows from so many sessions, and the same ones where each partition is asked.
async fn is(session: &Session, sql: &str, expected: &str, asked: RangeInclusive<u64>) {
    assert_eq!(rows(session, sql).await, expected, "{sql}");
    let found = sessions(session, sql).await;
    assert!(asked.contains(&found), "{sql}: {found} sessions");
    run(session, "SET pithead.zone_maps = off").await;
    assert_eq!(rows(session, sql).await, expected, "{sql} without bounds");
    let found = sessions(session, sql).await;
    assert!(found == 0 || found >= 4, "{sql} without bounds: {found} sessions");
    run(session, "SET pithead.zone_maps = on").await;
}

/// By hash of two kinds of keys, by range, and in turn.
async fn make_tables(session: &Session) {
    for sql in [
        "SET pithead.summary_cache = off",
        "CREATE TABLE h PARTITION BY hash(k) AS SELECT value AS k, value % 7 AS v, 'n' || value AS s FROM range(2000) AS r(value)",
        "CREATE TABLE two PARTITION BY hash(s, k) AS SELECT k, s, v FROM h",
        "CREATE TABLE f PARTITION BY hash(x) AS SELECT CAST(k AS DOUBLE) - 5 AS x, v FROM h",
        "CREATE TABLE r PARTITION BY range(d) AS SELECT date '2024-01-01' + CAST(k % 365 AS INT) AS d, k, v FROM h",
        "INSERT INTO f VALUES (-0.0, 100), ('NaN', 101), (NULL, 102)",
    ] {
        run(session, sql).await;
    }
}

#[test]
fn a_key_is_asked_of_where_it_is() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        make_tables(&session).await;
        is(&session, "SELECT v, s FROM h WHERE k = 777", "0 n777", 1..=1).await;
        is(&session, "SELECT count(*), sum(v) FROM h WHERE k IN (3, 4)", "2 7", 1..=2).await;
        is(&session, "SELECT count(*) FROM h WHERE k = 3 OR k = 4 AND v > 0", "2", 1..=2).await;
        is(&session, "SELECT v FROM h WHERE k = 3 AND k = 4", "", 0..=1).await;
        is(&session, "SELECT count(*), max(s) FROM h WHERE k = 99999", "0 NULL", 1..=1).await;
        is(&session, "SELECT v FROM two WHERE k = 8 AND s = 'n8'", "1", 1..=1).await;
        is(&session, "SELECT v FROM two WHERE k = 8", "1", 4..=4).await;
        is(&session, "SELECT count(*) FROM h WHERE k + 0 = 777", "1", 4..=4).await;
        is(&session, "SELECT count(*) FROM h WHERE k <> 777", "1999", 4..=4).await;
        is(&session, "SELECT h.s, o.v FROM h JOIN h AS o ON h.k = o.k WHERE h.k = 12", "n12 5", 1..=2).await;
        setup.shutdown().await;
    });
}

#[test]
fn floats_are_equal_wherever_they_are() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        make_tables(&session).await;
        is(&session, "SELECT sum(v) FROM f WHERE x = 0.0", "105", 1..=4).await;
        is(&session, "SELECT sum(v) FROM f WHERE x = -0.0", "105", 1..=4).await;
        is(&session, "SELECT v FROM f WHERE x = 'NaN'", "101", 1..=4).await;
        is(&session, "SELECT v FROM f WHERE x IS NULL", "102", 1..=4).await;
        setup.shutdown().await;
    });
}

#[test]
fn bounds_of_partitions_rule_them_out() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        make_tables(&session).await;
        is(&session, "SELECT count(*) FROM r WHERE d = date '2024-01-03'", "6", 1..=1).await;
        is(&session, "SELECT count(*) FROM r WHERE d < date '2024-01-03'", "12", 1..=1).await;
        is(&session, "SELECT count(*), min(k) FROM r WHERE d > date '2030-01-01'", "0 NULL", 1..=1).await;
        is(&session, "SELECT d FROM r WHERE d > date '2030-01-01'", "", 1..=1).await;
        // Rows of the other side come all the same.
        let outer = "SELECT count(*), count(r.k) FROM h LEFT JOIN r ON h.k = r.k AND r.d = date '2024-01-03'";
        is(&session, outer, "2000 6", 1..=8).await;
        let told = collect(&session, "EXPLAIN SELECT k FROM r WHERE d = date '2024-01-03'").await.expect("a plan");
        let told: Vec<String> = told.rows.iter().map(|row| row.join(" ")).collect();
        assert!(told.iter().any(|line| line.contains("3 of 4 partitions ruled out")), "{told:#?}");
        setup.shutdown().await;
    });
}

#[test]
fn rows_that_change_are_found_where_they_are_then() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        make_tables(&session).await;
        for sql in [
            "UPDATE h SET k = k + 10000 WHERE k < 100",
            "DELETE FROM h WHERE k = 500",
            "INSERT INTO h VALUES (500, 1000, NULL), (-7, NULL, 'new')",
            "ALTER TABLE h RENAME COLUMN k TO key",
            "ALTER TABLE h ADD COLUMN extra INT DEFAULT 4",
            "MERGE INTO h USING (VALUES (10001, 'm'), (20000, 'n')) AS o(k, t) ON h.key = o.k \
             WHEN MATCHED THEN UPDATE SET s = o.t WHEN NOT MATCHED THEN INSERT VALUES (o.k, 1, o.t, 9)",
            "UPDATE r SET d = d + 3650 WHERE k = 3",
            "DELETE FROM r WHERE d < date '2024-02-01'",
        ] {
            run(&session, sql).await;
        }
        is(&session, "SELECT count(*) FROM h WHERE key = 5", "0", 1..=1).await;
        is(&session, "SELECT s, extra FROM h WHERE key = 10005", "n5 4", 1..=1).await;
        is(&session, "SELECT v, s FROM h WHERE key = 500", "1000 NULL", 1..=1).await;
        is(&session, "SELECT v, s FROM h WHERE key = -7", "NULL new", 1..=1).await;
        is(&session, "SELECT s FROM h WHERE key = 10001", "m", 1..=1).await;
        is(&session, "SELECT s, extra FROM h WHERE key = 20000", "n 9", 1..=1).await;
        is(&session, "SELECT count(*) FROM h WHERE v IS NULL", "1", 1..=4).await;
        is(&session, "SELECT count(*) FROM h WHERE extra = 4", "2001", 4..=4).await;
        is(&session, "SELECT count(*) FROM h WHERE extra = 5", "0", 1..=1).await;
        is(&session, "SELECT k FROM r WHERE d > date '2030-01-01'", "3", 1..=1).await;
        is(&session, "SELECT count(*) FROM r WHERE d < date '2024-02-01'", "0", 1..=4).await;
        setup.shutdown().await;
    });
}

#[test]
fn a_drive_that_is_gone_is_not_missed_where_it_is_not_asked() {
    block_on(async {
        let mut setup = Setup::new(Mode::FOUR_PROCESSES).await;
        let session = setup.session().await;
        make_tables(&session).await;
        let mut answered = 0;
        setup.processes.remove(3).kill();
        for key in 0..16 {
            let sql = format!("SELECT s FROM h WHERE k = {key}");
            if let Ok(table) = collect(&session, &sql).await {
                assert_eq!(table.rows, [[format!("n{key}")]], "{sql}");
                answered += 1;
            }
        }
        assert!((1..16).contains(&answered), "{answered} of 16 keys");
        collect(&session, "SELECT count(*) FROM h").await.expect_err("a partition is missing");
        setup.shutdown().await;
    });
}
