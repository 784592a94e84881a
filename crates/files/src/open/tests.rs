//! Files at servers, opened and read as loads do.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use pithead_model::Blame;

use super::*;
use crate::remote::fake::{Failure, Fake};

const ROWS: i64 = 30_000;

/// A regression: of files of text, a batch had as many rows as were asked for, however long they were.
#[test]
fn long_rows_come_in_small_batches() {
    let folder = tempfile::tempdir().unwrap();
    let text = "x".repeat(1 << 20);
    let files = [
        ("rows.csv", format!("a,t\n{}", format!("1,{text}\n").repeat(40))),
        ("rows.json", format!("{{\"a\": 1, \"t\": \"{text}\"}}\n").repeat(40)),
    ];
    for (name, bytes) in files {
        let path = folder.path().join(name).display().to_string();
        std::fs::write(&path, bytes).unwrap();
        let opened = open_all(&[path], None, &CsvOptions::default()).unwrap();
        let chunks = opened[0].read(0, 65_536, None).unwrap();
        let rows: Vec<usize> = chunks.map(|chunk| chunk.unwrap().batch.num_rows()).collect();
        assert!(rows.len() > 1 && rows.iter().sum::<usize>() == 40, "{name}: {rows:?}");
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("t", DataType::Utf8, true)]))
}

fn rows() -> RecordBatch {
    let texts = (0..ROWS).map(|row| format!("text {:x}", row.wrapping_mul(0x9e37_79b9)));
    let columns: Vec<arrow::array::ArrayRef> =
        vec![Arc::new(Int64Array::from_iter_values(0..ROWS)), Arc::new(StringArray::from_iter_values(texts))];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn parquet() -> Vec<u8> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(7_000)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema(), Some(properties)).unwrap();
    writer.write(&rows()).unwrap();
    writer.into_inner().unwrap()
}

fn arrow_file() -> Vec<u8> {
    let mut writer = arrow::ipc::writer::FileWriter::try_new(Vec::new(), &schema()).unwrap();
    for start in (0..ROWS as usize).step_by(9_000) {
        writer.write(&rows().slice(start, 9_000.min(ROWS as usize - start))).unwrap();
    }
    writer.into_inner().unwrap()
}

fn csv() -> Vec<u8> {
    let mut writer = arrow::csv::Writer::new(Vec::new());
    writer.write(&rows()).unwrap();
    writer.into_inner()
}

fn json() -> Vec<u8> {
    let mut writer = arrow::json::LineDelimitedWriter::new(Vec::new());
    writer.write(&rows()).unwrap();
    writer.finish().unwrap();
    writer.into_inner()
}

/// The rows of all sources, and their sum over the first column.
fn read(client: crate::remote::Client, sources: &[&str]) -> Result<(usize, i64), Fault> {
    let sources: Vec<String> = sources.iter().map(|source| (*source).to_owned()).collect();
    let opened = open_found(Finder::with(client), &sources, None, &CsvOptions::default())?;
    let (mut rows, mut sum) = (0, 0);
    for source in opened {
        for part in 0..source.parts() {
            for chunk in source.read(part, 4_096, None)? {
                let batch = chunk?.batch;
                rows += batch.num_rows();
                let numbers = arrow::compute::cast(batch.column(0), &DataType::Int64).unwrap();
                sum += arrow::compute::sum(numbers.as_any().downcast_ref::<Int64Array>().unwrap()).unwrap_or(0);
            }
        }
    }
    Ok((rows, sum))
}

const ALL: (usize, i64) = (ROWS as usize, ROWS * (ROWS - 1) / 2);

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let zstd = zstd::encode_all(csv().as_slice(), 1).unwrap();
    vec![
        ("lake/a.parquet", parquet()),
        ("lake/a.arrow", arrow_file()),
        ("lake/a.csv", csv()),
        ("lake/a.csv.zst", zstd),
        ("lake/a.jsonl", json()),
    ]
}

fn serve() -> Fake {
    let files = files();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (*path, bytes.as_slice())).collect();
    Fake::serve(&files)
}

#[test]
fn each_format_is_read_from_urls_and_buckets() {
    let fake = serve();
    for (path, _) in files() {
        assert_eq!(read(fake.client(&[]), &[&format!("{}/{path}?signature=x", fake.url)]).unwrap(), ALL, "{path}");
        assert_eq!(read(fake.client(&[]), &[&format!("s3://{path}")]).unwrap(), ALL, "{path}");
    }
}

#[test]
fn servers_that_give_no_parts_are_read_as_a_whole() {
    for no_lengths in [false, true] {
        let fake = serve();
        fake.as_a_whole(no_lengths);
        for (path, _) in files() {
            assert_eq!(read(fake.client(&[]), &[&format!("{}/{path}", fake.url)]).unwrap(), ALL, "{path}");
        }
    }
}

