//! What is bounded, and who waits: connections that are opened at once, values that are bound, and COPY that does not end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pithead_e2e::front::{ENDLESS, done, five_rows};
use pithead_e2e::{FrontProcess, RawClient};

use super::{code, rows, tags};

const STARTUP: &[u8] = b"\0\0\0\x11\0\x03\0\0user\0me\0\0";

#[test]
fn a_pool_of_connections_is_opened_at_once() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    // All of them are there before the first one says who it is.
    let streams: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(front.address()).unwrap()).collect();
    let mut clients: Vec<RawClient> = streams.into_iter().map(|stream| RawClient { stream, key: (0, 0) }).collect();
    for client in &mut clients {
        client.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client.stream.write_all(STARTUP).unwrap();
    }
    for client in &mut clients {
        assert_eq!(client.until('Z').last().map(|reply| reply.0), Some('Z'));
        assert_eq!(rows(&client.query("SELECT count(*) FROM t")), [["5"]]);
    }
}

/// A regression: who had to make room for newer ones was hung up on.
#[test]
fn who_makes_room_for_newer_ones_is_told_so() {
    let folder = five_rows();
    done(folder.path(), &["token", "me", "--read", "main"]);
    let front = FrontProcess::start(folder.path(), &["--data", "data", "--access", "access.toml"]);
    let begin = || {
        let mut stream = TcpStream::connect(front.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        stream.write_all(STARTUP).unwrap();
        RawClient { stream, key: (0, 0) }
    };
    let mut first = begin();
    assert_eq!(first.reply().map(|reply| reply.0), Some('R'), "it is asked who it is");
    let _more: Vec<RawClient> = (0..300).map(|_| begin()).collect();
    let told = first.reply().expect("it is told why it has to go");
    let fields = [b'S', b'C'].map(|field| told.field(field).unwrap_or_default());
    assert_eq!((told.0, fields.each_ref().map(String::as_str)), ('E', ["FATAL", "53300"]));
    let mut rest = Vec::new();
    let _ = first.stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "and then the connection ends");
}

#[test]
fn values_of_portals_are_bounded() {
    const VALUE_BYTES: usize = 15 << 20;
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    client.query("BEGIN");
    client.send('P', b"s\0SELECT length($1)\0\0\x01\0\0\0\x19");
    let bind = |client: &mut RawClient, portal: &str| {
        let head = [portal.as_bytes(), b"\0s\0\0\0\0\x01", &(VALUE_BYTES as u32).to_be_bytes()].concat();
        client.send('B', &[&head[..], &vec![b'x'; VALUE_BYTES], b"\0\0"].concat());
        client.send('S', b"");
        code(&client.until('Z'))
    };
    let first: Vec<_> = (0..4).map(|number| bind(&mut client, &format!("p{number}"))).collect();
    assert_eq!(first, [None, None, None, None]);
    assert_eq!(bind(&mut client, "p4").as_deref(), Some("54000"));
    client.query("ROLLBACK");
    assert_eq!(rows(&client.query("SELECT count(*) FROM t")), [["5"]]);
}

/// A regression: the time that a statement may take ran while the client of a cursor thought.
#[test]
fn each_part_of_a_cursors_rows_has_the_time_of_a_statement() {
    const MANY: &str = "SELECT value FROM range(10000000)";
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    client.query(&format!("SET statement_timeout = '2s'; BEGIN; DECLARE c CURSOR FOR {MANY}"));
    client.send('P', &[b"\0", MANY.as_bytes(), b"\0\0\0"].concat());
    client.send('B', b"p\0\0\0\0\0\0\0\0");
    client.send('E', b"p\0\0\0\0\x02");
    client.send('S', b"");
    assert_eq!(rows(&client.until('Z')).len(), 2);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(tags(&client.query("FETCH 100000 FROM c")), ["FETCH 100000"]);
    client.send('E', b"p\0\0\0\0\x02");
    client.send('S', b"");
    assert_eq!(rows(&client.until('Z')).len(), 2);
    // One that takes too long by itself is ended.
    assert_eq!(code(&client.query(&format!("DECLARE d CURSOR FOR {ENDLESS}; FETCH 1 FROM d"))).as_deref(), Some("57014"));
}

