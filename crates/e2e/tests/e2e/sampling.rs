//! The sampler: what a few pages tell changes plans and never answers, and is of the slices that a query sees.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::StreamExt;
use pithead_e2e::{Mode, Setup, bag_difference, block_on, collect};
use pithead_host::{LoadMode, LoadSpec, Session};

const ROWS: i64 = 300_000;
/// About one in a hundred rows of `t` pass, and bounds cannot tell.
const RARE: &str =
    "SELECT d.name, count(*), sum(t.v) FROM t JOIN d ON t.k = d.k WHERE t.note LIKE '%rare%' GROUP BY d.name ORDER BY 1";
/// Each half is passed by half of the rows, and so are both: they go together.
const TOGETHER: &str =
    "SELECT d.name, count(*) FROM t JOIN d ON t.k = d.k WHERE t.v < 50 AND t.w < 500 GROUP BY d.name ORDER BY 1";
/// On some rows a condition has no value, but on none of those that the other lets through.
const FAILS: &str =
    "SELECT d.name, count(*) FROM t JOIN d ON t.k = d.k WHERE t.v > 0 AND 1000 / t.v > 100 GROUP BY d.name ORDER BY 1";

fn facts(first: i64, count: i64) -> RecordBatch {
    let numbers =
        |value: &dyn Fn(i64) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((first..first + count).map(value))) };
    let notes =
        (first..first + count).map(|id| if id * 7_919 % 100 == 0 { format!("a rare note {id}") } else { format!("note {id}") });
    let columns: [(&str, ArrayRef); 5] = [
        ("id", numbers(&|id| id)),
        ("k", numbers(&|id| id * 31 % 1_000)),
        ("v", numbers(&|id| id * 7_919 % 100)),
        ("w", numbers(&|id| id * 7_919 % 100 * 10)),
        ("note", Arc::new(StringArray::from_iter_values(notes))),
    ];
    RecordBatch::try_from_iter(columns).expect("a batch")
}

fn dimension() -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((0..1_000).map(|k| format!("name {}", k % 7))));
    RecordBatch::try_from_iter([("k", keys), ("name", names)]).expect("a batch")
}

async fn put(setup: &Setup, name: &str, mode: LoadMode, rows: RecordBatch) {
    let spec = LoadSpec {
        mode,
        slice_rows: (mode != LoadMode::Append).then_some(32_768),
        encoding: (mode != LoadMode::Append).then(|| setup.mode.encoding.to_owned()),
        ..LoadSpec::new(name.parse().expect("a name"), vec![])
    };
    let (schema, batch) = (rows.schema(), futures::stream::iter([Ok(rows)]).boxed());
    setup.engine.host.load_batches(spec, schema, batch).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
}

async fn with_tables(mode: Mode) -> Setup {
    let setup = Setup::new(mode).await;
    put(&setup, "t", LoadMode::Create, facts(0, ROWS)).await;
    put(&setup, "d", LoadMode::Create, dimension()).await;
    setup
}

