//! `pithead serve` before PostgreSQL's clients: statements by both protocols, cancellation, rights, and clients that lie. What real
//! drivers make of it is in `python/tests/test_postgres.py`.

mod bounds;
mod catalogue;
mod codes;
mod forms;
mod psql;
mod results;
mod scram;
mod sessions;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use pithead_e2e::front::{ENDLESS, done, five_rows, run};
use pithead_e2e::{DriveProcess, FrontProcess, RawClient, Reply};

/// Rows that nobody takes all of.
const MANY: &str = "SELECT value, repeat('x', 1000) FROM range(20000000)";

fn rows(replies: &[Reply]) -> Vec<Vec<String>> {
    let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
    replies.iter().filter(|reply| reply.0 == 'D').map(|reply| reply.row().into_iter().map(text).collect()).collect()
}

fn code(replies: &[Reply]) -> Option<String> {
    replies.iter().find(|reply| reply.0 == 'E').and_then(|reply| reply.field(b'C'))
}

fn tags(replies: &[Reply]) -> Vec<String> {
    let text = |reply: &Reply| String::from_utf8_lossy(reply.1.strip_suffix(b"\0").unwrap()).into_owned();
    replies.iter().filter(|reply| reply.0 == 'C').map(text).collect()
}

#[test]
fn statements_are_answered_over_drives_of_both_kinds() {
    let folder = five_rows();
    let here = FrontProcess::start(folder.path(), &["--data", "data"]);
    let drives = DriveProcess::start_many(folder.path(), 2, &[]);
    let addresses: Vec<&str> = drives.iter().map(DriveProcess::address).collect();
    done(folder.path(), &["load", "t", "t.csv", "--drives", &addresses.join(",")]);
    let there = FrontProcess::start(folder.path(), &["--drives", &addresses.join(",")]);
    for front in [&here, &there] {
        let mut client = RawClient::connect(front.address());
        let replies = client.query("SELECT id, name FROM t WHERE id > 3 ORDER BY id; SELECT sum(price) FROM t;");
        assert_eq!(rows(&replies), [vec!["4", "four"], vec!["5", "five"], vec!["17.5"]]);
        assert_eq!(tags(&replies), ["SELECT 2", "SELECT 1"]);
        assert_eq!(client.query(" ; -- nothing")[0].0, 'I');
        // The second of three fails, and the third does not run.
        let replies = client.query("SELECT 1; SELECT nothing FROM t; SELECT 3");
        assert_eq!((rows(&replies).len(), code(&replies).as_deref()), (1, Some("42703")));
        let replies = client.query("SELECT 1;\nSELEC 2");
        assert_eq!(
            (code(&replies).as_deref(), replies.iter().find(|reply| reply.0 == 'E').unwrap().field(b'P').as_deref()),
            (Some("42601"), Some("11"))
        );
        assert_eq!(code(&client.query("SELECT * FROM absent")).as_deref(), Some("42P01"));
        assert_eq!(code(&client.query("SELECT 1 / (id - id) FROM t")).as_deref(), Some("22012"));
        // Writes: seen by the next statement.
        let replies =
            client.query("CREATE TABLE made AS SELECT id FROM t; INSERT INTO made VALUES (7); DELETE FROM made WHERE id = 1");
        assert_eq!(tags(&replies), ["SELECT 5", "INSERT 0 1", "DELETE 1"]);
        assert_eq!(rows(&client.query("SELECT sum(id) FROM made")), [["21"]]);
        let replies = client.query(
            "INSERT INTO made SELECT id + 10 FROM made RETURNING id; UPDATE made SET id = 0 WHERE id > 12 RETURNING *; \
             DELETE FROM made WHERE id = 99 RETURNING id",
        );
        assert_eq!(tags(&replies), ["INSERT 0 5", "UPDATE 4", "DELETE 0"]);
        assert_eq!(rows(&replies).len(), 9);
        assert_eq!(tags(&client.query("DROP TABLE made")), ["DROP TABLE"]);
    }
}

