//! Plans that are changed in the middle: what is done stays, what is left comes by another plan, and each slice counts once.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use futures::StreamExt;
use pithead_e2e::{Mode, Setup, Table, bag_difference, block_on, collect, refusal, table};
use pithead_host::{LoadMode, LoadSpec, QueryProfile, Session, SubPlanProfile};

const FACTS: i64 = 300_000;
const KEYS: i64 = 600_000;
const NAMES: i64 = 60_000;
/// All rows of `t` pass, where a tenth of them is expected: it is much less to send keys of `d` to them than to have them all.
const MANY: &str = "SELECT d.name % 7, count(*), sum(t.v), max(t.a), max(t.b), max(t.c), max(t.e), max(t.f), max(t.g), max(t.h) \
                    FROM t JOIN d ON t.k = d.k WHERE t.note LIKE '%note%' GROUP BY 1 ORDER BY 1";
/// Questions below which each row of `t` counts for itself, in different ways.
const QUESTIONS: [&str; 8] = [
    MANY,
    "SELECT t.id, d.name FROM t JOIN d ON t.k = d.k WHERE t.v < 7",
    "SELECT d.name, t.id FROM t LEFT JOIN d ON t.k = d.k AND d.name < 1000 WHERE t.v = 3",
    "SELECT t.v, count(*) FROM t WHERE t.note LIKE '%9%' AND t.k IN (SELECT k FROM d WHERE name > 100) GROUP BY 1",
    "SELECT t.v, count(*) FROM t WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.k = t.k) GROUP BY 1",
    "SELECT e.name, avg(t.v), stddev(t.v) FROM t JOIN d ON t.k = d.k JOIN d AS e ON e.name = t.v GROUP BY 1 HAVING count(*) > 3",
    "SELECT t.id FROM t JOIN d ON t.k = d.k ORDER BY t.id LIMIT 20",
    "SELECT (SELECT count(*) FROM t JOIN d ON t.k = d.k WHERE t.v > d.name), sum(v) FROM t WHERE v < 50",
];

fn facts() -> RecordBatch {
    let numbers = |value: &dyn Fn(i64) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..FACTS).map(value))) };
    let wide = ["a", "b", "c", "e", "f", "g", "h"].map(|name| (name, numbers(&|id| id * 7_919 % 1_000_003)));
    let notes = (0..FACTS).map(|id| format!("a note of some length, so that it costs {id}"));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", numbers(&|id| id)),
        ("k", numbers(&|id| id * 31 % KEYS)),
        ("v", numbers(&|id| id * 7_919 % 100)),
        ("note", Arc::new(StringArray::from_iter_values(notes))),
    ];
    RecordBatch::try_from_iter(columns.into_iter().chain(wide)).expect("a batch")
}

fn names() -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..NAMES));
    let names: ArrayRef = Arc::new(Int64Array::from_iter_values((0..NAMES).map(|k| k * 17 % NAMES)));
    RecordBatch::try_from_iter([("k", keys), ("name", names)]).expect("a batch")
}

async fn put(setup: &Setup, name: &str, slice_rows: usize, rows: RecordBatch) {
    let (mode, encoding) = (LoadMode::Create, Some(setup.mode.encoding.to_owned()));
    let slice_rows = Some(slice_rows as u64).and_then(|rows| rows.try_into().ok());
    let spec = LoadSpec { mode, slice_rows, encoding, ..LoadSpec::new(name.parse().expect("a name"), vec![]) };
    let (schema, batch) = (rows.schema(), futures::stream::iter([Ok(rows)]).boxed());
    setup.engine.host.load_batches(spec, schema, batch).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
}

async fn with_tables(mode: Mode) -> Setup {
    let setup = Setup::new(mode).await;
    put(&setup, "t", 8_192, facts()).await;
    put(&setup, "d", 8_192, names()).await;
    setup
}

async fn set(session: &Session, settings: &[&str]) {
    for setting in settings {
        collect(session, &format!("SET pithead.{setting}")).await.unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    }
}

/// Has the host divide both sides of its joins by their keys, which it does by itself for large sides only.
async fn join_in_partitions(session: &Session) {
    for what in ["hash_join_single_partition_threshold", "hash_join_single_partition_threshold_rows"] {
        let setting = format!("SET datafusion.optimizer.{what} = 0");
        collect(session, &setting).await.unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    }
}

