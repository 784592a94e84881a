//! Functions of users in an engine.

use std::sync::Arc;

use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use pithead_functions::{EngineOptions, Registry, fault_from_datafusion, session_state};
use pithead_model::{CalledFunction, Function, FunctionArgument, FunctionKind, FunctionType, Volatility};

use crate::{Code, UserFunction, called, check, compiled, extensions, hash_of};

#[path = "../../program/src/tests/aggregates_guest.rs"]
mod aggregates_guest;
#[path = "../../program/src/tests/functions_guest.rs"]
mod functions_guest;

fn function(export: &str, takes: FunctionType, returns: FunctionType) -> Function {
    Function {
        arguments: vec![FunctionArgument { name: None, of: takes }],
        returns,
        volatility: Volatility::Immutable,
        called_on_null: false,
        module: "a".repeat(64),
        export: export.to_owned(),
        kind: FunctionKind::Scalar,
    }
}

fn code() -> Code {
    let code = Code::default();
    let module = functions_guest::module_with(&aggregates_guest::aggregates());
    code.set(compiled(&wat::parse_str(module).unwrap(), None).unwrap());
    code
}

fn context(function: &Function) -> SessionContext {
    let mut state = session_state(&EngineOptions::default());
    let called = called("main", "f", function);
    state.config_mut().set_extension(Arc::new(Registry::own().with(extensions(&called, &code())).unwrap()));
    UserFunction::new(&called, &code(), vec!["f".into(), "main.f".into()]).register(&mut state).unwrap();
    SessionContext::new_with_state(state)
}

async fn value(context: &SessionContext, sql: &str) -> Result<String, String> {
    let rows = async { context.sql(sql).await?.collect().await };
    let batches = rows.await.map_err(|error| fault_from_datafusion(error).message)?;
    let value = datafusion::common::ScalarValue::try_from_array(batches[0].column(0), 0).unwrap();
    Ok(format!("{}: {value}", batches[0].schema().field(0).name()))
}

#[tokio::test]
async fn statements_call_functions_by_each_of_their_names() {
    let context = context(&function("mix", FunctionType::Bigint, FunctionType::Bigint));
    for name in ["f", "main.f", "F"] {
        let found = value(&context, &format!("SELECT {name}(2)")).await.unwrap();
        assert!(found.ends_with("f(Int64(2)): 69"), "{name}: {found}");
    }
    // Whole numbers of other types are made to fit.
    assert_eq!(value(&context, "SELECT f(2::smallint) AS x").await.unwrap(), "x: 69");
    assert_eq!(value(&context, "SELECT f(NULL) AS x").await.unwrap(), "x: NULL");
    let fault = value(&context, "SELECT f('a', 1)").await.unwrap_err();
    assert!(fault.contains('f'), "{fault}");
}

#[tokio::test]
async fn a_hostile_constant_ends_its_query_with_its_name() {
    for (export, cause) in
        [("traps", "it gave up"), ("loops", "it ran for longer than the 500.1ms"), ("grows", "it asked for more memory")]
    {
        let context = context(&function(export, FunctionType::Bigint, FunctionType::Bigint));
        let start = std::time::Instant::now();
        let fault = value(&context, "SELECT f(1)").await.unwrap_err();
        assert!(fault.starts_with("function main.f: ") && fault.contains(cause), "{fault}");
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "{export}: {:?}", start.elapsed());
    }
}

/// A failure for want of memory was the answer for sessions that had more of it.
#[tokio::test]
async fn what_one_session_had_no_memory_for_another_one_may_have() {
    let slow = r#"(func (export "pithead_function_slow") (param $frame i32) (result i32) (local $i i32) (local $x f64)
        (loop $again
            (local.set $x (f64.sqrt (f64.add (local.get $x) (f64.const 2))))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $i) (i32.const 30000000))))
        (if (f64.lt (local.get $x) (f64.const 1)) (then unreachable))
        (drop (memory.grow (i32.const 64)))
        (i32.const 0))"#;
    let code = Code::default();
    code.set(compiled(&wat::parse_str(functions_guest::module_with(slow)).unwrap(), None).unwrap());
    let called = called("main", "f", &function("slow", FunctionType::Bigint, FunctionType::Bigint));
    let function = UserFunction::new(&called, &code, vec!["f".into()]);
    let with = |bytes: usize| {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build_arc().unwrap();
        let mut state = session_state(&EngineOptions { runtime, ..EngineOptions::default() });
        function.register(&mut state).unwrap();
        SessionContext::new_with_state(state)
    };
    let small = with(2 << 20);
    let fault = value(&small, "SELECT f(1) AS x").await.unwrap_err();
    assert!(fault.starts_with("function main.f: it asked for more memory than there is"), "{fault}");
    for context in [&small, &with(1 << 20)] {
        assert_eq!(value(context, "SELECT f(1) AS x").await.unwrap_err(), fault, "it is known");
    }
    assert_eq!(value(&with(64 << 20), "SELECT f(1) AS x").await.unwrap(), "x: 0");
}

