//! What a connection has: a database by the name that it gives, settings, a search path, blocks, and statements prepared by SQL.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use pithead_e2e::front::{done, five_rows};
use pithead_e2e::{FrontProcess, RawClient, Reply};

use super::{code, rows, tags};

/// A connection that begins with these parameters.
fn connect_with(address: &str, parameters: &[(&str, &str)]) -> (RawClient, Vec<Reply>) {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut client = RawClient { stream, key: (0, 0) };
    let pairs: String = parameters.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
    let body = [b"\0\x03\0\0", pairs.as_bytes(), b"\0"].concat();
    client.stream.write_all(&[&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()).unwrap();
    let replies = client.until('Z');
    (client, replies)
}

/// The one value of a statement.
fn value(client: &mut RawClient, sql: &str) -> String {
    let replies = client.query(sql);
    assert!(code(&replies).is_none(), "{sql}: {:?}", replies.iter().find(|reply| reply.0 == 'E'));
    rows(&replies).pop().and_then(|mut row| row.pop()).unwrap_or_else(|| panic!("{sql} gives nothing"))
}

/// A regression: ADBC looks into the catalog alone that is called like its connection's database.
#[test]
fn the_database_has_the_name_that_its_client_gives_it() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let (mut client, _) = connect_with(front.address(), &[("user", "me"), ("database", "shop")]);
    assert_eq!(value(&mut client, "SELECT current_database()"), "shop");
    assert_eq!(rows(&client.query("SELECT datname FROM pg_database")), [["shop"]]);
    let listed = "SELECT DISTINCT table_catalog FROM information_schema.tables WHERE table_schema = 'main'";
    assert_eq!(rows(&client.query(listed)), [["shop"]]);
    assert_eq!(value(&mut client, "SELECT count(*) FROM shop.main.t, pithead.main.t AS u"), "25");
    assert_eq!(code(&client.query("SELECT count(*) FROM other.main.t")).as_deref(), Some("42P01"));
    assert_eq!(value(&mut RawClient::connect(front.address()), "SELECT current_database()"), "pithead");
}

#[test]
fn bare_names_are_looked_up_along_the_path() {
    let folder = five_rows();
    for sql in
        ["CREATE TABLE lab.n AS SELECT 1 AS a", "CREATE TABLE public.p AS SELECT 2 AS a", "CREATE TABLE lab.t AS SELECT 3 AS a"]
    {
        done(folder.path(), &["sql", "--data", "data", "-c", sql]);
    }
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    assert_eq!(value(&mut client, "SHOW search_path"), "main");
    assert_eq!(code(&client.query("SELECT a FROM n")).as_deref(), Some("42P01"));
    // Names in the first domain hide those in later ones.
    client.query("SET search_path = main, lab, \"Not there\"");
    assert_eq!(value(&mut client, "SELECT count(*) FROM t"), "5");
    assert_eq!(value(&mut client, "SELECT a FROM n"), "1");
    assert_eq!(value(&mut client, "SELECT n.a FROM n JOIN lab.t ON n.a < t.a"), "1");
    assert_eq!(
        value(&mut client, "SELECT current_schema() || ' ' || array_to_string(current_schemas(false), ',')"),
        "main main,lab"
    );
    assert_eq!(value(&mut client, "SELECT count(*) FROM pg_class WHERE pg_table_is_visible(oid)"), "2");
    assert_eq!(value(&mut client, "SELECT 'n'::regclass::oid = 'lab.n'::regclass::oid"), "t");
    // What is made goes into the first one, what is changed stays where it is.
    let replies = client.query("CREATE TABLE made AS SELECT a FROM n; INSERT INTO n VALUES (7); DROP TABLE n");
    assert_eq!(tags(&replies), ["SELECT 1", "INSERT 0 1", "DROP TABLE"]);
    assert_eq!(value(&mut client, "SELECT count(*) FROM main.made"), "1");
    assert_eq!(code(&client.query("SELECT * FROM lab.n")).as_deref(), Some("42P01"));
    // As the usual path has it: `public` where it is there.
    client.query("SET search_path = \"$user\", public");
    assert_eq!(value(&mut client, "SHOW search_path"), "public");
    assert_eq!(value(&mut client, "SELECT a FROM p"), "2");
    client.query("RESET search_path");
    assert_eq!(value(&mut client, "SELECT current_schema()"), "main");
    // A function sets it as SET does.
    assert_eq!(value(&mut client, "SELECT set_config('search_path', 'lab', false)"), "lab");
    assert_eq!(value(&mut client, "SELECT a FROM t"), "3");
    assert!(code(&client.query("SELECT set_config('nothing', '1', false)")).is_some());
    let (mut other, _) = connect_with(front.address(), &[("user", "me"), ("options", "-c search_path=lab,public")]);
    assert_eq!((value(&mut other, "SELECT a FROM t"), value(&mut other, "SELECT a FROM p")), ("3".into(), "2".into()));
}

