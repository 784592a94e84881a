//! `COPY … TO 'file'` and `COPY t FROM 'file'`: rows into a file beside the host, and from files there or at servers into a dataset.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use futures::StreamExt;
use futures::stream::BoxStream;
use pithead_files::{Compression, CsvOptions, Format, NewFile, WriteError, WriteOptions, file_writer};
use pithead_load::{LoadMode, LoadSpec};
use pithead_model::{Blame, Dataset, DatasetName, Fault};

use crate::tokens::{is_gap, is_word};

/// Batches that wait for the file at most.
const WAITING_MAX: usize = 4;

const SHAPE: &str = "COPY (query) TO 'file', COPY dataset TO 'file', or COPY dataset FROM 'file', each with (option value, …)";

/// A COPY as it was written.
#[derive(Debug)]
pub(crate) struct Copying<'a> {
    /// The tokens of the query, or of the dataset's name.
    pub(crate) source: &'a [TokenWithSpan],
    /// The columns that are named after the dataset.
    pub(crate) columns: Option<&'a [TokenWithSpan]>,
    pub(crate) is_query: bool,
    pub(crate) file: CopyFile,
}

/// The file, and what is said of it.
#[derive(Clone, Debug)]
pub(crate) enum CopyFile {
    /// It is written.
    To(PathBuf, WriteOptions),
    /// It is read; it may be a pattern for several, or lie at a server.
    From(String, Option<Format>, CsvOptions),
}

/// Takes a statement for COPY if it begins with the word.
pub(crate) fn read(tokens: &[TokenWithSpan]) -> Result<Option<Copying<'_>>, Fault> {
    let mut rest = Rest(tokens);
    if !rest.take_word("COPY") {
        return Ok(None);
    }
    let (source, columns, is_query) = match rest.group()? {
        Some(query) => (query, None, true),
        None => (rest.name()?, rest.group()?, false),
    };
    let is_to = match (rest.take_word("TO"), is_query) {
        (true, _) => true,
        (false, false) if rest.take_word("FROM") => false,
        _ => return Err(rest.expected(if is_query { "TO" } else { "TO or FROM" })),
    };
    let path = rest.path()?;
    let _ = rest.take_word("WITH");
    let options = rest.group()?.map_or_else(|| Ok(vec![]), options)?;
    if rest.next().is_some_and(|token| token.token != Token::SemiColon) {
        return Err(Fault::invalid(format!("expected {SHAPE}")));
    }
    let file = match is_to {
        true => to(PathBuf::from(path), options)?,
        false => from(path, options)?,
    };
    Ok(Some(Copying { source, columns, is_query, file }))
}

/// The tokens that are not read yet.
struct Rest<'a>(&'a [TokenWithSpan]);