#[test]
fn a_copy_that_does_not_end_is_ended() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    client.query("SET statement_timeout = '300ms'");
    client.send('Q', b"COPY t FROM STDIN\0");
    assert_eq!(client.reply().map(|reply| reply.0), Some('G'));
    client.send('d', b"6\tsix\t6.5\n");
    let start = Instant::now();
    assert_eq!(code(&client.until('Z')).as_deref(), Some("57014"));
    assert!(start.elapsed() < Duration::from_secs(10));
    client.query("RESET statement_timeout");
    // Rows that are cut anywhere, in messages of all sizes.
    client.send('Q', b"COPY t FROM STDIN\0");
    assert_eq!(client.reply().map(|reply| reply.0), Some('G'));
    let text: String = (0..50_000).map(|number| format!("{number}\tn{number}\t0.5\n")).collect();
    let (small, large) = text.as_bytes().split_at(1000);
    small.chunks(7).for_each(|part| client.send('d', part));
    large.chunks(200_000).for_each(|part| client.send('d', part));
    client.send('c', b"");
    assert_eq!(tags(&client.until('Z')), ["COPY 50000"]);
    assert_eq!(rows(&client.query("SELECT count(*), count(DISTINCT name) FROM t")), [["50005", "50004"]]);
    // Half of it, and the client goes: nothing of that is there.
    client.send('Q', b"COPY t FROM STDIN\0");
    client.send('d', b"1\tgone\t1\n2\tgone\t2\n");
    drop(client);
    std::thread::sleep(Duration::from_millis(500));
    let mut client = RawClient::connect(front.address());
    assert_eq!(rows(&client.query("SELECT count(*) FROM t WHERE name = 'gone'")), [["0"]]);
}

/// A regression: three clients with texts of 13 MiB took 16 GB, and kept all others waiting for minutes.
#[test]
fn long_statements_are_bounded_and_others_go_on() {
    const LITERALS: usize = 3_500_000;
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let list = |count: usize| format!("SELECT count(*) FROM t WHERE id IN ({}7)", "1, ".repeat(count));
    let before = front.resident();
    let longest = list(LITERALS);
    let asking = std::thread::scope(|scope| {
        let ask = || RawClient::connect(front.address()).query(&longest);
        let long: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        let mut client = RawClient::connect(front.address());
        let start = Instant::now();
        assert_eq!(rows(&client.query("SELECT count(*) FROM t")), [["5"]]);
        assert!(start.elapsed() < Duration::from_secs(20), "others wait {:?}", start.elapsed());
        long.into_iter().map(|asked| code(&asked.join().unwrap())).collect::<Vec<_>>()
    });
    assert_eq!(asking, vec![Some("54000".to_owned()); 3]);
    assert!(front.resident() < before + (1536 << 20), "{} after {before}", front.resident());
    let mut client = RawClient::connect(front.address());
    // By both protocols, and lists that people write are taken.
    client.send('P', &[b"\0", longest.as_bytes(), b"\0\0\0"].concat());
    client.send('S', b"");
    assert_eq!(code(&client.until('Z')).as_deref(), Some("54000"));
    let chain = format!("SELECT {}1", "1+".repeat(700_000));
    assert_eq!(code(&client.query(&chain)).as_deref(), Some("54000"));
    assert_eq!(rows(&client.query(&list(100_000))), [["1"]]);
}

/// A regression: planning never pauses, and the time was looked at once it had ended.
#[test]
fn planning_has_the_time_of_a_statement() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    assert_eq!(tags(&client.query("CREATE TABLE many (a BIGINT, b BIGINT)")), ["CREATE TABLE"]);
    client.query("SET statement_timeout = '50ms'");
    let insert = format!("INSERT INTO many VALUES {}(1, 2)", "(1, 2), ".repeat(99_999));
    assert_eq!(code(&client.query(&insert)).as_deref(), Some("57014"));
    client.send('P', &[b"\0", insert.as_bytes(), b"\0\0\0"].concat());
    client.send('S', b"");
    assert_eq!(code(&client.until('Z')).as_deref(), Some("57014"));
    client.query("RESET statement_timeout");
    assert_eq!(rows(&client.query("SELECT count(*) FROM many")), [["0"]], "what came too late changes nothing");
    assert_eq!(tags(&client.query(&insert)), ["INSERT 0 100000"]);
}