/// A regression: a statement that was prepared went on with the tables of the path before, to delete from them, too.
#[test]
fn prepared_statements_follow_the_path() {
    let folder = five_rows();
    for sql in ["CREATE TABLE lab.n AS SELECT 1 AS a", "CREATE TABLE other.n AS SELECT 2 AS a"] {
        done(folder.path(), &["sql", "--data", "data", "-c", sql]);
    }
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    client.query("SET search_path = main, lab; PREPARE gone AS DELETE FROM n; PREPARE asked AS SELECT a FROM n");
    assert_eq!(value(&mut client, "EXECUTE asked"), "1");
    client.query("SET search_path = main, other");
    assert_eq!(value(&mut client, "EXECUTE asked"), "2");
    assert_eq!(tags(&client.query("EXECUTE gone")), ["DELETE 1"]);
    assert_eq!(value(&mut client, "SELECT count(*) FROM other.n"), "0");
    assert_eq!(value(&mut client, "SELECT count(*) FROM lab.n"), "1");
    client.query("SET search_path = main, lab");
    assert_eq!(value(&mut client, "EXECUTE asked"), "1");
    client.query("SET search_path = main");
    assert_eq!(code(&client.query("EXECUTE asked")).as_deref(), Some("42P01"));
}

/// A regression: they were answered with success, and nothing was set.
#[test]
fn functions_and_options_set_what_is_a_blocks() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    client.query("BEGIN");
    assert_eq!(value(&mut client, "SELECT set_config('transaction_read_only', 'on', true)"), "on");
    assert_eq!(value(&mut client, "SHOW transaction_read_only"), "on");
    assert_eq!(code(&client.query("CREATE TABLE no AS SELECT 1 AS a")).as_deref(), Some("25006"));
    client.query("ROLLBACK; BEGIN");
    assert_eq!(value(&mut client, "SELECT set_config('transaction_isolation', 'serializable', false)"), "serializable");
    assert_eq!(value(&mut client, "SHOW transaction_isolation"), "serializable");
    client.query("ROLLBACK");
    assert_eq!(value(&mut client, "SHOW transaction_isolation"), "read committed");
    let (mut other, _) = connect_with(front.address(), &[("user", "me"), ("options", "-c transaction_read_only=on")]);
    assert_eq!(value(&mut other, "SHOW transaction_read_only"), "on");
    assert_eq!(code(&other.query("CREATE TABLE no AS SELECT 1 AS a")).as_deref(), Some("25006"));
}

#[test]
fn settings_come_back_and_clients_have_some_of_their_own() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let parameters = [("user", "me"), ("options", "-c pithead.level=2"), ("TimeZone", "GMT-02:00")];
    let (mut client, begun) = connect_with(front.address(), &parameters);
    // PostgreSQL's sign is that of the west.
    let told = |replies: &[Reply], text: &[u8]| replies.iter().any(|reply| reply.0 == 'S' && reply.1 == text);
    assert!(told(&begun, b"TimeZone\0GMT-02:00\0"));
    assert_eq!(value(&mut client, "SELECT '2024-01-01 12:00:00+00'::timestamptz"), "2024-01-01 14:00:00+02");
    client.query("SET pithead.level = 0; SET pithead.slice_cache = '1MiB'; SET enable_seqscan = off; SET my.var = 'x y'");
    assert_eq!(value(&mut client, "SHOW pithead.level"), "0");
    assert_eq!(
        (value(&mut client, "SHOW enable_seqscan"), value(&mut client, "SELECT current_setting('my.var')")),
        ("off".into(), "x y".into())
    );
    let first = value(&mut RawClient::connect(front.address()), "SHOW pithead.slice_cache");
    client.query("RESET pithead.level");
    assert_eq!(value(&mut client, "SHOW pithead.level"), "2", "as the connection began");
    assert_eq!(tags(&client.query("DISCARD PLANS; DISCARD ALL")), ["DISCARD PLANS", "DISCARD ALL"]);
    assert_eq!(
        (value(&mut client, "SHOW pithead.slice_cache"), value(&mut client, "SHOW enable_seqscan")),
        (first, "on".into())
    );
    assert!(code(&client.query("RESET pithead.nothing")).is_some());
    // As pgAdmin begins.
    let replies = client.query(
        "SET DateStyle=ISO; SET client_min_messages=notice; SELECT set_config('bytea_output','hex',false) FROM \
         pg_show_all_settings() WHERE name = 'bytea_output'; SET client_encoding='utf-8';",
    );
    assert_eq!((rows(&replies), tags(&replies)[2].as_str()), (vec![vec!["hex".to_owned()]], "SELECT 1"));
    // Roles: only one's own.
    let replies = client.query("SET ROLE me; SET ROLE NONE; SET SESSION AUTHORIZATION DEFAULT; RESET ROLE");
    assert_eq!(tags(&replies), ["SET", "SET", "SET", "RESET"]);
    assert_eq!(code(&client.query("SET ROLE somebody")).as_deref(), Some("42501"));
}

