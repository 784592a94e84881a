//! SQLSTATEs of statements that fail, by which drivers tell errors apart: those that PostgreSQL gives. Their words are the engine's own, so
//! that a release of it that says something else is noticed.

use pithead_e2e::front::{done, five_rows};
use pithead_e2e::{DriveProcess, FrontProcess, RawClient};

use super::code;

/// Values that are none, or that are out of range.
const VALUES: [(&str, &str); 48] = [
    ("SELECT 1 / 0", "22012"),
    ("SELECT mod(id, 0) FROM t", "22012"),
    ("SELECT 9223372036854775807 + id FROM t", "22003"),
    ("SELECT 100000::smallint", "22003"),
    ("SELECT (id + 3000000000)::int FROM t", "22003"),
    ("SELECT 'NaN'::float8::int", "22003"),
    ("SELECT '99999999999'::int", "22003"),
    ("SELECT '-99999999999999999999'::bigint", "22003"),
    ("SELECT 12345678.9::numeric(5, 2)", "22003"),
    ("SELECT factorial(-1)", "22003"),
    ("SELECT 'abc'::int", "22P02"),
    ("SELECT ''::int", "22P02"),
    ("SELECT name::bigint FROM t", "22P02"),
    ("SELECT 'abc'::boolean", "22P02"),
    ("SELECT 'abc'::uuid", "22P02"),
    ("SELECT '{1,2'::int[]", "22P02"),
    ("SELECT 1 LIMIT 'a'", "22P02"),
    ("SELECT x'zz'", "22P02"),
    ("SELECT 'abc'::date", "22007"),
    ("SELECT name::timestamp FROM t", "22007"),
    ("SELECT '12:00'::timestamp", "22007"),
    ("SELECT 'abc'::time", "22007"),
    ("SELECT 'abc'::interval", "22007"),
    ("SELECT '2024-13-45'::date", "22008"),
    ("SELECT '2024-02-30 00:00'::timestamp", "22008"),
    ("SELECT '25:61:00'::time", "22008"),
    ("SELECT make_date(2024, 13, 1)", "22008"),
    ("SELECT date_trunc('foo', now())", "22023"),
    ("SELECT now() AT TIME ZONE 'nowhere'", "22023"),
    ("SELECT split_part('a,b', ',', 0)", "22023"),
    ("SELECT decode('zz', 'hex')", "22023"),
    ("SELECT * FROM generate_series(1, 10, 0)", "22023"),
    ("SELECT substr('abc', 1, -1)", "22011"),
    ("SELECT ntile(0) OVER () FROM t", "22014"),
    ("SELECT name ~ '(' FROM t", "2201B"),
    ("SELECT sqrt(-1)", "2201F"),
    ("SELECT 1 LIMIT -1", "2201W"),
    ("SELECT 1 OFFSET -1", "2201X"),
    ("SELECT date '2024-01-01' + 2147483647", "22008"),
    ("SELECT make_date(2024, 2, 30)", "22008"),
    ("SELECT make_time(25, 0, 0)", "22008"),
    ("SELECT make_timestamp(2024, 2, 30, 0, 0, 0)", "22008"),
    ("SELECT to_char(1, '9.9.9')", "42601"),
    ("SELECT to_char(interval '1 day', 'Day')", "22007"),
    ("SELECT timestamp '2024-01-01' AT TIME ZONE 'nowhere'", "22023"),
    ("SELECT 'a' SIMILAR TO 'a' ESCAPE 'xx'", "22025"),
    ("SELECT chr(0)", "54000"),
    ("SELECT (SELECT id FROM t)", "21000"),
];

