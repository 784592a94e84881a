//! Statements that are not queries, and what EXPLAIN says of those that are.

use pithead_e2e::tpch::{load_tpch, queries, spec};
use pithead_e2e::{Mode, Setup, Table, block_on, collect, load, refusal};
use pithead_host::Session;
use pithead_model::Blame;

async fn text(session: &Session, statement: &str) -> String {
    let table: Table = collect(session, statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    let lines: Vec<String> = table.rows.iter().map(|row| row.join("\t")).collect();
    lines.join("\n")
}

#[test]
fn datasets_are_shown_described_and_dropped() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        for name in ["nation", "region"] {
            load(&setup.engine, spec(name, "vortex")).await.unwrap();
        }
        let session = setup.session().await;
        let shown = text(&session, "SHOW TABLES").await;
        assert!(shown.contains("nation") && shown.contains("region"), "{shown}");
        let described = text(&session, "DESCRIBE nation").await;
        for column in ["n_nationkey", "n_name", "n_regionkey", "n_comment"] {
            assert!(described.contains(column), "{described}");
        }
        collect(&session, "DROP TABLE region").await.unwrap();
        collect(&session, "DROP TABLE IF EXISTS region").await.unwrap();
        let fault = refusal(&session, "DROP TABLE region").await;
        assert_eq!(fault.blame, Blame::User, "{fault}");
        assert!(!text(&session, "SHOW TABLES").await.contains("region\t"));
        refusal(&session, "SELECT * FROM region").await;
        load(&setup.engine, spec("region", "arrow")).await.unwrap();
        assert_eq!(text(&session, "SELECT count(*) FROM region").await, "5");
        setup.shutdown().await;
    });
}

#[test]
fn a_summary_has_a_row_for_each_column() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        let session = setup.session().await;
        let create = "CREATE TABLE odd AS SELECT CAST(value AS DECIMAL(9, 2)) / 4 AS d, \
                      CASE WHEN value % 5 > 0 THEN value END AS n, [value] AS l, value % 2 = 0 AS b, NULL AS nothing, \
                      DATE '2026-01-01' + CAST(value AS INT) AS at FROM range(10)";
        session.run(create).await.unwrap();
        for setting in ["on", "off"] {
            collect(&session, &format!("SET pithead.pushdown = {setting}")).await.unwrap();
            let summary = text(&session, "SUMMARIZE nation").await;
            let lines: Vec<&str> = summary.lines().collect();
            assert_eq!(lines.len(), 4, "{summary}");
            assert!(lines[0].starts_with("n_nationkey\t") && lines[0].contains("\t0\t24\t12"), "{summary}");
            assert!(lines[1].contains("\tALGERIA\tVIETNAM\tNULL\tNULL\t25\t0"), "{summary}");
            let summary = text(&session, "SUMMARIZE odd").await;
            let columns: Vec<Vec<&str>> = summary.lines().map(|line| line.split('\t').collect()).collect();
            let of = |name: &str| {
                columns.iter().find(|column| column[0] == name).unwrap_or_else(|| panic!("{name}: {summary}"))[2..].to_vec()
            };
            assert_eq!(of("n")[..3], ["1", "9", "5.0"], "{summary}");
            assert_eq!(of("n")[4..], ["10", "20.0"], "{summary}");
            assert_eq!(of("l"), ["NULL", "NULL", "NULL", "NULL", "10", "0.0"], "{summary}");
            assert_eq!(of("nothing"), ["NULL", "NULL", "NULL", "NULL", "10", "100.0"], "{summary}");
            assert_eq!(of("at")[..2], ["2026-01-01", "2026-01-10"], "{summary}");
            assert_eq!(text(&session, "SUMMARIZE SELECT n FROM odd WHERE n > 100").await.split('\t').next_back(), Some("NULL"));
        }
        setup.shutdown().await;
    });
}