#[test]
fn of_a_parquet_file_one_column_is_fetched_alone() {
    let fake = serve();
    let sources = [format!("{}/lake/a.parquet", fake.url)];
    let opened = open_found(Finder::with(fake.client(&[])), &sources, None, &CsvOptions::default()).unwrap();
    let before = fake.seen().len();
    let rows: usize = opened[0].read(1, 4_096, Some(0)).unwrap().map(|chunk| chunk.unwrap().batch.num_rows()).sum();
    assert_eq!(rows, 7_000);
    assert_eq!(fake.seen().len() - before, 1, "one chunk is one request");
}

#[test]
fn patterns_match_keys_in_order_and_over_many_answers() {
    let files: Vec<(String, Vec<u8>)> = ["d/1.csv", "d/2.csv", "d/3.csv", "d/e/4.csv", "d/notes.txt", "other.csv"]
        .iter()
        .map(|key| (format!("lake/{key}"), b"a\n1\n".to_vec()))
        .collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
    let fake = Fake::serve(&files);
    assert_eq!(read(fake.client(&[]), &["s3://lake/d/*.csv"]).unwrap(), (3, 3));
    assert_eq!(read(fake.client(&[]), &["s3://lake/d/**/*.csv"]).unwrap(), (4, 4));
    let fault = read(fake.client(&[]), &["s3://lake/d/*.parquet"]).unwrap_err();
    assert_eq!(fault.message, "no object matches s3://lake/d/*.parquet");
}

#[test]
fn requests_are_signed_and_secrets_are_not_shown() {
    let fake = serve();
    let keys = [("AWS_ACCESS_KEY_ID", "the-id"), ("AWS_SECRET_ACCESS_KEY", "the-secret"), ("AWS_SESSION_TOKEN", "the-token")];
    assert_eq!(read(fake.client(&keys), &["s3://lake/a.csv"]).unwrap(), ALL);
    for lines in fake.seen() {
        let text = lines.join("\n").to_lowercase();
        assert!(text.contains("authorization: aws4-hmac-sha256 credential=the-id/") && text.contains("the-token"), "{text}");
        assert!(!text.contains("the-secret"));
    }
    fake.always(Failure::Status(403, "", "<Error><Code>AccessDenied</Code><Message>the-secret</Message></Error>"));
    for (client, hint) in [(fake.client(&keys), "must be of somebody"), (fake.client(&[]), "only public buckets")] {
        let fault = read(client, &["s3://lake/a.csv"]).unwrap_err();
        assert_eq!(
            (fault.blame, fault.message.as_str()),
            (Blame::Access, "s3://lake/a.csv: the server answers 403 Forbidden (AccessDenied)")
        );
        assert!(fault.to_string().contains(hint) && !fault.to_string().contains("the-secret"), "{fault}");
    }
    let fault = read(fake.client(&[]), &[&format!("{}/lake/a.csv?signature=the-secret", fake.url)]).unwrap_err();
    assert!(fault.message.ends_with("/lake/a.csv: the server answers 403 Forbidden"), "{fault}");
    assert!(!fault.to_string().contains("the-secret"), "{fault}");
}

#[test]
fn what_passes_is_tried_again_and_what_breaks_off_goes_on() {
    let fake = serve();
    let busy = Failure::Status(503, "retry-after: 0\r\n", "<Error><Code>SlowDown</Code></Error>");
    fake.next(&[busy.clone(), busy.clone(), Failure::Well, Failure::Cut(1_000), Failure::Stall(20), Failure::Noise]);
    let all = read(fake.client(&[]), &["s3://lake/a.csv"]);
    // Noise is no HTTP: asking again would not help.
    assert!(all.unwrap_err().message.contains("does not answer as HTTP/1.1 servers do"));
    fake.next(&[busy.clone(), Failure::Silence, Failure::Well, Failure::Cut(1_000), Failure::Stall(20), Failure::Well, busy]);
    assert_eq!(read(fake.client(&[]), &["s3://lake/a.csv"]).unwrap(), ALL);
}