#[test]
fn blocks_tell_what_they_are_and_chain() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    assert_eq!(tags(&client.query("START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")), ["START TRANSACTION"]);
    assert_eq!(value(&mut client, "SHOW transaction_isolation"), "serializable");
    assert_eq!(value(&mut client, "SHOW transaction_read_only"), "on");
    let replies = client.query("COMMIT AND CHAIN");
    assert_eq!((tags(&replies), replies.last().unwrap().1.as_slice()), (vec!["COMMIT".to_owned()], &b"T"[..]));
    assert_eq!(value(&mut client, "SHOW transaction_read_only"), "on");
    assert_eq!(client.query("ROLLBACK").last().unwrap().1, b"I");
    assert_eq!(value(&mut client, "SHOW transaction_isolation"), "read committed");
    assert_eq!(code(&client.query("ROLLBACK AND CHAIN")).as_deref(), Some("25P01"));
    client.query("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY");
    assert_eq!(value(&mut client, "SELECT current_setting('transaction_read_only')"), "on");
    assert_eq!(code(&client.query("CREATE TABLE no AS SELECT 1")).as_deref(), Some("25006"));
    client.query("BEGIN; SET TRANSACTION READ WRITE");
    assert_eq!(value(&mut client, "SHOW transaction_read_only"), "off");
    client.query("COMMIT; RESET ALL");
    let replies = client.query(
        "DROP INDEX IF EXISTS i; COMMENT ON TABLE t IS 'x'; DEALLOCATE ALL; BEGIN; DECLARE c CURSOR FOR SELECT id FROM t; FETCH 0 FROM c; ROLLBACK",
    );
    assert_eq!(tags(&replies), ["DROP INDEX", "COMMENT", "DEALLOCATE ALL", "BEGIN", "DECLARE CURSOR", "FETCH 0", "ROLLBACK"]);
    let notice = replies.iter().find(|reply| reply.0 == 'N').and_then(|reply| reply.field(b'S'));
    assert_eq!((notice.as_deref(), rows(&replies).len()), (Some("NOTICE"), 0));
    assert_eq!(replies.iter().filter(|reply| reply.0 == 'T').count(), 1, "FETCH 0 tells the columns");
    // On a row it would give this one again.
    let replies = client.query("BEGIN; DECLARE c CURSOR FOR SELECT id FROM t; FETCH 1 FROM c; MOVE 0 FROM c; FETCH 0 FROM c");
    assert_eq!(
        (tags(&replies)[2..].to_vec(), code(&replies).as_deref()),
        (vec!["FETCH 1".into(), "MOVE 1".into()], Some("55000"))
    );
    let replies =
        client.query("ROLLBACK; BEGIN; DECLARE c CURSOR FOR SELECT id FROM t; FETCH ALL FROM c; FETCH 0 FROM c; COMMIT");
    assert_eq!(tags(&replies)[3..], ["FETCH 5", "FETCH 0", "COMMIT"]);
}