/// Statements that cannot be right.
const STATEMENTS: [(&str, &str); 80] = [
    ("SELEC 1", "42601"),
    ("SELECT (SELECT 1, 2)", "42601"),
    ("SELECT 1 UNION SELECT 1, 2", "42601"),
    ("VALUES (1), (1, 2)", "42601"),
    ("INSERT INTO t VALUES (1)", "42601"),
    ("SELECT * FROM a.b.c.d", "42601"),
    ("SELECT * FROM nothing", "42P01"),
    ("SELECT x.* FROM t", "42P01"),
    ("DROP TABLE nothing", "42P01"),
    ("CREATE TABLE t (a int)", "42P07"),
    ("SELECT nothing FROM t", "42703"),
    ("CREATE TABLE n (a int, a int)", "42701"),
    ("ALTER TABLE t ADD COLUMN name text", "42701"),
    ("SELECT * FROM t AS a, t AS a", "42712"),
    ("SELECT nothing(1)", "42883"),
    ("SELECT name + 1 FROM t", "42883"),
    ("SELECT interval '1 day' > 1", "42883"),
    ("SELECT 1 WHERE 1", "42804"),
    ("SELECT NOT 1", "42804"),
    ("SELECT 'a'::nothing", "42704"),
    ("SET pithead.nothing = 1", "42704"),
    ("SET pithead.pushdown = 'maybe'", "22023"),
    ("SET statement_timeout = 'abc'", "22023"),
    ("SELECT * FROM t WHERE sum(id) > 1", "42803"),
    ("SELECT sum(sum(id)) FROM t", "42803"),
    ("SELECT name, sum(id) FROM t", "42803"),
    ("SELECT row_number() FROM t", "42809"),
    ("DROP VIEW t", "42809"),
    ("SELECT 1 ORDER BY 2", "42P10"),
    ("SELECT $1", "42P02"),
    ("DEALLOCATE nothing", "26000"),
    ("LISTEN x", "0A000"),
    ("INSERT INTO t VALUES (1, 'a', 2) ON CONFLICT DO NOTHING", "0A000"),
    ("SELECT 'nothing'::regproc::oid", "42883"),
    ("SELECT 1 UNION SELECT true", "42804"),
    ("SELECT x.id FROM t", "42P01"),
    ("SELECT nothing.id FROM t AS x", "42P01"),
    ("SELECT t.id FROM t AS x", "42P01"),
    ("WITH x AS (SELECT 1), x AS (SELECT 2) SELECT 1", "42712"),
    ("CREATE TABLE n AS SELECT 1 AS a, 2 AS a", "42701"),
    ("CREATE TABLE n (a numeric(2000, 2))", "22023"),
    ("CREATE VIEW n AS SELECT 1 AS a, 2 AS a", "42701"),
    ("CREATE VIEW n (a, b) AS SELECT 1", "42601"),
    ("SELECT - name FROM t", "42883"),
    ("SELECT id || id FROM t", "42883"),
    ("SELECT 1 AND true", "42804"),
    ("SELECT 1 OR true", "42804"),
    ("SELECT * FROM t JOIN t AS u ON t.id", "42804"),
    ("SELECT true::date", "42846"),
    ("SELECT ARRAY[1]::int", "42846"),
    ("SELECT 1::uuid", "42846"),
    ("SELECT sum(id) OVER () FROM t WHERE row_number() OVER () = 1", "42P20"),
    ("SELECT sum(rank() OVER ()) FROM t", "42803"),
    ("SELECT sum(id) OVER w FROM t", "42704"),
    ("SELECT sum(id) OVER (w) FROM t", "42704"),
    ("SELECT upper(DISTINCT name) FROM t", "42809"),
    ("SELECT upper(name) FILTER (WHERE true) FROM t", "42809"),
    ("SELECT sum(id) OVER (ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING) FROM t", "42P20"),
    ("SELECT sum(id) OVER (ROWS BETWEEN -1 PRECEDING AND CURRENT ROW) FROM t", "22013"),
    ("SELECT sum(id) OVER (RANGE 1 PRECEDING) FROM t", "42P20"),
    ("SELECT 1 ORDER BY 0", "42P10"),
    ("SELECT DISTINCT ON (id) id, name FROM t ORDER BY name", "42P10"),
    ("SELECT $0", "42P02"),
    ("MERGE INTO t USING t AS s ON true WHEN MATCHED THEN DELETE", "21000"),
    ("SELECT * FROM unnest(1)", "42883"),
    ("SELECT unnest(1)", "42883"),
    ("SELECT id[1] FROM t", "42804"),
    ("COPY t TO STDOUT (FORMAT csv, DELIMITER 'ab')", "0A000"),
    ("DROP SCHEMA nothing", "3F000"),
    ("DROP SCHEMA main", "2BP01"),
    ("CREATE INDEX ON nothing (id)", "42P01"),
    ("CREATE INDEX i ON t (id, nothing DESC)", "42703"),
    ("ANALYZE nothing", "42P01"),
    ("ANALYZE t (id, nothing)", "42703"),
    ("VACUUM (ANALYZE) t, main.nothing", "42P01"),
    ("COMMENT ON TABLE nothing IS 'x'", "42P01"),
    ("COMMENT ON COLUMN t.nothing IS 'x'", "42703"),
    ("EXPLAIN (FORMAT json) SELECT 1", "0A000"),
    ("EXPLAIN (ANALYZE, nothing) SELECT 1", "42601"),
    ("EXPLAIN (BUFFERS maybe) SELECT 1", "42601"),
];

#[test]
fn codes_are_those_of_postgresql() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let deep = (format!("SELECT {}1{}", "(".repeat(500), ")".repeat(500)), "54001");
    let all = VALUES.iter().chain(&STATEMENTS).map(|(sql, code)| ((*sql).to_owned(), *code)).chain([deep]);
    let wrong: Vec<String> = all
        .filter_map(|(sql, expected)| {
            let replies = client.query(&sql);
            let said = replies.iter().find(|reply| reply.0 == 'E').and_then(|reply| reply.field(b'M'));
            let found = code(&replies);
            (found.as_deref() != Some(expected)).then(|| format!("{sql}: {found:?} and not {expected}: {said:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn codes_come_from_drives_elsewhere() {
    let folder = five_rows();
    let drives = DriveProcess::start_many(folder.path(), 1, &[]);
    done(folder.path(), &["load", "t", "t.csv", "--drives", drives[0].address()]);
    let front = FrontProcess::start(folder.path(), &["--drives", drives[0].address()]);
    let mut client = RawClient::connect(front.address());
    for (sql, expected) in [
        ("SELECT id FROM t WHERE 1 / (id - 1) > 0", "22012"),
        ("SELECT id FROM t WHERE name::int > 0", "22P02"),
        ("SELECT id FROM t WHERE name::date > now()", "22007"),
        ("SELECT id FROM t WHERE (id * 1000000)::smallint > 0", "22003"),
        ("SELECT id FROM t WHERE sqrt(-id) > 0", "2201F"),
    ] {
        assert_eq!(code(&client.query(sql)).as_deref(), Some(expected), "{sql}");
    }
}
