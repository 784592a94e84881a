//! Substring search over `l_comment`, beside memmem over the same bytes in one piece.

use std::fs::File;
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use memchr::memchr;
use memchr::memmem::Finder;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pithead_host::Session;
use pithead_model::{Blame, Fault};

use super::{Beside, ScanOptions, beside};
use crate::tables::io;

/// What is looked for: parts that follow each other in a comment. One comment in 14 has them, in 300, in 3,000, none.
const PATTERNS: [&[&str]; 4] = [&["packages"], &["special", "requests"], &["furiously regular deposits"], &["zebra"]];
/// Ends each comment in the buffer. It occurs in none.
const END: u8 = b'\n';

/// Measures each pattern.
pub(super) async fn measure(session: &Session, options: &ScanOptions, lineitem: &Path) -> Result<Vec<Beside>, Fault> {
    let (text, rows) = comments(lineitem)?;
    let parts = cut(&text, options.threads);
    let mut measured = Vec::new();
    for pattern in PATTERNS {
        let sql = format!("SELECT count(*) FROM lineitem WHERE l_comment LIKE '%{}%'", pattern.join("%"));
        let plain = || {
            std::thread::scope(|scope| {
                let running: Vec<_> = parts.iter().map(|part| scope.spawn(|| matching(part, pattern))).collect();
                running.into_iter().filter_map(|thread| thread.join().ok()).sum::<i64>()
            })
        };
        let check = |found: &[RecordBatch], expected: &i64| {
            let count = found.iter().find(|batch| batch.num_rows() == 1)?.columns().first()?;
            (count.as_primitive_opt::<Int64Type>()?.value(0) == *expected).then_some(*expected as f64 / rows as f64)
        };
        let bytes = text.len() as u64 - rows;
        measured.push(beside(session, sql, options.runs, bytes, plain, check).await?);
    }
    Ok(measured)
}

/// Comments of this text that have the parts one after the other.
fn matching(text: &[u8], parts: &[&str]) -> i64 {
    let finders: Vec<Finder<'_>> = parts.iter().map(Finder::new).collect();
    let Some((first, others)) = finders.split_first() else { return 0 };
    let (mut rest, mut count) = (text, 0);
    while let Some(at) = first.find(rest) {
        rest = &rest[at + first.needle().len()..];
        let (mut comment, next) = rest.split_at(memchr(END, rest).unwrap_or(rest.len()));
        rest = next;
        let all = others.iter().all(|finder| match finder.find(comment) {
            Some(at) => {
                comment = &comment[at + finder.needle().len()..];
                true
            }
            None => false,
        });
        count += i64::from(all);
    }
    count
}

/// The text in as many parts of about the same size, cut between comments.
fn cut(text: &[u8], parts: usize) -> Vec<&[u8]> {
    let mut cut = Vec::new();
    let mut rest = text;
    for left in (1..=parts.max(1)).rev() {
        let about = rest.len() / left;
        let end = rest[about..].iter().position(|byte| *byte == END).map_or(rest.len(), |at| about + at + 1);
        let (part, next) = rest.split_at(if left == 1 { rest.len() } else { end });
        cut.push(part);
        rest = next;
    }
    cut
}

/// All comments, each with its end, and how many there are.
fn comments(lineitem: &Path) -> Result<(Vec<u8>, u64), Fault> {
    let failed = |error: &dyn std::fmt::Display| Fault::new(Blame::Device, format!("{}: {error}", lineitem.display()));
    let file = File::open(lineitem).map_err(|error| io(lineitem, &error))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| failed(&error))?;
    let column = ProjectionMask::columns(builder.parquet_schema(), ["l_comment"]);
    let batches = builder.with_projection(column).build().map_err(|error| failed(&error))?;
    let (mut text, mut rows) = (Vec::new(), 0);
    for batch in batches {
        let batch = batch.map_err(|error| failed(&error))?;
        let comments = batch.columns().first().ok_or_else(|| failed(&"there is no column l_comment"))?;
        let comments = cast(comments, &DataType::Utf8View).map_err(|error| failed(&error))?;
        for comment in comments.as_string_view().iter().flatten() {
            text.extend_from_slice(comment.as_bytes());
            text.push(END);
        }
        rows += comments.len() as u64;
    }
    Ok((text, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_counted_once_however_they_are_cut() {
        let text = b"a special of requests\nspecial\nrequests, special\nspecial special requests requests\n";
        for parts in 1..6 {
            let count: i64 = cut(text, parts).iter().map(|part| matching(part, &["special", "requests"])).sum();
            assert_eq!(count, 2, "{parts} parts");
            assert_eq!(cut(text, parts).concat(), text);
        }
    }
}