#[test]
fn statements_are_prepared_by_sql() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let replies = client.query(
        "PREPARE p (bigint, text) AS SELECT id FROM t WHERE id > $1 AND name <> $2 ORDER BY id; EXECUTE p(1 + 1, 'five')",
    );
    assert_eq!((tags(&replies), rows(&replies)), (vec!["PREPARE".into(), "SELECT 1".into()], vec![vec!["4".to_owned()]]));
    assert_eq!(rows(&client.query("SELECT name, from_sql FROM pg_prepared_statements")), [["p", "t"]]);
    let replies = client.query(
        "PREPARE l AS SELECT count(*) FROM pg_prepared_statements; PREPARE m AS SELECT 1; EXECUTE l; DEALLOCATE l; DEALLOCATE m",
    );
    assert_eq!(rows(&replies), [["3"]], "the list is that of now");
    assert_eq!(code(&client.query("EXECUTE p(1)")).as_deref(), Some("42601"));
    assert_eq!(code(&client.query("EXECUTE q")).as_deref(), Some("26000"));
    assert_eq!(code(&client.query("PREPARE p AS SELECT 1")).as_deref(), Some("42P05"));
    // By the protocol, too, which tells the columns.
    client.send('P', b"\0EXECUTE p(4, 'x')\0\0\0");
    client.send('B', b"\0\0\0\0\0\0\0\0");
    client.send('D', b"P\0");
    client.send('E', b"\0\0\0\0\0");
    client.send('S', b"");
    let replies = client.until('Z');
    assert_eq!(replies.iter().map(|reply| reply.0).collect::<String>(), "12TDCZ");
    assert_eq!(rows(&replies), [["5"]]);
    assert_eq!(tags(&client.query("DEALLOCATE p; BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT 1; COMMIT")).len(), 4);
    assert_eq!(rows(&client.query("SELECT name, is_holdable FROM pg_cursors")), [["c", "t"]]);
}

/// A regression: one with parameters went on for ever with errors that no driver knows, or with values as texts of another type.
#[test]
fn prepared_statements_tell_that_a_column_has_another_type() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let make = |value: &str| format!("CREATE OR REPLACE TABLE made AS SELECT id, {value} AS g FROM t");
    for query in ["SELECT g FROM made WHERE id = $1", "SELECT max(g) FROM made WHERE id = $1"] {
        assert_eq!(tags(&client.query(&make("id * 10"))), ["SELECT 5"]);
        let prepare = |client: &mut RawClient| client.send('P', &[b"s\0", query.as_bytes(), b"\0\0\0"].concat());
        let run = |client: &mut RawClient| {
            client.send('B', b"\0s\0\0\0\0\x01\0\0\0\x013\0\0");
            client.send('E', b"\0\0\0\0\0");
            client.send('S', b"");
            client.until('Z')
        };
        prepare(&mut client);
        assert_eq!(rows(&run(&mut client)), [["30"]], "{query}");
        // Also where all values could be told as they were.
        for value in ["'z' || id", "CAST(id AS TEXT)"] {
            client.query(&make(value));
            let replies = run(&mut client);
            let error = replies.iter().find(|reply| reply.0 == 'E').unwrap_or_else(|| panic!("{query}: {value}"));
            let told = [b'C', b'R'].map(|field| error.field(field).unwrap_or_default());
            assert_eq!(told, ["0A000", "RevalidateCachedQuery"], "{query}: {:?}", error.field(b'M'));
        }
        client.send('C', b"Ss\0");
        prepare(&mut client);
        assert_eq!(rows(&run(&mut client)), [["3"]], "{query}");
        client.send('C', b"Ss\0");
    }
}

/// A regression: they ended the block that was open.
#[test]
fn transactions_of_two_phases_there_are_none_of() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    for sql in ["COMMIT PREPARED 'x'", "ROLLBACK PREPARED 'x'"] {
        client.query("BEGIN");
        let replies = client.query(sql);
        assert_eq!((code(&replies).as_deref(), replies.last().unwrap().1.as_slice()), (Some("0A000"), &b"E"[..]), "{sql}");
        assert_eq!(tags(&client.query("ROLLBACK")), ["ROLLBACK"]);
    }
    // As ADBC's driver makes tables with lists.
    assert_eq!(tags(&client.query("CREATE TABLE listed (a INT8 ARRAY, b TEXT array[3])")), ["CREATE TABLE"]);
    assert_eq!(tags(&client.query("INSERT INTO listed VALUES ([1, 2], ['x'])")), ["INSERT 0 1"]);
}
