//! Aggregates of users in queries: the same rows wherever their parts were computed; hostile ones end their query, and nothing else.

#[path = "../../../../program/src/tests/aggregates_guest.rs"]
pub(super) mod aggregates_guest;

use aggregates_guest::aggregates;

use super::*;

/// Queries with `total`, and the same with `sum`.
const TWINS: &[(&str, &str)] = &[
    ("SELECT total(o_orderkey) FROM orders", "SELECT sum(o_orderkey) FROM orders"),
    (
        "SELECT o_orderstatus, total(o_custkey), count(*), total(o_orderkey) FROM orders GROUP BY 1 ORDER BY 1",
        "SELECT o_orderstatus, sum(o_custkey), count(*), sum(o_orderkey) FROM orders GROUP BY 1 ORDER BY 1",
    ),
    // Many groups, each of them whole on one drive.
    (
        "SELECT o_orderkey, total(o_custkey) AS t FROM orders GROUP BY 1 HAVING total(o_custkey) % 97 = 5 ORDER BY t DESC, 1 LIMIT 20",
        "SELECT o_orderkey, sum(o_custkey) AS t FROM orders GROUP BY 1 HAVING sum(o_custkey) % 97 = 5 ORDER BY t DESC, 1 LIMIT 20",
    ),
    // Many groups that are on all drives.
    (
        "SELECT o_custkey, total(o_orderkey) AS t FROM orders GROUP BY 1 ORDER BY t DESC, 1 LIMIT 30",
        "SELECT o_custkey, sum(o_orderkey) AS t FROM orders GROUP BY 1 ORDER BY t DESC, 1 LIMIT 30",
    ),
    (
        "SELECT o_orderstatus, total(o_custkey) FILTER (WHERE o_orderkey % 3 = 0), avg(o_custkey) FROM orders GROUP BY 1 ORDER BY 1",
        "SELECT o_orderstatus, sum(o_custkey) FILTER (WHERE o_orderkey % 3 = 0), avg(o_custkey) FROM orders GROUP BY 1 ORDER BY 1",
    ),
    (
        "SELECT o_orderstatus, total(DISTINCT o_custkey) FROM orders GROUP BY 1 ORDER BY 1",
        "SELECT o_orderstatus, sum(DISTINCT o_custkey) FROM orders GROUP BY 1 ORDER BY 1",
    ),
    ("SELECT total(DISTINCT c_nationkey) FROM customer", "SELECT sum(DISTINCT c_nationkey) FROM customer"),
    (
        "SELECT total(nullif(o_custkey, 4)), total(NULL), total(o_orderkey) FILTER (WHERE o_orderkey < 0) FROM orders",
        "SELECT sum(nullif(o_custkey, 4)), 0, 0 FROM orders",
    ),
    ("SELECT total(o_orderkey) FROM orders WHERE o_orderkey < 0", "SELECT 0"),
    (
        "SELECT c_custkey, (SELECT total(o_orderkey) FROM orders WHERE o_custkey = c_custkey) FROM customer WHERE c_custkey < 60 ORDER BY 1",
        "SELECT c_custkey, coalesce((SELECT sum(o_orderkey) FROM orders WHERE o_custkey = c_custkey), 0) FROM customer WHERE c_custkey < \
         60 ORDER BY 1",
    ),
    (
        "SELECT n_name, total(o_orderkey) FROM nation JOIN customer ON n_nationkey = c_nationkey JOIN orders ON c_custkey = o_custkey \
         GROUP BY 1 ORDER BY 1",
        "SELECT n_name, sum(o_orderkey) FROM nation JOIN customer ON n_nationkey = c_nationkey JOIN orders ON c_custkey = o_custkey GROUP \
         BY 1 ORDER BY 1",
    ),
    (
        "SELECT n_nationkey, total(n_nationkey) OVER (ORDER BY n_nationkey) FROM nation ORDER BY 1",
        "SELECT n_nationkey, sum(n_nationkey) OVER (ORDER BY n_nationkey) FROM nation ORDER BY 1",
    ),
    (
        "SELECT o_orderstatus, o_orderpriority, total(o_custkey) FROM orders GROUP BY ROLLUP (o_orderstatus, o_orderpriority) ORDER BY 1, 2",
        "SELECT o_orderstatus, o_orderpriority, sum(o_custkey) FROM orders GROUP BY ROLLUP (o_orderstatus, o_orderpriority) ORDER BY 1, 2",
    ),
    (
        "SELECT total(t) FROM (SELECT total(o_orderkey) AS t FROM orders GROUP BY o_custkey % 7) AS s",
        "SELECT sum(o_orderkey) FROM orders",
    ),
];

