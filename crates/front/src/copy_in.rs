//! COPY … FROM STDIN: rows from a client into a dataset, by a load: they become visible together at the end, or not at all.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use pithead_door::Batches;
use pithead_host::{LoadMode, LoadSpec, Right};
use pithead_model::{DatasetName, Fault, PAGE_ROWS};
use tokio::sync::mpsc;

use crate::connection::{Halt, Talk, flush};
use crate::copy::{Copy, CopyFormat, CopyOptions, Source};
use crate::decode::from_text;
use crate::error::{Complaint, WRONG_COPY};
use crate::lexer::{TokenKind, tokens};
use crate::link::Read;
use crate::message::Message;

/// Longest row.
const ROW_BYTES_MAX: usize = 16 << 20;
/// Bytes of fields after which a batch ends, however few rows it has.
const BATCH_BYTES: usize = 8 << 20;
/// Batches that wait to be sent to the drives.
const BATCHES_MAX: usize = 2;

/// A field of a row; none: NULL.
type Field = Option<String>;

impl Talk {
    pub(crate) async fn copy_in(&mut self, copy: &Copy) -> Result<(), Halt> {
        let notice = self.transaction.check(true)?;
        self.admit()?;
        let (name, schema, places) = self.target(copy).await?;
        self.notice(notice);
        self.link.out.copy(b'G', false, places.len());
        flush(&mut self.link, &self.place.cancel).await?;
        let (sender, receiver) = mpsc::channel::<Result<RecordBatch, Fault>>(BATCHES_MAX);
        let rows: Batches = futures::stream::unfold(receiver, |mut receiver| async {
            let batch = receiver.recv().await?;
            Some((batch, receiver))
        })
        .boxed();
        let host = self.front.host.clone();
        let spec = LoadSpec { mode: LoadMode::Append, ..LoadSpec::new(name, vec![]) };
        let own = Arc::clone(&schema);
        let loading = async move { host.load_batches(spec, own, rows).await };
        tokio::pin!(loading);
        let mut builder = Builder { schema, places, zone: self.settings.zone().0, rows: Vec::new(), bytes: 0 };
        let mut reader = RowReader::new(copy.options.clone(), builder.places.len());
        // A load that fails at once ends the reading, too.
        let report = {
            let reading = async {
                let ended = self.read_rows(&mut reader, &mut builder, &sender).await;
                drop(sender);
                ended
            };
            tokio::pin!(reading);
            tokio::select! {
                biased;
                ended = &mut reading => {
                    ended?;
                    (&mut loading).await
                }
                report = &mut loading => report,
            }
        }?;
        self.transaction.wrote();
        self.front.metrics.copied_rows.inc_by(report.rows);
        self.link.out.complete(&format!("COPY {}", report.rows));
        Ok(())
    }

    /// The dataset, its columns, and which of them a row's fields are for.
    async fn target(&mut self, copy: &Copy) -> Result<(DatasetName, SchemaRef, Vec<usize>), Halt> {
        let Source::Table { name, columns } = &copy.source else { return Err(Fault::bug("COPY reads into no table").into()) };
        let name = dataset_name(name, &self.session.domain())?;
        self.session.check(Right::Write, &name.domain)?;
        let snapshot = self.front.host.fleet().snapshot().await?;
        let schema = Arc::clone(&snapshot.readable(&name)?.dataset().schema);
        let place = |column: &String| {
            let found = schema.fields().iter().position(|field| field.name() == column);
            found.ok_or_else(|| Complaint::error("42703", format!("column {column:?} of {name} does not exist")))
        };
        let places = match columns.as_slice() {
            [] => (0..schema.fields().len()).collect(),
            some => some.iter().map(place).collect::<Result<Vec<_>, _>>()?,
        };
        let twice = (1..places.len()).find(|place| places[..*place].contains(&places[*place]));
        match twice {
            Some(place) => Err(Complaint::error("42701", format!("column {:?} is named twice", columns[place])).into()),
            None => Ok((name, schema, places)),
        }
    }