#[test]
fn a_server_that_fails_all_the_time_is_an_error_that_says_how() {
    for (failure, expected) in [
        (Failure::Status(503, "", ""), "the server answers 503 Service Unavailable, 3 times in a row"),
        (Failure::Silence, "does not answer in time, 3 times in a row"),
        (Failure::Stall(5), "sends nothing more, 3 times in a row"),
        (Failure::Status(404, "", ""), "404 Not Found"),
        (Failure::Status(418, "", ""), "418 I'm a teapot"),
        (Failure::Status(206, "", "x"), "does not say which"),
        (Failure::Status(206, "content-range: bytes 0-0/18446744073709551615\r\n", "x"), "other bytes than it was asked for"),
        (Failure::Status(206, "content-range: bytes 5-5/9\r\n", "x"), "other bytes than it was asked for"),
    ] {
        let fake = serve();
        fake.always(failure.clone());
        for source in [format!("{}/lake/a.parquet", fake.url), "s3://lake/a.parquet".to_owned()] {
            let fault = read(fake.client(&[]), &[&source]).unwrap_err();
            assert!(fault.message.contains(expected) && fault.message.starts_with(&source), "{failure:?}: {fault}");
        }
    }
    let gone = Fake::serve(&[]);
    let fault = read(gone.client(&[]), &["s3://lake/a.parquet"]).unwrap_err();
    assert_eq!(fault.message, "s3://lake/a.parquet: the server answers 404 Not Found (NoSuchKey)");
    let elsewhere = Failure::Status(301, "x-amz-bucket-region: eu-west-1\r\n", "<Error><Code>PermanentRedirect</Code></Error>");
    gone.always(elsewhere);
    let fault = read(gone.client(&[]), &["s3://lake/a.parquet"]).unwrap_err();
    assert_eq!(fault.hint.as_deref(), Some("its bucket is elsewhere: set AWS_REGION=eu-west-1"));
    for (status, body, blame, hint) in [
        (400, "<Error><Code>ExpiredToken</Code></Error>", Blame::Access, "AWS_SESSION_TOKEN"),
        (403, "<Error><Code>RequestTimeTooSkewed</Code></Error>", Blame::Access, "the clock of this machine"),
        (403, "<Error><Code>InvalidObjectState</Code></Error>", Blame::User, "archived"),
    ] {
        gone.always(Failure::Status(status, "", body));
        let fault = read(gone.client(&[]), &["s3://lake/a.parquet"]).unwrap_err();
        assert!(fault.blame == blame && fault.hint.as_deref().is_some_and(|found| found.contains(hint)), "{fault}");
    }
}

#[test]
fn what_breaks_off_in_the_middle_is_never_taken_for_all() {
    for (path, _) in files() {
        let fake = serve();
        fake.next(&[Failure::Well, Failure::Cut(2_000)]);
        fake.always(Failure::Status(500, "", ""));
        let fault = read(fake.client(&[]), &[&format!("{}/{path}", fake.url)]).unwrap_err();
        assert!(fault.message.contains("500 Internal Server Error, 3 times"), "{path}: {fault}");
        assert!(fault.blame == Blame::Device && fault.hint.is_some(), "{path}: {fault:?}");
    }
    // A server that gives no parts: the reader cannot go on.
    let fake = serve();
    fake.as_a_whole(false);
    fake.next(&[Failure::Well, Failure::Well, Failure::Cut(300_000)]);
    let fault = read(fake.client(&[]), &[&format!("{}/lake/a.csv", fake.url)]).unwrap_err();
    assert!(fault.message.contains("/lake/a.csv: the answer broke off"), "{fault}");
    assert!(fault.hint.is_some_and(|hint| hint.contains("fetch the file first")));
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error() {
    for path in ["lake/a.csv", "lake/a.parquet"] {
        let fake = serve();
        let sources = [format!("s3://{path}")];
        let opened = open_found(Finder::with(fake.client(&[])), &sources, None, &CsvOptions::default()).unwrap();
        let (_, bytes) = files().into_iter().find(|(known, _)| *known == path).unwrap();
        fake.put(path, &bytes);
        let outcome = opened[0].read(0, 4_096, None).and_then(|mut chunks| chunks.try_for_each(|chunk| chunk.map(drop)));
        let fault = outcome.unwrap_err();
        assert_eq!((fault.blame, fault.message), (Blame::Conflict, format!("s3://{path} was changed while it was read")));
    }
}

#[test]
fn damaged_files_at_servers_are_errors_that_name_them() {
    let whole = parquet();
    let mut long = whole.clone();
    let at = long.len() - 8;
    long[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let fake = Fake::serve(&[
        ("b/empty.parquet", b""),
        ("b/short.parquet", b"PAR1"),
        ("b/cut.parquet", &whole[..whole.len() / 2]),
        ("b/long.parquet", &long),
        ("b/cut.arrow", &arrow_file()[..9_000]),
        ("b/empty.csv", b""),
        ("b/what", b"\0\0"),
    ]);
    for key in ["empty.parquet", "short.parquet", "cut.parquet", "long.parquet", "cut.arrow", "what"] {
        let fault = read(fake.client(&[]), &[&format!("s3://b/{key}")]).unwrap_err();
        assert!(fault.blame == Blame::User && fault.message.contains(key), "{key}: {fault}");
    }
}
