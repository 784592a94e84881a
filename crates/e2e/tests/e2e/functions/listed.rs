//! Where functions of users are listed: `information_schema`, SHOW FUNCTIONS, and PostgreSQL's catalogue as psql asks it.

use std::process::Command;

use pithead_e2e::FrontProcess;
use pithead_e2e::front::{done, five_rows};

use super::aggregates::aggregates_guest::aggregates;
use super::*;

#[test]
fn functions_are_listed_as_statements_call_them() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        let (written, session) = (Written::new(), files(&setup).await);
        let path = written.module("good.wasm", &module());
        create(&session, &path, &[GOOD[0], "lab.mix(bigint) RETURNS bigint", "same(text) RETURNS text"]).await;
        let path = written.module("aggregates.wasm", &module_with(&aggregates()));
        create(&session, &path, &["total(x bigint) RETURNS bigint"]).await;
        let routines = "SELECT specific_schema, specific_name, function_type, data_type FROM information_schema.routines r \
                        WHERE r.routine_name IN ('mix', 'same', 'total') ORDER BY 2";
        let expected = [
            "lab\tlab.mix\tSCALAR\tInt64",
            "main\tmix\tSCALAR\tInt64",
            "main\tsame\tSCALAR\tString",
            "main\ttotal\tAGGREGATE\tInt64",
        ];
        assert_eq!(text(&session, routines).await, expected.join("\n"));
        for table in ["routines", "parameters"] {
            let planned = format!("SELECT count(*) FROM information_schema.{table} WHERE specific_name LIKE '%@%'");
            assert_eq!(text(&session, &planned).await, "0", "names that plans have");
        }
        let parameters = "SELECT specific_name, parameter_mode, ordinal_position, parameter_name, data_type FROM \
                          information_schema.parameters WHERE specific_name LIKE '%mix' ORDER BY 1, 2";
        let expected =
            ["lab.mix\tIN\t1\tNULL\tInt64", "lab.mix\tOUT\t1\tNULL\tInt64", "mix\tIN\t1\tx\tInt64", "mix\tOUT\t1\tNULL\tInt64"];
        assert_eq!(text(&session, parameters).await, expected.join("\n"));
        let shown = [
            "lab.mix\tInt64\t[NULL]\t[Int64]\tSCALAR\tNULL\tlab.mix(bigint)",
            "mix\tInt64\t[x]\t[Int64]\tSCALAR\tNULL\tmix(x bigint)",
        ];
        assert_eq!(text(&session, "SHOW FUNCTIONS ILIKE '%MIX'").await, shown.join("\n"));
        assert_eq!(text(&session, "SHOW FUNCTIONS LIKE 'mix'").await, shown[1]);
        let total = "SHOW FUNCTIONS WHERE function_type = 'AGGREGATE' AND function_name = 'total'";
        assert_eq!(text(&session, total).await, "total\tInt64\t[x]\t[Int64]\tAGGREGATE\tNULL\ttotal(x bigint)");
        setup.shutdown().await;
    });
}

#[test]
fn psql_lists_functions() {
    let folder = five_rows();
    for (name, text) in [("good.wasm", module()), ("aggregates.wasm", module_with(&aggregates()))] {
        std::fs::write(folder.path().join(name), wat::parse_str(text).expect("a module")).expect("a file");
    }
    for (function, file) in [
        (GOOD[0], "good.wasm"),
        ("lab.same(text) RETURNS text STABLE CALLED ON NULL INPUT", "good.wasm"),
        ("total(x bigint) RETURNS bigint", "aggregates.wasm"),
    ] {
        let sql = format!("CREATE FUNCTION {function} LANGUAGE wasm AS '{file}'");
        done(folder.path(), &["sql", "--data", "data", "-c", &sql]);
    }
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let psql = |command: &str| {
        let mut psql = Command::new("psql");
        psql.args(["-h", "127.0.0.1", "-p", front.port(), "-U", "me", "-d", "pithead", "-XAtq", "-c", command]);
        psql.env("PGCONNECT_TIMEOUT", "20").output()
    };
    let (mix, same) = ("main|mix|bigint|x bigint|func", "lab|same|text|text|func");
    let total = "main|total|bigint|x bigint|agg";
    for (command, expected) in [
        ("\\df", vec![mix, total]),
        ("\\df mix", vec![mix]),
        ("\\df *.*", vec![same, mix, total]),
        ("\\dfn", vec![mix]),
        ("\\da", vec!["main|total|bigint|x bigint|"]),
        (
            "SELECT routine_schema, routine_name, data_type, is_null_call FROM information_schema.routines ORDER BY 1, 2",
            vec!["lab|same|text|NO", "main|mix|bigint|YES", "main|total|bigint|YES"],
        ),
        (
            "SELECT specific_schema, parameter_name, udt_name FROM information_schema.parameters ORDER BY 1, 2",
            vec!["lab||text", "main|x|int8", "main|x|int8"],
        ),
        (
            "SELECT proname, lanname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE prokind = 'a'",
            vec!["total|wasm"],
        ),
        ("SHOW FUNCTIONS LIKE 'mix'", vec!["mix|Int64|{x}|{Int64}|SCALAR||mix(x bigint)"]),
    ] {
        let Ok(said) = psql(command) else {
            eprintln!("skipped: psql is not there");
            return;
        };
        let (shown, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert_eq!(shown.trim_end_matches('\n').lines().collect::<Vec<_>>(), expected, "{command}: {errors}");
    }
    let detailed = psql("\\df+ lab.same").unwrap();
    let shown = String::from_utf8_lossy(&detailed.stdout);
    assert!(["lab|same|", "|stable|safe|", "|wasm|same|"].iter().all(|part| shown.contains(part)), "{shown}");
}
