//! Functions of users in queries: the same rows wherever they ran, by their definition as it is now; hostile ones end their query, and
//! nothing else.

#[path = "../../../program/tests/build/functions.rs"]
mod function_modules;
#[path = "../../../program/src/tests/functions_guest.rs"]
mod functions_guest;

mod aggregates;
mod listed;
mod tables;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use functions_guest::{module, module_with};
use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, Mode, Setup, Table, block_on, collect, link_bytes, load, refusal};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::{Parameters, Session};
use pithead_model::Blame;

/// A module in a file, which goes with its folder.
struct Written {
    folder: tempfile::TempDir,
}

impl Written {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn module(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, wat::parse_str(text).expect("a module")).expect("a file");
        path
    }
}

/// Makes functions of a module, by their names with arguments and results.
async fn create(session: &Session, path: &std::path::Path, functions: &[&str]) {
    for function in functions {
        let sql = format!("CREATE OR REPLACE FUNCTION {function} LANGUAGE wasm AS '{}'", path.display());
        collect(session, &sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    }
}

const GOOD: &[&str] = &[
    "mix(x bigint) RETURNS bigint",
    "length(text) RETURNS bigint",
    "same(text) RETURNS text",
    "is_odd(x bigint) RETURNS boolean",
    "half(double precision) RETURNS double precision",
    "or_zero(bigint) RETURNS bigint CALLED ON NULL INPUT",
];

async fn text(session: &Session, statement: &str) -> String {
    let table: Table = collect(session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    table.rows.iter().map(|row| row.join("\t")).collect::<Vec<_>>().join("\n")
}

async fn files(setup: &Setup) -> Session {
    let session = setup.engine.host.session().with_files();
    for statement in setup.mode.settings {
        collect(&session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    }
    session
}

/// Queries with functions, and the same without. `length` is a function of the engine, so the user's has its domain before it.
const TWINS: &[(&str, &str)] = &[
    ("SELECT sum(mix(o_orderkey)) FROM orders", "SELECT sum((o_orderkey & 65535) * 31 + 7) FROM orders"),
    (
        "SELECT o_orderkey, mix(o_custkey) FROM orders WHERE is_odd(o_orderkey) AND mix(o_orderkey) % 100 < 3 ORDER BY 1",
        "SELECT o_orderkey, (o_custkey & 65535) * 31 + 7 FROM orders WHERE o_orderkey & 1 = 1 AND ((o_orderkey & 65535) * 31 + 7) % \
         100 < 3 ORDER BY 1",
    ),
    (
        "SELECT mix(c_nationkey) AS k, count(*), sum(half(c_acctbal::double)) > 0 FROM customer GROUP BY 1 ORDER BY 1",
        "SELECT (c_nationkey & 65535) * 31 + 7 AS k, count(*), sum(c_acctbal::double * 0.5) > 0 FROM customer GROUP BY 1 ORDER BY 1",
    ),
    (
        "SELECT same(n_name), bytes(n_comment) FROM nation WHERE same(n_name) LIKE '%I%' ORDER BY 1",
        "SELECT n_name, octet_length(n_comment)::bigint FROM nation WHERE n_name LIKE '%I%' ORDER BY 1",
    ),
    (
        "SELECT n_name, count(*) FROM nation JOIN customer ON mix(n_nationkey) = mix(c_nationkey) WHERE is_odd(c_custkey) GROUP BY 1 ORDER \
         BY 1",
        "SELECT n_name, count(*) FROM nation JOIN customer ON n_nationkey = c_nationkey WHERE c_custkey & 1 = 1 GROUP BY 1 ORDER BY 1",
    ),
    (
        "SELECT c_custkey, mix(o_orderkey), or_zero(o_orderkey) FROM customer LEFT JOIN orders ON c_custkey = o_custkey AND \
         is_odd(o_orderkey) WHERE c_custkey < 300 ORDER BY 1, 2, 3",
        "SELECT c_custkey, (o_orderkey & 65535) * 31 + 7, coalesce(o_orderkey, 0) FROM customer LEFT JOIN orders ON c_custkey = o_custkey \
         AND o_orderkey & 1 = 1 WHERE c_custkey < 300 ORDER BY 1, 2, 3",
    ),
    (
        "SELECT o_orderkey FROM orders ORDER BY mix(o_orderkey) DESC, o_orderkey LIMIT 7",
        "SELECT o_orderkey FROM orders ORDER BY (o_orderkey & 65535) * 31 + 7 DESC, o_orderkey LIMIT 7",
    ),
    ("SELECT mix(7), is_odd(NULL), or_zero(NULL), same('x')", "SELECT (7 & 65535) * 31 + 7, NULL::boolean, 0::bigint, 'x'"),
    (
        "SELECT count(*) FROM orders WHERE mix(o_orderkey) = (SELECT max(mix(o_orderkey)) FROM orders)",
        "SELECT count(*) FROM orders WHERE (o_orderkey & 65535) * 31 + 7 = (SELECT max((o_orderkey & 65535) * 31 + 7) FROM orders)",
    ),
];

async fn answers_are_those_of_the_twins(mode: Mode) {
    let setup = Setup::new(mode).await;
    for name in ["nation", "customer", "orders"] {
        load(&setup.engine, spec(name, mode.encoding)).await.unwrap();
    }
    let (written, session) = (Written::new(), files(&setup).await);
    let path = written.module("good.wasm", &module());
    create(&session, &path, &GOOD.iter().copied().filter(|it| !it.starts_with("length")).collect::<Vec<_>>()).await;
    let bytes = format!(
        "CREATE FUNCTION bytes(t text) RETURNS bigint LANGUAGE wasm IMMUTABLE STRICT AS '{}', 'length'",
        path.display()
    );
    collect(&session, &bytes).await.unwrap();
    for (query, twin) in TWINS {
        // Twice, since the second time some of it is kept.
        for _ in 0..2 {
            assert_eq!(text(&session, query).await, text(&session, twin).await, "{}: {query}", mode.name);
        }
    }
    setup.shutdown().await;
}

#[test]
fn answers_do_not_hang_on_where_functions_ran() {
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

/// What EXPLAIN says of where a query runs.
async fn plan(session: &Session, query: &str) -> String {
    text(session, &format!("EXPLAIN {query}")).await
}

#[test]
fn a_filter_runs_at_the_drives_and_only_its_rows_travel() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        load(&setup.engine, spec("orders", "vortex")).await.unwrap();
        let (written, session) = (Written::new(), files(&setup).await);
        create(&session, &written.module("good.wasm", &module()), &[GOOD[0]]).await;
        let query = "SELECT o_comment FROM orders WHERE mix(o_orderkey) = 38";
        let shown = plan(&session, query).await;
        assert!(shown.contains("main.mix@"), "{shown}");
        let here = link_bytes(&session, query).await.unwrap();
        collect(&session, "SET pithead.pushdown = off").await.unwrap();
        let hauled = link_bytes(&session, query).await.unwrap();
        assert!(here * 20 < hauled, "{here} bytes with push-down, {hauled} without");
        collect(&session, "SET pithead.pushdown = on").await.unwrap();
        // One that is declared volatile runs at the host.
        let path = written.folder.path().join("good.wasm");
        let sql = format!("CREATE FUNCTION dice(bigint) RETURNS bigint VOLATILE LANGUAGE wasm AS '{}', 'mix'", path.display());
        collect(&session, &sql).await.unwrap();
        let shown = plan(&session, "SELECT count(*) FROM orders WHERE dice(o_orderkey) = 38").await;
        assert!(shown.contains("gives another value at each call"), "{shown}");
        setup.shutdown().await;
    });
}

/// Rows that EXPLAIN ANALYZE says a function was called for at such a place.
async fn called(session: &Session, query: &str, function: &str, place: &str) -> u64 {
    let told = text(session, &format!("EXPLAIN ANALYZE {query}")).await;
    let words = format!("{function} was called for ");
    let rows = told.split(&words).skip(1).filter_map(|rest| {
        let (rows, rest) = rest.split_once(" rows at the ")?;
        rest.starts_with(place).then(|| rows.parse::<u64>().unwrap())
    });
    rows.sum()
}

#[test]
fn explain_says_how_often_functions_were_called_and_where() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_PROCESSES).await;
        load(&setup.engine, spec("orders", "vortex")).await.unwrap();
        let (written, session) = (Written::new(), files(&setup).await);
        create(&session, &written.module("good.wasm", &module()), &[GOOD[0]]).await;
        let orders: u64 = text(&session, "SELECT count(*) FROM orders").await.trim().parse().unwrap();
        collect(&session, "SET pithead.summary_cache = off").await.unwrap();
        collect(&session, "SET pithead.slice_cache = 0").await.unwrap();
        let all = "SELECT count(*) FROM orders WHERE mix(o_orderkey) > 40";
        for (level, place, elsewhere) in [(3, "drive:", "host"), (0, "host, of slices", "drive")] {
            collect(&session, &format!("SET pithead.level = {level}")).await.unwrap();
            // Twice: it is not a sum over statements.
            for _ in 0..2 {
                assert_eq!(called(&session, all, "main.mix", place).await, orders, "{level}");
            }
            assert_eq!(called(&session, all, "main.mix", elsewhere).await, 0, "{level}");
            let last = "SELECT count(*) FROM orders WHERE mix(o_orderkey) > 40 AND o_custkey % 50 = 3";
            let asked = called(&session, last, "main.mix", place).await;
            assert!(asked > 0 && asked < orders / 2, "it is asked of what else holds: {asked} of {orders}");
        }
        setup.shutdown().await;
    });
}