#[test]
fn blocks_hold_one_statement_that_writes_and_say_so() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    assert_eq!(client.query("BEGIN").last().unwrap().1, b"T");
    let replies = client.query("CREATE TABLE w AS SELECT 1 AS a");
    assert_eq!(replies.iter().find(|reply| reply.0 == 'N').and_then(|reply| reply.field(b'C')).as_deref(), Some("01000"));
    assert_eq!(code(&client.query("INSERT INTO w VALUES (2)")).as_deref(), Some("0A000"));
    assert_eq!(code(&client.query("SELECT 1")).as_deref(), Some("25P02"));
    assert_eq!(code(&client.query("ROLLBACK")).as_deref(), Some("0A000"), "what was written stays, and nothing else is said");
    assert_eq!(rows(&client.query("SELECT a FROM w")), [["1"]]);
    let replies = client.query("BEGIN; SELECT 1; COMMIT");
    assert_eq!(
        (tags(&replies), replies.last().unwrap().1.as_slice()),
        (vec!["BEGIN".into(), "SELECT 1".into(), "COMMIT".into()], &b"I"[..])
    );
    assert_eq!(code(&client.query("SAVEPOINT s")).as_deref(), Some("25P01"));
    let replies = client.query("BEGIN; SAVEPOINT s; SELECT nothing");
    assert_eq!((code(&replies).as_deref(), replies.last().unwrap().1.as_slice()), (Some("42703"), &b"E"[..]));
    assert_eq!(client.query("ROLLBACK TO s").last().unwrap().1, b"T");
}

#[test]
fn savepoints_are_known_by_their_names() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let replies = client.query("BEGIN; SAVEPOINT a; SAVEPOINT \"B\"; RELEASE SAVEPOINT \"B\"; ROLLBACK TO SAVEPOINT A");
    assert_eq!(tags(&replies), ["BEGIN", "SAVEPOINT", "SAVEPOINT", "RELEASE", "ROLLBACK"]);
    for sql in ["RELEASE b", "ROLLBACK TO \"B\"", "ROLLBACK WORK TO SAVEPOINT unknown"] {
        let replies = client.query(sql);
        assert_eq!((code(&replies).as_deref(), replies.last().unwrap().1.as_slice()), (Some("3B001"), &b"E"[..]), "{sql}");
        assert_eq!(client.query("ROLLBACK TO a").last().unwrap().1, b"T", "{sql}: the block goes on");
    }
    assert_eq!(code(&client.query("SELECT nothing")).as_deref(), Some("42703"));
    assert_eq!(code(&client.query("RELEASE a")).as_deref(), Some("25P02"));
    assert_eq!(client.query("ROLLBACK").last().unwrap().1, b"I");
    assert_eq!(code(&client.query("BEGIN; ROLLBACK TO a")).as_deref(), Some("3B001"), "it was of the block before");
    client.query("ROLLBACK");
    // What was written before a savepoint does not bear on what went wrong after it.
    client.query("BEGIN; SAVEPOINT a; CREATE TABLE w AS SELECT 1 AS a; SAVEPOINT b");
    assert_eq!(code(&client.query("SELECT nothing")).as_deref(), Some("42703"));
    assert_eq!(code(&client.query("ROLLBACK TO a")).as_deref(), Some("0A000"), "the table stays");
    assert_eq!(client.query("ROLLBACK TO b").last().unwrap().1, b"T");
    assert_eq!(tags(&client.query("COMMIT")), ["COMMIT"]);
    assert_eq!(tags(&client.query("ALTER TABLE w RENAME TO x")), ["ALTER TABLE"]);
    assert_eq!(tags(&client.query("CREATE VIEW v AS SELECT a FROM x")), ["CREATE VIEW"]);
    assert_eq!(tags(&client.query("ALTER VIEW v RENAME TO y")), ["ALTER VIEW"]);
    assert_eq!(rows(&client.query("SELECT a FROM y")), [["1"]]);
    assert_eq!(code(&client.query("ALTER TABLE x RENAME TO y")).as_deref(), Some("42P07"));
}

#[test]
fn only_its_own_statement_is_cancelled() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let (mut first, mut second) = (RawClient::connect(front.address()), RawClient::connect(front.address()));
    first.send('Q', &[ENDLESS.as_bytes(), b"\0"].concat());
    std::thread::sleep(Duration::from_millis(300));
    RawClient::cancel(front.address(), (first.key.0, first.key.1.wrapping_add(1)));
    RawClient::cancel(front.address(), second.key);
    assert_eq!(rows(&second.query("SELECT count(*) FROM t")), [["5"]], "what came while nothing ran cancels nothing");
    first.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(first.stream.peek(&mut [0]).is_err(), "it runs still");
    first.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    RawClient::cancel(front.address(), first.key);
    assert_eq!(code(&first.until('Z')).as_deref(), Some("57014"));
    assert_eq!(rows(&first.query("SELECT count(*) FROM t")), [["5"]]);
    let replies = first.query(&format!("SET statement_timeout = '200ms'; {ENDLESS}"));
    assert_eq!(code(&replies).as_deref(), Some("57014"));
}

