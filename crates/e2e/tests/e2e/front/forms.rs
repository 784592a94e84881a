//! Forms of SQL that PostgreSQL's clients send: rows of values, lists of identifiers, intervals, patterns of `to_char`, and schemas that go
//! with all that is in them.

use pithead_e2e::front::five_rows;
use pithead_e2e::{FrontProcess, RawClient, Reply};

use super::{code, rows, tags};

/// The replies to a statement with values in text, of types that the server tells.
fn bound(client: &mut RawClient, sql: &str, values: &[&str]) -> Vec<Reply> {
    client.send('P', &[b"\0", sql.as_bytes(), b"\0\0\0"].concat());
    let count = u16::try_from(values.len()).unwrap().to_be_bytes();
    let value = |text: &&str| [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
    let values: Vec<u8> = values.iter().flat_map(value).collect();
    client.send('B', &[&b"\0\0\0\0"[..], &count, &values, b"\0\0"].concat());
    client.send('E', b"\0\0\0\0\0");
    client.send('S', b"");
    client.until('Z')
}

fn found(replies: &[Reply]) -> String {
    let error = replies.iter().find(|reply| reply.0 == 'E').and_then(|reply| reply.field(b'M'));
    error.unwrap_or_else(|| rows(replies).concat().join(" "))
}

#[test]
fn rows_of_values_are_compared_with_parameters() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    for (condition, values, expected) in [
        ("(id, name) > ($1, 'a')", &["2"][..], "2 3 4 5"),
        ("(id, name) > ($1, $2)", &["2", "two"], "3 4 5"),
        ("(price, id) <= ($1, $2)", &["2.5", "2"], "1 2"),
        ("(id, name) = ($1, $2)", &["4", "four"], "4"),
        ("ROW(id, name) <> ROW($1, 'five')", &["5"], "1 2 3 4"),
        ("(id, name) IN (($1, 'one'), (2, $2), (3, NULL))", &["1", "two"], "1 2"),
        ("(id, name) NOT IN (($1, 'one'), (2, 'two'))", &["1"], "3 4 5"),
    ] {
        let sql = format!("SELECT id FROM t WHERE {condition} ORDER BY id");
        assert_eq!(found(&bound(&mut client, &sql, values)), expected, "{condition}");
    }
    assert_eq!(found(&client.query("SELECT (1, NULL) = (1, 2), (2, NULL) > (1, 2), (1, 2) < (1, NULL)")), "NULL t NULL");
    let plan = found(&client.query("EXPLAIN SELECT id FROM t WHERE (id, price) > (4, 1)"));
    assert!(plan.contains("drive") && plan.contains("id > "), "{plan}");
}

#[test]
fn lists_of_identifiers_are_texts() {
    const ONE: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    const TWO: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12";
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let create = format!("CREATE TABLE u (id uuid, n int); INSERT INTO u VALUES ('{ONE}', 1), ('{TWO}', 2), (NULL, 3)");
    assert!(code(&client.query(&create)).is_none());
    let list = format!("{{{},{ONE}}}", TWO.to_uppercase());
    for condition in ["id = ANY($1)", "id = ANY($1::uuid[])"] {
        let sql = format!("SELECT n FROM u WHERE {condition} ORDER BY n");
        assert_eq!(found(&bound(&mut client, &sql, &[&list])), "1 2", "{condition}");
    }
    for condition in [
        format!("id = ANY('{list}')"),
        format!("id = ANY('{list}'::uuid[])"),
        format!("id = ANY(ARRAY['{ONE}', '{TWO}']::uuid[])"),
        format!("id = ANY(ARRAY['{ONE}'::uuid, '{TWO}'])"),
        format!("id IN ('{ONE}', '{TWO}')"),
    ] {
        let sql = format!("SELECT n FROM u WHERE {condition} ORDER BY n");
        assert_eq!(found(&client.query(&sql)), "1 2", "{condition}");
    }
    let wrong = bound(&mut client, "SELECT n FROM u WHERE id = ANY($1)", &["{seven}"]);
    assert_eq!(code(&wrong).as_deref(), Some("22P02"));
}

#[test]
fn intervals_and_patterns_are_those_of_postgresql() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    for (sql, expected) in [
        ("SELECT interval '1 year 2 mons 3 days 04:05:06'", "1 year 2 mons 3 days 04:05:06"),
        ("SELECT 'P1Y2M'::interval, interval 'P3DT4H5M6.5S'", "1 year 2 mons 3 days 04:05:06.5"),
        ("SELECT interval '1-2', '3 4:05:06'::interval, interval '@ 1 day ago'", "1 year 2 mons 3 days 04:05:06 -1 days"),
        (
            "SELECT to_char(timestamp '2024-02-29 13:02:03.5', 'FMDay DDth Mon YYYY HH12:MI:SS.MS am')",
            "Thursday 29th Feb 2024 01:02:03.500 pm",
        ),
        ("SELECT to_char(1234.5, 'FM999,990.00'), to_char(-7, 'S0000')", "1,234.50 -0007"),
        ("SELECT to_char(price * 1000, 'FM9,999.0') FROM t WHERE id < 3 ORDER BY id", "1,500.0 2,500.0"),
        ("SELECT to_char(interval '26 hours 5 minutes', 'HH24:MI')", "26:05"),
    ] {
        assert_eq!(found(&client.query(sql)), expected, "{sql}");
    }
    let sum = bound(&mut client, "SELECT timestamp '2024-01-01' + $1::interval", &["P1MT2H"]);
    assert_eq!(found(&sum), "2024-02-01 02:00:00");
    let zoned = "SET timezone = 'Europe/Berlin'; SELECT to_char(timestamptz '2024-07-01 10:00+00', 'HH24:MI TZ OF')";
    assert_eq!(found(&client.query(zoned)), "12:00 CEST +02");
}