/// A module whose `answer` gives this number.
fn answering(number: u32) -> String {
    module_with(&format!(
        r#"(func (export "pithead_function_answer") (param $frame i32) (result i32)
            (local $i i32)
            (block $end (loop $next
                (br_if $end (i32.ge_u (local.get $i) (i32.load (local.get $frame))))
                (i64.store (i32.add (i32.load offset=8 (i32.load offset=12 (local.get $frame)))
                    (i32.mul (local.get $i) (i32.const 8))) (i64.const {number}))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br $next)))
            (i32.const 0))"#
    ))
}

#[test]
fn a_function_is_made_replaced_and_dropped() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_PROCESSES }).await;
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        let (written, session) = (Written::new(), files(&setup).await);
        let (one, two) = (written.module("one.wasm", &answering(1)), written.module("two.wasm", &answering(2)));
        let made =
            |path: &std::path::Path| format!("FUNCTION answer(x bigint) RETURNS bigint LANGUAGE wasm AS '{}'", path.display());
        let query = "SELECT sum(answer(n_nationkey)) FROM nation";
        collect(&session, &format!("CREATE {}", made(&one))).await.unwrap();
        assert_eq!(text(&session, query).await, "25");
        let prepared = session.prepare(query, &Parameters::default()).await.unwrap();
        let fault = refusal(&session, &format!("CREATE {}", made(&two))).await;
        assert!(fault.to_string().contains("function main.answer exists already"), "{fault}");
        collect(&session, &format!("CREATE OR REPLACE {}", made(&two))).await.unwrap();
        assert_eq!(text(&session, query).await, "50", "what was kept of the first version is no answer of the second");
        let mut answer = prepared.run(&session).await.unwrap();
        let batch = futures::StreamExt::next(&mut answer.rows).await.unwrap().unwrap();
        assert_eq!(
            arrow::util::display::array_value_to_string(batch.column(0), 0).unwrap(),
            "50",
            "a plan that was made before"
        );
        assert_eq!(text(&session, "SELECT main.answer(1), answer(2) AS b").await, "2\t2");
        // Another host, which has the module from the drives.
        let other = setup.connect_again().await;
        let elsewhere = other.host.session();
        assert_eq!(text(&elsewhere, query).await, "50");
        let listed = "SELECT specific_schema, specific_name, routine_name, is_deterministic, data_type, function_type, \
                      syntax_example FROM information_schema.routines WHERE routine_name LIKE '%answer%'";
        assert_eq!(text(&elsewhere, listed).await, "main\tanswer\tanswer\ttrue\tInt64\tSCALAR\tanswer(x bigint)");
        let shown = "answer\tInt64\t[x]\t[Int64]\tSCALAR\tNULL\tanswer(x bigint)";
        assert_eq!(text(&elsewhere, "SHOW FUNCTIONS LIKE 'answer'").await, shown);
        let fault = refusal(&elsewhere, &format!("CREATE OR REPLACE {}", made(&one))).await;
        assert_eq!(fault.blame, Blame::Access, "{fault}");
        let digits: String = std::fs::read(&one).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        let sql = format!("CREATE OR REPLACE FUNCTION answer(x bigint) RETURNS bigint LANGUAGE wasm AS '\\x{digits}'");
        collect(&elsewhere, &sql).await.unwrap();
        assert_eq!(text(&session, query).await, "25");
        collect(&session, "DROP FUNCTION answer").await.unwrap();
        assert_eq!(text(&session, "SHOW FUNCTIONS LIKE '%answer'").await, "");
        let fault = refusal(&session, query).await;
        assert!(fault.to_string().contains("answer"), "{fault}");
        refusal(&elsewhere, "DROP FUNCTION main.answer").await;
        collect(&session, "DROP FUNCTION IF EXISTS answer").await.unwrap();
        other.shutdown().await;
        setup.shutdown().await;
    });
}

