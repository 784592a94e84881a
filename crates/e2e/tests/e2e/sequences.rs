//! Statements one after the other in one session, with loads between them: what was kept of the one must not answer the other.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::display::array_value_to_string;
use futures::StreamExt;
use pithead_e2e::{Mode, Setup, bag_difference, block_on, collect};
use pithead_host::{LoadMode, LoadSpec, Parameters, PartitionBy, Session, Statement};
use pithead_model::Fault;

/// Rows `first..first + count` of a table by `id`, with keys that repeat, some of them NULL.
fn rows(first: i64, count: i64) -> RecordBatch {
    let column = |value: &dyn Fn(i64) -> Option<i64>| -> ArrayRef {
        Arc::new((first..first + count).map(value).collect::<Int64Array>())
    };
    let columns = [
        ("id", column(&Some)),
        ("k", column(&|id| (id % 11 != 3).then_some(id * 13 % 41))),
        ("g", column(&|id| (id % 7 != 2).then_some(id % 5))),
        ("v", column(&|id| Some(id * 31 % 101 - 50))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).expect("a batch")
}

/// Loads rows into a dataset, 97 a slice, by the hash of `k`.
async fn put(setup: &Setup, name: &str, mode: LoadMode, rows: RecordBatch) {
    let by_key = (mode != LoadMode::Append).then(|| PartitionBy::Hash(vec!["k".to_owned()]));
    let name = name.parse().expect("a name");
    let spec = LoadSpec { mode, partitioning: by_key, slice_rows: Some(97), ..LoadSpec::new(name, vec![]) };
    let (schema, batch) = (rows.schema(), futures::stream::iter([Ok(rows)]).boxed());
    setup.engine.host.load_batches(spec, schema, batch).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
}

/// Asks in the session, and in a new one that has nothing pushed down; both must say the same.
async fn same(setup: &Setup, session: &Session, sql: &str) {
    let judge = setup.engine.host.session();
    collect(&judge, "SET pithead.pushdown = off").await.expect("a setting");
    let expected = collect(&judge, sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    let got = collect(session, sql).await.unwrap_or_else(|fault| panic!("{}: {sql}: {fault}", setup.mode.name));
    if let Some(told) = bag_difference(&got, &expected) {
        panic!("{}: {sql}\n{told}", setup.mode.name);
    }
}

/// Queries that read the dataset that drives them a second time, as a whole.
const READ_TWICE: &[&str] = &[
    "SELECT a.g, count(*), sum(b.v) FROM t AS a JOIN t AS b ON a.k = b.k GROUP BY a.g",
    "SELECT g, count(*) FROM t AS a WHERE EXISTS (SELECT 1 FROM t AS b WHERE b.k = a.k AND b.id > a.id + 500) GROUP BY g",
    "SELECT g, count(*) FROM t AS a WHERE NOT EXISTS (SELECT 1 FROM t AS b WHERE b.k = a.k AND b.v > a.v + 60) GROUP BY g",
    "SELECT g, sum(v) FROM t AS a WHERE v > (SELECT avg(v) FROM t AS b WHERE b.k = a.k) GROUP BY g",
    "SELECT a.k, count(*) FROM t AS a JOIN t AS b ON a.k = b.k GROUP BY a.k",
    "SELECT count(*) FROM t AS a FULL JOIN t AS b ON a.k = b.k AND a.v < b.v",
    "SELECT sum(v) FROM t",
];

/// A self-join was kept by the slices that it drives over alone. After an append, the new rows found their matches among all rows,
/// and the old ones theirs only among the old.
#[test]
fn appends_between_queries_that_read_a_dataset_twice() {
    block_on(async {
        for mode in [Mode::FOUR_HERE, Mode { drives: 2, ..Mode::FOUR_PROCESSES }, Mode::ONE_ROUND] {
            let setup = Setup::new(mode).await;
            let session = setup.session().await;
            put(&setup, "t", LoadMode::Create, rows(0, 700)).await;
            for (first, mode) in
                [(700, LoadMode::Append), (900, LoadMode::Append), (50, LoadMode::Replace), (400, LoadMode::Append)]
            {
                for sql in READ_TWICE {
                    same(&setup, &session, sql).await;
                    same(&setup, &session, sql).await;
                }
                put(&setup, "t", mode, rows(first, 200)).await;
            }
            for sql in READ_TWICE {
                same(&setup, &session, sql).await;
            }
            setup.shutdown().await;
        }
    });
}

/// A round that hands back no row left the host with nothing to finish the partition by: an internal error.
#[test]
fn a_whole_partition_is_filtered_down_to_nothing() {
    block_on(async {
        for level in ["2", "0"] {
            let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_PROCESSES }).await;
            let session = setup.session().await;
            put(&setup, "t", LoadMode::Create, rows(0, 700)).await;
            collect(&session, &format!("SET pithead.level = {level}")).await.expect("a setting");
            for sql in [
                "SELECT k, count(*) FROM t WHERE v * v > 100000 GROUP BY k HAVING count(*) > 1",
                "SELECT k, count(*) FROM t WHERE v * v > 100000 GROUP BY k",
                "SELECT count(*) FROM t AS a FULL JOIN t AS b ON a.k = b.k WHERE a.v * a.v > 100000",
            ] {
                same(&setup, &session, sql).await;
            }
            setup.shutdown().await;
        }
    });
}