/// The lines of a plan that tell of samples.
async fn samples(session: &Session, statement: &str) -> Vec<String> {
    let plan = collect(session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    plan.rows.into_iter().flatten().filter(|line| line.starts_with("sample")).collect()
}

async fn set(session: &Session, setting: &str) {
    collect(session, &format!("SET pithead.{setting}")).await.unwrap_or_else(|fault| panic!("{setting}: {fault}"));
}

/// The share of rows that a line says passed, in percent.
fn percent(line: &str) -> f64 {
    let text = line.split(": ").nth(1).and_then(|rest| rest.split(' ').next());
    text.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no share in {line:?}"))
}

#[test]
fn a_few_pages_tell_what_bounds_cannot() {
    block_on(async {
        for mode in [Mode::FOUR_HERE, Mode { encoding: "arrow", ..Mode::FOUR_PROCESSES }, Mode::ARRAYS] {
            let setup = with_tables(mode).await;
            let session = setup.session().await;
            set(&session, "sample_ms = 20000").await;
            set(&session, "sample = always").await;
            let lines = samples(&session, &format!("EXPLAIN {RARE}")).await;
            let [line] = lines.as_slice() else { panic!("{}: {lines:?}", mode.name) };
            assert!((0.5..2.0).contains(&percent(line)), "{}: {line}", mode.name);
            assert!(line.contains("10.00 % by bounds") && line.contains("limiting score"), "{line}");
            let lines = samples(&session, &format!("EXPLAIN {TOGETHER}")).await;
            let [line] = lines.as_slice() else { panic!("{}: {lines:?}", mode.name) };
            assert!((45.0..55.0).contains(&percent(line)) && line.contains("sampled in"), "{}: {line}", mode.name);
            // Known by now, whatever the order and the names.
            let other = TOGETHER.replace("t.v < 50 AND t.w < 500", "u.w < 500 AND u.v < 50");
            let other = other.replace("FROM t JOIN d ON t.k", "FROM t AS u JOIN d ON u.k");
            let lines = samples(&session, &format!("EXPLAIN {other}")).await;
            assert!(lines.len() == 1 && lines[0].contains("sampled before"), "{}: {lines:?}", mode.name);
            // New slices are another matter.
            put(&setup, "t", LoadMode::Append, facts(ROWS, 1_000)).await;
            let lines = samples(&session, &format!("EXPLAIN {TOGETHER}")).await;
            assert!(lines.len() == 1 && lines[0].contains("sampled in"), "{}: {lines:?}", mode.name);
            setup.shutdown().await;
        }
    });
}

#[test]
fn what_a_query_has_counted_is_believed() {
    block_on(async {
        let setup = with_tables(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        set(&session, "sample = always").await;
        collect(&session, "SELECT id, v FROM t WHERE note LIKE '%rare%'").await.expect("rows");
        let lines = samples(&session, &format!("EXPLAIN {RARE}")).await;
        assert!(lines.len() == 1 && lines[0].contains("1.00 % pass as a query has counted"), "{lines:?}");
        setup.shutdown().await;
    });
}

#[test]
fn nothing_is_sampled_where_nothing_hangs_on_it() {
    block_on(async {
        let setup = with_tables(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        let none = Vec::<String>::new();
        // So few rows are read as soon as sampled.
        assert_eq!(samples(&session, &format!("EXPLAIN {RARE}")).await, none);
        set(&session, "sample = always").await;
        for statement in [
            "SELECT count(*) FROM t WHERE note LIKE '%rare%'",
            "SELECT d.name, count(*) FROM t JOIN d ON t.k = d.k WHERE t.v < 5 GROUP BY d.name",
            "SELECT d.name, count(*) FROM t JOIN d ON t.k = d.k WHERE random() < 0.5 GROUP BY d.name",
        ] {
            assert_eq!(samples(&session, &format!("EXPLAIN {statement}")).await, none, "{statement}");
        }
        for settings in [["sample = off", "sample_ms = 100"], ["sample = always", "sample_ms = 0"]] {
            for setting in settings {
                set(&session, setting).await;
            }
            assert_eq!(samples(&session, &format!("EXPLAIN {RARE}")).await, none, "{settings:?}");
        }
        set(&session, "sample_ms = 100").await;
        set(&session, "pushdown = off").await;
        assert_eq!(samples(&session, &format!("EXPLAIN {RARE}")).await, none);
        setup.shutdown().await;
    });
}

#[test]
fn a_lie_costs_no_answer() {
    block_on(async {
        let setup = with_tables(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        set(&session, "sample_ms = 20000").await;
        for statement in [RARE, TOGETHER, FAILS] {
            set(&session, "sample = off").await;
            let expected = collect(&session, statement).await;
            for sampling in ["always", "lying:1", "lying:2"] {
                set(&session, &format!("sample = '{sampling}'")).await;
                match (&expected, collect(&session, statement).await) {
                    (Ok(expected), Ok(got)) => assert_eq!(bag_difference(&got, expected), None, "{sampling}: {statement}"),
                    (Err(expected), Err(got)) => assert_eq!(got.message, expected.message, "{sampling}: {statement}"),
                    (expected, got) => panic!("{sampling}: {statement}: {expected:?}, and then {got:?}"),
                }
            }
        }
        setup.shutdown().await;
    });
}