#[test]
fn functions_of_two_domains_have_names_of_their_own() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        let (written, session) = (Written::new(), files(&setup).await);
        for (name, number) in [("answer", 1), ("lab.answer", 2)] {
            let path = written.module(&format!("{number}.wasm"), &answering(number));
            create(&session, &path, &[&format!("{name}(bigint) RETURNS bigint")]).await;
        }
        let query = "SELECT sum(answer(n_nationkey)), sum(lab.answer(n_nationkey)), sum(main.answer(n_nationkey)) FROM nation";
        assert_eq!(text(&session, query).await, "25\t50\t25");
        setup.shutdown().await;
    });
}

#[test]
fn a_definition_that_its_module_does_not_bear_out_is_refused() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        let (written, session) = (Written::new(), files(&setup).await);
        let path = written.module("good.wasm", &module());
        let path = path.display();
        for (rest, wanted) in [
            (format!("f(bigint) RETURNS bigint LANGUAGE wasm AS '{path}'"), "its module has no function f; it has mix, "),
            (format!("mix(bigint) RETURNS bigint LANGUAGE c AS '{path}'"), "LANGUAGE wasm"),
            (
                format!("mix(numeric) RETURNS bigint LANGUAGE wasm AS '{path}'"),
                "functions know no type NUMERIC; the types are boolean, ",
            ),
            (format!("mix(bigint) LANGUAGE wasm AS '{path}'"), "it has no RETURNS"),
            (format!("abs(bigint) RETURNS bigint LANGUAGE wasm AS '{path}'"), "abs is a function of every engine"),
            (format!("\"a b\"(bigint) RETURNS bigint LANGUAGE wasm AS '{path}', 'mix'"), "letters, digits and underscores"),
            ("mix(bigint) RETURNS bigint LANGUAGE wasm AS '/nowhere.wasm'".to_owned(), "cannot be read"),
            ("mix(bigint) RETURNS bigint LANGUAGE wasm AS '\\x00'".to_owned(), "it is no WebAssembly module"),
            (
                format!("gives_code(bigint) RETURNS bigint LANGUAGE wasm AS '{path}'"),
                "function main.gives_code: it returned the code 5",
            ),
            (format!("loops(bigint) RETURNS bigint LANGUAGE wasm AS '{path}'"), "function main.loops: it ran for longer than"),
        ] {
            let fault = refusal(&session, &format!("CREATE FUNCTION {rest}")).await;
            assert!(fault.to_string().contains(wanted), "{rest}: {fault}");
        }
        setup.shutdown().await;
    });
}