#[test]
fn settings_belong_to_their_session() {
    block_on(async {
        let setup = Setup::new(Mode::ONE_HERE).await;
        let (one, other) = (setup.session().await, setup.session().await);
        collect(&one, "SET pithead.pushdown = off").await.unwrap();
        assert!(text(&one, "SHOW pithead.pushdown").await.contains("false"));
        assert!(text(&other, "SHOW pithead.pushdown").await.contains("true"));
        collect(&one, "SET statement_timeout = '5min'").await.unwrap();
        assert!(text(&one, "SHOW statement_timeout").await.contains("5min"));
        assert!(text(&other, "SHOW Statement_Timeout").await.contains("0"));
        collect(&one, "SET pithead.drive_memory = '256MiB'").await.unwrap();
        assert!(text(&one, "SHOW pithead.drive_memory").await.contains("268435456"));
        assert!(refusal(&one, "SET pithead.drive_memory = 'much'").await.to_string().contains("256MiB"));
        let fault = refusal(&one, "SET pithead.pushdown = perhaps").await;
        assert_eq!(fault.blame, Blame::User, "{fault}");
        setup.shutdown().await;
    });
}

#[test]
fn what_cannot_be_done_is_refused() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        load(&setup.engine, spec("nation", "vortex")).await.unwrap();
        let session = setup.session().await;
        let mut told = String::new();
        let cases = [
            ("CREATE TEMP VIEW v AS SELECT * FROM nation", Blame::Unsupported),
            ("ALTER TABLE nation RENAME TO lab.nation", Blame::Unsupported),
            ("ALTER TABLE nation DROP COLUMN n_natoinkey", Blame::User),
            ("ALTER TABLE nation ADD COLUMN n_name INT", Blame::User),
            ("MERGE INTO nation USING nation AS s ON nation.n_regionkey = s.n_regionkey WHEN MATCHED THEN DELETE", Blame::User),
            ("CREATE INDEX i ON nation (n_name)", Blame::Unsupported),
            ("CREATE TABLE nation (a INT)", Blame::User),
            ("INSERT INTO nation SELECT n_name FROM nation", Blame::User),
            ("UPDATE nation SET nothing = 'x'", Blame::User),
            ("DELETE FROM nowhere", Blame::User),
            ("SELECT 1; SELECT 2", Blame::User),
            ("", Blame::User),
            ("SELECT", Blame::User),
            ("SELECT * FROM nation WHERE n_name = 5 + DATE '1970-01-01'", Blame::User),
        ];
        for (statement, blame) in cases {
            match collect(&session, statement).await {
                Ok(_) => told += &format!("\n{statement}: an error is expected"),
                Err(fault) if fault.blame != blame => {
                    told += &format!("\n{statement}: expected {blame}, got {}: {fault}", fault.blame)
                }
                Err(_) => {}
            }
        }
        assert!(told.is_empty(), "{told}");
        assert_eq!(text(&session, "SELECT count(*) FROM nation").await, "25");
        setup.shutdown().await;
    });
}

#[test]
fn explain_says_what_runs_where() {
    block_on(async {
        let setup = Setup::new(Mode::FOUR_HERE).await;
        load_tpch(&setup).await;
        let session = setup.session().await;
        for (name, query) in queries() {
            let told = text(&session, &format!("EXPLAIN {query}")).await;
            assert!(told.contains("drive"), "{name}: {told}");
        }
        for (name, query) in queries().into_iter().take(6) {
            let told = text(&session, &format!("EXPLAIN ANALYZE {query}")).await;
            for word in ["drive", "rows", "slices", "rounds"] {
                assert!(told.contains(word), "{name} should say {word}: {told}");
            }
        }
        let like = "SELECT count(*) FROM orders WHERE o_comment LIKE '%special%requests%'";
        let told = text(&session, &format!("EXPLAIN ANALYZE {like}")).await;
        assert!(told.contains("were searched") && told.contains("matched"), "{told}");
        setup.shutdown().await;
    });
}