#[test]
fn a_client_that_reads_nothing_costs_no_memory_and_can_be_cancelled() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut lazy = RawClient::connect(front.address());
    lazy.query("SELECT 1");
    lazy.send('Q', &[MANY.as_bytes(), b"\0"].concat());
    std::thread::sleep(Duration::from_secs(1));
    let before = front.resident();
    std::thread::sleep(Duration::from_secs(2));
    assert!(front.resident() < before + (64 << 20), "{} after {before}", front.resident());
    let mut other = RawClient::connect(front.address());
    assert_eq!(rows(&other.query("SELECT count(*) FROM t")), [["5"]]);
    RawClient::cancel(front.address(), lazy.key);
    // What is in the sockets comes still; then the error.
    let mut last = None;
    while let Some(reply) = lazy.reply() {
        let is_ready = reply.0 == 'Z';
        if reply.0 == 'E' {
            last = reply.field(b'C');
        }
        if is_ready {
            break;
        }
    }
    assert_eq!(last.as_deref(), Some("57014"));
}

/// A regression: who had asked for the rows of a change and did not take them held their connection for hours.
#[test]
fn rows_of_a_change_are_cancelled_and_the_change_stays() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut lazy = RawClient::connect(front.address());
    lazy.query("CREATE TABLE made (v BIGINT)");
    lazy.send('Q', b"INSERT INTO made SELECT value FROM range(50000) RETURNING v, repeat('x', 1000)\0");
    std::thread::sleep(Duration::from_secs(3));
    RawClient::cancel(front.address(), lazy.key);
    let replies = lazy.until('Z');
    let error = replies.iter().find(|reply| reply.0 == 'E').expect("its rows are cancelled");
    assert_eq!(error.field(b'C').as_deref(), Some("57014"));
    assert!(error.field(b'M').is_some_and(|message| message.contains("stays")), "{error:?}");
    assert_eq!(rows(&lazy.query("SELECT count(*) FROM made")), [["50000"]]);
}

/// The answer to bytes that no client would send, or nothing where the connection is only closed.
fn answer_to(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn what_is_no_message_harms_only_who_sends_it() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    for bytes in [
        &b""[..],
        b"\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\x08\0\0\0\0",
        b"\0\0\0\x05\0",
        b"\x16\x03\x01\0\x05hello",
    ] {
        answer_to(front.address(), bytes);
    }
    for message in [&b"Q\xff\xff\xff\xff"[..], b"Q\x7f\xff\xff\xff", b"Q\0\0\0\x03", b"?\0\0\0\x04"] {
        let mut client = RawClient::connect(front.address());
        client.stream.write_all(message).unwrap();
        let error = client.reply().unwrap_or_else(|| panic!("{message:?} has no answer"));
        assert_eq!(
            (error.0, error.field(b'S').as_deref(), error.field(b'C').as_deref()),
            ('E', Some("FATAL"), Some("08P01")),
            "{message:?}"
        );
        assert!(client.reply().is_none(), "the connection ends");
    }
    // What has a known end is thrown away, whatever it says, and a text that is not UTF-8 ends its statement alone.
    let mut client = RawClient::connect(front.address());
    for (tag, body) in [('B', &b"\0\0\xff\xff\xff\xff"[..]), ('P', b"a\0"), ('D', b"?\0"), ('E', b"p\0\0")] {
        client.send(tag, body);
        client.send('S', b"");
        assert_eq!(code(&client.until('Z')).as_deref(), Some("08P01"), "{tag}");
    }
    client.send('Q', b"SELECT 1");
    assert_eq!(code(&client.until('Z')).as_deref(), Some("08P01"));
    client.send('Q', b"\xff\xff\xff\0");
    assert_eq!(code(&client.until('Z')).as_deref(), Some("22021"));
    client.send('P', b"\0\xff\xff\xff\0\0\0");
    client.send('S', b"");
    assert_eq!(code(&client.until('Z')).as_deref(), Some("22021"));
    assert_eq!(rows(&client.query("SELECT count(*) FROM t")), [["5"]]);
    // Half a message, and the client goes.
    let mut client = RawClient::connect(front.address());
    client.stream.write_all(b"Q\0\0\xff\0SELECT").unwrap();
    drop(client);
    // A statement of 100 MB is read away, and the connection goes on.
    let mut client = RawClient::connect(front.address());
    let before = front.resident();
    let sql = format!("SELECT '{}'", "x".repeat(100_000_000));
    assert_eq!(code(&client.query(&sql)).as_deref(), Some("54000"));
    assert!(front.resident() < before + (64 << 20));
    assert_eq!(rows(&client.query("SELECT count(*) FROM t")), [["5"]]);
    // Parameters that lie.
    client.send('P', b"\0SELECT id FROM t WHERE id = $1\0\0\0");
    client.send('B', b"\0\0\0\x01\0\x01\0\x01\0\0\0\x03\0\0\x01\0\0");
    client.send('E', b"\0\0\0\0\0");
    client.send('S', b"");
    let replies = client.until('Z');
    assert_eq!((code(&replies).as_deref(), replies.iter().filter(|reply| reply.0 == 'E').count()), (Some("22P03"), 1));
}

