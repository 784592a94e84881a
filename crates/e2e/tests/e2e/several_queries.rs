//! Statements that are several queries, such as those with scalar subqueries: what one of them has computed is not taken for what
//! another one needs, however alike the two are written.

use pithead_e2e::{Mode, Setup, block_on, collect};
use pithead_host::Session;

/// Groups of a table that is not partitioned by their key, joined with a small table, which chooses few of them.
const GROUPS: &str = "(SELECT k, sum(v) AS s FROM big GROUP BY k) AS g JOIN small AS s ON g.k = s.k";

/// `big`: 400,000 rows of 200,000 keys. `small`: 1,000 keys in 50 classes.
async fn made() -> (Setup, Session) {
    let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
    let session = setup.session().await;
    for sql in [
        "CREATE TABLE big PARTITION BY round_robin AS SELECT (value * 7919) % 200000 AS k, value % 13 AS v FROM range(400000)",
        "CREATE TABLE small AS SELECT value AS k, value % 50 AS c FROM range(1000)",
    ] {
        collect(&session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    }
    (setup, session)
}

async fn rows(session: &Session, sql: &str) -> Vec<Vec<String>> {
    let mut rows = collect(session, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}")).rows;
    rows.sort();
    rows
}

/// The sum over a class of `small`, as a subquery.
fn sum_of(class: usize) -> String {
    format!("(SELECT sum(g.s) FROM {GROUPS} WHERE s.c = {class})")
}

/// The keys of the first query once reduced the groups of the second.
#[test]
fn each_query_has_the_keys_of_its_own_small_side() {
    block_on(async {
        let (setup, session) = made().await;
        collect(&session, "CREATE TABLE changed AS SELECT value AS k, 0 AS a FROM range(200)").await.unwrap();
        let (one, two) = (sum_of(1), sum_of(2));
        let of_three = format!(
            "SELECT count(*), sum(g.s) FROM {GROUPS} WHERE s.c = 3 AND g.s > (SELECT avg(g.s) * 0.5 FROM {GROUPS} WHERE s.c = 1)"
        );
        let update = format!("UPDATE changed SET a = {two} WHERE k < 1 AND {one} > 0 RETURNING k, a");
        for (sql, expected) in [
            (format!("SELECT {one} AS a, {two} AS b"), ["243", "249"]),
            (of_three, ["20", "245"]),
            (format!("SELECT {one} AS a, {one} + 0 AS b"), ["243", "243"]),
            (update, ["0", "249"]),
        ] {
            assert_eq!(rows(&session, &sql).await, [expected], "{sql}");
        }
        setup.shutdown().await;
    });
}

/// Parts of the same columns once had one name, and one stood for all of them.
#[test]
fn each_part_in_common_has_its_own_rows() {
    block_on(async {
        let (setup, session) = made().await;
        let make = "CREATE TABLE t PARTITION BY round_robin AS SELECT value % 1000 AS k, value % 10 AS g, CASE \
                    WHEN value % 1000 < 5 AND value % 10 > 3 OR value % 1000 BETWEEN 10 AND 13 AND value % 10 <= 3 \
                    THEN 1000 ELSE value % 997 END AS v FROM (SELECT (value * 7) % 10000 AS value FROM range(10000))";
        collect(&session, make).await.unwrap();
        let largest = |condition: &str| {
            format!("SELECT k FROM t {condition} GROUP BY k HAVING max(v) = (SELECT max(v) FROM t {condition})")
        };
        let (all, some) = (largest(""), largest("WHERE g > 3"));
        let joined = format!(
            "SELECT 'all' AS n, count(*) FROM big JOIN ({all}) AS x ON big.k = x.k \
             UNION ALL SELECT 'some', count(*) FROM big JOIN ({some}) AS x ON big.k = x.k"
        );
        assert_eq!(rows(&session, &joined).await, [["all", "10"], ["some", "2"]]);
        let counted =
            format!("SELECT (SELECT count(*) FROM big WHERE k IN ({all})), (SELECT count(*) FROM big WHERE k IN ({some}))");
        assert_eq!(rows(&session, &counted).await, [["10", "2"]]);
        setup.shutdown().await;
    });
}

/// Two samples that are written alike were one.
#[test]
fn rows_that_are_chosen_by_chance_are_others_in_each_place() {
    block_on(async {
        let (setup, session) = made().await;
        // Which of 40 keys: both are the same once in a million million times.
        let chosen = "SELECT DISTINCT big.k FROM big JOIN (SELECT k FROM small WHERE random() < 0.5) AS x ON big.k = x.k WHERE big.k < 40";
        let twice = format!(
            "SELECT n, string_agg(CAST(k AS TEXT), ',' ORDER BY k) \
             FROM (SELECT 1 AS n, k FROM ({chosen}) UNION ALL SELECT 2, k FROM ({chosen})) GROUP BY n"
        );
        for join_filters in ["on", "off"] {
            collect(&session, &format!("SET pithead.join_filters = {join_filters}")).await.unwrap();
            let rows = rows(&session, &twice).await;
            assert_ne!(rows[0][1], rows[1][1], "join filters {join_filters}");
        }
        setup.shutdown().await;
    });
}