async fn ask(session: &Session, statement: &str) -> (Table, Arc<QueryProfile>) {
    let mut answer = session.run(statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    let mut batches = Vec::new();
    while let Some(batch) = answer.rows.next().await {
        batches.push(batch.unwrap_or_else(|fault| panic!("{statement}: {fault}")));
    }
    (table(&answer.schema, &batches), answer.profile)
}

/// How often each slice of `t` was answered for, over all plans of a query that reads it once.
fn slices_of_t(profile: &QueryProfile) -> BTreeMap<(usize, u32), u32> {
    let mut slices = BTreeMap::new();
    for sub_plan in profile.sub_plans().iter().filter(|sub_plan| sub_plan.sub_plan.driving().dataset == "t") {
        for (partition, session) in sub_plan.partitions() {
            for span in session.annotations.iter().flat_map(|annotation| &annotation.slices) {
                (span.first..span.first + span.count).for_each(|slice| *slices.entry((partition, slice)).or_insert(0) += 1);
            }
        }
    }
    slices
}

/// Of each plan that read `t`, slices that it answered for, and their rows.
fn plans_of_t(profile: &QueryProfile) -> Vec<(f64, f64)> {
    let over_t = profile.sub_plans().into_iter().filter(|sub_plan| sub_plan.sub_plan.driving().dataset == "t");
    let of_plan = |sub_plan: Arc<SubPlanProfile>| {
        let annotations: Vec<_> = sub_plan.sessions().into_iter().flat_map(|session| session.annotations).collect();
        let slices: u32 = annotations.iter().flat_map(|annotation| &annotation.slices).map(|span| span.count).sum();
        let rows: u64 = annotations.iter().map(|annotation| annotation.rows_out).sum();
        (f64::from(slices), rows as f64)
    };
    over_t.map(of_plan).collect()
}

async fn explained(session: &Session, statement: &str) -> String {
    let plan = collect(session, &format!("EXPLAIN ANALYZE {statement}")).await.unwrap_or_else(|fault| panic!("{fault}"));
    plan.rows.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

#[test]
fn a_plan_that_was_wrong_is_changed_in_the_middle() {
    block_on(async {
        let paced = Mode { name: "slow links", arguments: &["--link", "20mbit"], ..Mode::FOUR_PROCESSES };
        let setup = with_tables(paced).await;
        let session = setup.session().await;
        set(&session, &["sample = off", "level = 3", "summary_cache = off", "replan = off"]).await;
        let (expected, _) = ask(&session, MANY).await;
        set(&session, &["replan = auto"]).await;
        let text = explained(&session, MANY).await;
        assert!(text.contains("planned anew after") && text.contains("times the rows that were expected"), "{text}");
        assert!(text.contains("until then:"), "{text}");
        // The query above has counted what passes, so that the next one is planned right from the start. Not in a new host.
        let (rows, profile) = ask(&session, MANY).await;
        assert_eq!(bag_difference(&rows, &expected), None);
        let slices = slices_of_t(&profile);
        assert!(slices.len() > 30 && slices.values().all(|count| *count == 1), "{slices:?}");
        // When the plan is changed hangs on the machine, but not what it was and what it becomes: all rows of some slices, and of the
        // others those whose keys are in `d`, a tenth of them.
        let [(first, rows_of_first), (second, rows_of_second)] = plans_of_t(&profile)[..] else { panic!("one plan, or three") };
        assert!(first > 0.0 && second > 0.0, "{first} slices by one plan, {second} by the other");
        let (of_first, of_second) = (rows_of_first / first, rows_of_second / second);
        assert!(of_first > 4.0 * of_second, "{of_first} rows of a slice, then {of_second}");
        setup.shutdown().await;
    });
}

#[test]
fn a_plan_that_is_changed_anywhere_gives_the_same_rows() {
    block_on(async {
        for mode in [Mode::FOUR_HERE, Mode::ONE_HERE, Mode::MIXED, Mode::ARRAYS] {
            let setup = with_tables(mode).await;
            let session = setup.session().await;
            set(&session, &["sample = off", "summary_cache = off"]).await;
            join_in_partitions(&session).await;
            let mut changed = 0;
            for question in QUESTIONS {
                set(&session, &["replan = off", "pushdown_joins = on"]).await;
                let (expected, _) = ask(&session, question).await;
                for seed in 0..6 {
                    let joins = if seed % 2 == 0 { "pushdown_joins = off" } else { "pushdown_joins = on" };
                    set(&session, &[&format!("replan = 'random:{seed}'"), joins]).await;
                    let (rows, _) = ask(&session, question).await;
                    assert_eq!(bag_difference(&rows, &expected), None, "{}, seed {seed}: {question}", mode.name);
                }
                set(&session, &["replan = 'random:0'", "pushdown_joins = off"]).await;
                changed += usize::from(explained(&session, question).await.contains("planned anew by chance"));
            }
            assert!(changed > 0, "{}: no plan was changed", mode.name);
            setup.shutdown().await;
        }
    });
}

#[test]
fn each_slice_counts_once_whichever_plan_reads_it() {
    block_on(async {
        let setup = with_tables(Mode::FOUR_HERE).await;
        let session = setup.session().await;
        set(&session, &["sample = off", "summary_cache = off", "slice_cache = 0", "pushdown_joins = off"]).await;
        let question = "SELECT d.name, count(*) FROM t JOIN d ON t.k = d.k GROUP BY 1";
        let mut plans = 0;
        for seed in 0..12 {
            set(&session, &[&format!("replan = 'random:{seed}'"), &format!("level = 'random:{seed}'")]).await;
            let (_, profile) = ask(&session, question).await;
            let slices = slices_of_t(&profile);
            assert!(slices.len() > 30 && slices.values().all(|count| *count == 1), "seed {seed}: {slices:?}");
            plans = plans.max(profile.sub_plans().len());
        }
        assert!(plans > 2, "no plan was changed");
        setup.shutdown().await;
    });
}

#[test]
fn when_to_plan_anew_is_named() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        let session = setup.session().await;
        for value in ["often", "'random:'", "3"] {
            let fault = refusal(&session, &format!("SET pithead.replan = {value}")).await;
            assert!(fault.to_string().contains("expected auto, off or random:SEED"), "{fault}");
        }
        setup.shutdown().await;
    });
}
