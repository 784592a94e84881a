//! Statements that write, by several at once: no change is lost, and no reader sees half of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pithead_e2e::{Mode, Setup, block_on, collect, refusal};
use pithead_host::Session;
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
            "UPDATE t SET v = u.v FROM t AS u WHERE u.id = t.id",
        ] {
            let fault = refusal(&session, sql).await;
            assert!(fault.blame != Blame::Bug, "{sql}: {fault}");
        }
        assert_eq!(number(&session, "SELECT sum(id + v) FROM t").await, before);
        assert_eq!(number(&session, "SELECT count(*) FROM information_schema.tables WHERE table_name IN ('u', 'v')").await, 0);
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