#[test]
fn names_with_quotes_are_found() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    assert!(code(&client.query("CREATE TABLE \"a\"\"b\" (x int)")).is_none());
    for (sql, expected) in [
        ("SELECT 'main.\"a\"\"b\"'::regclass::text, 't'::regclass::text", "\"a\"\"b\" t"),
        ("SELECT relname FROM pg_class WHERE oid = to_regclass('\"a\"\"b\"')", "a\"b"),
        ("SELECT format('%I', 'a\"b'), quote_ident('a\"b')", "\"a\"\"b\" \"a\"\"b\""),
        (
            "SELECT has_any_column_privilege(format('%I.%I', schemaname, tablename)::regclass, 'SELECT') FROM pg_tables \
             WHERE schemaname = 'main' ORDER BY 1",
            "t t",
        ),
    ] {
        assert_eq!(found(&client.query(sql)), expected, "{sql}");
    }
}

#[test]
fn what_tools_ask_for_is_answered() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    for (sql, expected) in [
        ("SELECT statement_timestamp() = now(), clock_timestamp() = now(), transaction_timestamp() = now()", "t t t"),
        ("SET timezone = 'Asia/Tokyo'; SELECT localtimestamp = now()::timestamp, localtime = now()::time", "t t"),
        ("SELECT localtimestamp - (now() AT TIME ZONE 'UTC')", "09:00:00"),
        ("SELECT acldefault('r', 10)", "NULL"),
        ("SELECT id FROM t WHERE name OPERATOR(pg_catalog.=) ANY (ARRAY['one', 'two']) ORDER BY id", "1 2"),
        ("SELECT id FROM t WHERE id OPERATOR(pg_catalog.<>) ALL ('{1,2,3}') ORDER BY id", "4 5"),
        ("SELECT pg_cancel_backend(-1), pg_terminate_backend(NULL)", "f NULL"),
    ] {
        assert_eq!(found(&client.query(sql)), expected, "{sql}");
    }
    for options in ["(BUFFERS)", "(ANALYZE, BUFFERS, WAL off, FORMAT TEXT)", "(VERBOSE, COSTS false, SETTINGS)"] {
        let plan = found(&client.query(&format!("EXPLAIN {options} SELECT id FROM t WHERE id > 3")));
        assert!(plan.contains("drive") && plan.contains("rows in ") == options.contains("ANALYZE"), "{options}: {plan}");
    }
    let ours = "CREATE INDEX i ON t (id, lower(name)); ANALYZE; VACUUM ANALYZE main.t; COMMENT ON COLUMN t.id IS 'x'";
    assert_eq!(tags(&client.query(ours)), ["CREATE INDEX", "ANALYZE", "VACUUM", "COMMENT"]);
}

#[test]
fn schemas_go_with_their_tables_and_views() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let make = "CREATE SCHEMA IF NOT EXISTS dbt; CREATE TABLE dbt.a (x int); CREATE TABLE dbt.\"B c\" (x int); \
                CREATE VIEW dbt.v AS SELECT x FROM dbt.a";
    assert!(code(&client.query(make)).is_none());
    assert_eq!(code(&client.query("DROP SCHEMA dbt")).as_deref(), Some("2BP01"));
    assert_eq!(code(&client.query("BEGIN READ ONLY; DROP SCHEMA dbt CASCADE")).as_deref(), Some("25006"));
    client.query("ROLLBACK");
    assert_eq!(found(&client.query("SELECT count(*) FROM dbt.v")), "0");
    assert_eq!(
        tags(&client.query("BEGIN; DROP SCHEMA IF EXISTS nothing, dbt CASCADE; COMMIT")),
        ["BEGIN", "DROP SCHEMA", "COMMIT"]
    );
    assert_eq!(found(&client.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'dbt'")), "0");
    assert_eq!(code(&client.query("DROP SCHEMA nothing")).as_deref(), Some("3F000"));
    assert_eq!(tags(&bound(&mut client, "DROP SCHEMA IF EXISTS nothing CASCADE", &[])), ["DROP SCHEMA"]);
    assert_eq!(found(&client.query("SELECT count(*) FROM t")), "5");
}
