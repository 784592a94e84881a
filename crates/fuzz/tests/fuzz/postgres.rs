//! What PostgreSQL's clients send: the first bytes of a connection, messages, parameters, statements and rows of COPY.

use pithead_front::fuzz;
use pithead_fuzz::{Bound, Outcome, Parts, Seed, Target};

pub const NAMES: [&str; 5] =
    ["postgres_startup", "postgres_messages", "postgres_parameter", "postgres_statement", "postgres_copy"];

/// A value of four bytes, NULL in an array, is an Arrow array of its own before they are put together.
const BOUND: Bound = Bound { bytes: 1 << 20, factor: 1_024 };

pub fn targets() -> Vec<Target> {
    let target =
        |name, seeds, run: fn(&[u8]) -> Outcome| Target { name, seeds, parts: Parts::WHOLE, bound: BOUND, run: Box::new(run) };
    vec![
        target("postgres_startup", startups(), |bytes| judged(fuzz::startup(bytes))),
        target("postgres_messages", messages(), |bytes| judged(fuzz::messages(bytes))),
        target("postgres_parameter", parameters(), parameter),
        target("postgres_statement", statements(), |bytes| judged(std::str::from_utf8(bytes).is_ok_and(fuzz::statement))),
        target("postgres_copy", copies(), copy),
    ]
}

fn judged(accepted: bool) -> Outcome {
    if accepted { Outcome::Accepted } else { Outcome::Refused }
}

/// The type's number, whether it is in binary, then the value.
fn parameter(bytes: &[u8]) -> Outcome {
    match bytes.split_first_chunk::<5>() {
        Some(([a, b, c, d, binary], value)) => {
            judged(fuzz::parameter(u32::from_be_bytes([*a, *b, *c, *d]), binary % 2 == 1, value))
        }
        None => Outcome::Refused,
    }
}

/// The number of fields, and the format, then the rows.
fn copy(bytes: &[u8]) -> Outcome {
    let [fields, format, rows @ ..] = bytes else { return Outcome::Refused };
    let statement = match format % 5 {
        0 => "COPY t FROM STDIN",
        1 => "COPY t FROM STDIN CSV HEADER",
        2 => "COPY t FROM STDIN (FORMAT csv, QUOTE '''', ESCAPE '#', DELIMITER '|', NULL 'x')",
        3 => "COPY t FROM STDIN (DELIMITER ',', NULL '')",
        _ => "COPY t FROM STDIN (FORMAT binary)",
    };
    judged(fuzz::copy(statement, usize::from(*fields), rows))
}

fn startups() -> Vec<Seed> {
    vec![
        Seed::valid("tls", 80_877_103_u32.to_be_bytes()),
        Seed::valid("session", *b"\0\x03\0\0user\0me\0database\0pithead\0options\0-c geqo=off\0\0"),
        Seed::valid("cancel", *b"\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02"),
        Seed::hostile("http", *b"GET / HTTP/1.1\r\n\r\n"),
        Seed::hostile("without-end", *b"\0\x03\0\0user\0me"),
    ]
}

fn messages() -> Vec<Seed> {
    let message = |tag: u8, body: &[u8]| [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat();
    let parse = message(b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x17");
    let bind = message(b'B', b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01");
    let rest = [message(b'D', b"P\0"), message(b'E', b"\0\0\0\0\0"), message(b'C', b"Ss\0"), message(b'S', b"")].concat();
    vec![
        Seed::valid("query", message(b'Q', b"SELECT 1\0")),
        Seed::valid("extended", [parse, bind, rest].concat()),
        Seed::valid("copy", [message(b'd', b"1\t2\n"), message(b'c', b"")].concat()),
        Seed::hostile("many-values", message(b'B', b"\0\0\0\0\xff\xff\xff\xff\xff\xff")),
        Seed::hostile("negative-value", message(b'B', b"\0\0\0\0\0\x01\x80\0\0\0\0\0")),
        Seed::hostile("four-gibibytes", *b"Q\xff\xff\xff\xff"),
    ]
}

fn parameters() -> Vec<Seed> {
    let seed =
        |name: &str, oid: u32, binary: u8, value: &[u8]| Seed::valid(name, [&oid.to_be_bytes()[..], &[binary], value].concat());
    vec![
        seed("int4", 23, 1, &[0, 0, 0, 7]),
        seed("numeric", 1700, 1, &[0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 0x09, 0x29, 0x1a, 0x2c]),
        seed("timestamptz", 1184, 1, &[0; 8]),
        seed("interval", 1186, 1, &[0; 16]),
        seed("array", 1007, 1, b"\0\0\0\x01\0\0\0\x01\0\0\0\x17\0\0\0\x02\0\0\0\x01\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff"),
        seed("array-text", 1009, 0, b"{a,NULL,\"b,\\\"c\"}"),
        seed("numeric-text", 1700, 0, b"-1234567890.0123456789"),
        seed("bytea-text", 17, 0, b"\\x0aff"),
        seed("timestamp-text", 1114, 0, b"2024-02-29 01:02:03.5"),
        seed("interval-text", 1186, 0, b"1 month 2 days 3 hours"),
        seed("uuid", 2950, 1, &[9; 16]),
    ]
}

fn statements() -> Vec<Seed> {
    [
        "COPY (SELECT a FROM t) TO STDOUT WITH (FORMAT csv, HEADER, DELIMITER ';')",
        "copy lab.\"T\" (a, b) from stdin csv quote as '\"'",
        "SET search_path TO \"$user\", lab",
        "/* a /* b */ */ -- c\nBEGIN ISOLATION LEVEL REPEATABLE READ",
        "SHOW transaction isolation level",
        "DECLARE \"c\" BINARY NO SCROLL CURSOR WITH HOLD FOR SELECT 1",
        "FETCH FORWARD 10 FROM \"c\"",
        "CREATE TABLE t (index bigint, a decimal(1, 2))",
        "SELECT E'\\'', 'it''s', \"a\"\"b\"",
    ]
    .iter()
    .zip(0..)
    .map(|(text, number)| Seed::valid(format!("statement-{number}"), text.as_bytes().to_vec()))
    .collect()
}

fn copies() -> Vec<Seed> {
    vec![
        Seed::valid("text", b"\x02\x001\ta\\tb\n2\t\\N\n\\.\n".to_vec()),
        Seed::valid("csv", b"\x02\x01a,b\n1,\"x,\"\"y\"\"\n\"\n".to_vec()),
        Seed::valid("quotes", b"\x02\x021|'a#'b'\nx|2\n".to_vec()),
        Seed::valid("commas", b"\x02\x031,\n2,\\x41\n".to_vec()),
        Seed::valid("binary", b"\x02\x04PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01a\xff\xff\xff\xff\xff\xff".to_vec()),
        Seed::hostile("binary-flags", b"\x02\x04PGCOPY\n\xff\r\n\0\0\x01\0\0\0\0\0\0".to_vec()),
    ]
}
