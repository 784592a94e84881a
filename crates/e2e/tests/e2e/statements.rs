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

/// A regression: texts that are no literals of VALUES were stored as arrays of one text, and as the bytes of their letters.
#[test]
fn texts_are_written_as_the_arrays_and_bytes_that_they_stand_for() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        let session = setup.session().await;
        session.run("CREATE TABLE meant (id INT, a TEXT[], n INT[], b BYTEA, t TEXT)").await.unwrap();
        let by_merge = r"MERGE INTO meant USING (SELECT 7 AS k, '{y}' AS y, '\x07' AS z) AS s ON id = s.k
            WHEN NOT MATCHED THEN INSERT (id, a, n, b, t) VALUES (s.k, s.y, '{7,7}', s.z, 'x')";
        for written in [
            r"INSERT INTO meant VALUES (1, '{a,b}', '{1,2}', '\x4142', '{s,t}'), (2, NULL, NULL, NULL, 'none')",
            r"INSERT INTO meant SELECT 3, '{q,r}', '{3,NULL}', '\x01ff', '\x05 06'",
            r"INSERT INTO meant SELECT x + 1, t, '[4, 5]', '\x00', t FROM (VALUES (3, '{v}')) AS v(x, t)",
            r"UPDATE meant SET a = '{z}', b = '\xDE AD' WHERE id = 2",
            r"UPDATE meant SET a = t WHERE id = 1",
            r"UPDATE meant SET b = t WHERE id = 3",
            r"UPDATE meant SET b = x FROM (VALUES (4, '\x0a0b')) AS v(k, x) WHERE id = k",
            by_merge,
            r"MERGE INTO meant USING (SELECT 7 AS k) AS s ON id = s.k WHEN MATCHED THEN UPDATE SET n = '{8}'",
        ] {
            session.run(written).await.unwrap_or_else(|fault| panic!("{written}: {fault}"));
        }
        for setting in ["on", "off"] {
            collect(&session, &format!("SET pithead.pushdown = {setting}")).await.unwrap();
            let lists = "SELECT id, cardinality(a), a[1], n[1], cardinality(n) FROM meant ORDER BY id";
            let expected = "1\t2\ts\t1\t2\n2\t1\tz\tNULL\tNULL\n3\t2\tq\t3\t2\n4\t1\tv\t4\t2\n7\t1\ty\t8\t1";
            assert_eq!(text(&session, lists).await, expected);
            let bytes = "SELECT id, encode(b, 'hex'), CAST(b AS TEXT) FROM meant ORDER BY id";
            // Backslashes are doubled where rows are shown.
            let expected = r"1:4142:AB 2:dead:\\xDE\\xAD 3:0506:\\x05\\x06 4:0a0b:\\x0A\\x0B 7:07:\\x07";
            assert_eq!(text(&session, bytes).await.replace('\t', ":").replace('\n', " "), expected);
            let read = r"SELECT id FROM meant WHERE CAST(t AS BYTEA) = '\x0506' OR encode(t, 'hex') = '6e6f6e65' ORDER BY id";
            assert_eq!(text(&session, "SELECT id FROM meant WHERE encode(t, 'hex') = '6e6f6e65'").await, "2");
            assert_eq!(text(&session, read).await, "2\n3");
        }
        for (sql, expected) in [
            ("UPDATE meant SET a = t WHERE id = 2", "'none' does not stand for an array"),
            (r"INSERT INTO meant (b) SELECT '\x0' || t FROM meant", "does not stand for bytes"),
            (r"INSERT INTO meant (b) VALUES ('\xDE-AD')", "does not stand for bytes"),
        ] {
            let fault = refusal(&session, sql).await;
            assert!(fault.message.contains(expected), "{sql}: {fault}");
        }
        setup.shutdown().await;
    });
}

/// A regression: numbers that are too large for a column of floats were stored as infinity.
#[test]
fn floats_that_are_too_large_are_refused() {
    block_on(async {
        let setup = Setup::new(Mode { drives: 2, ..Mode::FOUR_HERE }).await;
        let session = setup.session().await;
        session.run("CREATE TABLE floats (id INT, r REAL, d DOUBLE, t TEXT)").await.unwrap();
        session.run("INSERT INTO floats VALUES (1, 1.5, 1e39, '1e400'), (2, 'inf', 'inf', '-inf')").await.unwrap();
        for setting in ["on", "off"] {
            collect(&session, &format!("SET pithead.pushdown = {setting}")).await.unwrap();
            for (sql, expected) in [
                ("INSERT INTO floats (r) VALUES (1e39)", "does not fit in REAL"),
                ("INSERT INTO floats (r) SELECT d FROM floats", "does not fit in REAL"),
                ("UPDATE floats SET r = d WHERE id = 1", "does not fit in REAL"),
                ("SELECT sum(CAST(d AS REAL)) FROM floats", "does not fit in REAL"),
                ("SELECT id FROM floats WHERE CAST(t AS DOUBLE) > 1", "1e400 does not fit in DOUBLE"),
                ("SELECT '1e400'::float8", "1e400 does not fit in DOUBLE"),
            ] {
                let fault = refusal(&session, sql).await;
                assert!(fault.message.contains(expected), "{sql}: {fault}");
            }
            let tried = "SELECT id, TRY_CAST(d AS REAL) IS NULL, TRY_CAST(t AS DOUBLE) IS NULL FROM floats ORDER BY id";
            assert_eq!(text(&session, tried).await, "1\ttrue\ttrue\n2\tfalse\tfalse");
        }
        assert_eq!(text(&session, "SELECT id FROM floats WHERE r = d").await, "2");
        setup.shutdown().await;
    });
}
