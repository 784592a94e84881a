//! The columns of results: what they are called, and where they come from.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{FixedSizeBinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use pithead_e2e::front::{done, five_rows};
use pithead_e2e::{FrontProcess, RawClient, Reply};

use super::{code, rows};

/// A column as it is told: its name, its table, its number there, and its type.
#[derive(Debug)]
struct Told {
    name: String,
    table: u32,
    number: u16,
    oid: u32,
}

fn columns(replies: &[Reply]) -> Vec<Told> {
    let body = &replies.iter().find(|reply| reply.0 == 'T').expect("the columns are told").1;
    let (mut rest, mut columns) = (&body[2..], Vec::new());
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0).unwrap();
        let name = String::from_utf8_lossy(&rest[..end]).into_owned();
        let int = |at: usize| u32::from_be_bytes(rest[end + 1 + at..end + 5 + at].try_into().unwrap());
        let number = u16::from_be_bytes(rest[end + 5..end + 7].try_into().unwrap());
        columns.push(Told { name, table: int(0), number, oid: int(6) });
        rest = &rest[end + 19..];
    }
    columns
}

fn names(replies: &[Reply]) -> Vec<String> {
    columns(replies).into_iter().map(|column| column.name).collect()
}

#[test]
fn results_are_called_as_postgresql_calls_them() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    for (sql, expected) in [
        (
            "SELECT count(*), sum(id), max(t.id) + 1, t.name, price::int FROM t GROUP BY name, price",
            "count sum ?column? name price",
        ),
        ("SELECT 1, 'x' AS a, '1'::int, now()::date, CASE WHEN true THEN 1 END", "?column? a int4 now case"),
        ("SELECT max(id), max(price) FROM t", "max max"),
        (
            "SELECT EXISTS (SELECT 1), coalesce(1, 2), extract(year FROM DATE '2024-01-01'), current_date",
            "exists coalesce extract current_date",
        ),
        (
            "SELECT current_user, version() = '', 't'::regclass, ARRAY(SELECT 1), (SELECT count(*) FROM t)",
            "current_user ?column? regclass array count",
        ),
        ("SELECT *, upper(name) FROM t", "id name price upper"),
        ("SELECT * FROM (SELECT count(*), 1 + 1 FROM t) AS s", "count ?column?"),
        ("SELECT id, count(*) OVER () FROM t UNION ALL SELECT 1, 2", "id count"),
    ] {
        let replies = client.query(sql);
        assert!(code(&replies).is_none(), "{sql}: {:?}", replies.iter().find(|reply| reply.0 == 'E'));
        assert_eq!(names(&replies).join(" "), expected, "{sql}");
    }
    // They are names that the statement itself reads.
    let replies = client.query("SELECT name IS NULL AS n, count(*) FROM t GROUP BY 1 ORDER BY count DESC");
    assert_eq!(rows(&replies), [["f", "4"], ["t", "1"]]);
    assert_eq!(rows(&client.query("SELECT count + sum FROM (SELECT count(*), sum(id) FROM t) AS s")), [["20"]]);
    client.query("CREATE TABLE made AS SELECT count(*), max(id) FROM t; CREATE VIEW seen AS SELECT min(id), name AS n FROM t GROUP BY name");
    assert_eq!(rows(&client.query("SELECT count, max FROM made")), [["5", "5"]]);
    assert_eq!(rows(&client.query("SELECT min FROM seen WHERE n = 'two'")), [["2"]]);
    let returned = client.query("DELETE FROM made WHERE count > 0 RETURNING max + 1, upper('x')");
    assert_eq!(
        (names(&returned).join(" "), rows(&returned)),
        ("?column? upper".into(), vec![vec!["6".to_owned(), "X".to_owned()]])
    );
}

#[test]
fn columns_tell_which_table_they_are_of() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let oid: u32 = rows(&client.query("SELECT 't'::regclass::oid"))[0][0].parse().unwrap();
    let told = columns(&client.query(
        "SELECT t.name AS n, id + 1, u.id FROM t JOIN (SELECT id FROM t WHERE id > 1) AS u USING (id) ORDER BY u.id LIMIT 1",
    ));
    let of: Vec<_> = told.iter().map(|column| (column.table, column.number, column.oid)).collect();
    assert_eq!(of, [(oid, 2, 25), (0, 0, 20), (oid, 1, 20)], "{told:?}");
    // Those of a statement that is prepared, too.
    client.send('P', b"s\0SELECT price, $1 FROM t\0\0\0");
    client.send('D', b"Ss\0");
    client.send('S', b"");
    let told = columns(&client.until('Z'));
    assert_eq!((told[0].table, told[0].number, told[1].table), (oid, 3, 0));
}