/// Tables that are sent along were those of a domain `input`, so a dataset of that domain could be taken for one.
#[test]
fn a_domain_may_be_called_as_tables_that_are_sent_along() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        let session = setup.session().await;
        put(&setup, "input.table_1", LoadMode::Create, rows(0, 700)).await;
        put(&setup, "input.table_2", LoadMode::Create, rows(300, 100)).await;
        put(&setup, "few", LoadMode::Create, rows(10, 9)).await;
        for sql in [
            "SELECT a.g, count(*), sum(f.v) FROM input.table_1 AS a JOIN few AS f ON a.v = f.v GROUP BY a.g",
            "SELECT count(*) FROM input.table_1 AS a JOIN input.table_2 AS b ON a.id = b.id JOIN few AS f ON f.v = b.v",
            "SELECT count(*) FROM input.table_1 WHERE id IN (SELECT id FROM input.table_2 WHERE v > 0)",
        ] {
            same(&setup, &session, sql).await;
        }
        setup.shutdown().await;
    });
}

/// Statements that are prepared once and run again and again: each run sees the datasets and the settings of its time.
#[test]
fn a_prepared_statement_sees_what_changed_since() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        put(&setup, "t", LoadMode::Create, rows(0, 300)).await;
        let prepared = async |sql| session.prepare(sql, &Parameters::default()).await.expect("a statement");
        let text = async |statement: &Statement| {
            let mut answer = statement.run(&session).await?;
            let mut found = Vec::new();
            while let Some(batch) = answer.rows.next().await {
                let batch = batch?;
                found.extend((0..batch.num_rows()).map(|row| array_value_to_string(batch.column(0), row).expect("a text")));
            }
            Ok::<_, Fault>(found.join(","))
        };
        let count = prepared("SELECT count(*) FROM t").await;
        let tables = prepared("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'main'").await;
        let hour = prepared("SELECT CAST(TIMESTAMPTZ '2024-01-01 00:00:00+00' AS VARCHAR)").await;
        let now = prepared("SELECT now()").await;
        assert_eq!([text(&count).await.unwrap(), text(&tables).await.unwrap()], ["300", "1"]);
        let (before, zone_before) = (text(&now).await.unwrap(), text(&hour).await.unwrap());

        put(&setup, "t", LoadMode::Append, rows(300, 50)).await;
        put(&setup, "u", LoadMode::Create, rows(0, 10)).await;
        collect(&session, "SET TIME ZONE = 'Asia/Tokyo'").await.expect("a setting");
        assert_eq!([text(&count).await.unwrap(), text(&tables).await.unwrap()], ["350", "2"]);
        assert_ne!(text(&now).await.unwrap(), before);
        assert_ne!(text(&hour).await.unwrap(), zone_before);

        put(&setup, "t", LoadMode::Replace, rows(0, 20)).await;
        assert_eq!(text(&count).await.unwrap(), "20");
        collect(&session, "DROP TABLE t").await.expect("it is there");
        let fault = text(&count).await.expect_err("it is not there any more");
        assert!(fault.message.contains("no dataset main.t"), "{fault}");
        setup.shutdown().await;
    });
}
