use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::execution::context::SessionContext;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use pithead_model::{Blame, FaultKind};

use crate::{EngineOptions, fault_from_datafusion, session_state};

const ROWS: &str = "(SELECT value AS id, 'text ' || value AS s, [value, value + 1] AS l FROM generate_series(1, 4000))";

/// A session with this many bytes, and its memory.
fn context(bytes: usize) -> (SessionContext, Arc<dyn MemoryPool>) {
    let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(bytes));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc().unwrap();
    let options = EngineOptions { runtime, ..EngineOptions::default() };
    (SessionContext::new_with_state(session_state(&options)), pool)
}

async fn answer(context: &SessionContext, sql: &str) -> String {
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    ScalarValue::try_from_array(batches[0].column(0), 0).unwrap().to_string()
}

/// Over 4,000 rows these expressions make up to 2 GB in all, and a small answer.
#[tokio::test]
async fn small_answers_need_little_memory_however_much_is_made_on_the_way() {
    let (context, pool) = context(64 << 20);
    let years = "2035 ".repeat(40);
    for (sql, expected) in [
        (format!("SELECT max(length(repeat(s, 20000))) FROM {ROWS}"), "180000"),
        (format!("SELECT count(*) FROM {ROWS} WHERE length(repeat(s, 20000)) > 179999"), "3001"),
        (format!("SELECT sum(length(lpad(s, 20000, 'ä'))) FROM {ROWS}"), "80000000"),
        (format!("SELECT max(cardinality(array_repeat(id, 20000))) FROM {ROWS}"), "20000"),
        (format!("SELECT max(array_length(range(0, 50000))) FROM {ROWS}"), "50000"),
        (format!("SELECT max(length(repeat(repeat(s, 100), 100))) FROM {ROWS}"), "90000"),
        (format!("SELECT max(length(replace(repeat('a', 1000), 'a', s))) FROM {ROWS}"), "9000"),
        (format!("SELECT max(length(regexp_replace(repeat('a', 1000), 'a', s, 'g'))) FROM {ROWS}"), "9000"),
        (format!("SELECT max(length(repeat('ab', 2000000))) FROM {ROWS} WHERE id < 9"), "4000000"),
        (format!("SELECT max(length(concat_ws(repeat(',', 9000), s, 'x', id::varchar))) FROM {ROWS}"), "18014"),
        (format!("SELECT max(length(array_to_string(l, repeat(',', 9000)))) FROM {ROWS}"), "9008"),
        (format!("SELECT max(cardinality(array_replace_all(array_repeat(s, 100), s, repeat(s, 100)))) FROM {ROWS}"), "100"),
        (format!("SELECT max(regexp_match(s, '((t)ext) (.*)')[3]) FROM {ROWS}"), "999"),
        (format!("SELECT max(to_char(DATE '2024-02-29' + id::int, repeat('%Y ', 40))) FROM {ROWS}"), years.as_str()),
    ] {
        assert_eq!(answer(&context, &sql).await, expected, "{sql}");
    }
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_it_is_made() {
    let (context, pool) = context(64 << 20);
    let doubled = |expr: &str| {
        let steps =
            (1..24).map(|step| format!("a{step} AS (SELECT {expr} AS t FROM a{})", step - 1)).collect::<Vec<_>>().join(", ");
        format!("WITH a0 AS (SELECT s AS t FROM {ROWS}), {steps} SELECT max(length(t)) FROM a23")
    };
    for sql in [
        format!("SELECT max(length(repeat(s, 100000000))) FROM {ROWS}"),
        format!("SELECT length(repeat('x', 2000000000)) FROM {ROWS}"),
        format!("SELECT max(cardinality(range(0, id * 1000000000))) FROM {ROWS}"),
        format!("SELECT max(cardinality(array_resize(l, 1000000000000))) FROM {ROWS}"),
        doubled("t || t"),
        doubled("concat(t, t)"),
        "SELECT length(repeat('x', 2000000000))".to_owned(),
    ] {
        let frame = context.sql(&sql).await.unwrap();
        let fault = fault_from_datafusion(frame.collect().await.expect_err(&sql));
        assert_eq!(fault.blame, Blame::Limit, "{sql}: {fault}");
    }
    assert_eq!(pool.reserved(), 0);
}

/// No memory is enough for them, so nobody is told to give more.
#[tokio::test]
async fn series_with_more_values_than_lists_have_are_refused() {
    let (context, pool) = context(64 << 20);
    for call in [
        "range(-9223372036854775808, 9223372036854775807)",
        "generate_series(0, id * 3000000000)",
        "generate_series(TIMESTAMP '2024-01-01', TIMESTAMP '2030-01-01', INTERVAL '1 microsecond')",
    ] {
        let frame = context.sql(&format!("SELECT {call}, id FROM {ROWS}")).await.unwrap();
        let fault = fault_from_datafusion(frame.collect().await.expect_err(call));
        assert_eq!((fault.blame, fault.kind), (Blame::Limit, FaultKind::Other), "{call}: {fault}");
        assert!(fault.message.contains("makes more than 2147483647 values"), "{call}: {fault}");
    }
    assert_eq!(pool.reserved(), 0);
}

/// A regression: memory for as many steps as there are nanoseconds was asked for first.
#[tokio::test]
async fn series_without_a_step_are_the_users_fault() {
    let (context, _) = context(64 << 20);
    for series in [
        "SELECT range(0, 10, 0)",
        "SELECT generate_series(0, 10000000000, 0)",
        "SELECT range(0, 10000000000, id - id) FROM range(9) AS t(id)",
        "SELECT generate_series(DATE '2024-01-01', DATE '2024-02-01', INTERVAL '0 day')",
        "SELECT range(TIMESTAMP '2024-01-01', TIMESTAMP '2024-02-01', INTERVAL '0 day')",
        "SELECT * FROM range(0, 10, 0)",
        "SELECT * FROM generate_series(DATE '2024-01-01', DATE '2024-02-01', INTERVAL '0 day')",
        "SELECT * FROM range(TIMESTAMP '2024-01-01', TIMESTAMP '2024-02-01', INTERVAL '0 day')",
    ] {
        let error = match context.sql(series).await {
            Ok(frame) => frame.collect().await.expect_err(series),
            Err(error) => error,
        };
        let fault = fault_from_datafusion(error);
        assert_eq!(fault.blame, Blame::User, "{series}: {fault}");
        assert!(fault.message.to_lowercase().contains("step"), "{series}: {fault}");
    }
}

/// Each of these makes gigabytes of a few bytes; neither a plan nor a run may.
#[tokio::test]
async fn what_multiplies_is_refused_wherever_it_is_computed() {
    let (context, pool) = context(64 << 20);
    let (a, b) = ("repeat('a', 100000)", "repeat('b', 100000)");
    let texts = vec!["'x'"; 2_000].join(", ");
    for (expr, is_explained) in [
        (format!("length(replace({a}, 'a', {b}))"), true),
        (format!("length(regexp_replace({a}, 'a', {b}, 'g'))"), true),
        (format!("length(array_to_string(range(0, 6000), {a}))"), false),
        (format!("length(array_to_string(make_array(NULL, range(0, 6000)), 'x', {a}))"), false),
        (format!("length(concat_ws({a}, {texts}))"), false),
        (format!("cardinality(array_replace_all(array_repeat('x', 9000), 'x', {a}))"), false),
        (format!("cardinality(regexp_match({a}, repeat('(', 900) || 'a*' || repeat(')', 900)))"), false),
        (format!("levenshtein({a}, {b})"), true),
    ] {
        let sql = format!("SELECT {expr}");
        if is_explained {
            context.sql(&format!("EXPLAIN {sql}")).await.unwrap().collect().await.expect(&sql);
        }
        let fault = fault_from_datafusion(context.sql(&sql).await.unwrap().collect().await.expect_err(&sql));
        assert_eq!(fault.blame, Blame::Limit, "{sql}: {fault}");
    }
    for expr in [format!("array_to_string(range(0, 6000 + id % 1), {a})"), format!("concat_ws({a}, s, {texts})")] {
        let sql = format!("SELECT max({expr}) FROM {ROWS}");
        let fault = fault_from_datafusion(context.sql(&sql).await.unwrap().collect().await.expect_err(&sql));
        assert_eq!(fault.blame, Blame::Limit, "{sql}: {fault}");
    }
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test]
async fn large_constants_hold_their_memory() {
    let (context, pool) = context(64 << 20);
    let part = |text: &str| format!("repeat('{text}', 30000000)");
    for sql in [
        format!("SELECT {}, {}, {}", part("a"), part("b"), part("c")),
        format!("SELECT x, y, z FROM (SELECT {} AS x, {} AS y, {} AS z)", part("a"), part("b"), part("c")),
    ] {
        let fault = fault_from_datafusion(context.sql(&sql).await.unwrap().collect().await.expect_err(&sql));
        assert_eq!(fault.blame, Blame::Limit, "{sql}: {fault}");
    }
    let batches = context.sql(&format!("SELECT {}", part("a"))).await.unwrap().collect().await.unwrap();
    assert!(pool.reserved() >= 30_000_000, "{}", pool.reserved());
    drop(batches);
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test]
async fn results_hold_their_memory_until_they_are_freed() {
    let (context, pool) = context(256 << 20);
    let batches =
        context.sql(&format!("SELECT repeat(s, 200000) FROM {ROWS} WHERE id <= 40")).await.unwrap().collect().await.unwrap();
    assert!(pool.reserved() > 40 << 20, "{}", pool.reserved());
    drop(batches);
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test]
async fn rows_and_names_are_those_of_the_functions() {
    let (context, _) = context(256 << 20);
    for (sql, name, expected) in [
        ("SELECT a || b FROM (VALUES ('x', NULL), ('y', 'z')) AS t(a, b)", "t.a || t.b", "NULL"),
        ("SELECT repeat(a, 2) FROM (VALUES ('x'), ('y')) AS t(a)", "repeat(t.a,Int64(2))", "xx"),
        ("SELECT repeat('', 2000000000) FROM (VALUES ('x')) AS t(a)", "repeat(Utf8(\"\"),Int64(2000000000))", ""),
    ] {
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        assert_eq!(batches[0].schema().field(0).name(), name);
        assert_eq!(ScalarValue::try_from_array(batches[0].column(0), 0).unwrap().to_string(), expected, "{sql}");
    }
}