/// A regression: they were told as bytes, so that drivers gave bytes or refused identifiers.
#[test]
fn placeholders_of_identifiers_are_told_as_identifiers() {
    let folder = five_rows();
    let extension = [("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())];
    let field = Field::new("id", DataType::FixedSizeBinary(16), true).with_metadata(extension.into());
    let schema = Arc::new(Schema::new(vec![field]));
    let ids = FixedSizeBinaryArray::try_from_iter([[7_u8; 16]].into_iter()).unwrap();
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(ids)]).unwrap();
    let file = File::create(folder.path().join("ids.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    done(folder.path(), &["load", "ids", "ids.parquet", "--data", "data"]);
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    client.send('P', b"s\0SELECT id FROM ids WHERE id = $1\0\0\0");
    client.send('D', b"Ss\0");
    let id = "07070707-0707-0707-0707-070707070707";
    client.send('B', &[b"\0s\0\0\0\0\x01\0\0\0\x24", id.as_bytes(), b"\0\0"].concat());
    client.send('E', b"\0\0\0\0\0");
    client.send('S', b"");
    let replies = client.until('Z');
    assert!(code(&replies).is_none(), "{:?}", replies.iter().find(|reply| reply.0 == 'E'));
    assert_eq!(replies[1].1, [&b"\0\x01"[..], &2950_u32.to_be_bytes()].concat());
    assert_eq!((columns(&replies)[0].oid, rows(&replies)), (2950, vec![vec![id.to_owned()]]));
}

#[test]
fn functions_of_rows_in_select_give_rows() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    for (sql, expected) in [
        ("SELECT generate_series(1, 3)", "1 2 3"),
        ("SELECT 10 * generate_series(1, id) FROM t WHERE id = 2", "10 20"),
        ("SELECT a FROM (SELECT chr(generate_series(97, 99)::int) AS a)", "a b c"),
        ("SELECT string_to_table('x,y', ',')", "x y"),
        ("SELECT generate_series('2024-01-01'::date, '2024-01-02', '1 day')::text", "2024-01-01 2024-01-02"),
        (
            "SELECT day::date FROM generate_series('2024-01-01'::timestamp, '2024-01-02', '1 day') AS day",
            "2024-01-01 2024-01-02",
        ),
        ("SELECT 1 WHERE 2 IN (SELECT generate_series(1, 3))", "1"),
        ("SELECT x, n FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY AS u (x, n)", "a 1 b 2"),
        (
            "SELECT id, ordinality FROM t, string_to_table(repeat('x,', 2), ',') WITH ORDINALITY WHERE id = 5 ORDER BY 2",
            "5 1 5 2 5 3",
        ),
        ("SELECT ARRAY(SELECT * FROM GENERATE_SERIES(1, 3))", "{1,2,3}"),
    ] {
        let replies = client.query(sql);
        let found = rows(&replies).concat().join(" ");
        assert_eq!(found, expected, "{sql}: {:?}", replies.iter().find(|reply| reply.0 == 'E'));
    }
    assert_eq!(names(&client.query("SELECT generate_series(1, 2), generate_series(1, 2) AS b")), ["generate_series", "b"]);
    assert_eq!(rows(&client.query("SELECT generate_series(1, 2), generate_series(1, 1)")), [["1", "1"], ["2", "NULL"]]);
}

#[test]
fn a_select_of_nothing_has_one_row() {
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let replies = client.query("SELECT; SELECT 1");
    assert_eq!((super::tags(&replies), rows(&replies)), (vec!["SELECT 1".to_owned(); 2], vec![vec![], vec!["1".to_owned()]]));
    client.send('P', b"\0select\0\0\0");
    client.send('B', b"\0\0\0\0\0\0\0\0");
    client.send('D', b"P\0");
    client.send('E', b"\0\0\0\0\0");
    client.send('S', b"");
    let replies = client.until('Z');
    assert_eq!(replies.iter().map(|reply| reply.0).collect::<String>(), "12TDCZ");
    assert!(columns(&replies).is_empty());
}

#[test]
fn texts_are_read_as_identifiers_where_columns_are() {
    const ID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let folder = five_rows();
    let front = FrontProcess::start(folder.path(), &["--data", "data"]);
    let mut client = RawClient::connect(front.address());
    let create = "CREATE TABLE u (id uuid, t text); CREATE TABLE lab.w (t text, \"Id\" uuid)";
    assert!(code(&client.query(create)).is_none());
    for (sql, expected) in [
        (
            format!("INSERT INTO u VALUES ('{ID}', '{ID}'), (NULL, 'x'), (gen_random_uuid(), 'y') RETURNING t"),
            format!("{ID} x y"),
        ),
        (format!("INSERT INTO u (t, id) SELECT 'z', '{}' RETURNING id", ID.to_uppercase()), ID.to_owned()),
        (format!("UPDATE main.u SET id = '{ID}' WHERE t = 'x' RETURNING id, t"), format!("{ID} x")),
        (format!("SELECT count(*) FROM u WHERE id = '{ID}'"), "3".to_owned()),
        ("SELECT count(DISTINCT id) FROM u".to_owned(), "2".to_owned()),
        (format!("INSERT INTO lab.w(\"Id\") VALUES ('{{{ID}}}') RETURNING \"Id\""), ID.to_owned()),
    ] {
        let replies = client.query(&sql);
        let mut found = rows(&replies).concat();
        found.sort();
        assert_eq!(found.join(" "), expected, "{sql}: {:?}", replies.iter().find(|reply| reply.0 == 'E'));
    }
    let mixed = format!("INSERT INTO u VALUES ('{ID}', 'a'), ('nothing', 'b')");
    assert_eq!(code(&client.query(&mixed)).as_deref(), Some("22P02"));
    assert_eq!(columns(&client.query("SELECT gen_random_uuid()"))[0].oid, 2950);
}