#[test]
fn portals_give_rows_in_parts() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    client.query("BEGIN");
    client.send('P', b"s\0SELECT id FROM t WHERE id >= $1 ORDER BY id\0\0\0");
    client.send('D', b"Ss\0");
    client.send('B', b"p\0s\0\0\0\0\x01\0\0\0\x012\0\0");
    client.send('E', b"p\0\0\0\0\x03");
    client.send('S', b"");
    let replies = client.until('Z');
    let kinds: String = replies.iter().map(|reply| reply.0).collect();
    assert_eq!(kinds, "1tT2DDDsZ");
    assert_eq!(replies[1].1, b"\0\x01\0\0\0\x14", "id is a bigint");
    client.send('E', b"p\0\0\0\0\x03");
    client.send('C', b"Pp\0");
    client.send('S', b"");
    let replies = client.until('Z');
    assert_eq!(replies.iter().map(|reply| reply.0).collect::<String>(), "DC3Z");
    assert_eq!(rows(&replies), [["5"]]);
    client.send('E', b"p\0\0\0\0\0");
    client.send('S', b"");
    assert_eq!(code(&client.until('Z')).as_deref(), Some("34000"));
}

#[test]
fn cursors_are_portals_with_names() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let replies = client.query("BEGIN; DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id; FETCH 1 FROM c");
    assert_eq!(
        (tags(&replies), rows(&replies)),
        (vec!["BEGIN".into(), "DECLARE CURSOR".into(), "FETCH 1".into()], vec![vec!["1".into()]])
    );
    // FETCH itself is given in parts.
    client.send('P', b"\0FETCH 3 FROM c\0\0\0");
    client.send('B', b"f\0\0\0\0\0\0\0\0");
    client.send('D', b"Pf\0");
    client.send('E', b"f\0\0\0\0\x02");
    client.send('S', b"");
    let replies = client.until('Z');
    assert_eq!(replies.iter().map(|reply| reply.0).collect::<String>(), "12TDDsZ");
    client.send('E', b"f\0\0\0\0\0");
    client.send('S', b"");
    let replies = client.until('Z');
    assert_eq!((rows(&replies), tags(&replies)), (vec![vec!["4".to_owned()]], vec!["FETCH 3".into()]));
    let replies = client.query("MOVE ALL FROM c; FETCH c; CLOSE c");
    assert_eq!(tags(&replies), ["MOVE 1", "FETCH 0", "CLOSE CURSOR"]);
    assert_eq!(code(&client.query("FETCH c")).as_deref(), Some("34000"));
    assert_eq!(client.query("ROLLBACK").last().unwrap().1, b"I");
    // Several statements that write, where a client asks for it.
    let replies = client
        .query("SET pithead.block_writes = 'many'; BEGIN; CREATE TABLE b AS SELECT 1 AS a; INSERT INTO b VALUES (2); COMMIT");
    assert_eq!(tags(&replies), ["SET", "BEGIN", "SELECT 1", "INSERT 0 1", "COMMIT"]);
    assert_eq!(rows(&client.query("SHOW pithead.block_writes")), [["many"]]);
    assert_eq!(
        code(&client.query("BEGIN; DROP TABLE b; ROLLBACK")).as_deref(),
        Some("0A000"),
        "what was dropped stays dropped"
    );
}