#[test]
fn columns_of_uuids_are_made_filled_and_asked() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        let session = setup.session().await;
        let id = |number: u32| format!("00000000-0000-0000-0000-0000000000{number:02x}");
        session.run("CREATE TABLE u (id UUID, n BIGINT)").await.unwrap();
        session.run(&format!("INSERT INTO u VALUES (CAST('{}' AS UUID), 1), (NULL, 2)", id(1))).await.unwrap();
        let insert = "INSERT INTO u SELECT CAST('000000000000000000000000000000' || CAST(10 + value AS VARCHAR) AS UUID), value \
                      FROM range(3, 9)";
        session.run(insert).await.unwrap();
        session.run(&format!("UPDATE u SET n = 70 WHERE id = '{}'", id(0x17))).await.unwrap();
        for setting in ["on", "off"] {
            collect(&session, &format!("SET pithead.pushdown = {setting}")).await.unwrap();
            let asked = async |rest: &str| text(&session, &format!("SELECT n FROM u WHERE {rest} ORDER BY n")).await;
            assert_eq!(asked(&format!("id = '{}'", id(1))).await, "1");
            assert_eq!(asked(&format!("'{{{}}}' = id", id(0x17).to_uppercase())).await, "70");
            assert_eq!(asked(&format!("id IN ('{}', '{}')", id(0x14), id(0x15))).await, "4\n5");
            assert_eq!(asked(&format!("id > '{}'", id(0x16))).await, "8\n70");
            assert_eq!(asked("CAST(id AS VARCHAR) LIKE '%13'").await, "3");
            assert_eq!(asked("id IS NULL").await, "2");
            let joined = "SELECT count(*) FROM u a JOIN u b ON a.id = b.id";
            assert_eq!(text(&session, joined).await, "7");
        }
        assert_eq!(text(&session, "SELECT CAST(id AS VARCHAR) FROM u WHERE n = 1").await, id(1));
        let fault = refusal(&session, "SELECT * FROM u WHERE id = 'seven'").await;
        assert!(fault.message.contains("expected 32 hexadecimal digits"), "{fault}");
        // Texts that are written are read as they are, too.
        for written in [
            format!("INSERT INTO u VALUES ('{}', 90), (NULL, 91), (CAST('{}' AS UUID), 92)", id(0x90), id(0x92)),
            format!("INSERT INTO u (n, id) SELECT 93, '{}'", id(0x93)),
            format!("UPDATE u SET id = '{}' WHERE n = 91", id(0x91)),
            format!("UPDATE u SET id = '{}' FROM (SELECT 92 AS k) AS s WHERE n = s.k", id(0x94)),
            format!(
                "MERGE INTO u USING (SELECT 95 AS k) AS s ON n = s.k WHEN NOT MATCHED THEN INSERT (n, id) VALUES (s.k, '{}')",
                id(0x95)
            ),
        ] {
            session.run(&written).await.unwrap_or_else(|fault| panic!("{written}: {fault}"));
        }
        let written = "SELECT n, right(CAST(id AS VARCHAR), 2) FROM u WHERE n >= 90 ORDER BY n";
        assert_eq!(text(&session, written).await, "90\t90\n91\t91\n92\t94\n93\t93\n95\t95");
        let fault = refusal(&session, "INSERT INTO u VALUES ('seven', 7)").await;
        assert!(fault.message.contains("expected 32 hexadecimal digits"), "{fault}");
        setup.shutdown().await;
    });
}

/// A regression: `key` and `index` began constraints, as in MySQL, and a NULL in VALUES was refused for a column of another name.
#[test]
fn columns_have_names_that_begin_constraints_elsewhere() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        let session = setup.session().await;
        session.run("CREATE TABLE pairs (key TEXT NOT NULL, Index INT, \"value\" TEXT) PARTITION BY hash(key)").await.unwrap();
        session.run("INSERT INTO pairs VALUES ('a', 1, 'x'), ('b', NULL, NULL)").await.unwrap();
        session.run("UPDATE pairs SET value = 'y' WHERE key = 'b'").await.unwrap();
        assert_eq!(text(&session, "SELECT key, index, value FROM pairs ORDER BY key").await, "a\t1\tx\nb\tNULL\ty");
        for sql in ["INSERT INTO pairs VALUES ('c', 1, 'x'), (NULL, 2, 'x')", "INSERT INTO pairs (value) VALUES ('x')"] {
            let fault = refusal(&session, sql).await;
            assert_eq!(fault.message, "column key is NOT NULL, and a row has NULL there", "{sql}");
        }
        setup.shutdown().await;
    });
}