/// Hostile functions do what they do only where there are rows, or they could not be made.
fn hostile() -> String {
    let when = |name: &str, body: &str| {
        format!(
            r#"(func $h_{name} (export "pithead_function_h_{name}") (param $frame i32) (result i32)
                (if (i32.ne (i32.load (local.get $frame)) (i32.const 0)) (then {body}))
                (i32.const 0))"#
        )
    };
    module_with(
        &[
            when("loops", "(loop $again (br $again))"),
            when("traps", "unreachable"),
            when("grows", "(loop $again (drop (memory.grow (i32.const 64))) (br $again))"),
            when("fails", "(call $fail (i32.const 16) (i32.const 20))"),
            when("lies", "(i32.store offset=16 (i32.load offset=12 (local.get $frame)) (i32.const -1))"),
        ]
        .concat(),
    )
}

#[test]
fn a_hostile_function_ends_its_query_and_nothing_else() {
    block_on(async {
        for mode in [Mode { drives: 2, ..Mode::FOUR_PROCESSES }, Mode::PUSHDOWN_OFF, Mode::STORED] {
            let setup = Setup::new(mode).await;
            load(&setup.engine, spec("orders", "vortex")).await.unwrap();
            let (written, session) = (Written::new(), files(&setup).await);
            let path = written.module("hostile.wasm", &hostile());
            let names = ["loops", "traps", "grows", "fails"].map(|name| format!("h_{name}(bigint) RETURNS bigint"));
            create(&session, &path, &names.each_ref().map(String::as_str)).await;
            create(&session, &path, &["h_lies(bigint) RETURNS text"]).await;
            let others = "SELECT count(*), sum(o_custkey) FROM orders";
            let wanted = text(&session, others).await;
            for (name, cause) in [
                ("loops", "it ran for longer than"),
                ("traps", "it gave up"),
                ("grows", "it asked for more memory"),
                ("fails", "it does not like tha"),
                ("lies", "its texts are"),
            ] {
                for query in [
                    format!("SELECT count(h_{name}(o_orderkey)) FROM orders"),
                    format!("SELECT o_orderkey FROM orders WHERE h_{name}(o_orderkey) IS NULL"),
                    format!("SELECT count(*) FROM orders WHERE o_orderkey::text = h_{name}(3)::text"),
                ] {
                    let start = Instant::now();
                    let beside = setup.engine.host.session();
                    let (fault, answer) = tokio::join!(refusal(&session, &query), text(&beside, others));
                    assert_eq!(answer, wanted, "beside {query}");
                    let said = fault.to_string();
                    assert!(said.contains(&format!("function main.h_{name}: ")) && said.contains(cause), "{query}: {said}");
                    assert_eq!(fault.blame, Blame::User, "{query}: {said}");
                    assert!(start.elapsed() < Duration::from_secs(60), "{query}: {:?}", start.elapsed());
                }
            }
            assert_eq!(text(&session, others).await, wanted);
            setup.shutdown().await;
        }
    });
}