const TOTAL: &str = "total(x bigint) RETURNS bigint";

async fn answers_are_those_of_the_twins(mode: Mode) {
    let setup = Setup::new(mode).await;
    for name in ["nation", "customer", "orders"] {
        load(&setup.engine, spec(name, mode.encoding)).await.unwrap();
    }
    let (written, session) = (Written::new(), files(&setup).await);
    create(&session, &written.module("aggregates.wasm", &module_with(&aggregates())), &[TOTAL]).await;
    for (query, twin) in TWINS {
        // Twice, since the second time some of it is kept.
        for _ in 0..2 {
            assert_eq!(text(&session, query).await, text(&session, twin).await, "{}: {query}", mode.name);
        }
    }
    setup.shutdown().await;
}

#[test]
fn answers_do_not_hang_on_where_parts_were_computed() {
    block_on(async {
        for mode in [
            Mode::ONE_HERE,
            Mode::FOUR_PROCESSES,
            Mode::PUSHDOWN_OFF,
            Mode::FILTERED,
            Mode::STORED,
            Mode::MIXED,
            Mode::REPLANNED,
            Mode::ARRAYS,
            Mode::ARRAYS_OF_ARRAYS,
        ] {
            answers_are_those_of_the_twins(mode).await;
        }
    });
}

#[test]
fn drives_send_states_and_not_rows() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        load(&setup.engine, spec("orders", "vortex")).await.unwrap();
        let (written, session) = (Written::new(), files(&setup).await);
        let path = written.module("aggregates.wasm", &module_with(&aggregates()));
        create(&session, &path, &[TOTAL]).await;
        let query = "SELECT o_orderpriority, total(o_orderkey) FROM orders GROUP BY 1";
        let shown = plan(&session, query).await;
        assert!(shown.contains(".part(") && shown.contains("merges the drives' parts"), "{shown}");
        let here = link_bytes(&session, query).await.unwrap();
        collect(&session, "SET pithead.pushdown = off").await.unwrap();
        let hauled = link_bytes(&session, query).await.unwrap();
        assert!(here * 4 < hauled, "{here} bytes with push-down, {hauled} without");
        collect(&session, "SET pithead.pushdown = on").await.unwrap();
        // Another definition under the same name is answered from nothing that was kept of the first.
        assert_eq!(text(&session, "SELECT total(o_orderkey) = sum(o_orderkey) FROM orders").await, "true");
        let scalar = "total(bigint) RETURNS bigint LANGUAGE wasm AS";
        let sql = format!("CREATE OR REPLACE FUNCTION {scalar} '{}', 'mix'", path.display());
        collect(&session, &sql).await.unwrap();
        assert_eq!(text(&session, "SELECT total(2)").await, "69");
        let more = module_with(&aggregates().replace(
            "(then (call $state (local.get $column) (local.get $i)))",
            "(then (i64.add (i64.const 1000) (call $state (local.get $column) (local.get $i))))",
        ));
        create(&session, &written.module("more.wasm", &more), &[TOTAL]).await;
        let more = text(&session, "SELECT total(o_orderkey) > sum(o_orderkey) FROM orders").await;
        assert_eq!(more, "true", "each state that is combined adds 1,000");
        collect(&session, "DROP FUNCTION total").await.unwrap();
        assert!(refusal(&session, query).await.to_string().contains("total"));
        setup.shutdown().await;
    });
}

#[test]
fn a_definition_that_its_module_does_not_bear_out_is_refused() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        let (written, session) = (Written::new(), files(&setup).await);
        let path = written.module("aggregates.wasm", &module_with(&aggregates()));
        let path = path.display();
        for (rest, wanted) in [
            (format!("total() RETURNS bigint LANGUAGE wasm AS '{path}'"), "an aggregate takes at least one argument"),
            (format!("total(bigint) RETURNS bigint VOLATILE LANGUAGE wasm AS '{path}'"), "an aggregate cannot be VOLATILE"),
            (format!("tota(bigint) RETURNS bigint LANGUAGE wasm AS '{path}'"), "its module has no function tota; it has mix, "),
        ] {
            let fault = refusal(&session, &format!("CREATE FUNCTION {rest}")).await;
            assert!(fault.to_string().contains(wanted), "{rest}: {fault}");
        }
        let path = written.module("aggregates.wasm", &module_with(&aggregates()));
        create(&session, &path, &[TOTAL]).await;
        let fault = refusal(&session, "SELECT total(DISTINCT n_nationkey), count(*), total(n_regionkey) FROM nation").await;
        assert!(fault.to_string().contains("main.total(DISTINCT …) cannot be computed beside"), "{fault}");
        setup.shutdown().await;
    });
}