impl<'a> Rest<'a> {
    fn next(&mut self) -> Option<&'a TokenWithSpan> {
        let place = self.0.iter().position(|token| !is_gap(token) && token.token != Token::EOF)?;
        let token = &self.0[place];
        self.0 = &self.0[place + 1..];
        Some(token)
    }

    fn peek(&self) -> Option<&'a TokenWithSpan> {
        Rest(self.0).next()
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_there = self.peek().is_some_and(|token| is_word(token, word));
        if is_there {
            let _ = self.next();
        }
        is_there
    }

    /// What stands in parentheses, if they begin here.
    fn group(&mut self) -> Result<Option<&'a [TokenWithSpan]>, Fault> {
        if self.peek().is_none_or(|token| token.token != Token::LParen) {
            return Ok(None);
        }
        let _ = self.next();
        let inner = self.0;
        let mut depth = 1;
        for (place, token) in inner.iter().enumerate() {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.0 = &inner[place + 1..];
                return Ok(Some(&inner[..place]));
            }
        }
        Err(Fault::invalid("a parenthesis of COPY is not closed"))
    }

    /// `dataset` or `domain.dataset`.
    fn name(&mut self) -> Result<&'a [TokenWithSpan], Fault> {
        let all = self.0;
        loop {
            let token = self.next();
            if !token.is_some_and(|token| matches!(token.token, Token::Word(_))) {
                return Err(self.expected("a query in parentheses, or a dataset"));
            }
            if self.peek().is_none_or(|token| token.token != Token::Period) {
                return Ok(&all[..all.len() - self.0.len()]);
            }
            let _ = self.next();
        }
    }

    fn path(&mut self) -> Result<String, Fault> {
        match self.next().map(|token| &token.token) {
            Some(Token::SingleQuotedString(path)) if !path.is_empty() => Ok(path.clone()),
            Some(Token::Word(word)) if ["STDIN", "STDOUT"].iter().any(|known| word.value.eq_ignore_ascii_case(known)) => {
                let fault = Fault::new(Blame::Unsupported, format!("COPY reads and writes files here, and not {}", word.value));
                Err(fault.hint("name a file in quotes; `pithead sql -o FILE -c QUERY` and `pithead load` take pipes"))
            }
            _ => Err(self.expected("a file in quotes, as in 'rows.parquet'")),
        }
    }

    fn expected(&self, what: &str) -> Fault {
        let found = self.peek().map_or("the end".to_owned(), |token| token.token.to_string());
        Fault::invalid(format!("expected {what} in COPY, near {found}")).hint(SHAPE)
    }
}

/// Names in lower case, and their values; none: the name stands alone.
fn options(tokens: &[TokenWithSpan]) -> Result<Vec<(String, Option<String>)>, Fault> {
    let mut found = Vec::new();
    for option in tokens.split(|token| token.token == Token::Comma) {
        let mut words = option.iter().filter(|token| !is_gap(token) && token.token != Token::Eq).map(|token| &token.token);
        let value = |token: &Token| match token {
            Token::Word(word) => Ok(word.value.clone()),
            Token::SingleQuotedString(text) => Ok(text.clone()),
            Token::Number(number, _) => Ok(number.clone()),
            other => Err(Fault::invalid(format!("{other} is no value of an option of COPY"))),
        };
        match (words.next(), words.next().map(value).transpose()?, words.next()) {
            (Some(Token::Word(name)), value, None) => found.push((name.value.to_lowercase(), value)),
            _ => {
                return Err(Fault::invalid("expected options of COPY as (option value, …), such as (FORMAT csv, HEADER true)"));
            }
        }
    }
    Ok(found)
}

/// What options say, before it is known what they are for.
#[derive(Default)]
struct Said {
    format: Option<Format>,
    header: Option<bool>,
    delimiter: Option<u8>,
    null: Option<String>,
    compression: Option<Compression>,
}

impl Said {
    fn of(options: Vec<(String, Option<String>)>) -> Result<Said, Fault> {
        let mut said = Said::default();
        for (name, value) in options {
            let given = || value.clone().ok_or_else(|| Fault::invalid(format!("option {name} of COPY has no value")));
            match name.as_str() {
                "format" => said.format = Some(format(&given()?)?),
                "header" => said.header = Some(value.as_deref().map_or(Ok(true), is_true)?),
                "delimiter" | "delim" | "sep" => said.delimiter = Some(one_byte(&given()?)?),
                "null" | "nullstr" => said.null = Some(given()?),
                "compression" | "codec" => said.compression = Some(compression(&given()?)?),
                other => {
                    return Err(Fault::new(Blame::User, format!("COPY has no option {other}"))
                        .hint("there are FORMAT, HEADER, DELIMITER, NULL and COMPRESSION"));
                }
            }
        }
        Ok(said)
    }
}