/// A function of integers refused `f(1)` and `f(NULL)`, and named its hash.
#[tokio::test]
async fn literals_that_fit_are_integers() {
    let number = context(&function("length", FunctionType::Integer, FunctionType::Bigint));
    let table = "(VALUES (1::bigint)) AS t (x)";
    assert_eq!(value(&number, "SELECT f(NULL) AS x").await.unwrap(), "x: NULL");
    for fits in ["f(7)", "f(-7)", "f(2147483647)", "f(7::smallint)"] {
        let planned = number.sql(&format!("SELECT {fits}")).await;
        assert!(planned.is_ok(), "{fits}: {planned:?}");
    }
    for (call, wanted) in [
        ("f(2147483648)", "argument 1 of main.f is integer, and bigint was given; cast it"),
        ("f(x)", "argument 1 of main.f is integer, and bigint was given; cast it"),
        ("f('a')", "argument 1 of main.f is integer, and text was given; cast it"),
        ("f(1.5)", "argument 1 of main.f is integer, and double precision was given; cast it"),
        ("f()", "main.f takes 1 argument, and 0 were given"),
        ("f(1, 2)", "main.f takes 1 argument, and 2 were given"),
    ] {
        assert_eq!(value(&number, &format!("SELECT {call} FROM {table}")).await.unwrap_err(), wanted, "{call}");
    }
    let total = context(&aggregate("total"));
    assert_eq!(value(&total, "SELECT f(1::integer) AS y").await.unwrap(), "y: 1");
    let fault = value(&total, "SELECT f('a') AS y").await.unwrap_err();
    assert_eq!(fault, "argument 1 of main.f is bigint, and text was given; cast it");
}

fn aggregate(export: &str) -> Function {
    Function { kind: FunctionKind::Aggregate, ..function(export, FunctionType::Bigint, FunctionType::Bigint) }
}

#[tokio::test]
async fn aggregates_are_called_like_those_of_the_engine() {
    let context = context(&aggregate("total"));
    let table = "(VALUES (1, 10), (1, 32), (2, NULL), (2, 5), (2, 5)) AS t (g, x)";
    for (sql, wanted) in [
        ("SELECT f(x) FROM t", "f(t.x): 52"),
        ("SELECT f(x) AS y FROM t GROUP BY g ORDER BY g DESC", "y: 10"),
        ("SELECT f(x) FILTER (WHERE g = 1) AS y FROM t", "y: 42"),
        ("SELECT f(DISTINCT x) AS y FROM t", "y: 47"),
        ("SELECT main.f(x) AS y FROM t WHERE g > 7", "y: 0"),
        ("SELECT f(x) OVER (ORDER BY g DESC, x NULLS FIRST ROWS UNBOUNDED PRECEDING) AS y FROM t ORDER BY y DESC", "y: 52"),
        ("SELECT max(y) AS y FROM (SELECT (SELECT f(x) FROM t WHERE t.g = s.g + 1) AS y FROM t AS s)", "y: 10"),
    ] {
        let sql = format!("WITH t AS (SELECT * FROM {table}) {sql}");
        assert_eq!(value(&context, &sql).await.unwrap(), wanted, "{sql}");
    }
    let sql = format!("SELECT f(DISTINCT x), count(*), count(DISTINCT g) FROM {table}");
    let fault = value(&context, &sql).await.unwrap_err();
    assert!(fault.starts_with("main.f(DISTINCT …) cannot be computed beside"), "{fault}");
}

#[tokio::test]
async fn steps_together_give_what_the_whole_gives() {
    let one = aggregate("total");
    let context = context(&one);
    let called = called("main", "f", &one).called;
    let parts = format!("SELECT g, \"{called}.part\"(x) AS p FROM (VALUES (1, 10), (2, 32), (3, NULL)) AS t (g, x) GROUP BY g");
    let sql = format!("SELECT \"{called}.finish\"(\"{called}.merge\"(p)) AS y FROM ({parts})");
    assert_eq!(value(&context, &sql).await.unwrap(), "y: 42");
    let sql = format!("SELECT \"{called}.finish\"(NULL) AS y");
    assert_eq!(value(&context, &sql).await.unwrap(), "y: 0");
    let registry = Registry::of(&context.state());
    let steps = registry.steps(&called).unwrap();
    assert_eq!(registry.merging(&steps.part), Some(format!("{called}.merge").as_str()));
}

#[test]
fn another_definition_is_another_function() {
    let one = function("mix", FunctionType::Bigint, FunctionType::Bigint);
    let other = Function { module: "b".repeat(64), ..one.clone() };
    let [one, other] = [one, other].map(|it| called("main", "f", &it));
    assert_eq!((one.name(), other.name()), ("main.f", "main.f"));
    assert_ne!(one.called, other.called);
    let registry = Registry::own().with([&one, &other].into_iter().flat_map(|it| extensions(it, &code()))).unwrap();
    assert!(registry.announced().contains(&one.extension()) && registry.announced().contains(&other.extension()));
    assert_eq!(CalledFunction::parse(&one.extension()).unwrap().unwrap(), one);
    assert_eq!(
        crate::function::scalar(&one, &code(), vec![]),
        crate::function::scalar(&one, &Code::default(), vec!["g".into()])
    );
    assert_ne!(crate::function::scalar(&one, &code(), vec![]), crate::function::scalar(&other, &code(), vec![]));
}

#[test]
fn a_definition_is_checked_against_its_module() {
    let bytes = wat::parse_str(functions_guest::module()).unwrap();
    assert_eq!(hash_of(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let module = compiled(&bytes, None).unwrap();
    check("mix", &function("mix", FunctionType::Bigint, FunctionType::Bigint), &module).unwrap();
    let fault = check("f", &function("nothing", FunctionType::Bigint, FunctionType::Bigint), &module).unwrap_err();
    assert!(fault.message.starts_with("function f: its module has no function nothing; it has mix, "), "{fault}");
    assert!(compiled(b"text", None).unwrap_err().message.contains("it is no WebAssembly module"));
}