/// States of 512 MiB, of which a session at the drive may hold 64 MiB: the query is answered, or ends because of memory, but in no case
/// does the drive take as much as the states.
#[test]
fn states_of_many_groups_keep_to_the_drives_memory() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let drives =
            DriveProcess::start_many(directory.path(), 1, &["--threads", "1", "--memory", "256MiB", "--cache", "16MiB"]);
        let target = Target::Drives(drives.iter().map(|drive| drive.address().to_owned()).collect());
        let options = EmbedOptions { memory: Some(512 << 20), ..EmbedOptions::default() };
        let engine = connect(&target, &options).await.unwrap();
        let session = engine.host.session().with_files();
        let path = Written::new();
        let path = path.module("fat.wasm", &module_with(&aggregates()));
        create(&session, &path, &["a_fattens(bigint) RETURNS bigint"]).await;
        collect(&session, "CREATE TABLE t AS SELECT value AS n FROM range(524288)").await.unwrap();
        let before = drives[0].memory_peak();
        // 128 groups of a batch have 8 MiB, and 1,024 groups have as much as the session.
        for groups_of in [64, 8] {
            let query =
                format!("SELECT count(*), sum(f) FROM (SELECT n / {groups_of} AS k, a_fattens(n) AS f FROM t GROUP BY 1) AS s");
            let groups = 524_288 / groups_of;
            match collect(&session, &query).await {
                Ok(table) => assert_eq!(table.rows, [[groups.to_string(), (groups * 7).to_string()]], "{query}"),
                Err(fault) => assert!(fault.blame == Blame::Limit && fault.to_string().contains("memory"), "{query}: {fault}"),
            }
            let more = drives[0].memory_peak() - before;
            assert!(more < 384 << 20, "{groups} groups: the drive took {} MiB more", more >> 20);
            println!("{groups} groups of 64 KiB: {} MiB", more >> 20);
            assert_eq!(text(&session, "SELECT count(*) FROM t").await, "524288", "nothing else is harmed");
        }
        engine.shutdown().await;
    });
}

#[test]
fn a_hostile_aggregate_ends_its_query_and_nothing_else() {
    block_on(async {
        for mode in [Mode { drives: 2, ..Mode::FOUR_PROCESSES }, Mode::PUSHDOWN_OFF, Mode::STORED] {
            let setup = Setup::new(mode).await;
            load(&setup.engine, spec("orders", "vortex")).await.unwrap();
            let (written, session) = (Written::new(), files(&setup).await);
            let path = written.module("hostile.wasm", &module_with(&aggregates()));
            let names = ["traps", "loops", "grows", "fails", "lies", "bloats", "garbles", "breaks", "spoils"];
            let definitions = names.map(|name| format!("a_{name}(bigint) RETURNS bigint"));
            create(&session, &path, &definitions.each_ref().map(String::as_str)).await;
            let others = "SELECT count(*), sum(o_custkey) FROM orders";
            let wanted = text(&session, others).await;
            for (name, cause) in [
                ("traps", "it gave up"),
                ("loops", "it ran for longer than"),
                ("grows", "it asked for more memory"),
                ("fails", "it does not like tha"),
                ("lies", "its states are"),
                ("bloats", "at most 1048576 are allowed"),
                ("garbles", "it does not like tha"),
                ("breaks", "it gave up"),
                ("spoils", "it gave up"),
            ] {
                for query in [
                    format!("SELECT a_{name}(o_orderkey) FROM orders"),
                    format!("SELECT o_orderpriority, a_{name}(o_orderkey) FROM orders GROUP BY 1"),
                ] {
                    let start = Instant::now();
                    let beside = setup.engine.host.session();
                    let (fault, answer) = tokio::join!(refusal(&session, &query), text(&beside, others));
                    assert_eq!(answer, wanted, "beside {query}");
                    let said = fault.to_string();
                    assert!(said.contains(&format!("function main.a_{name}: ")) && said.contains(cause), "{query}: {said}");
                    assert_eq!(fault.blame, Blame::User, "{query}: {said}");
                    assert!(start.elapsed() < Duration::from_secs(60), "{query}: {:?}", start.elapsed());
                }
            }
            assert_eq!(text(&session, others).await, wanted);
            setup.shutdown().await;
        }
    });
}