fn to(path: PathBuf, options: Vec<(String, Option<String>)>) -> Result<CopyFile, Fault> {
    let said = Said::of(options)?;
    if path.to_string_lossy().contains("://") {
        let fault = Fault::new(Blame::Unsupported, "COPY … TO writes files of this machine only");
        return Err(fault.hint("write a file, and put it there with the server's own tools"));
    }
    let usual = match (WriteOptions::of_file(&path), said.format) {
        (Some(usual), None) => usual,
        (Some(usual), Some(format)) => WriteOptions { format, ..usual },
        (None, Some(format)) => WriteOptions::new(format),
        (None, None) => {
            let fault = Fault::invalid(format!("cannot tell a format from the name {}", path.display()));
            return Err(fault.hint("end it in .parquet, .csv, .json or .arrow, or say (FORMAT parquet)"));
        }
    };
    let is_csv = usual.format == Format::Csv;
    if !is_csv && (said.header.is_some() || said.delimiter.is_some() || said.null.is_some()) {
        return Err(Fault::invalid("HEADER, DELIMITER and NULL are options of CSV, and the file is of another format"));
    }
    let options = WriteOptions {
        header: said.header.unwrap_or(usual.header),
        delimiter: said.delimiter.unwrap_or(usual.delimiter),
        null: said.null.unwrap_or(usual.null),
        compression: said.compression.or(usual.compression),
        ..usual
    };
    Ok(CopyFile::To(path, options))
}

fn from(path: String, options: Vec<(String, Option<String>)>) -> Result<CopyFile, Fault> {
    let said = Said::of(options)?;
    if said.compression.is_some() {
        return Err(
            Fault::invalid("a file that is read says by its first bytes how it is compressed").hint("leave COMPRESSION out")
        );
    }
    let usual = CsvOptions::default();
    let csv = CsvOptions { header: said.header.unwrap_or(usual.header), delimiter: said.delimiter, null: said.null, ..usual };
    Ok(CopyFile::From(path, said.format, csv))
}

fn format(text: &str) -> Result<Format, Fault> {
    Format::of_ending(&text.to_lowercase()).ok_or_else(|| {
        Fault::new(Blame::User, format!("COPY has no format {text}")).hint("there are parquet, csv, json and arrow")
    })
}

fn compression(text: &str) -> Result<Compression, Fault> {
    match text.to_lowercase().as_str() {
        "none" | "uncompressed" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip),
        "zstd" => Ok(Compression::Zstd),
        "snappy" => Ok(Compression::Snappy),
        "lz4" | "lz4_raw" => Ok(Compression::Lz4),
        _ => Err(Fault::new(Blame::User, format!("COPY has no compression {text}"))
            .hint("there are zstd, gzip, snappy, lz4 and none; text takes zstd, gzip and none")),
    }
}

pub(crate) fn is_true(text: &str) -> Result<bool, Fault> {
    match text.to_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(Fault::invalid(format!("expected HEADER true or HEADER false, got {text}"))),
    }
}

pub(crate) fn one_byte(text: &str) -> Result<u8, Fault> {
    match text.as_bytes() {
        _ if text == "\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err(Fault::invalid(format!("expected one ASCII character as DELIMITER, got {text:?}"))),
    }
}

/// The load of a COPY … FROM into a dataset with these columns.
pub(crate) fn load_spec(
    name: DatasetName,
    dataset: Arc<Dataset>,
    path: &str,
    format: Option<Format>,
    csv: &CsvOptions,
) -> LoadSpec {
    let names = dataset.schema.fields().iter().map(|field| field.name().clone()).collect();
    let (csv, over) = (CsvOptions { names, ..csv.clone() }, Some(dataset));
    LoadSpec { mode: LoadMode::Append, over, format, csv, ..LoadSpec::new(name, vec![path.to_owned()]) }
}