    async fn read_rows(
        &mut self,
        reader: &mut RowReader,
        builder: &mut Builder,
        sender: &mpsc::Sender<Result<RecordBatch, Fault>>,
    ) -> Result<(), Halt> {
        loop {
            let read = tokio::select! {
                biased;
                () = self.place.cancel.asked() => {
                    return Err(Complaint::error("57014", "canceling statement due to user request").into());
                }
                read = self.link.next() => read,
            };
            let message = match read {
                Read::Message(tag, body) => {
                    Message::read(tag, body).map_err(|what| Halt::Last(Complaint::fatal("08P01", what.to_string())))?
                }
                Read::TooLarge { bytes, .. } => {
                    return Err(Complaint::error("54000", format!("a message of {bytes} bytes is too large")).into());
                }
                Read::Malformed(what) => return Err(Halt::Last(Complaint::fatal("08P01", what))),
                Read::Gone => return Err(Halt::Gone),
            };
            match message {
                Message::CopyData(bytes) => {
                    reader.push(&bytes)?;
                    while let Some(row) = reader.next(false)? {
                        builder.add(row);
                        if builder.is_full() {
                            builder.send(sender).await?;
                        }
                    }
                }
                Message::CopyDone => {
                    while let Some(row) = reader.next(true)? {
                        builder.add(row);
                    }
                    return builder.send(sender).await;
                }
                Message::CopyFail(why) => {
                    return Err(Complaint::error("57014", format!("COPY from stdin failed: {why}")).into());
                }
                Message::Flush | Message::Sync => {}
                Message::Terminate => return Err(Halt::Gone),
                _ => return Err(Complaint::error("08P01", "a message that does not belong into COPY").into()),
            }
        }
    }
}

/// The name of a dataset as SQL writes it.
fn dataset_name(text: &str, domain: &str) -> Result<DatasetName, Fault> {
    let mut parts = Vec::new();
    for token in tokens(text) {
        match token.kind {
            TokenKind::Word(words) => parts.extend(words.split('.').filter(|word| !word.is_empty()).map(str::to_owned)),
            TokenKind::Name(name) => parts.push(name),
            _ => return Err(Fault::invalid(format!("expected [domain.]dataset, got {text}"))),
        }
    }
    match parts.as_slice() {
        [name] => DatasetName::new(domain, name.as_str()),
        [.., domain, name] => DatasetName::new(domain.as_str(), name.as_str()),
        [] => Err(Fault::invalid("expected [domain.]dataset")),
    }
}

/// Puts rows together to batches.
struct Builder {
    schema: SchemaRef,
    /// The column of each field.
    places: Vec<usize>,
    zone: String,
    rows: Vec<Vec<Field>>,
    bytes: usize,
}

impl Builder {
    fn add(&mut self, row: Vec<Field>) {
        self.bytes += row.iter().flatten().map(String::len).sum::<usize>();
        self.rows.push(row);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= PAGE_ROWS || self.bytes >= BATCH_BYTES
    }