#[test]
fn strangers_stay_outside_and_rights_hold() {
    let folder = five_rows();
    let path = folder.path();
    done(path, &["sql", "--data", "data", "-c", "CREATE TABLE hidden.h AS SELECT 1 AS a"]);
    // A view lends nobody the rights of who made it.
    done(path, &["sql", "--data", "data", "-c", "CREATE VIEW beyond AS SELECT a FROM hidden.h"]);
    done(path, &["sql", "--data", "data", "-c", "CREATE VIEW within AS SELECT count(*) AS rows FROM t"]);
    done(path, &["token", "reader", "--read", "main"]);
    let refused = run(path, &["serve", "--data", "data", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(3), "beyond loopback it serves known callers within TLS only");
    let mut front = FrontProcess::start(path, &["--data", "data", "--access", "access.toml", "--metrics", "127.0.0.1:0"]);
    let token = std::fs::read_to_string(path.join("reader.token")).unwrap();
    let psql = |user: &str, password: &str, sql: &str| {
        let mut command = Command::new("psql");
        command.args([
            "-h",
            "127.0.0.1",
            "-p",
            front.port(),
            "-U",
            user,
            "-d",
            "pithead",
            "-XAtq",
            "-v",
            "VERBOSITY=sqlstate",
            "-c",
            sql,
        ]);
        command.env("PGPASSWORD", password).env("PGCONNECT_TIMEOUT", "20").output()
    };
    let Ok(first) = psql("reader", token.trim(), "SELECT count(*) FROM t") else {
        eprintln!("skipped: psql is not there");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&first.stdout).trim(), "5", "{}", String::from_utf8_lossy(&first.stderr));
    let start = Instant::now();
    for (user, password) in [("reader", "wrong"), ("somebody", token.trim()), ("reader", "")] {
        assert!(!psql(user, password, "SELECT 1").unwrap().status.success(), "{user}");
    }
    assert!(start.elapsed() > Duration::from_millis(1000), "who guesses waits");
    for sql in [
        "SELECT * FROM hidden.h",
        "SELECT * FROM beyond",
        "CREATE VIEW more AS SELECT 1 AS a",
        "CREATE OR REPLACE VIEW within AS SELECT 1 AS a",
        "DROP VIEW within",
        "INSERT INTO t VALUES (9, 'x', 1)",
        "DROP TABLE t",
        "CREATE TABLE hidden.n AS SELECT 1",
        "COPY t FROM STDIN",
    ] {
        let said = psql("reader", token.trim(), sql).unwrap();
        assert!(String::from_utf8_lossy(&said.stderr).contains("42501"), "{sql}: {}", String::from_utf8_lossy(&said.stderr));
    }
    let listed = psql("reader", token.trim(), "SELECT DISTINCT table_schema FROM information_schema.tables").unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "main");
    let within = psql("reader", token.trim(), "SELECT rows FROM within").unwrap();
    assert_eq!(String::from_utf8_lossy(&within.stdout).trim(), "5", "{}", String::from_utf8_lossy(&within.stderr));
    // Somebody who is not known any more is sent away at the next statement.
    let mut stream = TcpStream::connect(front.metrics()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("pithead_front_begun_total{outcome=\"refused\"} ") && text.contains("pithead_host_statements_total"),
        "{text}"
    );
    assert!(front.terminate());
}

/// A regression: a named statement told of the tables that there were when it was prepared.
#[test]
fn prepared_statements_tell_of_tables_as_they_are_now() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    client.send('P', b"s\0SELECT to_regclass('late') IS NULL, pg_table_size('t') > 0, pg_database_size('pithead')\0\0\0");
    let told = |client: &mut RawClient| {
        client.send('B', b"\0s\0\0\0\0\0\0\0");
        client.send('E', b"\0\0\0\0\0");
        client.send('S', b"");
        rows(&client.until('Z')).remove(0)
    };
    let before = told(&mut client);
    assert_eq!(before[..2], ["t", "t"]);
    client.query("CREATE TABLE late AS SELECT id, name FROM t");
    let after = told(&mut client);
    assert_eq!(after[..2], ["f", "t"]);
    let bytes = |row: &[String]| row[2].parse::<u64>().unwrap();
    assert!(bytes(&after) > bytes(&before), "{before:?}, {after:?}");
    client.query("DROP TABLE late");
    assert_eq!(told(&mut client), before);
}