/// Writes rows to a file, on a thread that may block. How many there were. The file is there only if all were written.
pub(crate) async fn write(
    path: &Path,
    options: &WriteOptions,
    schema: &SchemaRef,
    mut rows: BoxStream<'static, Result<RecordBatch, Fault>>,
) -> Result<u64, Fault> {
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<Option<RecordBatch>>(WAITING_MAX);
    let (file, options, schema) = (path.to_owned(), options.clone(), SchemaRef::clone(schema));
    let writing = tokio::task::spawn_blocking(move || {
        let mut out = NewFile::create(&file)?;
        let mut writer = file_writer(&options, &schema, &mut out)?;
        while let Some(batch) = receiver.blocking_recv() {
            let Some(batch) = batch else {
                writer.finish()?;
                return Ok(out.finish()?);
            };
            writer.write(&batch)?;
        }
        // Whoever sent rows was stopped: the file goes with what it has.
        Ok::<_, WriteError>(())
    });
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        count += batch.num_rows() as u64;
        if sender.send(Some(batch)).await.is_err() {
            break;
        }
    }
    // A closed channel: the writer has failed, and says why.
    let _ = sender.send(None).await;
    writing.await.map_err(Fault::bug)?.map_err(|error| error.fault(path))?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{tokens, written};

    fn parts(sql: &str) -> Result<(String, Option<String>, CopyFile), Fault> {
        let tokens = tokens(sql).unwrap();
        let copying = read(&tokens)?.unwrap();
        Ok((written(copying.source), copying.columns.map(written), copying.file))
    }

    #[test]
    fn statements_are_read_as_duckdb_and_postgres_write_them() {
        let (source, columns, file) =
            parts("COPY (SELECT (1) AS a) TO 'a.parquet' (FORMAT parquet, COMPRESSION 'snappy');").unwrap();
        assert_eq!((source.as_str(), columns), ("SELECT ( 1 ) AS a", None));
        assert!(matches!(file, CopyFile::To(_, WriteOptions { compression: Some(Compression::Snappy), .. })));
        let (source, columns, file) =
            parts("copy lab.\"T x\" (a, b) from 'x*.csv' with (header, delimiter '|', null '\\N')").unwrap();
        assert_eq!((source.as_str(), columns.as_deref()), ("lab . \"T x\"", Some("a , b")));
        let CopyFile::From(path, None, csv) = file else { panic!("{file:?}") };
        assert_eq!((path.as_str(), csv.header, csv.delimiter, csv.null.as_deref()), ("x*.csv", true, Some(b'|'), Some("\\N")));
        let (_, _, file) = parts("COPY t TO 'rows.tsv.gz' (HEADER false)").unwrap();
        let CopyFile::To(_, options) = file else { panic!("{file:?}") };
        assert_eq!((options.delimiter, options.header, options.compression), (b'\t', false, Some(Compression::Gzip)));
        // A reader goes by the name's ending, too.
        for (name, format, delimiter) in [("a.tsv", "csv", b'\t'), ("a.tsv.gz", "csv", b'\t'), ("a.json", "csv", b',')] {
            let (_, _, file) = parts(&format!("COPY t TO '{name}' (FORMAT {format})")).unwrap();
            let CopyFile::To(_, options) = file else { panic!("{file:?}") };
            assert_eq!((options.format, options.delimiter), (Format::Csv, delimiter), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_sentence() {
        for (sql, expected) in [
            ("COPY t", "expected TO or FROM"),
            ("COPY (SELECT 1 TO 'a.csv'", "not closed"),
            ("COPY (SELECT 1) FROM 'a.csv'", "expected TO"),
            ("COPY t TO 'a'", "cannot tell a format"),
            ("COPY t TO STDOUT", "and not STDOUT"),
            ("COPY t TO 's3://lake/t.parquet'", "files of this machine only"),
            ("COPY t TO 'a.csv' (FORCE true)", "no option force"),
            ("COPY t TO 'a.csv' (DELIMITER ';;')", "one ASCII character"),
            ("COPY t TO 'a.parquet' (HEADER)", "options of CSV"),
            ("COPY t TO 'a.csv' (FORMAT orc)", "no format orc"),
            ("COPY t TO 'a.csv' (FORMAT)", "has no value"),
            ("COPY t FROM 'a.csv' (COMPRESSION gzip)", "by its first bytes"),
            ("COPY t TO 'a.csv' SORTED", "expected COPY (query)"),
        ] {
            let fault = parts(sql).unwrap_err();
            assert!(fault.message.contains(expected), "{sql}: {fault}");
        }
        assert!(read(&tokens("SELECT 1").unwrap()).unwrap().is_none());
    }
}
