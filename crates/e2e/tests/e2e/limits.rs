//! Names that are not there, and budgets that do not hold it all.

use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, Mode, Setup, block_on, collect, load, pithead, refusal};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::Host;
use pithead_model::{Blame, DatasetName};
use tempfile::TempDir;

#[test]
fn unknown_names_come_with_the_near_ones() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        for name in ["orders", "nation"] {
            load(&setup.engine, spec(name, "vortex")).await.unwrap();
        }
        let session = setup.session().await;
        let cases = [
            ("SELECT * FROM oders", "orders"),
            ("SELECT n_nam FROM nation", "n_name"),
            ("SELECT n.n_regionky FROM nation AS n", "n_regionkey"),
            ("SELECT lenght(n_name) FROM nation", "length"),
            ("DROP TABLE natoin", "nation"),
            ("SET pithead.pushdwon = off", "pithead.pushdown"),
        ];
        for (statement, near) in cases {
            let fault = refusal(&session, statement).await;
            assert_eq!(fault.blame, Blame::User, "{statement}: {fault}");
            assert!(fault.to_string().contains(near), "{statement} should name {near}: {fault}");
        }
        let fault = setup.engine.host.fleet().drop_dataset(&"main.nations".parse::<DatasetName>().unwrap()).await.unwrap_err();
        assert!(fault.to_string().contains("nation"), "{fault}");
        setup.shutdown().await;
    });
}

#[test]
fn a_host_without_the_memory_says_so_and_goes_on() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let target = Target::Data(directory.path().to_owned());
        let options = EmbedOptions { drives: Some(2), memory: Some(96 << 20), ..EmbedOptions::default() };
        let engine = connect(&target, &options).await.unwrap();
        load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        limited(&engine.host).await;
        engine.shutdown().await;
    });
}

/// One MERGE once took all memory of a host that others use.
#[test]
fn rows_that_a_statement_reads_once_count_as_memory() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let options = EmbedOptions { drives: Some(2), memory: Some(192 << 20), ..EmbedOptions::default() };
        let engine = connect(&Target::Data(directory.path().to_owned()), &options).await.unwrap();
        let session = engine.host.session();
        collect(&session, "CREATE TABLE m AS SELECT value AS k, value AS v FROM range(1000)").await.unwrap();
        // Which rows a LIMIT takes is asked once.
        let merge = |rows: usize| {
            format!(
                "MERGE INTO m USING (SELECT value AS k, value * 2 AS v FROM range({rows}) LIMIT {rows}) AS d \
                 ON m.k = d.k AND d.v < 10 WHEN MATCHED THEN UPDATE SET v = d.v"
            )
        };
        let fault = refusal(&session, &merge(25_000_000)).await;
        assert!(fault.blame == Blame::Limit && fault.message.contains("reads once"), "{fault}");
        assert_eq!(collect(&session, "SELECT sum(v) FROM m").await.unwrap().rows, [["499500"]]);
        // All that was read before is given back: the host has half of the memory, which six times as many rows would fill.
        for _ in 0..6 {
            collect(&session, &merge(1_200_000)).await.unwrap_or_else(|fault| panic!("{fault}"));
        }
        assert_eq!(collect(&session, "SELECT sum(v) FROM m").await.unwrap().rows, [["499510"]]);
        engine.shutdown().await;
    });
}

#[test]
fn drives_without_the_memory_say_so_and_go_on() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 2, &["--memory", "24MiB"]);
        let addresses = processes.iter().map(|process| process.address().to_owned()).collect();
        let engine = connect(&Target::Drives(addresses), &EmbedOptions::default()).await.unwrap();
        load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        limited(&engine.host).await;
        engine.shutdown().await;
    });
}

/// Deep expressions once overflowed the stack, which ended the process.
#[test]
fn deep_statements_are_refused() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(pithead());
        command.args(arguments).arg("--data").arg(&data).env_remove("PITHEAD_DRIVES").stdin(std::process::Stdio::null());
        command.output().unwrap()
    };
    let nation = pithead_e2e::tpch::parquet("nation").display().to_string();
    pithead_e2e::tpch::answers();
    assert!(run(&["load", "nation", &nation, "-q"]).status.success());
    let terms = |count: usize| (0..count).map(|term| format!("n_nationkey = {term}")).collect::<Vec<_>>().join(" OR ");
    let sums = |count: usize| vec!["n_nationkey"; count].join(" + ");
    let file = |text: String| {
        let path = directory.path().join("q.sql");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    for deep in [
        format!("SELECT count(*) FROM nation WHERE {}", terms(10_000)),
        format!("SELECT max({}) FROM nation", sums(10_000)),
        format!("SELECT count(*) FROM nation WHERE {}n_nationkey{} = 1", "(".repeat(10_000), ")".repeat(10_000)),
        format!("SELECT {}1", "- ".repeat(10_000)),
        vec!["SELECT 1"; 10_000].join(" UNION ALL "),
    ] {
        let output = run(&["sql", "-q", "-f", &file(deep.clone())]);
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(matches!(output.status.code(), Some(3 | 4)), "{}: {:?}: {said}", &deep[..80], output.status);
        assert!(said.contains("operators") || said.contains("nested too deeply") || said.contains("depth"), "{said}");
    }
    let output =
        run(&["sql", "-q", "--format", "csv", "-f", &file(format!("SELECT count(*) AS n FROM nation WHERE {}", terms(1_000)))]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "n\n25\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// A statement that needs far more than a few megabytes either spills and is right, or fails with a word on memory.
async fn limited(host: &Host) {
    let session = host.session();
    let lists = "SELECT count(*) FROM (SELECT l_comment, array_agg(l_shipinstruct) AS a, count(*) FROM lineitem GROUP BY l_comment) AS t";
    let order =
        "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY l_comment, l_orderkey, l_linenumber) AS r FROM lineitem) AS t";
    let distinct = "SELECT count(DISTINCT l_comment), count(DISTINCT l_orderkey) FROM lineitem";
    for statement in [lists, order, distinct] {
        match collect(&session, statement).await {
            Ok(table) => assert_eq!(table.rows.len(), 1, "{statement}"),
            Err(fault) => {
                assert_eq!(fault.blame, Blame::Limit, "{statement}: {fault}");
                assert!(fault.to_string().to_lowercase().contains("memory"), "{statement}: {fault}");
            }
        }
    }
    let table = collect(&session, "SELECT count(*) FROM lineitem").await.unwrap_or_else(|fault| panic!("afterwards: {fault}"));
    assert_eq!(table.rows, [["600572"]]);
}
