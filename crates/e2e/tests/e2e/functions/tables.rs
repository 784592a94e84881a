//! Table functions: the rows that a query of lists without them gives, wherever they ran.

use pithead_e2e::tpch::spec;
use pithead_e2e::{Mode, Setup, block_on, collect, link_bytes, load, refusal};

use super::{create, files, function_modules, text};

/// Queries with table functions, and the same without.
const TWINS: &[(&str, &str)] = &[
    (
        "SELECT word, count(*), min(n_nationkey) FROM nation, words(n_comment) AS word GROUP BY word ORDER BY 2 DESC, 1 LIMIT 20",
        "SELECT word, count(*), min(n_nationkey) FROM (SELECT n_nationkey, unnest(string_to_array(n_comment, ' ')) AS word FROM nation) \
         WHERE word <> '' GROUP BY word ORDER BY 2 DESC, 1 LIMIT 20",
    ),
    (
        "SELECT c_custkey, f FROM customer LEFT JOIN factors(CASE WHEN c_custkey % 3 > 0 THEN c_custkey % 3 END) AS t (f) ON true WHERE \
         c_custkey < 200 ORDER BY 1, 2",
        "SELECT c_custkey, CASE WHEN c_custkey % 3 = 2 THEN 2 END FROM customer WHERE c_custkey < 200 ORDER BY 1, 2",
    ),
    (
        "SELECT sum(f), count(*) FROM orders, factors(4 * (o_orderkey % 2 + 1)) AS f WHERE o_custkey % 2 = 1",
        "SELECT sum(4 + 2 * (o_orderkey % 2)), sum(2 + o_orderkey % 2) FROM orders WHERE o_custkey % 2 = 1",
    ),
    (
        "SELECT o_orderkey, factors(6) AS f FROM orders WHERE list_contains(factors(o_orderkey), 4999) ORDER BY 1, 2",
        "SELECT o_orderkey, f FROM orders, (VALUES (2), (3)) AS v (f) WHERE o_orderkey % 4999 = 0 ORDER BY 1, 2",
    ),
    ("SELECT * FROM words('to be or') ORDER BY words", "SELECT * FROM (VALUES ('be'), ('or'), ('to')) AS t (words) ORDER BY 1"),
];

#[test]
fn rows_do_not_hang_on_where_table_functions_ran() {
    let path = function_modules::built("arrow-udf", "arrow_udf_functions.wasm");
    block_on(async {
        for mode in [Mode::ONE_HERE, Mode::FOUR_PROCESSES, Mode::PUSHDOWN_OFF, Mode::FILTERED, Mode::STORED, Mode::ARRAYS] {
            let setup = Setup::new(mode).await;
            for name in ["nation", "customer", "orders"] {
                load(&setup.engine, spec(name, mode.encoding)).await.unwrap();
            }
            let session = files(&setup).await;
            create(&session, &path, &["words(text) RETURNS SETOF text", "factors(n bigint) RETURNS SETOF bigint"]).await;
            for (query, twin) in TWINS {
                for _ in 0..2 {
                    assert_eq!(text(&session, query).await, text(&session, twin).await, "{}: {query}", mode.name);
                }
            }
            let said = refusal(&session, "SELECT factors(o_orderkey - 7) FROM orders").await;
            assert!(said.message.contains("has no prime factors"), "{}: {said}", mode.name);
            setup.shutdown().await;
        }
    });
}

/// A filter with such a function drops rows where they are.
#[test]
fn table_functions_run_at_the_drives() {
    let path = function_modules::built("arrow-udf", "arrow_udf_functions.wasm");
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        load(&setup.engine, spec("orders", Mode::FOUR_PROCESSES.encoding)).await.unwrap();
        let session = files(&setup).await;
        create(&session, &path, &["factors(bigint) RETURNS SETOF bigint"]).await;
        let all = link_bytes(&session, "SELECT o_comment FROM orders").await.unwrap();
        let some =
            link_bytes(&session, "SELECT o_comment FROM orders WHERE list_contains(factors(o_orderkey), 4999)").await.unwrap();
        assert!(some * 10 < all, "{some} bytes of {all}");
        let plan = text(&session, "EXPLAIN SELECT o_comment FROM orders WHERE list_contains(factors(o_orderkey), 4999)").await;
        let at_drive = plan.lines().any(|line| line.trim_start().starts_with("drive") && line.contains("factors@"));
        assert!(at_drive, "{plan}");
        // Rows that a table function gives are filtered and grouped where they are made.
        let rows = "orders, factors(o_orderkey) AS f WHERE o_custkey % 10 = 7";
        let all = link_bytes(&session, &format!("SELECT o_orderkey, f FROM {rows}")).await.unwrap();
        for query in [
            format!("SELECT f, count(*) FROM {rows} AND f < 20 GROUP BY f"),
            format!("SELECT sum(f), max(o_orderkey) FROM {rows}"),
            format!("SELECT o_orderkey, f FROM {rows} AND f = 4999"),
        ] {
            let bytes = link_bytes(&session, &query).await.unwrap();
            assert!(bytes * 3 < all, "{query}: {bytes} bytes of {all}");
            let plan = text(&session, &format!("EXPLAIN {query}")).await;
            let at_drive = plan.lines().any(|line| line.trim_start().starts_with("drive") && line.contains("Unnest"));
            assert!(at_drive, "{plan}");
        }
        let shown = text(&session, "SHOW FUNCTIONS LIKE 'factors'").await;
        assert_eq!(shown, "factors\tInt64\t[NULL]\t[Int64]\tTABLE\tNULL\tfactors(bigint)");
        collect(&session, "DROP FUNCTION factors").await.unwrap();
        setup.shutdown().await;
    });
}