    async fn send(&mut self, sender: &mpsc::Sender<Result<RecordBatch, Fault>>) -> Result<(), Halt> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let batch = self.batch()?;
        (self.rows, self.bytes) = (Vec::new(), 0);
        // Where nobody takes it, the load has failed and says why.
        if sender.send(Ok(batch)).await.is_err() {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn batch(&self) -> Result<RecordBatch, Complaint> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (place, field) in self.schema.fields().iter().enumerate() {
            let Some(of_row) = self.places.iter().position(|column| *column == place) else {
                if !field.is_nullable() {
                    return Err(Complaint::error(
                        "23502",
                        format!("column {:?} is NOT NULL, and is not among those of COPY", field.name()),
                    ));
                }
                columns.push(new_null_array(field.data_type(), self.rows.len()));
                continue;
            };
            let texts: Vec<Option<&str>> = self.rows.iter().map(|row| row[of_row].as_deref()).collect();
            if !field.is_nullable() && texts.contains(&None) {
                return Err(Complaint::error(
                    "23502",
                    format!("column {:?} is NOT NULL, and a row has NULL there", field.name()),
                ));
            }
            let array = from_text(field.data_type(), &texts, &self.zone);
            let named = |complaint: Complaint| Complaint {
                message: format!("column {}: {}", field.name(), complaint.message),
                ..complaint
            };
            columns.push(array.map_err(named)?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| Complaint::error("XX000", error.to_string()))
    }
}

/// Cuts bytes into rows and fields.
pub(crate) struct RowReader {
    options: CopyOptions,
    fields: usize,
    buffer: Vec<u8>,
    /// Where the next row begins, and how far its end was looked for.
    start: usize,
    looked: usize,
    quoted: bool,
    skip_header: bool,
    line: u64,
    ended: bool,
}

impl RowReader {
    /// A reader of rows of so many fields.
    pub(crate) fn new(options: CopyOptions, fields: usize) -> RowReader {
        let skip_header = options.header;
        RowReader {
            options,
            fields,
            buffer: Vec::new(),
            start: 0,
            looked: 0,
            quoted: false,
            skip_header,
            line: 0,
            ended: false,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Complaint> {
        if self.buffer.len() - self.start + bytes.len() > 2 * ROW_BYTES_MAX {
            return Err(self.wrong(format!("a row has more than {ROW_BYTES_MAX} bytes")));
        }
        self.buffer.drain(..self.start);
        self.looked -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The next row; none: more bytes are needed, or with `last`, there are no more.
    pub(crate) fn next(&mut self, last: bool) -> Result<Option<Vec<Field>>, Complaint> {
        loop {
            if self.ended {
                self.start = self.buffer.len();
                self.looked = self.start;
                return Ok(None);
            }
            let Some((from, to)) = self.line(last)? else { return Ok(None) };
            self.line += 1;
            if std::mem::take(&mut self.skip_header) {
                continue;
            }
            let line = &self.buffer[from..to];
            if line == b"\\." {
                self.ended = true;
                continue;
            }
            let fields = match self.options.format {
                CopyFormat::Csv => csv_fields(line, &self.options),
                _ => text_fields(line, &self.options),
            };
            let fields = fields.map_err(|what| self.wrong(what))?;
            return match fields.len() == self.fields {
                true => Ok(Some(fields)),
                false => Err(self.wrong(format!("a row has {} fields; expected {}", fields.len(), self.fields))),
            };
        }
    }

    /// The next line's place, without its end.
    fn line(&mut self, last: bool) -> Result<Option<(usize, usize)>, Complaint> {
        let is_csv = self.options.format == CopyFormat::Csv;
        while let Some(&byte) = self.buffer.get(self.looked) {
            let at = self.looked;
            self.looked += 1;
            match byte {
                b'\n' if !self.quoted => return Ok(Some(self.taken(at))),
                byte if is_csv && byte == self.options.escape && self.options.escape != self.options.quote && self.quoted => {
                    // What follows may be a quote that ends nothing.
                    match self.buffer.get(self.looked) {
                        Some(next) => self.looked += usize::from(*next == self.options.quote || *next == self.options.escape),
                        None if !last => {
                            self.looked = at;
                            break;
                        }
                        None => {}
                    }
                }
                byte if is_csv && byte == self.options.quote => self.quoted = !self.quoted,
                b'\\' if !is_csv => match self.buffer.get(self.looked) {
                    Some(b'\n') | Some(b'\\') => self.looked += 1,
                    Some(_) => {}
                    None if !last => {
                        self.looked = at;
                        break;
                    }
                    None => {}
                },
                _ => {}
            }
        }
        if self.looked - self.start > ROW_BYTES_MAX {
            return Err(self.wrong(format!("a row has more than {ROW_BYTES_MAX} bytes")));
        }
        match last && self.looked > self.start {
            true if self.quoted => Err(self.wrong("a quoted field has no end".to_owned())),
            true => Ok(Some(self.taken(self.buffer.len()))),
            false => Ok(None),
        }
    }

    fn taken(&mut self, end: usize) -> (usize, usize) {
        let from = self.start;
        self.start = (end + 1).min(self.buffer.len());
        self.looked = self.start;
        let to = if end > from && self.buffer[end - 1] == b'\r' { end - 1 } else { end };
        (from, to)
    }

    fn wrong(&self, what: String) -> Complaint {
        Complaint::error(WRONG_COPY, format!("COPY, line {}: {what}", self.line))
    }
}

fn field(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| format!("not UTF-8: {}", error.utf8_error()))
}

fn text_fields(line: &[u8], options: &CopyOptions) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    let (mut value, mut raw_start, mut at) = (Vec::new(), 0, 0);
    let is_null = |raw: &[u8]| raw == options.null.as_bytes();
    while at < line.len() {
        match line[at] {
            byte if byte == options.delimiter => {
                let value = field(std::mem::take(&mut value))?;
                fields.push((!is_null(&line[raw_start..at])).then_some(value));
                raw_start = at + 1;
            }
            b'\\' if at + 1 < line.len() => {
                at += 1;
                at += unescape(&line[at..], &mut value) - 1;
            }
            byte => value.push(byte),
        }
        at += 1;
    }
    let value = field(value)?;
    fields.push((!is_null(&line[raw_start..])).then_some(value));
    Ok(fields)
}

/// What stands after a backslash; how many bytes it is.
fn unescape(rest: &[u8], value: &mut Vec<u8>) -> usize {
    let number = |digits: &[u8], base: u32| {
        digits.iter().try_fold(0_u32, |sum, digit| Some(sum * base + char::from(*digit).to_digit(base)?))
    };
    match rest[0] {
        b'n' => value.push(b'\n'),
        b't' => value.push(b'\t'),
        b'r' => value.push(b'\r'),
        b'b' => value.push(0x08),
        b'f' => value.push(0x0c),
        b'v' => value.push(0x0b),
        b'0'..=b'7' => {
            let count = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
            value.push((number(&rest[..count], 8).unwrap_or(0) & 0xff) as u8);
            return count;
        }
        b'x' if rest.get(1).is_some_and(u8::is_ascii_hexdigit) => {
            let count = rest[1..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
            value.push((number(&rest[1..=count], 16).unwrap_or(0) & 0xff) as u8);
            return 1 + count;
        }
        other => value.push(other),
    }
    1
}

fn csv_fields(line: &[u8], options: &CopyOptions) -> Result<Vec<Field>, String> {
    let (mut fields, mut value, mut at, mut quoted, mut was_quoted) = (Vec::new(), Vec::new(), 0, false, false);
    loop {
        let byte = line.get(at).copied();
        at += 1;
        match byte {
            None if quoted => return Err("a quoted field has no end".to_owned()),
            Some(byte) if quoted => {
                let next = line.get(at).copied();
                if byte == options.escape && next.is_some_and(|next| next == options.quote || next == options.escape) {
                    value.extend(next);
                    at += 1;
                } else if byte == options.quote {
                    quoted = false;
                } else {
                    value.push(byte);
                }
            }
            Some(byte) if byte == options.quote => (quoted, was_quoted) = (true, true),
            Some(byte) if byte != options.delimiter => value.push(byte),
            end => {
                let is_null = !was_quoted && value == options.null.as_bytes();
                let text = field(std::mem::take(&mut value))?;
                fields.push((!is_null).then_some(text));
                was_quoted = false;
                if end.is_none() {
                    return Ok(fields);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(sql: &str, parts: &[&str], fields: usize) -> Result<Vec<Vec<Field>>, String> {
        let mut reader = RowReader::new(Copy::read(sql).unwrap().options, fields);
        let mut rows = Vec::new();
        for part in parts {
            reader.push(part.as_bytes()).map_err(|complaint| complaint.message)?;
            while let Some(row) = reader.next(false).map_err(|complaint| complaint.message)? {
                rows.push(row);
            }
        }
        while let Some(row) = reader.next(true).map_err(|complaint| complaint.message)? {
            rows.push(row);
        }
        Ok(rows)
    }

    fn row(fields: &[Option<&str>]) -> Vec<Field> {
        fields.iter().map(|field| field.map(str::to_owned)).collect()
    }

    #[test]
    fn rows_are_the_same_however_their_bytes_are_cut() {
        let text = "1\ta\\tb\\\\\n2\t\\N\r\n3\t\\x41\\101\\\nx\n\\.\nrest";
        let expected = [row(&[Some("1"), Some("a\tb\\")]), row(&[Some("2"), None]), row(&[Some("3"), Some("AA\nx")])];
        let csv = "a,b\n1,\"x,\"\"y\"\"\nz\"\n2,\n3,\"\"\n";
        let expected_csv = [row(&[Some("1"), Some("x,\"y\"\nz")]), row(&[Some("2"), None]), row(&[Some("3"), Some("")])];
        for cut in 0..text.len() {
            assert_eq!(rows("COPY t FROM STDIN", &[&text[..cut], &text[cut..]], 2).unwrap(), expected, "{cut}");
        }
        for cut in 0..csv.len() {
            assert_eq!(rows("COPY t FROM STDIN CSV HEADER", &[&csv[..cut], &csv[cut..]], 2).unwrap(), expected_csv, "{cut}");
        }
    }

    #[test]
    fn rows_that_lie_are_refused() {
        for (sql, text) in [
            ("COPY t FROM STDIN", "1\n"),
            ("COPY t FROM STDIN", "1\t2\t3\n"),
            ("COPY t FROM STDIN", "\\xff\t\\xfe\n"),
            ("COPY t FROM STDIN CSV", "1,\"open"),
            ("COPY t FROM STDIN CSV", "1,2,3"),
        ] {
            assert!(rows(sql, &[text], 2).is_err(), "{text}");
        }
        assert_eq!(rows("COPY t FROM STDIN CSV", &[], 2).unwrap(), Vec::<Vec<Field>>::new());
    }

    #[test]
    fn names_are_those_of_sql() {
        let name = |text: &str| dataset_name(text, "main").map(|name| name.to_string()).unwrap();
        assert_eq!([name("T"), name("lab.t"), name("lab.\"T t\""), name("\"A\".\"B\"")], ["main.t", "lab.t", "lab.T t", "A.B"]);
    }
}
